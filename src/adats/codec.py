"""Priors as small versioned JSON, agents as one npz with a JSON header. Never pickle."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numpy as np

from adats import beliefs, oracles
from adats.beliefs.product import ProductArms
from adats.errors import FileFormatError
from adats.frozen import evolve
from adats.linalg import Sum
from adats.meta import GaussianMeta, LinearMeta, MixtureMeta, ModelMixture
from adats.types import FloatArray, MetaBelief

M = TypeVar("M", GaussianMeta, LinearMeta, MixtureMeta)

VERSION = 1
ORACLES = ("BestArm", "Top", "ShortestPath", "SpanningTree", "Matching")
FAMILIES = ("BetaArms", "PoissonArms", "ExponentialArms", "GaussianArms")
DAMAGED = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    EOFError,
    OSError,
    RuntimeError,
)


# meta-beliefs


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


# the rng and the oracle


def rng_to_dict(rng: np.random.Generator) -> dict[str, Any]:
    return dict(rng.bit_generator.state)


def rng_from_dict(state: dict[str, Any]) -> np.random.Generator:
    rng = np.random.default_rng(0)
    rng.bit_generator.state = state
    return rng


def oracle_to_dict(oracle: Any) -> dict[str, Any] | None:
    """None for a callable of the user's own: it has to be given again to `load`."""
    name = type(oracle).__name__
    if name not in ORACLES or type(oracle) is not getattr(oracles, name):
        return None
    return {"kind": name, **{f.name: getattr(oracle, f.name) for f in fields(oracle)}}


def oracle_from_dict(data: dict[str, Any]) -> Any:
    options = dict(data)
    return getattr(oracles, _known(options.pop("kind"), ORACLES))(**options)


# lists of arrays of different shapes, each perhaps None


def pack(name: str, arrays: Sequence[FloatArray | None]) -> dict[str, Any]:
    """Arrays of one or two dimensions as two arrays, the values and the shapes."""
    shapes = np.full((len(arrays), 2), -1, dtype=np.int64)
    for i, array in enumerate(arrays):
        if array is not None:
            shapes[i] = (len(array), 0) if array.ndim == 1 else array.shape
    values = [array.ravel() for array in arrays if array is not None]
    return {
        name: np.concatenate(values) if values else np.zeros(0),
        f"{name}_shapes": shapes,
    }


def unpack(name: str, arrays: dict[str, Any]) -> list[FloatArray | None]:
    result: list[FloatArray | None] = []
    values, start = arrays[name], 0
    for rows, columns in arrays[f"{name}_shapes"].tolist():
        if rows < 0:
            result.append(None)
            continue
        size = rows * columns if columns else rows
        part = values[start : start + size].copy()
        if part.size != size or not np.isfinite(part).all():
            raise ValueError(f"{name} is damaged")
        result.append(part.reshape(rows, columns) if columns else part)
        start += size
    if start != values.size:
        raise ValueError(f"{name} is damaged")
    return result


# files


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[bytes]], None]) -> None:
    """Whole or not at all: to a neighbour first, then renamed."""
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    write_whole(path, lambda file: cast(None, file.write(data)))


def write_npz(
    path: str | os.PathLike[str], kind: str, header: dict[str, Any], arrays: dict[str, Any]
) -> None:
    text = json.dumps({"format": kind, "version": VERSION, **header}, allow_nan=False)
    head = np.frombuffer(text.encode(), dtype=np.uint8)
    write_whole(path, lambda file: np.savez(file, header=head, **arrays))


def read_npz(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise
    except (*DAMAGED, zipfile.BadZipFile, zlib.error) as error:
        raise FileFormatError(
            f"{os.fspath(path)} is damaged or not an {kind} file: {error}"
        ) from None
    check_kind(path, header, kind)
    return header, arrays


def check_kind(path: str | os.PathLike[str], header: Any, kind: str) -> None:
    if not isinstance(header, dict) or header.get("format") != kind:
        raise FileFormatError(f"{os.fspath(path)} is not an {kind} file")
    if header.get("version") != VERSION:
        raise FileFormatError(
            f"{os.fspath(path)} has version {header.get('version')!r}; this adats reads {VERSION}"
        )


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
