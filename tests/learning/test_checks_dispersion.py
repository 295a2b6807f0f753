"""Successes that vary too much from batch to batch: the mathematics, the rule, and the warning."""

from itertools import product
from math import comb, factorial

import numpy as np
import pytest

from adats.learning import checks as module
from adats.learning.checks import dispersion
from adats.learning.logs import Batches


def simulated(rng, *, cells=40, batches=8, pulls=40, rate=0.05, repeats=1, model="binary"):
    """Every visitor comes so many times, and does the same each time."""
    cell = np.repeat(np.arange(cells), batches)
    visitors = 1 + rng.poisson(pulls * rng.lognormal(0.0, 0.7, cell.size))
    rates = np.repeat(rate * rng.uniform(0.5, 1.5, cells), batches)
    wins = rng.binomial(visitors, rates) if model == "binary" else rng.poisson(visitors * rates)
    return Batches(cell, (repeats * visitors).astype(float), (repeats * wins).astype(float))


def ways(model, pulls, total):
    """All ways to deal successes to batches, and the chance of each."""
    for dealt in product(*(range(total + 1) for _ in pulls)):
        if sum(dealt) != total:
            continue
        if model == "binary":
            chance = np.prod([comb(n, k) for n, k in zip(pulls, dealt, strict=True)])
            chance = chance / comb(sum(pulls), total)
        else:
            chance = factorial(total) * np.prod(
                [(n / sum(pulls)) ** k / factorial(k) for n, k in zip(pulls, dealt, strict=True)]
            )
        if chance > 0:
            yield dealt, chance


@pytest.mark.parametrize("model", ["binary", "count"])
def test_mean_and_variance_are_exact(model, monkeypatch):
    """Against all ways to deal six successes to three batches."""
    pulls, seen = (5, 8, 4), []
    monkeypatch.setattr(module, "EXPECTED", 0.5)  # nothing is joined
    monkeypatch.setattr(module, "gammaincc", lambda shape, x: seen.append((shape, x)) or 0.5)
    squares, chances = [], []
    for dealt, chance in ways(model, pulls, 6):
        batches = Batches(np.zeros(3, int), np.array(pulls, float), np.array(dealt, float))
        found = dispersion(batches, model=model)
        squares.append(found.factor * found.degrees)
        chances.append(chance)
    assert sum(chances) == pytest.approx(1.0)
    mean = np.dot(chances, squares)
    variance = np.dot(chances, (np.array(squares) - mean) ** 2)
    assert found.degrees == pytest.approx(mean)
    assert seen[-1][0] == pytest.approx(mean**2 / variance)


@pytest.mark.statistical
@pytest.mark.parametrize("model", ["binary", "count"])
@pytest.mark.parametrize(
    "size",
    [
        {"cells": 1, "batches": 30, "pulls": 100, "rate": 0.02},
        {"cells": 3, "batches": 10, "pulls": 10, "rate": 0.1},
        {"cells": 200, "batches": 7, "pulls": 30, "rate": 0.02},
        {"cells": 50, "batches": 20, "pulls": 5, "rate": 0.2},
    ],
)
def test_false_alarms_are_rare(model, size):
    """At most one in a hundred: of 300 logs not more than 8, which has a chance of 1 %."""
    rng = np.random.default_rng(1)
    found = [dispersion(simulated(rng, model=model, **size), model=model) for _ in range(300)]
    assert sum(one.warning is not None for one in found) <= 8
    factors = [one.factor for one in found if one.degrees]
    assert abs(np.mean(factors) - 1) < 4 * np.std(factors) / np.sqrt(len(factors))


@pytest.mark.statistical
@pytest.mark.parametrize("model", ["binary", "count"])
def test_repeat_visitors_are_seen(model):
    rng = np.random.default_rng(2)
    found = [dispersion(simulated(rng, repeats=3, model=model), model=model) for _ in range(20)]
    assert all(one.warning for one in found)
    assert np.mean([one.factor for one in found]) == pytest.approx(3.0, rel=0.1)
    assert f"vary {found[0].factor:.2g} times as much as chance allows" in found[0].warning
    assert "divide pulls and successes by" in found[0].warning


def test_joining_batches_keeps_the_factor():
    """Visitors as batches, three pulls each: alone a batch expects far less than one success."""
    rng = np.random.default_rng(3)
    wins = 3.0 * (rng.random(6000) < 0.02)
    batches = Batches(np.repeat(np.arange(3), 2000), np.full(6000, 3.0), wins)
    found = dispersion(batches, model="binary")
    assert found.factor == pytest.approx(3.0, rel=0.5)
    assert found.warning


def test_nothing_to_compare_is_no_alarm():
    one = np.ones(4)
    nothing = Batches(np.zeros(0, int), np.zeros(0), np.zeros(0))
    single = Batches(np.arange(4), 10 * one, one)  # a batch a cell
    never = Batches(np.array([0, 0, 1, 1]), 100 * one, 0 * one)
    always = Batches(np.array([0, 0, 1, 1]), 100 * one, 100 * one)
    for batches in (nothing, single, never, always):
        assert dispersion(batches, model="binary") == (1.0, 0.0, 1.0)
    small = Batches(np.array([0, 0, 0, 0]), 1e5 * one, 1e5 * np.array([0.5, 0.51, 0.49, 0.5]))
    assert dispersion(small, model="binary").warning  # drift
    mild = module.Dispersion(1.05, 1e6, 1e-9)
    assert mild.warning is None
