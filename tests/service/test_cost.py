"""A prior that every decision would wait for is refused before it is built."""

import numpy as np
import pytest

import adats
from adats.models import BetaArms, GaussianMeta, LatentMeta, LinearMeta, MixtureMeta, ModelMixture
from adats.models.prior_files import prior_to_dict
from adats.service import engine, priors
from adats.service.errors import Invalid
from adats.service.messages import DecisionRequest
from served import Local, call, process


@pytest.fixture
def local(tmp_path):
    local = Local(tmp_path / "x.db")
    yield local
    local.close()


def names(count):
    return [f"a{i}" for i in range(count)]


def ensemble(part, count):
    """The file of so many models that are the same."""
    file = prior_to_dict(ModelMixture([0.5, 0.5], [part, part]))
    same, logs = file["prior"]["models"][0], [-float(np.log(count))] * count
    return file | {"prior": file["prior"] | {"models": [same] * count, "log_weights": logs}}


def gaussian(arms):
    return GaussianMeta(np.zeros(arms), 1.0, task_scale=0.5, noise=1.0, arms=names(arms))


def linear(dim):
    return LinearMeta(np.zeros(dim), 1.0, task_cov=0.5, noise=1.0)


def mixture(candidates, arms):
    table = np.ones((candidates, arms))
    weights = np.full(candidates, 1 / candidates)
    return prior_to_dict(MixtureMeta(weights, BetaArms(table, table), arms=names(arms)))


def latent(candidates, arms):
    """In few figures: the covariances are numbers."""
    small = LatentMeta(np.zeros((2, 2)), np.ones((2, 1, 1)) * np.eye(2), task_scale=0.5, arms="ab")
    data = prior_to_dict(small)
    means = np.zeros((candidates, arms)).tolist()
    logs = [-float(np.log(candidates))] * candidates
    return data | {
        "prior": data["prior"] | {"mean": means, "log_weights": logs, "arms": names(arms)}
    }


TOO_MUCH = {
    "8,000 models": ("gaussian", lambda: ensemble(gaussian(2), 8000)),
    "models of many arms": ("gaussian", lambda: ensemble(gaussian(400), 51)),
    "models of many features": ("linear", lambda: ensemble(linear(100), 201)),
    "a joint mixture": ("binary", lambda: mixture(50, 401)),
    "arms that move together": ("binary", lambda: latent(9, 500)),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_a_prior_that_costs_too_much_is_refused_before_it_is_built(local, monkeypatch, case):
    model, make = TOO_MUCH[case]
    spec = {"model": model, "prior": {"file": make()}}

    def build(*_):
        raise AssertionError("it was built")

    monkeypatch.setattr(priors, "prior_from_dict", build)
    with pytest.raises(Invalid, match="at most 20,000") as refused:
        local.put("x", spec)
    assert refused.value.field == "prior.file"


def test_candidates_in_figures_count_times_arms(local):
    def spec(count):
        figures = {name: [[1.0] * 100] * count for name in ("alpha", "beta")}
        given = {"weights": [1 / count] * count, **figures}
        return {"model": "binary", "arms": names(100), "prior": {"given": given}}

    with pytest.raises(Invalid, match="here 20,100") as refused:
        local.put("x", spec(201))
    assert refused.value.field == "prior.given.weights"
    assert local.put("x", spec(200))[0]


@pytest.mark.parametrize(
    ("model", "meta"),
    [
        ("gaussian", adats.default_prior(arms=names(500), rewards="number", scale=1.0)),
        ("binary", adats.default_prior(arms=names(100), rewards="binary")),
        ("linear", adats.default_prior(dim=64, rewards="number", scale=1.0)),
    ],
    ids=["number", "binary", "linear"],
)
def test_the_files_of_default_priors_are_taken(local, model, meta):
    assert local.put("x", {"model": model, "prior": {"file": prior_to_dict(meta)}})[0]


def test_an_experiment_of_before_the_limit_goes_on(tmp_path, monkeypatch):
    spec = {"model": "gaussian", "prior": {"file": ensemble(gaussian(2), 1001)}}
    local = Local(tmp_path / "x.db")
    with monkeypatch.context() as before:
        before.setattr(engine, "check_cost", lambda _: None)
        local.put("x", spec)
    local.close()
    local = Local(tmp_path / "x.db")
    try:
        assert local.put("x", spec)[0] is False  # the same again
        assert local.decide("x", DecisionRequest("t", "1")).action in ("a0", "a1")
        with pytest.raises(Invalid):
            local.put("y", spec)
    finally:
        local.close()


def test_the_service_says_what_is_too_much(tmp_path):
    with process(tmp_path / "x.db") as service:
        body = {"model": "gaussian", "prior": {"file": ensemble(gaussian(2), 8000)}}
        status, answer, _ = call(f"{service.url}/v1/experiments/x", "PUT", body)
        assert (status, answer["field"]) == (422, "prior.file")
        assert "take fewer of them" in answer["error"]
