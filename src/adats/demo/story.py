"""The cold-start story on real data: 54 customer segments, three e-mails, who visits the shop."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from adats import plots
from adats.demo import EMAILS, LABELS, load_segments
from adats.models.core import files
from adats.models.core.types import Belief, FloatArray
from adats.plots.story import story_figure
from adats.simulation.kernels.registry import has_numba, known_rng
from adats.simulation.learners import AGENTS
from adats.simulation.play import Job, play_learner
from adats.simulation.problems import ClicksProblem, Instance
from adats.simulation.problems.problem import Start

CUSTOMERS = 100  # of each segment, one decision a customer
EARLY = 20  # first customers of a segment, where cold start hurts
FIRST, LAST = 5, 20  # segments that count as early and as late
PLAYERS = {  # in the order in which they are drawn: agents of the simulator
    "from scratch": "flat-ts",
    "one for all": "pooled-ts",
    "learned prior": "default-ts",
    "learned prior, far-sighted": "default-far",
}
LEARNED = "learned prior"


@dataclass(frozen=True, eq=False)
class Story:
    """What happened, in every repetition and segment, and how the prior took shape."""

    lost: dict[str, FloatArray]  # visits, for each of `PLAYERS`: repetitions, segments, customers
    mean: FloatArray  # of the learned prior before each segment (segments + 1, e-mails)
    scale: FloatArray
    rates: FloatArray  # (segments, e-mails)

    def totals(self, player: str) -> FloatArray:
        """Visits lost over all segments, in every repetition."""
        totals: FloatArray = self.lost[player].sum(axis=(1, 2))
        return totals

    def best_share(self, player: str, segments: slice) -> float:
        """How often the first customers of a segment got the best e-mail."""
        start = self.lost[player][:, segments, :EARLY]
        return float((start == 0).mean())

    def sentence(self) -> str:
        """What a manager wants to know."""
        scratch, pooled, learned, far = (self.totals(name).mean() for name in PLAYERS)
        early = self.best_share(LEARNED, slice(0, FIRST))
        late = self.best_share(LEARNED, slice(-LAST, None))
        return (
            f"Over {len(self.rates)} customer segments of {CUSTOMERS} customers each, starting "
            f"every segment from scratch lost {scratch:.0f} visits. A prior learned from the "
            f"earlier segments lost {learned:.0f} with Thompson sampling, "
            f"{1 - learned / scratch:.0%} fewer, and {far:.0f} with the far-sighted policy; "
            f"treating all segments as one lost {pooled:.0f}. With Thompson sampling the first "
            f"{EARLY} customers of a new segment got the best e-mail {early:.0%} of the time in "
            f"the first {FIRST} segments, and {late:.0%} of the time in the last {LAST}."
        )


def draw(story: Story, out: Path) -> Path:
    """Write the picture into a folder."""
    lost = {name: values.sum(axis=2) for name, values in story.lost.items()}
    figure = story_figure(lost, LABELS, story.mean, story.scale, story.rates)
    out.mkdir(parents=True, exist_ok=True)
    for kind in ("svg", "png"):
        files.write_bytes(out / f"demo.{kind}", plots.rendered(figure, kind))
    return out / "demo.png"


def tell_story(
    *, repetitions: int = 200, seed: int = 1, progress: Callable[[int], None] | None = None
) -> Story:
    """Let the segments arrive one after another, in a new order in every repetition.

    `progress` is told of each of `PLAYERS` in each repetition.
    """
    rates = load_segments().rates()
    problem, start = ClicksProblem(arms=len(EMAILS)), Start(np.zeros(len(EMAILS)))
    metas = {name: AGENTS[agent].meta(problem) for name, agent in PLAYERS.items()}
    job = Job(problem, {}, metas, len(rates), CUSTOMERS, seed, False, 0, True, False, has_numba())
    first = np.zeros((0, 1), dtype=np.intp)
    lost = {name: np.empty((repetitions, len(rates), CUSTOMERS)) for name in PLAYERS}
    chosen = np.empty((len(rates), CUSTOMERS), dtype=np.intp)
    seen: list[Belief] = []  # the learned prior before each segment and after the last
    shape = np.zeros((2, len(rates) + 1, len(EMAILS)))
    for i in range(repetitions):
        key = np.random.SeedSequence(seed, spawn_key=(i,))
        world, *streams = (np.random.default_rng(child) for child in key.spawn(1 + len(PLAYERS)))
        order = world.permutation(len(rates))
        instances = [Instance(rates[segment], world.random(CUSTOMERS)) for segment in order]
        for (name, agent), rng in zip(PLAYERS.items(), streams, strict=True):
            known = known_rng(rng) if job.compiled else rng
            watch = seen.append if name == LEARNED else None
            room = (lost[name][i], chosen)
            play_learner(
                job, AGENTS[agent], metas[name], start, instances, first, known, *room, watch
            )
            if progress is not None:
                progress(1)
        shape += [[prior.mean for prior in seen], [prior.scale for prior in seen]]
        seen.clear()
    mean, scale = shape / repetitions
    return Story(lost, mean, scale, rates)
