"""The log of an experiment in the project's format, piece by piece, ready for `adats fit`."""

import io
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from adats.service.served_experiment import ServedExperiment
from adats.service.snapshot import as_decision
from adats.service.spec import ExperimentSpec
from adats.service.stores.interface import ExperimentRow, ReadView

PIECE = 2000  # decisions
KEPT = "kept"  # whether a decision kept to an earlier draw, where they may
METRIC = "metric_"  # before the names of columns of further figures
FORMATS = {"ndjson": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}
encode = msgspec.json.Encoder().encode


def log(view: ReadView, row: ExperimentRow, kind: str) -> Iterator[bytes]:
    """The log as it is when the view is opened, as a file of this kind."""
    served = ServedExperiment(row, view)
    numbered = all(isinstance(arm, int) for arm in served.snapshot.all_arms or ())
    pieces = _records(view, row.id, numbered, served.spec.sticky is not None)
    if kind == "ndjson":
        return (b"".join(encode(record) + b"\n" for record in piece) for piece in pieces)
    return _parquet(pieces, numbered, served.snapshot.dim, served.spec)


def _records(
    view: ReadView, experiment: int, numbered: bool, sticky: bool
) -> Iterator[list[dict[str, Any]]]:
    """Decisions whose reward counts, the oldest first; arms are all integers, or all text."""
    decisions = (row for row in view.decisions(experiment) if row.counted is not None)
    while piece := list(islice(decisions, PIECE)):
        records = []
        for row in piece:
            rewards: Any = row.counted if isinstance(row.counted, list) else [row.counted]
            further = {f"{METRIC}{name}": value for name, value in (row.metrics or {}).items()}
            if sticky:
                further |= {KEPT: row.kept is not None}
            records += [record | further for record in as_decision(row).records(rewards)]
        if not numbered:
            records = [record | {"arm": str(record["arm"])} for record in records]
        yield records


def _parquet(
    pieces: Iterator[list[dict[str, Any]]], numbered: bool, dim: int, spec: ExperimentSpec
) -> Iterator[bytes]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ValueError("Parquet needs PyArrow: pip install 'adats[service]'") from None
    fields = {
        "task": pa.string(),
        "arm": pa.int64() if numbered else pa.string(),
        "reward": pa.float64(),
        "propensity": pa.float64(),
        "decision_id": pa.string(),
        "time": pa.float64(),
        **{f"x{i}": pa.float64() for i in range(dim)},
        **{f"{METRIC}{name}": pa.float64() for name in spec.metrics},
        **({} if spec.sticky is None else {KEPT: pa.bool_()}),
    }
    schema = pa.schema(list(fields.items()))
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema) as writer:
        for piece in pieces:
            writer.write_table(pa.Table.from_pylist(piece, schema=schema))
            yield _drain(sink)
    yield _drain(sink)


def _drain(sink: io.BytesIO) -> bytes:
    """What was written so far; the writer goes on at the same place of the file."""
    part = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return part
