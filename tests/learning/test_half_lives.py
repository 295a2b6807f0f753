"""Half-lives from a log: none where nothing moves, near the right one where something does."""

import json

import numpy as np
import pandas as pd
import pytest

import adats
from adats.learning import half_lives as lives
from adats.learning import logs
from adats.learning.fitting import estimate
from adats.learning.log_columns import planned
from command import call


def a_log(model, *, tasks=40, rounds=30, arms=3, apart=0.4, walk=0.0, own=0.0, seed=0):
    """Tasks one after another, two days apart, a reward an hour; mu and theta may walk."""
    rng = np.random.default_rng(seed)
    mu, rows = rng.normal(size=arms), []
    for task in range(tasks):
        mu = mu + walk * rng.normal(size=arms)
        theta = mu + apart * rng.normal(size=arms)
        for i in range(rounds):
            theta = theta + own * rng.normal(size=arms)
            arm = int(rng.integers(arms))
            reward = theta[arm] + rng.normal()
            if model == "binary":
                reward = float(rng.random() < 1 / (1 + np.exp(1 - theta[arm])))
            time = pd.Timestamp("2026-01-01") + pd.Timedelta(hours=48 * task + i)
            rows.append((f"t{task:03d}", f"a{arm}", reward, time))
    return pd.DataFrame(rows, columns=["task", "arm", "reward", "time"])


def parts(frame, model, structure="independent"):
    plan = planned(frame, model=model, time="time")
    table = logs.statistics(plan, on_bad="raise").table
    rows = logs.rows(plan, tasks=table.tasks, arms=table.arms)
    return table, estimate(table, model=model, structure=structure), rows, plan


@pytest.mark.parametrize("structure", ["independent", "level", "exchangeable"])
def test_scores_without_forgetting_add_up_to_the_evidence(structure):
    """By the chain rule, of the prior before the log."""
    table, fitted, rows, _ = parts(a_log("gaussian", tasks=12), "gaussian", structure)
    meta = lives.widened(fitted)
    for i, one in enumerate(rows):
        assert one.task == table.tasks[i]
        design = None if fitted.designs is None else fitted.designs[i]
        stats = fitted.stats(table, i) if fitted.stats else meta.empty() + table.stats(i)
        meta = meta.absorb(meta.digest(stats, design=design).message)
    scores = lives.PlayedAgain(fitted, rows, range(len(rows))).densities((None, None))
    assert scores.sum() == pytest.approx(meta.log_evidence(), rel=1e-9)


def test_what_a_faded_prior_knows_is_what_an_agent_knows_that_was_told_the_log():
    table, fitted, rows, plan = parts(a_log("gaussian", tasks=12), "gaussian")
    last, life = logs.last_times(plan, tasks=table.tasks), 5 * 86_400.0
    np.testing.assert_array_equal(last, [one.times[-1] for one in rows])
    faded = lives.faded_prior(table, fitted, last, life)
    agent = adats.AdaTS(lives.widened(fitted), seed=1, prior_half_life=life)
    for one in rows:
        for action, reward, time in zip(one.actions, one.rewards, one.times, strict=True):
            arm = table.arms[action]
            agent.tell(task=one.task, action=arm, reward=float(reward), time=float(time))
    np.testing.assert_allclose(faded.mean, agent.meta.mean, rtol=1e-9)
    np.testing.assert_allclose(faded.scale, agent.meta.scale, rtol=1e-9)


@pytest.mark.parametrize("model", ["gaussian", "binary"])
def test_none_is_chosen_where_nothing_moves(model):
    for seed in range(3):
        log = a_log(model, seed=seed, tasks=20)
        found = adats.analyse(
            log, model=model, structure="independent", time="time", half_life="auto"
        )
        assert found.half_lives.chosen is None
        assert found.half_lives.sentence.startswith("No half-life predicts better than none")
        assert ("none was tried" in found.half_lives.sentence) == (model == "binary")
        assert found.prior is found.fitted.meta
        assert found.fitted.about["half_life"] is None


