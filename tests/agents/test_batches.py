"""Many tasks at once: `ask_many` means the asks, and `tell_many` is as good as one `tell` a row."""

import warnings
from decimal import Decimal

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from scipy.special import expit
from scipy.stats import chi2

import adats
from adats import AdaTS, MetaTS, OracleTS
from adats.agents import batches
from adats.agents.policies import FarSighted
from adats.models.latent.meta import LatentMeta
from cases import ALL, CLASSES, GROWING, ROWS, alike, gaussian, linear, new, portrait
from latent_truth import draw_rewards, one_dim
from tries_model import TriesMeta

pytestmark = pytest.mark.filterwarnings("ignore:.*one by one:UserWarning")
TASKS = 24
DESIGNS = ["exchangeable", "attributes", "click attributes"]  # of sizes that differ
SETS = ["semi-bandit", "linear semi-bandit", "routing", "click semi-bandit"]
SINGLE = [kind for kind in ALL if kind not in DESIGNS + SETS]
LATENT = ["clicks", "events", "click rows", "click contexts", "event rows"]
EXACT = [kind for kind in SINGLE if kind not in LATENT]
GAUSSIAN = ["gaussian", "named", "certain"]
POLICIES = ["greedy", "ucb", "index", "far", FarSighted(later=30.0)]
OURS = {"tries": TriesMeta(rates=[0.2, 0.35, 0.5], strength=30.0, count=3)}


def features_of(kind, rng, tasks):
    """(tasks, arms, features), where they come with decisions."""
    if ALL[kind].features(0, rng) is None:
        return None
    return np.stack([ALL[kind].features(task, rng) for task in range(tasks)])


def names_of(agent):
    return list(agent.arms) if agent.arms is not None else list(range(4))


def rewards_for(kind, rng, agent, rows, tasks=TASKS):
    """A log of pulls of any arms, as a table and as options of `tell`."""
    at, arm = rng.integers(tasks, size=rows), rng.integers(len(names_of(agent)), size=rows)
    table = {"task": at, "action": [names_of(agent)[i] for i in arm]}
    table["reward"] = [ALL[kind].reward(rng) for _ in range(rows)]
    x = features_of(kind, rng, rows)
    if x is not None:
        chosen = x[np.arange(rows), arm]
        table |= {f"x{i}": column for i, column in enumerate(chosen.T)}
    each = []
    for i in range(rows):
        option = {"task": int(at[i]), "reward": table["reward"][i]}
        if x is None:
            option["action"] = table["action"][i]
        else:
            option["features"] = chosen[i]
        each.append(option)
    return table, each


def with_rewards(kind, cls=AdaTS, seed=0, rows=60, **options):
    """Agents that know the same: two of them."""
    pair = []
    for _ in range(2):
        agent = new(kind, cls, seed, **options)
        _, each = rewards_for(kind, np.random.default_rng(seed + 1), agent, rows)
        for one in each:
            agent.tell(**one)
        pair.append(agent)
    return pair


def snapshot(agent):
    """All that an agent is, to the bit."""
    tasks = {
        task: [None if part is None else np.array(part).tobytes() for part in _parts(state)]
        for task, state in agent.state().tasks.items()
    }
    state = agent.state()
    sums = state.meta.sums().tobytes()
    rng = repr(state.rng.bit_generator.state)
    return tasks, sums, rng, state.decisions, state.rewarded.tobytes()


def _parts(state):
    return (state.stats.flat(), state.mu, state.asked, state.finished, state.rounds, state.pending)


# ask_many means the asks


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("kind", GAUSSIAN)
def test_gaussian_decisions_are_those_of_a_loop(kind, cls, columns):
    """The same numbers of the stream; new tasks, known ones, and tasks that come again."""
    one, many = with_rewards(kind, cls, columns=columns)
    order = [1, 30, 2, 31, 5, 17, 2]
    if cls is MetaTS:  # where a task comes again its turn is after all others
        order = order[:-1]
    expected = [one.ask(task).action for task in order * 2]
    found = [a for _ in range(2) for a in many.ask_many(order).action.tolist()]
    assert found == expected
    assert snapshot(many)[1:] == snapshot(one)[1:]
    assert many.tasks == one.tasks


PLAYED = [(AdaTS, policy) for policy in POLICIES]
PLAYED += [(cls, policy) for cls in CLASSES[1:] for policy in ("ucb", FarSighted(later=30.0))]


@pytest.mark.parametrize(("cls", "policy"), PLAYED, ids=str)
@pytest.mark.parametrize("kind", SINGLE)
def test_indices_are_those_of_a_loop(kind, cls, policy):
    """With pulls that are pending, horizons of their own, and repeats: the k-th in pass k."""
    one, many = with_rewards(kind, cls, rows=25, policy=policy, columns=cls is AdaTS)
    rng = np.random.default_rng(5)
    order = [1, 30, 2, 1, 1, 31, 2, 7]
    passes = [0, 1, 2, 5, 7, 3, 6, 4]
    horizon = rng.integers(1, 40, size=len(order))
    x = features_of(kind, rng, len(order))
    expected = {}
    for _ in range(2):
        for i in passes:
            rows = None if x is None else x[i]
            asked = one.ask(order[i], features=rows, horizon=int(horizon[i]))
            expected[i] = asked
        found = many.ask_many(order, features=x, horizon=horizon)
        assert found.action.tolist() == [expected[i].action for i in range(len(order))]
    parts = zip(one.state().tasks.items(), many.state().tasks.items(), strict=True)
    for (task, left), (same, right) in parts:
        assert (task, left.rounds) == (same, right.rounds)
        waiting = [0.0 if state.pending is None else state.pending for state in (left, right)]
        np.testing.assert_allclose(*waiting, atol=1e-12)


