"""Experiments of every kind, played against a plain record of what should count.

A `Book` keeps decisions and rewards in lists and says in a few lines which rewards count. Told to
the plain library, they give the posteriors that a service must have. `Play` does the same things
to an engine and to the books, and compares.
"""

import warnings
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from adats import (
    AdaTS,
    BetaArms,
    GaussianMeta,
    LinearMeta,
    MixtureMeta,
    ModelMixture,
    PoissonArms,
    Top,
)
from adats.agents.policies import FarSighted
from adats.models.core.stats import ArmStats
from adats.models.default_prior import default_prior, grid_prior
from adats.models.prior_files import prior_from_dict, prior_to_dict
from adats.service.errors import Conflict, Invalid, NotFound
from adats.service.messages import (
    DecisionRequest,
    NewArm,
    RefusedReward,
    RewardBatchRequest,
    RewardRequest,
)
from adats.service.served_experiment import generator_state
from served import Local

CLOSE = {"rtol": 1e-8, "atol": 1e-8}
# Standard deviations by which beliefs of clicks and counts may differ when rewards come in another
# order, or several at once: 0.042 were seen in 55,000 of them
NEARLY = 0.1
TENANT = "default"
STORED = ("counted", "held", "late")  # what becomes of a reward that is new
TASKS = ("ann", "bob", "eve")


class Case(NamedTuple):
    """An experiment as the service and as the library are told of it."""

    spec: dict[str, Any]
    meta: Any
    rewards: tuple[float, ...] = (0.0, 1.25, -0.7, 40.0, 0.1)
    bad: float | None = None  # a reward that this model cannot have
    options: tuple[tuple[str, Any], ...] = ()  # of the library's agent
    names: tuple[Any, ...] = ("a", "b", "c")  # of arms; () where features come with decisions
    control: Any = "b"
    grows: bool = True  # whether arms can be added
    exact: bool = True  # or does what is believed depend a little on the order of rewards?

    @property
    def lives(self):
        """Its half-lives."""
        names = ("half_life", "prior_half_life")
        return {name: self.spec[name] for name in names if name in self.spec}


ROWS = ((1.0, 0.0), (0.3, 0.9), (-0.5, 0.4))
COV, TASK_COV = ((1.0, 0.3), (0.3, 0.5)), ((0.4, 0.1), (0.1, 0.2))
ALPHA, BETA = ((1.0, 2.0, 3.0), (4.0, 3.0, 1.0)), ((4.0, 3.5, 2.0), (1.0, 2.0, 0.5))
SHAPE, RATE = ((1.0, 2.0, 3.0), (6.0, 5.0, 4.0)), ((1.0, 1.5, 2.0), (2.0, 1.0, 1.2))
GIVEN = {"mean": [0.3, 0.1, -0.2], "scale": 0.9, "task_scale": [0.4, 0.3, 0.5]}
ABC = ("a", "b", "c")
ARMED = {"arms": list(ABC)}


@cache
def _gaussian(arms=ABC):
    return GaussianMeta(**GIVEN, noise=[0.8, 0.9, 0.7], arms=arms)


@cache
def _two():
    """Two models, of which one is right."""
    wide = GaussianMeta([0.1, 0.2, 0.0], 0.5, task_scale=0.9, noise=0.5, arms=ABC)
    return ModelMixture([0.4, 0.6], [_gaussian(), wide])


@cache
def _learned():
    """A prior that has learned something already."""
    meta = _gaussian()
    for reward in (0.4, 1.6):
        stats = ArmStats.zeros(3).add(0, reward).add(2, -reward)
        meta = meta.absorb(meta.digest(stats).message)
    return meta


@cache
def _linear():
    return LinearMeta([0.2, -0.1], COV, task_cov=TASK_COV, noise=0.7)


def _given(model, given, **more):
    noisy = model in ("gaussian", "linear", "semi-bandit")
    return {"model": model, "prior": {"given": given}} | ({"noise": 0.7} if noisy else {}) | more


LINE = {"mean": [0.2, -0.1], "cov": COV, "task_cov": TASK_COV}
NOISES = {"noise": [0.8, 0.9, 0.7]}
SEMI = {"size": 2} | NOISES | ARMED
COUNTS, BITS = (0.0, 1.0, 2.0, 7.0), (0.0, 1.0)

