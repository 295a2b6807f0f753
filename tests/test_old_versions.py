"""What version 0.1.0 decided and wrote: the same decisions again, and every file still read."""

import warnings

import numpy as np
import pytest

import adats
import old_files
import traces
from adats.learning.tables import load_statistics
from adats.service.replay import replay
from adats.service.stores.sqlite import SQLiteStore

CLOSE = 1e-12  # relative: where two formulas have become one
TRACES, FILES = traces.read(), old_files.read()
LIBRARY, PROBLEMS = traces.library(), traces.problems()


def same(numbers, expected, tolerance=CLOSE):
    np.testing.assert_allclose(numbers, expected, rtol=tolerance, atol=tolerance)


def same_trace(trace, expected):
    assert trace["actions"] == expected["actions"]
    for name in ("chances", "numbers"):
        flat = [np.hstack([np.zeros(0), *side[name]]) for side in (trace, expected)]
        same(*flat)


@pytest.fixture(autouse=True)
def _warned():
    """That propensities of indices are 1 is known here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "propensities of 1")
        yield


@pytest.mark.parametrize("name", LIBRARY)
def test_agents_decide_as_before(name):
    same_trace(traces.play(*LIBRARY[name]), TRACES["decisions"][name])


@pytest.mark.parametrize("policy", traces.POLICIES)
@pytest.mark.parametrize("rewards", traces.DEFAULTS)
def test_the_priors_for_people_who_have_none_decide_as_before(rewards, policy):
    """But for chances of ties at 1, which go no more to the first arm."""
    expected = TRACES["decisions"][f"default {rewards}, {policy}"]
    trace = traces.default(rewards, policy)
    if max(trace["tied"]) > 0 and trace["chances"]:
        assert trace["actions"] == expected["actions"]
        same(trace["numbers"], expected["numbers"])
        apart = np.abs(np.subtract(trace["chances"], expected["chances"]))
        assert (apart <= np.array(trace["tied"]) + 1e-9).all()
        assert max(trace["tied"]) < 0.01
    else:
        same_trace(trace, expected)


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("name", PROBLEMS)
def test_simulations_decide_as_before(name, delay):
    regrets = traces.simulated(name, PROBLEMS[name], delay)
    expected = TRACES["regrets"][f"{name}, delay {delay}"]
    assert regrets.keys() == expected.keys()
    for agent, regret in regrets.items():
        same(regret, expected[agent])


@pytest.mark.parametrize("name", old_files.AGENTS)
def test_files_of_agents_are_read(name):
    kind, _, _ = old_files.AGENTS[name]
    agent = adats.load(old_files.asset("agent", name, "npz"))
    seen, expected = old_files.seen_of_agent(agent, kind), FILES["agents"][name]
    assert seen["actions"] == expected["actions"]
    same(seen["numbers"], expected["numbers"])


@pytest.mark.parametrize("name", FILES["priors"])
def test_files_of_priors_are_read(name):
    path = old_files.asset("prior", name, "json")
    same(old_files.seen_of_prior(adats.load_prior(path)), FILES["priors"][name])
    assert adats.read_about(path) == {"kind": name}


@pytest.mark.parametrize("model", FILES["tables"])
def test_files_of_statistics_are_read(model):
    table = load_statistics(old_files.asset("statistics", model, "parquet"))
    assert table.model == model
    same(old_files.seen_of_table(table), FILES["tables"][model], 0.0)


@pytest.mark.parametrize("name", old_files.STORES)
def test_stores_go_on(name, tmp_path):
    """Beliefs after a task was forgotten have lost digits to what was taken out."""
    stored = FILES["stores"][name]
    seen = old_files.seen_of_store(old_files.store(name, tmp_path), stored["now"])
    assert seen.keys() == stored["seen"].keys()
    for experiment, expected in stored["seen"].items():
        numbers = [float("nan") if x is None else x for x in seen[experiment].pop("numbers")]
        due = [float("nan") if x is None else x for x in expected.pop("numbers")]
        same(numbers, due)
        assert seen[experiment] == expected


@pytest.mark.parametrize("name", old_files.STORES)
def test_stores_replay(name, tmp_path):
    source = SQLiteStore(old_files.store(name, tmp_path))
    target = SQLiteStore(tmp_path / "target.db")
    with source.view() as view:
        found = replay(view, target)
    source.close()
    target.close()
    assert found.decisions > 200
    assert found.same
    assert (found.moved > 0) <= old_files.STORES[name]