def choices(agent, tasks, x=None, **options):
    found = agent.ask_many(tasks, features=x, **options).action.tolist()
    known = names_of(agent)
    return np.bincount([known.index(action) for action in found], minlength=len(known))


def assert_same_law(left, right):
    """Counts of choices from the same chances: a chi-squared test of two samples."""
    both = left + right
    left, right, both = left[both > 0], right[both > 0], both[both > 0]
    scale = np.sqrt(right.sum() / left.sum())
    statistic = ((left * scale - right / scale) ** 2 / both).sum()
    assert statistic < chi2.ppf(1 - 1e-4, max(len(both) - 1, 1)), (left, right)


@pytest.mark.statistical
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("kind", [kind for kind in SINGLE if kind not in GAUSSIAN])
def test_draws_choose_as_often_as_those_of_a_loop(kind, cls):
    """Or as the loop does, where there is nothing but the loop."""
    one, many = with_rewards(kind, cls, epsilon=0.1, rows=40)
    x = ROWS if ALL[kind].features(0, np.random.default_rng(0)) is not None else None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = many.ask_many([3] * 12, features=x).action.tolist()
    if said:
        assert found == [one.ask(3, features=x).action for _ in range(12)]
        return
    alone = [one.ask(3, features=x).action for _ in range(200)]
    known = names_of(one)
    counts = np.bincount([known.index(action) for action in alone], minlength=len(known))
    assert_same_law(choices(many, [3] * 3000, x), counts)


def test_own_models_decide_at_once_too():
    agent = AdaTS(OURS["tries"], seed=1, policy="greedy")
    table = {"task": [1, 1, 2], "action": [0, 1, 2], "reward": [3.0, 1.0, 9.0]}
    agent.tell_many(table)
    found = agent.ask_many([1, 2, 3])
    expected = [int(np.argmax(agent.posterior(task).mean)) for task in (1, 2, 3)]
    assert found.action.tolist() == expected
    draws = AdaTS(OURS["tries"], seed=1).ask_many([1] * 200)
    assert set(draws.action.tolist()) == {0, 1, 2}
    with pytest.raises(ValueError, match=r"row 1: a number of tries is 1, 2, 3, \.\.\., got 0\.5"):
        agent.tell_many(table | {"reward": [3.0, 0.5, 9.0]})


def test_features_of_each_task_are_its_own():
    one, many = with_rewards("contextual", policy="greedy")
    x = np.random.default_rng(3).normal(size=(20, 4, 3))
    expected = [one.ask(i, features=x[i]) for i in range(20)]
    found = many.ask_many(np.arange(20), features=x)
    assert found.action.tolist() == [d.action for d in expected]
    np.testing.assert_array_equal(found.features, np.stack([d.features for d in expected]))
    for bad in (x[:19], x[:, :, :2]):
        with pytest.raises(ValueError, match="for 20 tasks and arms of 3 features"):
            many.ask_many(np.arange(20), features=bad)


@pytest.mark.statistical
def test_draws_with_features_of_their_own_have_the_moments_of_a_loop():
    agent, _ = with_rewards("contextual")
    x = np.tile(ROWS, (5000, 1, 1))
    left = choices(agent, [2] * 5000, x)
    assert_same_law(left, choices(agent, [2] * 5000, ROWS))


# propensities, and what is allowed

SPREADS = [
    {"task_scale": [0.3, 0.0, 0.1]},
    {"task_scale": [3.0, 0.01, 0.1], "scale": [0.0, 1.0, 0.001]},
    {"task_scale": 0.0, "scale": [0.0, 0.0, 0.5]},
    {"task_scale": 0.2, "scale": 0.2},
]


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("spread", SPREADS)
def test_propensities_are_those_of_single_asks(spread, cls, epsilon):
    meta = gaussian([0.1, 0.0, -0.1], noise=0.5, **spread)
    told = (meta.mean,) if cls is OracleTS else ()
    one, many = (cls(meta, *told, seed=4, epsilon=epsilon) for _ in range(2))
    rng = np.random.default_rng(6)
    log = {"task": rng.integers(8, size=30), "action": rng.integers(3, size=30)}
    log["reward"] = rng.normal(size=30)
    one.tell_many(log)
    many.tell_many(log)
    mask = rng.random((40, 3)) < 0.6
    mask[~mask.any(axis=1), 1] = True
    tasks = rng.integers(8, size=40)
    found = many.ask_many(tasks, allowed=mask, propensities=True)
    for i, action in enumerate(found.action.tolist()):
        options = {"allowed": np.flatnonzero(mask[i]).tolist(), "propensities": True}
        chances = one.ask(int(tasks[i]), **options).propensities
        assert mask[i, action]
        assert found.propensity[i] == pytest.approx(chances[action], abs=1e-8)
    found = many.ask_many(tasks, propensities=True)
    for i, action in enumerate(found.action.tolist()):
        chances = one.ask(int(tasks[i]), propensities=True).propensities
        assert found.propensity[i] == pytest.approx(chances[action], abs=1e-8)