CASES: dict[str, Case] = {
    "gaussian": Case(_given("gaussian", GIVEN, **NOISES, **ARMED), _gaussian),
    "numbered": Case(
        _given("gaussian", GIVEN, **NOISES, arms=3),
        lambda: _gaussian(None),
        names=(0, 1, 2),
        control=1,
        grows=False,
    ),
    "scales": Case(
        {"model": "gaussian", "prior": {"default": {"scale": 1.5, "typical": 0.2}}, **ARMED},
        cache(lambda: default_prior(arms=ABC, rewards="number", scale=1.5, typical=0.2)),
    ),
    "file": Case(
        {
            "model": "gaussian",
            "prior": {"file": prior_to_dict(_learned())},
        },
        _learned,
    ),
    "linear": Case(
        _given("linear", LINE, dim=2, features=ROWS, **ARMED),
        _linear,
        options=(("features", ROWS), ("arms", ABC)),
    ),
    "contextual": Case(_given("linear", LINE, dim=2), _linear, names=(), control=1, grows=False),
    "named rows": Case(_given("linear", LINE, dim=2, **ARMED), _linear, options=(("arms", ABC),)),
    "binary": Case(
        _given("binary", {"weights": [0.3, 0.7], "alpha": ALPHA, "beta": BETA}, **ARMED),
        lambda: MixtureMeta(
            [0.3, 0.7], [BetaArms(*pair) for pair in zip(ALPHA, BETA, strict=True)], arms=ABC
        ),
        rewards=BITS,
        bad=0.5,
    ),
    "binary grid": Case(
        {"model": "binary", "prior": {"default": {"version": 1}}, **ARMED},
        cache(lambda: grid_prior(arms=ABC, rewards="binary")),
        rewards=BITS,
        bad=2.0,
    ),
    "count": Case(
        _given("count", {"weights": [0.6, 0.4], "shape": SHAPE, "rate": RATE}, **ARMED),
        lambda: MixtureMeta(
            [0.6, 0.4], [PoissonArms(*pair) for pair in zip(SHAPE, RATE, strict=True)], arms=ABC
        ),
        rewards=COUNTS,
        bad=1.5,
    ),
    "count grid": Case(
        {"model": "count", "prior": {"default": {"typical": 2.0, "version": 1}}, **ARMED},
        cache(lambda: grid_prior(arms=ABC, rewards="count", typical=2.0)),
        rewards=COUNTS,
        bad=-1.0,
    ),
    "semi-bandit": Case(
        _given("semi-bandit", GIVEN, **SEMI), _gaussian, options=(("oracle", Top(2)),), control="ac"
    ),
    "exactly two": Case(
        {
            "model": "semi-bandit",
            "prior": {"file": prior_to_dict(_two())},
        }
        | {"size": 2, "exactly": True},
        _two,
        options=(("oracle", Top(2, exactly=True)),),
        control="ab",
    ),
    "clicks": Case(
        {"model": "binary", "prior": {"default": {}}, **ARMED},
        cache(lambda: default_prior(arms=ABC, rewards="binary")),
        rewards=BITS,
        bad=0.5,
        exact=False,
    ),
    "events": Case(
        {"model": "count", "prior": {"default": {"typical": 2.0}}, **ARMED},
        cache(lambda: default_prior(arms=ABC, rewards="count", typical=2.0)),
        rewards=COUNTS,
        bad=-1.0,
        exact=False,
    ),
}

LIVES = {"half_life": 6.0, "prior_half_life": 9.0}
AGING = ("gaussian", "linear", "binary", "semi-bandit", "exactly two", "clicks", "events")
CASES |= {f"{name}, aging": CASES[name]._replace(spec=CASES[name].spec | LIVES) for name in AGING}


