"""How figures came about: versions, and tables that carry them."""

import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from typing import Any

from numpy.typing import NDArray

METADATA = b"adats"  # the key of a Parquet file's record


def versions() -> dict[str, str]:
    """Of what the figures depend on."""
    found = {"python": platform.python_version()}
    for name in ("adats", "numpy", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def parquet_bytes(columns: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> bytes:
    """Columns as the bytes of a Parquet file, with a record of how they came about.

    The record is JSON in the file's metadata, below `adats`. Raises `ValueError` where pyarrow is
    missing.
    """
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install 'adats[sim]'") from None
    file = BytesIO()
    table = pa.table(columns).replace_schema_metadata({METADATA: json.dumps(record)})
    parquet.write_table(table, file)
    return file.getvalue()
