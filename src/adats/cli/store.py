"""`adats store`: check, upgrade and copy the store of a service."""

from pathlib import Path
from typing import Annotated

import typer

from adats.cli.common import console
from adats.cli.serve import in_one_line, need_service

store_app = typer.Typer(help="The store of a service.", no_args_is_help=True)

Db = Annotated[Path, typer.Option("--db", help="The store, one file.")]
MOST_SHOWN = 20  # findings


@store_app.command("check")
def check(db: Db = Path("bandits.db")) -> None:
    """Read all of a store, which may be in use: is it as it was written?"""
    need_service()
    from adats.service.stores.sqlite import SQLiteReadView
    from adats.service.stores.sqlite_check import check_whole
    from adats.service.stores.sqlite_file import check_file, real_path, version_at
    from adats.service.stores.sqlite_schema import VERSION

    _need_store(db)
    with in_one_line():
        check_file(real_path(db), whole=True)
        version = version_at(real_path(db))
        if version < VERSION:
            raise ValueError(f"{db} has version {version}; first: adats store upgrade --db {db}")
        with SQLiteReadView(db) as view:
            found = list(check_whole(view))
    for line in found[:MOST_SHOWN]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if found:
        more = "" if len(found) <= MOST_SHOWN else f", {len(found) - MOST_SHOWN:,} more"
        console.print(f"{db} is NOT whole{more}", highlight=False, soft_wrap=True)
        raise typer.Exit(1)
    console.print(f"{db} is whole", highlight=False, soft_wrap=True)


@store_app.command("upgrade")
def upgrade(db: Db = Path("bandits.db")) -> None:
    """Bring a store of an earlier version to this one; a copy of it stays beside it."""
    need_service()
    from adats.service.stores.sqlite import SQLiteStore
    from adats.service.stores.sqlite_file import copy_of_version, real_path, version_at
    from adats.service.stores.sqlite_schema import VERSION

    _need_store(db)
    with in_one_line():
        before = version_at(real_path(db))
        SQLiteStore(db).close()
    if before == VERSION:
        console.print(f"{db} has version {VERSION} already", highlight=False, soft_wrap=True)
        return
    kept = copy_of_version(real_path(db), before)
    console.print(
        f"{db} has version {VERSION}; as it was before, with version {before}, it is in {kept}",
        highlight=False,
        soft_wrap=True,
    )


@store_app.command("backup")
def backup(
    target: Annotated[Path, typer.Argument(help="A new file.")], db: Db = Path("bandits.db")
) -> None:
    """A whole copy of a store, which may be in use."""
    need_service()
    from adats.service.stores.sqlite_file import back_up, real_path

    _need_store(db)
    if target.exists():
        raise ValueError(f"{target} is there already; give the name of a new file")
    with in_one_line():
        back_up(real_path(db), target)
    console.print(f"{target} is a copy of {db}", highlight=False, soft_wrap=True)


def _need_store(db: Path) -> None:
    if not db.is_file():
        raise ValueError(f"there is no store {db}")
