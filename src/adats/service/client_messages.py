"""What a client sends for decisions and rewards, and what it makes of the answers."""

import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from adats.agents.arms import feature_rows
from adats.agents.decision import Decision
from adats.agents.task_state import task_name
from adats.models.core import checks
from adats.models.core.errors import Refused
from adats.models.core.types import Arm, FloatArray, Task


def decision_body(
    task: Task,
    features: ArrayLike | None,
    allowed: Iterable[Arm] | None,
    horizon: int | None,
    attributes: Mapping[str, float | str] | None,
    design: ArrayLike | None,
    decision_id: str | None,
) -> dict[str, Any]:
    """The body of a decision that is wanted."""
    if decision_id is None:
        decision_id = f"{time.time_ns() // 1_000_000:012x}-{secrets.token_hex(8)}"
    asked: dict[str, Any] = {"task": str(task_name(task)), "decision_id": decision_id}
    if features is not None:
        asked["features"] = feature_rows(features, None).tolist()
    if allowed is not None:
        asked["allowed"] = listed(allowed)
    if horizon is not None:
        asked["horizon"] = checks.count_of("horizon", horizon)
    if attributes is not None:
        asked["attributes"] = dict(attributes)
    if design is not None:
        asked["design"] = checks.array("design", design, ndim=2).tolist()
    return asked


def decision_from(task: Task, asked: dict[str, Any], content: dict[str, Any]) -> Any:
    """A decision as agents give it; `Refused`, if it is that."""
    if "action" not in content:
        return refused_from(content)
    return Decision(
        task_name(task),
        _tupled(content["action"]),
        _row(asked.get("features"), content["action"]),
        asked["decision_id"],
        content.get("time", time.time()),
        _tupled(content.get("propensity")),
        fallback=content["fallback"],
    )


def reward_body(
    decision: Decision,
    reward: Any,
    reward_id: str | None,
    metrics: Mapping[str, float] | None,
) -> dict[str, Any]:
    """The body of a reward."""
    if not isinstance(decision, Decision) or not isinstance(decision.decision_id, str):
        raise ValueError(f"tell takes a Decision from this client's ask; got {decision!r}")
    several = isinstance(decision.action, tuple)
    amount = checks.array("reward", reward).tolist() if several else checks.number("reward", reward)
    body = {"decision_id": decision.decision_id, "reward": amount}
    if reward_id is not None:
        body["reward_id"] = reward_id
    if metrics is not None:
        body["metrics"] = {name: checks.number(name, value) for name, value in metrics.items()}
    return body


def refused_from(content: dict[str, Any]) -> Refused:
    return Refused(words_of(content), content["code"], content.get("field"))


def all_or_refused(results: list[Any]) -> list[Any]:
    """Raise if one of them is refused."""
    refused = [i for i, one in enumerate(results) if isinstance(one, Refused)]
    if refused:
        first = results[refused[0]]
        words = f"{len(refused)} of {len(results)} were refused, first number {refused[0]}: {first}"
        raise Refused(words, first.status, first.field, results)
    return results


def words_of(content: dict[str, Any]) -> str:
    words, field = content.get("error", "it does not say why"), content.get("field")
    return f"{field}: {words}" if field else str(words)


def listed(allowed: Iterable[Arm]) -> list[Any]:
    if isinstance(allowed, str):
        raise ValueError(f"allowed is a list of arms, got {allowed!r}")
    return [int(arm) if isinstance(arm, np.integer) else arm for arm in allowed]


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _row(rows: list[list[float]] | None, action: Any) -> FloatArray | None:
    """The features of what was chosen; only the service knows those of arms with names."""
    if rows is None or not isinstance(action, int) or action >= len(rows):
        return None
    return np.array(rows[action])
