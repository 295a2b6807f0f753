"""Between ASGI and the operations: who asks, what exactly, and how the answer looks."""

import asyncio
import json
import logging
import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from adats.service.errors import (
    FAULT,
    CutOff,
    Forbidden,
    Invalid,
    NotJson,
    ServiceError,
    TooLarge,
    Unauthorized,
    status_of,
    text_of,
)
from adats.service.http.metrics import Metrics
from adats.service.http.operations import Operation
from adats.service.keys import OPEN_TENANT, ApiKeys
from adats.service.messages import Error
from adats.service.pages import sessions

T = TypeVar("T")
Json = dict[str, "Json"] | list["Json"] | str | float | bool | None

LARGE = 64_000  # bytes of a body that is parsed in a thread
MOST_VALUES = 500_000  # in a body, and lists: a parser keeps everybody waiting
NAME = 4  # values that the name of a field takes as long as
SLOWEST = 10.0  # seconds in which a client has to take a piece of a body
LONGEST_TEXT = 300  # characters of what was sent, in an error
_WHERE = re.compile(r"(.*?)(?: - at `\$\.?([^`]*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`", re.DOTALL)
_PLACE = re.compile(r"\(byte (\d+)\)")
_NUMBER = re.compile(rb"NaN|-?Infinity")
_GIVEN_ID = re.compile(rb"[!-~]{1,100}")
REQUEST_ID = b"x-request-id"
Headers = tuple[tuple[bytes, bytes], ...]

RETRY: Headers = ((b"retry-after", b"1"),)
MORE_HEADERS: dict[int, Headers] = {
    401: ((b"www-authenticate", b"Bearer"),),
    429: RETRY,
    503: RETRY,
}

NO_KEY = "give a valid key: Authorization: Bearer adats_…"
NO_KEYS = (
    "all keys of this service were removed, and it stays closed; make one (adats keys add), or "
    "start it with --open"
)
NOBODY = ""  # the tenant of requests that are open to everybody

log = logging.getLogger("adats.service")
encode = msgspec.json.Encoder().encode


# who asks


class AccessControl:
    """Who may come in.

    With keys: who has one. Without: everybody on this machine, so requests have to be addressed
    to it by one of its `hosts`; a page of another site would use a name of its own. Once there
    were keys, or if there are no such hosts, no request comes in without one; `reopened` means
    that keys which were removed before do not matter.
    """

    def __init__(
        self, keys: ApiKeys, hosts: tuple[str, ...] | None, *, reopened: bool = False
    ) -> None:
        self._hosts, self._reopened = hosts, reopened
        self._last_host: bytes | None = None  # that was good
        self._needs_key = hosts is None
        self.renew(keys)

    def renew(self, keys: ApiKeys) -> None:
        self._keys = keys
        closed = len(keys) > 0 or (keys.were_used and not self._reopened)
        self._needs_key = self._needs_key or closed

    def tenant(self, headers: dict[bytes, bytes], operation: Operation) -> str:
        """Whose experiments the request is about; it raises if it may not do this operation."""
        if operation.open:
            return NOBODY
        if not self._needs_key:
            self._check_host(headers.get(b"host", b""))
            return OPEN_TENANT
        scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        access = self._keys.access(key if scheme.lower() == "bearer" else None)
        if access is None:
            all_removed = self._keys.were_used and not len(self._keys)
            raise Unauthorized(NO_KEYS if all_removed else NO_KEY)
        if operation.write and not access.write:
            raise Forbidden("this key may only read")
        return access.tenant

    def reader(self, headers: dict[bytes, bytes]) -> tuple[str, bool]:
        """Whose experiments a page shows, and whether by a session; it raises if nobody's."""
        if not self._needs_key:
            self._check_host(headers.get(b"host", b""))
            return OPEN_TENANT, False
        access = sessions.access_of(self._keys, sessions.session_in(headers.get(b"cookie", b"")))
        if access is None:
            raise Unauthorized(NO_KEY)
        return access.tenant, True

    def sign_in(self, key: str) -> str | None:
        """A session, if there is such a key."""
        return sessions.new_session(self._keys, key)

    def _check_host(self, host: bytes) -> None:
        if host == self._last_host:
            return
        name, _, port = host.decode("latin-1").rpartition(":")
        if not port.isdecimal():
            name = host.decode("latin-1")
        if self._hosts is None or name.lower() not in self._hosts:
            own = " or ".join(dict.fromkeys(self._hosts or ()))
            raise Forbidden(f"without keys, address this service as {own}, not {name}")
        self._last_host = host


