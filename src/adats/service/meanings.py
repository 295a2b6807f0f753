"""What each field of the API means, and examples that work one after another."""

from typing import Any

VERSIONS = {
    "state_version": "Events of the experiment so far.",
    "prior_version": "Grows when an arm is added.",
}
BELIEF = {
    "name": "The arm; in a linear model the number of the coefficient.",
    "mean": "Of the mean reward, or of the coefficient.",
    "scale": "Standard deviation of the same; null if it is infinite.",
}

FIELDS: dict[str, dict[str, str]] = {
    "Experiment": {
        "model": "Rewards are numbers (gaussian), numbers that depend on features (linear), 0 or 1 "
        "(binary), 0, 1, 2, … (count), or a number for each of several arms (semi-bandit).",
        "prior": "What is believed before any data: exactly one of given, file and default.",
        "arms": "Their names, or how many there are; then they are 0, 1, 2, … Not needed if a "
        "prior file has them, or if features come with every decision.",
        "dim": "Features of an arm, for a linear model.",
        "features": "A row for each arm, if the arms of a linear model are fixed; otherwise they "
        "come with every decision.",
        "size": "The most arms of one action, for a semi-bandit.",
        "exactly": "Always as many arms as size says, also those that are believed to do harm.",
        "noise": "Standard deviation of rewards around their mean, or one for each arm. Only with "
        "a prior in figures, and not for binary rewards and counts.",
        "policy": "How beliefs become actions.",
        "window": "Seconds after a decision in which its reward counts; no end unless given.",
        "default_reward": "What counts if no reward comes within the window, such as 0 for no "
        "click.",
        "several": "Of several rewards to one decision: the first counts and another is an error, "
        "or their sum, or the last.",
        "apply": "A reward counts at once, or when its window ends. With a default reward, "
        "at_window_end is unbiased: successes do not come in before failures.",
        "late": "A reward after the window is kept and does not count, or replaces what does.",
        "control": "The arm of the holdout, and of answers while the store cannot be written; for "
        "a semi-bandit a list.",
        "holdout": "A share of decisions that goes to the control arm, or to any: the lift is "
        "measured on it.",
        "seed": "Of all randomness, together with the decision_id; random unless given.",
    },
    "Prior": {
        "given": "In figures: a number for each arm, or one for all.",
        "file": "The contents of a prior file, as `adats fit` writes it.",
        "default": "A wide prior, which learns from the first task on.",
    },
    "Default": {
        "typical": "A usual reward, for numbers (0 unless given) and counts (1).",
        "scale": "Roughly how much rewards differ; numbers need it.",
    },
    "Given": {
        "mean": "Of the mean reward in a new task (gaussian), or of the coefficients (linear).",
        "scale": "Standard deviation of our doubt about that mean.",
        "task_scale": "Standard deviation between tasks.",
        "cov": "Covariance of our doubt about the mean (linear); a number is a multiple of the "
        "identity.",
        "task_cov": "Covariance between tasks (linear).",
        "weights": "Of the candidates (binary, count): one each, or a row each with one an arm.",
        "alpha": "Of a beta distribution (binary): a row for each candidate.",
        "beta": "Of a beta distribution (binary).",
        "shape": "Of a gamma distribution (count): a row for each candidate.",
        "rate": "Of a gamma distribution (count).",
    },
    "PolicySpec": {
        "name": "Thompson sampling (ts), or an index, which explores less: ucb, index, far, "
        "greedy. See the guide to policies.",
        "later": "Rounds of all later tasks together, for far.",
        "epsilon": "The share of decisions that goes to any arm.",
    },
    "Holdout": {
        "share": "Of all decisions.",
        "to": "The control arm, or any arm with the same chance.",
    },
    "Ask": {
        "task": "For whom, or for what: a user, a shop, a page.",
        "decision_id": "Yours, to ask again safely; made here unless given.",
        "features": "Of a linear model: a row for each arm.",
        "allowed": "The arms to choose from; all unless given. In a linear model whose features "
        "come with the decision, numbers of rows.",
        "horizon": "Rounds left in this task, this one too; the policies index and far need it.",
    },
    "Decided": {
        "decision_id": "To tell the reward by.",
        "task": "As it was asked.",
        "action": "The arm, or the arms of a semi-bandit.",
        "propensity": "The probability that this action had, or each of its arms.",
        "state_version": "Events of the experiment that the decision knew.",
        "prior_version": VERSIONS["prior_version"],
        "time": "Of the decision, in seconds since 1970.",
        "holdout": "Whether it was held out.",
        "fallback": "False: this is a decision, and it is learned from.",
    },
    "Fallback": {
        "error": "Why there is no decision.",
        "decision_id": "As it was asked; nothing is stored under it.",
        "task": "As it was asked.",
        "action": "The control action of the experiment.",
        "fallback": "True: not stored, and not learned from.",
    },
    "Tell": {
        "decision_id": "Of the decision.",
        "reward": "A number; for a semi-bandit a list, one for each arm of the action.",
        "reward_id": "Yours, to tell two equal rewards from one that was sent twice.",
    },
    "Tells": {"rewards": "Each stands alone: one that is refused does not keep the others out."},
    "Told": {
        "decision_id": "Of the decision.",
        "status": "It counts, is held until the window ends, came late and does not count, or was "
        "there already.",
        "state_version": VERSIONS["state_version"],
    },
    "Refused": {
        "decision_id": "Of the decision.",
        "code": "If it was refused: the code that it would have had alone.",
        "error": "If it was refused: why.",
    },
    "ToldAll": {
        "results": "What became of each, in the order of the request.",
        "refused": "How many were refused.",
    },
    "NewArm": {
        "arm": "Its name.",
        "like": "The arm whose prior it takes.",
        "features": "Of the arm, in a linear model whose arms are fixed.",
    },
    "About": {
        "name": "Of the experiment.",
        "spec": "The settings, without those that are as usual.",
        "arms": "Arms that can be chosen; null if features come with every decision.",
        "retired": "Arms that are not chosen any more.",
        **VERSIONS,
    },
    "Listed": {"experiments": "Their names."},
    "Part": {
        **BELIEF,
        "prior_mean": "The same before the task's own data: what all other tasks have taught.",
        "prior_scale": "The same before the task's own data.",
        "from_task": "How much of the belief comes from the task's own data.",
        "from_prior": "How much comes from the prior.",
        "pulls": "Rewards of this arm that count in the task; null in a linear model.",
    },
    "TaskView": {"task": "Its name.", "parts": "A belief for each arm or coefficient.", **VERSIONS},
    "MetaPart": BELIEF,
    "MetaView": {
        "tasks": "How many there are.",
        "decisions": "How many were made.",
        "rewards": "Decisions whose reward counts.",
        "log_evidence": "Logarithm of the probability density of all rewards, under the prior.",
        "parts": "What is believed of a new task.",
        "prior": "A prior file, which another experiment can start from.",
        **VERSIONS,
    },
    "Lift": {
        "estimate": "Mean reward of decisions that were not held out, less that of those that "
        "were; null until there are both.",
        "low": "Of the 95 % interval.",
        "high": "Of the 95 % interval.",
        "policy_mean": "Mean reward of decisions that were not held out.",
        "policy_decisions": "How many have a reward.",
        "holdout_mean": "Mean reward of decisions that were.",
        "holdout_decisions": "How many have a reward.",
    },
    "Report": {
        "decisions": "How many were made.",
        "tasks": "For how many tasks.",
        "counted": "Decisions whose reward counts.",
        "missing": "Decisions without a reward whose window is still open.",
        "expired": "Decisions that had no reward when their window ended.",
        "explored": "Decisions whose action was not the one that looked best.",
        "lift": "Over the holdout; null if there is none.",
        **VERSIONS,
    },
    "Error": {
        "error": "What is wrong.",
        "field": "Where in the request, such as rewards[1].reward.",
    },
    "Health": {"status": "ok, or ready.", "why": "Null where all is well."},
}

