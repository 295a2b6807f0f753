"""What is answered in place of a decision that is not made: the control action, if it is open."""

from adats.service.errors import ServiceError, refusal, text_of
from adats.service.field_types import MOST_ARMS
from adats.service.messages import DecisionRequest, Fallback, RefusedDecision
from adats.service.spec import arms_of_control
from adats.service.stores.interface import Action


def instead(
    error: ServiceError, control: Action | None, asked: DecisionRequest
) -> Fallback | RefusedDecision:
    """The control action with the reason; or a refusal, if the request does not leave it open."""
    if control is None or not _is_open(control, asked):
        return RefusedDecision(asked.decision_id, asked.task, *refusal(error))
    return Fallback(text_of(error), asked.decision_id, asked.task, control)


def _is_open(control: Action, request: DecisionRequest) -> bool:
    arms, rows, allowed = arms_of_control(control), request.features, request.allowed
    if rows is not None and any(arm in range(len(rows), MOST_ARMS) for arm in arms):
        return False
    return allowed is None or all(arm in allowed for arm in arms)