@pytest.mark.statistical
def test_choices_are_as_frequent_as_the_propensities_say():
    agent = AdaTS(gaussian(), seed=1, epsilon=0.3)
    mask = np.tile([True, False, True], (5000, 1))
    found = agent.ask_many([0] * 5000, allowed=mask, propensities=True)
    assert set(found.action.tolist()) == {0, 2}
    for arm in (0, 2):
        chance = found.propensity[found.action == arm][0]
        error = np.sqrt(chance * (1 - chance) / 5000)
        assert abs((found.action == arm).mean() - chance) < 4 * error


@pytest.mark.parametrize("kind", ["clicks", "beta", "linear", "models"])
def test_propensities_that_are_not_known_at_once_come_one_by_one(kind):
    (agent,) = with_rewards(kind)[:1]
    with pytest.warns(UserWarning, match=r"propensities of a .* model: .* one by one"):
        found = agent.ask_many([1, 2], propensities=True)
    assert ((found.propensity > 0) & (found.propensity <= 1)).all()


def test_a_list_of_arms_is_allowed_for_all_and_retired_ones_never_are():
    agent = new("named")
    assert set(agent.ask_many(range(60), allowed=["red", "blue"]).action) == {"red", "blue"}
    agent.retire_arm("red")
    assert set(agent.ask_many(range(60)).action) == {"green", "blue"}
    mask = np.tile([True, True, False], (60, 1))
    assert set(agent.ask_many(range(60), allowed=mask).action) == {"green"}
    mask[[7, 9]] = [True, False, False]
    with pytest.raises(ValueError, match=r"row 7: allowed leaves no arm to choose \(2 such rows\)"):
        agent.ask_many(range(60), allowed=mask)
    with pytest.raises(ValueError, match=r"allowed has shape \(60, 3\), not \(2, 3\)"):
        agent.ask_many([1, 2], allowed=mask)
    with pytest.raises(ValueError, match="there is no arm 'pink'"):
        agent.ask_many([1, 2], allowed=["pink"])
    assert set(agent.ask_many([1, 2], allowed=iter(["blue"])).action) == {"blue"}


# tell_many is as good as one tell a row


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("kind", EXACT)
def test_rewards_at_once_teach_what_they_teach_one_by_one(kind, cls):
    one, many = with_rewards(kind, cls, rows=12, columns=cls is AdaTS)
    table, each = rewards_for(kind, np.random.default_rng(7), one, 80)
    known = many.tasks
    many.tell_many(table)
    for option in each:
        one.tell(**option)
    assert set(many.tasks) == set(one.tasks)
    for task in one.tasks:
        alone, together = (agent.stats(task).flat() for agent in (one, many))
        np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-12)
    left, right = portrait(many), portrait(one)
    if cls is MetaTS:  # draws for new tasks are made at once: others, of the same law
        fresh = {str(task) for task in one.tasks if task not in known}
        left, right = (
            {k: v for k, v in seen.items() if k.rpartition(" ")[2] not in fresh}
            for seen in (left, right)
        )
    alike(left, right)


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("kind", ["clicks", "events"])
def test_clicks_at_once_teach_nearly_what_they_teach_one_by_one(kind, columns):
    """Counts to the digit, means within 0.05 standard deviations; from scratch, and onto more."""
    one, many = (new(kind, columns=columns) for _ in range(2))
    for seed, rows in ((7, 300), (8, 60)):
        table, each = rewards_for(kind, np.random.default_rng(seed), one, rows)
        many.tell_many(table)
        for option in each:
            one.tell(**option)
        for task in one.tasks:
            np.testing.assert_array_equal(many.stats(task).table[:2], one.stats(task).table[:2])
            left, right = many.posterior(task), one.posterior(task)
            assert (np.abs(left.mean - right.mean) < 0.05 * right.scale).all()
            np.testing.assert_allclose(left.scale, right.scale, rtol=0.05)
        left, right = many.meta.task_prior(), one.meta.task_prior()
        assert (np.abs(left.mean - right.mean) < 0.05 * right.scale).all()
        np.testing.assert_allclose(left.weights, right.weights, atol=0.05)
        assert many.meta.log_evidence() == pytest.approx(one.meta.log_evidence(), abs=0.05)


@pytest.mark.parametrize("cls", [adats.TS, OracleTS, MetaTS])
def test_clicks_that_teach_nobody_else_are_the_same_at_once(cls):
    one, many = (new("clicks", cls, columns=True) for _ in range(2))
    for agent in (one, many):
        agent.ask_many(range(TASKS))
    table, each = rewards_for("clicks", np.random.default_rng(7), one, 90)
    many.tell_many(table)
    for option in each:
        one.tell(**option)
    for task in one.tasks:
        left, right = many.posterior(task), one.posterior(task)
        np.testing.assert_allclose(left.mean, right.mean, rtol=1e-6)


@pytest.mark.parametrize("kind", [*EXACT, "clicks", "events"])
def test_the_order_of_rows_does_not_matter(kind):
    left, right = new(kind), new(kind)
    table, _ = rewards_for(kind, np.random.default_rng(7), left, 50)
    order = np.random.default_rng(8).permutation(50)
    left.tell_many(table)
    right.tell_many({name: np.array(column)[order] for name, column in table.items()})
    alike(portrait(left), portrait(right))


def test_decisions_get_their_rewards_and_pending_pulls_go():
    one, many = (new("gaussian", policy="ucb", columns=True) for _ in range(2))
    decisions = [one.ask(task) for task in (1, 2, 1, 3)]
    found = many.ask_many([1, 2, 1, 3])
    rewards = [0.5, -1.0, 2.0, 0.0]
    passes = {d.task: d for d in decisions}
    assert set(found.task.tolist()) == set(passes)
    many.tell_many(found.columns() | {"reward": rewards})
    assert all(not state.pending.any() for state in many.state().tasks.values())
    assert [s.rounds for s in many.state().tasks.values()] == [2, 1, 1]
    many.tell_many({"task": [1, 9], "action": [0, 1], "reward": [1.0, 1.0]})
    assert [s.rounds for s in many.state().tasks.values()] == [3, 1, 1, 1]


