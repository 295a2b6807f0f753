"""Further figures that come with a reward: they count where it does, and are kept and exported."""

import json
from fractions import Fraction

import pytest

from adats.service.audit import check_store
from adats.service.copying import copy_store
from adats.service.counters import BITS
from adats.service.stores.opening import open_view
from asgi import talk
from postgres import new_store
from served import GAUSSIAN, at_rest, replayed

AT = "/v1/experiments/x"
METRICS = {"revenue": 0, "seconds": None}
SPEC = GAUSSIAN | {"metrics": METRICS, "several": "sum", "holdout": {"share": 0.5}, "control": "b"}


def tell(decision_id, reward, **more):
    return ("POST", AT + "/reward", {"decision_id": decision_id, "reward": reward} | more)


def ask(task, decision_id):
    return ("POST", AT + "/decide", {"task": task, "decision_id": decision_id})


def sums(url):
    """Of each figure, its values and their sum over all decisions."""
    found = {}
    with open_view(at_rest(url)) as view:
        (row,) = view.experiments()
        for bucket, counts in view.counts(row.id).items():
            if not bucket.span:  # of a group of tasks
                continue
            n, total = found.get(bucket.metric, (0, 0))
            found[bucket.metric] = (n + counts.counted, total + Fraction(counts.sum, 1 << BITS))
    return {name: (n, float(total)) for name, (n, total) in found.items()}


def test_they_are_kept_exported_summed_and_forgotten(url, tmp_path):
    answers = talk(
        url,
        [
            ("PUT", AT, SPEC),
            *(ask(f"t{i % 2}", f"d{i}") for i in range(5)),
            tell("d0", 1.0, metrics={"revenue": 12.5, "seconds": 3.0}),
            tell("d0", 1.0, metrics={"revenue": 12.5, "seconds": 3.0}),  # the same again
            tell("d0", 1.0, metrics={"revenue": 0.1}),
            tell("d0", 1.0, metrics={"revenue": 7.0}, reward_id="r"),
            tell("d1", 2.0),
            tell("d2", 2.0, metrics={}),
            tell("d3", 2.0, metrics={"seconds": 1.5}),
        ],
    )
    assert [answer["status"] for _, answer in answers[6:]] == [
        "counted",
        "duplicate",
        *["counted"] * 5,
    ]
    assert sums(url) == {"": (4, 9.0), "revenue": (4, 19.6), "seconds": (2, 4.5)}
    assert check_store(url) == []
    replayed(url, tmp_path)
    _, log = talk(url, [("GET", AT + "/log")])[0]
    rows = {row["decision_id"]: row for row in map(json.loads, log.splitlines())}
    assert rows["d0"]["metric_revenue"] == 19.6
    assert [rows[f"d{i}"].get("metric_seconds") for i in range(4)] == [3.0, None, None, 1.5]
    assert talk(url, [("DELETE", AT + "/tasks/t0")])[0][0] == 204
    assert sums(url) == {"": (2, 4.0), "revenue": (2, 0.0), "seconds": (1, 1.5)}
    assert check_store(url) == []


def test_they_follow_their_reward_to_the_end_of_the_window(url, tmp_path):
    """Held until then; without a reward they are those of none; what is late does not count."""
    spec = SPEC | {"window": 1.0, "default_reward": 0.0, "apply": "at_window_end"}
    talk(
        url,
        [
            ("PUT", AT, spec),
            ask("t", "d0"),
            ask("t", "d1"),
            tell("d0", 1.0, metrics={"revenue": 5.0, "seconds": 2.0}),
        ],
    )
    assert sums(url) == {"": (0, 0.0)}
    talk(url, [("GET", "/healthz"), ask("t", "later"), tell("d0", 1.0)], clock=Later())
    assert {k: v for k, v in sums(url).items() if k} == {"revenue": (2, 5.0), "seconds": (1, 2.0)}
    assert check_store(url) == []
    replayed(url, tmp_path)