class Rules(NamedTuple):
    """What an experiment says about rewards, policies and holdouts."""

    policy: str = "ts"
    epsilon: float = 0.0
    holdout: str | None = None
    several: str = "first"
    window: float | None = None
    default: float | None = None
    apply: str = "at_once"
    late: str = "ignore"
    seed: int = 7

    def spec(self, case):
        """The settings in full, for `PUT`."""
        settings = {"several": self.several, "seed": self.seed, "policy": {"name": self.policy}}
        if self.policy == "far":
            settings["policy"]["later"] = 40.0
        if self.epsilon:
            settings["policy"]["epsilon"] = self.epsilon
        if self.window is not None:
            settings |= {"window": self.window, "default_reward": self.default}
            settings |= {"apply": self.apply, "late": self.late}
        if self.holdout is not None:
            settings["holdout"] = {"share": SHARE, "to": self.holdout}
            if self.holdout == "control":
                several = "size" in case.spec
                settings["control"] = list(case.control) if several else case.control
        return case.spec | settings


SHARE = 0.3  # held out
POLICIES = (("ts", 0.0), ("ts", 0.2), ("ucb", 0.0), ("ucb", 0.2), ("index", 0.0), ("far", 0.0))
POLICIES += (("greedy", 0.0), ("greedy", 0.2))


def rules_that_fit(case, rules):
    """The same with what cannot be together taken back."""
    changes: dict[str, Any] = {}
    if rules.window is None:
        changes |= {"default": None, "apply": "at_once", "late": "ignore"}
    if "size" in case.spec:
        changes |= {"epsilon": 0.0, "holdout": rules.holdout and "control"}
    if case.spec["model"] == "binary" and rules.several == "sum":
        changes |= {"several": "last"}
    return rules._replace(**changes)


def with_tasks(agent, states):
    """The same agent with other states of some tasks; None is a fresh one."""
    state = agent.state()
    fresh = state.setup.new_state(state.meta)
    states = {task: fresh if known is None else known for task, known in states.items()}
    return AdaTS.from_state(state._replace(tasks=state.tasks | states))


def state_before(agent, task, now):
    """The parts of an agent, what it has learned, and the state of a task, as they weigh now."""
    state = agent.state()
    known = state.tasks.get(task, state.setup.new_state(state.meta))
    return state.setup, *state.setup.present(state.meta, state.time, known, now)


def meta_at(agent, now):
    """What all taught an agent, as it weighs now."""
    state = agent.state()
    aging = state.setup.aging
    return state.meta if aging is None else state.meta.faded(aging.faded(state.time, now))


