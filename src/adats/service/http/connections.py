"""What a connection may cost: how many there are, how long a request takes to come, its size.

uvicorn has no limits for these. Connections that wait for a request give way to new ones, so that
those who hold many open do not keep others out.
"""

import asyncio
import logging
import math
import resource
import socket
from collections.abc import Iterable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_CONNECTIONS = 1000
OTHER_FILES = 200  # that the process has open besides: the store, views of it
LARGEST_HEAD = 32_000  # bytes of the address and the headers
ANSWER, HEAD, BODY = 0, 1, 2  # what a connection is in the middle of
TIMES = {HEAD: 10.0, BODY: 30.0}  # seconds in which they have to come

TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class Connection(HttpToolsProtocol):
    """A connection with limits. `scope["abort"]` ends it at once, whatever was not sent yet."""

    part, since, head_size = HEAD, 0.0, 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > MOST_CONNECTIONS:
            waiting = [c for c in _limited(self.connections) if c.part == HEAD]  # this, at least
            oldest = min(waiting, key=lambda connection: connection.since)
            self.connections.discard(oldest)  # it would be counted until it has ended
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.part == HEAD:
            self.head_size += len(data)
            if self.head_size > LARGEST_HEAD and not self.transport.is_closing():
                self.transport.write(TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.part, self.since = HEAD, self.loop.time()
        self.scope["abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        self.part, self.head_size = BODY, 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.part = ANSWER
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self.part, self.since = HEAD, self.loop.time()
        super().on_response_complete()


def _limited(connections: Iterable[object]) -> list[Connection]:
    return [connection for connection in connections if isinstance(connection, Connection)]


def end_overdue(connections: Iterable[Connection], now: float) -> None:
    """End those whose request takes too long to come."""
    for connection in connections:
        if now > connection.since + TIMES.get(connection.part, math.inf):
            connection.transport.abort()


class Server(uvicorn.Server):
    """Looks at its connections every second; all of its log is written before a signal ends it."""

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            loop = asyncio.get_running_loop()
            end_overdue(_limited(self.server_state.connections), loop.time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        logging.shutdown()


def allow_files() -> None:
    """Each connection is an open file; the usual limit of a process is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
