"""One decision as a pure function: from what is believed to an action, and how likely it was."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from adats.agents.oracles import BestArm, CheckedOracle, Oracle
from adats.agents.policies import Policy, Scene, Thompson
from adats.agents.propensities import chance, exact_propensities, floored, propensities
from adats.models.core.frozen import fill
from adats.models.core.types import BoolArray, FloatArray, IntArray

Action = int | IntArray  # an arm, or a set of them


class Holdout(NamedTuple):
    """A share of all decisions goes to a control action; to any allowed arm if it is None."""

    share: float
    control: Action | None = None


@dataclass(frozen=True, eq=False)
class Rule:
    """How values become an action: by the policy, the oracle, and chance."""

    policy: Policy
    oracle: Oracle
    epsilon: float = 0.0  # the chance that any allowed arm is pulled instead
    holdout: Holdout | None = None
    # what follows from these
    samples: bool = field(init=False)  # Thompson sampling, whose propensities are known
    single: bool = field(init=False)  # the best arm is chosen, no oracle of another kind asked
    can_fail: bool = field(init=False)  # choosing can raise after something was drawn
    strays: bool = field(init=False)  # another action may be done than the policy's own

    def __post_init__(self) -> None:
        samples, single = type(self.policy) is Thompson, type(self.oracle) is BestArm
        strays = self.epsilon > 0 or self.holdout is not None
        fill(self, samples=samples, single=single, can_fail=not (samples and single), strays=strays)


class Choice(NamedTuple):
    """What was chosen, and why."""

    action: Action
    propensities: FloatArray | None = None  # of all arms, if they were asked for
    explored: bool = False  # whether another action has the best mean, if that was asked for
    forced: bool = False  # by forced exploration
    held_out: bool | None = None  # None: it could not be


def choose(
    rule: Rule,
    scene: Scene,
    allowed: BoolArray | None = None,
    *,
    draws: int | None = None,
    logged: bool = False,
) -> Choice:
    """An action for the scene, drawn from its rng.

    With `draws`, the seed of a stream of their own, the choice says how likely every arm was. If
    it is `logged`, that of what is done is enough, and the choice says whether it explored.
    """
    values = rule.policy.values(scene)
    if allowed is not None:
        values = np.where(allowed, values, -np.inf)
    own = action = rule.oracle(values)
    held_out = None
    if rule.strays:
        action, held_out = _instead(rule, scene, own, allowed, values.size)
    if draws is None:
        return Choice(action, None, False, False, held_out)
    chances = _chances(rule, scene, own, action, allowed, draws, logged and not rule.epsilon)
    chances = _mixed(rule, chances, allowed, held_out is not None)
    explored = logged and not _same(action, _best(rule, scene, allowed))
    return Choice(action, chances, explored, False, held_out)


def _instead(
    rule: Rule, scene: Scene, own: Action, allowed: BoolArray | None, arms: int
) -> tuple[Action, bool | None]:
    """What is done: the policy's own choice, the holdout's, or any arm. The holdout comes first."""
    rng, holdout = scene.rng, rule.holdout
    held_out = None
    if holdout is not None and _can_hold_out(holdout, allowed, arms):
        held_out = bool(rng.random() < holdout.share)
        if held_out:
            control = holdout.control
            return (_any(scene, allowed, arms) if control is None else control), held_out
    if rule.epsilon and rng.random() < rule.epsilon:
        return _any(scene, allowed, arms), held_out
    return own, held_out


def _any(scene: Scene, allowed: BoolArray | None, arms: int) -> int:
    return int(scene.rng.choice(arms if allowed is None else np.flatnonzero(allowed)))


def _can_hold_out(holdout: Holdout, allowed: BoolArray | None, arms: int) -> bool:
    control = holdout.control
    if control is None:
        return True
    if isinstance(control, int) and control >= arms:
        return False
    return allowed is None or bool(allowed[control].all())


def _chances(
    rule: Rule,
    scene: Scene,
    own: Action,
    action: Action,
    allowed: BoolArray | None,
    draws: int,
    own_only: bool,
) -> FloatArray:
    """How likely the policy was to choose every arm: exact, or counted over draws."""
    belief, rows = scene.belief, scene.rows
    arms = belief.mean.size if rows is None else len(rows)
    chances = np.zeros(arms)
    if not rule.samples:
        chances[own] = 1.0
        return chances
    if rows is None and rule.single:
        if own_only and isinstance(action, int):
            one = chance(belief, action, allowed)
            if one is not None:
                chances[action] = one
                return chances
        exact = exact_propensities(belief, allowed)
        if exact is not None:
            return exact
    oracle = rule.oracle.oracle if isinstance(rule.oracle, CheckedOracle) else rule.oracle
    return propensities(
        belief,
        oracle=oracle,
        features=rows,
        allowed=allowed,
        rng=np.random.default_rng(draws),
        chosen=own,
    ).probabilities


def _mixed(
    rule: Rule, chances: FloatArray, allowed: BoolArray | None, can_hold_out: bool
) -> FloatArray:
    """The chances of the policy's choices, together with those of `_instead`."""
    own = floored(chances, rule.epsilon, allowed=allowed) if rule.epsilon else chances
    holdout = rule.holdout
    if holdout is None or not can_hold_out:
        return own
    held = np.zeros_like(own)
    if holdout.control is not None:
        held[holdout.control] = 1.0
    else:
        held[:] = 1 / own.size if allowed is None else allowed / allowed.sum()
    return (1 - holdout.share) * own + holdout.share * held


def _best(rule: Rule, scene: Scene, allowed: BoolArray | None) -> Action:
    """The action of the best mean, as far as is known."""
    belief, rows = scene.belief, scene.rows
    values = belief.mean if rows is None else belief.expected_rewards(rows)
    return rule.oracle(values if allowed is None else np.where(allowed, values, -np.inf))


def _same(one: Action, other: Action) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return bool(np.array_equal(one, other))
