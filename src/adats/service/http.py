"""Between ASGI and the operations: who asks, what exactly, and how the answer looks."""

import logging
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import msgspec
from starlette.concurrency import iterate_in_threadpool
from starlette.types import Receive, Scope, Send

from adats.service.desk import Busy
from adats.service.engine import NotFound
from adats.service.keys import OPEN_TENANT, Access, Keyring
from adats.service.messages import Error
from adats.service.metrics import Metrics
from adats.service.operations import Operation
from adats.service.rules import Conflict
from adats.service.spec import Invalid
from adats.service.store import DamagedStore, StoreError

RETRY = (b"retry-after", b"1")
NESTED = (dict, list)
HOME = Access(OPEN_TENANT, True)
LONGEST_TEXT = 300  # characters of what was sent, in an error
_WHERE = re.compile(r"(.*?)(?: - at `\$\.?([^`]*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`", re.DOTALL)

log = logging.getLogger("adats.service")
encode = msgspec.json.Encoder().encode


class Problem(Exception):
    """An answer that is not a success."""

    def __init__(self, status: int, error: str, field: str | None = None, body: Any = None) -> None:
        super().__init__(error)
        self.status = status
        self.body = Error(error, field) if body is None else body


class Reply(NamedTuple):
    body: Any = None
    status: int = 200


class Text(NamedTuple):
    """A body that is not JSON."""

    content: bytes
    kind: str


