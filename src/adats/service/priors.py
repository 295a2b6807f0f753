"""The meta-prior of an experiment: from figures, from a prior file, or the default one.

How figures become a prior is registered for the name of each model. A model without that is served
from a prior file.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from adats.models import BetaArms, GaussianMeta, LinearMeta, MixtureMeta, PoissonArms
from adats.models.core import checks, files
from adats.models.core.errors import InvalidValue
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, MetaBelief
from adats.models.default_prior import (
    EARLIER_SPREADS,
    TYPICAL_RATE,
    default_prior,
    grid_prior,
    level_prior,
)
from adats.models.gaussian.meta import GaussianScales
from adats.models.prior_files import prior_from_dict
from adats.service.designs import column_count, usual_design
from adats.service.errors import Invalid
from adats.service.field_types import LARGEST, LEAST, MOST_ARMS, MOST_DIM, ArmName
from adats.service.served_models import MODELS
from adats.service.spec import DefaultPrior, ExperimentSpec, GivenPrior, PriorSpec, check_rewards

MOST_CANDIDATES = 20_000  # times arms: all are looked at in each decision
LEAST_COST = 20  # of one model, in arms: what it takes besides them
SQUARE_COST = 0.01  # of an entry of a covariance, in arms: matrices are fast
COUNTS, SPREADS, NUMBERS = (1e-6, 1e12), (LEAST, LARGEST), (0.0, LARGEST)
LIMITS = {  # of the sizes of figures that are not 0
    **dict.fromkeys(("alpha", "beta", "shape", "rate"), COUNTS),  # they count pulls
    **dict.fromkeys(("scale", "task_scale", "noise"), SPREADS),
    **dict.fromkeys(("mean", "cov", "task_cov"), NUMBERS),
}


def prior_of(spec: ExperimentSpec) -> MetaBelief:
    """The meta-prior of the experiment, or `Invalid`."""
    prior = spec.prior
    try:
        if prior.file is not None:
            meta = _from_file(spec, prior.file)
        elif prior.default is not None:
            meta = _default(spec, prior.default)
        else:
            assert prior.given is not None
            meta = _given(spec, prior.given)
        _check_figures(meta)
    except OverflowError:
        raise Invalid("prior", "the figures of the prior are too small or too large") from None
    except InvalidValue as error:
        raise Invalid(_path(prior, error.field), str(error)) from None
    except ValueError as error:
        raise Invalid("prior", str(error)) from None
    if meta.n_candidates > MOST_CANDIDATES:
        raise Invalid("prior", f"more than {MOST_CANDIDATES} candidates times arms")
    check_rewards(spec, meta.empty())
    return meta


def check_cost(spec: ExperimentSpec) -> None:
    """Raise `Invalid` if a new prior would take too long in each decision. It is not built yet."""
    file, given = spec.prior.file, spec.prior.given
    if file is not None:
        cost, field = _cost(file.get("prior")), "prior.file"
    else:
        weights = None if given is None else given.weights
        cost, field = float(len(weights or ()) * _count(spec)), "prior.given.weights"
    if cost > MOST_CANDIDATES:
        raise Invalid(
            field,
            "every decision looks at all of a prior: models or candidates times arms are at most "
            f"{MOST_CANDIDATES:,}, here {cost:,.0f} (a model counts for {LEAST_COST} arms at "
            f"least, an entry of a covariance for {SQUARE_COST}); take fewer of them",
        )
    size, parts = spec.dim or _count(spec), column_count(spec.attributes)
    if spec.attributes and size * parts > MOST_DIM:
        raise Invalid(
            "attributes",
            f"arms or features times {parts} (1, each number, each name after the first of a list) "
            f"are at most {MOST_DIM}, here {size * parts}: declare fewer",
        )


def _cost(data: Any) -> float:
    """Of the prior in a file, in candidates times arms; what is no prior is refused later."""
    if not isinstance(data, dict):
        return 0.0
    if isinstance(data.get("models"), list):
        return sum(map(_cost, data["models"]))
    tables = data.get("priors")
    if isinstance(tables, dict):  # a mixture: a row a candidate
        return float(max((_length(table) * _width(table) for table in tables.values()), default=0))
    width = max(_width(data.get("mean")), _length(data.get("arms")))
    numbers = max(width, SQUARE_COST * width**2) if "cov" in data else width
    return max(float(LEAST_COST), _length(data.get("log_weights")) * numbers)


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


def _width(value: Any) -> int:
    """Of the rows of a table, or of a row."""
    rows = [row for row in value if isinstance(row, list)] if isinstance(value, list) else []
    return max(map(len, rows)) if rows else _length(value)


def _path(prior: PriorSpec, field: str) -> str:
    """Where in the request a field of a prior is."""
    if field in ("arms", "noise"):
        return field
    for name, part in (("given", prior.given), ("default", prior.default)):
        if part is not None and field in part.__struct_fields__:
            return f"prior.{name}.{field}"
    return "prior"


def _check_figures(meta: MetaBelief) -> None:
    """Raise ValueError for figures with which one cannot reckon."""
    for name, values in meta.figures().items():
        least, most = LIMITS.get(name, NUMBERS)
        sizes = np.abs(values)
        sizes = sizes[sizes > 0]
        if sizes.size and not (least <= sizes.min() and sizes.max() <= most):
            raise InvalidValue(name, f"is between {least} and {most} in size, or 0 if it can be")
    prior = meta.task_prior()
    if not np.isfinite(prior.mean).all() or np.isnan(prior.scale).any():
        raise ValueError("the figures of the prior do not go together")


# figures


def _given(spec: ExperimentSpec, given: GivenPrior) -> MetaBelief:
    model = MODELS[spec.model]
    found = {name for name in given.__struct_fields__ if getattr(given, name) is not None}
    if found != model.figures:
        wrong = sorted(found ^ model.figures)[0]
        listed = ", ".join(sorted(model.figures))
        raise Invalid(f"prior.given.{wrong}", f"a {spec.model} prior is given by {listed}")
    if model.noise != (spec.noise is not None):
        needs = "needs" if model.noise else "has no"
        raise Invalid("noise", f"a {spec.model} model {needs} noise")
    return GIVEN[model.prior](spec, given)


def _gaussian(spec: ExperimentSpec, given: GivenPrior) -> MetaBelief:
    mean = _mean_of(given, _count(spec))
    scale, task_scale, noise = (
        checks.array(name, value)
        for name, value in (
            ("scale", given.scale),
            ("task_scale", given.task_scale),
            ("noise", spec.noise),
        )
    )
    plain = GaussianMeta(mean, scale, task_scale=task_scale, noise=noise, arms=_names(spec))
    return plain if not spec.attributes else _with_attributes(plain.scales, spec)


def _with_attributes(of: GaussianScales, spec: ExperimentSpec) -> MetaBelief:
    """What an attribute adds is 0 at first, with as much doubt as there is about the arm."""
    if np.ptp(of.noise):
        raise Invalid("noise", "with attributes all arms have one noise")
    parts, size = column_count(spec.attributes), of.meta_mean.size
    return LinearMeta(
        np.pad(of.meta_mean, (0, size * (parts - 1))),
        np.diag(np.tile(of.meta_variance, parts)),
        task_cov=np.diag(of.task_variance),
        noise=of.noise[0],
        design=usual_design(spec.attributes, size),
        arms=_names(spec) or range(size),
    )


def _mean_of(given: GivenPrior, size: int) -> FloatArray:
    mean = checks.array("mean", given.mean)
    if mean.shape not in ((), (1,), (size,)):
        raise InvalidValue("mean", f"is one number or {size} of them, got shape {mean.shape}")
    return np.broadcast_to(mean, (size,))


def _linear(spec: ExperimentSpec, given: GivenPrior) -> MetaBelief:
    dim = spec.dim or 0
    mean = _mean_of(given, dim * column_count(spec.attributes))
    if not isinstance(spec.noise, float | int):
        raise Invalid("noise", "a linear model has one noise")
    cov, task_cov = checks.array("cov", given.cov), checks.array("task_cov", given.task_cov)
    design = usual_design(spec.attributes, dim) if spec.attributes else None
    return LinearMeta(mean, cov, task_cov=task_cov, noise=spec.noise, design=design)


def _binary(spec: ExperimentSpec, given: GivenPrior) -> MetaBelief:
    return _mixture(spec, given, BetaArms, given.alpha, given.beta)


def _counts(spec: ExperimentSpec, given: GivenPrior) -> MetaBelief:
    return _mixture(spec, given, PoissonArms, given.shape, given.rate)


def _mixture(
    spec: ExperimentSpec, given: GivenPrior, family: Callable[..., ProductArms], *pair: Any
) -> MetaBelief:
    weights = checks.array("weights", given.weights)
    names = sorted(MODELS[spec.model].figures - {"weights"}, key=given.__struct_fields__.index)
    tables: list[FloatArray] = []
    for name, value in zip(names, pair, strict=True):
        table = checks.array(name, value)
        if table.ndim == 1:  # one number a candidate
            table = table[:, None]
        tables.append(np.broadcast_to(table, (len(weights), _count(spec))))
    return MixtureMeta(weights, family(*tables), arms=_names(spec))


GIVEN: dict[str, Callable[[ExperimentSpec, GivenPrior], MetaBelief]] = {
    "gaussian": _gaussian,
    "linear": _linear,
    "binary": _binary,
    "count": _counts,
}


def _names(spec: ExperimentSpec) -> list[str] | None:
    return spec.arms if isinstance(spec.arms, list) else None


def _count(spec: ExperimentSpec) -> int:
    return len(spec.arms) if isinstance(spec.arms, list) else spec.arms or 0


# the default, and files


def _default(spec: ExperimentSpec, default: DefaultPrior) -> MetaBelief:
    served, names = MODELS[spec.model], _names(spec)
    rewards: Any = served.default
    if names is None and not served.features:
        raise Invalid("arms", "the default prior needs names of arms")
    version = default.version or 1  # as experiments of adats 0.1 are stored
    if version > served.newest:
        raise Invalid("prior.default.version", f"a {spec.model} model has version 1 only")
    if version == 1 < served.newest and names is not None:
        if default.scale is not None:
            raise Invalid("prior.default.scale", f"a {spec.model} model has no scale")
        if spec.attributes:
            raise Invalid("prior.default.version", "version 1 has no attributes")
        return grid_prior(arms=names, rewards=rewards, typical=default.typical)
    meta: MetaBelief = default_prior(
        arms=None if served.features else names,
        dim=spec.dim,
        rewards=rewards,
        typical=default.typical,
        scale=default.scale,
        attributes=column_count(spec.attributes) - 1,
    )
    if version == 2 and names is not None:
        typical = TYPICAL_RATE if rewards == "binary" else default.typical or 1.0
        more = column_count(spec.attributes) - 1
        return level_prior(
            names, rewards, task_scales=EARLIER_SPREADS, typical=typical, attributes=more
        )
    return meta


def _from_file(spec: ExperimentSpec, file: dict[str, Any]) -> MetaBelief:
    try:
        meta = prior_from_dict(file, "prior.file")
    except files.DAMAGED as error:
        raise Invalid("prior.file", f"this is no prior file: {error}") from None
    served = MODELS.get(spec.model)
    if meta.model != (spec.model if served is None else served.prior):
        raise Invalid("prior.file", f"the file has a {meta.model} prior, not a {spec.model} one")
    if spec.attributes:
        try:
            size = meta.empty().pending_shape[0]
            meta.task_prior(design=usual_design(spec.attributes, size))
        except ValueError as error:
            raise Invalid("attributes", f"the prior does not have these: {error}") from None
    if spec.dim not in (None, meta.n_features):
        raise Invalid("dim", f"dim is {spec.dim}, but the prior has {meta.n_features} features")
    if meta.n_features > MOST_DIM:
        raise Invalid("prior.file", f"more than {MOST_DIM} features")
    if not meta.n_features:
        _check_arms(spec, meta)
    return meta


def _check_arms(spec: ExperimentSpec, meta: MetaBelief) -> None:
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
