"""What comes in and goes out over HTTP, as types. They check, and the API is described by them."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from adats.models.core.types import Arm
from adats.service.field_types import (
    MOST_AT_ONCE,
    ArmName,
    ArmNames,
    Attributes,
    Figure,
    Figures,
    MetricValues,
    Name,
    NewName,
    Row,
    Rows,
    Share,
    doc,
)
from adats.service.stores.interface import Action

StateVersion = Annotated[int, doc("The number of the experiment's last commit; it only grows.")]
PriorVersion = Annotated[int, doc("Grows when an arm is added.")]
RewardStatus = Annotated[
    Literal["counted", "held", "late", "duplicate"],
    doc(
        "It counts, is held until the window ends, came late and does not count, or was there "
        "already."
    ),
]
Status = Literal["running", "paused", "archived"]
OfDecision = Annotated[str, doc("Of the decision.")]
AsAsked = Annotated[str, doc("As it was asked.")]
ArmOrCoefficient = Annotated[Arm, doc("The arm; in a linear model the number of the coefficient.")]
Mean = Annotated[float, doc("Of the mean reward, or of the coefficient.")]
Scale = Annotated[float | None, doc("Standard deviation of the same; null if it is infinite.")]
HowRewardsAge = Annotated[
    str | None, doc("How rewards lose weight with time, in a sentence; null if they do not.")
]
DecisionsMade = Annotated[int, doc("How many were made.")]
DecisionsWithReward = Annotated[int, doc("How many have a reward.")]
CodeAlone = Annotated[int, doc("If it was refused: the code that it would have had alone.")]
WhyRefused = Annotated[str, doc("If it was refused: why.")]
FieldRefused = Annotated[str | None, doc("If it was refused: the field that is wrong, if known.")]
HowManyRefused = Annotated[int, doc("How many were refused.")]
EACH_ALONE = doc("Each stands alone: one that is refused does not keep the others out.")
IntervalBound = Annotated[float | None, doc("Of the 95 % interval; null: not known yet.")]


class DecisionRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """A decision that is wanted."""

    task: Annotated[
        Name,
        doc("For whom, or for what: a user, a shop, a page. No control characters in a new one."),
    ]
    decision_id: Annotated[
        Name | None, doc("Yours, to ask again safely; made here unless given.")
    ] = None
    features: Annotated[Rows | None, doc("Of a linear model: a row for each arm.")] = None
    allowed: Annotated[
        ArmNames | None,
        doc(
            "The arms to choose from; all unless given. In a linear model whose features come "
            "with the decision, numbers of rows."
        ),
    ] = None
    horizon: Annotated[
        Annotated[int, Meta(ge=1, le=10**12)] | None,
        doc("Rounds left in this task, this one too; the policies index and far need it."),
    ] = None
    attributes: Annotated[
        Attributes | None,
        doc(
            "What is known of the task, by the names that the experiment declares; with its first "
            "decision, and the same later or none."
        ),
    ] = None
    design: Annotated[
        Rows | None,
        doc(
            "The same as a matrix, if there are no declared attributes: how the means of the task "
            "follow from what all tasks share, a row for each of its coefficients or arms."
        ),
    ] = None


SeveralDecisions = Annotated[list[DecisionRequest], Meta(max_length=MOST_AT_ONCE)]


class DecisionBatchRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Several decisions that are wanted."""

    decisions: Annotated[SeveralDecisions, EACH_ALONE]


class AnyDecisionRequest(DecisionRequest, frozen=True):
    """What the service takes for decisions: a `DecisionRequest` or a `DecisionBatchRequest`."""

    task: Name = ""  # none
    decisions: SeveralDecisions | None = None


class DecisionResult(Struct, frozen=True):
    """A decision that was made, and is in the store."""

    decision_id: Annotated[str, doc("To tell the reward by.")]
    task: AsAsked
    action: Annotated[Action, doc("The arm, or the arms of a semi-bandit.")]
    propensity: Annotated[
        Share | list[Share],
        doc("The probability that this action had when it was drawn, or each of its arms."),
    ]
    state_version: Annotated[int, doc("The last commit of the experiment that the decision knew.")]
    prior_version: PriorVersion
    time: Annotated[float, doc("Of the decision, in seconds since 1970.")]
    holdout: Annotated[bool, doc("Whether it was held out.")]
    fallback: Annotated[bool, doc("False: this is a decision, and it is learned from.")] = False
    kept: Annotated[bool, doc("Whether the task keeps to an earlier draw, see sticky.")] = False


