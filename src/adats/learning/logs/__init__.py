"""Logs to sufficient statistics: one aggregation, written once with Ibis, for any engine it knows.

A log has one row a pull: `task`, `arm` (not for linear models), `reward`, and if known `time`,
`propensity`, `decision_id`; linear models have features `x0`, `x1`, ... (docs/guides/logs.md).
"""

from adats.learning.logs.adaptive import first_halves, weighted_cells
from adats.learning.logs.aggregate import Aggregated, statistics
from adats.learning.logs.batches import Batches, batches
from adats.learning.logs.reading import feature_names, read_log
from adats.learning.logs.task_rows import TaskRows, rows, spread

__all__ = [
    "Aggregated",
    "Batches",
    "TaskRows",
    "batches",
    "feature_names",
    "first_halves",
    "read_log",
    "rows",
    "spread",
    "statistics",
    "weighted_cells",
]
