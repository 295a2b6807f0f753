"""`adats simulate`: one command a problem."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from adats.cli.common import (
    Agents,
    EngineName,
    First,
    Json,
    MetaScale,
    Mu,
    Noise,
    Out,
    Rounds,
    Runs,
    Seed,
    Tasks,
    TaskScale,
    Workers,
    check_folder,
    check_json,
    command_line,
    console,
    progress_bar,
    write_json,
)
from adats.models import BetaArms, PoissonArms, prior_files
from adats.simulation import Result, simulate
from adats.simulation.problems import (
    ClicksProblem,
    FeatureClicksProblem,
    GaussianProblem,
    LinearProblem,
    MixtureProblem,
    Problem,
    RoutingProblem,
    SemibanditProblem,
)

simulate_app = typer.Typer(help="Play agents on a problem.", no_args_is_help=True)


Redraw = Annotated[str, typer.Option(help="New arms every run, or every round.")]


def _numbers(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--mu must be numbers with commas between, got {text!r}") from None


def _simulate(
    problem: Problem,
    *,
    tasks: Tasks = 20,
    rounds: Rounds = 200,
    runs: Runs = 100,
    agents: Agents = "oracle-ts,ada-ts,meta-ts,ts",
    seed: Seed = 1,
    explore_first: First = False,
    workers: Workers = 1,
    engine: EngineName = "local",
    json_to: Json = None,
    out: Out = None,
) -> None:
    check_folder(out)
    check_json(json_to)
    with progress_bar(f"simulating {problem.name}", runs) as progress:
        result = simulate(
            problem,
            [name.strip() for name in agents.split(",") if name.strip()],
            tasks=tasks,
            rounds=rounds,
            runs=runs,
            seed=seed,
            workers=workers,
            explore_first=explore_first,
            engine=engine,
            progress=progress,
        )
    command = command_line()
    summary = result.summary(command=command)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        result.save(out / "records.parquet", command=command)
        write_json(out / "summary.json", summary)
    write_json(json_to, summary)
    if json_to != "-":
        _print_result(result)
        if out is not None:
            console.print(f"Records and summary are in {out}", highlight=False)


def _print_result(result: Result) -> None:
    table = Table(title=f"{result.problem['name']}: regret over {result.tasks} tasks")
    for name in ("agent", "regret", "± se", "first task", "last task", "ns a decision"):
        table.add_column(name, justify="left" if name == "agent" else "right")
    for name, row in result.summary()["agents"].items():
        se = "" if row["se"] is None else f"{row['se']:.2f}"
        first, last = row["per_task"][0], row["per_task"][-1]
        numbers = (f"{row['regret']:.2f}", se, f"{first:.2f}", f"{last:.2f}")
        table.add_row(name, *numbers, f"{row['ns_per_decision']:.0f}")
    console.print(table)


def problem_command(
    name: str, *, old: str | None = None, **defaults: Any
) -> Callable[[Callable[..., Problem]], Callable[..., Problem]]:
    """Make `adats simulate NAME` of a function from a problem's own options to the problem.

    The options that all simulations share are those of `_simulate`, with other `defaults` where
    some are given. `old` is a name that the command had before, and still answers to.
    """
    shared_options = inspect.signature(_simulate).parameters
    common = [
        parameter.replace(default=defaults.get(parameter.name, parameter.default))
        for parameter in list(shared_options.values())[1:]
    ]

    def register(build: Callable[..., Problem]) -> Callable[..., Problem]:
        def command(**options: Any) -> None:
            shared = {parameter.name: options.pop(parameter.name) for parameter in common}
            _simulate(build(**options), **shared)

        own = inspect.signature(build).parameters.values()
        both = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *common)]
        command.__signature__ = inspect.Signature(both)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in both}
        command.__doc__ = build.__doc__
        simulate_app.command(name)(command)
        if old is not None:
            simulate_app.command(old, hidden=True)(command)
        return build

    return register


@problem_command("gaussian")
def _gaussian(
    arms: int = 2,
    meta_scale: MetaScale = 0.5,
    task_scale: TaskScale = 0.1,
    noise: Noise = 1.0,
    mu: Mu = None,
) -> Problem:
    """Gaussian arms."""
    return GaussianProblem(arms, meta_scale, task_scale, noise, mu=_numbers(mu))


@problem_command("linear")
def _linear(
    dim: int = 2,
    arms: int = 10,
    meta_scale: MetaScale = 1.0,
    task_scale: TaskScale = 0.1,
    noise: Noise = 1.0,
    redraw: Redraw = "run",
    mu: Mu = None,
) -> Problem:
    """Linear bandit with arms from the unit sphere."""
    return LinearProblem(dim, arms, meta_scale, task_scale, noise, redraw, _numbers(mu))


@problem_command("semibandit")
def _semibandit(
    arms: int = 20,
    size: int = 4,
    meta_scale: MetaScale = 0.5,
    task_scale: TaskScale = 0.1,
    noise: Noise = 1.0,
    mu: Mu = None,
) -> Problem:
    """Semi-bandit: at most `size` arms a round, one reward each."""
    return SemibanditProblem(arms, size, meta_scale, task_scale, noise, _numbers(mu))


@problem_command("routing")
def _routing(
    network: Annotated[str, typer.Option(help="A network of topohub, such as germany50.")],
    meta_scale: MetaScale = 0.5,
    task_scale: TaskScale = 0.1,
    noise: Noise = 1.0,
    floor: Annotated[float, typer.Option(help="Latencies are clipped here.")] = 0.05,
) -> Problem:
    """Shortest paths on a real network with unknown latencies."""
    return RoutingProblem.named(
        network, meta_scale=meta_scale, task_scale=task_scale, noise=noise, floor=floor
    )


@problem_command("clicks", agents="flat-ts,pooled-ts,ada-ts,default-ts,default-far")
def _clicks(
    arms: int = 5,
    base: Annotated[float, typer.Option(help="Mean reward of a typical arm.")] = 0.02,
    arm_scale: Annotated[float, typer.Option(help="Spread between arms.")] = 0.3,
    task_scale: TaskScale = 0.3,
    level_scale: Annotated[
        float, typer.Option(help="Spread of the level that a task's arms share.")
    ] = 0.0,
    rewards: Annotated[str, typer.Option(help="binary, or count.")] = "binary",
    features: Annotated[
        int | None, typer.Option(help="Arms are so many numbers, of which the first is 1.")
    ] = None,
    redraw: Redraw = "run",
    mu: Mu = None,
) -> Problem:
    """Clicks or counts whose log-odds or logarithms are Gaussian, or linear in features.

    The spreads and mu are of log-odds (binary), or of logarithms (count); with features, of
    their coefficients, and the level is that of the first.
    """
    settings = (arms, base, arm_scale, task_scale, level_scale, rewards)
    if features is not None:
        return FeatureClicksProblem(features, *settings, redraw, _numbers(mu))
    if redraw != "run":
        raise ValueError("--redraw is for arms with --features")
    return ClicksProblem(*settings, mu=_numbers(mu))


Priors = Annotated[Path, typer.Option(help="JSON with weights and candidate priors.")]


@problem_command("binary", old="bernoulli")
def _binary(priors: Priors) -> Problem:
    """Bernoulli arms whose task prior is one of several candidates."""
    return read_priors(priors, BetaArms)


@problem_command("count", old="poisson")
def _count(priors: Priors) -> Problem:
    """Poisson arms whose task prior is one of several candidates."""
    return read_priors(priors, PoissonArms)


def read_priors(path: Path, family: type[BetaArms] | type[PoissonArms]) -> MixtureProblem:
    """Candidates from a prior file, or from plain `{"weights": […], "priors": [{…}, …]}`."""
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if isinstance(data, dict) and "format" in data:
        meta = prior_files.load_prior(path)
        if data["prior"].get("family") != family.__name__:
            raise ValueError(f"{path} is not a mixture of {family.__name__}")
        return MixtureProblem(meta.weights, meta.priors)
    try:
        return MixtureProblem(data["weights"], [family(**prior) for prior in data["priors"]])
    except (KeyError, TypeError):
        names = " and ".join(family.PARAMETERS)
        raise ValueError(
            f'{path} must be {{"weights": [...], "priors": [...]}}, each prior with {names}'
        ) from None
