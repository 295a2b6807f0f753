"""What a commit writes: rows are found by their number or their key, never by a look at all."""

import sqlite3
from contextlib import closing

import pytest

from adats.service.messages import DecisionRequest
from adats.service.stores import sqlite_rows as rows
from adats.service.stores.interface import Changes, TaskRow
from adats.service.stores.sqlite import ROWS_AT_ONCE
from served import GAUSSIAN, Local

WIDTHS = {  # values of a row, and how its row is found
    "SAVE_DECISION": (len(rows.LATER) + 2, "SEARCH decisions USING INTEGER PRIMARY KEY (rowid=?)"),
    "SAVE_TASK_INDICES": (
        5,
        "SEARCH tasks USING INDEX tasks_by_name (experiment=? AND task=?)",
    ),
}


@pytest.fixture
def local(tmp_path):
    made = Local(tmp_path / "x.db")
    made.put("x", GAUSSIAN)
    yield made
    made.close()


@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("count", [1, 2, ROWS_AT_ONCE])
def test_rows_that_change_are_found_at_once(local, name, count):
    width, found = WIDTHS[name]
    text = f"EXPLAIN QUERY PLAN {getattr(rows, name).of(count)}"
    plan = [step for *_, step in local.store._run(text, [0] * (width * count))]
    table = found.split()[1]
    assert found in plan
    assert not any(step.startswith(f"SCAN {table}") for step in plan)


def saved(local, *tasks):
    """Rows that were written to the table of tasks for the sake of its indices, and all tasks."""
    store, before = local.store, 0
    with closing(sqlite3.connect(store.path)) as reader:
        store.begin()
        whole = {(1, name): row for name, row in tasks}
        real = store._run_rows

        def run_rows(statement, kept):
            nonlocal before
            began = store._connection.total_changes
            real(statement, kept)
            if statement is rows.SAVE_TASK_INDICES:
                before += store._connection.total_changes - began

        store._run_rows = run_rows
        store.save(Changes(tasks=whole))
        del store._run_rows
        store.sync()
        sql = "SELECT task, generation, folded_in, size FROM tasks ORDER BY task"
        return before, reader.execute(sql).fetchall()


def test_columns_of_an_index_are_written_only_where_they_change(local):
    blank = TaskRow(b"1", 0, None)
    a, b = ("a", blank._replace(generation=3, size=1)), ("b", blank)
    assert saved(local, a, b) == (0, [("a", 3, None, 1), ("b", None, None, None)])
    assert saved(local, a, b)[0] == 0  # again the same
    a = ("a", a[1]._replace(stats=b"2"))
    assert saved(local, a)[0] == 0  # the rest has changed
    b = ("b", blank._replace(generation=4, folded=b"0", folded_in=7))
    assert saved(local, a, b) == (1, [("a", 3, None, 1), ("b", 4, 7, None)])
    assert local.store.stale_tasks(1, 9, (-1, ""), 9) == [(3, "a"), (4, "b")]
    assert [task for task, _ in local.store.unfolded_tasks(1, 7)] == ["b"]
    assert local.store.task(1, "a").stats == b"2"
    assert saved(local, ("a", blank)) == (1, [("a", None, None, None), ("b", 4, 7, None)])


def test_a_row_that_was_known_is_changed_by_its_number(local):
    """Others of the same task, and of the same commit, stay as they are."""
    engine = local.engine
    engine.begin()
    for i in range(3):
        engine.decide("default", "x", DecisionRequest("t", f"d{i}"))
    engine.flush()
    engine.commit()
    known = {row.decision_id: row for row in local.store.decisions(1)}
    assert [row.id for row in known.values()] == [1, 2, 3]
    changed = {"d1": known["d1"]._replace(received=1, reward=0.5, counted=0.5)}
    engine.begin()
    local.store.save(Changes(decisions={(1, name): row for name, row in changed.items()}))
    local.store.sync()
    assert list(local.store.decisions(1)) == list((known | changed).values())
