"""AdaTS and the baselines of the paper: how a task gets its prior."""

import os
from typing import Any, ClassVar, cast

import numpy as np

from adats.agents import agent_files
from adats.agents.agent import Agent
from adats.agents.oracles import Oracle
from adats.agents.policies import Policy, policy_from_dict
from adats.agents.task_state import TaskState
from adats.models import ModelMixture, prior_files
from adats.models.core import checks, files
from adats.models.core.errors import FileFormatError
from adats.models.core.types import Arm, ArmMeta, Belief, FloatArray, MetaBelief


class AdaTS(Agent):
    """Thompson sampling with the meta-posterior marginalised out (paper, Algorithm 1).

    Exact for tasks one after another, as in the paper, and for interleaved ones: a task's belief
    uses its own rewards and all that the others taught.
    """

    def _belief(self, state: TaskState) -> Belief:
        return self._meta.posterior(self._digest(state))


class MetaTS(Agent):
    """Thompson sampling with a prior drawn once a task from the meta-posterior, then kept."""

    def _drawn(self, state: TaskState) -> TaskState:
        return state._replace(mu=self._meta.sample(self._rng))

    def _check_state(self, state: TaskState) -> None:
        super()._check_state(state)
        self._meta.prior_given(state.mu, design=state.design)

    def _belief(self, state: TaskState) -> Belief:
        prior = self._meta.prior_given(state.mu, design=state.design)
        return prior.condition(state.stats).belief

    def _grown(self, state: TaskState, meta: ArmMeta) -> TaskState:
        """The draw for the new arm is made now, from its marginal."""
        mu = cast(FloatArray, state.mu)
        if isinstance(meta, ModelMixture):  # of the model that was drawn
            fresh = np.append(mu[0], meta.models[int(mu[0])].sample(self._rng))
        else:
            fresh = meta.sample(self._rng)
        mu = mu if mu.size == fresh.size else np.append(mu, fresh[-1])
        return super()._grown(state, meta)._replace(mu=mu)


class TS(Agent):
    """Thompson sampling that solves every task alone, from the marginal prior."""

    LEARNS: ClassVar[bool] = False

    def _belief(self, state: TaskState) -> Belief:
        prior = self._meta.task_prior(design=state.design)
        return prior.condition(state.stats).belief


class OracleTS(Agent):
    """Thompson sampling that is told mu_*: the reference that nobody can run in practice."""

    LEARNS: ClassVar[bool] = False

    def __init__(self, meta: MetaBelief, mu: Any, **options: Any) -> None:
        meta.prior_given(mu)  # raises if mu does not fit
        self._mu = checks.array("mu", mu)
        super().__init__(meta, **options)

    def _belief(self, state: TaskState) -> Belief:
        prior = self._meta.prior_given(self._mu, design=state.design)
        return prior.condition(state.stats).belief

    def _with_arm(self, name: Arm | None, like: int) -> ArmMeta:  # noqa: ARG002
        raise ValueError("OracleTS was told mu for its arms; make a new one for more arms")

    def _own_arrays(self) -> dict[str, FloatArray]:
        return {"mu_star": self._mu}


AGENTS: dict[str, type[Agent]] = {cls.__name__: cls for cls in (AdaTS, MetaTS, TS, OracleTS)}


def load(
    path: str | os.PathLike[str], *, oracle: Oracle | None = None, policy: Policy | None = None
) -> Any:
    """Read an agent from a file that `save` wrote; it goes on bit for bit.

    An oracle or a policy of your own is not in the file: give it again.
    """
    header, arrays = files.read_npz(path, "adats-agent")
    try:
        cls = AGENTS[header["agent"]]
        told = (arrays["mu_star"],) if cls is OracleTS else ()
        stored, known = header["oracle"], header["policy"]
        for name, own, given in (("oracle", stored, oracle), ("policy", known, policy)):
            if (own is None) != (given is not None):
                need = "needs" if own is None else "has its own, so it takes no"
                raise ValueError(f"the agent {need} {name}=")
        agent = cls(
            prior_files.meta_from_dict(header["meta"]),
            *told,
            seed=0,
            oracle=agent_files.oracle_from_dict(stored) if oracle is None else oracle,
            features=arrays.get("features"),
            arms=header["names"],
            explore_first=header["explore_first"],
            policy=policy_from_dict(known) if policy is None else policy,
            epsilon=header["epsilon"],
        )
        agent._restore(header, arrays)
    except files.DAMAGED as error:
        raise FileFormatError(f"{os.fspath(path)} cannot be loaded: {error}") from None
    return agent
