"""How a task gets its prior: all that AdaTS and its baselines differ in (paper, Section 5)."""

from typing import Any, ClassVar, cast

from numpy.typing import ArrayLike

from adats.agents.task_state import TaskState
from adats.models.core import checks
from adats.models.core.types import Arm, Belief, Design, FloatArray, MetaBelief, Rng, Stats

Mu = FloatArray | None  # what was drawn for a task, if anything


class PriorSource:
    """The marginal prior, of which a task's own rewards make its posterior.

    `LEARNS` says whether tasks teach the meta-belief. `draw` is made once for a new task.
    """

    LEARNS: ClassVar[bool] = True

    def draw(self, meta: MetaBelief, rng: Rng) -> Mu:  # noqa: ARG002
        return None

    def prior(self, meta: MetaBelief, mu: Mu, design: Design = None) -> Belief:  # noqa: ARG002
        """Of a task for which mu was drawn."""
        return meta.task_prior(design=design)

    def posterior(self, meta: MetaBelief, state: TaskState) -> Belief:
        """Of theta in a task, from all data that is used."""
        return self.prior(meta, state.mu, state.design).condition(state.stats).belief

    def posterior_aged(
        self,
        meta: MetaBelief,
        state: TaskState,
        stats: Stats,
        kept: float,  # noqa: ARG002
        weight: float,  # noqa: ARG002
    ) -> Belief:
        """Of theta in a task with these statistics, once what all taught has `kept` so much of its
        weight, and the task has so much in it."""
        return self.posterior(meta, state._replace(stats=stats))

    def posterior_many(self, meta: MetaBelief, rows: FloatArray) -> Any:
        """Of theta in many tasks, whose statistics are rows; None: only one by one."""
        prior: Any = self.prior(meta, None)
        return prior.updated_many(rows)

    def with_arm(self, meta: MetaBelief, name: Arm | None, like: int) -> MetaBelief:
        return meta.with_arm(name, like)

    def grown_draw(self, meta: MetaBelief, mu: Mu, rng: Rng) -> Mu:  # noqa: ARG002
        """What was drawn for a task, after an arm was added."""
        return mu

    def arrays(self) -> dict[str, FloatArray]:
        """What a file has to keep of it."""
        return {}

    def check(self, meta: MetaBelief, state: TaskState | None = None) -> None:
        """Raise unless this, and what was drawn for a task, fits the model."""


class Marginal(PriorSource):
    """AdaTS: P_s, with the meta-posterior marginalised out (paper, Algorithm 1)."""

    def posterior(self, meta: MetaBelief, state: TaskState) -> Belief:
        digest = state.digest
        return meta.posterior(state.digested(meta) if digest is None else digest)

    def posterior_aged(
        self, meta: MetaBelief, state: TaskState, stats: Stats, kept: float, weight: float
    ) -> Belief:
        return meta.posterior_aged(state.digested(meta), stats, kept, weight)

    def posterior_many(self, meta: MetaBelief, rows: FloatArray) -> Any:
        return meta.posterior_many(meta.digest_many(rows))


class Fixed(PriorSource):
    """TS: every task starts from the same prior, and none teaches another."""

    LEARNS: ClassVar[bool] = False


class Drawn(PriorSource):
    """MetaTS: P(·; mũ) with mũ drawn once a task from the meta-posterior, then kept."""

    def draw(self, meta: MetaBelief, rng: Rng) -> Mu:
        return meta.sample(rng)

    def prior(self, meta: MetaBelief, mu: Mu, design: Design = None) -> Belief:
        return meta.prior_given(cast(FloatArray, mu), design=design)

    def posterior_many(self, meta: MetaBelief, rows: FloatArray) -> None:
        """Every task has a prior of its own."""

    def grown_draw(self, meta: MetaBelief, mu: Mu, rng: Rng) -> Mu:
        """The part for the new arm is drawn now, from its marginal."""
        return None if mu is None else meta.grown_draw(mu, rng)

    def check(self, meta: MetaBelief, state: TaskState | None = None) -> None:
        if state is not None:
            self.prior(meta, state.mu, state.design)


class Known(PriorSource):
    """OracleTS: P(·; mu_*)."""

    LEARNS: ClassVar[bool] = False

    def __init__(self, mu: ArrayLike) -> None:
        self.mu = checks.array("mu", mu)

    def prior(self, meta: MetaBelief, mu: Mu, design: Design = None) -> Belief:  # noqa: ARG002
        return meta.prior_given(self.mu, design=design)

    def with_arm(self, meta: MetaBelief, name: Arm | None, like: int) -> MetaBelief:  # noqa: ARG002
        raise ValueError("OracleTS was told mu for its arms; make a new one for more arms")

    def arrays(self) -> dict[str, FloatArray]:
        return {"mu_star": self.mu}

    def check(self, meta: MetaBelief, state: TaskState | None = None) -> None:
        if state is None:
            meta.prior_given(self.mu)