class Stream(NamedTuple):
    """A body that is made while it is sent, in a thread."""

    pieces: Iterator[bytes]
    kind: str
    close: Callable[[], None]

    async def send_to(self, send: Send) -> None:
        headers = [(b"content-type", self.kind.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for piece in iterate_in_threadpool(self.pieces):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            self.close()
        await send({"type": "http.response.body", "body": b""})


class Call(NamedTuple):
    """A request that is allowed and well formed."""

    access: Any  # an `Access`; None for what is open to everybody
    path: dict[str, Any]
    body: Any
    query: dict[str, str]


class Gate:
    """Who may come in.

    With keys: who has one. Without: everybody on this machine, so requests have to be addressed
    to it by one of its `hosts`; a page of another site would use a name of its own. Once there
    were keys, or if there are no such hosts, no request comes in without one.
    """

    def __init__(self, keyring: Keyring, hosts: tuple[str, ...] | None) -> None:
        self._hosts = hosts
        self._last_host: bytes | None = None  # that was good
        self._keyed = hosts is None
        self.renew(keyring)

    def renew(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._keyed = self._keyed or len(keyring) > 0

    def access(self, headers: dict[bytes, bytes], operation: Operation) -> Access | None:
        """What the request may do; a `Problem` if not this operation."""
        if operation.open:
            return None
        if not self._keyed:
            return self._at_home(headers.get(b"host", b""))
        scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        access = self._keyring.access(key if scheme.lower() == "bearer" else None)
        if access is None:
            raise Problem(401, "give a valid key: Authorization: Bearer adats_…")
        if operation.write and not access.write:
            raise Problem(403, "this key may only read")
        return access

    def _at_home(self, host: bytes) -> Access:
        if host == self._last_host:
            return HOME
        name, _, port = host.decode("latin-1").rpartition(":")
        if not port.isdecimal():
            name = host.decode("latin-1")
        if self._hosts is None or name.lower() not in self._hosts:
            own = " or ".join(dict.fromkeys(self._hosts or ()))
            raise Problem(403, f"without keys, address this service as {own}, not {name}")
        self._last_host = host
        return HOME


Handler = Callable[[Call], Awaitable[Reply]]


class Endpoint:
    """One operation over HTTP. Small, as every request passes through it."""

    def __init__(
        self, operation: Operation, handler: Handler, gate: Gate, metrics: Metrics
    ) -> None:
        self._operation, self._handler = operation, handler
        self._gate, self._metrics = gate, metrics
        takes = operation.takes
        self._decoder = None if takes is None else msgspec.json.Decoder(takes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        extra: tuple[tuple[bytes, bytes], ...] = ()
        try:
            headers = dict(scope["headers"])
            access = self._gate.access(headers, self._operation)
            body = None
            if self._decoder is not None:
                body = decoded(self._decoder, await self._read(headers, receive))
            reply = await self._handler(
                Call(access, scope.get("path_params", {}), body, query_of(scope))
            )
        except Exception as error:
            problem = as_problem(error)
            if problem.status == 500:
                log.error("%s failed", self._operation.name, exc_info=error)
            reply = Reply(problem.body, problem.status)
            if problem.status in (429, 503):
                extra = (RETRY,)
            elif problem.status == 401:
                extra = ((b"www-authenticate", b"Bearer"),)
        if isinstance(reply.body, Stream):
            await reply.body.send_to(send)
        elif isinstance(reply.body, Text):
            await respond(send, reply.status, *reply.body)
        else:
            content = b"" if reply.status == 204 else encode(reply.body)
            await respond(send, reply.status, content, "application/json", extra)
        self._metrics.request(self._operation.name, reply.status, time.perf_counter() - began)

    async def _read(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != b"application/json":  # which a page of another site cannot send unasked
            raise Problem(415, "send JSON, with Content-Type: application/json")
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Problem(400, "the request was cut off")
            part = message.get("body", b"")
            size += len(part)
            if size > self._operation.largest:
                raise Problem(413, f"the body has more than {self._operation.largest:,} bytes")
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)


class Methods:
    """The operations at one path, by their methods."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = dict(endpoints)
        if "GET" in endpoints:
            self._endpoints["HEAD"] = endpoints["GET"]
        self._allow = ", ".join(sorted(self._endpoints))

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        endpoint = self._endpoints.get(scope["method"])
        return self._no(send) if endpoint is None else endpoint(scope, receive, send)

    async def _no(self, send: Send) -> None:
        error = encode(Error(f"the method here is one of {self._allow}"))
        allow = ((b"allow", self._allow.encode()),)
        await respond(send, 405, error, "application/json", allow)


async def respond(
    send: Send,
    status: int,
    content: bytes,
    kind: str,
    extra: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    headers = [(b"content-length", b"%d" % len(content)), *extra]
    if status != 204:
        headers.append((b"content-type", kind.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def query_of(scope: Scope) -> dict[str, str]:
    if not scope["query_string"]:
        return {}
    from urllib.parse import parse_qsl

    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


def as_problem(error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case Invalid():
            return Problem(422, str(error), error.field)
        case NotFound():
            return Problem(404, str(error))
        case Conflict():
            return Problem(409, str(error))
        case Busy():
            return Problem(429, str(error))
        case StoreError():
            return Problem(503, f"the store cannot be written now: {error}")
        case DamagedStore():
            return Problem(503, str(error))
    return Problem(500, "this is a fault of the service; its log says more")


def decoded(decoder: Any, body: bytes) -> Any:
    """The body as its type, or a 422 that names the field."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise Problem(422, *_explained(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _not_finite(body)
        if found is not None:
            raise Problem(422, "numbers must be finite", found) from None
        raise Problem(422, f"the body is not JSON: {error}") from None


def _explained(error: str) -> tuple[str, str | None]:
    """What is wrong, and in which field, out of "… - at `$.rewards[1].reward`"."""
    found = _WHERE.fullmatch(error)
    what, where = (error, "") if found is None else found.groups(default="")
    named = _FIELD.fullmatch(what)
    field = ".".join(part for part in (where, named and named[1]) if part)
    return _short(what), _short(field) or None


def _short(text: str) -> str:
    """Names in a body may be as long as it is."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"


def _not_finite(body: bytes) -> str | None:
    """Where NaN or an infinity is, in what is JSON but for that."""
    import json

    try:
        found = _search(json.loads(body)).removeprefix(".")
    except (ValueError, RecursionError):
        return None
    return _short(found.encode("utf-8", "replace").decode()) or None


def _search(value: Any) -> str:
    """The path to the first such number, such as `.rewards[1].reward`; empty if there is none."""
    named = isinstance(value, dict)
    for key, part in (
        value.items() if named else enumerate(value if isinstance(value, list) else ())
    ):
        if isinstance(part, float):
            if not math.isfinite(part):
                return f".{key}" if named else f"[{key}]"
        elif isinstance(part, NESTED) and (found := _search(part)):
            return (f".{key}" if named else f"[{key}]") + found
    return ""
