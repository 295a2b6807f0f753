"""Several processes that serve one port: they are started, watched, and stopped together."""

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

PAUSE = 0.2  # seconds before a worker that has died is started again
LOOK = 1.0  # seconds between two looks of a worker at its parent

log = logging.getLogger("adats.service")

Work = Callable[[Callable[[], None]], None]  # what a worker does; it says when it is ready


@contextmanager
def hold_port(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that keeps a port for workers, and does not listen itself."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            held.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ValueError(f"cannot listen at {host}:{port}: {error}") from None
        yield held


def run_workers(work: Work, count: int, announce: Callable[[], None]) -> None:
    """Keep so many at work until this process is told to stop. Nothing else may run in it."""
    stopping = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        for pid in list(running):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    running: set[int] = set()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, stop)
    reader, writer = os.pipe()
    for _ in range(count):
        running.add(_start(work, reader, writer))
    os.close(writer)
    ready = 0
    while ready < count and (said := os.read(reader, count)):
        ready += len(said)
    os.close(reader)
    if ready == count:
        announce()
    else:  # each has said why
        stop(0, None)
    while running:
        pid, status = os.wait()
        running.discard(pid)
        if not stopping:
            log.error("worker %d has ended (%s), and is started again", pid, _how(status))
            time.sleep(PAUSE)
            if not stopping:
                running.add(_start(work, None, None))
    if ready < count:
        raise ValueError("a worker could not be started; it has said why")


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return f"exit code {os.waitstatus_to_exitcode(status)}"


def _start(work: Work, reader: int | None, writer: int | None) -> int:
    sys.stdout.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, signal.SIG_DFL)
    if reader is not None:
        os.close(reader)
    threading.Thread(target=_stop_without, args=(parent,), daemon=True).start()
    code = 1
    try:
        work(lambda: None if writer is None else _say(writer))
        code = 0
    except KeyboardInterrupt:
        code = 0
    except BaseException as error:
        log.error("a worker could not be started, or failed: %s", error)
    finally:
        logging.shutdown()
        os._exit(code)


def _stop_without(parent: int) -> None:
    """A worker whose parent was killed stops: nobody would watch it, or could stop all of them."""
    while os.getppid() == parent:
        time.sleep(LOOK)
    os.kill(os.getpid(), signal.SIGTERM)


def _say(writer: int) -> None:
    os.write(writer, b".")
    os.close(writer)
