"""Rewards that lose weight with time: what the service believes is the weighted log, worked out by
brute force, in any order, on both stores, after a kill too."""

import gzip
import json
import threading
import time
from contextlib import suppress

import numpy as np
import psutil
import pytest

from adats.models.latent import anchors
from adats.service import folds
from adats.service.audit import check_store
from adats.service.copying import copy_store
from adats.service.errors import Conflict
from adats.service.messages import DecisionRequest, RewardRequest
from adats.service.replay import replay
from adats.service.served_experiment import ServedExperiment
from adats.service.stores.opening import is_shared, open_store, open_view
from adats.service.stores.sqlite import SQLiteStore
from asgi import talk
from hammer import CUT_OFF
from old_files import HALF_LIVES, seen_of_store
from postgres import new_store
from schedules import AGING, CASES, Play, Rules, random_rules, random_schedule
from served import GAUSSIAN, Local, at_rest, call, process, replayed
from shared_play import SharedPlay

DAY = 86_400.0
EXACT = [name for name in AGING if name not in ("clicks", "events")]
LIVES = {"both": (6.0, 9.0), "task": (6.0, None), "prior": (None, 9.0)}
TO_1E_9 = {"rtol": 1e-9, "atol": 1e-9}


def spec_with(half_life=None, prior_half_life=None, spec=GAUSSIAN):
    given = {"half_life": half_life, "prior_half_life": prior_half_life}
    return spec | {name: life for name, life in given.items() if life is not None}


def weight(age, life):
    return 1.0 if life is None else 2.0 ** (-age / life)


def by_brute_force(view, row, task, now):
    """What is believed of a task, or of a new one: each reward with its weight, in its task; each
    other task with its weight, in what all taught."""
    empty = row._replace(total=b"", total_version=-1)
    nobody = ServedExperiment(empty, view).snapshot
    spec, meta, own = nobody.spec, nobody.meta, None
    told = {}
    for decision in view.decisions(row.id):
        if decision.counted not in (None, []):
            told.setdefault(decision.task, []).append(decision)
    for name, decisions in told.items():
        last = now if name == task else max(decision.time for decision in decisions)
        stats = nobody.blank.stats
        for decision in decisions:
            one = nobody.counted(decision, decision.counted, nobody.blank, False).state.stats
            stats = stats + one.scaled(weight(last - decision.time, spec.half_life))
        digest = meta.digest(stats)
        share = 1.0 if name == task else weight(now - last, spec.prior_half_life)
        meta = meta.absorb(share * digest.message)
        own = digest if name == task else own
    return meta.task_prior() if own is None else meta.posterior(own)


def check_beliefs(url, now):
    """Of all tasks of all experiments, and of a new task; how many there are."""
    count, url = 0, str(url)
    with open_view(url) as view:
        for row in view.experiments():
            served = ServedExperiment(row, view)
            tasks = [task for task, state in view.tasks(row.id) if state.stats]
            for task in (*tasks, None):
                if task is None:
                    own = served.snapshot.at(now).meta.task_prior()
                else:
                    own = served.posterior(task, now)
                due = by_brute_force(view, row, task, now)
                np.testing.assert_allclose(own.mean, due.mean, **TO_1E_9)
                np.testing.assert_allclose(own.scale, due.scale, **TO_1E_9)
                count += 1
    return count


# what is believed


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("lives", LIVES)
@pytest.mark.parametrize("model", EXACT)
def test_beliefs_are_those_of_the_weighted_log(tmp_path, monkeypatch, model, lives, large):
    """After decisions, rewards, late and replaced ones, windows, arms added, tasks forgotten and
    restarts, whether or not the sum over tasks is written each time."""
    if large:
        monkeypatch.setattr(folds, "LARGE_TOTAL", 0)
        monkeypatch.setattr(folds, "MOST_UNFOLDED", 3)
    rng = np.random.default_rng([EXACT.index(model), list(LIVES).index(lives), large])
    case = CASES[model]
    case = case._replace(spec=spec_with(*LIVES[lives], spec=case.spec))
    play = Play(
        tmp_path / "x.db", {n: (case, random_rules(rng, case)) for n in "xy"}, compare=False
    )
    for _ in range(3):
        random_schedule(play, rng, 30, forget=True)
        assert check_beliefs(play.path, play.now) > 2
        assert check_beliefs(play.path, play.now + 20.0) > 2
        assert check_store(str(play.path)) == []
    play.close()
    with open_view(str(play.path)) as view:
        again = SQLiteStore(tmp_path / "again.db")
        found = replay(view, again)
        again.close()
    assert (found.changed, found.differences) == ([], [])


