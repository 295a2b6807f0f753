"""Promise 3: after any schedule, the service knows what the library knows (a state machine)."""

from pathlib import Path

import pytest
from hypothesis.stateful import rule

from adats.service.replay import replay
from adats.service.stores.opening import open_view
from adats.service.stores.sqlite import SQLiteStore
from machine import NAME, Machine, run
from postgres import new_store
from schedules import CASES
from shared_play import SharedPlay

EXAMPLES, STEPS = 8, 20  # of each model; a step is up to four requests
SHORT = ("gaussian", "contextual", "clicks", "events", "semi-bandit", "exactly two")


@pytest.mark.hypothesis
@pytest.mark.parametrize("model", CASES)
def test_after_any_schedule_the_answer_is_the_librarys(model):
    run(Machine, model, EXAMPLES, STEPS)


class SharedMachine(Machine):
    """Two workers on PostgreSQL: any of them does it. It is folded and checked now and then."""

    def start(self, experiments):
        return SharedPlay(new_store("machine"), experiments, 0)

    @rule()
    def fold(self):
        self.play.fold()

    @rule(name=NAME)
    def rest(self, name):
        self.play.check(name)

    def the_service_knows_what_the_library_knows(self):
        """Not after each step, as all is folded for that."""

    def end(self):
        again = SQLiteStore(Path(self.folder.name, "again.db"))
        with open_view(self.play.path) as view:
            found = replay(view, again)
        again.close()
        assert (found.changed, found.differences) == ([], [])


@pytest.mark.hypothesis
@pytest.mark.parametrize(
    "model",
    [name if name in SHORT else pytest.param(name, marks=pytest.mark.heavy) for name in CASES],
)
def test_after_any_schedule_of_two_workers_the_answer_is_the_librarys(model):
    run(SharedMachine, model, 2, 15)
