"""Decisions where the data is: an agent as it stands decides for a table, and stays as it is.

The randomness of a row comes from the seed and its decision (or task) alone, so the answer is the
same however the table is cut up, and whatever engine has it.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from adats.agents import batch_requests, batches
from adats.agents.agent import AdaTS, Agent, load
from adats.agents.aging import NEVER, time_of_look
from adats.agents.decisions import Column, Decisions, columns_of, named, task_column
from adats.agents.task_columns import LARGEST, NOT_A_ROW, ColumnBook
from adats.agents.task_state import DictBook
from adats.models.core import checks
from adats.models.core.draws import KeyedDraws, Keys, mixed
from adats.models.core.errors import RowsError
from adats.models.core.types import IntArray, MetaBelief

BATCH = 1 << 16  # rows at a time, where a table is read in parts


def decide(
    table: Any,
    agent: Agent | MetaBelief,
    *,
    seed: int,
    task: str = "task",
    decision_id: str | None = None,
    horizon: int | None = None,
    propensities: bool = False,
    time: float | None = None,
) -> Any:
    """An action for each row of a table, by an agent, or by a prior alone, which stays as it is.

    The table may be of pandas, Polars or Arrow, of Ibis (DuckDB) or Spark, or a dict of columns;
    the answer is of the same kind (Arrow for Ibis, `Decisions` for a dict), with the columns task,
    action, decision_id if there is one, and propensity if it is asked for. `task` and `decision_id`
    name columns. The same seed gives the same decision for the same decision_id, or else for the
    same task: so a task has one decision unless its rows have numbers. Where rewards age, `time` is
    that of all decisions, or else that of the newest reward.
    """
    scorer = Scorer(agent, seed, horizon, propensities, time)
    names = (task, decision_id)
    if hasattr(table, "mapInArrow"):
        return _on_spark(table, scorer, names)
    if hasattr(table, "to_pyarrow"):  # Ibis
        table = table.select(*(name for name in names if name)).to_pyarrow()
    decisions = scorer.decide(columns_of(table), *names)
    if hasattr(table, "column_names"):
        return decisions.to_arrow()
    if isinstance(table, dict):
        return decisions
    return decisions.to_polars() if hasattr(table, "to_arrow") else decisions.to_pandas()


class Scorer:
    """An agent as it stands, ready to decide for rows by their keys."""

    def __init__(
        self,
        agent: Agent | Any,
        seed: int,
        horizon: int | None = None,
        propensities: bool = False,
        time: float | None = None,
    ) -> None:
        own = agent if isinstance(agent, Agent) else AdaTS(agent, seed=0)
        self.agent, self.seed = own, checks.count_of("seed", seed, least=0)
        self.horizon, self.propensities = horizon, propensities
        state = own.state()
        self._setup, self._meta = state.setup, state.meta
        self.time = state.time if time is None else time_of_look(time, state.time)
        self._moment = batches.Moment(state.time, self.time)
        if self._setup.arms.come_with_decisions:
            raise ValueError("features come with every decision here: use ask_many")
        rows = self._setup.arms.features
        self._request = batch_requests.BatchRequest(
            [],
            rows,
            self._setup.arms.not_retired,
            batch_requests.horizon_of(horizon, 0),
            propensities,
        )
        reason = batches.why_one_by_one(self._setup, self._meta, self._request)
        if reason is not None:
            raise ValueError(f"{reason} cannot be decided without an agent's state: use ask_many")
        self._blank = self._setup.new_state(self._meta)
        self._layout = batches.layout_of(self._setup, self._meta, self._blank)
        self._book = state.tasks if isinstance(state.tasks, ColumnBook) else DictBook(state.tasks)

    def decide(self, columns: dict[str, Column], task: str, decision_id: str | None) -> Decisions:
        """For all rows of a table."""
        missing = [name for name in (task, decision_id) if name and name not in columns]
        if missing:
            known = ", ".join(columns)
            raise ValueError(f"the table lacks {', '.join(missing)}; its columns are {known}")
        tasks = batch_requests.tasks_of(columns[task])
        numbers = None if decision_id is None else columns[decision_id]
        keys = keys_of(self.seed, tasks if numbers is None else batch_requests.tasks_of(numbers))
        book = self._book
        if isinstance(book, DictBook):
            book = batches.in_columns(self._layout, book, tasks)
        at = book.rows(tasks)
        finished = np.flatnonzero(at == NOT_A_ROW)
        if finished.size:
            raise RowsError(finished, f"task {tasks[finished[0]]!r} is finished, or has a design")
        actions, chances = self._scored(book, at, keys)
        return Decisions(
            task_column(tasks),
            named(self._setup.arms, actions),
            None if numbers is None else task_column(batch_requests.tasks_of(numbers)),
            chances,
        )

    def _scored(self, book: ColumnBook, at: IntArray, keys: Keys) -> tuple[IntArray, Any]:
        actions = np.empty(at.size, dtype=np.intp)
        chances = np.empty(at.size) if self.propensities else None
        new = self._layout.pack([self._blank])[0]
        for part in batches.chunks(at.size, batches.size_of(self._layout)):
            known = at[part] >= 0
            rows = np.empty((known.size, new.size))
            rows[known], rows[~known] = book.array[at[part][known]], new
            asked = batches.asked_of(self._layout, rows, self._request)
            chosen, chance = batches.choose_many(
                self._setup, self._meta, asked, KeyedDraws(keys[part]), self._moment
            )
            actions[part] = chosen
            if chances is not None:
                chances[part] = chance
        return actions, chances

    @property
    def action_type(self) -> str:
        """As Spark calls it."""
        return "bigint" if named(self._setup.arms, np.arange(0)).dtype.kind == "i" else "string"

    def record_batch(self, part: Any, names: tuple[str, str | None]) -> Any:
        """For a part of a table, as Arrow has it."""
        import pyarrow

        return pyarrow.record_batch(self.decide(columns_of(part), *names).columns())


def keys_of(seed: int, names: batch_requests.Tasks) -> Keys:
    """A number for each decision or task, which depends on the seed and its name alone."""
    salt = hashlib.blake2b(str(seed).encode(), digest_size=16).digest()
    if isinstance(names, np.ndarray):
        with np.errstate(over="ignore"):  # modulo 2⁶⁴
            start = np.frombuffer(salt, dtype=np.uint64)
            return mixed(mixed(names.astype(np.uint64) + start[0]) + start[1])
    start_of = hashlib.blake2b(digest_size=8, key=salt)

    def key(name: Any) -> bytes:
        own = start_of.copy()
        own.update(name.encode() if type(name) is str else b"\0%d" % name)
        return own.digest()

    keys = np.frombuffer(b"".join(map(key, names)), dtype=np.uint64).copy()
    whole = [i for i, name in enumerate(names) if type(name) is int and abs(name) <= LARGEST]
    if whole:  # the same among strings as among numbers
        keys[whole] = keys_of(seed, np.array([names[i] for i in whole], dtype=np.int64))
    return keys


def _on_spark(table: Any, scorer: Scorer, names: tuple[str, str | None]) -> Any:
    """By `mapInArrow`; workers get the agent as a file has it."""
    with tempfile.TemporaryDirectory() as folder:
        scorer.agent.save(Path(folder) / "agent.npz")
        data = (Path(folder) / "agent.npz").read_bytes()
    time = None if scorer.time == NEVER else scorer.time
    options = (scorer.seed, scorer.horizon, scorer.propensities, time)

    def score(parts: Iterator[Any]) -> Iterator[Any]:
        with tempfile.TemporaryDirectory() as here:
            (Path(here) / "agent.npz").write_bytes(data)
            own = Scorer(load(Path(here) / "agent.npz"), *options)
        for part in parts:
            if part.num_rows:
                yield own.record_batch(part, names)

    kept = table.select(*(name for name in names if name))
    task, decision_id = (_spark_type(kept, name) for name in names)
    types = {"task": task, "action": scorer.action_type, "decision_id": decision_id}
    types["propensity"] = "double" if scorer.propensities else None
    return kept.mapInArrow(score, ", ".join(f"`{name}` {t}" for name, t in types.items() if t))


def _spark_type(table: Any, column: str | None) -> str | None:
    """Of a column of names, which are strings or numbers."""
    if column is None:
        return None
    return "string" if table.schema[column].dataType.typeName() == "string" else "bigint"
