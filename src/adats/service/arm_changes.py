"""The arms of an experiment: as its spec has them, and what was added and retired since."""

import msgspec
import numpy as np

from adats.agents.arms import Arms
from adats.agents.choice import Action, Holdout
from adats.agents.prior_source import Marginal
from adats.agents.steps import Setup, make_setup
from adats.models.core.types import MetaBelief
from adats.service.errors import Invalid
from adats.service.spec import ExperimentSpec, arms_of_control, options_of


class Change(msgspec.Struct, frozen=True):
    """An arm that was added, or retired."""

    arm: int | str
    retired: bool = False
    like: int | str | None = None
    features: list[float] | None = None


def setup_of(spec: ExperimentSpec, meta: MetaBelief) -> Setup:
    """The parts of an agent that this spec asks for, or `Invalid`."""
    try:
        setup = make_setup(meta, Marginal(), **options_of(spec))
    except ValueError as error:
        raise Invalid("features" if spec.features is not None else "arms", str(error)) from None
    if (spec.size or 1) > (setup.arms.count or 1):
        raise Invalid("size", f"there are {setup.arms.count} arms")
    control = _control_of(spec, setup.arms)
    if spec.holdout is None:
        return setup
    to_control = spec.holdout.to == "control"
    return setup.with_holdout(Holdout(spec.holdout.share, control if to_control else None))


def check_change(spec: ExperimentSpec, arms: Arms, change: Change) -> None:
    """Raise `Invalid` for an arm that would be retired and is needed, or cannot be added."""
    if not change.retired:
        if spec.attributes and spec.dim is None and spec.features is None:
            raise Invalid("arm", "with attributes an experiment has its arms from the start")
        return
    control = _control_of(spec, arms)
    if control is not None:
        try:
            index = arms.index(change.arm)
        except ValueError as error:
            raise Invalid("arm", str(error)) from None
        if index in np.atleast_1d(control):
            raise Invalid("arm", f"{change.arm!r} is the control arm; it cannot be retired")
    if spec.exactly and len(arms.open) <= (spec.size or 0):
        raise Invalid("arm", f"an action has exactly {spec.size} arms; add one before")


def _control_of(spec: ExperimentSpec, arms: Arms) -> Action | None:
    """The control action by indices of arms, or `Invalid`."""
    if spec.control is None:
        return None
    if arms.count is None:  # the arms are the rows of features that come with a decision
        if not isinstance(spec.control, int):
            raise Invalid("control", "arms have no names here: control is a row of the features")
        return spec.control
    try:
        wanted = [arms.index(arm) for arm in arms_of_control(spec.control)]
    except ValueError as error:
        raise Invalid("control", str(error)) from None
    if spec.size is None:
        return wanted[0]
    several = np.unique(np.array(wanted, dtype=np.intp))
    if several.size != len(wanted) or not 1 <= several.size <= spec.size:
        raise Invalid("control", f"{spec.control} is not an action")
    return several
