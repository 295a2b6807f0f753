"""What an experiment is, as users say it in JSON: its model, its prior, and its rules."""

from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from adats.agents.aging import aging_of
from adats.agents.oracles import Top
from adats.agents.policies import policy_from_dict
from adats.models.core.types import Arm, Stats
from adats.service.errors import Invalid
from adats.service.field_types import (
    LONGEST_WINDOW,
    MOST_ARMS,
    MOST_ATTRIBUTES,
    MOST_DIM,
    MOST_METRICS,
    NUMBER,
    ArmName,
    Declared,
    Figure,
    HalfLife,
    Name,
    Names,
    Numbers,
    Rows,
    Share,
    check_new_name,
    doc,
)
from adats.service.served_models import MODELS

NESTED, MOST_DEPTH = (dict, list), 20  # of what is nested in a prior file; they need 6

UNITS = ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))

KEPT = 8  # specs, and what is made of each, that stay in memory for whoever reads


class DefaultPrior(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """`default_prior`: a wide prior, learned from the first task on."""

    typical: Annotated[
        Figure | None, doc("A usual reward, for numbers (0 unless given) and counts (1).")
    ] = None
    scale: Annotated[Figure | None, doc("Roughly how much rewards differ; numbers need it.")] = None
    version: Annotated[
        Literal[1, 2, 3] | None,
        doc(
            "Of the default prior for binary rewards and counts: 3, where the arms of a task share "
            "a level; 2, where tasks differ less; or 1, that of adats 0.1, where every arm is by "
            "itself. The newest unless given."
        ),
    ] = None


class GivenPrior(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """A prior in figures, one number an arm (or one for all). A mixture has a row a candidate."""

    mean: Annotated[
        Numbers | None,
        doc("Of the mean reward in a new task (gaussian), or of the coefficients (linear)."),
    ] = None
    scale: Annotated[Numbers | None, doc("Standard deviation of our doubt about that mean.")] = None
    task_scale: Annotated[Numbers | None, doc("Standard deviation between tasks.")] = None
    cov: Annotated[
        Numbers | None,
        doc(
            "Covariance of our doubt about the mean (linear); a number is a multiple of the "
            "identity."
        ),
    ] = None
    task_cov: Annotated[Numbers | None, doc("Covariance between tasks (linear).")] = None
    weights: Annotated[
        list[float | list[float]] | None,
        doc("Of the candidates (binary, count): one each, or a row each with one an arm."),
    ] = None
    alpha: Annotated[
        Numbers | None, doc("Of a beta distribution (binary): a row for each candidate.")
    ] = None
    beta: Annotated[Numbers | None, doc("Of a beta distribution (binary).")] = None
    shape: Annotated[
        Numbers | None, doc("Of a gamma distribution (count): a row for each candidate.")
    ] = None
    rate: Annotated[Numbers | None, doc("Of a gamma distribution (count).")] = None


class PriorSpec(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Exactly one of three: figures, the contents of a prior file, or the default."""

    given: Annotated[
        GivenPrior | None, doc("In figures: a number for each arm, or one for all.")
    ] = None
    file: Annotated[
        dict[str, Any] | None, doc("The contents of a prior file, as `adats fit` writes it.")
    ] = None
    default: Annotated[
        DefaultPrior | None, doc("A wide prior, which learns from the first task on.")
    ] = None


class PolicySpec(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """How beliefs become actions: see the guide to policies."""

    name: Annotated[
        Literal["ts", "ucb", "index", "far", "greedy"],
        doc(
            "Thompson sampling (ts), or an index, which explores less: ucb, index, far, greedy. "
            "See the guide to policies."
        ),
    ] = "ts"
    later: Annotated[
        Annotated[float, Meta(ge=0, le=1e12)] | None,
        doc("Rounds of all later tasks together, for far."),
    ] = None
    epsilon: Annotated[Share, doc("The share of decisions that goes to any arm.")] = 0.0


class HoldoutSpec(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """A share of decisions goes to the control arm, or to any arm: the lift is measured on it."""

    share: Annotated[Share, doc("Of all decisions.")]
    to: Annotated[
        Literal["control", "uniform"], doc("The control arm, or any arm with the same chance.")
    ] = "control"


class ExperimentSpec(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """All that is fixed when an experiment is made."""

    model: Annotated[
        Name,
        Meta(extra_json_schema={"enum": sorted(MODELS)}),
        doc(
            "Rewards are numbers (gaussian), numbers that depend on features (linear), 0 or 1 "
            "(binary), 0, 1, 2, … (count), or a number for each of several arms (semi-bandit)."
        ),
    ]
    prior: Annotated[
        PriorSpec,
        doc("What is believed before any data: exactly one of given, file and default."),
    ]
    arms: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_ARMS)] | Names | None,
        doc(
            "Their names, or how many there are; then they are 0, 1, 2, … Not needed if a prior "
            "file has them, or if features come with every decision."
        ),
    ] = None
    dim: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_DIM)] | None,
        doc("Features of an arm, for a linear model."),
    ] = None
    features: Annotated[
        Rows | None,
        doc(
            "A row for each arm, if the arms of a linear model are fixed; otherwise they come "
            "with every decision."
        ),
    ] = None
    size: Annotated[
        Annotated[int, Meta(ge=1, le=MOST_ARMS)] | None,
        doc("The most arms of one action, for a semi-bandit."),
    ] = None
    exactly: Annotated[
        bool,
        doc("Always as many arms as size says, also those that are believed to do harm."),
    ] = False
    noise: Annotated[
        Figure | list[Figure] | None,
        doc(
            "Standard deviation of rewards around their mean, or one for each arm. Only with a "
            "prior in figures, and not for binary rewards and counts."
        ),
    ] = None
    policy: Annotated[PolicySpec, doc("How beliefs become actions.")] = PolicySpec()
    window: Annotated[
        Annotated[float, Meta(gt=0, le=LONGEST_WINDOW)] | None,
        doc("Seconds after a decision in which its reward counts; no end unless given."),
    ] = None
    default_reward: Annotated[
        Figure | None,
        doc("What counts if no reward comes within the window, such as 0 for no click."),
    ] = None
    several: Annotated[
        Literal["first", "sum", "last"],
        doc(
            "Of several rewards to one decision: the first counts and another is an error, or "
            "their sum, or the last."
        ),
    ] = "first"
    apply: Annotated[
        Literal["at_once", "at_window_end"],
        doc(
            "A reward counts at once, or when its window ends. With a default reward, "
            "at_window_end is unbiased: successes do not come in before failures."
        ),
    ] = "at_once"
    late: Annotated[
        Literal["ignore", "replace"],
        doc("A reward after the window is kept and does not count, or replaces what does."),
    ] = "ignore"
    sticky: Annotated[
        Annotated[float, Meta(gt=0, le=LONGEST_WINDOW)] | None,
        doc(
            "Seconds for which a task keeps the arm that was drawn for it; each decision is drawn "
            "anew unless given."
        ),
    ] = None
    half_life: Annotated[
        HalfLife | None,
        doc(
            "Seconds after which a reward weighs half in its task; its age is that of its "
            "decision. It always weighs the same unless given."
        ),
    ] = None
    prior_half_life: Annotated[
        HalfLife | None,
        doc(
            "Seconds after its last reward when a task weighs half in what all tasks taught; it "
            "always weighs the same unless given."
        ),
    ] = None
    attributes: Annotated[
        Declared,
        Meta(max_length=MOST_ATTRIBUTES),
        doc(
            "What may be known of a task before its first reward, by name: number, or a list of "
            "names of which it is one. The prior has a mean for the first names and zeros, and "
            "what each number and each further name adds to it, in the order of attributes' names."
        ),
    ] = {}
    metrics: Annotated[
        dict[Name, Literal[0] | None],
        Meta(max_length=MOST_METRICS),
        doc(
            "Further figures that may come with a reward, by name: 0 if a reward without it counts "
            "as 0, such as revenue; null if it does not count for it, such as a duration."
        ),
    ] = {}
    control: Annotated[
        ArmName | list[ArmName] | None,
        doc(
            "The arm of the holdout, and of answers while the store cannot be written; for a "
            "semi-bandit a list."
        ),
    ] = None
    holdout: Annotated[
        HoldoutSpec | None,
        doc(
            "A share of decisions that goes to the control arm, or to any: the lift is measured "
            "on it."
        ),
    ] = None
    worth: Annotated[
        Annotated[float, Meta(ge=0, le=1e12)] | None,
        doc(
            "The smallest difference between arms that matters, in units of the reward; a "
            "hundredth of the control's mean unless given. The report's sentence goes by it."
        ),
    ] = None
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=2**63 - 1)] | None,
        doc("Of all randomness, together with the decision_id; random unless given."),
    ] = None


def canonical(spec: ExperimentSpec) -> str:
    """The same text for the same experiment."""
    return msgspec.json.encode(spec, order="sorted").decode()


@lru_cache(maxsize=KEPT)
def parse(text: str) -> ExperimentSpec:
    return msgspec.json.decode(text, type=ExperimentSpec)


def completed(spec: ExperimentSpec) -> ExperimentSpec:
    """The settings of a new experiment, which say what version its default prior has.

    In the spec of an experiment that is stored, none stands for the first.
    """
    default, served = spec.prior.default, MODELS.get(spec.model)
    if default is None or default.version is not None or served is None or served.newest == 1:
        return spec
    newest = replace(default, version=served.newest)
    return replace(spec, prior=replace(spec.prior, default=newest))


def check(spec: ExperimentSpec) -> None:
    """Raise `Invalid` unless the fields fit together; the model is checked when it is built."""
    if _too_deep(spec.prior.file):
        raise Invalid("prior.file", f"more than {MOST_DEPTH} levels are nested in this")
    _check_shape(spec)
    if (
        sum(part is not None for part in (spec.prior.given, spec.prior.file, spec.prior.default))
        != 1
    ):
        raise Invalid("prior", "give exactly one of given, file and default")
    if spec.prior.given is None and spec.noise is not None:
        raise Invalid("noise", "the prior brings its own noise unless it is given in figures")
    if spec.policy.later is not None and spec.policy.name != "far":
        raise Invalid("policy.later", "only the policy far looks at later tasks")
    if spec.policy.epsilon and spec.size is not None:
        raise Invalid("policy.epsilon", "epsilon is for single arms, not for a semi-bandit")
    if spec.window is None:
        for field, usual in (("default_reward", None), ("apply", "at_once"), ("late", "ignore")):
            if getattr(spec, field) != usual:
                raise Invalid(field, "this needs a window, in seconds")
    if spec.holdout is not None and spec.holdout.to == "control" and spec.control is None:
        raise Invalid("control", "the holdout goes to the control arm: name it")
    if isinstance(spec.control, list) != (spec.size is not None) and spec.control is not None:
        due = "a list of arms" if spec.size is not None else "one arm"
        raise Invalid("control", f"control is {due} here")
    for name, kind in spec.attributes.items():
        check_new_name(f"attributes.{name}", name)
        if len(set(kind)) < len(kind) and kind != NUMBER:
            raise Invalid(f"attributes.{name}", "a name is there twice")
    if spec.attributes and spec.prior.file is None:
        served = MODELS[spec.model]
        if served.sets or (spec.prior.given is not None and not served.noise):
            instead = "a prior file" if served.sets else "the default prior, or a prior file"
            raise Invalid("attributes", f"a {spec.model} model has these by {instead}")
    for name in spec.metrics:
        check_new_name(f"metrics.{name}", name)
    if spec.size is not None and spec.holdout is not None and spec.holdout.to == "uniform":
        raise Invalid("holdout.to", "a semi-bandit is held out to a control action, not uniformly")


def _check_shape(spec: ExperimentSpec) -> None:
    """What there is to choose from: arms, rows of features, or sets of arms."""
    served = MODELS.get(spec.model)
    if served is None:
        if spec.prior.file is None:
            known = ", ".join(MODELS)
            raise Invalid(
                "model", f"the prior of {spec.model!r} is given by a file; without: {known}"
            )
        return
    if not served.sets:
        for field in ("size", "exactly"):
            if getattr(spec, field):
                raise Invalid(field, "this is for a semi-bandit")
    elif spec.size is None:
        raise Invalid("size", "a semi-bandit needs size, how many arms an action has at most")
    if served.features:
        if spec.dim is None and spec.prior.file is None:
            raise Invalid("dim", "a linear model needs dim, the number of features")
        if isinstance(spec.arms, int) and spec.arms != len(spec.features or ()):
            raise Invalid("arms", "the rows of features are the arms here: leave it out, or name")
        return
    for field in ("dim", "features"):
        if getattr(spec, field) is not None:
            raise Invalid(field, "this is for a linear model")
    if spec.arms is None and spec.prior.file is None:
        raise Invalid("arms", "give the names of the arms, or how many there are")


def how_rewards_age(spec: ExperimentSpec) -> str | None:
    """In a sentence; None if they do not."""
    own, prior = (None if s is None else _span(s) for s in (spec.half_life, spec.prior_half_life))
    if own is None:
        after = f"A task weighs half in what all tasks taught {prior} after its last reward."
        return None if prior is None else after
    taught = "" if prior is None else f", and a task half after {prior} in what all tasks taught"
    return f"A reward weighs half after {own} in its task{taught}."


def _span(seconds: float) -> str:
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= size)
    return f"{seconds / size:.3g} {unit}{'' if seconds == size else 's'}"


def check_rewards(spec: ExperimentSpec, stats: Stats) -> None:
    """Raise `Invalid` unless what the rules make of rewards is a reward for these statistics."""
    if spec.default_reward is not None:  # it will count by itself: a wrong one must not get in
        try:
            stats.check_reward(spec.default_reward)
        except ValueError as error:
            raise Invalid("default_reward", str(error)) from None
    if spec.several == "sum" and not stats.REWARDS_ADD:
        raise Invalid("several", "two rewards of 1 would sum to 2: take first or last, or counts")


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        parts = (item.values() if isinstance(item, dict) else item for item in level if item)
        level = [part for inner in parts for part in inner if isinstance(part, NESTED)]
    return bool(level)


def options_of(spec: ExperimentSpec) -> dict[str, Any]:
    """What the agent of the experiment takes besides its prior."""
    policy: dict[str, Any] = {"name": spec.policy.name}
    if spec.policy.name == "far":
        policy["later"] = spec.policy.later
    options: dict[str, Any] = {
        "policy": policy_from_dict(policy),
        "epsilon": spec.policy.epsilon,
        "features": spec.features,
        "arms": spec.arms if isinstance(spec.arms, list) else None,
        "aging": aging_of(spec.half_life, spec.prior_half_life),
    }
    if spec.size is not None:
        options["oracle"] = Top(spec.size, exactly=spec.exactly)
    return options


def arms_of_control(control: Any) -> list[Arm]:
    return list(control) if isinstance(control, list) else [control]
