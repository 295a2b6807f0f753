"""The log of an experiment: the project's format, in two kinds of files, ready for a fit."""

import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import adats
from adats.learning.logs import statistics
from adats.service import export
from adats.service.messages import DecisionRequest, NewArm, RewardRequest
from command import call
from schedules import CASES, TENANT, Play, Rules, random_schedule, rules_that_fit
from served import GAUSSIAN, Local

RULES = Rules(several="last", window=10.0, default=0.0, holdout="control")
MODELS = {"semi-bandit": "gaussian"}  # what a fit calls the model of an experiment


@pytest.fixture
def local(tmp_path):
    local = Local(tmp_path / "x.db")
    yield local
    local.close()


def pieces(local, kind, name="x"):
    with local.store.view() as view:
        yield from export.log(view, view.experiment(TENANT, name), kind)


def rows(content, kind):
    if kind == "ndjson":
        return [json.loads(line) for line in content.splitlines()]
    return pq.read_table(io.BytesIO(content)).to_pylist()


def exported(local, kind, folder):
    """The rows, and the file that they are in."""
    content = b"".join(pieces(local, kind))
    path = folder / f"log.{kind}"
    path.write_bytes(content)
    return rows(content, kind), path


@pytest.mark.parametrize("model", CASES)
def test_both_kinds_of_log_have_the_statistics_of_the_store(tmp_path, monkeypatch, model):
    monkeypatch.setattr(export, "PIECE", 4)  # decisions: the log comes in several pieces
    case, rng = CASES[model], np.random.default_rng([4, list(CASES).index(model)])
    play = Play(tmp_path / "x.db", {"x": (case, rules_that_fit(case, RULES))}, compare=False)
    random_schedule(play, rng, 80, forget=True)
    book, served = play.books["x"], play.local.engine.served(TENANT, "x")
    linear = case.spec["model"] == "linear"
    ages = "half_life" in case.spec  # the log has rewards as they were, the store as they weigh
    options = {"model": MODELS.get(case.spec["model"], case.spec["model"])}
    options |= {"features": ["x0", "x1"]} if linear else {}
    found = {}
    for kind in export.FORMATS:
        assert len(list(pieces(play.local, kind))) > 1
        found[kind], path = exported(play.local, kind, tmp_path)
        table = statistics(path, **options, time="time").table
        rewarded = {task for task in book.tasks if served.stats(task).flat().any()}
        assert set(table.tasks) == rewarded
        for i, task in enumerate(table.tasks):
            own, due = table.stats(i), served.stats(task)
            if ages:
                continue
            if linear:
                np.testing.assert_allclose(own.moments, due.moments, rtol=1e-9, atol=1e-9)
                assert own.n == due.n
                continue
            places = [book.names.index(arm) for arm in table.arms]
            np.testing.assert_allclose(own.table, due.table[:, places], rtol=1e-9, atol=1e-9)
            assert due.count.sum() == own.count.sum()  # no arm is left out that was pulled
    assert found["ndjson"] == found["parquet"]
    expected = []
    for name, noted in book.decisions.items():
        reward = book.counted(noted, play.now)
        if reward is not None:
            several = isinstance(noted.action, list)
            pairs = zip(noted.action, reward, strict=True) if several else [(noted.action, reward)]
            expected += [(noted.task, arm, y, name, noted.time) for arm, y in pairs]
    columns = ("task", "arm", "reward", "decision_id", "time")
    assert [tuple(row[name] for name in columns) for row in found["ndjson"]] == expected
    chances = {name: np.ravel(n.decided.propensity) for name, n in book.decisions.items()}
    assert all(row["propensity"] in chances[row["decision_id"]] for row in found["ndjson"])
    play.close()


def test_the_rows_of_one_action_of_several_arms_share_its_decision_id(local, tmp_path):
    local.put("x", GAUSSIAN | {"model": "semi-bandit", "size": 2, "exactly": True})
    decided = local.decide("x", DecisionRequest("t", "d"))
    local.reward("x", RewardRequest("d", [1.0, 2.0]))
    for kind in export.FORMATS:
        found, _ = exported(local, kind, tmp_path)
        assert [row["decision_id"] for row in found] == ["d", "d"]
        assert [row["arm"] for row in found] == decided.action
        assert [row["reward"] for row in found] == [1.0, 2.0]
        assert [row["propensity"] for row in found] == decided.propensity


def test_features_are_those_of_the_arm_that_was_pulled(local, tmp_path):
    prior = {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.5}}
    local.put("x", {"model": "linear", "dim": 3, "noise": 1.0, "prior": prior})
    features = np.random.default_rng(5).normal(size=(4, 3)).tolist()
    decided = local.decide("x", DecisionRequest("t", "d", features))
    local.reward("x", RewardRequest("d", 1.0))
    for kind in export.FORMATS:
        (row,), _ = exported(local, kind, tmp_path)
        assert row["arm"] == decided.action
        assert [row[f"x{i}"] for i in range(3)] == features[decided.action]


