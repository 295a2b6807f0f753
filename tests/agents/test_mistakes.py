"""Mistakes with agents and files that are caught, and small tables to look at."""

import numpy as np
import pytest

import adats
from adats import AdaTS, GaussianMeta, LinearMeta, default_prior
from cases import CASES


def test_a_prior_for_other_arms_is_refused():
    prior = default_prior(arms=["a", "b", "c"], rewards="binary")
    with pytest.raises(ValueError, match="prior is for arms a, b, c, but the agent has x, y, z"):
        AdaTS(prior, arms=["x", "y", "z"], seed=1)
    with pytest.raises(ValueError, match="in its order"):
        AdaTS(prior, arms=["b", "a", "c"], seed=1)
    assert AdaTS(prior, arms=["a", "b", "c"], seed=1).arms == ("a", "b", "c")


def test_a_decision_that_is_told_twice_is_warned_of():
    agent = AdaTS(default_prior(arms=["a", "b"], rewards="binary"), seed=1)
    first, second = agent.ask("ann"), agent.ask("ann")
    agent.tell(first, reward=1)
    agent.tell(second, reward=0)
    with pytest.warns(UserWarning, match="decision 1 has had its reward already, and now counts"):
        agent.tell(first, reward=1)
    agent.tell(task="ann", action="a", reward=1)  # from a log: as often as it says


def test_only_the_last_decisions_are_remembered(monkeypatch):
    monkeypatch.setattr("adats.agents.agent.REMEMBERED", 3)
    agent = AdaTS(GaussianMeta([0.0, 0.0], 1.0, task_scale=0.1, noise=1.0), seed=1)
    told = [agent.ask("ann") for _ in range(5)]
    for decision in told:
        agent.tell(decision, reward=0.1)
    agent.tell(told[0], reward=0.1)  # nobody knows of it any more
    with pytest.warns(UserWarning, match="decision 4 has had its reward already"):
        agent.tell(told[3], reward=0.1)


def test_files_that_are_mixed_up_say_what_to_call(tmp_path):
    prior = default_prior(arms=["a", "b"], rewards="binary")
    with pytest.raises(ValueError, match=r"the prior comes first: save_prior\(prior, path\)"):
        adats.save_prior(tmp_path / "prior.json", prior)
    adats.save_prior(prior, tmp_path / "prior.json")
    with pytest.raises(adats.FileFormatError, match=r"has a prior, not an agent: .*load_prior"):
        adats.load(tmp_path / "prior.json")
    with pytest.raises(
        ValueError, match=r"class AdaTS: of an agent give agent.meta, or call agent.save"
    ):
        adats.save_prior(AdaTS(prior, seed=1), tmp_path / "prior.json")
    AdaTS(prior, seed=1).save(tmp_path / "agent.npz")
    with pytest.raises(adats.FileFormatError, match=r"has an agent, not a prior: .*adats.load\("):
        adats.load_prior(tmp_path / "agent.npz")


@pytest.mark.parametrize("kind", CASES)
def test_priors_and_agents_are_shown_in_ten_lines(kind):
    meta = CASES[kind].meta
    for shown in (meta, meta.summary(), AdaTS(meta, seed=1, **dict(CASES[kind].options))):
        assert 2 <= len(repr(shown).splitlines()) <= 10
        assert shown._repr_html_().count("<table>") == 1


def test_many_arms_are_cut_and_names_are_escaped():
    meta = GaussianMeta(
        np.zeros(40), 1.0, task_scale=1.0, noise=1.0, arms=["<b>", *map(str, range(39))]
    )
    assert repr(meta).endswith("... and 33 more")
    assert len(repr(meta).splitlines()) == 10
    assert "<b>" not in meta._repr_html_().replace("&lt;b&gt;", "")


def test_a_task_in_a_table():
    agent = AdaTS(GaussianMeta([0.0, 1.0], 0.5, task_scale=1.0, noise=1.0, arms=["a", "b"]), seed=1)
    for reward in (3.0, 5.0):
        agent.tell(task="ann", action="a", reward=reward)
    table = agent.summary("ann")
    assert table.columns == ("arm", "pulls", "average", "best", "mean", "from", "to")
    (name, pulls, average, best, mean, low, high), other = table.rows
    assert (name, pulls, average) == ("a", 2.0, 4.0)
    assert 0 < mean < 4  # shrunk
    belief = agent.posterior("ann")
    assert (mean, high - low) == pytest.approx((belief.mean[0], 2 * 1.959964 * belief.scale[0]))
    assert best + other[3] == pytest.approx(1.0)
    assert np.isnan(other[2])
    assert "1 tasks" in repr(agent)
    rows = AdaTS(LinearMeta(np.zeros(2), 1.0, task_cov=0.1, noise=1.0), seed=1)
    rows.tell(task="bob", features=[1.0, 0.0], reward=1.0)
    assert rows.summary("bob").columns[0] == "theta"
