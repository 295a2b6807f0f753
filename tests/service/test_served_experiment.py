"""The agent of an experiment: keyed randomness, a cache, rewards taken back, views, new arms."""

import numpy as np
import pytest

import adats
from adats.models.prior_files import prior_to_dict
from adats.service import engine, task_cache
from adats.service.errors import Invalid
from adats.service.messages import DecisionRequest, NewArm, RewardBatchRequest, RewardRequest
from schedules import CASES, CLOSE, TENANT, Play, Rules, random_rules, random_schedule
from served import GAUSSIAN, Local


@pytest.fixture
def local(tmp_path):
    local = Local(tmp_path / "x.db")
    yield local
    local.close()


def answer(decided):
    return decided.action, decided.propensity, decided.holdout


# Randomness belongs to (experiment seed, decision_id), and to nothing else

HOLDOUT = {"policy": {"epsilon": 0.2}, "holdout": {"share": 0.3, "to": "uniform"}}
KEYED = {
    "gaussian": GAUSSIAN | HOLDOUT,
    "binary": {"model": "binary", "arms": ["a", "b", "c"], "prior": {"default": {}}} | HOLDOUT,
    "linear": {
        "model": "linear",
        "dim": 2,
        "features": [[1.0, 0.0], [0.0, 1.0], [0.7, 0.7]],
        "noise": 1.0,
        "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.5}},
    }
    | HOLDOUT,
    "semi-bandit": GAUSSIAN | {"model": "semi-bandit", "size": 2},
}


@pytest.mark.parametrize("kind", KEYED)
def test_the_order_of_decisions_that_change_no_belief_does_not_matter(local, kind):
    keys = [(f"t{i % 3}", f"d{i}") for i in range(25)]
    for name, order in (("x", keys), ("y", keys[::-1])):
        local.put(name, KEYED[kind] | {"seed": 11})
        for task, key in order:
            local.decide(name, DecisionRequest(task, key))
    for _, key in keys:
        rows = [local.store.decision(experiment, key) for experiment in (1, 2)]
        assert rows[0].action == rows[1].action
        assert rows[0].propensity == rows[1].propensity
        assert rows[0].holdout == rows[1].holdout
        assert rows[0].explored == rows[1].explored


@pytest.mark.parametrize("kind", KEYED)
def test_another_seed_or_another_decision_id_is_another_draw(local, kind):
    """The same actions everywhere would happen once in 3²⁵ times."""
    for name, seed in (("x", 11), ("y", 12)):
        local.put(name, KEYED[kind] | {"seed": seed})
    drawn = {
        name: [str(local.decide(name, DecisionRequest("t", f"d{i}")).action) for i in range(25)]
        for name in "xy"
    }
    assert drawn["x"] != drawn["y"]
    assert len(set(drawn["x"])) > 1


def test_a_decision_does_not_depend_on_refused_requests_or_other_experiments(local):
    local.put("x", KEYED["gaussian"] | {"seed": 11})
    local.put("y", KEYED["gaussian"] | {"seed": 11})
    for i in range(20):
        with pytest.raises(Invalid):
            local.decide("x", DecisionRequest("t", f"d{i}", allowed=["nobody"]))
        local.put(f"z{i}", KEYED["binary"] | {"seed": i})
        local.decide(f"z{i}", DecisionRequest("t", f"d{i}"))
        pair = [local.decide(name, DecisionRequest("t", f"d{i}")) for name in "xy"]
        assert answer(pair[0]) == answer(pair[1])


def test_held_out_or_not_the_policys_own_draw_is_the_same(local):
    """The holdout is drawn after it, so that experiments with and without one can be compared."""
    local.put("x", GAUSSIAN | {"seed": 3})
    local.put("y", GAUSSIAN | {"seed": 3, "control": "b", "holdout": {"share": 0.3}})
    for i in range(40):
        pair = [local.decide(name, DecisionRequest("t", f"d{i}")) for name in "xy"]
        assert pair[1].action == ("b" if pair[1].holdout else pair[0].action)


# Tasks that are not in memory


