"""`adats simulate`: one command a problem."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from adats.agents.aging import CLOCKS
from adats.cli import common
from adats.models import BetaArms, PoissonArms, prior_files
from adats.simulation import Learner, Result, problems, simulate
from adats.simulation.learners import MOVING
from adats.simulation.memory import HalfLives

simulate_app = typer.Typer(help="Play agents on a problem.", no_args_is_help=True)


Redraw = Annotated[str, typer.Option(help="New arms every run, or every round.")]


def _numbers(mu: str | None) -> list[float] | None:
    return None if mu is None else common.numbers("--mu", mu)


@dataclass(frozen=True)
class Play:
    """The options that all simulations share."""

    tasks: common.Tasks = 20
    rounds: common.Rounds = 200
    runs: common.Runs = 100
    agents: common.Agents = "oracle-ts,ada-ts,meta-ts,ts"
    seed: common.Seed = 1
    explore_first: common.First = False
    workers: common.Workers = 1
    engine: common.EngineName = "local"
    json_to: common.Json = None
    out: common.Out = None

    def on(self, problem: problems.Problem, more: Mapping[str, Learner] | None = None) -> None:
        """Play, write, print. There may be `more` agents than the command says everywhere."""
        out, json_to, agents, settings = self.out, self.json_to, self.agents, asdict(self)
        for name in ("out", "json_to", "agents"):
            del settings[name]
        common.check_folder(out)
        common.check_json(json_to)
        with common.progress_bar(f"simulating {problem.name}", self.runs) as progress:
            names = [name.strip() for name in agents.split(",") if name.strip()]
            result = simulate(
                problem,
                {name: (more or {}).get(name, name) for name in names},
                progress=progress,
                **settings,
            )
        typed = common.command_line()
        summary = result.summary(command=typed)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            result.save(out / "records.parquet", command=typed)
            common.write_json(out / "summary.json", summary)
        common.write_json(json_to, summary)
        if json_to != "-":
            _print_result(result)
            if out is not None:
                common.say(f"Records and summary are in {out}")


def _print_result(result: Result) -> None:
    table = Table(title=f"{result.problem['name']}: regret over {result.tasks} tasks")
    for name in ("agent", "regret", "± se", "first task", "last task", "ns a decision"):
        table.add_column(name, justify="left" if name == "agent" else "right")
    for name, row in result.summary()["agents"].items():
        se = "" if row["se"] is None else f"{row['se']:.2f}"
        first, last = row["per_task"][0], row["per_task"][-1]
        shown = (f"{row['regret']:.2f}", se, f"{first:.2f}", f"{last:.2f}")
        table.add_row(name, *shown, f"{row['ns_per_decision']:.0f}")
    common.console.print(table)


@common.command(simulate_app, "gaussian")
def _gaussian(
    *, arms: int = 2, spreads: common.SpreadOptions, mu: common.Mu = None, play: Play
) -> None:
    """Gaussian arms."""
    play.on(problems.GaussianProblem(arms, mu=_numbers(mu), **spreads.settings()))


Life = Annotated[float, typer.Option(help="Of ada-life, in tasks' lengths; 0: none.")]
FROM_0 = "numbers, counted from 0, with commas between."
MuJumps = Annotated[str | None, typer.Option(help=f"Tasks before which mu is drawn anew: {FROM_0}")]
ThetaJumps = Annotated[
    str | None, typer.Option(help=f"Rounds of a task before which theta is: {FROM_0}")
]


@common.command(simulate_app, "moving", agents=f"ts,ada-ts,{','.join(MOVING)}")
def _moving(
    *,
    arms: int = 2,
    spreads: common.SpreadOptions,
    mu_jumps: MuJumps = None,
    theta_jumps: ThetaJumps = None,
    mu_step: Annotated[float, typer.Option(help="Of mu, from task to task.")] = 0.0,
    theta_step: Annotated[float, typer.Option(help="Of theta, from round to round.")] = 0.0,
    season: Annotated[float, typer.Option(help="Rise of an arm at its best time.")] = 0.0,
    period: Annotated[float, typer.Option(help="Rounds from one best time to the next.")] = 1000.0,
    half_life: Life = 4.0,
    prior_half_life: Life = 8.0,
    clock: Annotated[str, typer.Option(help="What ages count: rounds, or pulls of an arm.")] = (
        CLOCKS[1]
    ),
    mu: common.Mu = None,
    play: Play,
) -> None:
    """Gaussian arms that move: mu before some tasks or at each, theta within tasks, or by season.

    Besides the agents of other problems there are ada-life, whose rewards lose weight; ada-told,
    which is told of jumps and starts anew; and filter-ts, which is told the sizes of steps.
    """
    moves = (_places("--mu-jumps", mu_jumps), _places("--theta-jumps", theta_jumps))
    problem = problems.MovingProblem(
        arms,
        mu=_numbers(mu),
        mu_jumps=moves[0],
        theta_jumps=moves[1],
        mu_step=mu_step,
        theta_step=theta_step,
        season=season,
        period=period,
        **spreads.settings(),
    )
    lives = HalfLives(half_life or None, prior_half_life or None, clock)
    play.on(problem, MOVING | {"ada-life": MOVING["ada-life"]._replace(memory=lives)})


def _places(option: str, text: str | None) -> list[int]:
    found = [] if text is None else common.numbers(option, text)
    if not all(place.is_integer() for place in found):
        raise ValueError(f"{option} must be whole numbers, got {text!r}")
    return [int(place) for place in found]


@common.command(simulate_app, "linear", meta_scale="1")
def _linear(
    *,
    dim: int = 2,
    arms: int = 10,
    spreads: common.SpreadOptions,
    redraw: Redraw = "run",
    mu: common.Mu = None,
    play: Play,
) -> None:
    """Linear bandit with arms from the unit sphere."""
    play.on(problems.LinearProblem(dim, arms, redraw=redraw, mu=_numbers(mu), **spreads.settings()))


@common.command(simulate_app, "semibandit")
def _semibandit(
    *,
    arms: int = 20,
    size: int = 4,
    spreads: common.SpreadOptions,
    mu: common.Mu = None,
    play: Play,
) -> None:
    """Semi-bandit: at most `size` arms a round, one reward each."""
    play.on(problems.SemibanditProblem(arms, size, mu=_numbers(mu), **spreads.settings()))


@common.command(simulate_app, "routing")
def _routing(
    *,
    network: Annotated[str, typer.Option(help="A network of topohub, such as germany50.")],
    meta_scale: common.MetaScale = 0.5,
    task_scale: common.TaskScale = 0.1,
    noise: common.Noise = 1.0,
    floor: Annotated[float, typer.Option(help="Latencies are clipped here.")] = 0.05,
    play: Play,
) -> None:
    """Shortest paths on a real network with unknown latencies."""
    spreads = {"meta_scale": meta_scale, "task_scale": task_scale, "noise": noise}
    play.on(problems.RoutingProblem.named(network, floor=floor, **spreads))


@common.command(simulate_app, "clicks", agents="flat-ts,pooled-ts,ada-ts,default-ts,default-far")
def _clicks(
    *,
    arms: int = 5,
    base: Annotated[float, typer.Option(help="Mean reward of a typical arm.")] = 0.02,
    arm_scale: Annotated[float, typer.Option(help="Spread between arms.")] = 0.3,
    task_scale: common.TaskScale = 0.3,
    level_scale: Annotated[
        float, typer.Option(help="Spread of the level that a task's arms share.")
    ] = 0.0,
    rewards: Annotated[str, typer.Option(help="binary, or count.")] = "binary",
    features: Annotated[
        int | None, typer.Option(help="Arms are so many numbers, of which the first is 1.")
    ] = None,
    redraw: Redraw = "run",
    mu: common.Mu = None,
    play: Play,
) -> None:
    """Clicks or counts whose log-odds or logarithms are Gaussian, or linear in features.

    The spreads and mu are of log-odds (binary), or of logarithms (count); with features, of
    their coefficients, and the level is that of the first.
    """
    settings = (arms, base, arm_scale, task_scale, level_scale, rewards)
    if features is not None:
        play.on(problems.FeatureClicksProblem(features, *settings, redraw, _numbers(mu)))
        return
    if redraw != "run":
        raise ValueError("--redraw is for arms with --features")
    play.on(problems.ClicksProblem(*settings, mu=_numbers(mu)))


Priors = Annotated[Path, typer.Option(help="JSON with weights and candidate priors.")]


@common.command(simulate_app, "binary", old="bernoulli")
def _binary(*, priors: Priors, play: Play) -> None:
    """Bernoulli arms whose task prior is one of several candidates."""
    play.on(read_priors(priors, BetaArms))


@common.command(simulate_app, "count", old="poisson")
def _count(*, priors: Priors, play: Play) -> None:
    """Poisson arms whose task prior is one of several candidates."""
    play.on(read_priors(priors, PoissonArms))


def read_priors(path: Path, family: type[BetaArms] | type[PoissonArms]) -> problems.MixtureProblem:
    """Candidates from a prior file, or from plain `{"weights": […], "priors": [{…}, …]}`."""
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if isinstance(data, dict) and "format" in data:
        meta = prior_files.load_prior(path)
        if data["prior"].get("family") != family.__name__:
            raise ValueError(f"{path} is not a mixture of {family.__name__}")
        return problems.MixtureProblem(meta.weights, meta.priors)
    try:
        return problems.MixtureProblem(
            data["weights"], [family(**prior) for prior in data["priors"]]
        )
    except (KeyError, TypeError):
        names = " and ".join(family.PARAMETERS)
        raise ValueError(
            f'{path} must be {{"weights": [...], "priors": [...]}}, each prior with {names}'
        ) from None
