"""Connections to PostgreSQL: where a store is, how a session is set, and what its errors mean."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from adats.models.core.errors import FileFormatError
from adats.service.errors import Again, DamagedStore, Held, StoreError
from adats.service.stores.postgres_schema import VERSION, version_of

SCHEMA = "adats"  # unless the URL says another
CONNECT_WAIT = 3  # seconds
# A session that stops in the middle of a group must not keep others waiting for long.
SESSION = """
SET SESSION synchronous_commit = on; SET default_transaction_isolation = 'read committed';
SET idle_in_transaction_session_timeout = '{idle}';
SET lock_timeout = '{wait}'; SET statement_timeout = '{statement}'; SET jit = off;
SET enable_hashjoin = {plain}; SET enable_mergejoin = {plain}; SET enable_seqscan = {plain};
SET client_min_messages = error; SET timezone = 'UTC'; SET search_path = {schema};
"""
# time for a statement, time without one in a transaction, plans that read all, and the time to
# wait for what others hold
GROUP, LONG_READ = ("10s", "5s", "off", "100ms"), ("0", "0", "on", "4s")


class Address(NamedTuple):
    """Where a store is: what libpq takes, and the schema."""

    conninfo: str
    schema: str

    def __str__(self) -> str:
        """Without anything that is secret: the rest comes from PG* variables."""
        return self.conninfo if self.schema == SCHEMA else f"{self.conninfo} ({self.schema})"


def address_of(url: str) -> Address:
    """Of `postgresql://host/database?schema=name`."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    if parts.password or any(name == "password" for name, _ in query):
        raise ValueError(
            "a password in the address can be seen by everybody on this machine; give it by "
            "PGPASSWORD or a file (PGPASSFILE)"
        )
    schema = dict(query).get("schema", SCHEMA)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,62}", schema):
        raise ValueError(f"schema={schema} is not a name of letters, digits and _")
    others = [pair for pair in query if pair[0] != "schema"]
    rest = urlencode(others, safe="/", quote_via=quote)  # libpq takes no + for a space
    plain = f"postgresql://{parts.netloc}{parts.path}"
    return Address(f"{plain}?{rest}" if rest else plain, schema)


def connect(
    address: Address, kind: tuple[str, str, str, str] = GROUP, *, checked: bool = True
) -> Any:
    """A session, outside a transaction. `checked`: the tables have to be there."""
    try:
        import psycopg
    except ImportError:
        raise ValueError(
            "PostgreSQL needs one more package: pip install 'adats[postgres]'"
        ) from None
    with explained():
        connection = psycopg.connect(
            address.conninfo,
            autocommit=True,
            connect_timeout=CONNECT_WAIT,
            application_name="adats",
        )
        try:
            schema = f'"{address.schema}"'
            named = dict(zip(("statement", "idle", "plain", "wait"), kind, strict=True))
            connection.execute(SESSION.format(**named, schema=schema))
            if connection.info.server_version < 140000:
                raise FileFormatError("PostgreSQL 14 or later is needed")
            if checked:
                _check_version(connection, address)
        except BaseException:
            connection.close()
            raise
    connection.prepare_threshold = 0 if kind is GROUP else 5
    return connection


def _check_version(connection: Any, address: Address) -> None:
    found = version_of(connection, address.schema)
    if found != VERSION:
        state = f"has version {found}, not {VERSION}" if found else "has no tables of adats yet"
        raise FileFormatError(f"{address} {state}; make them: adats store upgrade --db URL")


def trouble(error: Exception) -> Exception:
    """What an error of PostgreSQL means for the service."""
    code = getattr(error, "sqlstate", None) or ""
    said = " ".join(str(error).split())
    if code == "55P03":
        return Held(f"somebody holds what this needs: {said}")
    if code in ("40001", "40P01", "23505", "57014"):
        return Again(f"others were at it: {said}")
    if code.startswith("XX") or code in ("58P01", "58030"):
        return DamagedStore(f"the store is damaged: {said}; restore a copy of it")
    return StoreError(said)


@contextmanager
def explained() -> Iterator[None]:
    """Errors of PostgreSQL as errors of a store."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise trouble(error) from error


class Pool:
    """Sessions for views, which are kept when they are done."""

    def __init__(self, address: Address, most: int = 4) -> None:
        self._address, self._most = address, most
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def get(self) -> Any:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.closed and not connection.broken:
                    return connection
        return connect(self._address, LONG_READ)

    def give_back(self, connection: Any) -> None:
        with self._lock:
            if len(self._idle) < self._most and not connection.closed:
                self._idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()
