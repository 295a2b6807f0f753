"""The models that can be served, and what of a request each of them takes."""

from typing import Literal, NamedTuple


class ServedModel(NamedTuple):
    """What an experiment with this model has to say."""

    prior: str  # what the model is called by the prior that it needs
    figures: frozenset[str]  # of a prior in figures
    default: str  # the rewards of its default prior
    noise: bool = True  # whether it is given beside them
    features: bool = False  # whether arms are rows of features
    sets: bool = False  # whether an action is a set of arms
    rates: bool = False  # whether rewards are 0 and 1
    newest: Literal[1, 3] = 1  # version of its default prior


SCALES = frozenset({"mean", "scale", "task_scale"})
MODELS: dict[str, ServedModel] = {
    "gaussian": ServedModel("gaussian", SCALES, "number"),
    "linear": ServedModel(
        "linear", frozenset({"mean", "cov", "task_cov"}), "number", features=True
    ),
    "binary": ServedModel(
        "binary",
        frozenset({"weights", "alpha", "beta"}),
        "binary",
        noise=False,
        newest=3,
        rates=True,
    ),
    "count": ServedModel(
        "count", frozenset({"weights", "shape", "rate"}), "count", noise=False, newest=3
    ),
    "semi-bandit": ServedModel("gaussian", SCALES, "number", sets=True),
}
