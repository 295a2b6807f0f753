"""The report on online classification, as Markdown."""

from collections.abc import Sequence

import numpy as np

from adats.models.core.types import FloatArray
from adats.models.latent.family import BINARY
from adats.paper.datasets import ImageData
from adats.paper.experiments.image_claims import (
    GAUSSIAN,
    READINGS,
    MeanOverClasses,
    OracleRegrets,
    mean_over_classes,
    of_reading,
)
from adats.paper.experiments.image_priors import SPREADS, TRAINING_ROUNDS, TRAINING_TASKS
from adats.paper.experiments.measures import ratio, standard_error
from adats.paper.experiments.panels import Outcome
from adats.paper.experiments.report_text import ReportParts, table, total_regrets
from adats.simulation.learners import label_of
from adats.simulation.problems.classification import OTHER, POSITIVE

ABOUT = (
    "The second supplementary experiment of the paper. In every simulation one class is positive: "
    "its pictures give Ber(0.9) rewards, all others Ber(0.1). The arms of a round are {arms} "
    "pictures drawn from the test half{sure}. The agents of the paper take the rewards for "
    "Gaussian with σ = 0.1 around aᵀθ, so each for about nine times as telling as it is: its "
    "variance is 0.09. Those called *logistic* take them for 0 or 1, with log-odds aᵀθ, where "
    "one more feature is 1. The meta-prior of all is N(0, I). Features: {note}. {tasks} tasks, "
    "{rounds} rounds a task, {runs} runs, seed {seed}. Regret is expected regret, summed over "
    "tasks and averaged over runs."
)
SURE = "; if none of them is positive, one is replaced by a drawn positive picture"
READ = (
    "The paper uses the training half “to estimate μ_0 and Σ_0 for each” class and does not say "
    "how. Reading *features* takes the mean and the covariance of the features of the class. "
    f"Reading *fit* fits both, by maximum likelihood, to {TRAINING_TASKS} training tasks of "
    f"{TRAINING_ROUNDS} rounds with logged random arms. So in the first μ_0 is a picture and Σ_0 "
    "says how pictures of the class differ; in the second μ_0 predicts rewards and Σ_0 says how "
    "much tasks differ, which they do not: what is left of it is the error of the fit. Reading "
    "*logistic* is for the logistic agents: the belief of their model over μ after the same tasks, "
    f"and Σ_0 = σ_0²I with the likeliest σ_0 of {', '.join(f'{s:g}' for s in SPREADS)}. All agents "
    "use Σ_0, OracleTS also μ_0. Means over the classes, on the test half; of the logistic fit "
    "√(aᵀΣ_0a) is in log-odds:"
)
LIKELIHOOD = (
    "Total regret of the same agents on the same tasks, mean over the classes, by what they take "
    "the rewards for and are told. The ratios are of paired runs."
)
STUCK = (
    " Logistic MetaTS loses more than under reading {where}: it draws μ before a task, and where "
    "Σ_0 is next to nothing it plays by that draw to the end of the task."
)
FIRST = (
    "The share of positive pictures among those pulled in round 1, over all classes and runs. "
    "AdaTS− has a meta-prior a third as wide. Where AdaTS is below half in task 2, three things "
    "may be in its way: few rounds (it pulls a wrong picture in {wrong} of the {rounds} rounds of "
    "task 1); a meta-prior that is wide or narrow for the features (N(0, I) gives the mean reward "
    "of a picture, or its log-odds, a standard deviation of √(aᵀa), here {size:.1f} without the "
    "feature that is 1; where that is wide AdaTS− learns faster, where it is narrow slower); and a "
    "Σ_0 that is wide for them (√(aᵀΣ_0a) of the table above, added anew in every task)."
)
LOSES = (
    "OracleTS loses to AdaTS under {where}: its prior does not describe these tasks, which all "
    "have one positive class and so one best θ, but a mean of features is not that θ, and a Σ_0 "
    "that is not 0 makes OracleTS learn anew in every task what AdaTS learns once. Told the fitted "
    "μ_0 and Σ_0 = 0 it has a regret of {fit}, and told the μ that AdaTS learned by playing the "
    "training tasks {play}"
)
BETTER = (
    ", since a fit to random arms is for all pictures, while only those that score highest matter, "
    "and AdaTS learns from them"
)
WINS = (
    "OracleTS does not lose to AdaTS here: the μ_0 of both readings scores positive pictures above "
    "the others, with a small spread, as the table above says. AdaTS has to learn that first, and "
    "in a task of {rounds} rounds it learns little"
)
MEANS = {
    "features": "mean of the class's features",
    "fit": "fit over logged training tasks",
    "play": "learned by AdaTS on training tasks",
}


