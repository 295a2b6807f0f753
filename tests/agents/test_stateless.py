"""Decisions where the data is: by keys alone, whatever has the table and however it is cut."""

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, kstest

import adats
from adats import AdaTS, decide
from adats.agents.batch_requests import tasks_of
from adats.agents.stateless import keys_of
from adats.models.core.draws import KeyedDraws
from cases import ALL, CLASSES, ROWS, alike, gaussian, latent, linear, new, portrait
from tries_model import TriesMeta

SIZE = 300
NAMES = [f"u{i}" for i in range(SIZE)]
TRIES = TriesMeta(rates=[0.2, 0.35, 0.5], strength=30.0, count=3)
KINDS = ["named", "linear", "beta", "beta arms", "poisson", "exponential", "normal", "models"]


def an_agent(kind="named", policy="ts", names=NAMES, **options):
    """It knows the first third of the tasks."""
    agent, rng = new(kind, policy=policy, **options), np.random.default_rng(2)
    arms = list(agent.arms)
    some = [names[i] for i in rng.integers(SIZE // 3, size=200)]
    table = {"task": some, "action": [arms[i] for i in rng.integers(len(arms), size=200)]}
    agent.tell_many(table | {"reward": [ALL[kind].reward(rng) for _ in some]})
    return agent


def tables(columns):
    """The same table, of every kind."""
    arrow = pa.table(columns)
    return {
        "dict": columns,
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "arrow": arrow,
        "batch": arrow.to_batches()[0],
        "ibis": ibis.memtable(arrow),
    }


KINDS_OF = {
    "dict": adats.Decisions,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.Table,
    "batch": pa.Table,
    "ibis": pa.Table,
}


def listed(answer, name):
    column = answer[name]
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")
@pytest.mark.parametrize("numbers", [True, False])
def test_every_kind_of_table_gives_the_same_decisions(numbers):
    names = list(range(SIZE)) if numbers else NAMES
    agent = an_agent(names=names)
    columns = {"user": names, "mail": [f"m{i}" for i in range(SIZE)], "age": [1.5] * SIZE}
    expected = None
    for kind, table in tables(columns).items():
        options = {"task": "user", "decision_id": "mail", "propensities": True}
        found = decide(table, agent, seed=7, **options)
        assert isinstance(found, KINDS_OF[kind]), kind
        seen = {n: listed(found, n) for n in ("task", "action", "decision_id", "propensity")}
        expected = expected or seen
        order = np.argsort([expected["task"].index(task) for task in seen["task"]])
        for name, values in seen.items():
            assert [values[i] for i in order] == expected[name], (kind, name)
    assert set(expected["action"]) == set(agent.arms)


PAIRS = [(kind, policy) for kind in [*KINDS, "clicks"] for policy in ("ts", "greedy", "far")]


@pytest.mark.parametrize(("kind", "policy"), [*PAIRS, ("tries", "ts"), ("tries", "greedy")])
def test_any_part_in_any_order_gives_the_same_decisions(kind, policy):
    """With epsilon too; some tasks are known, in a dict and in columns."""
    rng, horizon = np.random.default_rng(1), 9 if policy == "far" else None
    for columns in (False, True):
        if kind == "tries":
            agent = AdaTS(TRIES, seed=1, policy=policy, columns=columns)
        else:
            agent = an_agent(kind, policy, epsilon=0.2, columns=columns)
        small = NAMES[70:130]
        whole = decide({"task": small}, agent, seed=3, horizon=horizon).action.tolist()
        if not columns:
            expected = whole
        assert whole == expected
        order = rng.permutation(60)
        for part in np.split(order, [1, 2, 20]):
            found = decide({"task": [small[i] for i in part]}, agent, seed=3, horizon=horizon)
            assert found.action.tolist() == [whole[i] for i in part]


MIXED = st.one_of(st.text(max_size=4), st.integers(-(2**70), 2**70))


@given(names=st.lists(MIXED, min_size=1, max_size=12), seed=st.integers(0, 2**64))
@settings(max_examples=30, deadline=None)
def test_a_key_depends_on_the_seed_and_the_name_alone(names, seed):
    """Whatever else is in the column: numbers among strings too."""
    keys = keys_of(seed, tasks_of(names)).tolist()
    for name, key in zip(names, keys, strict=True):
        assert keys_of(seed, tasks_of([name])).tolist() == [key]
    assert len(set(keys)) == len(set(map(repr, names)))


@pytest.mark.statistical
def test_keyed_draws_have_their_laws():
    keys = keys_of(1, np.arange(20_000))
    draws = KeyedDraws(keys)
    first, second = draws.random(20_000), draws.random((20_000, 2))
    normal = draws.standard_normal((20_000, 3))
    beta = draws.beta(np.full((20_000, 1), 2.0), np.full((20_000, 1), 0.5))
    gamma = draws.standard_gamma(np.full((20_000, 1), 0.7))
    for column in (first, *second.T):
        assert kstest(column, "uniform").pvalue > 1e-4
    for column in normal.T:
        assert kstest(column, "norm").pvalue > 1e-4
    assert kstest(beta[:, 0], "beta", args=(2.0, 0.5)).pvalue > 1e-4
    assert kstest(gamma[:, 0], "gamma", args=(0.7,)).pvalue > 1e-4
    taken = draws.take(np.arange(20_000)).random(20_000)
    again = draws.random(20_000)
    assert kstest(taken, "uniform").pvalue > 1e-4
    every = np.column_stack([first, second, normal, beta, gamma, taken, again])
    correlation = np.corrcoef(every.T) - np.eye(every.shape[1])
    assert np.abs(correlation).max() < 5 / np.sqrt(20_000)


@pytest.mark.statistical
@pytest.mark.parametrize("names", [np.arange(4000), [f"{i}" for i in range(4000)]])
def test_keys_of_names_in_a_row_are_not_related(names):
    bits = keys_of(0, names)
    for shift in (0, 17, 60):
        counts = np.bincount((bits >> np.uint64(shift)) % np.uint64(16), minlength=16)
        assert ((counts - 250) ** 2 / 250).sum() < chi2.ppf(1 - 1e-4, 15)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["gaussian", "beta arms", "poisson", "exponential", "clicks"])
def test_choices_are_as_frequent_as_from_a_stream(kind):
    agent = new(kind, epsilon=0.25)
    tasks = np.arange(6000)
    keyed = np.bincount(decide({"task": tasks}, agent, seed=5).action, minlength=3)
    stream = np.bincount(agent.ask_many(tasks).action, minlength=3)
    statistic = ((keyed - stream) ** 2 / np.maximum(keyed + stream, 1)).sum()
    assert statistic < chi2.ppf(1 - 1e-4, 2)


@pytest.mark.statistical
def test_choices_are_as_frequent_as_a_mixture_of_models_says():
    """What strays is independent of what is drawn."""
    meta = adats.ModelMixture([0.5, 0.5], [gaussian([0.0, 0.3, 0.0]), gaussian([0.2, 0.0, 0.0])])
    agent, tasks = AdaTS(meta, seed=1, epsilon=0.5), np.arange(20_000)
    keyed = np.bincount(decide({"task": tasks}, agent, seed=5).action, minlength=3)
    own = np.bincount(AdaTS(meta, seed=1).ask_many(tasks).action, minlength=3) / 20_000
    expected = 20_000 * (0.5 * own + 0.5 / 3)
    assert ((keyed - expected) ** 2 / expected).sum() < 1.5 * chi2.ppf(1 - 1e-4, 2)


@pytest.mark.statistical
def test_choices_are_as_frequent_as_the_propensities_say():
    agent = AdaTS(gaussian(), seed=1, epsilon=0.1)
    agent.tell_many({"task": ["a"] * 3, "action": [0, 1, 1], "reward": [1.0, 0.8, 0.9]})
    table = {"task": ["a"] * 8000, "number": np.arange(8000)}
    found = decide(table, agent, seed=4, decision_id="number", propensities=True)
    for arm in range(3):
        chance = found.propensity[found.action == arm][0]
        error = np.sqrt(chance * (1 - chance) / 8000)
        assert abs((found.action == arm).mean() - chance) < 4 * error
    single = agent.ask("a", propensities=True).propensities
    for action, chance in zip(found.action[:50], found.propensity[:50], strict=True):
        assert chance == pytest.approx(single[action], abs=1e-8)


def test_what_the_agent_knows_counts_and_it_stays_as_it_is():
    agent = AdaTS(gaussian(task_scale=2.0), seed=1)
    agent.tell_many({"task": ["a"] * 30, "action": [2] * 30, "reward": [9.0] * 30})
    agent.tell_many({"task": ["b"] * 30, "action": [2] * 30, "reward": [-9.0] * 30})
    before = (agent.tasks, repr(agent.state().rng.bit_generator.state), agent.state().decisions)
    found = decide({"task": ["a", "b", "new"]}, agent, seed=1)
    assert (found.action[0], found.action[1] == 2) == (2, False)
    after = (agent.tasks, repr(agent.state().rng.bit_generator.state), agent.state().decisions)
    assert after == before
    greedy = AdaTS(gaussian(), seed=1, policy="greedy")
    assert set(decide({"task": NAMES}, greedy, seed=1).action) == {0}


def test_a_prior_decides_and_seeds_differ():
    one, same, other = (decide({"task": NAMES}, gaussian(), seed=seed) for seed in (1, 1, 2))
    assert one.action.tolist() == same.action.tolist() != other.action.tolist()
    agent = AdaTS(gaussian(), seed=99)
    assert decide({"task": NAMES}, agent, seed=1).action.tolist() == one.action.tolist()
    repeated = decide({"task": ["a"] * 20}, gaussian(), seed=1)
    assert len(set(repeated.action)) == 1
    numbers = decide({"task": ["a"] * 20, "id": range(20)}, gaussian(), seed=1, decision_id="id")
    assert len(set(numbers.action)) > 1
    assert numbers.decision_id.tolist() == list(range(20))


@pytest.mark.parametrize("cls", CLASSES[2:])
def test_baselines_that_need_no_draw_decide_too(cls):
    found = decide({"task": NAMES}, new("gaussian", cls), seed=1)
    assert len(set(found.action)) > 1


def test_retired_arms_are_not_chosen_and_features_are_those_of_the_arms():
    agent = AdaTS(linear(), seed=1, features=ROWS, arms=["a", "b", "c", "d"])
    agent.retire_arm("a")
    assert set(decide({"task": NAMES}, agent, seed=1).action) == {"b", "c", "d"}


def test_what_cannot_be_decided_says_so():
    table = {"task": ["a", "b"]}
    finished = AdaTS(gaussian(), seed=1)
    finished.ask("b")
    finished.finish("b")
    columns = AdaTS(gaussian(), seed=1, columns=True)
    columns.ask("b")
    columns.finish("b")
    for agent, options, words in [
        (finished, {}, "row 1: task 'b' is finished"),
        (columns, {}, "row 1: task 'b' is finished"),
        (gaussian(), {"task": "user"}, "the table lacks user; its columns are task"),
        (gaussian(), {"decision_id": "id"}, "the table lacks id"),
        (gaussian(), {"seed": -1}, "seed must be a whole number of at least 0"),
        (gaussian(), {"horizon": 0}, "horizon must be a whole number of at least 1"),
        (AdaTS(gaussian(), seed=1, policy="far"), {}, "plans ahead"),
        (linear(), {}, "features come with every decision here: use ask_many"),
        (new("gaussian", adats.MetaTS), {}, "drawn priors of a gaussian model cannot be decided"),
        (new("semi-bandit"), {}, "an oracle that chooses sets of arms cannot be decided"),
        (AdaTS(gaussian(), seed=1, explore_first=True), {}, "forced exploration cannot be decided"),
        (latent(), {"propensities": True}, "propensities of a .* model cannot be decided"),
    ]:
        with pytest.raises(ValueError, match=words):
            decide(table, agent, **{"seed": 1} | options)
    for bad in ([1.5, None], [None, "a"]):
        with pytest.raises(ValueError, match="row 0: a task is named by a string or an integer"):
            decide({"task": bad}, gaussian(), seed=1)
    with pytest.raises(ValueError, match="row 1: there is no task"):
        decide(pa.table({"task": [1, None]}), gaussian(), seed=1)
    with pytest.raises(ValueError, match="give a data frame"):
        decide(5, gaussian(), seed=1)


# rewards that are summed where they are


def told(agent, frame):
    agent.tell_many(frame)
    return agent


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")
@pytest.mark.filterwarnings("ignore:.*one by one:UserWarning")
@pytest.mark.parametrize("policy", ["ts", "ucb"])
@pytest.mark.parametrize("kind", [*KINDS, "clicks", "events", "contextual", "click rows"])
def test_an_ibis_expression_teaches_what_its_rows_teach(kind, policy):
    agent, rng = new(kind, policy=policy), np.random.default_rng(3)
    arms = list(agent.arms or [])
    table = {"task": [f"u{i}" for i in rng.integers(9, size=80)]}
    if arms:
        table["action"] = [arms[i] for i in rng.integers(len(arms), size=80)]
    else:
        table |= {f"x{i}": column for i, column in enumerate(rng.normal(size=(3, 80)))}
    table["reward"] = [ALL[kind].reward(rng) for _ in range(80)]
    table["times"] = table["squares"] = [3.0] * 80  # columns that mean nothing here
    expression = ibis.memtable(pa.table(table | {"kept": [True] * 80}))
    expression = expression.filter(expression.kept).drop("kept")
    tolerance = 1e-9 if "click" not in kind and kind != "events" else 1e-6
    rows = told(new(kind, policy=policy), table)
    summed = told(new(kind, policy=policy), expression)
    alike(portrait(rows), portrait(summed), tolerance)
    rounds = [{t: s.rounds for t, s in a.state().tasks.items()} for a in (rows, summed)]
    assert rounds[0] == rounds[1]


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")
@pytest.mark.filterwarnings("ignore:.*one by one:UserWarning")
@pytest.mark.parametrize("kind", ["gaussian", "clicks"])
def test_an_ibis_expression_with_decisions_or_finished_tasks(kind):
    pair = [new(kind), new(kind)]
    for agent in pair:
        agent.ask_many(["a", "b", "a"])
    found = agent.ask_many(["a", "b", "a", "c"])
    again = pair[0].ask_many(["a", "b", "a", "c"])
    table = found.to_arrow().append_column("reward", pa.array([1.0, 0.0, 1.0, 1.0]))
    same = again.to_arrow().append_column("reward", pa.array([1.0, 0.0, 1.0, 1.0]))
    pair[1].tell_many(ibis.memtable(table))
    pair[0].tell_many(same)
    alike(*map(portrait, pair))
    with pytest.raises(ValueError, match="has its reward already"):
        pair[1].tell_many(ibis.memtable(table))
    rows = {"task": ["b"] * 5, "action": [0] * 5, "reward": [1.0] * 5}
    for agent, frame in zip(pair, (rows, ibis.memtable(pa.table(rows))), strict=True):
        agent.finish("b")
        agent.tell_many(frame)
    alike(*map(portrait, pair))
    assert pair[1].stats("b").table[0, 0] >= 5


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")
@pytest.mark.parametrize(
    ("kind", "rewards", "words"),
    [
        ("gaussian", [1.0, None, 2.0], "row 1: reward must be a finite number, got nan"),
        ("gaussian", [1.0, float("nan"), 2.0], "row 1: reward must be a finite number, got nan"),
        ("gaussian", [1.0, 1e200, 2.0], "row 1: reward 1e.200 is too large"),
        ("gaussian", ["1", "2", "x"], r"row 0: reward must be a number, got '1' \(3 such rows\)"),
        ("exponential", [5.0, -1.0, 2.0], "row 1: reward must be 0 or more, got -1"),
        ("clicks", [1.0, 0.5, 0.5], r"row 1: .* got 0\.5 \(2 such rows\)"),
        ("clicks", [1.0, None, 0.0], "row 1: reward must be a finite number, got nan"),
    ],
)
def test_bad_rows_of_an_ibis_expression_are_named(kind, rewards, words):
    agent = new(kind)
    table = pa.table({"task": ["a"] * 3, "action": [0] * 3, "reward": rewards})
    with pytest.raises(ValueError, match=words):
        agent.tell_many(ibis.memtable(table))
    assert agent.tasks == ()
    with pytest.raises(ValueError, match="the table lacks reward"):
        agent.tell_many(ibis.memtable(table.drop(["reward"])))
    empty = pa.table({"task": pa.array(["a", None, "b"]), "action": [0] * 3, "reward": [1.0] * 3})
    with pytest.raises(ValueError, match="row 1: a task is named by a string or an integer"):
        agent.tell_many(ibis.memtable(empty))
