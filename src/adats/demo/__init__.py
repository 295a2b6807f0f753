"""The cold-start story on real data: 54 customer segments, three e-mails, who visits the shop."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from adats import plots
from adats.models import BetaArms, BinaryStats, MixtureMeta
from adats.models.core import files
from adats.models.core.types import FloatArray
from adats.models.default_prior import default_prior
from adats.simulation.kernels.registry import has_numba
from adats.simulation.play import compiled_task, plain_task
from adats.simulation.problems import Instance, MixtureProblem

EMAILS = ("mens", "womens", "none")
LABELS = ("men's goods", "women's goods", "no e-mail")
CUSTOMERS = 100  # of each segment, one decision a customer
EARLY = 20  # first customers of a segment, where cold start hurts
FIRST, LAST = 5, 20  # segments that count as early and as late


@dataclass(frozen=True, eq=False)
class Segments:
    """Customers and visits of every segment and e-mail."""

    customers: FloatArray  # (segments, e-mails)
    visits: FloatArray

    def rates(self) -> FloatArray:
        """Visit rates, shrunk towards the rate of their e-mail: posterior means, all data used."""
        meta = flat_start()
        digests = [meta.digest(self._stats(i)) for i in range(len(self.visits))]
        for digest in digests:
            meta = meta.absorb(digest.message)
        return np.array([meta.posterior(digest).mean for digest in digests])

    def _stats(self, segment: int) -> BinaryStats:
        visits = self.visits[segment]
        return BinaryStats(np.array([self.customers[segment], visits, visits]))


@dataclass(frozen=True, eq=False)
class Story:
    """What happened, in every repetition and segment, and how the prior took shape."""

    learned: FloatArray  # visits lost (repetitions, segments, customers)
    flat: FloatArray
    mean: FloatArray  # of the learned prior before each segment (segments + 1, e-mails)
    scale: FloatArray
    rates: FloatArray  # (segments, e-mails)

    def lost(self, which: str) -> tuple[float, float]:
        """Visits lost over all segments: mean and standard error."""
        totals = getattr(self, which).sum(axis=(1, 2))
        return float(totals.mean()), float(totals.std(ddof=1) / np.sqrt(totals.size))

    def best_share(self, which: str, segments: slice) -> float:
        """How often the first customers of a segment got the best e-mail."""
        start = getattr(self, which)[:, segments, :EARLY]
        return float((start == 0).mean())

    def sentence(self) -> str:
        """What a manager wants to know."""
        flat, learned = self.lost("flat")[0], self.lost("learned")[0]
        early = self.best_share("learned", slice(0, FIRST))
        late = self.best_share("learned", slice(-LAST, None))
        return (
            f"Over {len(self.rates)} customer segments of {CUSTOMERS} customers each, starting "
            f"every segment from scratch lost {flat:.0f} visits; a prior learned from the earlier "
            f"segments lost {learned:.0f}, {1 - learned / flat:.0%} fewer. The first {EARLY} "
            f"customers of a new segment got the best e-mail {early:.0%} of the time in the first "
            f"{FIRST} segments, and {late:.0%} of the time in the last {LAST}."
        )


def draw(story: Story, out: Path) -> Path:
    """Write the picture into a folder."""
    lost = {
        "from scratch": story.flat.sum(axis=2),
        "learned prior": story.learned.sum(axis=2),
    }
    figure = plots.story_figure(lost, LABELS, story.mean, story.scale, story.rates)
    out.mkdir(parents=True, exist_ok=True)
    for kind in ("svg", "png"):
        files.write_bytes(out / f"demo.{kind}", plots.rendered(figure, kind))
    return out / "demo.png"


def load_segments() -> Segments:
    """The counts that ship with the package."""
    text = (resources.files("adats.demo") / "hillstrom.csv").read_text(encoding="utf-8")
    table: dict[tuple[str, ...], dict[str, tuple[float, float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        segment = (row["area"], row["channel"], row["customer"], row["bought"])
        counts = (float(row["customers"]), float(row["visits"]))
        table.setdefault(segment, {})[row["email"]] = counts
    counted = np.array([[row[email] for email in EMAILS] for row in table.values()])
    return Segments(counted[..., 0], counted[..., 1])


def flat_start() -> MixtureMeta:
    """The default prior: nothing is tuned to the data."""
    meta: MixtureMeta = default_prior(arms=EMAILS, rewards="binary")
    return meta


def tell_story(
    *, repetitions: int = 300, seed: int = 1, progress: Callable[[int], None] | None = None
) -> Story:
    """Let the segments arrive one after another, in a new order in every repetition."""
    rates = load_segments().rates()
    start = flat_start()
    problem = MixtureProblem(start.weights, start.priors)
    uniform = BetaArms(np.ones(3), np.ones(3))
    first = np.zeros((0, 1), dtype=np.intp)
    play = compiled_task if has_numba() else plain_task
    lost = np.empty((2, repetitions, len(rates), CUSTOMERS))
    shape = np.zeros((2, len(rates) + 1, 3))
    for i in range(repetitions):
        key = np.random.SeedSequence(seed, spawn_key=(i,))
        world, learner, other = (np.random.default_rng(child) for child in key.spawn(3))
        meta = start
        for s, segment in enumerate(world.permutation(len(rates))):
            instance = Instance(rates[segment], world.random(CUSTOMERS))
            prior = meta.task_prior()
            shape[:, s] += prior.mean, prior.scale
            stats = play(problem, prior, instance, first, learner, lost[0, i, s])
            play(problem, uniform, instance, first, other, lost[1, i, s])
            meta = meta.absorb(meta.digest(stats).message)
        prior = meta.task_prior()
        shape[:, -1] += prior.mean, prior.scale
        if progress is not None:
            progress(1)
    mean, scale = shape / repetitions
    return Story(lost[0], lost[1], mean, scale, rates)
