"""`adats bound`: Theorems 5 and 6."""

from dataclasses import asdict
from typing import Annotated, Any, get_args

import numpy as np
import typer
from rich.table import Table

from adats.cli import common
from adats.models.core.types import FloatArray
from adats.paper import bounds

bound_app = typer.Typer(help="Regret bounds of the paper, term by term.", no_args_is_help=True)

Delta = Annotated[float | None, typer.Option(help="1/n² unless given.")]


def _print_bounds(bound: Any, settings: dict[str, Any], json_to: str | None) -> None:
    """The terms of a bound with the constants of either kind."""
    common.check_json(json_to)
    data = {kind: asdict(bound(**settings, constants=kind)) for kind in get_args(bounds.Constants)}
    common.write_json(json_to, data)
    if json_to == "-":
        return
    table = Table("term", *(f"{kind} constants" for kind in data))
    for term in next(iter(data.values())):
        table.add_row(term, *(f"{column[term]:,.4g}" for column in data.values()))
    common.console.print(table)


def _cov(part: str, dim: int, scale: str, cov: str | None) -> FloatArray:
    if cov is not None:
        return np.array(common.matrix(f"--{part}-cov", cov))
    given = common.scales(f"--{part}-scale", scale)
    if np.ndim(given) and np.size(given) != dim:
        raise ValueError(f"--{part}-scale must be one number, or {dim}, got {scale!r}")
    return np.diag(np.full(max(dim, 1), given) ** 2.0)


@common.command(bound_app, "linear", meta_scale="1")
def _linear(
    *,
    tasks: common.Tasks = 20,
    rounds: common.Rounds = 200,
    dim: int = 2,
    arms: int = 10,
    spreads: common.SpreadOptions,
    eta: Annotated[float, typer.Option(help="Smallest eigenvalue of the forced arms.")] = 0.5,
    delta: Delta = None,
    json_to: common.Json = None,
) -> None:
    """Theorem 5: AdaTS in a linear bandit."""
    covs = {
        "meta_cov": _cov("meta", dim, spreads.meta_scale, spreads.meta_cov),
        "task_cov": _cov("task", dim, spreads.task_scale, spreads.task_cov),
    }
    sizes = {"tasks": tasks, "rounds": rounds, "dim": dim, "arms": arms}
    more = {"noise": spreads.noise, "eta": eta, "delta": delta}
    _print_bounds(bounds.linear_bound, sizes | covs | more, json_to)


@common.command(bound_app, "semibandit")
def _semibandit(
    *,
    tasks: common.Tasks = 20,
    rounds: common.Rounds = 200,
    arms: int = 20,
    size: int = 4,
    meta_scale: common.MetaScales = "0.5",
    task_scale: common.TaskScales = "0.1",
    noise: common.Noise = 1.0,
    delta: Delta = None,
    json_to: common.Json = None,
) -> None:
    """Theorem 6: AdaTS in a semi-bandit."""
    widths = {
        "meta_scale": common.scales("--meta-scale", meta_scale),
        "task_scale": common.scales("--task-scale", task_scale),
    }
    sizes = {"tasks": tasks, "rounds": rounds, "arms": arms, "size": size}
    more = {"noise": noise, "delta": delta}
    _print_bounds(bounds.semibandit_bound, sizes | widths | more, json_to)
