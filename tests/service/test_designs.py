"""Attributes and designs of tasks over HTTP: the beliefs are those of the library's designs."""

import numpy as np
import pytest

from adats import AdaTS, LatentMeta, LinearMeta, default_prior
from adats.models.prior_files import prior_to_dict
from adats.service.audit import check_store
from adats.service.designs import design_of
from asgi import talk
from served import GAUSSIAN, at_rest, replayed

AT = "/v1/experiments/x"
DECLARED = {"country": ["de", "fr", "it"], "age": "number"}
LINEAR = {
    "model": "linear",
    "dim": 2,
    "noise": 0.7,
    "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.3}},
    "seed": 5,
}
ROWS = [[1.0, 0.0], [0.3, 0.9], [-0.5, 0.4]]
PEOPLE = [
    {"country": c, "age": a} for c, a in (("de", 0.2), ("fr", -1.0), ("it", 1.5), ("fr", 0.4))
]


def decide(task, number, **more):
    return ("POST", AT + "/decide", {"task": task, "decision_id": f"d{number}", **more})


def believed(url, task):
    _, answer = talk(url, [("GET", f"{AT}/tasks/{task}")])[0]
    return answer


def play(url, spec, asks, reward):
    """Decide for each, in turns with rewards, over two runs of the service; the decisions."""
    found = []
    talk(url, [("PUT", AT, spec)])
    for part in (asks[: len(asks) // 2], asks[len(asks) // 2 :]):
        calls = []
        for call in part:
            number = call[2]["decision_id"]
            calls += [call, ("POST", AT + "/reward", {"decision_id": number, "reward": reward})]
        answers = talk(url, calls)
        assert [status for status, _ in answers] == [200] * len(answers), answers
        found += [answer for _, answer in answers[::2]]
    at_rest(url)
    return found


def check_beliefs(url, agent, tmp_path, tolerance=1e-9):
    for task in agent.tasks:
        parts = believed(url, task)["parts"]
        known = agent.posterior(task)
        for name, values in (("mean", known.mean), ("scale", known.scale)):
            np.testing.assert_allclose([p[name] for p in parts], values, rtol=0, atol=tolerance)
    assert check_store(url) == []
    replayed(url, tmp_path)


@pytest.mark.parametrize("policy", ["ts", "ucb"])
def test_attributes_are_the_librarys_design(url, tmp_path, policy):
    spec = LINEAR | {"attributes": DECLARED, "policy": {"name": policy}}
    asks = [
        decide(f"t{i % 4}", i, features=ROWS, **({"attributes": PEOPLE[i % 4]} if i < 6 else {}))
        for i in range(12)
    ]
    made = play(url, spec, asks, 0.8)
    agent = AdaTS(LinearMeta(np.zeros(8), 1.0, task_cov=0.3, noise=0.7), seed=1)
    for i, decision in enumerate(made):
        person = PEOPLE[i % 4]
        z = [1.0, person["age"], *(float(person["country"] == c) for c in ("fr", "it"))]
        agent.tell(
            task=f"t{i % 4}",
            features=np.array(ROWS[decision["action"]]),
            reward=0.8,
            design=np.kron(z, np.eye(2)),
        )
    check_beliefs(url, agent, tmp_path)
    prior = [p["prior_mean"] for p in believed(url, "t2")["parts"]]
    others = AdaTS(LinearMeta(np.zeros(8), 1.0, task_cov=0.3, noise=0.7), seed=1)
    for i, decision in enumerate(made):
        if i % 4 != 2:
            row = np.array(ROWS[decision["action"]])
            own = design_of(DECLARED, PEOPLE[i % 4], 2)
            others.tell(task=f"t{i % 4}", features=row, reward=0.8, design=own)
    new = others.meta.task_prior(design=design_of(DECLARED, PEOPLE[2], 2))
    np.testing.assert_allclose(prior, new.mean, atol=1e-9)


def test_every_task_may_bring_other_arms(url, tmp_path):
    """Exchangeable arms, and as many as there are: a design of ones, without features."""
    spec = LINEAR | {"dim": 1, "several": "last"}
    sizes = [3, 5, 2]
    asks = [
        decide(f"t{i % 3}", i, **({"design": [[1.0]] * sizes[i % 3]} if i < 7 else {}))
        for i in range(12)
    ]
    made = play(url, spec, asks, 1.0)
    again = {"decision_id": "d0", "reward": 2.0}
    assert talk(url, [("POST", AT + "/reward", again)])[0][1]["status"] == "counted"
    at_rest(url)
    agent = AdaTS(LinearMeta([0.0], 1.0, task_cov=0.3, noise=0.7), seed=1)
    for i, decision in enumerate(made):
        k = sizes[i % 3]
        assert decision["action"] in range(k)
        agent.tell(
            task=f"t{i % 3}",
            features=np.eye(k)[decision["action"]],
            reward=1.0 if i else 2.0,
            design=np.ones((k, 1)),
        )
    check_beliefs(url, agent, tmp_path)
    assert talk(url, [("DELETE", AT + "/tasks/t1")])[0][0] == 204
    assert check_store(at_rest(url)) == []
    new = decide("t1", "new", design=[[1.0]])
    assert talk(url, [new])[0][1]["action"] == 0


def test_a_prior_file_of_clicks_brings_attributes(url, tmp_path):
    meta = LatentMeta(
        np.zeros(4), 1.0, task_scale=0.5, design=np.kron([1.0, 0.0], np.eye(2)), arms=("a", "b")
    )
    spec = {
        "model": "binary",
        "prior": {"file": prior_to_dict(meta)},
        "attributes": {"age": "number"},
        "seed": 3,
    }
    ages = [0.5, -1.0, 2.0]
    asks = [decide(f"t{i % 3}", i, attributes={"age": ages[i % 3]}) for i in range(9)]
    made = play(url, spec, asks, 1)
    agent = AdaTS(meta, seed=1)
    for i, decision in enumerate(made):
        design = np.kron([1.0, ages[i % 3]], np.eye(2))
        agent.tell(task=f"t{i % 3}", action=decision["action"], reward=1, design=design)
    check_beliefs(url, agent, tmp_path, 0.05)  # sites are found in another order
    assert {d["action"] for d in made} <= {"a", "b"}


PLAIN = {
    "model": "gaussian",
    "noise": 0.7,
    "prior": {"given": {"mean": [1.0, 2.0], "scale": 0.8, "task_scale": [0.3, 0.4]}},
}
BY_DEFAULT = {"model": "binary", "prior": {"default": {}}}
ARMS = ("calm", "loud")


def given_figures():
    return LinearMeta(
        [1.0, 2.0, *[0.0] * 6],
        0.64,
        task_cov=np.diag([0.09, 0.16]),
        noise=0.7,
        design=np.eye(2, 8),
        arms=ARMS,
    )


@pytest.mark.parametrize(
    ("spec", "prior", "reward"),
    [
        (PLAIN, given_figures, 0.8),
        (BY_DEFAULT, lambda: default_prior(arms=ARMS, rewards="binary", attributes=3), 1),
        (
            {"model": "gaussian", "prior": {"default": {"scale": 2.0, "typical": 1.0}}},
            lambda: default_prior(arms=ARMS, rewards="number", scale=2, typical=1, attributes=3),
            0.8,
        ),
        (
            {"model": "linear", "dim": 2, "features": [[1, 0], [0, 1]],
             "prior": {"default": {"scale": 2.0}}},
            lambda: default_prior(dim=2, rewards="number", scale=2.0, attributes=3),
            0.8,
        ),
    ],
)  # fmt: skip
def test_attributes_need_no_linear_prior_in_figures(url, tmp_path, spec, prior, reward):
    """Plain figures and default priors have them too, with named arms."""
    more = {"arms": list(ARMS), "attributes": DECLARED, "seed": 5}
    asks = [decide(f"t{i % 4}", i, attributes=PEOPLE[i % 4]) for i in range(8)]
    made = play(url, spec | more, asks, reward)
    features = np.eye(2) if spec["model"] == "linear" else None
    agent = AdaTS(prior(), arms=ARMS, features=features, seed=1)
    for i, decision in enumerate(made):
        design = design_of(DECLARED, PEOPLE[i % 4], 2)
        agent.tell(task=f"t{i % 4}", action=decision["action"], reward=reward, design=design)
    check_beliefs(url, agent, tmp_path, 0.05 if spec is BY_DEFAULT else 1e-9)
    if features is None:
        assert [part["name"] for part in believed(url, "t1")["parts"]] == list(ARMS)
        for more in ({"like": "calm"}, {}):
            status, answer = talk(url, [("POST", AT + "/arms", {"arm": "new"} | more)])[0]
            assert (status, answer["field"]) == (422, "arm")
    assert talk(url, [("GET", AT)])[0][1]["arms"] == list(ARMS)


@pytest.mark.statistical
@pytest.mark.parametrize("rewards", ["binary", "number"])
def test_what_is_known_of_a_task_is_worth_having(rewards):
    """New tasks, of which a number says what is best: the first decision of each is better than by
    a prior without attributes."""
    rng, scale = np.random.default_rng(8), None if rewards == "binary" else 1.0
    agents = [
        AdaTS(default_prior(arms=ARMS, rewards=rewards, scale=scale, attributes=n), seed=2)
        for n in (0, 1)
    ]
    good = np.zeros((2, 120))
    for task in range(120):
        z = rng.choice([-1.0, 1.0])
        for agent, right in zip(agents, good, strict=True):
            design = np.kron([1.0, z], np.eye(2)) if agent.meta.has_design else None
            for turn in range(3):
                decision = agent.ask(str(task), design=design)
                best = (decision.action == "loud") == (z > 0)
                right[task] += best * (turn == 0)
                mean = 0.7 if best else 0.3
                reward = float(rng.random() < mean) if scale is None else rng.normal(mean, 0.3)
                agent.tell(decision, reward=reward)
    gain = (good[1] - good[0])[40:]
    assert gain.mean() > 2.33 * gain.std() / np.sqrt(gain.size)


BAD = [
    ({"attributes": {"country": "es", "age": 1.0}}, "attributes.country", "one of de, fr, it"),
    ({"attributes": {"country": "de"}}, "attributes.age", "missing"),
    ({"attributes": {"country": "de", "age": "old"}}, "attributes.age", "a number"),
    ({"attributes": {**PEOPLE[0], "size": 1.0}}, "attributes.size", "no such attribute"),
    ({"design": [[1.0] * 8] * 2}, "design", "give those"),
    ({"attributes": PEOPLE[1]}, "attributes", "which are fixed"),
]


@pytest.mark.parametrize(("more", "field", "words"), BAD)
def test_attributes_that_cannot_be_are_refused(url, more, field, words):
    first = decide("t", 1, features=ROWS, attributes=PEOPLE[0])
    task = "t" if "fixed" in words else "new"
    spec = LINEAR | {"attributes": DECLARED}
    *_, found = talk(url, [("PUT", AT, spec), first, decide(task, 2, features=ROWS, **more)])
    assert (found[0], found[1]["field"]) == (422, field)
    assert words in found[1]["error"]
    assert talk(at_rest(url), [("GET", AT + "/report")])[0][1]["tasks"] == 1


@pytest.mark.parametrize(
    ("spec", "more", "field", "words"),
    [
        (GAUSSIAN, {"design": [[1.0]]}, "design", "no design"),
        (GAUSSIAN, {"attributes": {"age": 1.0}}, "attributes", "declares none"),
        (LINEAR, {"design": [[1.0]]}, "design", "2 columns"),
        (LINEAR, {"design": []}, "design", "2"),
        (LINEAR, {"design": [[1.0, 0.0]] * 200}, "design", "at most 128 rows"),
        (LINEAR, {"design": [[1.0, 0.0], [1.0]]}, "design", "design"),
        (LINEAR, {"design": [[1.0, 0.0]], "features": [[1.0, 2.0]]}, "features", "1 number"),
    ],
)
def test_a_design_that_cannot_be_is_refused(tmp_path, spec, more, field, words):
    *_, found, report = talk(
        tmp_path / "x.db", [("PUT", AT, spec), decide("t", 1, **more), ("GET", AT + "/report")]
    )
    assert (found[0], found[1]["field"]) == (422, field)
    assert words in found[1]["error"]
    assert report[1]["tasks"] == 0


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"attributes": {"age": "text"}}, "attributes[...]"),
        ({"attributes": {"country": ["de"]}}, "attributes[...]"),
        ({"attributes": {"country": ["de", "de"]}}, "attributes.country"),
        ({"attributes": {f"a{i}": "number" for i in range(17)}}, "attributes"),
        ({"attributes": {"a": "number"}, "prior": {"given": {"mean": [1.0, 2.0], "cov": 1.0,
          "task_cov": 1.0}}}, "prior.given.mean"),
    ],
)  # fmt: skip
def test_a_declaration_that_cannot_be_is_refused(tmp_path, more, field):
    (found,) = talk(tmp_path / "x.db", [("PUT", AT, LINEAR | more)])
    assert (found[0], found[1]["field"]) == (422, field), found


