"""All experiments by name."""

from adats.paper.experiments.clicks import CLICKS_EXPERIMENT
from adats.paper.experiments.drift import DRIFT
from adats.paper.experiments.images import IMAGES
from adats.paper.experiments.information import INFORMATION
from adats.paper.experiments.policies import POLICY_EXPERIMENT
from adats.paper.experiments.price import PRICE
from adats.paper.experiments.simulations import SIMULATIONS
from adats.paper.experiments.spec import Experiment
from adats.paper.experiments.uncertain_arms import UNCERTAIN_ARMS

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *SIMULATIONS,
        PRICE,
        INFORMATION,
        UNCERTAIN_ARMS,
        POLICY_EXPERIMENT,
        CLICKS_EXPERIMENT,
        DRIFT,
        *IMAGES,
    )
}
ALL = tuple(experiment.name for experiment in SIMULATIONS)  # what `all` runs
