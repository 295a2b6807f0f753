"""Examples of requests and answers, which work one after another."""

from typing import Any

GIVEN = {"mean": 0.0, "scale": 1.0, "task_scale": 0.5}
PARAMETER_VALUES = {"name": "buttons", "task": "user-7", "arm": "green", "format": "ndjson"}
REQUESTS: dict[str, dict[str, Any]] = {
    "put": {
        "binary": {
            "model": "binary",
            "arms": ["red", "green", "blue"],
            "prior": {"default": {}},
            "control": "red",
            "holdout": {"share": 0.1},
            "seed": 1,
        },
        "gaussian": {
            "model": "gaussian",
            "arms": ["short", "long"],
            "noise": 1.0,
            "prior": {"given": GIVEN},
            "window": 86400,
            "default_reward": 0.0,
            "apply": "at_window_end",
            "metrics": {"revenue": 0, "seconds": None},
        },
        "linear": {
            "model": "linear",
            "dim": 2,
            "noise": 0.5,
            "prior": {"given": {"mean": 0.0, "cov": 1.0, "task_cov": 0.1}},
        },
        "count": {
            "model": "count",
            "arms": ["a", "b"],
            "prior": {"default": {"typical": 3.0}},
            "several": "sum",
        },
        "semi-bandit": {
            "model": "semi-bandit",
            "arms": 5,
            "size": 2,
            "noise": 1.0,
            "prior": {"given": GIVEN},
            "policy": {"name": "ucb"},
        },
    },
    "decide": {
        "a task": {"task": "user-7", "decision_id": "visit-1"},
        "some arms only": {"task": "user-8", "decision_id": "visit-2", "allowed": ["red", "blue"]},
        "a batch": {"decisions": [{"task": "user-7"}, {"task": "user-9", "horizon": 3}]},
    },
    "reward": {
        "one": {"decision_id": "visit-1", "reward": 1},
        "a batch": {
            "rewards": [
                {"decision_id": "visit-1", "reward": 1},
                {"decision_id": "visit-2", "reward": 0},
            ]
        },
    },
    "set_status": {"no more": {"status": "archived"}},
    "add_arm": {"like another": {"arm": "yellow", "like": "red"}},
}
ANSWERS: dict[str, Any] = {
    "experiments": {"experiments": ["buttons"], "archived": []},
    "decide": {
        "decision_id": "visit-1",
        "task": "user-7",
        "action": "red",
        "propensity": 0.4015,
        "state_version": 0,
        "prior_version": 1,
        "time": 1794795531.45,
        "holdout": False,
        "fallback": False,
        "kept": False,
    },
    "reward": {"decision_id": "visit-1", "status": "counted", "state_version": 2},
    "task": {
        "task": "user-7",
        "parts": [
            {
                "name": "red",
                "mean": 0.8225,
                "scale": 0.2392,
                "prior_mean": 0.5,
                "prior_scale": 0.4016,
                "from_task": 0.6451,
                "from_prior": 0.3549,
                "pulls": 1.0,
            }
        ],
        "state_version": 2,
        "prior_version": 1,
    },
    "report": {
        "decisions": 4000,
        "tasks": 800,
        "counted": 3905,
        "missing": 95,
        "expired": 0,
        "explored": 1216,
        "lift": {
            "estimate": 0.061,
            "low": -0.0098,
            "high": 0.1318,
            "policy_mean": 0.287,
            "policy_decisions": 3514,
            "holdout_mean": 0.226,
            "holdout_decisions": 391,
            "fixed_time": {"low": 0.0169, "high": 0.1051},
            "relative": {"estimate": 0.2699, "low": -0.0339, "high": 0.8152},
        },
        "lift_new_tasks": {"estimate": 0.061, "low": -0.0098, "high": 0.1318},
        "metrics": {},
        "stop": {
            "arms": [{"arm": "old", "best": 0.02}, {"arm": "new", "best": 0.98}],
            "loss": 0.0004,
            "settled": False,
        },
        "sentence": "Keep running: new may be better than the control, by -3.1 to 62 %.",
        "alarms": [],
        "state_version": 7905,
        "prior_version": 1,
    },
    "healthz": {"status": "ok", "why": None},
    "readyz": {"status": "ready", "why": None},
}