def report_parts(name: str, outcomes: Sequence[Outcome]) -> ReportParts:
    """Settings and tables; the claims are about means over classes."""
    pooled = [mean_over_classes(outcomes, reading) for reading in READINGS]
    classes = of_reading("features", outcomes)
    images, first = classes[0].images, classes[0].result
    settings = ABOUT.format(
        arms=first.problem["arms"],
        sure=SURE if first.problem["sure"] else "",
        note=images.note,
        tasks=first.tasks,
        rounds=first.rounds,
        runs=first.runs,
        seed=first.seed,
    )
    figures = [
        f"![{what}: cumulative regret, and the average picture pulled in round 1 of each task]"
        f"({name}-{reading}.png)"
        for reading, what in READINGS.items()
    ]
    tables = [
        "## Total regret",
        total_regrets([*pooled, *outcomes]),
        "## Gaussian and logistic agents",
        about_logistic(pooled),
        "## The readings of μ_0 and Σ_0",
        READ,
        _readings(outcomes, images),
        "## What is pulled first",
        _first(pooled, images),
        "## OracleTS",
        about_oracle(pooled, [o.oracle for o in classes]),
    ]
    return ReportParts([settings, *figures], tables, pooled, outcomes)


def _readings(outcomes: Sequence[Outcome], images: ImageData) -> str:
    plain, labels = images.test.features, images.test.labels
    rows = []
    for reading, what in READINGS.items():
        found = []
        gaussian = reading in GAUSSIAN
        features = plain if gaussian else np.column_stack([plain, np.ones(len(plain))])
        for o in of_reading(reading, outcomes):
            mean, positive = features @ o.prior.mu, labels == o.positive
            mean = mean if gaussian else BINARY.mean(mean)
            spread = np.sqrt(np.maximum(((features @ o.prior.cov) * features).sum(axis=1), 0.0))
            found.append((mean[positive].mean(), mean[~positive].mean(), spread.mean()))
        rows.append((what, *(f"{value:.2f}" for value in np.mean(found, axis=0))))
    head = ("reading", "mean reward by μ_0, positive pictures (0.9)", "others (0.1)", "√(aᵀΣ_0a)")
    return table(head, rows)


def _first(pooled: Sequence[MeanOverClasses], images: ImageData) -> str:
    rows = [
        (o.reading, label_of(agent), *(f"{100 * share:.0f} %" for share in right.mean(axis=0)))
        for o in pooled
        for agent, right in o.right.items()
    ]
    tasks = range(1, len(rows[0]) - 1)
    size = float(np.sqrt((images.test.features**2).sum(axis=1)).mean())
    ada, rounds = pooled[0].result.agents.index("ada-ts"), pooled[0].result.rounds
    lost = [o.result.regret[ada, :, 0].mean() / (POSITIVE - OTHER) for o in pooled]
    wrong = ", ".join(f"{number:.1f}" for number in lost[:-1]) + f" and {lost[-1]:.1f}"
    text = FIRST.format(size=size, rounds=rounds, wrong=wrong)
    return text + "\n\n" + table(("reading", "agent", *(f"task {t}" for t in tasks)), rows)


def about_oracle(pooled: Sequence[MeanOverClasses], oracles: Sequence[OracleRegrets]) -> str:
    """Why Gaussian OracleTS loses where it does, and a table that takes its prior apart."""
    some = [o for o in pooled if o.reading in GAUSSIAN]
    lost = [o.reading for o in some if o.result.mean("oracle-ts") > o.result.mean("ada-ts")]
    where = "both readings" if len(lost) == len(GAUSSIAN) else f"reading {', '.join(lost)}"
    fit, play = ([t[mean, "none"] for t in oracles] for mean in ("fit", "play"))
    text = (LOSES if lost else WINS).format(
        where=where, fit=_regret(fit), play=_regret(play), rounds=pooled[0].result.rounds
    )
    text += f"{BETTER if lost and np.mean(play) < np.mean(fit) else ''}."
    rows = [
        (what, *(_regret([t[mean, spread] for t in oracles]) for spread in ("features", "none")))
        for mean, what in MEANS.items()
    ]
    head = ("OracleTS is told μ_0 =", "Σ_0 = covariance of the class's features", "Σ_0 = 0")
    return text + "\n\n" + table(head, rows)


def about_logistic(pooled: Sequence[MeanOverClasses]) -> str:
    """What the right likelihood is worth to each agent."""
    total = {o.reading: o for o in pooled}
    agents = total["logistic"].panel.agents
    rows = []
    for agent in agents:
        of = {reading: o.total(agent) for reading, o in total.items()}
        shares = (ratio(of["logistic"], of[reading]) for reading in GAUSSIAN)
        cells = [f"{value:.2f} ± {se:.2f}" for value, se in shares]
        rows.append((label_of(agent), *(_regret([runs]) for runs in of.values()), *cells))
    head = ("agent", *READINGS, *(f"logistic / {reading}" for reading in GAUSSIAN))
    meta = {reading: o.result.mean("meta-ts") for reading, o in total.items()}
    lower = [reading for reading in GAUSSIAN if meta[reading] < meta["logistic"]]
    stuck = STUCK.format(where=" and ".join(lower)) if lower else ""
    return f"{LIKELIHOOD}{stuck}\n\n{table(head, rows)}"


def _regret(classes: Sequence[FloatArray]) -> str:
    """Mean over classes and runs, and its standard error."""
    of_runs = np.mean(classes, axis=0)
    return f"{of_runs.mean():.1f} ± {standard_error(of_runs):.1f}"
