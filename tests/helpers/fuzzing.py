"""Schemathesis against a service that runs.

At random, fields hardly ever fit together: an experiment is refused, and nothing can be asked of
it. So there is another description, narrowed to requests most of which can be carried out. Some
experiments of every kind are made beforehand, and names come from short lists; what answers must
look like stays as it is described.
"""

import copy
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from adats.service.http.openapi import description
from served import call

NUMBER = {"type": "number"}
MODEST = {"type": "number", "minimum": -100, "maximum": 100}
POSITIVE = {"type": "number", "minimum": 0.001, "maximum": 100}
TASKS = ["ada", "bob", "c/d", "é %/?#"]
DECISIONS = ["v1", "v2", "v3", "v4", "v5", "v6"]
ARMS = ["a", "b", "c"]
OLD = [f"old-{i}" for i in range(8)]

GIVEN = {"given": {"mean": 0.0, "scale": 1.0, "task_scale": 0.5}}
GAUSSIAN = {"model": "gaussian", "arms": ARMS, "noise": 1.0, "prior": GIVEN}
BINARY = {"model": "binary", "arms": ARMS, "prior": {"default": {}}}
LINEAR = {
    "model": "linear",
    "dim": 2,
    "noise": 0.5,
    "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.1}},
}
SLATE = GAUSSIAN | {"model": "semi-bandit", "size": 2}
HELD = {"control": "a", "holdout": {"share": 0.3}}
EXPERIMENTS = {
    "gaussian": GAUSSIAN | HELD,
    "numbered": GAUSSIAN | {"arms": 2, "several": "sum", "policy": {"name": "far"}},
    "unsure": GAUSSIAN
    | {"prior": {"default": {"scale": 1.0}}, "several": "last"}
    | {"noise": None},
    "certain": GAUSSIAN | {"prior": {"given": {"mean": 1.0, "scale": 0.0, "task_scale": 0.0}}},
    "binary": BINARY | HELD | {"window": 0.05, "default_reward": 0, "apply": "at_window_end"},
    "replaced": BINARY | {"window": 0.05, "default_reward": 0, "late": "replace"},
    "count": BINARY | {"model": "count", "several": "sum", "policy": {"name": "ucb"}},
    "linear": LINEAR | {"policy": {"name": "ucb"}, "window": 0.05},
    "rows": LINEAR | {"arms": ARMS, "features": [[1.0, 0.0], [0.0, 1.0], [0.6, -0.8]]} | HELD,
    "slate": SLATE | {"control": ["a", "b"], "holdout": {"share": 0.3}},
    "pair": SLATE | {"exactly": True, "window": 0.05, "default_reward": 1.0, "late": "replace"},
}


# A body as described can be wrong all the same, as its fields have to fit together; and a task that
# was forgotten is there again as soon as somebody asks for it.
LEFT_OUT = "positive_data_acceptance,use_after_free"
SETTINGS = """
[phases.stateful]
max-steps = 12
"""


