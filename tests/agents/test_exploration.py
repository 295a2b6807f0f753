"""Forced exploration: arms that span, rows that add a direction, actions that cover."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import qr

from adats.agents.exploration import _best_swap, covering_actions, eta, newest_row, spanning_arms
from adats.agents.oracles import BestArm, Matching, ShortestPath, SpanningTree, Top
from graphs import simple_paths


def spread(features, arms):
    """The smallest eigenvalue of Σ aaᵀ within the span of as many rows as dimensions."""
    return np.linalg.svd(features[list(arms)], compute_uv=False)[-1] ** 2 if len(arms) else 0.0


def pivots(features):
    rank = np.linalg.matrix_rank(features)
    return qr(features.T, mode="r", pivoting=True)[1][:rank]


@st.composite
def matrices(draw, scale=3):
    """Small whole numbers: ties, repeated rows and low ranks come up often."""
    rows, dim = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    row = st.lists(st.integers(-scale, scale), min_size=dim, max_size=dim)
    return np.array(draw(st.lists(row, min_size=rows, max_size=rows)), dtype=float)


# arms that span


@given(matrices())
def test_spanning_arms_span_and_are_a_local_optimum(features):
    arms = spanning_arms(features)
    rank = np.linalg.matrix_rank(features)
    assert arms.dtype == np.intp
    assert len(arms) == len(set(arms.tolist())) == rank
    assert (np.diff(arms) > 0).all()
    if rank == 0:
        return
    assert np.linalg.matrix_rank(features[arms]) == rank
    assert spread(features, arms) >= spread(features, pivots(features)) * (1 - 1e-9)
    others = set(range(len(features))) - set(arms.tolist())
    for out, row in itertools.product(range(rank), others):
        swapped = [*np.delete(arms, out), row]
        assert spread(features, swapped) <= spread(features, arms) * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("kind", ["normal", "sphere", "sizes", "low rank"])
def test_spanning_arms_are_near_the_best_of_all_subsets(kind):
    rng = np.random.default_rng(3)
    ratios = []
    for _ in range(40):
        dim = int(rng.integers(1, 5))
        features = rng.normal(size=(int(rng.integers(dim, 9)), dim))
        if kind == "sphere":
            features /= np.linalg.norm(features, axis=1)[:, None]
        elif kind == "sizes":
            features *= 10.0 ** rng.normal(size=(len(features), 1))
        elif kind == "low rank":
            features = features @ rng.normal(size=(dim, dim + 2))
        rank = np.linalg.matrix_rank(features)
        subsets = itertools.combinations(range(len(features)), rank)
        best = max(spread(features, arms) for arms in subsets)
        ratios.append(spread(features, spanning_arms(features)) / best)
    assert min(ratios) >= 0.5
    assert np.mean(ratios) > 0.95


@given(st.integers(0, 10_000))
def test_the_best_swap_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 6))
    rows = rng.normal(size=(int(rng.integers(rank + 1, 12)), rank))
    chosen = rng.choice(len(rows), rank, replace=False)
    swaps = itertools.product(range(rank), sorted(set(range(len(rows))) - set(chosen.tolist())))
    reach = {(place, row): spread(rows, [*np.delete(chosen, place), row]) for place, row in swaps}
    best = max(reach, key=reach.__getitem__)
    improves = reach[best] > spread(rows, chosen)
    assert _best_swap(rows, chosen) == (best if improves else None)


def test_spanning_arms_of_nearly_dependent_features():
    points = np.linspace(0, 1, 30)
    for dim in range(2, 14):
        features = np.vander(points, dim)
        arms = spanning_arms(features)
        assert len(arms) == dim
        assert spread(features, arms) >= spread(features, pivots(features)) * (1 - 1e-9)


def test_swaps_improve_on_pivoted_qr():
    rng = np.random.default_rng(4)
    features = rng.normal(size=(50, 16))
    features /= np.linalg.norm(features, axis=1)[:, None]
    assert eta(features, spanning_arms(features)) > 1.1 * eta(features, pivots(features))


def test_spanning_arms_of_a_large_set():
    features = np.random.default_rng(5).normal(size=(500, 64))
    arms = spanning_arms(features)
    assert len(arms) == 64
    assert eta(features, arms) >= eta(features, pivots(features))


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_spanning_arms_do_not_depend_on_the_unit(scale):
    features = np.random.default_rng(6).normal(size=(12, 3))
    assert spanning_arms(features * scale).tolist() == spanning_arms(features).tolist()


def test_spanning_arms_of_special_matrices():
    assert spanning_arms(np.zeros((3, 2))).size == 0
    assert spanning_arms(np.eye(3)).tolist() == [0, 1, 2]
    assert spanning_arms(np.array([[1.0], [-3.0], [2.0]])).tolist() == [1]
    repeated = np.repeat(np.eye(2), 3, axis=0)
    assert np.linalg.matrix_rank(repeated[spanning_arms(repeated)]) == 2


def test_eta():
    features = np.array([[3.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    assert eta(features, np.array([0, 1])) == pytest.approx(4.0)
    assert eta(features, np.array([1, 2])) == pytest.approx(1.0)
    assert eta(features, np.array([2, 2, 1])) == pytest.approx(2.0)  # pulled twice
    assert eta(features, np.array([0])) == 0.0
    assert eta(features, np.array([0, 2])) == 0.0
    assert eta(features, np.array([], dtype=int)) == 0.0
    assert eta(np.array([[0.1, 0.3], [0.7, 2.1]]), np.array([0, 1])) == 0.0  # up to round-off
    rows = np.random.default_rng(7).normal(size=(9, 4))
    assert eta(rows, np.arange(9)) == pytest.approx(np.linalg.eigvalsh(rows.T @ rows)[0])


@pytest.mark.parametrize("features", [np.ones(3), np.empty((0, 2)), [[np.nan, 1.0]]])
def test_features_must_be_a_finite_matrix(features):
    for call in (spanning_arms, lambda f: eta(f, [0]), lambda f: newest_row(f, np.eye(2))):
        with pytest.raises(ValueError, match="features"):
            call(features)


# rows that add a direction


@given(matrices())
def test_newest_rows_reach_the_rank_and_stop(features):
    dim = features.shape[1]
    gram = np.zeros((dim, dim))
    pulled = []
    while (row := newest_row(features, gram)) is not None:
        before = np.linalg.matrix_rank(features[pulled]) if pulled else 0
        pulled.append(row)
        assert np.linalg.matrix_rank(features[pulled]) == before + 1
        gram += np.outer(features[row], features[row])
    assert len(pulled) == np.linalg.matrix_rank(features)


def test_newest_row_has_the_largest_residual():
    rng = np.random.default_rng(8)
    features, design = rng.normal(size=(10, 5)), rng.normal(size=(2, 5))
    fits = np.linalg.lstsq(design.T, features.T, rcond=None)[0]
    residual = np.linalg.norm(features.T - design.T @ fits, axis=0)
    assert newest_row(features, design.T @ design) == residual.argmax()
    allowed = residual < residual.max()
    second = newest_row(features, design.T @ design, allowed=allowed)
    assert second == np.where(allowed, residual, 0).argmax()
    assert newest_row(features, design.T @ design, allowed=np.zeros(10, dtype=bool)) is None
    assert newest_row(features, np.zeros((5, 5))) == np.linalg.norm(features, axis=1).argmax()
    assert newest_row(features, np.eye(5)) is None


def test_newest_row_stops_with_features_of_very_different_sizes():
    """New features every round, nearly collinear or in other units: never more than d rounds."""
    rng = np.random.default_rng(9)
    for power in range(0, 20, 2):
        sizes = np.logspace(0, -power, 6)
        gram = np.zeros((6, 6))
        turned = np.linalg.qr(rng.normal(size=(6, 6)))[0]
        rounds = 0
        for _ in range(30):
            features = (rng.normal(size=(8, 6)) * sizes) @ turned
            row = newest_row(features, gram)
            if row is not None:
                rounds += 1
                gram += np.outer(features[row], features[row])
        assert rounds <= 6
        assert power > 6 or rounds == 6


def test_newest_row_wants_shapes_that_fit():
    with pytest.raises(ValueError, match=r"gram has shape \(3, 3\); give a 2 by 2"):
        newest_row(np.ones((4, 2)), np.eye(3))
    with pytest.raises(ValueError, match="gram must be finite"):
        newest_row(np.ones((4, 2)), np.full((2, 2), np.nan))
    for allowed in (np.ones(3, dtype=bool), np.ones(4)):
        with pytest.raises(ValueError, match="give 4 booleans"):
            newest_row(np.ones((4, 2)), np.eye(2), allowed=allowed)


# actions that cover

# Abilene, the research network of the United States, about 2004
ABILENE = [
    ("Seattle", "Sunnyvale"),
    ("Seattle", "Denver"),
    ("Sunnyvale", "Los Angeles"),
    ("Sunnyvale", "Denver"),
    ("Los Angeles", "Houston"),
    ("Denver", "Kansas City"),
    ("Kansas City", "Houston"),
    ("Kansas City", "Indianapolis"),
    ("Houston", "Atlanta"),
    ("Indianapolis", "Chicago"),
    ("Indianapolis", "Atlanta"),
    ("Chicago", "New York"),
    ("Atlanta", "Washington"),
    ("New York", "Washington"),
]


def covered(actions):
    return {int(arm) for action in actions for arm in action}


@pytest.mark.parametrize(
    "ends", [("Seattle", "New York"), ("Seattle", "Denver"), ("Houston", "Kansas City")]
)
def test_paths_cover_a_real_network(ends):
    actions = covering_actions(ShortestPath(ABILENE, *ends), len(ABILENE))
    paths = {tuple(sorted(p)) for p in simple_paths(ABILENE, *ends)}
    assert {tuple(a.tolist()) for a in actions} <= paths
    assert covered(actions) == set().union(*paths)
    assert len(actions) <= 8


def test_an_edge_on_no_simple_path_is_left_out():
    edges = [*ABILENE, ("Seattle", "Hawaii")]
    actions = covering_actions(ShortestPath(edges, "Seattle", "New York"), 15)
    assert covered(actions) == set(range(14))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("floor", [1e-6, 10.0])
def test_paths_cover_random_graphs(directed, floor):
    """All that is on a simple path; in directed graphs with cycles a few may be left out."""
    rng, missed, reached = np.random.default_rng(10), 0, 0
    for _ in range(40):
        edges = [(int(a), int(b)) for a, b in rng.integers(0, 7, (12, 2)) if a != b]
        edges += [(0, 6), (0, 1)]
        oracle = ShortestPath(edges, 0, 6, directed=directed, floor=floor)
        wanted = set().union(*simple_paths(edges, 0, 6, directed))
        found = covered(covering_actions(oracle, len(edges)))
        assert found <= wanted
        missed, reached = missed + len(wanted - found), reached + len(found)
    assert missed <= (0.02 * reached if directed else 0)


def test_neighbours_in_a_grid_need_detours():
    side = 6
    edges = [(i, i + 1) for i in range(side**2) if (i + 1) % side]
    edges += [(i, i + side) for i in range(side**2 - side)]
    actions = covering_actions(ShortestPath(edges, 0, 1), len(edges))
    assert covered(actions) == set(range(len(edges)))


PAIRS = [(a, b) for a in range(3) for b in range(4)]


@pytest.mark.parametrize(
    ("oracle", "arms", "most"),
    [
        (BestArm(), 5, 5),
        (Top(2), 5, 3),
        (Top(2, exactly=True), 5, 3),
        (Top(5, exactly=True), 5, 1),
        (SpanningTree(ABILENE), 14, 3),
        (Matching(PAIRS), 12, 12),
        (Matching(PAIRS, perfect=True), 12, 12),
    ],
    ids=repr,
)
def test_every_oracle_covers_its_arms(oracle, arms, most):
    actions = covering_actions(oracle, arms)
    assert covered(actions) == set(range(arms))
    assert len(actions) <= most
    assert all(action.dtype == np.intp for action in actions)
    again = covering_actions(oracle, arms)
    assert [a.tolist() for a in again] == [a.tolist() for a in actions]


def test_an_oracle_without_a_way_to_an_arm_is_tried_at_random():
    """The same paths through a plain function, so that `through` cannot help."""
    path = ShortestPath(ABILENE, "Seattle", "Denver")
    wanted = covered(covering_actions(path, 14))
    assert covered(covering_actions(lambda values: path(values), 14)) == wanted


def test_an_oracle_that_never_chooses_covers_nothing():
    assert covering_actions(lambda _: np.array([], dtype=np.intp), 3) == ()


def test_only_allowed_arms_are_covered():
    allowed = np.arange(14) != 1
    oracle = ShortestPath(ABILENE, "Seattle", "Denver")
    actions = covering_actions(oracle, 14, allowed=allowed)
    paths = [p for p in simple_paths(ABILENE, "Seattle", "Denver") if 1 not in p]
    assert covered(actions) == set().union(*paths)
    assert covered(covering_actions(BestArm(), 3, allowed=np.array([True, False, True]))) == {0, 2}
    assert covering_actions(BestArm(), 3, allowed=np.zeros(3, dtype=bool)) == ()

    def spy(values):
        assert ((values == -np.inf) == ~allowed).all()
        return oracle(values)

    assert covered(covering_actions(spy, 14, allowed=allowed)) == covered(actions)


def test_covering_wants_arms_that_fit():
    with pytest.raises(ValueError, match="arms is 0; give at least 1"):
        covering_actions(BestArm(), 0)
    with pytest.raises(ValueError, match="give 2 booleans"):
        covering_actions(BestArm(), 2, allowed=np.ones(3, dtype=bool))
    with pytest.raises(ValueError, match="size is 3 but there are 2 arms"):
        covering_actions(Top(3), 2)
    with pytest.raises(ValueError, match="give 14 numbers"):
        covering_actions(SpanningTree(ABILENE), 3)
