"""The paper's headline: what learning the prior costs, over the number of tasks and of rounds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from adats import plots
from adats.agents.exploration import eta
from adats.models.core.types import FloatArray
from adats.paper.bounds import LinearBound, linear_bound
from adats.paper.experiments import growth
from adats.paper.experiments.claims import BELOW, Claim
from adats.paper.experiments.growth import Growth
from adats.paper.experiments.measures import Measure, Measures, difference, quotient
from adats.paper.experiments.panels import Outcome, Panel, of_part, start_of
from adats.paper.experiments.report_text import table
from adats.paper.experiments.simulations import SHARED, gaussian_panel, linear_panel
from adats.paper.experiments.spec import PanelExperiment
from adats.simulation.learners import label_of
from adats.simulation.problems import LinearProblem

LEARNERS = ("ada-ts", "meta-ts")
AGENTS = ("oracle-ts", *LEARNERS)
TASKS, ROUNDS = (5, 10, 20, 40, 80, 160), (25, 50, 100, 200, 400, 800)
M, N = 20, 200  # tasks where rounds vary, and rounds where tasks do
OVER_TASKS, OVER_ROUNDS = "over tasks", "over rounds"  # parts
ACROSS = {OVER_TASKS: "tasks m", OVER_ROUNDS: "rounds n"}
ARM_SETS = 100  # over which bounds of linear bandits are averaged
TERMS = {  # of Theorem 5, as the figure calls them
    "total": "Theorem 5",
    "learning": "its term for μ_*",
    "acting": "its term for all θ_s",
    "exploration": "its term for exploration",
}


def _panels(panel: Panel) -> Iterator[Panel]:
    panel = replace(panel, explore_first=True, detail="task")
    yield replace(panel, tasks=TASKS[-1], rounds=N, part=OVER_TASKS)
    for n in ROUNDS:
        yield replace(panel, title=f"{panel.title}, n = {n}", tasks=M, rounds=n, part=OVER_ROUNDS)


def _problem(o: Outcome) -> str:
    return o.panel.title.split(", n = ")[0]


Sweep = list[tuple[int, int, Outcome]]  # tasks, rounds, and where their regrets are


def sweeps(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, str, Sweep]]:
    """Problem, part, and the sizes of it."""
    for problem in dict.fromkeys(map(_problem, outcomes)):
        some = [o for o in outcomes if _problem(o) == problem]
        (long,) = of_part(OVER_TASKS, some)
        yield problem, OVER_TASKS, [(m, N, long) for m in TASKS]
        yield problem, OVER_ROUNDS, [(M, o.result.rounds, o) for o in of_part(OVER_ROUNDS, some)]


def regret(sweep: Sweep, agent: str) -> FloatArray:
    """Of every run and size; agents do not know how many tasks will follow."""
    return np.stack(
        [o.result.regret[o.result.agents.index(agent), :, :m].sum(axis=1) for m, _, o in sweep],
        axis=1,
    )


def price(sweep: Sweep, agent: str) -> Growth:
    """The regret above that of OracleTS, which is told μ_*."""
    return _growth(sweep, regret(sweep, agent) - regret(sweep, "oracle-ts"))


def _growth(sweep: Sweep, values: FloatArray) -> Growth:
    tasks, rounds = [m for m, _, _ in sweep], [n for _, n, _ in sweep]
    return Growth(np.array(rounds if len(set(tasks)) == 1 else tasks, dtype=float), values)


@lru_cache(maxsize=8)
def drawn_etas(dim: int, arms: int) -> tuple[float, ...]:
    """The η of forced exploration, of some sets of arms."""
    problem, found = LinearProblem(dim, arms), []
    for i in range(ARM_SETS):
        start = start_of(problem, 0, i)
        assert start.features is not None
        found.append(eta(start.features[0], problem.first(start)[:, 0]))
    return tuple(found)


def bounds(sweep: Sweep) -> list[LinearBound]:
    """Theorem 5 at every size, term by term; for drawn arms the mean over some sets of them."""
    settings = sweep[0][2].result.problem
    etas: tuple[float, ...] = (1.0,)
    dim = settings["arms"]  # Gaussian arms are the Euclidean basis
    if "dim" in settings:
        dim, etas = settings["dim"], drawn_etas(settings["dim"], settings["arms"])

    def mean(tasks: int, rounds: int) -> LinearBound:
        found = [
            vars(
                linear_bound(
                    tasks=tasks,
                    rounds=rounds,
                    dim=dim,
                    arms=settings["arms"],
                    meta_cov=settings["meta_scale"] ** 2,
                    task_cov=settings["task_scale"] ** 2,
                    noise=settings["noise"],
                    eta=value,
                )
            )
            for value in etas
        ]
        return LinearBound(**{name: float(np.mean([f[name] for f in found])) for name in found[0]})

    return [mean(m, n) for m, n, _ in sweep]


# Claims


def _slope(agent: str, part: str, high: float) -> Measures:
    def measures(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        for problem, where, sweep in sweeps(outcomes):
            if where == part:
                what = f"slope of {label_of(agent)}'s price over {ACROSS[part]}"
                yield price(sweep, agent).measure(problem, what, high=high)

    return measures


def _steeper(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
    for problem, where, sweep in sweeps(outcomes):
        if where == OVER_ROUNDS:
            what = "MetaTS's slope over n less AdaTS's"
            yield growth.steeper(price(sweep, "meta-ts"), price(sweep, "ada-ts"), problem, what)


def _each(measure: Callable[[Sweep, int], Measure]) -> Measures:
    """A measure at every size."""

    def measures(outcomes: Sequence[Outcome]) -> Iterator[Measure]:
        for problem, _, sweep in sweeps(outcomes):
            for i, (m, n, _) in enumerate(sweep):
                yield replace(measure(sweep, i), where=f"{problem}, m = {m}, n = {n}")

    return measures


def _cheaper(sweep: Sweep, i: int) -> Measure:
    ada, meta = (price(sweep[i : i + 1], agent).values[:, 0] for agent in LEARNERS)
    figure = f"{ada.mean():.1f} against {meta.mean():.1f}"
    return difference(sweep[i][2], "price of AdaTS below MetaTS's", figure, meta - ada)


def _bounded(sweep: Sweep, i: int) -> Measure:
    bound = bounds(sweep[i : i + 1])[0].total
    lost = regret(sweep[i : i + 1], "ada-ts")[:, 0]
    what = "AdaTS's regret / Theorem 5"
    return quotient(sweep[i][2], what, lost, np.full_like(lost, bound), high=1.0)


CLAIMS = (
    Claim(
        "AdaTS: the price of learning the prior is Õ(√(mn))",
        "its slopes over m and over n are at most ½",
        lambda outcomes: (
            m for part in (OVER_TASKS, OVER_ROUNDS) for m in _slope("ada-ts", part, 0.5)(outcomes)
        ),
    ),
    Claim(
        "MetaTS: the price is Õ(√m n²)",
        "its slope over m is at most ½, and over n at most 2",
        lambda outcomes: (
            m
            for part, high in ((OVER_TASKS, 0.5), (OVER_ROUNDS, 2.0))
            for m in _slope("meta-ts", part, high)(outcomes)
        ),
    ),
    Claim(
        "MetaTS's price grows faster with n than AdaTS's",
        "the difference of their slopes is above 0",
        _steeper,
    ),
    Claim(
        "At every m and n AdaTS pays less than MetaTS for learning the prior",
        BELOW,
        _each(_cheaper),
    ),
    Claim(
        "The regret of AdaTS is below Theorem 5 (safe constants) at every m and n",
        "the ratio is at most 1",
        _each(_bounded),
    ),
)


# What is shown


def price_figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """Prices over m and over n, with their slopes."""
    charts, across = [], []
    for problem, part, sweep in sweeps(outcomes):
        growths = {agent: price(sweep, agent) for agent in LEARNERS}
        note = growth.slopes_note({label_of(a): found for a, found in growths.items()})
        curves = {agent: found.curve() for agent, found in growths.items()}
        charts.append(plots.Chart(problem, note, growths["ada-ts"].sizes, curves))
        across.append(ACROSS[part])
    return growth.log_log_figure(charts, across, label="regret above OracleTS's")


def bounds_figure(outcomes: Sequence[Outcome]) -> "plots.Figure":
    """The regret of AdaTS, and Theorem 5 with each of its terms."""
    charts, across = [], []
    for problem, part, sweep in sweeps(outcomes):
        found, known = bounds(sweep), _growth(sweep, regret(sweep, "ada-ts"))
        curves = {"ada-ts": known.curve()}
        for term, name in TERMS.items():
            curves[name] = plots.Curve.exact(np.array([getattr(bound, term) for bound in found]))
        charts.append(plots.Chart(problem, "safe constants", known.sizes, curves))
        across.append(ACROSS[part])
    return growth.log_log_figure(charts, across, label="regret, and its bound")


def _sections(outcomes: Sequence[Outcome]) -> list[str]:
    rows, terms = [], []
    for problem, _, sweep in sweeps(outcomes):
        prices = {agent: price(sweep, agent).curve() for agent in LEARNERS}
        lost = _growth(sweep, regret(sweep, "ada-ts")).curve()
        for i, ((m, n, _), bound) in enumerate(zip(sweep, bounds(sweep), strict=True)):
            where = (problem, str(m), str(n))
            cells = [f"{c.mean[i]:.1f} ± {c.se[i]:.1f}" for c in prices.values()]
            rows.append((*where, *cells))
            each = [f"{getattr(bound, term):.0f}" for term in TERMS]
            terms.append((*where, f"{lost.mean[i]:.1f} ± {lost.se[i]:.1f}", *each))
    sizes = ("problem", "m", "n")
    return [
        "## The price of learning the prior",
        table((*sizes, *(label_of(agent) for agent in LEARNERS)), rows),
        "## The bound, term by term",
        table((*sizes, "AdaTS's regret", *TERMS.values()), terms),
    ]


PRICE = PanelExperiment(
    name="price",
    title="The price of learning the prior, over the number of tasks and of rounds",
    about=(
        f"{SHARED} The price is an agent's regret above that of OracleTS, which is told μ_*. The "
        "paper bounds it by Õ(√(mn)) for AdaTS, where earlier work had Õ(√m n²) for MetaTS. All "
        "agents explore by force first in every task, as the analysis needs. A slope is that of a "
        "least-squares line through the logarithms of the mean prices, with the standard error of "
        f"the paired runs. Over m there are n = {N} rounds, and over n there are m = {M} tasks. "
        "The bound of a linear bandit, whose arms are drawn, is the mean over "
        f"{ARM_SETS} sets of arms."
    ),
    panels=(
        *_panels(gaussian_panel(2, 0.5, AGENTS)),
        *_panels(linear_panel(2, 1.0, AGENTS)),
    ),
    claims=CLAIMS,
    runs=1000,
    needs_numba=True,
    drawings={
        "price": ("The price of learning the prior", price_figure),
        "bounds": ("The regret of AdaTS, and Theorem 5 term by term", bounds_figure),
    },
    sections=_sections,
)