class Book:
    """What has happened in one experiment, in plain lists."""

    def __init__(self, case, rules):
        self.case, self.rules = case, rules
        self.decisions: dict[str, SimpleNamespace] = {}
        self.tasks: list[str] = []
        self.added: list[dict[str, Any]] = []
        self.retired: list[Any] = []
        self.version = 0

    @property
    def names(self):
        return [*self.case.names, *(arm["name"] for arm in self.added)]

    # what counts

    def is_over(self, noted, now):
        return self.rules.window is not None and now >= noted.time + self.rules.window

    def counted(self, noted, now):
        """The reward of a decision that is in the statistics; None if there is none."""
        if noted.action == []:  # nothing was pulled
            return []
        taken = [
            reward.value
            for reward in noted.rewards
            if self.rules.late == "replace" or not self.is_over(noted, reward.time)
        ]
        over = self.is_over(noted, now)
        if self.rules.apply == "at_window_end" and not over:
            return None
        if taken:
            chosen = {"first": taken[:1], "last": taken[-1:], "sum": taken}[self.rules.several]
            amount = np.sum(chosen, axis=0)
            return amount.tolist() if isinstance(noted.action, list) else float(amount)
        if over and self.rules.default is not None:
            several = isinstance(noted.action, list)
            return [self.rules.default] * len(noted.action) if several else self.rules.default
        return None

    def status(self, noted, value, reward_id, now):
        """What a reward should be answered."""
        for reward in noted.rewards:
            if reward_id is not None and reward.id == reward_id:
                return "duplicate" if reward.value == value else 409
        if noted.rewards and self.rules.several == "first":
            return "duplicate" if noted.rewards[0].value == value else 409
        if reward_id is None:
            like = {"sum": [t for t in noted.rewards if t.id is None], "last": noted.rewards[-1:]}
            if any(reward.value == value for reward in like.get(self.rules.several, ())):
                return "duplicate"
        if self.is_over(noted, now):
            return "late" if self.rules.late == "ignore" else "counted"
        return "held" if self.rules.apply == "at_window_end" else "counted"

    # the library

    def library(self, now, *, without=None):
        """The plain agent that was told all that counts, in the order of the decisions."""
        rules, options = self.rules, dict(self.case.options) | self.case.lives
        policy = FarSighted(40.0) if rules.policy == "far" else rules.policy
        agent = AdaTS(self.case.meta(), seed=0, policy=policy, **options)
        for arm in self.added:
            agent.add_arm(**arm)
        for arm in self.retired:
            agent.retire_arm(arm)
        agent = with_tasks(agent, dict.fromkeys(t for t in self.tasks if t != without))
        waiting = {task: [] for task in self.tasks}
        for noted in self.decisions.values():
            if noted.task == without or noted.action == []:  # of which nobody tells a reward
                continue
            reward = self.counted(noted, now)
            if reward is not None:
                action = tuple(noted.action) if isinstance(noted.action, list) else noted.action
                row = noted.features
                where = {"features": row} if row is not None else {"action": action}
                agent.tell(task=noted.task, reward=reward, time=noted.time, **where)
            elif not self.is_over(noted, now):
                waiting[noted.task].append(noted)
        if rules.policy != "ts":
            for task in agent.tasks:
                agent = self._wait(agent, task, waiting[task])
        return agent

    def _wait(self, agent, task, waiting):
        """Indices know how many decisions there were, and which pulls they wait for."""
        made = [noted for noted in self.decisions.values() if noted.task == task]
        linear = self.case.spec["model"] == "linear"
        pending = np.zeros((2, 2) if linear else len(self.names))
        for noted in waiting:
            if linear:
                row = noted.features
                if row is None:
                    row = agent.state().setup.arms.features[self.names.index(noted.action)]
                pending += np.outer(row, row)
            else:
                several = noted.action if isinstance(noted.action, list) else [noted.action]
                for arm in several:
                    pending[self.names.index(arm)] += 1
        known = agent.state().tasks[task]
        return with_tasks(agent, {task: known._replace(rounds=len(made), pending=pending)})

    def choice(self, agent, ask, now):
        """What the library chooses from this state with the randomness of this decision."""
        bits = np.random.PCG64(0)
        bits.state = generator_state(self.rules.seed.to_bytes(8, "little"), ask.decision_id)
        rng = np.random.Generator(bits)
        agent = AdaTS.from_state(agent.state()._replace(rng=rng))
        setup, meta, before = state_before(agent, ask.task, now)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "propensities of 1")
            own = agent.ask(
                ask.task,
                features=ask.features,
                allowed=ask.allowed,
                horizon=ask.horizon,
                propensities=True,
                time=now,
            )
        count = own.propensities.size
        names = self.names or list(range(count))
        shut = set(self.retired)
        shut |= set() if ask.allowed is None else set(names) - set(ask.allowed)
        free = [i for i in range(count) if names[i] not in shut]
        chances, held, action = own.propensities, None, own.action
        if self.rules.epsilon:
            floor = np.zeros(count)
            floor[free] = self.rules.epsilon / len(free)
            chances = (1 - self.rules.epsilon) * chances + floor
        instead = self._held_out(names, free)
        if instead is not None:
            held = bool(rng.random() < SHARE)
            apart = np.zeros(count)
            apart[instead] = 1.0 if self.rules.holdout == "control" else 1 / len(free)
            chances = (1 - SHARE) * chances + SHARE * apart
            if held:
                chosen = instead if self.rules.holdout == "control" else [int(rng.choice(free))]
                action = tuple(names[i] for i in chosen)
                action = action if "size" in self.case.spec else action[0]
        if not held and self.rules.epsilon and rng.random() < self.rules.epsilon:
            action = names[int(rng.choice(free))]
        rows = setup.arms.rows(ask.features, before.stats.pending_shape[0])
        mean = setup.source.posterior(meta, before).mean
        values = mean if rows is None else rows @ mean
        means = np.full(count, -np.inf)
        means[free] = values[free]
        return SimpleNamespace(
            action=action, chances=chances, held=held, means=means, names=names, agent=agent
        )

    def _held_out(self, names, free):
        """The arms to which a decision may be held out, as indices; None if it cannot be."""
        if self.rules.holdout is None:
            return None
        if self.rules.holdout == "uniform":
            return free
        wanted = list(self.case.control) if "size" in self.case.spec else [self.case.control]
        indices = [names.index(arm) for arm in wanted if arm in names]
        return indices if len(indices) == len(wanted) and set(indices) <= set(free) else None