class Fallback(Struct, frozen=True):
    """The control action, while the store cannot be written: it is not learned from."""

    error: Annotated[str, doc("Why there is no decision.")]
    decision_id: Annotated[str | None, doc("As it was asked; nothing is stored under it.")]
    task: AsAsked
    action: Annotated[Action, doc("The control action of the experiment.")]
    fallback: Annotated[bool, doc("True: not stored, and not learned from.")] = True


class RefusedDecision(Struct, frozen=True):
    """A decision of a batch that could not be made, with the code that it would have alone."""

    decision_id: Annotated[str | None, doc("As it was asked; nothing is stored under it.")]
    task: AsAsked
    code: CodeAlone
    error: WhyRefused
    field: FieldRefused = None


class DecisionBatchResult(Struct, frozen=True):
    results: Annotated[
        Sequence[DecisionResult | Fallback | RefusedDecision],
        doc("What became of each, in the order of the request."),
    ]
    refused: HowManyRefused


class RewardRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """A reward of a decision: a number, or one for each of its arms."""

    decision_id: Annotated[Name, doc("Of the decision.")]
    reward: Annotated[
        Figure | Figures, doc("A number; for a semi-bandit a list, one for each arm of the action.")
    ]
    reward_id: Annotated[
        Name | None, doc("Yours, to tell two equal rewards from one that was sent twice.")
    ] = None
    metrics: Annotated[
        MetricValues | None,
        doc("Further figures of the decision, by the names that the experiment declares."),
    ] = None


SeveralRewards = Annotated[list[RewardRequest], Meta(max_length=MOST_AT_ONCE)]


class RewardBatchRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Several rewards."""

    rewards: Annotated[SeveralRewards, EACH_ALONE]


class AnyRewardRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """What the service takes for rewards: a `RewardRequest` or a `RewardBatchRequest`."""

    decision_id: Name | None = None
    reward: Figure | Figures | None = None
    reward_id: Name | None = None
    metrics: MetricValues | None = None
    rewards: SeveralRewards | None = None


class RewardResult(Struct, frozen=True):
    """What became of a reward."""

    decision_id: OfDecision
    status: RewardStatus
    state_version: StateVersion


class RefusedReward(Struct, frozen=True):
    """A reward of a batch that could not be taken, with the code that it would have alone."""

    decision_id: OfDecision
    code: CodeAlone
    error: WhyRefused
    field: FieldRefused = None


class RewardBatchResult(Struct, frozen=True):
    results: Annotated[
        Sequence[RewardResult | RefusedReward],
        doc("What became of each, in the order of the request."),
    ]
    refused: HowManyRefused


class NewArm(Struct, forbid_unknown_fields=True, frozen=True):
    """An arm that is added: with the prior of another, or with features of its own."""

    arm: Annotated[NewName, doc("Its name.")]
    like: Annotated[ArmName | None, doc("The arm whose prior it takes.")] = None
    features: Annotated[Row | None, doc("Of the arm, in a linear model whose arms are fixed.")] = (
        None
    )


class NewStatus(Struct, forbid_unknown_fields=True, frozen=True):
    """Whether an experiment goes on."""

    status: Annotated[
        Status,
        doc(
            "running; paused: no decision is made, rewards count; archived: no reward counts "
            "either, and it can be deleted."
        ),
    ]


class ExperimentInfo(Struct, frozen=True):
    """An experiment."""

    name: Annotated[str, doc("Of the experiment.")]
    spec: Annotated[dict[str, Any], doc("The settings, without those that are as usual.")]
    arms: Annotated[
        list[Arm] | None,
        doc("Arms that can be chosen; null if features come with every decision."),
    ]
    retired: Annotated[list[Arm], doc("Arms that are not chosen any more.")]
    state_version: StateVersion
    prior_version: PriorVersion
    status: Annotated[str, doc("running, paused or archived.")]
    aging: HowRewardsAge = None


class ExperimentList(Struct, frozen=True):
    experiments: Annotated[list[str], doc("Their names, without those that are archived.")]
    archived: Annotated[list[str], doc("Names of those that are.")] = []


class TaskBeliefPart(Struct, frozen=True):
    """The belief about one arm, or one coefficient: in a task, and before its own data."""

    name: ArmOrCoefficient
    mean: Mean
    scale: Scale
    prior_mean: Annotated[
        float, doc("The same before the task's own data: what all other tasks have taught.")
    ]
    prior_scale: Annotated[float | None, doc("The same before the task's own data.")]
    from_task: Annotated[Share, doc("How much of the belief comes from the task's own data.")]
    from_prior: Annotated[Share, doc("How much comes from the prior.")]
    pulls: Annotated[
        float | None,
        doc("Rewards of this arm that count in the task, by weight; null in a linear model."),
    ]


class TaskBelief(Struct, frozen=True):
    task: Annotated[str, doc("Its name.")]
    parts: Annotated[list[TaskBeliefPart], doc("A belief for each arm or coefficient.")]
    state_version: StateVersion
    prior_version: PriorVersion


class PriorBeliefPart(Struct, frozen=True):
    name: ArmOrCoefficient
    mean: Mean
    scale: Scale


class PriorBelief(Struct, frozen=True):
    """What is believed of a new task, and the prior as a file of its own."""

    tasks: Annotated[int, doc("How many there are.")]
    decisions: DecisionsMade
    rewards: Annotated[int, doc("Decisions whose reward counts.")]
    log_evidence: Annotated[
        float, doc("Logarithm of the probability density of all rewards, under the prior.")
    ]
    parts: Annotated[list[PriorBeliefPart], doc("What is believed of a new task.")]
    prior: Annotated[dict[str, Any], doc("A prior file, which another experiment can start from.")]
    state_version: StateVersion
    prior_version: PriorVersion


class LiftInterval(Struct, frozen=True):
    low: IntervalBound
    high: IntervalBound


class LiftEstimate(Struct, frozen=True):
    estimate: Annotated[float | None, doc("Null until something can be said.")]
    low: IntervalBound
    high: IntervalBound


class Lift(Struct, frozen=True):
    """Mean reward of decisions that were not held out, less that of those that were.

    The interval holds at every look, however often you look.
    """

    estimate: Annotated[
        float | None,
        doc(
            "Mean reward of decisions that were not held out, less that of those that were; null "
            "until there are both."
        ),
    ]
    low: IntervalBound
    high: IntervalBound
    policy_mean: Annotated[float | None, doc("Mean reward of decisions that were not held out.")]
    policy_decisions: DecisionsWithReward
    holdout_mean: Annotated[float | None, doc("Mean reward of decisions that were.")]
    holdout_decisions: DecisionsWithReward
    fixed_time: Annotated[
        LiftInterval, doc("Of the lift, for who looks only once, at a time that was fixed before.")
    ]
    relative: Annotated[
        LiftEstimate, doc("The lift as a part of the holdout's mean: 0.1 is 10 %. At every look.")
    ]


class ArmStanding(Struct, frozen=True):
    arm: Annotated[Arm, doc("Its name.")]
    best: Annotated[Share, doc("The probability that it is the best on average over tasks.")]


class Stop(Struct, frozen=True):
    """Whether to stop, by what is believed of all tasks."""

    arms: Annotated[list[ArmStanding], doc("Those that can be chosen.")]
    loss: Annotated[
        float, doc("Expected, of each decision, if the arm that looks best were taken for good.")
    ]
    settled: Annotated[bool, doc("Whether there is nothing to wait for.")]


class Report(Struct, frozen=True):
    decisions: DecisionsMade
    tasks: Annotated[int, doc("For how many tasks.")]
    counted: Annotated[int, doc("Decisions whose reward counts.")]
    missing: Annotated[int, doc("Decisions without a reward whose window is still open.")]
    expired: Annotated[int, doc("Decisions that had no reward when their window ended.")]
    explored: Annotated[int, doc("Decisions whose action was not the one that looked best.")]
    lift: Annotated[
        Lift | None,
        doc("Over the holdout, of the decisions that were made; null if there is none."),
    ]
    lift_new_tasks: Annotated[
        LiftEstimate | None,
        doc("The same for tasks like these that were not met yet; at every look."),
    ]
    metrics: Annotated[
        dict[str, Lift], doc("Means and lift of each further metric of the experiment.")
    ]
    stop: Annotated[
        Stop | None, doc("Whether to stop; null where actions are sets or arms have no names.")
    ]
    sentence: Annotated[str, doc("Whether to stop, in plain words.")]
    alarms: Annotated[list[str], doc("What is wrong, a sentence each.")]
    state_version: StateVersion
    prior_version: PriorVersion
    aging: HowRewardsAge = None


class Error(Struct, frozen=True):
    error: Annotated[str, doc("What is wrong.")]
    field: Annotated[str | None, doc("Where in the request, such as rewards[1].reward.")] = None


class Health(Struct, frozen=True):
    status: Annotated[str, doc("ok, or ready.")]
    why: Annotated[str | None, doc("Null where all is well.")] = None
