"""What comes in and goes out over HTTP, as types. They check, and the API is described by them."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from adats.service.spec import MOST_ARMS, MOST_REWARDS, ArmName, Figure, Name, Row, Rows

Chance = Annotated[float, Meta(ge=0, le=1)]


class Ask(Struct, forbid_unknown_fields=True, frozen=True):
    """A decision that is wanted."""

    task: Name
    decision_id: Name | None = None  # the same again gives the same answer
    features: Rows | None = None  # of a linear model: a row an arm
    allowed: Annotated[list[ArmName], Meta(max_length=MOST_ARMS)] | None = None
    horizon: Annotated[int, Meta(ge=1, le=10**12)] | None = None  # rounds left, this one too


class Decided(Struct, frozen=True):
    """A decision that was made, and is in the store."""

    decision_id: str
    task: str
    action: int | str | list[int | str]
    propensity: Chance | list[Chance]
    state_version: int
    prior_version: int
    time: float
    holdout: bool
    fallback: bool = False


class Fallback(Struct, frozen=True):
    """The control action, while the store cannot be written: it is not learned from."""

    error: str
    decision_id: str | None
    task: str
    action: int | str | list[int | str]
    fallback: bool = True


class Tell(Struct, forbid_unknown_fields=True, frozen=True):
    """A reward of a decision: a number, or one for each of its arms."""

    decision_id: Name
    reward: Figure | Annotated[list[Figure], Meta(max_length=MOST_ARMS)]
    reward_id: Name | None = None  # tells two equal rewards from one that is sent twice


class Tells(Struct, forbid_unknown_fields=True, frozen=True):
    """Several rewards."""

    rewards: Annotated[list[Tell], Meta(max_length=MOST_REWARDS)]


class Telling(Struct, forbid_unknown_fields=True, frozen=True):
    """What the service takes for rewards: a `Tell` or a `Tells`."""

    decision_id: Name | None = None
    reward: Figure | Annotated[list[Figure], Meta(max_length=MOST_ARMS)] | None = None
    reward_id: Name | None = None
    rewards: Annotated[list[Tell], Meta(max_length=MOST_REWARDS)] | None = None


class Told(Struct, frozen=True):
    """What became of a reward."""

    decision_id: str
    status: Literal["counted", "held", "late", "duplicate"]
    state_version: int


class Refused(Struct, frozen=True):
    """A reward of a batch that could not be taken, with the code that it would have alone."""

    decision_id: str
    code: int
    error: str


class ToldAll(Struct, frozen=True):
    results: list[Told | Refused]
    refused: int


class NewArm(Struct, forbid_unknown_fields=True, frozen=True):
    """An arm that is added: with the prior of another, or with features of its own."""

    arm: Name
    like: ArmName | None = None
    features: Row | None = None


class About(Struct, frozen=True):
    """An experiment."""

    name: str
    spec: Any
    arms: list[int | str] | None  # None: features come with every decision
    retired: list[int | str]
    state_version: int
    prior_version: int


class Listed(Struct, frozen=True):
    experiments: list[str]


class Part(Struct, frozen=True):
    """The belief about one arm, or one coefficient: in a task, and before its own data."""

    name: int | str
    mean: float
    scale: float | None  # a standard deviation; None where it is infinite
    prior_mean: float
    prior_scale: float | None
    from_task: Chance  # how much of the belief comes from the task's own data
    from_prior: Chance  # and how much from the prior that the others taught
    pulls: float | None


class TaskView(Struct, frozen=True):
    task: str
    parts: list[Part]
    state_version: int
    prior_version: int


class MetaPart(Struct, frozen=True):
    name: int | str
    mean: float
    scale: float | None


class MetaView(Struct, frozen=True):
    """What is believed of a new task, and the prior as a file of its own."""

    tasks: int
    decisions: int
    rewards: int
    log_evidence: float
    parts: list[MetaPart]
    prior: Any
    state_version: int
    prior_version: int


class Lift(Struct, frozen=True):
    """Mean reward of decisions that were not held out, less that of those that were."""

    estimate: float | None
    low: float | None  # of the 95 % interval
    high: float | None
    policy_mean: float | None
    policy_decisions: int
    holdout_mean: float | None
    holdout_decisions: int


class Report(Struct, frozen=True):
    decisions: int
    tasks: int
    counted: int  # decisions whose reward is in the statistics
    missing: int  # decisions that have no reward yet, and whose window is open if there is one
    expired: int  # decisions that had none when their window ended
    explored: int  # decisions whose action was not the posterior's best
    lift: Lift | None
    state_version: int
    prior_version: int


class Error(Struct, frozen=True):
    error: str
    field: str | None = None


class Health(Struct, frozen=True):
    status: str
    why: str | None = None
