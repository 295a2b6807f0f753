"""Logs to sufficient statistics: one aggregation, written once with Ibis, for any engine it knows.

A log has one row a pull: `task`, `arm` (not for linear models), `reward`, and if known `time`,
`propensity`, `decision_id`; linear models have features `x0`, `x1`, ... (docs/guides/logs.md).
"""

from adats.learning.logs.aggregate import Aggregated, statistics
from adats.learning.logs.columns import planned
from adats.learning.logs.parts import (
    Batches,
    TaskRows,
    as_written,
    batches,
    first_halves,
    rows,
    spread,
    weighted_cells,
)
from adats.learning.logs.reading import feature_names, read_log

__all__ = [
    "Aggregated",
    "Batches",
    "TaskRows",
    "as_written",
    "batches",
    "feature_names",
    "first_halves",
    "planned",
    "read_log",
    "rows",
    "spread",
    "statistics",
    "weighted_cells",
]