@pytest.mark.parametrize("kind", CASES)
def test_a_small_cache_gives_the_same_answers(tmp_path, monkeypatch, kind):
    """Neither do all tasks have to be in memory, nor all experiments."""
    case = CASES[kind]
    stores = []
    for small in (False, True):
        if small:
            monkeypatch.setattr(engine, "MEMORY", 0)  # only the last experiment stays
            monkeypatch.setattr(task_cache, "FEWEST", 1)
            monkeypatch.setattr(task_cache, "MEMORY", 0.0)
        rng = np.random.default_rng([7, list(CASES).index(kind)])
        rules = {name: (case, random_rules(rng, case)) for name in "xy"}
        play = Play(tmp_path / f"{small}.db", rules, compare=False)
        random_schedule(play, rng, 70)
        play.decide("x", play.ask("x", "a new task", 1))
        if small:
            assert len(play.local.engine.served(TENANT, "x").task_cache) == 1
        stores.append([n.decided for book in play.books.values() for n in book.decisions.values()])
        stores[-1].append(
            [
                (p.mean, p.scale)
                for name, book in play.books.items()
                for task in book.tasks
                for p in play.local.task(name, task).parts
            ]
        )
        play.close()
    assert stores[0] == stores[1]


def test_the_cache_is_as_large_as_its_bytes_allow(local, monkeypatch):
    monkeypatch.setattr(task_cache, "MEMORY", 0.0)
    local.put("x", GAUSSIAN)
    for i in range(80):
        local.decide("x", DecisionRequest(f"t{i}", str(i)))
        local.reward("x", RewardRequest(str(i), 1.0))
    served = local.engine.served(TENANT, "x")
    assert len(served.task_cache) == 64  # at least so many
    assert local.meta("x").tasks == 80
    assert served.stats("t0").count.sum() == 1.0  # read again


# Rewards that are taken back


@pytest.mark.parametrize("wild", [1e9, -3e7, 1e14])
@pytest.mark.parametrize("kind", ["gaussian", "linear", "semi-bandit", "count", "scales"])
def test_a_wild_reward_that_is_replaced_leaves_no_trace(tmp_path, kind, wild):
    case = CASES[kind]
    if kind == "count":
        wild = abs(wild)
    play = Play(tmp_path / "x.db", {"x": (case, Rules(several="last"))}, compare=False)
    rng = np.random.default_rng(8)
    for i in range(12):
        play.decide("x", play.ask("x", f"t{i % 2}", i))
        sizes = np.shape(play.books["x"].decisions[f"d{i + 1}"].action)
        if i == 5:
            play.reward("x", RewardRequest(f"d{i + 1}", np.full(sizes, wild).tolist()))
        usual = rng.poisson(2.0, sizes) if kind == "count" else rng.normal(size=sizes)
        play.reward("x", RewardRequest(f"d{i + 1}", np.asarray(usual, dtype=float).tolist()))
    play.check("x")
    play.close()


def test_nor_does_one_beside_large_rewards_of_another_arm(local):
    """The round-off of an arm is measured by that arm."""
    prior = {"given": {"mean": 0.0, "scale": 1.0, "task_scale": 1.0}}
    local.put("x", GAUSSIAN | {"prior": prior, "several": "last"})
    for i, arm in enumerate("abb"):
        local.decide("x", DecisionRequest("t", str(i), allowed=[arm]))
    local.reward("x", RewardRequest("0", 1e7))  # an arm whose rewards are large
    local.reward("x", RewardRequest("1", 0.123456789))
    local.reward("x", RewardRequest("2", 9.9e9))  # a mistake
    local.reward("x", RewardRequest("2", 0.1))
    own = local.engine.served(TENANT, "x").posterior("t")
    agent = adats.AdaTS(adats.GaussianMeta([0.0] * 3, 1.0, task_scale=1.0, noise=1.0), seed=0)
    for arm, reward in enumerate([[1e7], [0.123456789, 0.1]]):
        agent.tell(task="t", action=[arm] * len(reward), reward=reward)
    np.testing.assert_allclose(own.mean, agent.posterior("t").mean, **CLOSE)


@pytest.mark.parametrize("kind", ["gaussian", "linear"])
def test_many_wild_rewards_in_one_request_count_the_task_again_once(local, monkeypatch, kind):
    read, real = [], local.store.decisions_of

    def decisions_of(*asked):
        read.append(asked)
        return real(*asked)

    monkeypatch.setattr(local.store, "decisions_of", decisions_of)
    local.put("x", KEYED[kind] | {"several": "last"})
    for i in range(4):
        local.decide("x", DecisionRequest("t", str(i)))
    told = [RewardRequest("0", 1e9 if i % 2 else i / 8) for i in range(100)]
    told[50:50] = [RewardRequest("1", 0.25), RewardRequest("2", -0.5)]
    local.rewards("x", RewardBatchRequest([*told, RewardRequest("0", 0.75)]))
    assert len(read) == 1
    own = local.engine.served(TENANT, "x").posterior("t")
    local.put("y", KEYED[kind] | {"several": "last"})
    for i in range(4):
        local.decide(
            "y", DecisionRequest("t", str(i), allowed=[local.store.decision(1, str(i)).action])
        )
    for i, reward in enumerate([0.75, 0.25, -0.5]):
        local.reward("y", RewardRequest(str(i), reward))
    plain = local.engine.served(TENANT, "y").posterior("t")
    np.testing.assert_allclose(own.mean, plain.mean, **CLOSE)
    np.testing.assert_allclose(own.scale, plain.scale, **CLOSE)