@pytest.mark.parametrize("model", ["gaussian", "linear", "binary"])
def test_two_workers_believe_the_weighted_log(tmp_path, model):
    rng = np.random.default_rng(5)
    case = CASES[f"{model}, aging"]
    play = SharedPlay(new_store(), {n: (case, random_rules(rng, case)) for n in "xy"}, 3)
    for i in range(40):
        random_schedule(play, rng, 3, forget=True)
        if i % 4 == 0:
            play.fold()
        if i % 13 == 0:
            at_rest(play.path)
            assert check_beliefs(play.path, play.now + 1.0) > 2
    at_rest(play.path)
    assert check_beliefs(play.path, play.now) > 2
    assert check_store(play.path) == []
    play.close()
    replayed(play.path, tmp_path)


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("model", ["gaussian", "gaussian, aging", "clicks", "clicks, aging"])
def test_a_copy_believes_the_same(tmp_path, monkeypatch, model, large):
    """Also of a store whose sum over tasks is not written each time."""
    if large:
        monkeypatch.setattr(folds, "LARGE_TOTAL", 0)
    rng = np.random.default_rng(6)
    case = CASES[model]
    play = Play(tmp_path / "x.db", {"x": (case, Rules(several="last"))}, compare=False)
    random_schedule(play, rng, 60)
    play.close()
    shared, back = new_store(), str(tmp_path / "back.db")
    assert copy_store(str(play.path), shared) == []
    assert copy_store(shared, back) == []
    said = []
    for url in (str(play.path), shared, back):
        assert check_store(url) == []
        with open_view(url) as view:
            served = ServedExperiment(view.experiment("default", "x"), view)
            said.append(served.snapshot.at(play.now).meta.task_prior().mean)
    np.testing.assert_allclose(said[0], said[1], **TO_1E_9)
    np.testing.assert_array_equal(said[1], said[2])


def kill(process):
    """With its workers, which would go on."""
    running = psutil.Process(process.pid)
    several = [running, *running.children(recursive=True)]
    for one in several:
        one.kill()
    psutil.wait_procs(several, 60)
    process.wait()


def test_after_kill_9_it_is_the_weighted_log(url, tmp_path):
    """Two workers on PostgreSQL; rewards of each task come a while after its decisions."""
    spec = spec_with(1.5, 3.0)
    options = ("--workers", "2") if is_shared(url) else ()

    def use(base, start, stop):
        waiting, i = [], start
        while not stop():
            body = {"task": f"t{i % 7}", "decision_id": f"d{i}"}
            call(f"{base}/decide", "POST", body)
            waiting.append(f"d{i}")
            if len(waiting) == 4:
                told = [{"decision_id": d, "reward": int(d[1:]) % 5 / 4} for d in waiting]
                call(f"{base}/reward", "POST", {"rewards": told})
                waiting = []
            i += 1
            time.sleep(0.01)
        return i

    start, stopping = 0, threading.Event()
    for turn in (1, 2):
        with process(url, *options) as service:
            base = f"{service.url}/v1/experiments/x"
            assert call(base, "PUT", spec)[0] in (200, 201)
            until = time.monotonic() + 1.5
            start = use(base, start, lambda until=until: time.monotonic() > until)

            def load(base=base, first=100_000 * turn):
                with suppress(*CUT_OFF):
                    use(base, first, stopping.is_set)

            busy = threading.Thread(target=load)
            busy.start()
            time.sleep(0.3)
            kill(service.process)
            stopping.set()
            busy.join()
            stopping.clear()
    at_rest(url)
    assert check_beliefs(url, time.time() + 1.0) == 8
    assert check_store(url) == []
    assert replayed(url, tmp_path).decisions > 20


# the times of rewards


@pytest.fixture
def local(tmp_path):
    local = Local(tmp_path / "x.db")
    yield local
    local.close()


def pulls(local, task="t"):
    return sum(part.pulls for part in local.task("x", task).parts)


def test_by_hand(local):
    """Two rewards, one half-life apart, are one and a half; after another, three quarters."""
    local.put("x", spec_with(10.0) | {"arms": ["a"]})
    for i in range(2):
        local.decide("x", DecisionRequest("t", f"d{i}"))
        local.reward("x", RewardRequest(f"d{i}", 1.0))
        local.clock.time += 10.0
    assert pulls(local) == 0.75
    prior, noise = 1.0 + 0.5**2, 1.0
    mean = 0.75 * prior / (0.75 * prior + noise)  # n / (n + σ²/σ_q²)
    assert local.task("x", "t").parts[0].mean == pytest.approx(mean, abs=1e-12)
    local.clock.time += 1000 * 10.0
    part = local.task("x", "t").parts[0]
    assert (part.mean, part.scale) == pytest.approx((0.0, prior**0.5), abs=1e-9)
    assert part.from_task == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("apply", ["at_once", "at_window_end"])