PARAMETERS = {
    "name": "The experiment: letters, digits, dots, dashes and underscores.",
    "task": "The task, as it was asked for. Slashes may stand as they are.",
    "arm": "The arm.",
    "format": "Of the file: NDJSON, a record a line, or Parquet.",
}

CODES = {
    200: "Done.",
    201: "Made.",
    204: "Done; the answer is empty.",
    401: "A key is missing or not valid.",
    403: "This key may only read; or, without keys, the service is addressed by another name.",
    404: "There is no such experiment, task, decision or arm, or it is another tenant's.",
    409: "This contradicts what is there.",
    413: "The body has more than {largest:,} bytes.",
    415: "The body is not sent as application/json.",
    422: "A field is missing, unknown or wrong: `field` names it.",
    429: "Too many requests wait; nothing was done. Try again.",
    503: "The store cannot be used now; nothing was done. Try again.",
}

# Examples: of parameters, of bodies, and of answers where a reader wants one

GIVEN = {"mean": 0.0, "scale": 1.0, "task_scale": 0.5}
VALUES = {"name": "buttons", "task": "user-7", "arm": "green", "format": "ndjson"}
BODIES: dict[str, dict[str, Any]] = {
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
    "add_arm": {"like another": {"arm": "yellow", "like": "red"}},
}
ANSWERS: dict[str, Any] = {
    "experiments": {"experiments": ["buttons"]},
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
            "low": 0.018,
            "high": 0.104,
            "policy_mean": 0.287,
            "policy_decisions": 3514,
            "holdout_mean": 0.226,
            "holdout_decisions": 391,
        },
        "state_version": 7905,
        "prior_version": 1,
    },
    "healthz": {"status": "ok", "why": None},
    "readyz": {"status": "ready", "why": None},
}
