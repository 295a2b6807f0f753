"""The store keeps what the service needs of any store; faults put in on purpose are found."""

import sqlite3
import time
from contextlib import closing

import pytest

from adats.service.stores.interface import Changes, Loaded
from adats.service.stores.sqlite import SQLiteStore
from adats.testing import check_store


def stores(folder, kind=SQLiteStore):
    return lambda name: kind(folder / f"{name}.db")


def test_sqlite_keeps_all_laws(tmp_path):
    def damage(name):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection, connection:
            assert connection.execute("UPDATE tasks SET stats = x'00'").rowcount == 1

    check_store(stores(tmp_path), damage)


class Forgetful(SQLiteStore):
    def _forget(self, experiment, task):
        self._run("DELETE FROM tasks WHERE experiment = ? AND task = ?", (experiment, task))


class Deaf(SQLiteStore):
    def load(self, keys):
        return Loaded(*super().load(keys)[:2], {})


class Rounding(SQLiteStore):
    def _count(self, differences):
        rounded = {b: d._replace(sum=int(float(d.sum % 2**900))) for b, d in differences.items()}
        super()._count(rounded)


class Hasty(SQLiteStore):
    """Half a commit can be seen."""

    def save(self, changes):
        if len(changes.decisions) > 1 and changes.experiments:
            super().save(Changes(experiments=changes.experiments))
            time.sleep(0.001)  # readers have their turn, also on a busy machine
            self.begin()
        super().save(changes)


class Lossy(SQLiteStore):
    def save(self, changes):
        changes.rewards = []
        super().save(changes)


class Keeper(SQLiteStore):
    def save(self, changes):
        changes.deleted = []
        super().save(changes)


class Endless(SQLiteStore):
    def due(self, now, limit):
        return super().due(now, 1000)


class Blind(SQLiteStore):
    def load(self, keys):
        try:
            return super().load(keys)
        except Exception:
            return Loaded({}, {}, {})


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (Forgetful, "decisions that are left"),
        (Deaf, "rewards that can matter"),
        (Rounding, "to the last digit"),
        (Hasty, "half a commit"),
        (Lossy, "rewards that can matter"),
        (Keeper, "what is deleted is gone"),
        (Endless, "no more than asked for"),
        (Blind, "as if it were whole"),
    ],
)
def test_a_store_with_a_fault_is_found_out(tmp_path, kind, law):
    def damage(name):
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection, connection:
            connection.execute("UPDATE tasks SET stats = x'00'")

    with pytest.raises(AssertionError, match=law):
        check_store(stores(tmp_path, kind), damage)
