"""`adats tune`: the far-sighted index for a prior, a number of tasks and their length."""

import os
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from adats.cli import common
from adats.models.prior_files import load_prior
from adats.simulation.problems import PriorProblem
from adats.simulation.problems.linear import unit_sphere
from adats.simulation.tuning import LEAST_RUNS, SAMPLED, SECONDS, tune


def tune_command(
    prior: Annotated[Path, typer.Argument(help="A file of save_prior, Gaussian or linear.")],
    *,
    tasks: common.Tasks = 20,
    rounds: common.Rounds = 200,
    arms: Annotated[
        int, typer.Option(help="Of a linear prior: arms, drawn evenly from the unit sphere.")
    ] = 10,
    runs: Annotated[int, typer.Option(help="Of the last candidates.")] = LEAST_RUNS,
    seconds: Annotated[
        float, typer.Option(help="It ends then, with the runs that there are.")
    ] = SECONDS,
    seed: common.Seed = 1,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    json_to: common.Json = None,
) -> None:
    """Find the width and the look-ahead of the far-sighted index by simulation."""
    common.check_json(json_to)
    meta = load_prior(prior)
    rng = np.random.default_rng(seed)
    features = unit_sphere(rng, arms, meta.n_features) if meta.n_features else None
    problem = PriorProblem(meta, features)
    options: dict[str, Any] = {"tasks": tasks, "rounds": rounds, "seed": seed}
    options |= {"runs": runs, "seconds": seconds}
    with common.stage_bar("tuning") as show:
        found = tune(problem, **options, workers=workers or os.cpu_count() or 1, progress=show)
    rows = [
        {
            "policy": SAMPLED if not vars(one.policy) else "far",
            **{name: vars(one.policy).get(name) for name in ("width", "ahead")},
            "regret": one.regret,
            "se": one.se,
            "one run in a hundred loses more than": one.tail,
            "runs": one.runs,
            "chosen": one.policy == found.policy,
        }
        for one in found.candidates
    ]
    common.write_json(json_to, {**options, "problem": problem.describe(), "candidates": rows})
    if json_to == "-":
        return
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    common.console.print(table)
    chosen = repr(found.policy).replace("later=None, ", "")
    common.say(f"policy={chosen}")


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    return value if isinstance(value, str) else f"{value:.4g}"