def test_a_decision_of_a_batch_is_rewarded_once_by_either_verb():
    agent = new("gaussian")
    first, second, third = agent.ask_many([1, 2, 3])
    before = snapshot(agent)
    with pytest.raises(ValueError, match="finite"):
        agent.tell(first, reward=np.nan)
    assert snapshot(agent) == before
    agent.tell(first, reward=1.0)
    with pytest.raises(ValueError, match="has its reward already"):
        agent.tell(first, reward=1.0)
    table = {"task": [2, 1], "action": [second.action, first.action], "reward": [1.0, 2.0]}
    table["decision_id"] = [second.decision_id, first.decision_id]
    with pytest.raises(ValueError, match=r"row 1: decision .* has its reward already"):
        agent.tell_many(table)
    agent.tell_many({name: column[:1] for name, column in table.items()})
    with pytest.raises(ValueError, match="has its reward already"):
        agent.tell(second, reward=1.0)
    agent.tell(third, reward=0.0)


def test_counts_stand_for_single_rewards():
    one, many = new("clicks"), new("clicks")
    many.tell_many({"task": [1, 2], "action": [0, 2], "pulls": [5, 2.5], "successes": [2, 0.5]})
    one.tell(task=1, action=0, pulls=5, successes=2)
    one.tell(task=2, action=2, pulls=2.5, successes=0.5)
    alike(portrait(many), portrait(one), 0.01)
    for bad in ({"pulls": [5, 1], "successes": [2, 3]}, {"pulls": [1, -1], "successes": [0, 0]}):
        with pytest.raises(ValueError, match="row 1: "):
            many.tell_many({"task": [1, 2], "action": [0, 2], **bad})
    with pytest.raises(ValueError, match="row 0: this model takes single rewards"):
        new("gaussian").tell_many({"task": [1], "action": [0], "pulls": [5], "successes": [2]})
    with pytest.raises(ValueError, match="both reward and pulls"):
        many.tell_many({"task": [1], "action": [0], "pulls": [5], "reward": [2]})


# bad input: the first bad row, how many there are, and nothing changed

GOOD = {"task": [1, 2, 3, 4], "action": [0, 1, 2, 0], "reward": [0.5, 1.0, -1.0, 2.0]}
BAD = [
    ({"reward": [0.5, 1.0, np.nan, np.nan]}, r"row 2: reward must be a finite .*nan \(2 such rows"),
    (
        {"reward": [0.5, np.inf, 0.0, 0.0]},
        "row 1: reward must be a finite number, got inf; nothing",
    ),
    ({"reward": [0.5, "1", 0.0, None]}, r"row 1: reward must be a number, got '1' \(2 such rows"),
    ({"reward": ["a", "b", "c", "d"]}, r"row 0: reward must be a number, got 'a' \(4 such rows"),
    ({"reward": np.array(["2024-01-01"] * 4, "M8[D]")}, "row 0: reward must be a number"),
    ({"reward": [0.5, 1j, 0.0, 0.0]}, "row 1: reward must be a number"),
    ({"reward": [0.5, 1e200, 0.0, 0.0]}, "row 1: reward 1e.200 is too large"),
    ({"action": [0, 1, 3, -1]}, r"row 2: there is no arm 3: arms are 0 to 2 \(2 such rows\)"),
    ({"action": [0, "x", 1, 1]}, "row 1: an arm is an index here"),
    ({"action": [0, 1.0, 1, 1]}, "row 1: an arm is an index here"),
    ({"action": np.array([0, np.nan, 1, 1])}, "row 1: there is no action"),
    ({"action": [0, None, 1, 1]}, "row 1: an arm is an index here"),
    ({"task": [1, 2, 3.5, None]}, r"row 2: a task is named .* got 3\.5 \(2 such rows\)"),
    ({"task": np.array([1, np.nan, 3, 4])}, "row 1: there is no task"),
    ({"task": [1, True, 3, 4]}, "row 1: a task is named by a string or an integer, got True"),
    ({"task": [1, 2, 3]}, "columns of different lengths: {'task': 3"),
    ({"task": 1}, "the column task must be a list or an array, got 1"),
    ({"decision_id": [1, 2, 3, 99]}, "row 3: decision 99 is not known to this agent"),
    ({"decision_id": [1, 2, 1, 1]}, r"row 2: decision 1 has its reward already \(2 such rows\)"),
    ({"decision_id": [1, 2, 0, -5]}, "row 3: decision -5 was made by another agent"),
    ({"decision_id": [1, 2, 3, 1 << 45]}, "row 3: decision 35184372088832 was made by another"),
    ({"decision_id": [1, 2.5, 3, 4]}, "row 1: decision_id is a whole number, got 2.5"),
    ({"decision_id": [1, 1e300, 3, 4]}, "row 1: decision_id is a whole number"),
    ({"decision_id": [1, np.nan, 3, 4]}, "row 1: decision_id must be a finite number, got nan"),
    ({"decision_id": ["a", "b", "c", "d"]}, "row 0: decision_id must be a number, got 'a'"),
]


