"""The command line: parse, call, print."""

import inspect
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import adats
from adats import bounds, codec, plots
from adats.beliefs import BetaArms, PoissonArms
from adats.meta import MixtureMeta
from adats.problems import (
    GaussianProblem,
    LinearProblem,
    MixtureProblem,
    Problem,
    RoutingProblem,
    SemibanditProblem,
)
from adats.simulate import AGENTS, Result, simulate

app = typer.Typer(
    help="Thompson sampling that learns its own prior.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
simulate_app = typer.Typer(help="Play agents on a problem.", no_args_is_help=True)
bound_app = typer.Typer(help="Regret bounds of the paper, term by term.", no_args_is_help=True)
app.add_typer(simulate_app, name="simulate")
app.add_typer(bound_app, name="bound")
console, errors = Console(), Console(stderr=True)

Tasks = Annotated[int, typer.Option(help="Number of tasks m.")]
Rounds = Annotated[int, typer.Option(help="Rounds n in each task.")]
Runs = Annotated[int, typer.Option(help="Independent runs to average over.")]
Agents = Annotated[str, typer.Option(help=f"Any of {', '.join(AGENTS)}.")]
Seed = Annotated[int, typer.Option(help="One seed gives the same numbers on any machine.")]
First = Annotated[bool, typer.Option("--explore-first", help="Forced exploration in each task.")]
Workers = Annotated[int, typer.Option(help="Processes.")]
EngineName = Annotated[str, typer.Option("--engine", help="local, or ray for a cluster.")]
Json = Annotated[str | None, typer.Option("--json", help="Write the figures to a file, or -.")]
Out = Annotated[Path | None, typer.Option(help="Folder for records.parquet and summary.json.")]
Mu = Annotated[str | None, typer.Option(help="A fixed mu_*, as numbers with commas between.")]
MetaScale = Annotated[float, typer.Option(help="σ_q: width of the meta-prior.")]
TaskScale = Annotated[float, typer.Option(help="σ_0: spread of tasks.")]
Noise = Annotated[float, typer.Option(help="σ: noise of rewards.")]


def run() -> None:
    """The command itself: bad input is one line and exit code 2, Ctrl-C is 130."""
    try:
        app()
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            error = ValueError(f"{error.filename}: {error.strerror}")
        errors.print(f"adats: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        sys.exit(2)
    except SystemExit as stop:
        if stop.code == 130:  # Typer's word for Ctrl-C
            errors.print("adats: stopped; nothing was written", highlight=False)
        raise


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on the error stream, gone when the work is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)


def _check_folder(out: Path | None) -> None:
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; give a folder")


def _check_json(target: str | None) -> None:
    if target not in (None, "-"):
        path = Path(str(target))
        if path.is_dir() or not path.resolve().parent.is_dir():
            raise ValueError(
                f"--json {target} cannot be written: give a file in a folder that exists"
            )


def _write_json(target: str | Path | None, data: Any) -> None:
    text = json.dumps(data, indent=1) + "\n"
    if target == "-":
        sys.stdout.write(text)
    elif target is not None:
        codec.write_bytes(target, text.encode())


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
    _check_folder(out)
    _check_json(json_to)
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
    summary = result.summary()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        result.save(out / "records.parquet")
        _write_json(out / "summary.json", summary)
    _write_json(json_to, summary)
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


def problem_command(name: str) -> Callable[[Callable[..., Problem]], Callable[..., Problem]]:
    """Make `adats simulate NAME` of a function from a problem's own options to the problem.

    The options that all simulations share are those of `_simulate`.
    """
    common = list(inspect.signature(_simulate).parameters.values())[1:]

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
    redraw: Annotated[str, typer.Option(help="New arms every run, or every round.")] = "run",
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


Priors = Annotated[Path, typer.Option(help="JSON with weights and candidate priors.")]


@problem_command("bernoulli")
def _bernoulli(priors: Priors) -> Problem:
    """Bernoulli arms whose task prior is one of several candidates."""
    return read_priors(priors, BetaArms)


@problem_command("poisson")
def _poisson(priors: Priors) -> Problem:
    """Poisson arms whose task prior is one of several candidates."""
    return read_priors(priors, PoissonArms)


def read_priors(path: Path, family: type[BetaArms] | type[PoissonArms]) -> MixtureProblem:
    """Candidates from a prior file, or from plain `{"weights": […], "priors": [{…}, …]}`."""
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if isinstance(data, dict) and "format" in data:
        meta = codec.load_prior(path)
        if not isinstance(meta, MixtureMeta) or not isinstance(meta.priors, family):
            raise ValueError(f"{path} is not a mixture of {family.__name__}")
        return MixtureProblem(meta.weights, meta.priors)
    try:
        return MixtureProblem(data["weights"], [family(**prior) for prior in data["priors"]])
    except (KeyError, TypeError):
        names = " and ".join(family.PARAMETERS)
        raise ValueError(
            f'{path} must be {{"weights": [...], "priors": [...]}}, each prior with {names}'
        ) from None


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="synthetic, gaussian, linear, … or all.")],
    runs: Annotated[int | None, typer.Option(help="Runs, if not those of the paper.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for figures, records and report.")] = Path(
        "out"
    ),
    seed: Seed = 1,
    workers: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    engine: EngineName = "local",
) -> None:
    """Draw the figures of the paper and check its claims."""
    from adats.experiments import reproduce as reproduce_experiment
    from adats.experiments import total_runs

    _check_folder(out)
    with progress_bar(f"reproducing {name}", total_runs(name, runs)) as advance:
        done = 0

        def progress(_label: str, finished: int, _total: int) -> None:
            nonlocal done
            advance(finished - done)
            done = finished

        report = reproduce_experiment(
            name,
            out=out,
            runs=runs,
            seed=seed,
            workers=workers or os.cpu_count() or 1,
            engine=engine,
            progress=progress,
        )
    console.print(f"The report is {report}", highlight=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("out"),
    seed: Seed = 1,
) -> None:
    """The cold-start story on real data, in sixty seconds."""
    from adats.demo import draw, tell_story

    _check_folder(out)
    plots.need()
    repetitions = 200
    with progress_bar("sending e-mails", repetitions) as progress:
        story = tell_story(repetitions=repetitions, seed=seed, progress=progress)
    picture = draw(story, out)
    console.print(story.sentence(), highlight=False)
    console.print(f"\nThe picture is {picture}", highlight=False)
    console.print(
        "Next: adats simulate gaussian, adats reproduce synthetic, or the example in the README.",
        highlight=False,
    )


def _print_bounds(columns: dict[str, Any], json_to: str | None) -> None:
    data = {name: asdict(bound) for name, bound in columns.items()}
    _write_json(json_to, data)
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
    _check_json(json_to)

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
    _check_json(json_to)

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


@app.command()
def info() -> None:
    """Versions, and which extras are installed."""
    from importlib.metadata import PackageNotFoundError, version

    table = Table("what", "version")
    table.add_row("adats", adats.__version__)
    table.add_row("python", platform.python_version())
    table.add_row("cores", str(os.cpu_count()))
    packages = ("numpy", "scipy", "numba", "joblib", "pyarrow", "matplotlib", "topohub", "ray")
    for package in packages:
        try:
            table.add_row(package, version(package))
        except PackageNotFoundError:
            table.add_row(package, "not installed")
    console.print(table)
