"""What becomes of a reward: pure functions of the decision, the rules and the time."""

from collections.abc import Sequence
from typing import NamedTuple, cast

from adats.service.errors import Conflict
from adats.service.messages import RewardStatus
from adats.service.spec import ExperimentSpec
from adats.service.stores.interface import DecisionRow, Metrics, Reward, RewardRow


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


def kept_since(last: DecisionRow | None, spec: ExperimentSpec, now: float) -> float | None:
    """When the arm was drawn that a task keeps after its last decision; None: one is drawn anew."""
    if last is None or spec.sticky is None:
        return None
    drawn = last.time if last.kept is None else last.kept
    return drawn if now < drawn + spec.sticky else None


def of_no_arm(decision: DecisionRow, spec: ExperimentSpec) -> DecisionRow:
    """A decision to pull no arm, as a semi-bandit's may be: there is no reward to wait for."""
    return decision._replace(due=None, reward=[], counted=[], metrics=metrics_of(spec))


def metrics_of(spec: ExperimentSpec, given: Metrics | None = None) -> Metrics | None:
    """What counts of a reward that came with these, or with none."""
    if not spec.metrics:
        return None
    usual = {name: float(value) for name, value in spec.metrics.items() if value is not None}
    return usual | (given or {})


def receive(
    decision: DecisionRow,
    earlier: Sequence[RewardRow],
    reward: Reward,
    reward_id: str | None,
    spec: ExperimentSpec,
    now: float,
    metrics: Metrics | None = None,
) -> RewardOutcome:
    """A reward for a decision. One whose window is over must have been settled before."""
    if _is_again(earlier, reward, reward_id, spec, metrics):
        return RewardOutcome("duplicate")
    received = decision.received + 1
    late = is_late(decision, spec, now)
    if late and spec.late == "ignore":
        return RewardOutcome("late", decision._replace(received=received))
    amount, figures = reward, metrics_of(spec, metrics)
    if spec.several == "sum" and decision.reward is not None:
        amount = _plus(decision.reward, reward)
        if figures is not None and decision.metrics is not None:
            sums = {n: v + figures.get(n, 0.0) for n, v in decision.metrics.items()}
            figures = figures | sums
    new = decision._replace(received=received, reward=amount, metrics=figures)
    if spec.apply == "at_window_end" and not late:
        return RewardOutcome("held", new)
    return RewardOutcome("counted", new._replace(counted=amount, due=None))


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
    metrics = decision.metrics
    if counted is not None and metrics is None:
        metrics = metrics_of(spec)
    return decision._replace(
        counted=counted, due=None, settled=version, settled_place=place, metrics=metrics
    )


def _is_again(
    earlier: Sequence[RewardRow],
    reward: Reward,
    reward_id: str | None,
    spec: ExperimentSpec,
    metrics: Metrics | None,
) -> bool:
    """Whether this reward came before; `Conflict` if it contradicts one that did."""
    value = (reward, metrics or None)
    if reward_id is not None:
        for row in earlier:
            if row.reward_id == reward_id:
                if _value_of(row) != value:
                    raise Conflict(
                        f"reward_id {reward_id!r} came with reward {_text(_value_of(row))}, now "
                        f"{_text(value)}"
                    )
                return True
    if not earlier:
        return False
    if spec.several == "first":
        if _value_of(earlier[0]) != value:
            raise Conflict(
                f"the decision has reward {_text(_value_of(earlier[0]))}, now {_text(value)}; the "
                "experiment takes the first (several: sum or last take more)"
            )
        return True
    if reward_id is not None:
        return False
    if spec.several == "last":
        return _value_of(earlier[-1]) == value
    return any(_value_of(row) == value for row in earlier if row.reward_id is None)


def _value_of(row: RewardRow) -> tuple[Reward, Metrics | None]:
    return row.reward, row.metrics


def _text(value: tuple[Reward, Metrics | None]) -> str:
    reward, metrics = value
    return f"{reward}" if metrics is None else f"{reward} and metrics {metrics}"


def _plus(left: Reward, right: Reward) -> Reward:
    if isinstance(left, list) and isinstance(right, list):
        return [a + b for a, b in zip(left, right, strict=True)]
    return cast(float, left) + cast(float, right)
