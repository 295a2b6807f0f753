"""The service as a process: where it listens, and that it stops well."""

import gc
import ipaddress
import os
import socket
import sys
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from adats.service.clock import SteadyClock, check_clock
from adats.service.engine import Engine
from adats.service.http.app import LOOPBACK, make_app
from adats.service.http.connections import Connection, Server, allow_files
from adats.service.keys import ApiKeys
from adats.service.log_lines import LogKind, set_up
from adats.service.stores.interface import Store
from adats.service.stores.opening import is_shared, open_store, shown
from adats.service.workers import hold_port, run_workers

TURN = 0.001  # seconds that a thread works while the event loop waits
GARBAGE = (5000, 20, 10_000)  # so that all objects are looked at only when `TIDY_EVERY` says so
GRACE = 10  # seconds for requests that are under way when the service is stopped


def serve(
    db: str,
    *,
    host: str,
    port: int,
    most_waiting: int,
    reopened: bool,
    trust_clock: bool,
    announce: Callable[[str], None],
    workers: int = 1,
    log: LogKind = "text",
) -> None:
    """Serve the store until the process is stopped; `announce` gets its address."""
    set_up(log)
    if workers > 1 and not is_shared(db):
        raise ValueError(f"{shown(db)} is a file, for one worker; several need PostgreSQL")

    def app_of(store: Store) -> ASGIApp:
        hosts = (*LOOPBACK, host) if is_loopback(host) else None
        return _app(store, db, host, hosts, most_waiting, reopened, trust_clock)

    def say(listening: socket.socket) -> None:
        name = f"[{host}]" if ":" in host else host
        announce(f"http://{name}:{listening.getsockname()[1]}")

    if workers == 1:
        with _listen(host, port) as listening:
            store = open_store(db)
            try:
                app = app_of(store)
            except BaseException:
                store.close()
                raise
            say(listening)
            run(app, listening)
        return
    with hold_port(host, port) as held:
        store = open_store(db)
        try:
            _check(store, db, host, reopened, trust_clock)
        finally:
            store.close()

        def work(ready: Callable[[], None]) -> None:
            with _listen(host, held.getsockname()[1], shared=True) as listening:
                app = app_of(open_store(db))
                ready()
                run(app, listening)

        run_workers(work, workers, lambda: say(held))


def _check(store: Store, db: str, host: str, reopened: bool, trust_clock: bool) -> None:
    """That the store can be served like this."""
    with store.view() as view:
        keys = ApiKeys(view.key_rows())
        if not trust_clock:
            check_clock(view, clock_of(store)())
    if keys and reopened:
        raise ValueError(f"{shown(db)} has keys: leave --open out, or remove them first")
    if not is_loopback(host) and not keys:
        raise ValueError(
            f"{host} can be reached from other machines, and {shown(db)} has no keys; make one: "
            f"adats keys add TENANT --db {shown(db)}"
        )


def clock_of(store: Store) -> SteadyClock:
    """Where many write, the store's: their own may differ."""
    return SteadyClock(store.now) if store.many_writers else SteadyClock()


def _app(
    store: Store,
    db: str,
    host: str,
    hosts: tuple[str, ...] | None,
    most_waiting: int,
    reopened: bool,
    trust_clock: bool,
) -> ASGIApp:
    _check(store, db, host, reopened, trust_clock)
    clock = clock_of(store)
    folding = None
    if store.many_writers:
        beside = open_store(db)
        folding = Engine(beside, clock=clock_of(beside))
    return make_app(
        Engine(store, clock=clock),
        hosts=hosts,
        most_waiting=most_waiting,
        reopened=reopened,
        clock_off=lambda: clock.off,
        folding=folding,
    )


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
    gc.set_threshold(*GARBAGE)


def server_of(app: ASGIApp) -> Server:
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_config=None,  # its lines are ours
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


def _listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048, reuse_port=shared)
    except (OSError, OverflowError) as error:
        raise ValueError(f"cannot listen at {host}:{port}: {error}") from None
