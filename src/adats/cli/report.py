"""`adats report`: how an experiment of a service does."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from adats.cli.common import say
from adats.cli.serve import DB, in_one_line, need_service
from adats.cli.store import Db

if TYPE_CHECKING:
    from adats.service.messages import Lift, LiftEstimate, LiftInterval


def report_command(
    name: Annotated[str, typer.Argument(help="Of the experiment.")],
    db: Db = DB,
    tenant: Annotated[str, typer.Option(help="Whose it is.")] = "default",
    json: Annotated[bool, typer.Option("--json", help="As the service answers it.")] = False,
) -> None:
    """How an experiment does: its lift, whether to stop, alarms. The store may be in use."""
    need_service()
    import msgspec

    from adats.service.reports import report
    from adats.service.stores.opening import open_view

    with in_one_line(), open_view(db) as view:
        row = view.experiment(tenant, name)
        if row is None:
            raise ValueError(f"there is no experiment {name!r} of {tenant!r} in {db}")
        found = report(view, row, time.time())
    if json:
        typer.echo(msgspec.json.encode(found).decode())
        return
    say(found.sentence)
    for alarm in found.alarms:
        say(f"ALARM: {alarm}")
    say(f"{found.decisions:,} decisions for {found.tasks:,} tasks, {found.counted:,} rewards")
    for what, lift in (("reward", found.lift), *found.metrics.items()):
        if lift is not None and lift.estimate is not None:
            say(f"lift of {what}: {lift.estimate:.4g}, {_ends(lift)} at every look")
            say(f"  {_ends(lift.fixed_time)} for who looks once")
    if found.lift_new_tasks is not None and found.lift_new_tasks.low is not None:
        say(f"  {_ends(found.lift_new_tasks)} for new tasks")


def _ends(interval: "LiftInterval | LiftEstimate | Lift") -> str:
    if interval.low is None or interval.high is None:
        return "no interval yet"
    return f"{interval.low:.4g} to {interval.high:.4g}"