def an_agent(columns=None, cls=AdaTS, **options):
    agent = cls(gaussian(), seed=3, columns=columns, **options)
    for task in (1, 2, 7, 8):
        agent.tell(agent.ask(task), reward=0.5)
    return agent


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(("bad", "words"), BAD)
def test_a_bad_row_is_named_and_nothing_is_changed(bad, words, columns):
    agent = an_agent(columns)
    before = snapshot(agent)
    with pytest.raises(ValueError, match=words) as error:
        agent.tell_many(GOOD | bad)
    assert "\n" not in str(error.value)
    assert snapshot(agent) == before
    agent.tell_many(GOOD)


@pytest.mark.parametrize(("bad", "words"), [p for p in BAD if not {"reward", "action"} & set(p[0])])
def test_a_bad_row_is_named_where_rewards_come_one_by_one(bad, words):
    agent = new("click rows")
    for task in (1, 2, 7, 8):
        agent.tell(agent.ask(task), reward=1)
    before = snapshot(agent)
    table = GOOD | {"reward": [1, 0, 1, 1]}
    for spoiled, why in [
        (bad, words),
        ({"reward": [1, 0, 0.5, 1]}, r"row 2: reward must be 0 or 1, got 0\.5"),
        ({"action": [0, 1, 0, 4]}, "row 3: there is no arm 4"),
        ({"action": [0, 1, 0, "x"]}, "row 3: an arm is an index here"),
    ]:
        with pytest.raises(ValueError, match=why):
            agent.tell_many(table | spoiled)
        assert snapshot(agent) == before
    agent.tell_many(table)


@pytest.mark.parametrize("columns", [True, False])
def test_a_table_that_lacks_columns_says_which(columns):
    agent = an_agent(columns)
    before = snapshot(agent)
    for lacking in ("task", "action", "reward"):
        table = {name: column for name, column in GOOD.items() if name != lacking}
        with pytest.raises(ValueError, match=f"the table lacks {lacking}; its columns are"):
            agent.tell_many(table)
    for bad in (5, [1, 2], None, "log.txt"):
        with pytest.raises(ValueError, match=r"give a data frame|neither \.parquet nor \.csv"):
            agent.tell_many(bad)
    with pytest.raises(ValueError, match="the table lacks x0, x1, x2"):
        new("contextual").tell_many(GOOD)
    with pytest.raises(ValueError, match="the table lacks x0"):
        new("click contexts").tell_many(GOOD)
    assert snapshot(agent) == before


@pytest.mark.parametrize("kind", ["beta", "poisson", "exponential", "clicks", "events"])
def test_rewards_that_a_model_cannot_have_are_named(kind):
    agent = new(kind)
    table = {"task": [1, 2, 3], "action": [0, 1, 1], "reward": [1.0, -1.0, 0.5]}
    before = snapshot(agent)
    with pytest.raises(ValueError, match=r"row 1: .* got -1\.0") as error:
        agent.tell_many(table)
    with pytest.raises(ValueError, match=r"got -1\.0") as single:
        agent.tell(task=1, action=0, reward=-1.0)
    assert str(single.value) in str(error.value)
    assert snapshot(agent) == before