class Play:
    """An engine on a store, and the books of its experiments."""

    def __init__(self, path, experiments, *, compare=True):
        """`experiments` are cases and rules, by name; `compare` decisions with the library's."""
        self.path, self.local, self.compare = path, Local(path), compare
        self.clock = self.local.clock
        self.books, self.count = {}, 0
        self.put_all(experiments)

    def put_all(self, experiments):
        for name, (case, rules) in experiments.items():
            self.books[name] = Book(case, rules)
            assert self.local.put(name, rules.spec(case))[0]

    def close(self):
        self.local.close()

    @property
    def now(self):
        return self.clock.time

    # operations

    def ask(self, name, task, seed, *, limited=False, decision_id=None):
        """A request that fits the experiment; `seed` draws what is left open."""
        book, rng = self.books[name], np.random.default_rng(seed)
        case, allowed, features = book.case, None, None
        if case.spec["model"] == "linear" and "features" not in case.spec:
            rows = len(book.names) or int(rng.integers(1, 5))
            features = rng.normal(size=(rows, 2)).round(3).tolist()
        names = book.names or list(range(len(features)))
        if limited:
            still = [arm for arm in names if arm not in book.retired]
            least = 2 if case.spec.get("exactly") else 1
            size = int(rng.integers(min(least, len(still)), len(still) + 1))
            allowed = [still[i] for i in rng.permutation(len(still))[:size]]
        horizon = int(rng.integers(1, 50)) if book.rules.policy in ("index", "far") else None
        self.count += decision_id is None
        return DecisionRequest(task, decision_id or f"d{self.count}", features, allowed, horizon)

    def decide(self, name, ask):
        """A decision, which has to be the library's."""
        book = self.books[name]
        known = book.decisions.get(ask.decision_id)
        if known is not None:
            self.decide_again(name, ask, known)
            return
        self.settle()
        agent = book.library(self.now) if self.compare and book.case.exact else None
        decided = self.local.decide(name, ask)
        if agent is not None:
            self._same_choice(name, ask, decided, book.choice(agent, ask, self.now))
        assert decided.state_version == book.version
        features = None
        if ask.features is not None:
            names = book.names or list(range(len(ask.features)))
            features = ask.features[names.index(decided.action)]
        book.decisions[ask.decision_id] = SimpleNamespace(
            task=ask.task,
            action=decided.action,
            features=features,
            time=self.now,
            rewards=[],
            decided=decided,
        )
        if ask.task not in book.tasks:
            book.tasks.append(ask.task)
        self._moved(name)

    def decide_again(self, name, ask, known):
        if ask.task == known.task:
            assert self.local.decide(name, ask) == known.decided
        else:
            with pytest.raises(Conflict):
                self.local.decide(name, ask)
        self._stood(name)

    def _same_choice(self, name, ask, decided, expected):
        names, served = expected.names, self.local.engine.served(TENANT, name)
        row = self.local.store.decision(served.id, ask.decision_id)
        action = tuple(decided.action) if isinstance(decided.action, list) else decided.action
        if action != expected.action:  # two arms of the same value may change places
            assert self.books[name].rules.policy != "ts"
            assert self._tied(name, ask, action, expected)
        else:
            assert row.holdout == expected.held
        chosen = [names.index(arm) for arm in (action if isinstance(action, tuple) else [action])]
        chances = np.atleast_1d(decided.propensity)
        exact = "size" not in self.books[name].case.spec and ask.features is None
        exact = exact and self.books[name].case.spec["model"] != "linear"
        apart = 1e-8 if exact else 2.5 / 1001  # counted over a thousand draws
        if action == expected.action:
            np.testing.assert_allclose(chances, expected.chances[chosen], rtol=0, atol=apart)
        best = expected.agent.state().setup.rule.oracle(expected.means)
        best = best.tolist() if isinstance(best, np.ndarray) else [best]
        sums = [sum(expected.means[i] for i in arms) for arms in (best, chosen)]
        if sorted(best) == sorted(chosen):
            assert not row.explored or self._close_means(expected)
        elif abs(sums[0] - sums[1]) > 1e-9:
            assert row.explored

    def _close_means(self, expected):
        """Whether round-off decides which arms are best."""
        means = np.sort(expected.means[np.isfinite(expected.means)])
        return bool((np.diff(means) < 1e-9).any() or (np.abs(means) < 1e-9).any())

    def _tied(self, name, ask, action, expected):
        """Whether the values of an index are the same but for round-off."""
        book = self.books[name]
        agent = book.library(self.now)
        setup, meta, state = state_before(agent, ask.task)
        rows = setup.arms.rows(ask.features, state.stats.pending_shape[0])
        belief = setup.source.posterior(meta, state)
        scene = setup.scene(meta, belief, state, None, rows, ask.horizon)
        values = setup.rule.policy.values(scene)
        sums = []
        for several in (action, expected.action):
            arms = several if isinstance(several, tuple) else (several,)
            sums.append(sum(values[expected.names.index(arm)] for arm in arms))
        return abs(sums[0] - sums[1]) < 1e-9

    def value(self, name, decision_id, which):
        """A reward that fits a decision."""
        book = self.books[name]
        rewards, action = book.case.rewards, book.decisions[decision_id].action
        if isinstance(action, list):
            return [rewards[(which + i) % len(rewards)] for i in range(len(action))]
        return rewards[which % len(rewards)]

    def reward(self, name, tell, *, settled=True):
        """`settled` False: nobody has looked yet at what is due."""
        if settled:
            self.settle()
        expected = self._expect(name, tell)
        try:
            found = self._work("reward", name, tell, settled=settled).status
        except (NotFound, Conflict, Invalid) as error:
            found = {NotFound: 404, Conflict: 409, Invalid: 422}[type(error)]
        assert found == expected
        self._note(name, tell, expected)
        if settled:
            self._moved(name, expected in STORED)
        self.settle()

    def batch(self, name, tells):
        self.settle()
        codes = []
        for tell in tells:  # one after another: the first changes what the second is
            codes.append(self._expect(name, tell))
            self._note(name, tell, codes[-1])
        result = self._work("rewards", name, RewardBatchRequest(tells))
        found = [r.code if isinstance(r, RefusedReward) else r.status for r in result.results]
        assert found == codes
        assert result.refused == sum(isinstance(code, int) for code in codes)
        self._moved(name, any(code in STORED for code in codes))  # one commit

    def _expect(self, name, tell):
        book = self.books[name]
        noted = book.decisions.get(tell.decision_id)
        if noted is None:
            return 404
        several = isinstance(noted.action, list)
        wrong = several != isinstance(tell.reward, list)
        wrong = wrong or (several and len(tell.reward) != len(noted.action))
        values = tell.reward if isinstance(tell.reward, list) else [tell.reward]
        if wrong or (book.case.bad is not None and book.case.bad in values):
            return 422
        return book.status(noted, tell.reward, tell.reward_id, self.now)

    def _note(self, name, tell, status):
        if status in STORED:
            reward = SimpleNamespace(value=tell.reward, id=tell.reward_id, time=self.now)
            self.books[name].decisions[tell.decision_id].rewards.append(reward)

    def wait(self, seconds):
        self.clock.time += seconds
        self.settle()

    def wait_for(self, name, decision_id):
        """To the very end of a decision's window."""
        book = self.books[name]
        if book.rules.window is not None:
            until = book.decisions[decision_id].time + book.rules.window
            self.clock.time = max(self.clock.time, until)

    def settle(self):
        """Look at what is due; the versions of the experiments move on by it."""
        self.local.about(next(iter(self.books)))  # any operation settles first
        for name, book in self.books.items():
            book.version = self.version(name)

    def version(self, name):
        return self.local.engine.served(TENANT, name).snapshot.version

    def forget(self, name, task):
        book = self.books[name]
        if task not in book.tasks:
            with pytest.raises(NotFound):
                self.local.forget(name, task)
            self._stood(name)
            return
        self.local.forget(name, task)
        book.tasks.remove(task)
        book.decisions = {d: n for d, n in book.decisions.items() if n.task != task}
        self._moved(name)

    def add_arm(self, name, which):
        book = self.books[name]
        new, linear = f"n{len(book.added)}", book.case.spec["model"] == "linear"
        arm: dict[str, Any] = {"name": new}
        if not linear:
            arm["like"] = book.names[which % len(book.names)]
        elif "features" in book.case.spec:
            arm["features"] = [0.1 * (which % 7), 0.5]
        new_arm = NewArm(new, arm.get("like"), arm.get("features"))
        if not book.case.grows:
            with pytest.raises(Invalid):
                self.local.add_arm(name, new_arm)
            self._stood(name)
            return
        about = self.local.add_arm(name, new_arm)
        assert about.arms[-1] == new
        book.added.append(arm)
        self._moved(name)
        self.local.add_arm(name, new_arm)  # the same again
        self._stood(name)

    def retire_arm(self, name, which):
        book = self.books[name]
        still = [arm for arm in book.names if arm not in book.retired]
        if not still:
            with pytest.raises(NotFound):
                self.local.retire_arm(name, "a")
            return
        arm = still[which % len(still)]
        controls = book.case.control if isinstance(book.case.control, str) else [book.case.control]
        kept = book.rules.holdout == "control" and arm in controls
        least = 2 if book.case.spec.get("exactly") else 1
        if kept or len(still) <= least:
            with pytest.raises(Invalid):
                self.local.retire_arm(name, str(arm))
            self._stood(name)
            return
        assert arm in self.local.retire_arm(name, str(arm)).retired
        book.retired.append(arm)
        self._moved(name)

    def reopen(self):
        self.local.close()
        self.local = Local(self.path, self.clock)
        for name in self.books:
            self._stood(name)

    def undone(self, works, *, flushed):
        """Operations in a transaction that is taken back: nothing of it has happened."""
        self.settle()
        engine = self.local.engine
        engine.begin()
        engine.settle_due()
        for work, name, *more in works:
            try:
                getattr(engine, work)(TENANT, name, *more)
            except (NotFound, Conflict, Invalid):
                continue
        if flushed:
            engine.flush()
        engine.undo()
        for name in self.books:
            self._stood(name)

    def _work(self, work, *arguments, settled=True):
        if settled:
            return getattr(self.local, work)(*arguments)
        engine = self.local.engine
        engine.begin()
        try:
            result = getattr(engine, work)(TENANT, *arguments)
            engine.flush()
        except BaseException:
            engine.undo()
            raise
        self.local.engine.commit()
        return result

    def _moved(self, name, by=1):
        assert self.version(name) == self.books[name].version + by
        self.books[name].version += by

    def _stood(self, name):
        self._moved(name, 0)

    # the invariant

    def check(self, name):
        """The service knows what the library knows, and says it."""
        self.settle()
        book, served = self.books[name], self.local.engine.served(TENANT, name)
        agent = book.library(self.now)
        pairs = self._meta_pairs(name, agent)
        if not book.case.exact:
            self._check_nearly(name, agent)
            return
        for task in book.tasks:
            own, due, view = (
                served.posterior(task, self.now),
                agent.posterior(task, time=self.now),
                self.local.task(name, task),
            )
            assert view.state_version == book.version
            pairs += [(own.mean, due.mean), (own.scale, due.scale)]
            pairs += [([p.mean for p in view.parts], due.mean)]
            pairs += [([p.scale for p in view.parts], due.scale)]
            if book.rules.policy != "ts":
                kept, known = served.task_cache.get(task), agent.state().tasks[task]
                pairs += [(kept.rounds, known.rounds), (kept.pending, known.pending)]
        if book.tasks:  # the prior of a task is what the others taught
            prior = meta_at(book.library(self.now, without=task), self.now).task_prior()
            pairs += [([p.prior_mean for p in view.parts], prior.mean)]
            pairs += [([p.prior_scale for p in view.parts], prior.scale)]
        own, due = (
            np.concatenate([np.ravel(side) for side in sides]) for sides in zip(*pairs, strict=True)
        )
        np.testing.assert_allclose(own, due, **CLOSE)

    def _check_nearly(self, name, agent):
        """Statistics are the library's, and the total is that of the tasks as they are kept; what
        is believed is nearly the library's."""
        book, served = self.books[name], self.local.engine.served(TENANT, name)
        now = served.snapshot.at(self.now)
        nearly(now.meta.task_prior(), meta_at(agent, self.now).task_prior())
        meta = book.case.meta()
        for arm in book.added:
            meta = meta.with_arm(arm["name"], meta.arms.index(arm["like"]))
        for task in book.tasks:
            own, due = served.task_cache.get(task), agent.state().tasks[task]
            np.testing.assert_allclose(own.stats.table, due.stats.table, **CLOSE)
            if book.rules.policy != "ts":
                assert own.rounds == due.rounds
                np.testing.assert_array_equal(own.pending, due.pending)
            belief, view = served.posterior(task, self.now), self.local.task(name, task)
            nearly(belief, agent.posterior(task, time=self.now))
            np.testing.assert_allclose([p.mean for p in view.parts], belief.mean, **CLOSE)
            message = now.meta.digest(own.stats).message
            meta = meta.absorb(now.setup.weight(own, now.time) * message)
        np.testing.assert_allclose(meta.total.value(), now.meta.total.value(), **CLOSE)

    def _meta_pairs(self, name, agent):
        book, view = self.books[name], self.local.meta(name)
        counted = [book.counted(noted, self.now) for noted in book.decisions.values()]
        assert (view.tasks, view.decisions) == (len(book.tasks), len(book.decisions))
        assert view.rewards == sum(reward is not None for reward in counted)
        assert view.state_version == book.version
        assert view.prior_version == 1 + len(book.added)
        linear = book.case.spec["model"] == "linear"
        assert [p.name for p in view.parts] == ([0, 1] if linear else book.names)
        meta, kept = meta_at(agent, self.now), prior_from_dict(view.prior, "meta")
        prior = meta.task_prior()
        return [
            (view.log_evidence, meta.log_evidence()),
            ([p.mean for p in view.parts], prior.mean),
            ([p.scale for p in view.parts], prior.scale),
            (kept.task_prior().mean, prior.mean),
            (kept.log_evidence(), meta.log_evidence()),
        ]