def test_a_reward_has_the_time_of_its_decision(local, apply):
    """However late it comes, and whenever it counts; so has one that is replaced, and the one that
    counts by default."""
    rules = {"window": 10.0, "default_reward": 0.0, "apply": apply, "late": "replace"}
    local.put("x", spec_with(10.0) | rules | {"several": "last"})
    for name in "abc":
        local.decide("x", DecisionRequest("t", name))
    local.clock.time += 6.0
    local.reward("x", RewardRequest("a", 1.0))
    local.clock.time += 14.0
    assert pulls(local) == pytest.approx(3 / 4)
    for value in (2.0, 3.0):
        local.reward("x", RewardRequest("b", value))
        assert pulls(local) == pytest.approx(3 / 4)
    local.clock.time += 10.0
    assert pulls(local) == pytest.approx(3 / 8)
    assert check_beliefs(local.store.path, local.clock.time) == 2


def test_a_task_weighs_less_for_others_and_not_for_itself(local):
    local.put("x", spec_with(None, 10.0) | {"arms": ["a"]})
    local.decide("x", DecisionRequest("t", "d"))
    local.reward("x", RewardRequest("d", 1.0))
    own, before = local.task("x", "t").parts[0], local.meta("x").parts[0]
    assert before.mean > 0.3
    local.clock.time += 400.0
    assert local.task("x", "t").parts[0].mean == pytest.approx(own.mean, abs=1e-12)
    after = local.meta("x").parts[0]
    assert (after.mean, after.scale) == pytest.approx((0.0, 1.25**0.5), abs=1e-9)


def test_a_wild_reward_that_is_replaced_leaves_the_time_of_its_task(tmp_path):
    """A later decision to pull no arm has no reward, so it has no say in that time."""
    local = Local(tmp_path / "x.db")
    given = {"mean": [1.0, -9.0, -9.0], "scale": 0.5, "task_scale": 0.5}
    more = {"prior": {"given": given}, "several": "last", "seed": 1}
    local.put("x", CASES["semi-bandit, aging"].spec | more)
    assert local.decide("x", DecisionRequest("t", "first")).action == ["a"]
    local.reward("x", RewardRequest("first", [-30.0]))
    local.clock.time += 2.0
    assert local.decide("x", DecisionRequest("t", "none")).action == []
    for reward in (1e12, 0.5):
        local.reward("x", RewardRequest("first", [reward]))
    now = local.clock.time
    local.close()
    check_beliefs(tmp_path / "x.db", now)


def test_tasks_that_weigh_nothing_are_not_worked_out_again(tmp_path, monkeypatch):
    """Of clicks: others have their turn. What is left of them stays in the sum."""
    monkeypatch.setattr(anchors, "FEW_REWARDS", 0.0)
    local, generations = Local(tmp_path / "x.db"), []
    local.put("x", CASES["clicks"].spec | {"prior_half_life": 10.0, "seed": 1})
    for i in range(120):
        local.decide("x", DecisionRequest(f"t{i}", f"d{i}"))
        local.reward("x", RewardRequest(f"d{i}", float(i % 3 == 0)))
        local.clock.time += 1.0 if i != 50 else 200.0
    local.close()
    with open_view(str(tmp_path / "x.db")) as view:
        for _, row in view.tasks(1):
            generations.append(row.generation)
        snapshot = ServedExperiment(view.experiment("default", "x"), view).snapshot
        first = snapshot.state_of(next(view.tasks(1))[1])
    assert snapshot.is_light(first)
    assert generations[:51] == [None] * 51
    assert None not in generations[51:]
    assert snapshot.meta.generation - min(generations[51:]) < 10  # not far behind
    assert check_store(str(tmp_path / "x.db")) == []
    assert replayed(str(tmp_path / "x.db"), tmp_path).decisions == 120


def test_a_task_that_is_forgotten_was_never_there(url):
    store = open_store(url)
    store.close()
    case = CASES["gaussian, aging"]
    kind = SharedPlay if is_shared(url) else Play
    more = (1,) if is_shared(url) else ()
    play = kind(url, {"x": (case, Rules(seed=3))}, *more)
    for i in range(12):
        play.decide("x", play.ask("x", ("ann", "bob")[i % 2], i))
        play.reward("x", RewardRequest(f"d{i + 1}", 1.0))
        play.wait(1.0)
    play.forget("x", "bob")
    play.check("x")
    play.wait(5.0)
    play.check("x")
    play.close()