def test_another_agents_decisions_are_refused():
    mine, theirs = AdaTS(gaussian(), seed=1), AdaTS(gaussian(), seed=2)
    mine.ask_many([1, 2])
    found = theirs.ask_many([1, 2]).columns() | {"reward": [1.0, 2.0]}
    with pytest.raises(ValueError, match=r"row 0: decision \d+ was made by another agent \(2 such"):
        mine.tell_many(found)
    (decision, _) = theirs.ask_many([1, 2])
    with pytest.raises(ValueError, match="was made by another agent"):
        mine.tell(decision, reward=1.0)


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("cls", [AdaTS, MetaTS])
def test_a_batch_of_asks_is_made_whole_or_not_at_all(columns, cls):
    for policy, options, words in [
        ("far", {}, "this policy plans ahead"),
        ("far", {"horizon": [3, 0, -1]}, r"row 1: horizon must be at least 1, got 0 \(2 such rows"),
        ("far", {"horizon": [3, 1]}, "horizon is a whole number, or one for each of 3 tasks"),
        ("far", {"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ("ts", {"features": np.eye(3)}, "features are for linear models"),
        ("ts", {"allowed": []}, "allowed leaves no arm"),
    ]:
        agent = an_agent(columns, cls)
        if policy != "ts":
            agent = cls(gaussian(), seed=3, columns=columns, policy=policy)
            agent.ask_many([1, 7], horizon=5)
        before = snapshot(agent)
        with pytest.raises(ValueError, match=words):
            agent.ask_many([1, 40, 41], **options)
        assert snapshot(agent) == before
    for bad, words in [
        ([1, 2.5, None], r"row 1: a task is named by a string or an integer, got 2\.5 \(2 such"),
        ("ann", "give a list or a column of tasks, got 'ann'"),
        (5, "give a list or a column of tasks, got 5"),
        (np.ones((2, 2), dtype=int), "give a list or a column of tasks"),
    ]:
        with pytest.raises(ValueError, match=words):
            agent.ask_many(bad)
        assert snapshot(agent) == before


@pytest.mark.parametrize("columns", [True, False])
def test_a_failure_in_a_later_pass_leaves_no_pending_pulls(columns, monkeypatch):
    agent = AdaTS(gaussian(), seed=3, columns=columns, policy="ucb")
    agent.ask_many([1, 7])
    before, choose, calls = snapshot(agent), batches.choose_many, []

    def fails_later(*given):
        calls.append(given)
        if len(calls) == 2:
            raise MemoryError
        return choose(*given)

    monkeypatch.setattr(batches, "choose_many", fails_later)
    with pytest.raises(MemoryError):
        agent.ask_many([1, 40, 1])
    assert len(calls) == 2
    assert snapshot(agent) == before


@pytest.mark.parametrize("columns", [True, False])
def test_finished_tasks_take_rewards_but_no_asks(columns):
    one, many = an_agent(columns), an_agent(columns)
    for agent in (one, many):
        agent.finish(2)
        agent.finish(8)
    before = snapshot(many)
    words = r"row 1: task 2 is finished: it takes rewards, but no more asks \(3 such rows\)"
    with pytest.raises(adats.FinishedTask, match=words):
        many.ask_many([1, 2, 8, 2])
    assert snapshot(many) == before
    with pytest.warns(UserWarning, match="tasks that are finished or have designs: .*one by one"):
        many.tell_many(GOOD)
    for task, action, reward in zip(*GOOD.values(), strict=True):
        one.tell(task=task, action=action, reward=reward)
    alike(portrait(many), portrait(one))
    assert many.state().tasks[2].finished


def test_nothing_is_asked_and_nothing_told():
    for cls in CLASSES:
        agent = new("gaussian", cls)
        before = snapshot(agent)
        agent.tell_many({"task": [], "action": [], "reward": []})
        assert len(agent.ask_many([])) == len(agent.ask_many(np.zeros(0, dtype=int))) == 0
        assert snapshot(agent) == before


def test_names_are_those_of_single_asks():
    agent = AdaTS(gaussian(), seed=1, columns=True)
    tasks = [1, "a", np.int64(3), np.str_("b"), 2**70, -4, "1"]
    expected = [1, "a", 3, "b", 2**70, -4, "1"]
    assert agent.ask_many(tasks).task.tolist() == expected
    assert list(agent.tasks) == expected
    agent.tell_many({"task": tasks, "action": [0] * 7, "reward": np.arange(7.0)})
    assert [agent.stats(task).table[1, 0] for task in expected] == list(range(7))
    assert agent.ask_many(np.array([2**63 + 1], dtype=np.uint64)).task.tolist() == [2**63 + 1]
    assert agent.ask_many(np.array([3, 1], dtype=np.uint8)).task.tolist() == [3, 1]


def test_tasks_may_be_columns_of_any_library():
    agent = AdaTS(gaussian(), seed=1)
    for names in (["a", "b"], [3, 4]):
        arrow = pa.chunked_array([names])
        for column in (pd.Series(names), pl.Series(names), arrow, arrow.chunk(0), tuple(names)):
            assert agent.ask_many(column).task.tolist() == names
    words = {"task": ["a", "b"], "action": ["red", "blue"]}
    frames = [
        pd.DataFrame({n: pd.Categorical(c) for n, c in words.items()} | {"reward": [1, 2]}),
        pl.DataFrame(words | {"reward": [1, 2]}).with_columns(
            pl.col("action").cast(pl.Categorical)
        ),
        pa.table(
            {n: pa.array(c).dictionary_encode() for n, c in words.items()} | {"reward": [1, 2]}
        ),
        pd.DataFrame(words | {"reward": pd.array([1, 2], dtype="Int64")}),
        pa.table(words | {"reward": [Decimal("1.0"), Decimal("2.0")]}),
    ]
    for frame in frames:
        named = new("named")
        named.tell_many(frame)
        assert (named.stats("a").table[1, 0], named.stats("b").table[1, 2]) == (1.0, 2.0)


def test_features_whose_squares_overflow_are_refused():
    agent = new("contextual")
    before = snapshot(agent)
    x = np.ones((2, 4, 3))
    x[1, 2, 0] = 1e200
    with pytest.raises(ValueError, match="features too large"):
        agent.ask_many([1, 2], features=x)
    table = {"task": [1, 2], "x0": [1.0, 1e200], "x1": [0.0, 0.0], "x2": [0.0, 0.0]}
    with pytest.raises(ValueError, match="row 1: features too large: their squares overflow"):
        agent.tell_many(table | {"reward": [1.0, 1.0]})
    with pytest.raises(ValueError, match=r"features must be finite, got nan at index \(1, 2, 0\)"):
        agent.ask_many([1, 2], features=np.where(x > 1, np.nan, x))
    assert snapshot(agent) == before


# what falls back to single asks


@pytest.mark.parametrize("kind", SETS)
def test_sets_of_arms_are_worked_out_one_by_one_and_say_so_once(kind):
    one, many = new(kind), new(kind)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = many.ask_many([1, 2, 3, 1])
        rewards = [
            [ALL[kind].reward(np.random.default_rng(i))] * len(a)
            for i, a in enumerate(found.action)
        ]
        many.tell_many(found.columns() | {"reward": rewards})
    assert len(said) == 1
    assert "such batches are worked out one by one" in str(said[0].message)
    decisions = [one.ask(task) for task in (1, 2, 3, 1)]
    assert found.action.tolist() == [d.action for d in decisions]
    for decision, reward in zip(decisions, rewards, strict=True):
        one.tell(decision, reward=reward)
    alike(portrait(many), portrait(one))


@pytest.mark.parametrize("kind", DESIGNS)
def test_tasks_with_designs_are_worked_out_one_by_one(kind):
    case = ALL[kind]
    for columns in (False, True):
        one, many = (new(kind, columns=columns) for _ in range(2))
        x, phi = case.features(4, None), case.design(4)
        order = ["4", "7", "10", "4"]
        for _ in range(2):
            decisions = [one.ask(task, features=x, design=phi) for task in order]
            found = many.ask_many(order, features=x, design=phi)
            assert found.action.tolist() == [d.action for d in decisions]
            many.tell_many(found.columns() | {"reward": [1.0, 0.0, 0.0, 1.0]})
            for decision, reward in zip(decisions, [1.0, 0.0, 0.0, 1.0], strict=True):
                one.tell(decision, reward=reward)
            alike(portrait(many), portrait(one))
        again = many.ask_many(order, features=np.tile(x, (4, 1, 1)))  # designs are known by now
        assert again.action.tolist() == [one.ask(task, features=x).action for task in order]
        with pytest.raises(ValueError, match="row 0: task '4' was opened with another design"):
            many.ask_many(order, features=x, design=phi + 1.0)


@pytest.mark.parametrize("kind", ["gaussian", "clicks", "linear", "contextual"])
def test_forced_exploration_goes_on_one_by_one(kind):
    one, many = (new(kind, explore_first=True, columns=True) for _ in range(2))
    x = ROWS if kind == "contextual" else None
    tasks = [1, 2, 1, 2, 1, 3]
    passes = [0, 1, 5, 2, 3, 4]
    expected = {i: one.ask(tasks[i], features=x) for i in passes}
    found = many.ask_many(tasks, features=x)
    assert found.action.tolist() == [expected[i].action for i in range(6)]
    many.tell_many(found.columns() | {"reward": [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]})
    for i, reward in enumerate([1.0, 0.0, 1.0, 0.0, 1.0, 1.0]):
        one.tell(expected[i], reward=reward)
    expected = [one.ask(task, features=x).action for task in (1, 2, 3)]
    assert many.ask_many([1, 2, 3], features=x).action.tolist() == expected


@pytest.mark.parametrize("kind", ["click rows", "click contexts", "event rows"])
def test_rows_of_clicks_are_told_one_by_one(kind):
    one, many = new(kind), new(kind)
    table, each = rewards_for(kind, np.random.default_rng(7), one, 20)
    if kind == "click contexts":
        del table["action"]
    with pytest.warns(UserWarning, match="model with features: such batches are .* one by one"):
        many.tell_many(table)
    for option in each:
        one.tell(**option)
    alike(portrait(many), portrait(one))


class Mine:
    """A policy of one's own: the arm of the best mean, plus a draw."""

    DRAWS = True

    def values(self, scene):
        return scene.belief.mean + scene.rng.standard_normal(scene.belief.mean.size)


def test_a_policy_of_ones_own_is_asked_one_by_one():
    one, many = (AdaTS(gaussian(), seed=2, policy=Mine()) for _ in range(2))
    with pytest.warns(UserWarning, match="a policy of your own"):
        found = many.ask_many([1, 2, 3])
    assert found.action.tolist() == [one.ask(task).action for task in (1, 2, 3)]


# the whole life of an agent, in a dict and in columns

KINDS = ["named", "linear", "contextual", "beta", "poisson", "models", "clicks"]


@pytest.mark.parametrize("kind", [k for k in GROWING if k not in SETS])
@pytest.mark.parametrize("cls", [AdaTS, MetaTS])
def test_arms_are_added_after_batches(kind, cls):
    pair = [new(kind, cls, columns=columns) for columns in (True, False)]
    for agent in pair:
        table, _ = rewards_for(kind, np.random.default_rng(3), agent, 30)
        agent.tell_many(table)
        named = agent.arms is not None and isinstance(agent.arms[0], str)
        if kind == "linear":
            agent.add_arm(features=[0.5, 0.5, 0.5])
        else:
            agent.add_arm("new" if named else None, like=agent.arms[0])
        agent.retire_arm(agent.arms[1])
        new_arm = agent.arms[-1]
        agent.tell_many({"task": [1, 99], "action": [new_arm] * 2, "reward": [1.0, 1.0]})
    left, right = (agent.ask_many([1, 2, 99, 100]).action.tolist() for agent in pair)
    assert left == right
    alike(*map(portrait, pair))


LIFE = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask_many", "tell", "tell_many", "finish", "forget", "save"]),
        st.integers(0, 2**16),
    ),
    min_size=3,
    max_size=12,
)


