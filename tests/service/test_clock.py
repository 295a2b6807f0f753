"""A clock that is set ends no windows: not while the service runs, and not unsaid at the start."""

import time
from types import SimpleNamespace

import pytest

from adats.service.clock import JUMP, LONGEST_STOP, SteadyClock
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.server import clock_of
from asgi import talk
from served import GAUSSIAN, Clock, Local, call, process

DAY, WINDOW = 86_400.0, 1000.0
AGING = {"half_life": DAY, "prior_half_life": 100 * DAY}
WINDOWED = GAUSSIAN | {"window": WINDOW, "default_reward": 0.0}


class Machine:
    """A clock on the wall, and the time that has passed."""

    def __init__(self):
        self.wall, self.passed = Clock(), Clock(5.0)
        self.now = SteadyClock(self.wall, self.passed)

    def wait(self, seconds):
        self.wall.time += seconds
        self.passed.time += seconds


def test_the_clock_is_followed(caplog):
    machine = Machine()
    for step in (0.0, JUMP - 1, 0.1):  # it is put right
        machine.wait(10.0)
        machine.wall.time += step
        assert (machine.now(), machine.now.off) == (machine.wall.time, 0.0)
    assert caplog.records == []


def test_a_clock_that_is_put_back_a_little_stands_still(caplog):
    machine = Machine()
    machine.wait(10.0)
    last = machine.now()
    machine.wall.time -= JUMP - 1
    for _ in range(JUMP_TENS := 5):
        machine.wait(10.0)
        assert (machine.now(), machine.now.off) == (last, 0.0)
    machine.wait(JUMP - 10.0 * JUMP_TENS)
    assert machine.now() == machine.wall.time == last + 1.0
    assert caplog.records == []


@pytest.mark.parametrize("step", [JUMP + 1, 365 * DAY, -DAY])
def test_a_jump_of_the_clock_is_said_and_not_followed(caplog, step):
    machine = Machine()
    machine.wall.time += step
    for seconds in (0.0, 10.0, 3600.0):
        machine.wait(seconds)
        assert machine.now() == machine.wall.time - step
        assert machine.now.off == pytest.approx(step)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"the clock jumped by {step:+.0f} s" in caplog.text
    machine.wall.time -= step - 7.0  # put back, nearly
    assert (machine.now(), machine.now.off) == (machine.wall.time, 0.0)
    assert caplog.messages[1:] == ["the clock is back"]


def test_a_jump_of_the_clock_ends_no_window(tmp_path):
    machine = Machine()
    local = Local(tmp_path / "x.db", machine.now)
    try:
        local.put("x", WINDOWED)
        for name in "12":
            local.decide("x", DecisionRequest("t", name))
        machine.wait(10.0)
        machine.wall.time += 365 * DAY
        assert local.reward("x", RewardRequest("1", 3.0)).status == "counted"
        assert local.meta("x").rewards == 1
        machine.wait(WINDOW - 11.0)
        assert local.meta("x").rewards == 1
        machine.wait(2.0)  # by the time that has passed it is over
        assert local.meta("x").rewards == 2
    finally:
        local.close()


def test_by_a_jump_of_the_clock_no_reward_ages(tmp_path):
    machine = Machine()
    local = Local(tmp_path / "x.db", machine.now)
    try:
        local.put("x", GAUSSIAN | AGING)
        local.decide("x", DecisionRequest("t", "1"))
        local.reward("x", RewardRequest("1", 3.0))
        for step in (365 * DAY, -700 * DAY):
            machine.wall.time += step
            assert sum(part.pulls for part in local.task("x", "t").parts) == 1.0
        machine.wait(DAY)
        assert sum(part.pulls for part in local.task("x", "t").parts) == 0.5
    finally:
        local.close()


def test_the_clock_of_a_database_is_not_followed_either():
    store = SimpleNamespace(many_writers=True, time=1000.0)
    store.now = lambda: store.time
    clock = clock_of(store)
    store.time += 30.0
    assert clock() == 1030.0
    store.time += DAY
    assert clock() == pytest.approx(1030.0, abs=5.0)
    assert clock.off == pytest.approx(DAY, abs=5.0)


def test_the_service_says_that_the_clock_jumped(tmp_path):
    machine = Machine()

    def calls():
        yield "GET", "/readyz"
        machine.wall.time += DAY
        yield "PUT", "/v1/experiments/x", WINDOWED
        yield "POST", "/v1/experiments/x/decide", {"task": "t"}
        yield "GET", "/readyz"
        yield "GET", "/metrics"

    options = {"clock": machine.now, "clock_off": lambda: machine.now.off}
    before, _, decided, after, metrics = talk(tmp_path / "x.db", calls(), **options)
    assert before == (200, {"status": "ready", "why": None})
    assert decided[1]["time"] == machine.wall.time - DAY
    why = "the clock jumped by +86400 s, and is not followed"
    assert after == (200, {"status": "ready", "why": why})
    assert "adats_clock_off_seconds 86400.0" in metrics[1].splitlines()


def stopped(path, seconds, spec=WINDOWED):
    """A store with a decision that was made so long ago."""
    local = Local(path, Clock(time.time() - seconds))
    local.put("x", spec)
    local.decide("x", DecisionRequest("t", "1"))
    local.close()
    return path


def counted(url):
    return call(f"{url}/v1/experiments/x/report")[1]["counted"]


def test_after_a_long_stop_no_window_ends_before_the_clock_is_confirmed(tmp_path):
    db = stopped(tmp_path / "x.db", LONGEST_STOP + DAY)
    for _ in range(2):
        with pytest.raises(RuntimeError) as refused:
            process(db).__enter__()
        said = str(refused.value)
        assert (said.count("\n"), "8 days ago" in said) == (1, True)
        assert "the windows of 1 decisions would end at once" in said
    with process(db, "--trust-clock") as service:
        until = time.monotonic() + 10
        while not counted(service.url) and time.monotonic() < until:
            time.sleep(0.1)
        assert counted(service.url) == 1


def test_after_a_long_stop_no_half_life_is_over_before_the_clock_is_confirmed(tmp_path):
    db = stopped(tmp_path / "x.db", LONGEST_STOP + DAY, GAUSSIAN | AGING)
    with pytest.raises(RuntimeError, match="8 days ago") as refused:
        process(db).__enter__()
    assert "what 1 experiments have learned would weigh half or less" in str(refused.value)
    with process(db, "--trust-clock") as service:
        assert call(f"{service.url}/readyz")[0] == 200


@pytest.mark.parametrize(
    ("seconds", "spec"),
    [
        (LONGEST_STOP - DAY, WINDOWED | AGING),
        (1000 * DAY, GAUSSIAN),
        (-DAY, WINDOWED),
        (30 * DAY, GAUSSIAN | {"half_life": 31 * DAY}),
    ],
    ids=["not long ago", "nothing would end", "in the future", "it lasts"],
)
def test_a_stop_that_can_be_is_no_matter(tmp_path, seconds, spec):
    with process(stopped(tmp_path / "x.db", seconds, spec)) as service:
        assert call(f"{service.url}/readyz")[0] == 200
