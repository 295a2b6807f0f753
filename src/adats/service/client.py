"""The decision service from Python, with the `ask` and `tell` of the agents."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlsplit

import numpy as np
from numpy.typing import ArrayLike

from adats.agents.decision import Decision
from adats.agents.task_state import task_name
from adats.models.core import checks
from adats.models.core.errors import Refused, UnknownTask
from adats.models.core.types import Arm, Task
from adats.service.client_messages import (
    all_or_refused,
    decision_body,
    decision_from,
    listed,
    refused_from,
    reward_body,
    words_of,
)

PATIENCE = 10.0  # seconds
PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds before the second try, and before any other
IDLE = 2.0  # seconds until a connection is not used again: the service closes it after five
AT_ONCE = 1000  # decisions or rewards in a request
PASSING = (429, 502, 503, 504)  # too many requests, or the service cannot answer now


class _Answer(NamedTuple):
    status: int
    content: dict[str, Any]  # empty if there is none, or if it is not what a service says
    wait: float = 0.0  # seconds that the service asks for
    lost: bool = False  # whether an earlier try was cut off: it may have been carried out


class Client:
    """One experiment of a decision service, asked and told like an agent.

    A request that is cut off or turned away for a while is sent again, for as long as `patience`
    seconds; then it raises `ConnectionError`. The service knows a request that it has seen, so
    nothing counts twice. What the service refuses is a `Refused`, which is a `ValueError`. Tasks
    are text there: task 5 and task "5" are the same. Threads may share a client.
    """

    def __init__(
        self, url: str, experiment: str, *, key: str | None = None, patience: float = PATIENCE
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(
                f"give the address of a service, as http://127.0.0.1:8000; got {url!r}"
            )
        self._url, self._parts, self._port = url, parts, parts.port
        self._base = f"{parts.path.rstrip('/')}/v1/experiments/{quote(experiment, safe='')}"
        self._headers = {"Content-Type": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._patience = checks.positive_number("patience", patience)
        self._idle: list[tuple[Any, float]] = []  # connections, and when they were used last
        self._pid = os.getpid()

    def ask(
        self,
        task: Task,
        *,
        features: ArrayLike | None = None,
        allowed: Iterable[Arm] | None = None,
        horizon: int | None = None,
        attributes: Mapping[str, float | str] | None = None,
        design: ArrayLike | None = None,
        decision_id: str | None = None,
    ) -> Decision:
        """Choose an action for a task. The same `decision_id` again gives the same decision.

        If the service cannot decide for all the patience, but names a control action, that is the
        decision: it is marked `fallback`, and `tell` sends no reward for it.
        """
        asked = decision_body(task, features, allowed, horizon, attributes, design, decision_id)
        answer = self._call("POST", "/decide", asked)
        if not (answer.status == 503 and answer.content.get("fallback")):
            _check(answer, self._url)
        made: Decision = decision_from(task, asked, answer.content)
        return made

    def ask_many(
        self,
        tasks: Iterable[Task],
        *,
        features: ArrayLike | None = None,
        allowed: Iterable[Arm] | None = None,
        horizon: int | None = None,
        attributes: Iterable[Mapping[str, float | str] | None] | None = None,
        design: ArrayLike | None = None,
        decision_ids: Iterable[str] | None = None,
    ) -> list[Decision]:
        """Choose an action for each of many tasks, up to 1,000 in a request.

        `features` are those of all tasks, or have a first axis for the task; `attributes` are given
        task by task. If some are refused, the others are decided all the same: the `Refused` has
        all of them in its `results`.
        """
        names = list(tasks)
        open_arms = None if allowed is None else listed(allowed)
        rows: Any = features
        if np.ndim(rows) < 3:
            rows = [features] * len(names)
        more = ([None] * len(names) if own is None else own for own in (attributes, decision_ids))
        asked = [
            decision_body(task, own, open_arms, horizon, known, design, id)
            for task, own, known, id in zip(names, rows, *more, strict=True)
        ]
        answers = self._each("/decide", "decisions", asked)
        found = zip(names, asked, answers, strict=True)
        return all_or_refused([decision_from(*one) for one in found])

    def tell(
        self,
        decision: Decision | None = None,
        *,
        reward: Any,
        reward_id: str | None = None,
        metrics: Mapping[str, float] | None = None,
        task: Task | None = None,
        action: Any = None,
    ) -> None:
        """Tell the reward of a decision. The same again changes nothing.

        Where an experiment adds up several rewards, `reward_id` tells two equal ones from one that
        is told twice. `metrics` are further figures that the experiment declares.
        """
        if decision is None or task is not None or action is not None:
            raise ValueError(
                "a service takes rewards of its own decisions only: tell(decision, reward=...); "
                "for a log there is `adats fit`, and an experiment from the prior it writes"
            )
        body = reward_body(decision, reward, reward_id, metrics)
        if not decision.fallback:
            _check(self._call("POST", "/reward", body), self._url)

    def tell_many(
        self,
        decisions: Iterable[Decision],
        rewards: Iterable[Any],
        *,
        reward_ids: Iterable[str | None] | None = None,
        metrics: Iterable[Mapping[str, float] | None] | None = None,
    ) -> None:
        """Tell the rewards of many decisions, up to 1,000 in a request; those of fallbacks not.

        If some are refused, the others count all the same: the `Refused` has all in its `results`.
        """
        made = list(decisions)
        more = ([None] * len(made) if some is None else some for some in (reward_ids, metrics))
        bodies = [reward_body(*one) for one in zip(made, rewards, *more, strict=True)]
        sent = [body for body, one in zip(bodies, made, strict=True) if not one.fallback]
        answers = self._each("/reward", "rewards", sent)
        all_or_refused([refused_from(one) if "error" in one else one for one in answers])

    def _each(self, path: str, name: str, several: list[Any]) -> Iterator[dict[str, Any]]:
        """The answer to each, in requests that are not too long."""
        for start in range(0, len(several), AT_ONCE):
            answer = self._call("POST", path, {name: several[start : start + AT_ONCE]})
            if not (answer.status == 503 and "results" in answer.content):  # fallbacks
                _check(answer, self._url)
            yield from answer.content["results"]

    def forget(self, task: Task) -> None:
        """Forget a task: its data go, and what it taught is taken out."""
        answer = self._call("DELETE", f"/tasks/{quote(str(task_name(task)), safe='')}")
        if answer.status == 404 and not answer.lost:
            raise UnknownTask(words_of(answer.content))
        if answer.status != 404:
            _check(answer, self._url)

    def report(self) -> dict[str, Any]:
        """How the experiment does: its decisions, the lift over its holdout, missing rewards."""
        answer = self._call("GET", "/report")
        _check(answer, self._url)
        return answer.content

    def pause(self) -> None:
        """Make no decisions: `ask` gives the control action as a fallback, if there is one."""
        self._set_status("paused")

    def resume(self) -> None:
        """Go on, after a pause or from the archive."""
        self._set_status("running")

    def archive(self) -> None:
        """Make no decisions and take no rewards any more."""
        self._set_status("archived")

    def delete(self) -> None:
        """Delete an archived experiment with all its data."""
        answer = self._call("DELETE", "")
        if not (answer.status == 404 and answer.lost):
            _check(answer, self._url)

    def _set_status(self, status: str) -> None:
        _check(self._call("PUT", "/status", {"status": status}), self._url)

    def close(self) -> None:
        """Close the connections. The client still can be used: it makes new ones."""
        while kept := self._taken():
            kept[0].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, method: str, path: str, body: Any = None) -> _Answer:
        """The answer to a request; one that may be another in a while only after the patience."""
        from http.client import HTTPException  # only who uses a client waits for this import

        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        until, pause, lost = time.monotonic() + self._patience, PAUSE, False
        while True:
            trouble, answer = None, None
            try:
                answer = self._exchange(method, path, content, until - time.monotonic())
            except (OSError, HTTPException) as error:
                lost = lost or not isinstance(error, ConnectionRefusedError)
                trouble, wait = error, pause
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if answer.status not in PASSING:
                    return answer._replace(lost=lost)
                wait = answer.wait
            if time.monotonic() + wait >= until:
                if answer is not None:
                    return answer
                raise ConnectionError(f"{self._url} does not answer: {trouble!r}") from trouble
            time.sleep(wait)

    def _exchange(self, method: str, path: str, content: bytes | None, seconds: float) -> _Answer:
        """One try. A connection that fails is not used again."""
        connection = self._connection(max(seconds, 0.01))
        try:
            connection.request(method, self._base + path, content, self._headers)
            response = connection.getresponse()
            body = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._idle.append((connection, time.monotonic()))
        return _Answer(response.status, _parsed(body), _seconds(response.getheader("Retry-After")))

    def _connection(self, seconds: float) -> Any:
        from http.client import HTTPConnection, HTTPSConnection

        if self._pid != os.getpid():  # after a fork the connections are the parent's
            self._pid, self._idle = os.getpid(), []
        while kept := self._taken():
            connection, used = kept
            if time.monotonic() - used < IDLE:
                connection.sock.settimeout(seconds)
                return connection
            connection.close()
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        return kind(self._parts.hostname or "", self._port, timeout=seconds)

    def _taken(self) -> tuple[Any, float] | None:
        """A connection that no other thread has."""
        try:
            return self._idle.pop()
        except IndexError:
            return None


def _check(answer: _Answer, url: str) -> None:
    """Raise unless the answer is a success."""
    if 400 <= answer.status < 500 and answer.status != 429:
        raise Refused(words_of(answer.content), answer.status, answer.content.get("field"))
    if not 200 <= answer.status < 300:
        raise ConnectionError(f"{url} answers {answer.status}: {words_of(answer.content)}")
    if answer.status != 204 and not answer.content:
        raise ConnectionError(f"{url} is not a decision service: its answer is not JSON")


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _seconds(retry_after: str | None) -> float:
    """Where it is not a number of seconds, our own longest pause."""
    try:
        return max(int(retry_after or ""), PAUSE)
    except ValueError:
        return LONGEST_PAUSE
