"""A part of the studies of lift, sentences and alarms: docs/math/lift.md has the whole."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows_of(study, *options):
    """The cells of the table that a study prints."""
    command = [sys.executable, "-m", f"benchmarks.{study}", *options]
    text = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def share(cell):
    return float(cell.rstrip("%")) / 100


@pytest.mark.heavy
@pytest.mark.statistical
@pytest.mark.parametrize("rewards", ["1 %", "20 %", "skewed"])
def test_intervals_hold_at_every_look(rewards):
    rows = rows_of("lift", rewards, "--quick", "--seed", "5")
    assert len(rows) == 10
    for world, *found in rows:
        safe, once, relative, new_tasks = map(share, found[:4])
        assert min(safe, relative, new_tasks) > 0.9, world  # below: 0.01, if 94 % hold in 200 runs
        assert once < 0.9
        assert found[4] == "-" or float(found[4]) < 2.0, world


@pytest.mark.heavy
@pytest.mark.statistical
def test_sentences_are_seldom_wrong():
    rows = rows_of("sentences", "--runs", "4", "--seed", "5")
    assert sum(int(row[5]) for row in rows) > 200
    assert sum(int(row[7]) for row in rows) <= 4  # of 32: more has a chance of 0.02 if 5 % are


@pytest.mark.heavy
@pytest.mark.statistical
def test_alarms_are_seldom_false_and_often_right():
    for name, false, _, found in rows_of("alarms", "--quick", "--seed", "5"):
        assert share(false) <= 0.12, name  # of 50: more has a chance of 0.01 if 5 % are
        assert share(found) >= 0.3, name
