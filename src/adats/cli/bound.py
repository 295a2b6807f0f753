"""`adats bound`: Theorems 5 and 6."""

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from adats.cli.common import (
    Json,
    MetaScale,
    Noise,
    Rounds,
    Tasks,
    TaskScale,
    check_json,
    console,
    write_json,
)
from adats.paper import bounds

bound_app = typer.Typer(help="Regret bounds of the paper, term by term.", no_args_is_help=True)


def _print_bounds(columns: dict[str, Any], json_to: str | None) -> None:
    data = {name: asdict(bound) for name, bound in columns.items()}
    write_json(json_to, data)
    if json_to == "-":
        return
    table = Table("term", *(f"{name} constants" for name in data))
    for term in next(iter(data.values())):
        table.add_row(term, *(f"{column[term]:,.4g}" for column in data.values()))
    console.print(table)


@bound_app.command("linear")
def bound_linear(
    tasks: Tasks = 20,
    rounds: Rounds = 200,
    dim: int = 2,
    arms: int = 10,
    meta_scale: MetaScale = 1.0,
    task_scale: TaskScale = 0.1,
    noise: Noise = 1.0,
    eta: Annotated[float, typer.Option(help="Smallest eigenvalue of the forced arms.")] = 0.5,
    delta: Annotated[float | None, typer.Option(help="1/n² unless given.")] = None,
    json_to: Json = None,
) -> None:
    """Theorem 5: AdaTS in a linear bandit."""
    check_json(json_to)

    def bound(constants: bounds.Constants) -> Any:
        return bounds.linear_bound(
            tasks=tasks,
            rounds=rounds,
            dim=dim,
            arms=arms,
            meta_cov=meta_scale**2 * np.eye(max(dim, 1)),
            task_cov=task_scale**2 * np.eye(max(dim, 1)),
            noise=noise,
            eta=eta,
            delta=delta,
            constants=constants,
        )

    _print_bounds({"paper": bound("paper"), "safe": bound("safe")}, json_to)


@bound_app.command("semibandit")
def bound_semibandit(
    tasks: Tasks = 20,
    rounds: Rounds = 200,
    arms: int = 20,
    size: int = 4,
    meta_scale: MetaScale = 0.5,
    task_scale: TaskScale = 0.1,
    noise: Noise = 1.0,
    delta: Annotated[float | None, typer.Option(help="1/n² unless given.")] = None,
    json_to: Json = None,
) -> None:
    """Theorem 6: AdaTS in a semi-bandit."""
    check_json(json_to)

    def bound(constants: bounds.Constants) -> Any:
        return bounds.semibandit_bound(
            tasks=tasks,
            rounds=rounds,
            arms=arms,
            size=size,
            meta_scale=meta_scale,
            task_scale=task_scale,
            noise=noise,
            delta=delta,
            constants=constants,
        )

    _print_bounds({"paper": bound("paper"), "safe": bound("safe")}, json_to)