def step(agent, kind, verb, seed, folder):
    """One thing that happens to an agent; what it answers."""
    rng = np.random.default_rng(seed)
    x = features_of(kind, rng, 6)
    open_tasks = [t for t, s in agent.state().tasks.items() if not s.finished]
    pool = sorted(set(range(6)) - (set(agent.tasks) - set(open_tasks))) or [6 + seed]
    if verb == "ask":
        return agent.ask(pool[seed % len(pool)], features=None if x is None else x[0]).action
    if verb == "ask_many":
        tasks = rng.choice(pool, size=6).tolist()
        options = {"horizon": rng.integers(1, 9, size=6)}
        found = agent.ask_many(tasks, features=x, **options)
        if seed % 2:
            rewards = [ALL[kind].reward(rng) for _ in tasks]
            agent.tell_many(found.columns() | {"reward": rewards})
        return found.action.tolist()
    if verb in ("tell", "tell_many"):
        table, each = rewards_for(kind, rng, agent, 5, tasks=6)
        if verb == "tell":
            for one in each:
                agent.tell(**one)
        else:
            agent.tell_many(table)
    elif agent.tasks and verb in ("finish", "forget"):
        getattr(agent, verb)(agent.tasks[seed % len(agent.tasks)])
    elif verb == "save":
        agent.save(folder / "agent.npz")
        return adats.load(folder / "agent.npz")
    return None


