"""All experiments by name."""

from adats.paper.experiments.clicks import CLICKS_EXPERIMENT
from adats.paper.experiments.images import IMAGES
from adats.paper.experiments.policies import POLICY_EXPERIMENT
from adats.paper.experiments.price import PRICE
from adats.paper.experiments.simulations import SIMULATIONS
from adats.paper.experiments.spec import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (*SIMULATIONS, PRICE, POLICY_EXPERIMENT, CLICKS_EXPERIMENT, *IMAGES)
}
ALL = tuple(experiment.name for experiment in SIMULATIONS)  # what `all` runs
