"""A small part of the study of the verdict: python -m benchmarks.verdict has the whole."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rows_of(part, logs, folder):
    """Answers by shape, of the shapes whose name has this part."""
    command = [sys.executable, "-m", "benchmarks.verdict", part, "--logs", str(logs)]
    subprocess.run([*command, "--out", str(folder)], cwd=ROOT, check=True, capture_output=True)
    results = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return {result["shape"]: result["rows"] for result in results}


@pytest.mark.heavy
@pytest.mark.statistical
def test_share_is_seldom_said_where_nothing_is_saved(tmp_path):
    found = rows_of("null:", 0.25, tmp_path)
    answers = [row["answer"] for rows in found.values() for row in rows]
    assert len(answers) > 70
    assert answers.count("share") <= 4  # more has a chance below 0.02 if it is said in 2 %


@pytest.mark.heavy
@pytest.mark.statistical
@pytest.mark.parametrize("part", ["power: 500 tasks, 10 %", "power: 100 tasks, 30 %"])
def test_share_is_said_where_much_is_saved(part, tmp_path):
    found = rows_of(part, 0.25, tmp_path)
    answers = [row["answer"] for rows in found.values() for row in rows]
    assert len(answers) > 20
    assert answers.count("share") >= 0.6 * len(answers)  # fewer: below 0.02 if 80 % are found


@pytest.mark.heavy
@pytest.mark.statistical
def test_tasks_that_are_alike_are_pooled(tmp_path):
    found = rows_of("alike:", 0.2, tmp_path)
    answers = [row["answer"] for rows in found.values() for row in rows]
    assert answers.count("one for all") >= 0.8 * len(answers)