def test_a_long_quiet_time_is_no_matter(url):
    """Of more half-lives than a float has powers of two."""
    open_store(url).close()
    case = CASES["gaussian, aging"]
    shared = is_shared(url)
    play = (SharedPlay if shared else Play)(url, {"x": (case, Rules(seed=3))}, *((1,) * shared))
    for i in range(6):
        play.decide("x", play.ask("x", ("ann", "bob")[i % 2], i))
        play.reward("x", RewardRequest(f"d{i + 1}", 1.0))
        play.check("x")
        play.wait(1e6 if i % 2 else 1.0)
    play.close()


def test_a_clock_that_is_put_back_a_little_is_no_matter(local):
    """A decision is made at the newest reward, at least."""
    local.put("x", spec_with(10.0, 20.0))
    for i in range(6):
        local.decide("x", DecisionRequest("t", f"d{i}"))
        local.reward("x", RewardRequest(f"d{i}", 1.0))
        local.clock.time += (5.0, -20.0)[i % 2]
    assert check_beliefs(local.store.path, local.clock.time + 100.0) == 2
    with open_view(str(local.store.path)) as view:
        served = ServedExperiment(view.experiment("default", "x"), view)
        now = served.snapshot.time
        assert now == 1_000_005.0
        early = served.posterior("t", now - 50.0)
        np.testing.assert_array_equal(early.mean, served.posterior("t", now).mean)


# as settings


def test_it_is_said_in_a_sentence(tmp_path):
    def calls():
        for lives in ((7 * DAY, 30 * DAY), (3600.0, None), (None, 1.5 * DAY), (None, None)):
            spec = spec_with(*lives)
            yield "PUT", "/v1/experiments/x", spec
            yield "GET", "/v1/experiments/x/report"
            yield "PUT", "/v1/experiments/x/status", {"status": "archived"}
            yield "DELETE", "/v1/experiments/x"

    answers = talk(tmp_path / "x.db", calls())
    said = [answer["aging"] for _, answer in answers[::4]]
    assert said == [
        "A reward weighs half after 7 days in its task, and a task half after 30 days in what all "
        "tasks taught.",
        "A reward weighs half after 1 hour in its task.",
        "A task weighs half in what all tasks taught 1.5 days after its last reward.",
        None,
    ]
    assert [answer["aging"] for _, answer in answers[1::4]] == said


def test_another_half_life_is_another_experiment(local):
    local.put("x", spec_with(DAY))
    assert local.put("x", spec_with(DAY))[0] is False
    for other in (spec_with(2 * DAY), spec_with(), spec_with(DAY, DAY)):
        with pytest.raises(Conflict, match="there with other settings, which are fixed"):
            local.put("x", other)


def test_without_half_lives_nothing_else_is_kept(local):
    """Not even a zero: stores are those of before."""
    local.put("x", GAUSSIAN)
    local.decide("x", DecisionRequest("t", "d"))
    local.reward("x", RewardRequest("d", 1.0))
    with open_view(str(local.store.path)) as view:
        row = view.experiment("default", "x")
        (_, task), snapshot = next(view.tasks(row.id)), ServedExperiment(row, view).snapshot
    assert "half_life" not in row.spec
    assert row.total == snapshot.meta.sums().tobytes()
    assert task.stats == local.engine.served("default", "x").stats("t").flat().tobytes()


def test_notes_of_beliefs_are_of_their_time(local):
    local.put("x", spec_with(None, 3600.0))
    for i in range(20):
        local.decide("x", DecisionRequest(f"t{i}", f"d{i}"))
        local.reward("x", RewardRequest(f"d{i}", 3.0))
    with open_view(str(local.store.path)) as view:
        before = np.frombuffer(list(view.beliefs(1))[-1].mean)
    local.clock.time += 100 * 3600.0
    local.decide("x", DecisionRequest("new", "new"))
    with open_view(str(local.store.path)) as view:
        after = np.frombuffer(list(view.beliefs(1))[-1].mean)
    assert np.abs(before).max() > 1.0
    np.testing.assert_allclose(after, 0.0, atol=1e-9)


# stores


def test_a_store_with_half_lives_goes_on(tmp_path):
    """The same beliefs, next decisions and replay as with the version that made it."""
    path = tmp_path / "x.db"
    path.write_bytes(gzip.decompress(HALF_LIVES.read_bytes()))
    said = json.loads(HALF_LIVES.with_name("half-lives.json").read_text())
    assert check_beliefs(path, said["now"] + 5.0) > 10
    assert replayed(str(path), tmp_path).decisions > 50
    seen = seen_of_store(path, said["now"])
    assert seen.keys() == said["seen"].keys()
    for name, expected in said["seen"].items():
        numbers, due = seen[name].pop("numbers"), expected.pop("numbers")
        np.testing.assert_allclose(numbers, due, rtol=1e-9, atol=1e-9)
        assert seen[name] == expected