@pytest.mark.parametrize("arms", [3, ["7", "8", "9"]])
def test_arms_are_numbers_where_they_have_no_names(local, tmp_path, arms):
    local.put("x", GAUSSIAN | {"arms": arms})
    for i in range(8):
        local.decide("x", DecisionRequest("t", str(i)))
        local.reward("x", RewardRequest(str(i), 1.0))
    for kind in export.FORMATS:
        found, path = exported(local, kind, tmp_path)
        assert {type(row["arm"]) for row in found} == {int if arms == 3 else str}
        if kind == "parquet":
            assert set(statistics(path, model="gaussian").table.arms) <= {0, 1, 2, "7", "8", "9"}


def test_names_that_look_like_something_else_stay_as_they_are(local, tmp_path):
    """Numbers, dates, identifiers: the two kinds of files are read to the same tasks."""
    tasks = ["7", "007", "2024-01-01", "0b9d2c4e-5c8b-4e9e-9b0e-0d8f1a2b3c4d", "true", "null", "é"]
    local.put("x", GAUSSIAN)
    for i, task in enumerate(tasks):
        local.decide("x", DecisionRequest(task, str(i)))
        local.reward("x", RewardRequest(str(i), float(i)))
    for kind in export.FORMATS:
        _, path = exported(local, kind, tmp_path)
        table = statistics(path, model="gaussian").table
        assert sorted(map(str, table.tasks)) == sorted(tasks)


@pytest.mark.parametrize("kind", export.FORMATS)
def test_an_empty_log_is_a_file_without_rows(local, tmp_path, kind):
    local.put("x", GAUSSIAN)
    local.decide("x", DecisionRequest("t"))
    found, path = exported(local, kind, tmp_path)
    assert found == []
    if kind == "parquet":
        columns = ["task", "arm", "reward", "propensity", "decision_id", "time"]
        assert pq.read_table(path).column_names == columns


@pytest.mark.parametrize("kind", export.FORMATS)
def test_the_log_is_that_of_one_moment_while_decisions_go_on(local, kind, monkeypatch):
    monkeypatch.setattr(export, "PIECE", 3)
    local.put("x", GAUSSIAN)
    for i in range(8):
        local.decide("x", DecisionRequest(f"t{i % 2}", str(i)))
        local.reward("x", RewardRequest(str(i), 1.0))
    stream = pieces(local, kind)
    content = next(stream)
    for i in range(8, 20):
        local.decide("x", DecisionRequest("t0", str(i)))
        local.reward("x", RewardRequest(str(i), 1.0))
    local.add_arm("x", NewArm("d", like="a"))
    local.forget("x", "t1")
    content += b"".join(stream)
    assert [row["decision_id"] for row in rows(content, kind)] == [str(i) for i in range(8)]
    after = rows(b"".join(pieces(local, kind)), kind)
    assert [row["decision_id"] for row in after] == [*"0246", *map(str, range(8, 20))]


@pytest.mark.parametrize("kind", export.FORMATS)
def test_a_prior_is_fitted_from_the_log_and_served_again(local, tmp_path, monkeypatch, kind):
    """The whole way: decisions, log, `adats fit`, and an experiment with the prior it gives."""
    local.put("x", GAUSSIAN | {"policy": {"epsilon": 0.5}})
    rng, count = np.random.default_rng(6), 0
    local.engine.begin()
    for task in range(30):
        theta = [1.0, 0.0, -1.0] + 0.3 * rng.standard_normal(3)
        for _ in range(12):
            count += 1
            decided = local.engine.decide(TENANT, "x", DecisionRequest(f"u{task}", str(count)))
            reward = theta["abc".index(decided.action)] + 0.5 * rng.standard_normal()
            local.engine.reward(TENANT, "x", RewardRequest(str(count), float(reward)))
    local.engine.flush()
    local.engine.commit()
    _, path = exported(local, kind, tmp_path)
    assert call(monkeypatch, "fit", "gaussian", path, "--out", tmp_path / "prior.json") == 0
    meta = adats.load_prior(tmp_path / "prior.json")
    np.testing.assert_allclose(meta.task_prior().mean, [1.0, 0.0, -1.0], atol=0.3)
    file = json.loads((tmp_path / "prior.json").read_text())
    local.put("y", {"model": "gaussian", "prior": {"file": file}, "seed": 1})
    parts = local.meta("y").parts
    assert [part.name for part in parts] == ["a", "b", "c"]
    np.testing.assert_allclose([part.mean for part in parts], meta.task_prior().mean)