def test_a_declaration_needs_a_prior_that_has_it(tmp_path):
    file = prior_to_dict(LatentMeta(np.zeros(2), 1.0, task_scale=0.5, arms=("a", "b")))
    two = {"arms": ["a", "b"], "attributes": {"age": "number"}}
    clicks = {"given": {"weights": [1.0], "alpha": [1.0], "beta": [1.0]}}
    uneven = {"model": "gaussian", "prior": PLAIN["prior"], "noise": [1.0, 2.0]}
    refused = [
        ({"model": "binary", "prior": {"file": file}} | two, "attributes"),
        ({"model": "binary", "prior": clicks} | two, "attributes"),
        ({"model": "binary", "prior": {"default": {"version": 1}}} | two, "prior.default.version"),
        (
            {"model": "semi-bandit", "size": 1, "prior": {"default": {"scale": 1}}} | two,
            "attributes",
        ),
        (uneven | two, "noise"),
        (BY_DEFAULT | two | {"arms": [f"arm {i}" for i in range(65)]}, "attributes"),
        (LINEAR | {"attributes": {"country": [f"c{i}" for i in range(65)]}}, "attributes"),
    ]
    answers = talk(tmp_path / "x.db", [("PUT", AT, spec) for spec, _ in refused])
    assert [(code, answer.get("field")) for code, answer in answers] == [
        (422, field) for _, field in refused
    ]