def test_a_decision_of_the_same_commit_knows_the_task_without_the_wild_reward(local):
    """It is made from what one is made from after the commit, but for what others taught."""
    for name in "xy":
        local.put(name, GAUSSIAN | {"several": "last", "seed": 1})
        for i, arm in enumerate("abc" * 4):
            local.decide(name, DecisionRequest("t", str(i), allowed=[arm]))
            local.reward(name, RewardRequest(str(i), i / 8))
    for name, wild in (("x", 1e15), ("y", None)):
        local.engine.begin()
        for reward in (wild, 0.625):
            if reward is not None:
                local.engine.reward(TENANT, name, RewardRequest("5", reward))
        local.engine.decide(TENANT, name, DecisionRequest("t", "next"))
        local.engine.flush()
        local.engine.commit()
    one, other = (local.store.decision(experiment, "next") for experiment in (1, 2))
    assert one.action == other.action
    np.testing.assert_allclose(one.propensity, other.propensity, **CLOSE)


# Views


def test_how_much_of_a_belief_comes_from_the_task_itself(local):
    """By hand: n pulls of an arm whose prior variance is v weigh n·v against the noise σ²."""
    prior = {"given": {"mean": 1.0, "scale": 0.0, "task_scale": 0.5}}  # mu is known
    local.put("x", GAUSSIAN | {"prior": prior, "noise": 2.0})
    for i, (arm, reward) in enumerate([("a", 3.0), ("a", 5.0), ("a", 4.0), ("b", 0.0)]):
        local.decide("x", DecisionRequest("t", str(i), allowed=[arm]))
        local.reward("x", RewardRequest(str(i), reward))
    parts = {part.name: part for part in local.task("x", "t").parts}
    for arm, pulls, mean in (("a", 3, 4.0), ("b", 1, 0.0), ("c", 0, 0.0)):
        weight = pulls * 0.25 / (pulls * 0.25 + 4.0)
        part = parts[arm]
        assert part.pulls == pulls
        assert part.from_task == pytest.approx(weight)
        assert part.from_prior == pytest.approx(1 - weight)
        assert (part.prior_mean, part.prior_scale) == (pytest.approx(1.0), pytest.approx(0.5))
        assert part.mean == pytest.approx((1 - weight) * 1.0 + weight * mean)
        assert part.scale == pytest.approx(0.5 * (1 - weight) ** 0.5)


def test_what_the_others_taught_is_prior_and_not_the_tasks_own(local):
    """By hand, for one arm: two tasks, mu ~ N(0, 1), theta ~ N(mu, 1), rewards N(theta, 1)."""
    prior = {"given": {"mean": 0.0, "scale": 1.0, "task_scale": 1.0}}
    local.put("x", GAUSSIAN | {"arms": ["a"], "prior": prior, "noise": 1.0})
    local.decide("x", DecisionRequest("t", "0"))
    local.decide("x", DecisionRequest("other", "1"))
    local.reward("x", RewardRequest("1", 3.0))
    (part,) = local.task("x", "t").parts
    assert part.prior_mean == part.mean == pytest.approx(1.0)  # 3 · 1 / (1 + 2)
    assert part.prior_scale == part.scale == pytest.approx((1 + 2 / 3) ** 0.5)
    assert (part.from_task, part.from_prior) == (0.0, 1.0)
    local.reward("x", RewardRequest("0", 0.0))
    (part,) = local.task("x", "t").parts
    assert part.prior_mean == pytest.approx(1.0)
    weight = (1 + 2 / 3) / (1 + 2 / 3 + 1)
    assert part.from_task == pytest.approx(weight)
    assert part.mean == pytest.approx(1 - weight)


def test_an_arm_that_is_known_for_sure_takes_nothing_from_the_task(local):
    prior = {"given": {"mean": 1.0, "scale": 0.0, "task_scale": 0.0}}
    local.put("x", GAUSSIAN | {"prior": prior})
    local.decide("x", DecisionRequest("t", "0", allowed=["a"]))
    local.reward("x", RewardRequest("0", 9.0))
    part = local.task("x", "t").parts[0]
    assert (part.mean, part.scale, part.from_task, part.from_prior) == (1.0, 0.0, 0.0, 1.0)