@pytest.mark.parametrize("kind", KINDS)
@given(life=LIFE, seed=st.integers(0, 99), data=st.data())
@settings(max_examples=5, deadline=None)
def test_a_life_in_columns_is_that_in_a_dict(kind, life, seed, data, tmp_path_factory):
    cls = data.draw(st.sampled_from(CLASSES))
    policy = data.draw(st.sampled_from(["ts", "ucb", "greedy"]))
    folder = tmp_path_factory.mktemp("life")
    pair = [new(kind, cls, seed, policy=policy, columns=columns) for columns in (True, False)]
    for verb, number in life:
        answers = [step(agent, kind, verb, number, folder) for agent in pair]
        if verb == "save":
            pair = answers
        else:
            assert answers[0] == answers[1]
    assert pair[0].tasks == pair[1].tasks
    alike(*map(portrait, pair))


@pytest.mark.parametrize("columns", [True, False])
def test_refit_after_batches(columns, tmp_path):
    meta = adats.default_prior(arms=["a", "b", "c"], rewards="binary")
    agent = AdaTS(meta, seed=1, columns=columns)
    rng = np.random.default_rng(2)
    table = {"task": rng.integers(12, size=200), "action": rng.choice(["a", "b", "c"], size=200)}
    agent.tell_many(table | {"reward": (rng.random(200) < 0.3).astype(float)})
    agent.finish(3)
    agent.refit()
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    order = [0, 5, 99, 1]
    assert agent.ask_many(order).action.tolist() == again.ask_many(order).action.tolist()
    assert again.tasks == agent.tasks
    alike(portrait(agent), portrait(again), 1e-12)


def test_decisions_are_a_light_table(tmp_path):
    agent = new("named")
    found = agent.ask_many(["x", "y"], propensities=True)
    frames = [found.to_pandas(), found.to_polars(), found.to_arrow().to_pandas()]
    for frame in frames:
        assert list(frame.columns) == ["task", "action", "decision_id", "propensity"]
        assert list(frame["action"]) == list(found["action"])
        assert list(frame["decision_id"]) == list(found.decision_id)
    frames[0]["reward"] = [1.0, 2.0]
    frames[0].to_parquet(tmp_path / "told.parquet")
    frames[0].to_csv(tmp_path / "told.csv", index=False)
    told = []
    for frame in (frames[0], tmp_path / "told.parquet", str(tmp_path / "told.csv")):
        same = new("named")
        same.ask_many(["x", "y"], propensities=True)
        same.tell_many(frame)
        told.append(portrait(same))
    alike(told[0], told[1])
    alike(told[0], told[2])
    assert [d.task for d in found] == ["x", "y"]
    assert len(found) == 2


def test_many_tasks_turn_to_columns_by_themselves():
    agent = AdaTS(linear(), seed=1, features=ROWS)
    agent.ask("ann")
    found = agent.ask_many(np.arange(12_000))
    assert type(agent.state().tasks).__name__ == "ColumnBook"
    assert len(agent.tasks) == 12_001
    assert len(set(found.decision_id.tolist())) == 12_000
    kept = AdaTS(linear(), seed=1, features=ROWS, columns=False)
    kept.ask("ann")
    assert kept.ask_many(np.arange(12_000)).action.tolist() == found.action.tolist()
    assert type(kept.state().tasks) is dict


@pytest.mark.parametrize("family", ["binary", "count"])
def test_a_batch_from_nothing_is_near_the_truth(family):
    """Against sums over grids, for one arm whose mu is known: theta of each task by itself."""
    rng, tasks = np.random.default_rng(3), 12
    meta = latent_truth_meta(family)
    pulls = rng.integers(1, 40, size=tasks)
    rewards = [draw_rewards(family, np.ones(n), rng.normal(-0.5, 0.5), rng) for n in pulls]
    agent = AdaTS(meta, seed=1)
    at = np.repeat(np.arange(tasks), pulls)
    order = rng.permutation(at.size)
    values = np.concatenate(rewards)
    agent.tell_many({"task": at[order], "action": at[order] * 0, "reward": values[order]})
    sums = np.array([part.sum() for part in rewards])
    truth = one_dim(family, pulls, sums, -0.5, 0.25)
    belief = [agent.posterior(task) for task in range(tasks)]
    rate = expit if family == "binary" else np.exp
    for i, one in enumerate(belief):
        grid = truth.mean[i] + truth.sd[i] * np.linspace(-6, 6, 4001)
        density = np.exp(-0.5 * np.linspace(-6, 6, 4001) ** 2)
        expected = (rate(grid) * density).sum() / density.sum()
        assert abs(one.mean[0] - expected) < 0.05 * one.scale[0]


def latent_truth_meta(family):
    return LatentMeta([-0.5], 0.0, task_scale=0.5, rewards=family)


def test_bad_rows_of_a_batch_that_goes_one_by_one_are_counted():
    agent = AdaTS(adats.default_prior(dim=2, rewards="binary"), seed=1)
    table = {"task": ["a"] * 5, "x0": [1.0] * 5, "x1": [0.0] * 5, "reward": [0, 2, 1, 3, 0]}
    with (
        pytest.warns(UserWarning, match="one by one"),
        pytest.raises(ValueError, match=r"^row 1: .*got 2.*\(2 such rows\); nothing was changed"),
    ):
        agent.tell_many(table)
    assert agent.tasks == ()
