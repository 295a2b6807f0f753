"""What can be wrong with a table of decisions or rewards."""

from typing import Any


class RowsError(ValueError):
    """Some rows are not what they should be: the first of them, and how many."""

    def __init__(self, rows: Any, why: str) -> None:
        more = "" if len(rows) == 1 else f" ({len(rows)} such rows)"
        super().__init__(f"row {int(rows[0])}: {why}{more}; nothing was changed")