def test_a_prior_that_walks_gets_a_half_life_of_a_few_tasks():
    """A step of 0.4 a task, where tasks differ by 0.3: what is right forgets half in one or two."""
    found = adats.analyse(
        a_log("gaussian", walk=0.4, apart=0.3), model="gaussian", time="time", half_life="auto"
    )
    chosen = found.half_lives
    assert chosen.half_life is None
    assert 0.5 < chosen.prior_half_life / (48 * 3600) < 6
    assert chosen.chosen.sure
    assert "The log moves: a prior half-life of" in chosen.sentence
    assert f"prior_half_life={chosen.prior_half_life:.4g}" in chosen.sentence
    assert found.fitted.about["prior_half_life"] == chosen.prior_half_life
    late = a_log("gaussian", walk=0.4, apart=0.3).query("task >= 't035'")
    means = late.groupby("arm").reward.mean().to_numpy()
    near = np.abs(found.prior.task_prior().mean - means).max()
    assert near < np.abs(found.fitted.meta.task_prior().mean - means).max()


@pytest.mark.parametrize("model", ["gaussian", "binary"])
def test_tasks_that_walk_get_a_half_life_of_rewards(model):
    table, fitted, rows, _ = parts(a_log(model, own=0.6, tasks=30, rounds=40), model)
    found = lives.half_lives(table, fitted, rows)
    assert found.half_life is not None
    assert 1 < found.half_life / 3600 < 30


def test_clicks_that_share_a_level_can_be_played_again():
    _, fitted, rows, _ = parts(a_log("binary", tasks=10, rounds=8), "binary", "level")
    game = lives.PlayedAgain(fitted, rows, range(len(rows)))
    for pair in ((None, None), (None, 5 * 86_400.0), (6 * 3600.0, None)):
        densities = game.densities(pair)
        assert (densities < 0).all()
        assert (densities > 3 * 8 * np.log(0.5)).all()


def test_a_prior_without_a_width_is_asked_about_rewards_only():
    table, fitted, rows, _ = parts(a_log("binary", tasks=12), "binary")
    assert lives.widened(fitted) is None
    assert all(score.prior_half_life is None for score in lives.half_lives(table, fitted, rows)[2])


def test_too_few_tasks_are_said():
    table, fitted, rows, _ = parts(a_log("gaussian", tasks=12), "gaussian")
    assert "it takes 10 tasks with times, not 90 rewards of 3 tasks" in (
        lives.half_lives(table, fitted, rows[:3]).sentence
    )


def test_logs_without_times_and_other_words_are_one_clear_line():
    log = a_log("gaussian", tasks=12)
    with pytest.raises(ValueError, match=r"half_life 'auto' compares predictions .* --time"):
        adats.analyse(log.drop(columns="time"), model="gaussian", half_life="auto")
    with pytest.raises(ValueError, match="half_life must be 'auto', or None for never, got 7"):
        adats.analyse(log, model="gaussian", time="time", half_life=7)


def test_the_command_says_it_writes_it_and_shows_it(tmp_path, monkeypatch, capsys):
    log, prior = tmp_path / "log.csv", tmp_path / "prior.json"
    a_log("gaussian", own=0.6, tasks=20).to_csv(log, index=False)
    options = ["--time", "time", "--half-life", "auto", "--out", str(prior)]
    report = tmp_path / "report"
    assert not call(monkeypatch, "fit", "gaussian", log, *options, "--report", report)
    assert "The log moves: a half-life of" in " ".join(capsys.readouterr().out.split())
    about = json.loads(prior.read_text())["about"]
    assert about["half_life_unit"] == "seconds"
    assert about["half_life"] > 0
    text = (report / "report.md").read_text()
    assert "| half-life | prior half-life | gain |" in text
    assert "The log moves: a half-life of" in text
