"""What becomes of a reward: pure functions of the decision, the rules and the time."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from adats.service.errors import Conflict
from adats.service.messages import RewardStatus
from adats.service.spec import ExperimentSpec
from adats.service.stores.interface import DecisionRow, Reward, RewardRow


class RewardOutcome(NamedTuple):
    status: RewardStatus
    decision: DecisionRow | None = None  # as it is now; None: nothing has changed


def is_late(decision: DecisionRow, spec: ExperimentSpec, now: float) -> bool:
    """From the end of the window on. A settled decision stays so, even if the clock is put back."""
    if spec.window is None:
        return False
    return decision.settled is not None or now >= decision.time + spec.window


def when_due(spec: ExperimentSpec, time: float, counts_pending: bool) -> float | None:
    """When a new decision has to be looked at again; None if the window's end changes nothing."""
    if spec.window is None:
        return None
    waits = spec.apply == "at_window_end" or spec.default_reward is not None or counts_pending
    return time + spec.window if waits else None


def of_no_arm(decision: DecisionRow) -> DecisionRow:
    """A decision to pull no arm, as a semi-bandit's may be: there is no reward to wait for."""
    return decision._replace(due=None, reward=[], counted=[])


def receive(
    decision: DecisionRow,
    earlier: Sequence[RewardRow],
    reward: Reward,
    reward_id: str | None,
    spec: ExperimentSpec,
    now: float,
) -> RewardOutcome:
    """A reward for a decision. One whose window is over must have been settled before."""
    if _is_again(earlier, reward, reward_id, spec):
        return RewardOutcome("duplicate")
    received = decision.received + 1
    late = is_late(decision, spec, now)
    if late and spec.late == "ignore":
        return RewardOutcome("late", decision._replace(received=received))
    amount = reward
    if spec.several == "sum" and decision.reward is not None:
        amount = _plus(decision.reward, reward)
    if spec.apply == "at_window_end" and not late:
        return RewardOutcome("held", decision._replace(received=received, reward=amount))
    return RewardOutcome(
        "counted",
        decision._replace(received=received, reward=amount, counted=amount, due=None),
    )


def settle(decision: DecisionRow, spec: ExperimentSpec, version: int, place: int) -> DecisionRow:
    """The decision at the end of its window: what was held counts, else the default reward.

    `version` and `place` are those of this event.
    """
    counted = decision.counted
    if counted is None:
        counted = decision.reward
    if counted is None and spec.default_reward is not None:
        arms = len(decision.action) if isinstance(decision.action, list) else None
        counted = spec.default_reward if arms is None else [spec.default_reward] * arms
    return decision._replace(counted=counted, due=None, settled=version, settled_place=place)


def _is_again(
    earlier: Sequence[RewardRow], reward: Reward, reward_id: str | None, spec: ExperimentSpec
) -> bool:
    """Whether this reward came before; `Conflict` if it contradicts one that did."""
    if reward_id is not None:
        for row in earlier:
            if row.reward_id == reward_id:
                if row.reward != reward:
                    raise Conflict(
                        f"reward_id {reward_id!r} came with reward {row.reward}, now {reward}"
                    )
                return True
    if not earlier:
        return False
    if spec.several == "first":
        if earlier[0].reward != reward:
            raise Conflict(
                f"the decision has reward {earlier[0].reward}, now {reward}; the experiment takes "
                "the first (several: sum or last take more)"
            )
        return True
    if reward_id is not None:
        return False
    if spec.several == "last":
        return earlier[-1].reward == reward
    return any(row.reward == reward for row in earlier if row.reward_id is None)


def _plus(left: Reward, right: Reward) -> Reward:
    if isinstance(left, list) and isinstance(right, list):
        return [a + b for a, b in zip(left, right, strict=True)]
    return cast(float, left) + cast(float, right)
