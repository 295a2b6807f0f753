"""The service as a process: where it listens, and that it stops well."""

import gc
import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from adats.service.clock import SteadyClock, check_clock
from adats.service.engine import Engine
from adats.service.http.app import LOOPBACK, make_app
from adats.service.http.connections import Connection, Server, allow_files
from adats.service.keys import ApiKeys
from adats.service.stores.sqlite import SQLiteStore

TURN = 0.001  # seconds that a thread works while the event loop waits
GRACE = 10  # seconds for requests that are under way when the service is stopped


def serve(
    db: Path,
    *,
    host: str,
    port: int,
    most_waiting: int,
    reopened: bool,
    trust_clock: bool,
    announce: Callable[[str], None],
) -> None:
    """Serve the store until the process is stopped; `announce` gets its address."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    local = is_loopback(host)
    listening = _listen(host, port)
    with listening:
        store, clock = SQLiteStore(db), SteadyClock()
        try:
            with store.view() as view:
                keys = ApiKeys(view.key_rows())
                if not trust_clock:
                    check_clock(view, clock())
            if keys and reopened:
                raise ValueError(f"{db} has keys: leave --open out, or remove them first")
            if not local and not keys:
                raise ValueError(
                    f"{host} can be reached from other machines, and {db} has no keys; make one: "
                    f"adats keys add TENANT --db {db}"
                )
            hosts = (*LOOPBACK, host) if local else None
            app = make_app(
                Engine(store, clock=clock),
                hosts=hosts,
                most_waiting=most_waiting,
                reopened=reopened,
                clock_off=lambda: clock.off,
            )
        except BaseException:
            store.close()
            raise
        name = f"[{host}]" if ":" in host else host
        announce(f"http://{name}:{listening.getsockname()[1]}")
        run(app, listening)


def run(app: ASGIApp, listening: socket.socket) -> None:
    """Answer what comes in at the socket, until the process is stopped."""
    allow_files()
    put_the_loop_first()
    server_of(app).run(sockets=[listening])


def put_the_loop_first() -> None:
    """Threads that work hand over soon, and what is there now is not looked at again and again.

    Small matrices are multiplied by one thread, unless another number is asked for.
    """
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        threadpool_limits(1)
    sys.setswitchinterval(TURN)
    gc.freeze()


def server_of(app: ASGIApp) -> Server:
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )
    return Server(config)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise ValueError(f"cannot listen at {host}:{port}: {error}") from None