def test_a_copy_has_all_that_is_new(tmp_path):
    """Metrics, designs, kept decisions and the status, to PostgreSQL and back."""
    spec = {
        "model": "linear",
        "dim": 2,
        "arms": ["a", "b"],
        "features": [[1.0, 0.0], [0.0, 1.0]],
        "noise": 1.0,
        "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.1}},
        "attributes": {"age": "number"},
        "metrics": METRICS,
        "sticky": 3600.0,
    }
    first, second, third = str(tmp_path / "1.db"), new_store("copy"), str(tmp_path / "3.db")
    calls = [("PUT", AT, spec)]
    for i in range(8):
        known = {"task": f"t{i % 3}", "decision_id": f"d{i}", "attributes": {"age": 0.5 * (i % 3)}}
        calls += [("POST", AT + "/decide", known), tell(f"d{i}", 1.0, metrics={"seconds": 0.1 * i})]
    talk(first, [*calls, ("PUT", AT + "/status", {"status": "paused"})])
    for source, target in ((first, second), (second, third)):
        assert copy_store(source, target) == []
        assert check_store(target) == []
    assert sums(third) == sums(first)
    for url in (second, third):
        assert talk(url, [("GET", AT)])[0][1]["status"] == "paused"
        *_, made = talk(url, [("PUT", AT + "/status", {"status": "running"}), ask("t1", "new")])
        assert (made[0], made[1]["kept"]) == (200, True)


class Later:
    """An hour from now."""

    def __call__(self):
        import time

        return time.time() + 3600


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"metrics": {"clicks": 1.0}}, "metrics.clicks", "no such metric"),
        ({"metrics": {"revenue": "much"}}, "metrics[...]", "Expected `float`"),
        ({"metrics": {"revenue": 1e300}}, "metrics[...]", "<="),
        ({"metrics": [1.0]}, "metrics", "Expected `object"),
        ({"metrics": {f"m{i}": 1.0 for i in range(9)}}, "metrics", "length <= 8"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(url, body, field, words):
    found = talk(url, [("PUT", AT, SPEC), ask("t", "d"), tell("d", 1.0, **body)])[-1]
    assert (found[0], found[1]["field"]) == (422, field)
    assert words in found[1]["error"]
    assert sums(url) == {"": (0, 0.0)}


@pytest.mark.parametrize(
    ("metrics", "field"),
    [
        ({f"m{i}": 0 for i in range(9)}, "metrics"),
        ({"revenue": 1}, "metrics[...]"),
        ({"a\nb": 0}, "metrics.a\nb"),
        (["revenue"], "metrics"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(tmp_path, metrics, field):
    (found,) = talk(tmp_path / "x.db", [("PUT", AT, GAUSSIAN | {"metrics": metrics})])
    assert (found[0], found[1]["field"]) == (422, field)


def test_the_same_reward_with_other_figures_contradicts_it(url):
    spec = SPEC | {"several": "first"}
    *_, again, other, none = talk(
        url,
        [
            ("PUT", AT, spec),
            ask("t", "d"),
            tell("d", 1.0, metrics={"revenue": 1.0}),
            tell("d", 1.0, metrics={"revenue": 1.0}),
            tell("d", 1.0, metrics={"revenue": 2.0}),
            tell("d", 1.0),
        ],
    )
    assert again[1]["status"] == "duplicate"
    assert (other[0], none[0]) == (409, 409)
    assert "and metrics {'revenue': 1.0}, now 1.0 and metrics {'revenue': 2.0}" in other[1]["error"]
    assert sums(url) == {"": (1, 1.0), "revenue": (1, 1.0)}


def test_the_last_of_several_brings_its_own(url):
    spec = SPEC | {"several": "last"}
    told = [({"revenue": 5.0, "seconds": 1.0}), ({"revenue": 2.0}), ({})]
    calls = [tell("d", 1.0, metrics=metrics) for metrics in told[:2]]
    talk(url, [("PUT", AT, spec), ask("t", "d"), *calls])
    assert sums(url) == {"": (1, 1.0), "revenue": (1, 2.0)}
    talk(url, [tell("d", 1.0, metrics=told[2])])
    assert sums(url) == {"": (1, 1.0), "revenue": (1, 0.0)}
