"""`adats serve`, `adats keys`, `adats replay`."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from adats.cli.common import console, say, stage_bar
from adats.service.errors import DamagedStore, StoreError


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


keys_app = typer.Typer(help="API keys of a service.", no_args_is_help=True)

DB = "bandits.db"
Db = Annotated[
    str, typer.Option("--db", help="The store: a file (made if it is not there), or postgresql://…")
]


def serve(
    db: Db = DB,
    host: Annotated[str, typer.Option(help="Outside loopback only with keys.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.")] = 8000,
    waiting: Annotated[int, typer.Option(help="Requests that may wait; more get a 429.")] = 1000,
    reopened: Annotated[
        bool, typer.Option("--open", help="No key needed, though there were keys: all are removed.")
    ] = False,
    trust_clock: Annotated[
        bool, typer.Option("--trust-clock", help="Even if the store was not used for long.")
    ] = False,
    workers: Annotated[
        int, typer.Option(min=1, help="Processes on one port; several need PostgreSQL.")
    ] = 1,
    log: Annotated[
        LogFormat, typer.Option("--log", help="Lines of text or of JSON, on standard error.")
    ] = LogFormat.TEXT,
    demo: Annotated[
        bool,
        typer.Option(
            "--demo", help="Three experiments with simulated visitors, in a passing store."
        ),
    ] = False,
) -> None:
    """Decisions and rewards over HTTP, durable, in one process or several."""
    need_service()
    from adats.service import demonstration
    from adats.service.server import serve as run
    from adats.service.stores.opening import shown

    visitors: list[demonstration.Visitors] = []

    def announce(address: str) -> None:
        say(f"{shown(db)} is served at {address}, described at {address}/docs")
        if visitors:
            demonstration.send_visitors(visitors, address)

    try:
        with in_one_line(), tempfile.TemporaryDirectory() as folder:
            if demo:
                db = str(Path(folder, "demo.db"))
                with stage_bar("three weeks of visitors") as show:
                    visitors += demonstration.make_history(Path(db), show)
            run(
                db,
                host=host,
                port=port,
                most_waiting=waiting,
                reopened=reopened,
                trust_clock=trust_clock,
                announce=announce,
                workers=workers,
                log=log.value,
            )
    except KeyboardInterrupt:  # what was under way is done, and the store is closed
        console.print("stopped")


@keys_app.command("add")
def add(
    tenant: Annotated[str, typer.Argument(help="Whose experiments the key opens.")],
    db: Db = DB,
    read_only: Annotated[bool, typer.Option("--read-only", help="Reading only.")] = False,
) -> None:
    """Make a key. It is shown once: only its hash is kept."""
    need_service()
    from adats.service.keys import new_key
    from adats.service.stores.opening import open_keys

    key, row = new_key(tenant, write=not read_only)
    with in_one_line(), open_keys(db, make=True) as kept:
        kept.add(row)
    say(key)


@keys_app.command("list")
def list_keys(db: Db = DB) -> None:
    """The keys of a store, without their secrets."""
    need_service()
    from adats.service.keys import ApiKeys
    from adats.service.stores.opening import open_keys

    table = Table("key", "tenant", "may", "since")
    with in_one_line(), open_keys(db) as kept:
        for row in ApiKeys(kept.key_rows()):
            since = datetime.fromtimestamp(row.created, UTC).strftime("%Y-%m-%d %H:%M")
            table.add_row(row.id, row.tenant, "write" if row.write else "read", since)
    console.print(table)


@keys_app.command("remove")
def remove(
    key: Annotated[str, typer.Argument(help="Its name, as `adats keys list` shows it.")],
    db: Db = DB,
) -> None:
    """Take a key back; a running service knows it after a second."""
    need_service()
    from adats.service.keys import REMOVED, mark_of_removed
    from adats.service.stores.opening import open_keys, shown

    with in_one_line(), open_keys(db) as kept:
        if key == REMOVED or not kept.remove(key, mark_of_removed()):
            at = shown(db)
            raise ValueError(f"{at} has no key {key!r}; see: adats keys list --db {at}")
    say(f"Key {key} is removed")


def replay(
    db: Annotated[str, typer.Argument(help="A store; it may be in use.")],
    into: Annotated[
        Path | None, typer.Option(help="A new store that is kept; none unless given.")
    ] = None,
) -> None:
    """Play the log of a store into an empty one: is every decision, and the state, the same?"""
    need_service()
    from adats.service.replay import replay as play
    from adats.service.stores.opening import open_view, up_to_date
    from adats.service.stores.sqlite import SQLiteStore

    if into is not None and into.exists():
        raise ValueError(f"{into} is there already; give the name of a new store")
    with in_one_line(), tempfile.TemporaryDirectory() as folder:
        url = up_to_date(db, Path(folder, "copy.db"))
        store = SQLiteStore(Path(folder, "replay.db") if into is None else into)
        try:
            with open_view(url) as source, stage_bar("replaying") as show:
                found = play(source, store, progress=lambda done: show("replaying", done, 0))
        finally:
            store.close()
    say(
        f"{found.events:,} events, {found.decisions:,} decisions: "
        + ("all the same" if found.same else "NOT the same")
    )
    if found.moved:
        say(
            f"  {found.moved:,} decisions used data of tasks that are forgotten now, and come "
            "out otherwise without them"
        )
    for what, items in (("decision", found.changed), ("state", found.differences)):
        for item in items[:10]:
            say(f"  another {what}: {item}")
    if not found.same:
        raise typer.Exit(1)


@contextmanager
def in_one_line() -> Iterator[None]:
    """Trouble of the store as bad input, which the command says in one line."""
    try:
        yield
    except (StoreError, DamagedStore) as error:
        raise ValueError(str(error)) from None


def need_service() -> None:
    try:
        import msgspec  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ValueError("the service needs more packages: pip install 'adats[service]'") from None
