"""The verdict from counts by task and arm: its tests, its sizes, its five answers."""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from adats.learning import verdict as module
from adats.learning.effects import counted, split
from adats.learning.savings import (
    Gain,
    Saving,
    fits,
    held_out,
    possible,
    ratio,
    savings,
    without_luck,
)
from adats.learning.verdict import (
    HARDLY,
    MOSTLY,
    Early,
    by_propensity,
    dealt_within_tasks,
    judged,
    level_matters,
    names_matter,
    pulls_by_name,
    pulls_drift,
    pulls_follow_rewards,
    unseen,
    verdict,
)


def numbers(rng, tasks, names, *, pulls=20.0, own=0.3, level=0.0):
    """Arguments of `counted`: Gaussian rewards with noise 1, every arm pulled as often."""
    names = np.asarray(names)
    theta = names + level * rng.standard_normal((tasks, 1))
    theta = theta + own * rng.standard_normal((tasks, names.size))
    n = np.full(theta.shape, pulls)
    sums = n * theta + np.sqrt(n) * rng.standard_normal(theta.shape)
    squares = sums**2 / n + rng.chisquare(pulls - 1, theta.shape)
    return {"pulls": n, "sums": sums, "squares": squares, "rewards": "gaussian"}


def clicks(rng, tasks, rates, pulls=300):
    n = np.full((tasks, len(rates)), float(pulls))
    return {"pulls": n, "sums": rng.binomial(pulls, rates, n.shape) * 1.0, "rewards": "binary"}


def counts_of(log):
    return counted(log["pulls"], log["sums"], log["rewards"], log.get("squares"))


# do names matter, does the level?


def test_dealing_at_random_has_the_covariance_of_all_permutations(monkeypatch):
    """The limit for many tasks, from one task dealt in all ways."""
    rng = np.random.default_rng(0)
    x = np.append(rng.standard_normal(3), 0.0)[None]
    here = np.array([[True, True, True, False]])
    x[0, :3] -= x[0, :3].mean()
    cov = np.cov(np.array(list(permutations(x[0, :3]))).T, bias=True)
    far = x[0, :3] @ np.linalg.pinv(cov, rcond=1e-9) @ x[0, :3]
    monkeypatch.setattr(module, "MANY", 1)
    monkeypatch.setattr(module, "OFTEN", 1)
    assert dealt_within_tasks(x, here, rng) == pytest.approx(stats.chi2.sf(far, 2))


@pytest.mark.statistical
@pytest.mark.parametrize("tasks", [15, 450])
def test_names_that_mean_nothing_seldom_matter(tasks):
    rng = np.random.default_rng(1)
    logs = 200
    chances = [
        names_matter(counts_of(numbers(rng, tasks, [0.0] * 4, level=0.5)), rng) for _ in range(logs)
    ]
    assert stats.binomtest(int((np.array(chances) <= 0.1).sum()), logs, 0.1).pvalue > 0.001
    assert np.mean(np.array(chances) <= 0.02) <= 0.05


@pytest.mark.statistical
@pytest.mark.parametrize("tasks", [15, 450])
def test_levels_that_are_none_seldom_matter(tasks):
    rng = np.random.default_rng(2)
    logs = 100
    chances = [
        level_matters(counts_of(numbers(rng, tasks, [0.0, 0.3, 0.6])), rng) for _ in range(logs)
    ]
    assert stats.binomtest(int((np.array(chances) <= 0.1).sum()), logs, 0.1).pvalue > 0.001


def test_names_and_levels_are_found_where_they_are():
    rng = np.random.default_rng(3)
    for tasks in (60, 450):
        assert names_matter(counts_of(numbers(rng, tasks, [0.0, 0.3, 0.6])), rng) < 0.01
        assert level_matters(counts_of(numbers(rng, tasks, [0.0] * 3, level=0.4)), rng) < 0.01


def test_arms_that_occur_in_one_task_only_are_no_error():
    rng = np.random.default_rng(4)
    log = clicks(rng, 450, [0.1] * 5, 20)
    log["pulls"][1:, 4] = 0.0
    log["sums"][1:, 4] = 0.0
    assert 0.0 < names_matter(counts_of(log), rng) <= 1.0


# adaptive logs


