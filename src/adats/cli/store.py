"""`adats store`: check, upgrade and copy the store of a service."""

from pathlib import Path
from typing import Annotated

import typer

from adats.cli.common import say
from adats.cli.serve import DB, in_one_line, need_service

store_app = typer.Typer(help="The store of a service.", no_args_is_help=True)

Db = Annotated[str, typer.Option("--db", help="The store: a file, or postgresql://…")]
Url = Annotated[str | None, typer.Argument(help="The same as --db.")]
MOST_SHOWN = 20  # findings


@store_app.command("check")
def check(url: Url = None, db: Db = DB) -> None:
    """Read all of a store, which may be in use: is it as it was written, and does it add up?"""
    need_service()
    from adats.service.audit import check_store
    from adats.service.stores.opening import shown

    with in_one_line():
        found = check_store(url or db)
    _judge(found, shown(url or db), "whole")


@store_app.command("upgrade")
def upgrade(url: Url = None, db: Db = DB) -> None:
    """Bring a store of an earlier version to this one. A copy of a file stays beside it; in
    PostgreSQL tables are made where there are none."""
    need_service()
    from adats.service.stores.opening import is_shared, path_of, shown, upgrade_store

    db = url or db
    if is_shared(db):
        with in_one_line():
            upgrade_store(db)
        say(f"{shown(db)} is ready")
        return
    _upgrade_file(path_of(db))


def _upgrade_file(db: Path) -> None:
    from adats.service.stores.sqlite import SQLiteStore
    from adats.service.stores.sqlite_file import copy_of_version, real_path, version_at
    from adats.service.stores.sqlite_schema import VERSION

    _need_store(db)
    with in_one_line():
        before = version_at(real_path(db))
        SQLiteStore(db).close()
    if before == VERSION:
        say(f"{db} has version {VERSION} already")
        return
    kept = copy_of_version(real_path(db), before)
    say(f"{db} has version {VERSION}; as it was before, with version {before}, it is in {kept}")


@store_app.command("backup")
def backup(target: Annotated[Path, typer.Argument(help="A new file.")], db: Db = DB) -> None:
    """A whole copy of a store in a file, which may be in use."""
    need_service()
    from adats.service.stores.opening import is_shared, path_of
    from adats.service.stores.sqlite_file import back_up, real_path

    if is_shared(db):
        raise ValueError("PostgreSQL has its own ways: pg_dump, or a base backup with its log")
    path = path_of(db)
    _need_store(path)
    if target.exists():
        raise ValueError(f"{target} is there already; give the name of a new file")
    with in_one_line():
        back_up(real_path(path), target)
    say(f"{target} is a copy of {db}")


@store_app.command("copy")
def copy(
    source: Annotated[str, typer.Argument(help="A store that nobody writes to.")],
    target: Annotated[str, typer.Argument(help="An empty one, of any kind.")],
) -> None:
    """Copy a store, from a file to PostgreSQL or back; the copy is checked by a replay."""
    need_service()
    from adats.service.copying import copy_store
    from adats.service.stores.opening import shown

    with in_one_line():
        found = copy_store(source, target)
    _judge(
        found, shown(target), f"a copy of {shown(source)}", ": every decision comes out the same"
    )


def _judge(found: list[str], store: str, what: str, more: str = "") -> None:
    """What was found wrong with a store, and whether that is nothing."""
    for line in found[:MOST_SHOWN]:
        say(line)
    if found:
        left = "" if len(found) <= MOST_SHOWN else f", {len(found) - MOST_SHOWN:,} more"
        say(f"{store} is NOT {what}{left}")
        raise typer.Exit(1)
    say(f"{store} is {what}{more}")


def _need_store(db: Path) -> None:
    if not db.is_file():
        raise ValueError(f"there is no store {db}")
