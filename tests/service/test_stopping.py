"""Whether to stop: from draws, from a meta-posterior, and over HTTP on both stores."""

import re

import numpy as np
import pytest

from adats import AdaTS
from adats.models import GaussianMeta
from adats.service import reports
from adats.service.evaluation.stopping import average_rewards, rounded, standing
from adats.service.http import app as served_app
from asgi import talk

AT = "/v1/experiments/x"


def draws(means, scale, runs=4000):
    """A belief of which the means and standard deviations are known."""
    rng = np.random.default_rng(1)
    return np.array(means) + scale * rng.standard_normal((runs, len(means)))


@pytest.mark.parametrize(
    ("means", "scale", "worth", "sentence", "settled"),
    [
        ((1.0, 1.2), 0.01, 0.01, "B is better than the control by 15 to 25 %.", True),
        ((1.0, 1.2), 0.1, 0.01, "Keep running: B may be better than the control, by", False),
        ((1.0, 0.9), 0.01, 0.02, "No difference worth having.", True),
        ((1.0, 1.0), 0.001, 0.02, "No difference worth having.", True),
        ((1.0, 0.99), 0.1, 0.02, "Keep running: no arm looks better than the control yet.", False),
        ((-1.0, 0.0), 0.01, 0.02, "B is better than the control by 0.95 to 1.1.", True),
        ((1.0, 2.0, 2.0), 0.1, 0.01, "Keep running: ", False),  # which of the two costs too much
    ],
)
def test_the_sentence_says_what_is_known(means, scale, worth, sentence, settled):
    found = standing(draws(means, scale), ["A", "B", "C"][: len(means)], 0, worth)
    assert found.sentence.startswith(sentence)
    assert found.settled == settled


def test_without_a_control_the_best_is_compared_with_the_others():
    found = standing(draws((1.0, 1.1, 1.5), 0.01), "ABC", None, 0.01)
    assert found.sentence.startswith("C is better than every other arm by 3")
    same = standing(draws((1.0, 1.0), 0.001), "AB", None, 0.02)
    assert same.sentence == "No difference worth having."
    assert standing(draws((1.0,), 0.1), "A", None).sentence == "Keep running."


def test_the_loss_is_what_the_best_would_earn_more():
    """Of two arms with independent normal beliefs: E max − max E, a closed form."""
    found = standing(draws((0.0, 0.1), 1.0, 200_000), "AB", 0)
    spread = np.sqrt(2)
    z = 0.1 / spread
    density, below = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), 0.5282
    assert found.loss == pytest.approx(spread * density - 0.1 * (1 - below), abs=0.01)
    assert found.best[1] == pytest.approx(below, abs=0.005)


@pytest.mark.statistical
def test_average_rewards_are_those_of_the_meta_posterior():
    agent = AdaTS(GaussianMeta([0.0, 0.0], 1.0, task_scale=0.5, noise=1.0), seed=1)
    rng = np.random.default_rng(2)
    for task in range(30):
        for arm in (0, 1):
            agent.tell(task=task, action=arm, reward=float(rng.normal(0.4 * arm, 1.0)))
    found = average_rewards(agent.meta, rng, draws=3000)
    assert found.shape == (3000, 2)
    mean = agent.meta.mean
    np.testing.assert_allclose(found.mean(axis=0), mean, atol=5 * found.std() / np.sqrt(3000))
    exact = 1 / (1 + 30 / (0.25 + 1.0))  # of mu: one reward a task, with the spread between tasks
    np.testing.assert_allclose(found.var(axis=0), exact, rtol=5 * np.sqrt(2 / 3000))


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [(12.34, "12", "13"), (-0.0567, "-0.057", "-0.056"), (692.4, "692", "693"), (0.0, "0", "0")],
)
def test_ends_are_rounded_to_the_outside(value, down, up):
    assert (rounded(value, down=True), rounded(value)) == (down, up)


def test_the_report_says_it_on_both_stores_and_metrics_count_alarms(url, monkeypatch):
    monkeypatch.setattr(served_app, "ALARM_PAUSE", 0.01)
    monkeypatch.setattr(reports, "alarms_of", lambda *_: ["One.", "Two."])
    looks, look = [], served_app.Service._alarms_of

    async def seen(service, *experiment):
        looks.append(experiment)
        return await look(service, *experiment)

    monkeypatch.setattr(served_app.Service, "_alarms_of", seen)
    spec = {
        "model": "gaussian",
        "arms": ["old", "new"],
        "noise": 0.1,
        "prior": {"given": {"mean": 1.0, "scale": 1.0, "task_scale": 0.01}},
        "control": "old",
        "holdout": {"share": 0.3},
        "worth": 0.01,
        "seed": 1,
    }

    def calls():
        yield "PUT", AT, spec
        for i in range(200):
            yield "POST", f"{AT}/decide", {"task": f"t{i}", "decision_id": str(i)}
            reward = 1.0 + (i % 7) / 70 + 0.3 * (i % 2)
            yield "POST", f"{AT}/reward", {"decision_id": str(i), "reward": reward}
        yield "GET", f"{AT}/report"
        while len(looks) < 2:  # the first is over when the second begins
            yield "GET", f"{AT}/report"
        yield "GET", "/metrics"

    *_, (_, report), (_, text) = talk(url, calls())
    assert report["alarms"] == ["One.", "Two."]
    assert report["stop"]["arms"][0].keys() == {"arm", "best"}
    assert report["sentence"]
    assert report["lift"]["holdout_decisions"] > 40
    assert report["lift_new_tasks"]["low"] == report["lift"]["low"] or report["lift"]["low"] is None
    assert re.search(r"^adats_alarms(\{.*\})? 2\.0$", text, re.MULTILINE)  # of a worker, or of all


def test_what_is_worth_having_cannot_be_negative(tmp_path):
    spec = {"model": "binary", "arms": 2, "prior": {"default": {}}, "worth": -1}
    ((code, answer),) = talk(tmp_path / "x.db", [("PUT", AT, spec)])
    assert (code, answer["field"]) == (422, "worth")
