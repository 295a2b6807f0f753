"""What an experiment is, as users say it in JSON: its model, its prior, and its rules."""

from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct

from adats.agents.oracles import Top
from adats.agents.policies import policy_from_dict
from adats.models import (
    BetaArms,
    BinaryStats,
    CountStats,
    GaussianMeta,
    LinearMeta,
    MixtureMeta,
    ModelMixture,
    PoissonArms,
    prior_files,
)
from adats.models.core import checks, files
from adats.models.core.stats import ArmStats
from adats.models.core.types import Arm, MetaBelief
from adats.models.default_prior import default_prior

MOST_ARMS, MOST_DIM, LONGEST_NAME, MOST_REWARDS = 500, 128, 200, 1000
MOST_NUMBERS = 20_000  # candidates times arms of a mixture: all are looked at in each decision
NESTED, MOST_DEPTH = (dict, list), 20  # of what is nested in a prior file; they need 6
LONGEST_WINDOW = 10 * 365 * 86_400.0
LARGEST, LEAST = 1e20, 1e-20  # figures: products of a few of them, and of their inverses, exist
LARGEST_COUNT, LEAST_COUNT = 1e12, 1e-6  # of parameters that count pulls: alpha, beta, shape, rate

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
ArmName = Annotated[int, Meta(ge=0, le=2**53)] | Name
Names = Annotated[list[Name], Meta(min_length=1, max_length=MOST_ARMS)]
Figure = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
Numbers = Figure | list[Figure | list[Figure]]
Row = Annotated[list[Figure], Meta(max_length=MOST_DIM)]
Rows = Annotated[list[Row], Meta(max_length=MOST_ARMS)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Invalid(Exception):
    """What the user gave cannot be taken: in which field, and why."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


class Default(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """`default_prior`: a wide prior, learned from the first task on."""

    typical: Figure | None = None
    scale: Figure | None = None


class Given(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """A prior in figures, one number an arm (or one for all). A mixture has a row a candidate."""

    mean: Numbers | None = None
    scale: Numbers | None = None
    task_scale: Numbers | None = None
    cov: Numbers | None = None
    task_cov: Numbers | None = None
    weights: list[float | list[float]] | None = None
    alpha: Numbers | None = None
    beta: Numbers | None = None
    shape: Numbers | None = None
    rate: Numbers | None = None


class Prior(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """Exactly one of three: figures, the contents of a prior file, or the default."""

    given: Given | None = None
    file: dict[str, Any] | None = None
    default: Default | None = None


class PolicySpec(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """How beliefs become actions: see the guide to policies."""

    name: Literal["ts", "ucb", "index", "far", "greedy"] = "ts"
    later: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    epsilon: Share = 0.0


class Holdout(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """A share of decisions goes to the control arm, or to any arm: the lift is measured on it."""

    share: Share
    to: Literal["control", "uniform"] = "control"


class Experiment(Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    """All that is fixed when an experiment is made."""

    model: Literal["gaussian", "linear", "binary", "count", "semi-bandit"]
    prior: Prior
    arms: Annotated[int, Meta(ge=1, le=MOST_ARMS)] | Names | None = None
    dim: Annotated[int, Meta(ge=1, le=MOST_DIM)] | None = None
    features: Rows | None = None  # of a linear model whose arms are fixed
    size: Annotated[int, Meta(ge=1, le=MOST_ARMS)] | None = None  # arms in a semi-bandit's action
    exactly: bool = False  # size arms always, also those of negative mean
    noise: Figure | list[Figure] | None = None
    policy: PolicySpec = PolicySpec()
    window: Annotated[float, Meta(gt=0, le=LONGEST_WINDOW)] | None = None  # seconds
    default_reward: Figure | None = None
    several: Literal["first", "sum", "last"] = "first"
    apply: Literal["at_once", "at_window_end"] = "at_once"
    late: Literal["ignore", "replace"] = "ignore"
    control: ArmName | list[ArmName] | None = None
    holdout: Holdout | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


def canonical(spec: Experiment) -> str:
    """The same text for the same experiment."""
    return msgspec.json.encode(spec, order="sorted").decode()


def parse(text: str) -> Experiment:
    return msgspec.json.decode(text, type=Experiment)


def check(spec: Experiment) -> None:
    """Raise `Invalid` unless the fields fit together; the model is checked when it is built."""
    if _too_deep(spec.prior.file):
        raise Invalid("prior.file", f"more than {MOST_DEPTH} levels are nested in this")
    if spec.model == "linear":
        for field in ("size", "exactly"):
            if getattr(spec, field):
                raise Invalid(field, "this is for a semi-bandit")
        if spec.dim is None and spec.prior.file is None:
            raise Invalid("dim", "a linear model needs dim, the number of features")
        if isinstance(spec.arms, int) and spec.arms != len(spec.features or ()):
            raise Invalid("arms", "the rows of features are the arms here: leave it out, or name")
    else:
        for field in ("dim", "features"):
            if getattr(spec, field) is not None:
                raise Invalid(field, "this is for a linear model")
        if spec.arms is None and spec.prior.file is None:
            raise Invalid("arms", "give the names of the arms, or how many there are")
        if (spec.size is None) == (spec.model == "semi-bandit"):
            raise Invalid("size", "a semi-bandit needs size, how many arms an action has at most")
        if spec.exactly and spec.model != "semi-bandit":
            raise Invalid("exactly", "this is for a semi-bandit")
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
    if spec.default_reward is not None:  # it will count by itself: a wrong one must not get in
        rewards = {"binary": BinaryStats, "count": CountStats}.get(spec.model, ArmStats)
        try:
            rewards.check_reward(spec.default_reward)
        except ValueError as error:
            raise Invalid("default_reward", str(error)) from None
    if spec.several == "sum" and spec.model == "binary":
        raise Invalid("several", "two rewards of 1 would sum to 2: take first or last, or counts")
    if spec.holdout is not None and spec.holdout.to == "control" and spec.control is None:
        raise Invalid("control", "the holdout goes to the control arm: name it")
    if isinstance(spec.control, list) != (spec.size is not None) and spec.control is not None:
        due = "a list of arms" if spec.size is not None else "one arm"
        raise Invalid("control", f"control is {due} here")
    if spec.size is not None and spec.holdout is not None and spec.holdout.to == "uniform":
        raise Invalid("holdout.to", "a semi-bandit is held out to a control action, not uniformly")


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        parts = (item.values() if isinstance(item, dict) else item for item in level if item)
        level = [part for inner in parts for part in inner if isinstance(part, NESTED)]
    return bool(level)


def meta_of(spec: Experiment) -> MetaBelief:
    """The meta-prior of the experiment, or `Invalid`."""
    try:
        if spec.prior.file is not None:
            meta = _from_file(spec, spec.prior.file)
        elif spec.prior.default is not None:
            meta = _default(spec, spec.prior.default)
        else:
            assert spec.prior.given is not None
            meta = _given(spec, spec.prior.given)
        _check_figures(meta)
        return meta
    except OverflowError:
        raise Invalid("prior", "the figures of the prior are too small or too large") from None
    except ValueError as error:
        raise Invalid(_blamed(spec.prior, str(error)), str(error)) from None


def _blamed(prior: Prior, error: str) -> str:
    """The field that an error begins with, such as "scale must not be negative"."""
    name = error.partition(" ")[0]
    if name in ("arms", "noise"):
        return name
    for part in ("given", "default"):
        if name in getattr(getattr(prior, part), "__struct_fields__", ()):
            return f"prior.{part}.{name}"
    return "prior"


def _check_figures(meta: Any) -> None:
    """Raise ValueError for figures with which one cannot reckon."""
    if isinstance(meta, ModelMixture):
        for part in _parts(meta):
            _check_figures(part)
        return
    if isinstance(meta, MixtureMeta):
        for name, value in zip(meta.priors.PARAMETERS, meta.priors.parameters(), strict=True):
            _within(name, value, LEAST_COUNT, LARGEST_COUNT)
        return
    for name in ("meta_mean", "meta_cov", "task_cov", "meta_scale", "task_scale", "noise"):
        value = np.abs(getattr(meta, name, 0.0))
        spread = name in ("meta_scale", "task_scale", "noise")
        _within(name.removeprefix("meta_"), value[value > 0], LEAST if spread else 0.0, LARGEST)
    prior = meta.task_prior()
    if not np.isfinite(prior.mean).all() or np.isnan(prior.scale).any():
        raise ValueError("the figures of the prior do not go together")


def _within(name: str, values: Any, least: float, most: float) -> None:
    if values.size and not (least <= values.min() and values.max() <= most):
        raise ValueError(f"{name} is between {least} and {most} in size, or 0 if it can be")


def _names(spec: Experiment) -> list[str] | None:
    return spec.arms if isinstance(spec.arms, list) else None


def _given(spec: Experiment, given: Given) -> MetaBelief:
    told = {name for name in given.__struct_fields__ if getattr(given, name) is not None}
    needs = {
        "linear": {"mean", "cov", "task_cov"},
        "binary": {"weights", "alpha", "beta"},
        "count": {"weights", "shape", "rate"},
    }.get(spec.model, {"mean", "scale", "task_scale"})
    if told != needs:
        wrong = sorted(told ^ needs)[0]
        listed = ", ".join(sorted(needs))
        raise Invalid(f"prior.given.{wrong}", f"a {spec.model} prior is given by {listed}")
    noisy = spec.model not in ("binary", "count")
    if noisy != (spec.noise is not None):
        raise Invalid("noise", f"a {spec.model} model {'needs' if noisy else 'has no'} noise")
    arms = len(spec.arms) if isinstance(spec.arms, list) else spec.arms or 0
    if spec.model == "linear":
        mean = np.broadcast_to(checks.array("mean", given.mean), (spec.dim or 0,))
        if not isinstance(spec.noise, float | int):
            raise Invalid("noise", "a linear model has one noise")
        return LinearMeta(mean, given.cov, task_cov=given.task_cov, noise=spec.noise)
    if spec.model in ("binary", "count"):
        return _mixture(spec, given, arms)
    mean = np.broadcast_to(checks.array("mean", given.mean), (arms,))
    return GaussianMeta(
        mean, given.scale, task_scale=given.task_scale, noise=spec.noise, arms=_names(spec)
    )


def _mixture(spec: Experiment, given: Given, arms: int) -> MetaBelief:
    weights = checks.array("weights", given.weights)
    family: Any = BetaArms if spec.model == "binary" else PoissonArms
    pair = (given.alpha, given.beta) if spec.model == "binary" else (given.shape, given.rate)
    shape = (len(weights), arms)
    tables = []
    for name, value in zip(family.PARAMETERS, pair, strict=True):
        table = checks.array(name, value)
        if table.ndim == 1:  # one number a candidate
            table = table[:, None]
        tables.append(np.broadcast_to(table, shape))
    return MixtureMeta(weights, family(*tables), arms=_names(spec))


def _default(spec: Experiment, default: Default) -> MetaBelief:
    if spec.model == "linear":
        raise Invalid("prior.default", "there is no default prior for linear models: fit one")
    names = _names(spec)
    if names is None:
        raise Invalid("arms", "the default prior needs names of arms")
    rewards: Any = spec.model if spec.model in ("binary", "count") else "number"
    meta: MetaBelief = default_prior(
        arms=names, rewards=rewards, typical=default.typical, scale=default.scale
    )
    return meta


def _from_file(spec: Experiment, file: dict[str, Any]) -> MetaBelief:
    try:
        files.check_kind("prior.file", file, "adats-prior")
        meta: Any = prior_files.meta_from_dict(file["prior"])
    except files.DAMAGED as error:
        raise Invalid("prior.file", f"this is no prior file: {error}") from None
    if _kind(meta) != ("gaussian" if spec.model == "semi-bandit" else spec.model):
        raise Invalid("prior.file", f"the file has a {_kind(meta)} prior, not a {spec.model} one")
    parts = _parts(meta)
    if isinstance(parts[0], LinearMeta):
        if any(part.design is not None for part in parts):
            raise Invalid("prior.file", "priors with a design are not served")
        dim = parts[0].meta_mean.size
        if spec.dim not in (None, dim):
            raise Invalid("dim", f"dim is {spec.dim}, but the prior has {dim} features")
        if dim > MOST_DIM:
            raise Invalid("prior.file", f"more than {MOST_DIM} features")
        return meta  # type: ignore[no-any-return]
    if meta.n_arms > MOST_ARMS:
        raise Invalid("prior.file", f"more than {MOST_ARMS} arms")
    try:
        msgspec.convert(list(meta.arms or ()), list[ArmName])
    except msgspec.ValidationError as error:
        raise Invalid("prior.file", f"the arms of the prior cannot be served: {error}") from None
    named = spec.arms if isinstance(spec.arms, int) or spec.arms is None else tuple(spec.arms)
    if named not in (None, meta.n_arms, meta.arms):
        have = meta.n_arms if meta.arms is None else list(meta.arms)
        raise Invalid("arms", f"the arms are {spec.arms}, but those of the prior are {have}")
    return meta  # type: ignore[no-any-return]


def _parts(meta: Any) -> list[Any]:
    """The models in a mixture of models, which may be nested."""
    if isinstance(meta, ModelMixture):
        return [part for model in meta.models for part in _parts(model)]
    return [meta]


def _kind(meta: Any) -> str:
    first = _parts(meta)[0]
    if isinstance(first, GaussianMeta):
        return "gaussian"
    if isinstance(first, LinearMeta):
        return "linear"
    family = type(first.priors)
    return {BetaArms: "binary", PoissonArms: "count"}.get(family, family.__name__)


def numbers_in(meta: Any) -> int:
    """How many numbers each decision has to look at."""
    return sum(part.log_weights.size for part in _parts(meta) if isinstance(part, MixtureMeta))


def options_of(spec: Experiment) -> dict[str, Any]:
    """What the agent of the experiment takes besides its prior."""
    policy: dict[str, Any] = {"name": spec.policy.name}
    if spec.policy.name == "far":
        policy["later"] = spec.policy.later
    options: dict[str, Any] = {
        "policy": policy_from_dict(policy),
        "epsilon": spec.policy.epsilon,
        "features": spec.features,
    }
    if spec.size is not None:
        options["oracle"] = Top(spec.size, exactly=spec.exactly)
    if spec.model == "linear" and isinstance(spec.arms, list):
        options["arms"] = spec.arms
    return options


def arms_of_control(control: Any) -> list[Arm]:
    return list(control) if isinstance(control, list) else [control]
