"""Files: written whole or not at all, versioned, never pickle."""

import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from adats.models.core.errors import FileFormatError
from adats.models.core.types import AnyPath, FloatArray

VERSION = 1
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


def write_whole(path: AnyPath, write: Callable[[IO[bytes]], None]) -> None:
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


def write_bytes(path: AnyPath, data: bytes) -> None:
    write_whole(path, lambda file: cast(None, file.write(data)))


def write_npz(
    path: AnyPath,
    kind: str,
    header: dict[str, Any],
    arrays: dict[str, Any],
    *,
    version: int = VERSION,
) -> None:
    text = json.dumps({"format": kind, "version": version, **header}, allow_nan=False)
    head = np.frombuffer(text.encode(), dtype=np.uint8)
    write_whole(path, lambda file: np.savez(file, header=head, **arrays))


def read_npz(
    path: AnyPath, kind: str, *, newest: int = VERSION
) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError:
        raise
    except (*DAMAGED, zipfile.BadZipFile, zlib.error) as error:
        if _begins(path, b"{") and kind == "adats-agent":
            raise FileFormatError(
                f"{os.fspath(path)} has a prior, not an agent: adats.AdaTS(adats.load_prior(path), "
                "seed=...)"
            ) from None
        raise FileFormatError(
            f"{os.fspath(path)} is damaged or not an {kind} file: {error}"
        ) from None
    check_kind(path, header, kind, newest)
    return header, arrays


def _begins(path: AnyPath, with_what: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read(len(with_what)) == with_what


def check_not_agent(path: AnyPath) -> None:
    """Raise for a file of an agent where one of a prior is read."""
    if _begins(path, b"PK"):
        raise FileFormatError(
            f"{os.fspath(path)} has an agent, not a prior: agent = adats.load(path), and "
            "agent.meta is its prior"
        )


def check_kind(path: AnyPath, header: object, kind: str, newest: int = VERSION) -> None:
    if not isinstance(header, dict) or header.get("format") != kind:
        raise FileFormatError(f"{os.fspath(path)} is not an {kind} file")
    if header.get("version") not in range(1, newest + 1):
        known = "1" if newest == 1 else f"1 to {newest}"
        raise FileFormatError(
            f"{os.fspath(path)} has version {header.get('version')!r}; this adats reads {known}"
        )


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