def fuzz(url, folder, *options, description=None):
    """Run Schemathesis: how often each operation gave each code, and that nothing was wrong."""
    report = folder / "report.ndjson"
    (folder / "settings.toml").write_text(SETTINGS)
    where, left_out = [f"{url}/openapi.json"], LEFT_OUT
    if description is not None:
        (folder / "description.json").write_text(json.dumps(description))
        where = ["description.json", "--url", url]
        left_out += ",negative_data_rejection"  # what is outside of it can be right
    command = [
        Path(sys.executable).with_name("st"),
        "--config-file",
        "settings.toml",
        "run",
        *where,
    ]
    always = ["--checks", "all", "--exclude-checks", left_out, "--no-color", "--warnings", "off"]
    always += ["--generation-database", "none", "--report-ndjson-path", report.name]
    done = subprocess.run(
        [*command, *always, *options], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return Counter(_codes(report))


def _codes(report):
    with report.open() as lines:
        for line in lines:
            recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
            for name, interaction in recorder.get("interactions", {}).items():
                case, response = recorder["cases"].get(name), interaction.get("response")
                if case is not None and response is not None:
                    of = f"{case['value']['method']} {case['value']['path']}"
                    yield of, response["status_code"]


def prepare(url, key=None):
    """Make the experiments, with some decisions and rewards; and some that are archived."""
    for name in OLD:
        at = f"{url}/v1/experiments/{name}"
        assert call(at, "PUT", GAUSSIAN, key)[0] == 201
        assert call(f"{at}/status", "PUT", {"status": "archived"}, key)[0] == 200
    for name, spec in EXPERIMENTS.items():
        at = f"{url}/v1/experiments/{name}"
        given = {field: value for field, value in spec.items() if value is not None}
        assert call(at, "PUT", given, key)[0] == 201, name
        for decision, task in zip(DECISIONS[:3], TASKS, strict=False):
            ask = {"task": task, "decision_id": decision, "horizon": 5}
            if name == "linear":
                ask["features"] = [[1.0, 0.0], [0.5, -0.5]]
            status, decided, _ = call(f"{at}/decide", "POST", ask, key)
            assert status == 200, decided
            several = isinstance(decided["action"], list)
            reward = [1.0] * len(decided["action"]) if several else 1.0
            tell = {"decision_id": decision, "reward": reward}
            assert call(f"{at}/reward", "POST", tell, key)[0] == 200


def narrowed(*, keyed=False):
    """Another description of the same service; one with keys does not answer without."""
    found = copy.deepcopy(description())
    new = [f"new-{i}" for i in range(20)]
    listed = {"name": [*EXPERIMENTS, *new[:5]], "task": TASKS, "arm": [*ARMS, "0", "d"]}
    for path in found["paths"].values():
        for operation in path.values():
            if keyed and operation["security"]:
                operation["security"] = [{"key": []}]
            own = {"set_status": OLD[:4], "delete": OLD[4:]}.get(operation["operationId"])
            for parameter in operation["parameters"]:
                if parameter["name"] in listed:
                    parameter["schema"] = {"enum": own or listed[parameter["name"]]}
    schemas = found["components"]["schemas"]
    row = _list(MODEST, 2, 2)
    schemas["DecisionRequest"]["properties"] |= {
        "task": {"enum": TASKS},
        "decision_id": {"anyOf": [{"type": "null"}, {"enum": DECISIONS}]},
        "features": {"anyOf": [{"type": "null"}, _list(row, 1, 3), _list(_list(NUMBER), 0, 3)]},
        "allowed": {"anyOf": [{"type": "null"}, _list({"enum": [*ARMS, 0, 1]}, 0, 3)]},
        "horizon": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 1, "maximum": 99}]},
        "attributes": {"type": "null"},
        "design": {"anyOf": [{"type": "null"}, _list(row, 2, 2)]},
    }
    schemas["RewardRequest"]["properties"] |= {
        "decision_id": {"enum": DECISIONS},
        "reward": {"anyOf": [{"enum": [0, 1, 2]}, NUMBER, _list(MODEST, 1, 2)]},
        "metrics": {"type": "null"},
    }
    schemas["NewArm"]["properties"] |= {
        "arm": {"enum": ["c", "d", "e"]},
        "like": {"enum": [*ARMS, 0, None]},
        "features": {"anyOf": [{"type": "null"}, row]},
    }
    put = found["paths"]["/v1/experiments/{name}"]["put"]
    put["parameters"][0]["schema"] = {"enum": new}
    content = put["requestBody"]["content"]["application/json"]
    content["schema"] = {"anyOf": [_closed(model) for model in _models()]}
    return found


def _models():
    """Experiments with any figures in them."""
    given = _closed({"given": _closed({"mean": NUMBER, "scale": NUMBER, "task_scale": NUMBER})})
    cov = {"mean": MODEST, "cov": NUMBER, "task_cov": POSITIVE}
    pair, weights = _list(POSITIVE, 2, 2), {"weights": {"const": [0.5, 0.5]}}
    arms, noise, window = {"arms": {"const": ARMS}}, {"noise": NUMBER}, {"window": POSITIVE}
    several = {"several": {"enum": ["first", "sum", "last"]}}
    beta = _closed({"given": _closed(weights | {"alpha": pair, "beta": pair})})
    gamma = _closed({"given": _closed(weights | {"shape": pair, "rate": pair})})
    linear = {"prior": _closed({"given": _closed(cov)}), "dim": {"const": 2}}
    default = _closed({"default": _closed({"typical": NUMBER, "scale": NUMBER})})
    slate = {"size": {"enum": [1, 2]}, "exactly": {"type": "boolean"}}
    late = {"default_reward": NUMBER, "late": {"enum": ["ignore", "replace"]}}
    return (
        {"model": {"const": "gaussian"}, "prior": given} | arms | noise | several,
        {"model": {"const": "gaussian"}, "prior": default} | arms | window | late,
        {"model": {"const": "binary"}, "prior": beta} | arms | window | late,
        {"model": {"const": "count"}, "prior": gamma} | arms | several,
        {"model": {"const": "linear"}} | linear | noise | window,
        {"model": {"const": "semi-bandit"}, "prior": given} | arms | noise | slate,
    )


def _closed(fields):
    """An object with all these fields, and no others."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _list(items, least=0, most=4):
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}
