"""A model that lives in the tests only: once it is registered, it works everywhere."""

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import adats
import geometric_arms
import tries_model
from adats.agents.oracles import BestArm
from adats.models.core.registry import register, registered
from adats.models.prior_files import prior_to_dict
from adats.simulation import simulate
from adats.simulation.problems.problem import Instance, Start
from adats.testing import check_belief, check_meta, check_stats
from asgi import talk
from tries_model import TriesMeta

register(TriesMeta)

META = TriesMeta(rates=[0.2, 0.35, 0.5], strength=30.0, count=3)
GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "own-model.md"


@dataclass(frozen=True)
class Tries:
    """Tasks of this model, for the simulator: how mu, θ and rewards come about."""

    name: str = "tries"
    oracle: BestArm = field(default_factory=BestArm)

    def describe(self):
        return {"name": self.name}

    def meta(self):
        return META

    def start(self, rng):
        return Start(META.sample(rng))

    def instance(self, start, rounds, rng):
        return Instance(META.prior_given(start.mu).sample(rng), rng.random(rounds))

    def reward(self, mean, draw):
        """The number of tries whose chance adds up to the draw; each succeeds with 1/mean."""
        return float(max(1.0, np.ceil(np.log1p(-draw) / np.log1p(-1 / mean))))

    def first(self, start):
        return np.arange(META.n_arms).reshape(-1, 1)


def test_it_keeps_the_laws():
    observed = [(0, 2.0), (1, 5.0), (0, 1.0), (2, 9.0)]
    check_stats(META.empty(), observed)
    check_belief(META.task_prior(), META.empty(), observed)
    check_meta(META, [META.empty().add(0, 2.0), META.empty().add(1, 7.0).add(0, 1.0)])


def test_it_learns_from_ask_and_tell():
    agent, rng = adats.AdaTS(META, seed=1), np.random.default_rng(2)
    for task in range(30):
        for _ in range(5):
            agent.tell(agent.ask(task), reward=float(rng.geometric(0.5)))
    assert int(np.argmax(agent.meta.total.value())) == 2  # the rate 0.5
    assert agent.posterior(0).mean == pytest.approx([2.0] * 3, abs=0.4)
    with pytest.raises(ValueError, match=r"a number of tries is 1, 2, 3, \.\.\., got 0\.5"):
        agent.tell(task=0, action=0, reward=0.5)


@pytest.mark.parametrize("cls", [adats.AdaTS, adats.MetaTS, adats.TS, adats.OracleTS])
def test_agents_of_it_are_saved_and_go_on(cls, tmp_path):
    mu = (np.array([1.0]),) if cls is adats.OracleTS else ()
    agent = cls(META, *mu, seed=3)
    for reward in (1.0, 4.0, 2.0):
        agent.tell(agent.ask("a"), reward=reward)
    agent.save(tmp_path / "agent.npz")
    again = adats.load(tmp_path / "agent.npz")
    assert [again.ask("a").action for _ in range(20)] == [agent.ask("a").action for _ in range(20)]
    adats.save_prior(agent.meta, tmp_path / "prior.json")
    prior = adats.load_prior(tmp_path / "prior.json")
    assert prior.log_evidence() == agent.meta.log_evidence()


def test_the_simulator_plays_it():
    result = simulate(Tries(), ["oracle-ts", "ada-ts", "ts"], tasks=8, rounds=10, runs=12, seed=5)
    assert result.regret.shape == (3, 12, 8)
    assert (result.regret >= 0).all()
    assert result.mean("oracle-ts") > 0


def test_the_service_serves_it(tmp_path):
    experiment = "/v1/experiments/x"
    spec = {"model": "tries", "prior": {"file": prior_to_dict(META)}, "seed": 1}
    answers = talk(
        tmp_path / "tries.db",
        [
            ("PUT", experiment, spec),
            ("POST", f"{experiment}/decide", {"task": "ann", "decision_id": "1"}),
            ("POST", f"{experiment}/reward", {"decision_id": "1", "reward": 3}),
            ("POST", f"{experiment}/decide", {"task": "ann", "decision_id": "2"}),
            ("POST", f"{experiment}/reward", {"decision_id": "2", "reward": 0.5}),
            ("GET", f"{experiment}/meta", None),
            ("PUT", "/v1/experiments/y", {"model": "none such", "prior": {"default": {}}}),
            ("PUT", "/v1/experiments/z", spec | {"policy": {"name": "ucb"}}),
        ],
    )
    assert [status for status, _ in answers] == [201, 200, 200, 200, 422, 200, 422, 422]
    assert answers[4][1]["error"] == "a number of tries is 1, 2, 3, ..., got 0.5"
    assert answers[6][1]["field"] == "model"
    assert answers[7][1]["field"] == "policy.name"
    arm = answers[1][1]["action"]
    told = META.absorb(META.digest(META.empty().add(arm, 3.0)).message)
    assert answers[5][1]["log_evidence"] == pytest.approx(told.log_evidence(), abs=1e-12)


def test_a_name_is_taken_once_and_a_meta_belief_is_whole():
    assert registered("tries") is TriesMeta
    assert register(TriesMeta) is TriesMeta
    with pytest.raises(ValueError, match="the name 'tries' is taken by TriesMeta"):
        register(type("Other", (TriesMeta,), {}))
    with pytest.raises(ValueError, match="int is no meta-belief: it lacks NAME, model, arms"):
        register(int)


def test_the_guide_shows_this_model():
    """Every piece of code in the guide stands in the files that are tested."""
    files = (tries_model.__file__, geometric_arms.__file__, __file__)
    sources = "".join(Path(file).read_text() for file in files)
    pieces = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    assert len(pieces) >= 6
    for piece in pieces:
        for part in piece.split("    ...\n"):
            assert part.strip("\n") in sources, part
