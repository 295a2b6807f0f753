"""Priors as small versioned JSON."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from adats import models as beliefs
from adats.models import GaussianMeta, LinearMeta, MixtureMeta, ModelMixture
from adats.models.core.errors import FileFormatError
from adats.models.core.files import DAMAGED, VERSION, check_kind, write_bytes
from adats.models.core.frozen import evolve
from adats.models.core.linalg import Sum
from adats.models.core.product import ProductArms
from adats.models.core.types import FloatArray, MetaBelief

M = TypeVar("M", GaussianMeta, LinearMeta, MixtureMeta)
FAMILIES = ("BetaArms", "PoissonArms", "ExponentialArms", "GaussianArms")


def meta_to_dict(meta: MetaBelief) -> dict[str, Any]:
    """A meta-belief, with what it has learned, as plain JSON values."""
    match meta:
        case GaussianMeta():
            return {
                "model": "gaussian",
                "mean": meta.meta_mean.tolist(),
                "scale": meta.meta_scale.tolist(),
                "task_scale": meta.task_scale.tolist(),
                "noise": meta.noise.tolist(),
                "arms": meta.arms,
                "total": _sum_to_list(meta.total),
            }
        case LinearMeta():
            return {
                "model": "linear",
                "mean": meta.meta_mean.tolist(),
                "cov": meta.meta_cov.tolist(),
                "task_cov": meta.task_cov.tolist(),
                "noise": meta.noise,
                "design": None if meta.design is None else meta.design.tolist(),
                "total": _sum_to_list(meta.total),
            }
        case MixtureMeta():
            names = meta.priors.PARAMETERS
            values = [p.tolist() for p in meta.priors.parameters()]
            return {
                "model": "mixture",
                "family": type(meta.priors).__name__,
                "priors": dict(zip(names, values, strict=True)),
                "log_weights": _finite_or_null(meta.log_weights),
                "separate": meta.separate,
                "arms": meta.arms,
                "total": _sum_to_list(meta.total),
            }
        case ModelMixture():
            return {
                "model": "models",
                "log_weights": _finite_or_null(meta.log_weights),
                "models": [meta_to_dict(model) for model in meta.models],
            }
    raise ValueError(f"a {type(meta).__name__} cannot be written to a file")


def meta_from_dict(data: dict[str, Any]) -> MetaBelief:
    """The meta-belief back from `meta_to_dict`; everything is checked again."""
    model = data["model"]
    if model == "gaussian":
        keys = ("mean", "scale", "task_scale", "noise", "arms")
        return _with_total(GaussianMeta(**{key: data[key] for key in keys}), data)
    if model == "linear":
        keys = ("mean", "cov", "task_cov", "noise", "design")
        return _with_total(LinearMeta(**{key: data[key] for key in keys}), data)
    if model == "mixture":
        family: type[ProductArms] = getattr(beliefs, _known(data["family"], FAMILIES))
        logs = _from_null(data["log_weights"])
        weights = np.exp(logs) if data["separate"] else np.exp(logs)[:, 0]
        mixture = MixtureMeta(weights, family(**data["priors"]), arms=data["arms"])
        return _with_total(evolve(mixture, log_weights=logs), data)
    if model == "models":
        logs = _from_null(data["log_weights"])
        models = [meta_from_dict(part) for part in data["models"]]
        return evolve(ModelMixture(np.exp(logs), models), log_weights=logs)
    raise ValueError(f"unknown model {model!r}")


def _with_total(meta: M, data: dict[str, Any]) -> M:
    if data["total"] is None:
        return meta
    high, low = (np.array(part, dtype=np.float64) for part in data["total"])
    if high.shape != meta.total.high.shape or low.shape != high.shape:
        raise ValueError(f"total has shape {high.shape}")
    if not (np.isfinite(high).all() and np.isfinite(low).all()):
        raise ValueError("total is not finite")
    return evolve(meta, total=Sum(high, low))


def _sum_to_list(total: Sum) -> list[list[float]] | None:
    """None where nothing was absorbed yet: a fresh prior is a small file."""
    if not (total.high.any() or total.low.any()):
        return None
    return [total.high.tolist(), total.low.tolist()]


def _finite_or_null(logs: FloatArray) -> Any:
    """JSON has no infinity: the logarithm of a zero weight is null."""
    return [_finite_or_null(row) if row.ndim else _null(float(row)) for row in logs]


def _null(value: float) -> float | None:
    return None if value == -np.inf else value


def _from_null(values: Any) -> Any:
    if isinstance(values, list):
        return np.array([_from_null(value) for value in values], dtype=np.float64)
    if values is not None and not values <= 1e-6:
        raise ValueError(f"the logarithm of a weight is {values}")
    return np.float64(-np.inf if values is None else values)


def _known(name: Any, names: Sequence[str]) -> str:
    if name not in names:
        raise ValueError(f"unknown kind {name!r}")
    return cast(str, name)


def save_prior(
    meta: MetaBelief, path: str | os.PathLike[str], *, about: dict[str, Any] | None = None
) -> None:
    """Write a meta-belief, with what it has learned, as small versioned JSON.

    `about` says where it comes from, in plain JSON values; `read_about` reads it back.
    """
    data = {"format": "adats-prior", "version": VERSION, "prior": meta_to_dict(meta)}
    if about is not None:
        if not isinstance(about, dict) or not all(isinstance(key, str) for key in about):
            raise ValueError(f"about must be a dict with names as keys, got {about!r}")
        data["about"] = about
    try:
        text = json.dumps(data, allow_nan=False, indent=1) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"about must hold plain JSON values: {error}") from None
    write_bytes(path, text.encode())


def load_prior(path: str | os.PathLike[str]) -> Any:
    """Read a meta-belief from a file that `save_prior` wrote."""
    data = _read_prior(path)
    try:
        return meta_from_dict(data["prior"])
    except DAMAGED as error:
        raise FileFormatError(f"{os.fspath(path)} is damaged: {error}") from None


def read_about(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `save_prior` was told about the prior in a file; empty if nothing."""
    about = _read_prior(path).get("about", {})
    if not isinstance(about, dict):
        raise FileFormatError(f"{os.fspath(path)} is damaged: about is {about!r}")
    return about


def _read_prior(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{os.fspath(path)} is not JSON: {error}") from None
    check_kind(path, data, "adats-prior")
    return data