def test_pulls_that_follow_rewards_are_seen_and_others_are_not():
    rng = np.random.default_rng(5)
    first = counts_of(numbers(rng, 200, [0.0, 0.2, 0.4], pulls=10.0))
    later = np.where(first.means == first.means.max(axis=1, keepdims=True), 24.0, 3.0)
    assert pulls_follow_rewards(first, later) < 1e-6
    assert pulls_follow_rewards(first, rng.permuted(later, axis=1)) > 0.001
    assert pulls_drift(first.pulls + later, first.pulls) < 1e-6
    assert pulls_drift(2 * first.pulls, first.pulls) > 0.5
    assert pulls_by_name(first, rng) == 1.0


@pytest.mark.statistical
def test_pulls_in_random_order_do_not_drift():
    rng = np.random.default_rng(6)
    pulls = rng.integers(1, 30, (400, 4))
    chances = []
    for _ in range(200):
        early = rng.multivariate_hypergeometric
        half = np.array([early(row, int(row.sum()) // 2) for row in pulls[:60]])
        chances.append(pulls_drift(pulls[:60] * 1.0, half * 1.0))
    assert stats.kstest(chances, "uniform").pvalue > 0.001


def test_a_log_that_follows_its_rewards_cannot_tell_unless_it_has_propensities():
    rng = np.random.default_rng(7)
    log = numbers(rng, 200, [0.0, 0.2, 0.4], pulls=10.0)
    first = Early(log["pulls"], log["sums"])
    means = log["sums"] / log["pulls"]
    more = np.where(means == means.max(axis=1, keepdims=True), 24.0, 3.0)
    log = log | {"pulls": log["pulls"] + more, "sums": log["sums"] + more * means}
    log["squares"] = log["squares"] + more * (means**2 + 1.0)
    found = verdict(counted(**log), early=first, rng=rng)
    assert found.answer == "cannot tell from this log"
    assert "drift within tasks" in found.reasons[0]
    assert (
        verdict(counted(**log), rng=rng).answer == "cannot tell from this log"
    )  # by the names of arms
    assert verdict(counted(**log), weighted=True, rng=rng).answer != "cannot tell from this log"


def test_weights_of_one_change_nothing_and_uneven_ones_count_less():
    ones = np.array([[4.0, 0.0]])
    pulls, sums = by_propensity(ones, ones, np.array([[3.0, 0.0]]))
    assert pulls.tolist() == ones.tolist()
    assert sums.tolist() == [[3.0, 0.0]]
    w, y = np.array([1.0, 2.0, 5.0]), np.array([1.0, 0.0, 1.0])
    pulls, sums = by_propensity(*(np.array([[x]]) for x in (w.sum(), (w**2).sum(), (w * y).sum())))
    assert pulls[0, 0] == pytest.approx(64 / 30)
    assert (sums / pulls)[0, 0] == pytest.approx(6 / 8)


# how much is saved


def test_halves_are_independent_given_the_rates():
    rng = np.random.default_rng(8)
    for log in (clicks(rng, 4000, [0.1, 0.3], 9), numbers(rng, 4000, [0.0, 1.0], pulls=9.0, own=0)):
        counts = counts_of(log)
        one, two = split(counts, rng)
        assert one.pulls + two.pulls == pytest.approx(counts.pulls)
        assert one.sums + two.sums == pytest.approx(counts.sums)
        for k in (0, 1):
            agree = np.corrcoef(one.means[:, k], two.means[:, k])[0, 1]
            assert abs(agree) < 4 / np.sqrt(4000)


@pytest.mark.statistical
def test_the_error_of_a_ratio_has_all_three_parts():
    rng = np.random.default_rng(9)
    rows, tasks = 4000, 100
    parts, errors = [], []
    for _ in range(150):
        shift, of_task = 0.05 * rng.standard_normal(), 0.5 * rng.standard_normal(tasks)
        task = np.tile(np.arange(tasks), rows // tasks)
        x = rng.standard_normal((rows, 3))
        gained = 0.3 + shift + 0.05 * x[:, 0] + of_task[task] + 0.4 * rng.standard_normal(rows)
        part, error = ratio(gained, np.ones(rows), task, x)
        parts.append(part)
        errors.append(error)
    widened = 1.08 * np.std(parts)
    assert np.mean(errors) == pytest.approx(widened, rel=4 / np.sqrt(2 * 150))


def test_controls_take_luck_away_and_leave_the_mean():
    """What a task loses by fixed choices has mean zero given its effects, and explains most of what
    one sampler for all loses."""
    rng = np.random.default_rng(11)
    counts = counts_of(numbers(rng, 200, [0.0, 0.1, 0.2, 0.35], pulls=30.0))
    found = possible(counts, fits(counts), rng)
    size = found.controls.std(axis=0) / np.sqrt(len(found.controls))
    assert (np.abs(found.controls.mean(axis=0)) < 4 * size).all()
    left = without_luck(found.lost, found.features, found.controls)
    error = (found.lost - left).std(axis=1) / np.sqrt(left.shape[1])
    assert (np.abs(left.mean(axis=1) - found.lost.mean(axis=1)) < 4 * error).all()
    assert left[2].var() < 0.15 * found.lost[2].var()
    assert (left.var(axis=1) < found.lost.var(axis=1)).all()


def test_held_out_tasks_adapt_where_they_differ_and_lose_where_they_do_not():
    rng = np.random.default_rng(12)
    differ, alike = (numbers(rng, 300, [0.0, 0.3, 0.35], own=own, pulls=40.0) for own in (0.5, 0.0))
    adapting = [held_out(c := counts_of(log), fits(c), rng)[1] for log in (differ, alike)]
    assert adapting[0].mean > 4 * adapting[0].error
    assert adapting[1].mean <= 2 * adapting[1].error


def test_alike_tasks_save_all_over_alone_and_nothing_over_pooled():
    rng = np.random.default_rng(10)
    counts = counts_of(numbers(rng, 150, [0.0, 0.4, 0.8], own=0.0))
    alone, pool = savings(counts, fits(counts), rng)
    assert alone.part > 0.95
    assert abs(pool.part) < 0.05


# the answers


@pytest.mark.parametrize(
    ("log", "answer", "structure"),
    [
        (lambda rng: numbers(rng, 200, [0.0, 0.1, 0.5, 0.55], pulls=60.0), "share", "independent"),
        (lambda rng: numbers(rng, 300, [0.0] * 4), "each for itself", None),
        (lambda rng: numbers(rng, 100, [0.0, 0.3, 0.6], own=0.0, level=0.5), "one for all", None),
        (lambda rng: clicks(rng, 80, [0.02, 0.05]), "one for all", None),
        (lambda rng: numbers(rng, 9, [0.0, 2.0]), "too little data", None),
        (lambda rng: numbers(rng, 14, [0.0, 0.25, 0.3]), "too little data", None),
    ],
)
def test_the_answers(log, answer, structure):
    rng = np.random.default_rng(11)
    found = verdict(counted(**log(rng)), rng=rng)
    assert found.answer == answer
    assert found.structure == structure
    assert found.reasons
    if found.over_alone:
        assert found.interval[0] < found.saving < found.interval[1]


def test_units_and_empty_tasks_do_not_matter():
    rng = np.random.default_rng(12)
    log = numbers(rng, 60, [0.0, 0.5, 0.5])
    n, s, q = (log[k] for k in ("pulls", "sums", "squares"))
    other = {"pulls": n, "sums": 7 * s + 100 * n, "squares": 49 * q + 1400 * s + 1e4 * n}
    other = {k: np.concatenate([x, np.zeros((3, 3))]) for k, x in other.items()}
    one = verdict(counted(**log), rng=np.random.default_rng(1))
    two = verdict(counted(**other, rewards="gaussian"), rng=np.random.default_rng(1))
    assert two.answer == one.answer
    assert two.saving == pytest.approx(one.saving, abs=0.03)
    assert two.names == one.names


def test_a_single_arm_or_no_success_is_no_error():
    rng = np.random.default_rng(13)
    found = verdict(counted(**numbers(rng, 30, [0.0])), rng=rng)
    assert found.answer == "too little data"
    assert found.reasons == ("no task had two arms to choose from",)
    for rate in (0.0, 1.0):
        found = verdict(counted(**clicks(rng, 30, [rate, rate])), rng=rng)
        assert found.answer == "too little data"
        assert f"the mean reward is {rate:g} in every task and arm" in found.reasons[0]
    log = clicks(rng, 40, [0.1, 0.2, 0.3])
    log["pulls"][::2, 2] = np.nan
    log["sums"][::2, 2] = np.nan
    assert np.isfinite(verdict(counted(**log), rng=rng).saving)


def rows_at_random(rng, tasks, rows, effects, own):
    """Every row is of an arm at random: tasks are too short to have them all."""
    pulls = rng.multinomial(rows, np.full(len(effects), 1 / len(effects)), tasks) * 1.0
    theta = np.array(effects) + own * rng.standard_normal((tasks, len(effects)))
    sums = theta * pulls + np.sqrt(pulls) * rng.standard_normal(pulls.shape)
    rest = rng.chisquare(np.maximum(pulls - 1, 1)) * (pulls > 1)
    return counted(pulls, sums, "gaussian", sums**2 / np.maximum(pulls, 1) + rest)


@pytest.mark.parametrize(
    ("tasks", "rows", "arms", "gap", "own"),
    [
        (1000, 8, 6, 2.5, 0.6),
        (1000, 20, 20, 2.0, 0.5),
        (500, 20, 30, 1.5, 0.3),
        (500, 10, 10, 2, 0.3),
    ],
)
def test_arms_that_short_tasks_did_not_pull_could_be_chosen(tasks, rows, arms, gap, own):
    """One arm is so much better that one agent for all loses next to nothing."""
    rng = np.random.default_rng([tasks, rows])
    effects = np.zeros(arms)
    effects[3] = gap
    found = verdict(rows_at_random(rng, tasks, rows, effects, own), rng=rng)
    assert found.answer == "one for all"
    assert any("taken to have had the others to choose from" in why for why in found.reasons)


def test_how_many_arms_were_there_that_tasks_did_not_pull():
    rng = np.random.default_rng(3)
    short = rows_at_random(rng, 400, 8, np.zeros(6), 0.5).pulls
    assert unseen(short) > MOSTLY
    once = np.eye(3)[rng.integers(3, size=500)]  # tasks of a single row
    assert unseen(once) > MOSTLY
    uneven = rng.multinomial(10, [0.5, 0.3, 0.1, 0.05, 0.05], 300) * 1.0
    assert unseen(uneven) > MOSTLY
    rare = np.column_stack([short, np.zeros(400)])
    rare[7, 6] = 2.0  # an arm of one task is not missing in the others
    assert unseen(rare) == unseen(short)
    lengths = rng.choice([10, 100], 1000, p=[0.95, 0.05])
    mixed = rng.multinomial(lengths, [0.3, 0.3, 0.3, 0.09, 0.01]) * 1.0
    assert unseen(mixed) > MOSTLY  # all together say a third
    own = rng.poisson(3.0, (300, 12)) * (rng.random((300, 12)).argsort(axis=1) < 4) * 1.0
    assert unseen(own) < 0.1  # each task has four of its own
    assert unseen(100 * own) == 0.0
    assert unseen(np.eye(50)) == 0.0  # an arm a task
    assert unseen(np.ones((20, 3))) == 0.0  # nothing is missing
    long = rows_at_random(rng, 100, 300, np.zeros(4), 0.5).pulls
    assert unseen(long) == 0.0


def test_the_best_arm_that_short_tasks_hardly_pull():
    """All could choose it, and one agent for all knows it; only the long tasks show it."""
    rng = np.random.default_rng(21)
    lengths = rng.choice([10, 100], 1000, p=[0.95, 0.05])
    pulls = rng.multinomial(lengths, [0.3, 0.3, 0.3, 0.09, 0.01]) * 1.0
    effects = np.array([-0.55, -0.25, -0.05, 0.05, 0.8])
    theta = effects + 0.7 * rng.standard_normal(pulls.shape)
    sums = theta * pulls + np.sqrt(pulls) * rng.standard_normal(pulls.shape)
    rest = rng.chisquare(np.maximum(pulls - 1, 1)) * (pulls > 1)
    counts = counted(pulls, sums, "gaussian", sums**2 / np.maximum(pulls, 1) + rest)
    assert verdict(counts, rng=rng).answer != "share"
    own = module._rehearsed(counts, rng)  # as if each task had only what it pulled
    assert own.over_pooled.part > 0.05


@pytest.mark.parametrize(("own", "answer"), [(0.8, "too little data"), (1.0, "share")])
def test_share_only_if_it_holds_with_the_arms_that_were_not_pulled_too(own, answer):
    """Tasks have ten rows and three arms of six: some of the others could have been there."""
    rng = np.random.default_rng(22)
    had = rng.random((900, 6)).argsort(axis=1) < 3
    pulls = np.array([rng.multinomial(10, here / 3) for here in had]) * 1.0
    theta = 0.4 * np.linspace(-1, 1, 6) + own * rng.standard_normal(pulls.shape)
    sums = theta * pulls + np.sqrt(pulls) * rng.standard_normal(pulls.shape)
    rest = rng.chisquare(np.maximum(pulls - 1, 1)) * (pulls > 1)
    counts = counted(pulls, sums, "gaussian", sums**2 / np.maximum(pulls, 1) + rest)
    assert HARDLY < unseen(pulls) < MOSTLY
    alone = module._rehearsed(counts, rng)
    assert alone.answer == "share"
    found = verdict(counts, rng=rng)
    assert found.answer == answer
    doubt = "does not tell whether tasks could choose from arms that they did not pull"
    assert (doubt in found.reasons[0]) == (answer != "share")
    assert found.over_pooled.part <= alone.over_pooled.part + 0.02


def test_the_rule():
    none, some = Saving(1.0, 0.01), Saving(0.8, 0.02)
    yes, no = Gain(3.0, 1.0), Gain(2.0, 1.0)
    assert judged(0.01, 0.5, some, some, yes, yes).answer == "share"
    assert judged(0.01, 0.01, some, some, yes, yes).structure == "level"
    assert judged(0.5, 0.01, some, some, yes, yes).structure == "exchangeable"
    assert judged(0.03, 0.03, some, some, yes, yes).answer == "too little data"  # neither matters
    assert judged(0.01, 0.5, some, some, no, yes).answer == "too little data"  # no held-out gain
    assert judged(0.01, 0.5, some, some, yes, no).answer == "too little data"  # nor over pooled
    assert judged(0.01, 0.5, some, none, yes, yes).answer == "one for all"
    assert judged(0.01, 0.5, some, Saving(0.95, 0.05), yes, yes).answer == "too little data"
    assert judged(0.01, 0.5, some, Saving(1.05, 0.1), yes, yes).answer == "one for all"
    assert judged(0.01, 0.5, none, some, yes, yes).answer == "each for itself"
    assert judged(0.5, 0.5, Saving(1.0, 0.1), some, no, yes).answer == "too little data"


def test_intervals_are_those_of_the_logarithm_of_what_is_left():
    saving = Saving(0.8, 0.08)  # 0.8 is left, with an error of a tenth of it
    assert saving.high == pytest.approx(1 - 0.8 * np.exp(-0.1645))
    assert saving.low == pytest.approx(1 - 0.8 * np.exp(0.1645))
    assert Saving(0.0, 0.01).high < 1.01


def test_a_loss_is_what_the_opponent_saves():
    loss, gain = Saving(1.25, 0.125), Saving(0.8, 0.08)  # each is the other the other way round
    assert loss.part == pytest.approx(-gain.part) == pytest.approx(-0.2)
    assert (loss.low, loss.high) == pytest.approx((-gain.high, -gain.low))
    assert Saving(0.0, 0.0).part == 1.0


def test_bad_arrays_raise():
    ones = np.ones((20, 2))
    with pytest.raises(ValueError, match=r"\(tasks, arms\) alike, not \(20, 2\) and \(20, 1\)"):
        counted(ones, ones[:, :1], "binary")
    bad = ones.copy()
    bad[3, 1] = 2.0
    with pytest.raises(ValueError, match="task 3 has 2 successes in 1 pulls of arm 1"):
        counted(ones, bad, "binary")
    with pytest.raises(ValueError, match="at least 0"):
        counted(-ones, ones, "count")
    with pytest.raises(ValueError, match="sums of count rewards must be at least 0"):
        counted(ones, -ones, "count")
    with pytest.raises(ValueError, match="squares"):
        counted(ones, ones, "gaussian")