def nearly(own, due):
    """Whether two beliefs are the same but for approximations, which go by the order of rewards."""
    own, due = own.each_arm, due.each_arm
    np.testing.assert_array_less(np.abs(own.eta_mean - due.eta_mean), NEARLY * due.eta_scale)
    np.testing.assert_allclose(own.eta_scale, due.eta_scale, rtol=NEARLY)


def random_rules(rng, case):
    """Any rules that fit the model."""
    pick = lambda *options: options[rng.integers(len(options))]  # noqa: E731
    policy, epsilon = pick(*POLICIES)
    rules = Rules(
        policy,
        epsilon,
        pick(None, "control", "uniform"),
        pick("first", "sum", "last"),
        pick(None, 10.0, 10.0),
        pick(None, 0.0, 1.0),
        pick("at_once", "at_window_end"),
        pick("ignore", "replace"),
        int(rng.integers(2**63)),
    )
    return rules_that_fit(case, rules)


def random_schedule(play, rng, steps, *, forget=False):
    """Requests of all kinds in any order; some are refused, which changes nothing."""
    for _ in range(steps):
        name = list(play.books)[rng.integers(len(play.books))]
        made = list(play.books[name].decisions)
        step = rng.random()
        if step < 0.45 or not made:
            task, limited = TASKS[rng.integers(len(TASKS))], bool(rng.random() < 0.3)
            play.decide(name, play.ask(name, task, int(rng.integers(2**31)), limited=limited))
        elif step < 0.8:
            known = made[rng.integers(len(made))]
            reward_id = (None, None, "r", "s")[rng.integers(4)]
            value = play.value(name, known, int(rng.integers(10)))
            late = bool(rng.random() < 0.15)
            if late:
                play.wait_for(name, known)
            play.reward(name, RewardRequest(known, value, reward_id), settled=not late)
        elif step < 0.9:
            play.wait(float(rng.exponential(3.0)))
        elif step < 0.94:
            play.add_arm(name, int(rng.integers(10)))
        elif step < 0.96:
            play.retire_arm(name, int(rng.integers(10)))
        elif step < 0.98 or not forget:
            play.reopen()
        else:
            play.forget(name, TASKS[rng.integers(len(TASKS))])
