"""Any schedule of requests: a state machine that checks what the service knows."""

import tempfile
from pathlib import Path

from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from adats.service.messages import NewArm, RewardRequest
from schedules import CASES, POLICIES, TASKS, Play, Rules, rules_that_fit

NAME, TASK, WHICH = st.sampled_from("xy"), st.sampled_from(TASKS), st.integers(0, 40)
ASK = st.tuples(TASK, WHICH, st.booleans())
TELL = st.tuples(WHICH, WHICH, st.sampled_from([None, None, "r", "s"]))
ASKS, TELLS = st.lists(ASK, min_size=1, max_size=4), st.lists(TELL, min_size=1, max_size=4)
START = st.lists(ASK, min_size=3, max_size=6)
RULES = st.builds(
    lambda policy, **options: Rules(*policy, **options),
    policy=st.sampled_from(POLICIES),
    holdout=st.sampled_from([None, "control", "uniform"]),
    several=st.sampled_from(["first", "sum", "last"]),
    window=st.sampled_from([10.0, 10.0, None]),
    default=st.sampled_from([None, 0.0, 1.0]),
    apply=st.sampled_from(["at_once", "at_window_end"]),
    late=st.sampled_from(["ignore", "replace"]),
    seed=st.integers(0, 2**63 - 1),
)


class Machine(RuleBasedStateMachine):
    """Two experiments of the same model with rules of their own, in one store."""

    case = CASES["gaussian"]

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.play, self.touched = None, ()

    def teardown(self):
        if self.play is not None:
            for name in self.play.books:
                self.play.check(name)
            self.play.close()
            self.end()
        self.folder.cleanup()

    def end(self):
        """What else holds when all is done."""

    def start(self, experiments):
        return Play(Path(self.folder.name, "x.db"), experiments)

    @initialize(rules=st.tuples(RULES, RULES), asks=st.tuples(START, START))
    def put(self, rules, asks):
        fitting = [(self.case, rules_that_fit(self.case, wanted)) for wanted in rules]
        self.play = self.start(dict(zip("xy", fitting, strict=True)))
        for name, several in zip("xy", asks, strict=True):
            self.decide(name, several)

    def tell(self, name, which, value, reward_id):
        """A reward for a decision that was made, and not forgotten, if there is one."""
        made = list(self.play.books[name].decisions)
        if not made:
            return RewardRequest("nobody's", 1.0)
        known = made[which % len(made)]
        return RewardRequest(known, self.play.value(name, known, value), reward_id)

    @rule(name=NAME, asks=ASKS)
    def decide(self, name, asks):
        for task, drawn, limited in asks:
            self.play.decide(name, self.play.ask(name, task, drawn, limited=limited))
        self.touched = name

    @rule(name=NAME, task=TASK, drawn=TELL)
    def decide_again(self, name, task, drawn):
        """The same answer, also after a reward; and not for another task."""
        tell = self.tell(name, *drawn)
        known = self.play.books[name].decisions.get(tell.decision_id)
        for wanted in () if known is None else (known.task, task):
            self.play.reward(name, tell)
            ask = self.play.ask(name, wanted, drawn[0], decision_id=tell.decision_id)
            self.play.decide(name, ask)
        self.touched = name

    @rule(name=NAME, tells=TELLS)
    def reward(self, name, tells):
        for drawn in tells:
            self.play.reward(name, self.tell(name, *drawn))
        self.touched = name

    @rule(name=NAME, drawn=TELL, times=st.integers(2, 3))
    def reward_again(self, name, drawn, times):
        for tell in [self.tell(name, *drawn)] * times:
            self.play.reward(name, tell)
        self.touched = name

    @rule(name=NAME, drawn=TELL)
    def reward_at_the_end_of_the_window(self, name, drawn):
        tell = self.tell(name, *drawn)
        if tell.decision_id in self.play.books[name].decisions:
            self.play.wait_for(name, tell.decision_id)
        self.play.reward(name, tell, settled=False)
        self.touched = "xy"

    @rule(name=NAME, tells=TELLS)
    def batch(self, name, tells):
        requests = [self.tell(name, *drawn) for drawn in tells]
        self.play.batch(name, [*requests, RewardRequest("nobody's", 1.0), requests[0]])
        self.touched = name

    @rule(name=NAME, drawn=TELL)
    def reward_that_cannot_be(self, name, drawn):
        tell, bad = self.tell(name, *drawn), self.case.bad
        several = isinstance(tell.reward, list)
        self.play.reward(name, RewardRequest(tell.decision_id, 1.0 if several else [1.0]))
        if bad is not None:
            self.play.reward(name, RewardRequest(tell.decision_id, bad))
        self.play.reward(name, RewardRequest("nobody's", 1.0))
        self.touched = name

    @rule(seconds=st.sampled_from([1.5, 4.0, 11.0]), asks=ASKS)
    def wait(self, seconds, asks):
        self.play.wait(seconds)
        self.decide("x", asks)
        self.touched = "xy"

    @rule(name=NAME, task=TASK, asks=ASKS)
    def forget(self, name, task, asks):
        self.play.forget(name, task)
        self.play.check(name)
        self.decide(name, asks)

    @rule(name=NAME, which=WHICH, ask=ASK, add=st.booleans())
    def change_arms(self, name, which, ask, add):
        if add and len(self.play.books[name].added) < 3:
            self.play.add_arm(name, which)
        else:
            self.play.retire_arm(name, which)
        self.play.check(name)
        self.decide(name, [ask])

    @rule(name=NAME, ask=ASK)
    def reopen(self, name, ask):
        self.play.reopen()
        self.decide(name, [ask])
        self.touched = "xy"

    @rule(name=NAME, drawn=TELL, task=TASK, flushed=st.booleans())
    def undo(self, name, drawn, task, flushed):
        play = self.play
        which, arms = drawn[0], play.books[name].names
        works = [
            ("decide", name, play.ask(name, task, which, decision_id="undone")),
            ("reward", name, self.tell(name, *drawn)),
            ("add_arm", name, NewArm("undone", like=arms[0] if arms else None)),
            ("decide", name, play.ask(name, "new", which, decision_id="undone too")),
            ("forget", name, task),
            ("retire_arm", name, str(arms[-1]) if arms else "a"),
        ]
        play.undone(works[which % 3 :], flushed=flushed)
        self.touched = "xy"

    @invariant()
    @precondition(lambda self: self.play is not None)
    def the_service_knows_what_the_library_knows(self):
        for name in self.touched:
            self.play.check(name)
        self.touched = ()


def run(kind, model, examples, steps):
    machine = type("Machine", (kind,), {"case": CASES[model]})
    if settings().derandomize:  # not the same schedules for every model
        seed(list(CASES).index(model))(machine)
    often = settings(max_examples=examples, stateful_step_count=steps)
    run_state_machine_as_test(machine, settings=often)