# what exactly


class BodyReader(Generic[T]):
    """Reads bodies of one type, and of some size at most."""

    def __init__(self, kind: type[T], largest: int) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._largest = largest

    async def read(self, headers: dict[bytes, bytes], receive: Receive) -> T:
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != b"application/json":  # which a page of another site cannot send unasked
            raise NotJson("send JSON, with Content-Type: application/json")
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise CutOff("the request was cut off")
            part = message.get("body", b"")
            size += len(part)
            if size > self._largest:
                raise TooLarge(f"the body has more than {self._largest:,} bytes")
            parts.append(part)
            if not message.get("more_body"):
                body = b"".join(parts)
                return (
                    await run_in_threadpool(self._decode, body)
                    if size > LARGE
                    else self._decode(body)
                )

    def _decode(self, body: bytes) -> T:
        """The body as its type, or `Invalid` with the field."""
        if len(body) > LARGE and _values(body) > MOST_VALUES:
            raise Invalid(None, f"the body has more than {MOST_VALUES:,} values")
        try:
            return self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise _explained(str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            found = _not_finite(body, str(error))
            if found is not None:
                raise Invalid(found or None, "numbers must be finite") from None
            raise Invalid(None, f"the body is not JSON: {error}") from None


def _values(body: bytes) -> int:
    """How many values a body has, roughly: by what stands before each."""
    return sum(map(body.count, (b",", b"[", b"{"))) + NAME * body.count(b":")


def _explained(error: str) -> Invalid:
    """What is wrong, and in which field, out of "… - at `$.rewards[1].reward`"."""
    found = _WHERE.fullmatch(error)
    what, where = (error, "") if found is None else found.groups(default="")
    named = _FIELD.fullmatch(what)
    field = ".".join(part for part in (where, named and named[1]) if part)
    return Invalid(_short(field) or None, _short(what))


def _short(text: str) -> str:
    """Names in a body may be as long as it is."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "…"


def _not_finite(body: bytes, error: str) -> str | None:
    """Where NaN or an infinity is, in what is JSON but for that; empty if that takes too long."""
    if len(body) > LARGE:
        place = _PLACE.search(error)
        return "" if place and _NUMBER.match(body, int(place[1])) else None
    try:
        found = _search(json.loads(body)).removeprefix(".")
    except (ValueError, RecursionError):
        return None
    return _short(found.encode("utf-8", "replace").decode()) or None


def _search(value: Json) -> str:
    """The path to the first such number, such as `.rewards[1].reward`; empty if there is none."""
    parts: Iterable[tuple[str, Json]] = ()
    if isinstance(value, dict):
        parts = ((f".{key}", part) for key, part in value.items())
    elif isinstance(value, list):
        parts = ((f"[{i}]", part) for i, part in enumerate(value))
    for name, part in parts:
        if isinstance(part, float) and not math.isfinite(part):
            return name
        if found := _search(part):
            return name + found
    return ""


# how the answer looks


class Request(NamedTuple):
    """A request that is allowed and well formed."""

    tenant: str
    path: dict[str, str]
    query: dict[str, str]
    body: Any  # of the type that the operation names


class RawBody(NamedTuple):
    """A body that is not JSON."""

    content: bytes
    media: str


class StreamedBody(NamedTuple):
    """A body that is made while it is sent, until it has to stop."""

    next_piece: Callable[[], Awaitable[bytes | None]]
    media: str
    stop: asyncio.Event
    close: Callable[[], Awaitable[None]]

    async def send_to(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whoever hangs up, or reads too slowly, gets no more, and nothing more is made."""
        gone = asyncio.create_task(self._wait_for_end(receive))
        stopped = asyncio.create_task(self.stop.wait())
        headers = [(b"content-type", self.media.encode())]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            more = True
            while more:
                piece = await self.next_piece()
                more = piece is not None
                message = {"type": "http.response.body", "body": piece or b"", "more_body": more}
                sent = asyncio.ensure_future(send(message))
                await asyncio.wait(
                    (sent, gone, stopped), timeout=SLOWEST, return_when=asyncio.FIRST_COMPLETED
                )
                if not sent.done() or (more and self.stop.is_set()):  # after the end it always is
                    sent.cancel()
                    if "abort" in scope:
                        scope["abort"]()
                        await gone
                    return
        finally:
            gone.cancel()
            stopped.cancel()
            await self.close()

    async def _wait_for_end(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.stop.set()


class Reply(NamedTuple):
    body: msgspec.Struct | dict[str, Any] | RawBody | StreamedBody | None = None
    status: int = 200


Handler = Callable[[Request], Awaitable[Reply]]


class Endpoint:
    """One operation over HTTP. Small, as every request passes through it."""

    def __init__(
        self, operation: Operation, handler: Handler, access: AccessControl, metrics: Metrics
    ) -> None:
        self._operation, self._handler = operation, handler
        self._access, self._metrics = access, metrics
        self._reader = None
        if operation.request is not None:
            self._reader = BodyReader(operation.request, operation.largest)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        try:
            headers = dict(scope["headers"])
            tenant = self._access.tenant(headers, self._operation)
            body = None if self._reader is None else await self._reader.read(headers, receive)
            path = scope.get("path_params", {})
            reply = await self._handler(Request(tenant, path, _query(scope), body))
        except Exception as error:
            reply = error_reply(error)
            if reply.status == FAULT:
                where = {"request_id": scope.get("request_id")}
                log.error("%s failed", self._operation.name, exc_info=error, extra=where)
        if isinstance(reply.body, StreamedBody):
            await reply.body.send_to(scope, receive, send)
        elif isinstance(reply.body, RawBody):
            await respond(send, reply.status, *reply.body)
        else:
            content = b"" if reply.status == 204 else encode(reply.body)
            more = MORE_HEADERS.get(reply.status, ())
            await respond(send, reply.status, content, "application/json", more)
        self._metrics.request(self._operation.name, reply.status, time.perf_counter() - began)


class IdentifiedRouter(Router):
    """Every answer has the id of its request: the one that it came with, or a new one."""

    _run, _count = secrets.token_hex(6), count()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await super().__call__(scope, receive, send)
        given = next((value for name, value in scope["headers"] if name == REQUEST_ID), b"")
        if not _GIVEN_ID.fullmatch(given):
            given = f"{self._run}-{next(self._count):x}".encode()
        scope["request_id"] = given.decode()

        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (REQUEST_ID, given)]
            return send(message)

        return await super().__call__(scope, receive, send_with_id)


class MethodRouter:
    """The operations at one path, by their methods."""

    def __init__(self, endpoints: dict[str, Endpoint]) -> None:
        self._endpoints = dict(endpoints)
        if "GET" in endpoints:
            self._endpoints["HEAD"] = endpoints["GET"]
        self._allow = ", ".join(sorted(self._endpoints))

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        endpoint = self._endpoints.get(scope["method"])
        return self._refuse(send) if endpoint is None else endpoint(scope, receive, send)

    async def _refuse(self, send: Send) -> None:
        error = encode(Error(f"the method here is one of {self._allow}"))
        allow = ((b"allow", self._allow.encode()),)
        await respond(send, 405, error, "application/json", allow)


async def no_route(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    if scope["type"] == "http":
        content = encode(Error(f"there is nothing at {scope['path']}"))
        await respond(send, 404, content, "application/json")


def error_reply(error: Exception) -> Reply:
    field = error.field if isinstance(error, ServiceError) else None
    return Reply(Error(text_of(error), field), status_of(error))


async def respond(send: Send, status: int, content: bytes, media: str, more: Headers = ()) -> None:
    headers = [(b"content-length", b"%d" % len(content)), *more]
    if status != 204:
        headers.append((b"content-type", media.encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _query(scope: Scope) -> dict[str, str]:
    if not scope["query_string"]:
        return {}
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
