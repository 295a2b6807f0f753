"""Priors as small versioned JSON."""

import json
import os
from pathlib import Path
from typing import Any

from adats.models.core.errors import FileFormatError
from adats.models.core.files import DAMAGED, VERSION, check_kind, check_not_agent, write_bytes
from adats.models.core.registry import meta_from_dict, meta_to_dict
from adats.models.core.types import AnyPath, JsonDict, MetaBelief

FORMAT = "adats-prior"


def prior_to_dict(meta: MetaBelief) -> JsonDict:
    """The contents of a prior file."""
    return {"format": FORMAT, "version": VERSION, "prior": meta_to_dict(meta)}


def prior_from_dict(data: JsonDict, what: AnyPath) -> MetaBelief:
    """A meta-belief from the contents of a prior file; `what` names it in errors."""
    check_kind(what, data, FORMAT)
    return meta_from_dict(data["prior"])


def save_prior(meta: MetaBelief, path: AnyPath, *, about: dict[str, Any] | None = None) -> None:
    """Write a meta-belief, with what it has learned, as small versioned JSON.

    `about` says where it comes from, in plain JSON values; `read_about` reads it back.
    """
    if isinstance(meta, (str, os.PathLike)):
        raise ValueError("the prior comes first: save_prior(prior, path)")
    data = prior_to_dict(meta)
    if about is not None:
        if not isinstance(about, dict) or not all(isinstance(key, str) for key in about):
            raise ValueError(f"about must be a dict with names as keys, got {about!r}")
        data["about"] = about
    try:
        text = json.dumps(data, allow_nan=False, indent=1) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"about must hold plain JSON values: {error}") from None
    write_bytes(path, text.encode())


def load_prior(path: AnyPath) -> Any:
    """Read a meta-belief from a file that `save_prior` wrote."""
    data = _read_prior(path)
    try:
        return prior_from_dict(data, path)
    except DAMAGED as error:
        raise FileFormatError(f"{os.fspath(path)} is damaged: {error}") from None


def read_about(path: AnyPath) -> JsonDict:
    """What `save_prior` was told about the prior in a file; empty if nothing."""
    about = _read_prior(path).get("about", {})
    if not isinstance(about, dict):
        raise FileFormatError(f"{os.fspath(path)} is damaged: about is {about!r}")
    return about


def _read_prior(path: AnyPath) -> JsonDict:
    check_not_agent(path)
    try:
        data: JsonDict = json.loads(Path(path).read_bytes())
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{os.fspath(path)} is not JSON: {error}") from None
    check_kind(path, data, FORMAT)
    return data
