"""Which compiled loops there are for a problem and a prior; Numba is loaded with the first one."""

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from adats.models.core.types import FloatArray, IntArray, MetaBelief, Rng, Stats

if TYPE_CHECKING:
    from adats.simulation.problems import Instance, Problem

NUMBERED = ("ts", "greedy", "ucb", "index", "far")  # policies, as compiled loops know them
TS, GREEDY, UCB, INDEX, FAR = range(5)


class CompiledPolicy(NamedTuple):
    """A policy in one task, as the compiled loops take it."""

    number: int  # its place in `NUMBERED`
    levels: FloatArray  # one a round: of Bayes-UCB, or the width of the far-sighted index
    counted: FloatArray  # rounds of later tasks that each arm counts
    delay: int = 0  # rounds until a reward is known
    rule: Callable[[float, float, float], float] | None = None  # of an `OwnIndex`

    def fields(self) -> tuple[int, FloatArray, FloatArray, int]:
        """As a plain tuple, which compiled functions take faster."""
        return self.number, self.levels, self.counted, self.delay


THOMPSON = CompiledPolicy(TS, np.zeros(0), np.zeros(0))


class LoopInput(NamedTuple):
    """One task of one run: what a loop is given, and what it fills."""

    prior: Any
    instance: "Instance"
    first: IntArray  # arms that forced exploration pulls, one row a round, padded with -1
    rng: Rng
    regret: FloatArray  # of every round
    actions: IntArray  # the arm of every round; untouched where actions are sets
    policy: CompiledPolicy = THOMPSON

    def world(self) -> tuple[FloatArray, IntArray, FloatArray, FloatArray, IntArray]:
        """What all compiled loops need: theta, first, draws, regret and actions."""
        instance = self.instance
        return instance.theta, self.first, instance.draws, self.regret, self.actions


M = TypeVar("M", bound=MetaBelief)
Loop = Callable[[Any, LoopInput], Stats | None]
Absorb = Callable[[MetaBelief, Stats], MetaBelief]
Renew = Callable[[MetaBelief, Stats], Stats]


class Loops(NamedTuple):
    """Compiled loops for one kind of problem and prior; None where there is none.

    `play` fills the task and gives its statistics, or gives None where it does not serve. `learn`
    is for the meta-belief whose task prior is the prior: it with one more task absorbed. `renew`
    brings stale statistics up to date with it. `play_all` plays all tasks of a run, as `play` and
    `learn` would, and says whether it does. `own_index` says whether `play` takes an `OwnIndex`.
    `aged` is `play`, for policies that wait for no reward, where rewards lose weight by three
    factors: each round in their task and in what all taught, which is in the meta-belief, and with
    each reward those of its arm.
    """

    play: Loop | None = None
    learn: Absorb | None = None
    renew: Renew | None = None
    play_all: Callable[..., bool] | None = None
    own_index: bool = False
    aged: Callable[[LoopInput, Any, tuple[float, float, float]], Stats] | None = None


GAUSSIAN_ARMS: dict[str, Any] = {  # independent, one pulled a round
    "play": "gaussian.play",
    "learn": "gaussian.learn",
    "play_all": "gaussian.play_all",
    "own_index": True,
    "aged": "moving.aged",
}
_LOOPS: dict[tuple[type, str], dict[str, Any]] = {}


def register(problem: type, belief: str, **loops: Any) -> None:
    """The loops for a class of problems and a belief's `NAME`, as fields of `Loops`.

    "gaussian.play" is that function of the module in this folder, which is imported with the first
    task. They serve subclasses too, unless a subclass registers its own.
    """
    _LOOPS[problem, belief] = loops
    _loaded.cache_clear()


def loops_of(problem: "Problem", prior: Any) -> Loops:
    """The loops for a problem and a prior of any kind."""
    return _loaded(type(problem), getattr(prior, "NAME", ""))


@functools.cache
def _loaded(problem: type, belief: str) -> Loops:
    for kind in problem.__mro__:
        if (kind, belief) in _LOOPS:
            return Loops(**{name: found(loop) for name, loop in _LOOPS[kind, belief].items()})
    return Loops()


def found(loop: Any) -> Any:
    """The function of a module in this folder that has this name; or what is one already."""
    if not isinstance(loop, str):
        return loop
    module, _, function = loop.partition(".")
    return getattr(importlib.import_module(f"{__package__}.{module}"), function)


def absorb_of(problem: "Problem", meta: MetaBelief) -> Absorb:
    """How a task's statistics get into a meta-belief of this kind, compiled where that pays."""
    return loops_of(problem, meta.task_prior()).learn or plain_absorb


def plain_absorb(meta: M, stats: Stats) -> M:
    return meta.absorb(meta.digest(stats).message)


def has_numba() -> bool:
    return importlib.util.find_spec("numba") is not None


def known_rng(rng: Rng) -> Rng:
    """The same generator, with a type that Numba knows at once."""
    from adats.simulation.kernels.common import KnownRng

    return KnownRng(rng.bit_generator)
