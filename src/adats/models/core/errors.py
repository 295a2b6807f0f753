"""Named errors. All are `ValueError`, so that one `except` catches every kind of bad input."""

from collections.abc import Sequence
from typing import Any


class InvalidValue(ValueError):
    """A value that cannot be taken: of which field, and why."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(field, why)
        self.field = field

    def __str__(self) -> str:
        return f"{self.args[0]} {self.args[1]}"


class UnknownTask(ValueError):
    """The agent has never seen this task, or was told to forget it."""


class FinishedTask(ValueError):
    """The task was finished: it still takes rewards, but makes no more decisions."""


class FileFormatError(ValueError):
    """The file is not one of ours, is damaged, or comes from a newer version."""


class RowsError(ValueError):
    """Rows of a table that are not what they should be: the first of them, and how many."""

    def __init__(self, rows: Any, why: str) -> None:
        self.rows, self.why = rows, why
        more = "" if len(rows) == 1 else f" ({len(rows)} such rows)"
        super().__init__(f"row {int(rows[0])}: {why}{more}; nothing was changed")


class Refused(ValueError):
    """A decision service does not take what it was given, and says why."""

    def __init__(
        self, words: str, status: int, field: str | None = None, results: Sequence[object] = ()
    ) -> None:
        super().__init__(words)
        self.status = status  # of HTTP: 404, 409, 422, ...
        self.field = field  # what it is about, if that is known
        self.results = results  # of several: what was done, and `Refused` in place of others
