"""Stores by their address: a file, `sqlite:///file.db`, or `postgresql://host/database`."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from adats.service.stores.interface import KeyBook, ReadView, Store

POSTGRES = ("postgresql://", "postgres://")
FILE = "sqlite:///"


def is_shared(url: str) -> bool:
    """Whether it is in PostgreSQL."""
    return url.startswith(POSTGRES)


def path_of(url: str) -> Path:
    """The file of a store in SQLite."""
    if "://" in url and not url.startswith(FILE):
        kind = url.partition("://")[0]
        raise ValueError(f"a store is a file, sqlite:///file.db or postgresql://..., not {kind}://")
    return Path(url.removeprefix(FILE))


def shown(url: str) -> str:
    """The address as it may be printed."""
    if not is_shared(url):
        return str(path_of(url))
    from adats.service.stores.postgres_link import address_of

    return str(address_of(url))


def open_store(url: str) -> Store:
    if is_shared(url):
        from adats.service.stores.postgres import PostgresStore
        from adats.service.stores.postgres_link import address_of

        return PostgresStore(address_of(url))
    from adats.service.stores.sqlite import SQLiteStore

    return SQLiteStore(path_of(url))


def open_view(url: str) -> ReadView:
    if is_shared(url):
        from adats.service.stores.postgres_link import Pool, address_of
        from adats.service.stores.postgres_reader import PostgresReadView

        return PostgresReadView(Pool(address_of(url), most=0))
    from adats.service.stores.sqlite import SQLiteReadView

    return SQLiteReadView(path_of(url))


def up_to_date(url: str, copy: Path) -> str:
    """The store itself, or a copy of it that was brought up to date; it is left as it is."""
    if is_shared(url):
        return url
    from adats.service.stores.sqlite import SQLiteStore
    from adats.service.stores.sqlite_file import back_up, check_file, real_path, version_at
    from adats.service.stores.sqlite_schema import VERSION

    if not path_of(url).is_file():
        raise ValueError(f"there is no store {path_of(url)}")
    path = real_path(path_of(url))
    check_file(path)
    if version_at(path) < VERSION:
        back_up(path, copy)
        SQLiteStore(copy).close()
        path = copy
    return str(path)


def open_keys(url: str, *, make: bool = False) -> "AbstractContextManager[KeyBook]":
    found: Any
    if is_shared(url):
        from adats.service.stores.postgres import PostgresKeys
        from adats.service.stores.postgres_link import address_of

        found = PostgresKeys(address_of(url))
    else:
        from adats.service.stores.sqlite import SQLiteKeys

        found = SQLiteKeys(path_of(url), make=make)
    opened: AbstractContextManager[KeyBook] = found
    return opened


def upgrade_store(url: str) -> int:
    """Make the tables of a store in PostgreSQL, or bring them up to date; the version before."""
    from adats.service.stores.postgres_link import LONG_READ, address_of, connect, explained
    from adats.service.stores.postgres_schema import bring_up_to_date

    address = address_of(url)
    connection = connect(address, LONG_READ, checked=False)
    try:
        with explained():
            return bring_up_to_date(connection, address.schema)
    finally:
        connection.close()