# Arms that come later


def test_an_arm_that_is_added_starts_with_the_prior_of_another_and_none_of_its_data(local):
    prior = {"given": {"mean": [1.0, -1.0], "scale": [0.5, 2.0], "task_scale": [0.3, 0.4]}}
    local.put("x", GAUSSIAN | {"arms": ["a", "b"], "prior": prior})
    before = {part.name: part for part in local.meta("x").parts}
    for i in range(6):
        local.decide("x", DecisionRequest(f"t{i % 2}", str(i), allowed=["b"]))
        local.reward("x", RewardRequest(str(i), 5.0))
    about = local.add_arm("x", NewArm("c", like="b"))
    assert (about.arms, about.prior_version) == (["a", "b", "c"], 2)
    after = {part.name: part for part in local.meta("x").parts}
    assert (after["c"].mean, after["c"].scale) == (before["b"].mean, before["b"].scale)
    assert after["b"].mean > 3.0  # which has learned
    for task in ("t0", "t1", "new"):
        decided = local.decide("x", DecisionRequest(task, f"{task} c", allowed=["c"]))
        assert (decided.action, decided.prior_version) == ("c", 2)
        part = local.task("x", task).parts[2]
        assert (part.mean, part.pulls) == (pytest.approx(-1.0), 0)
    local.reward("x", RewardRequest("t0 c", 2.0))
    assert local.task("x", "t0").parts[2].pulls == 1


def test_an_arm_may_be_like_one_that_was_added_or_retired(local):
    local.put("x", CASES["binary"].spec)
    local.add_arm("x", NewArm("d", like="c"))
    local.retire_arm("x", "c")
    about = local.add_arm("x", NewArm("e", like="d"))
    assert (about.arms, about.retired) == (["a", "b", "d", "e"], ["c"])
    parts = {part.name: part for part in local.meta("x").parts}
    assert parts["c"].mean == parts["d"].mean == parts["e"].mean


@pytest.mark.parametrize(
    ("spec", "new", "field"),
    [
        (GAUSSIAN, NewArm("a", like="b"), "arm"),
        (GAUSSIAN, NewArm("d"), "arm"),
        (GAUSSIAN, NewArm("d", like="nobody"), "like"),
        (GAUSSIAN, NewArm("d", like="a", features=[1.0]), "features"),
        (GAUSSIAN | {"arms": 3}, NewArm("d", like=1), "arm"),
        (KEYED["linear"], NewArm("d", features=[1.0, 2.0]), "arm"),  # its arms have no names
        (CASES["linear"].spec, NewArm("d"), "arm"),
        (CASES["linear"].spec, NewArm("d", features=[1.0]), "arm"),
        (CASES["contextual"].spec, NewArm("d"), "arm"),
    ],
)
def test_an_arm_that_cannot_be_added_changes_nothing(local, spec, new, field):
    local.put("x", spec)
    before = local.about("x")
    with pytest.raises(Invalid) as found:
        local.add_arm("x", new)
    assert found.value.field == field
    assert local.about("x") == before


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["linear", "gaussian"])
def test_a_prior_file_with_several_models_is_served(tmp_path, kind, nested):
    if kind == "linear":
        parts = [adats.LinearMeta(np.zeros(2), 1.0, task_cov=cov, noise=1.0) for cov in (0.1, 1.0)]
        options = {"features": [[1.0, 0.0], [0.6, 0.8]]}
    else:
        parts = [adats.GaussianMeta([0.0, 0.1], 1.0, task_scale=s, noise=1.0) for s in (0.1, 1.0)]
        options = {}
    meta = adats.ModelMixture([0.5, 0.5], parts)
    if nested:
        meta = adats.ModelMixture([0.3, 0.7], [meta, parts[0]])
    file = prior_to_dict(meta)
    local, agent = Local(tmp_path / "x.db"), adats.AdaTS(meta, seed=0, **options)
    local.put("x", {"model": kind, "prior": {"file": file}, **options})
    for i in range(6):
        made = local.decide("x", DecisionRequest(f"t{i % 2}", f"d{i}"))
        local.reward("x", RewardRequest(f"d{i}", float(i)))
        agent.tell(task=f"t{i % 2}", action=made.action, reward=float(i))
    local.close()
    local = Local(tmp_path / "x.db")  # from what is kept
    found = local.task("x", "t1").parts
    assert [part.mean for part in found] == pytest.approx(agent.posterior("t1").mean, abs=1e-8)
    assert local.meta("x").log_evidence == pytest.approx(agent.meta.log_evidence(), abs=1e-8)
    local.close()
