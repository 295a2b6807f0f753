"""Between ASGI and the operations: who asks, what exactly, and how the answer looks."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from starlette.concurrency import iterate_in_threadpool
from starlette.types import Receive, Scope, Send

from adats.service.errors import FAULT, ServiceError, status_of, text_of
from adats.service.http.access import AccessControl
from adats.service.http.body import BodyReader
from adats.service.http.metrics import Metrics
from adats.service.http.operations import Operation
from adats.service.messages import Error

Headers = tuple[tuple[bytes, bytes], ...]

RETRY: Headers = ((b"retry-after", b"1"),)
MORE_HEADERS: dict[int, Headers] = {
    401: ((b"www-authenticate", b"Bearer"),),
    429: RETRY,
    503: RETRY,
}

log = logging.getLogger("adats.service")
encode = msgspec.json.Encoder().encode


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
    """A body that is made while it is sent, in a thread."""

    pieces: Iterator[bytes]
    media: str
    close: Callable[[], None]

    async def send_to(self, send: Send) -> None:
        headers = [(b"content-type", self.media.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for piece in iterate_in_threadpool(self.pieces):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            self.close()
        await send({"type": "http.response.body", "body": b""})


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
                log.error("%s failed", self._operation.name, exc_info=error)
        if isinstance(reply.body, StreamedBody):
            await reply.body.send_to(send)
        elif isinstance(reply.body, RawBody):
            await respond(send, reply.status, *reply.body)
        else:
            content = b"" if reply.status == 204 else encode(reply.body)
            more = MORE_HEADERS.get(reply.status, ())
            await respond(send, reply.status, content, "application/json", more)
        self._metrics.request(self._operation.name, reply.status, time.perf_counter() - began)


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
