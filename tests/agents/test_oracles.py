"""Every oracle against brute force: all subsets, simple paths, trees, matchings of small sets."""

import dataclasses
import itertools
import json
import subprocess
import sys
import timeit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adats.agents.oracles import BestArm, BestRow, Matching, ShortestPath, SpanningTree, Top
from graphs import simple_paths

INF = float("inf")

# few distinct numbers make ties; zeros, negatives and closed arms (-inf) come up often
numbers = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, -INF]) | st.floats(-10, 10)
TRIANGLE = [("a", "b"), ("b", "c"), ("a", "c")]


@st.composite
def graphs(draw, nodes=5, edges=8):
    """A multigraph on few nodes, and a mean for each edge."""
    ends = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1))
    found = draw(st.lists(ends.filter(lambda e: e[0] != e[1]), min_size=1, max_size=edges))
    return found, np.array(draw(st.lists(numbers, min_size=len(found), max_size=len(found))))


def subsets(items, least=0, most=None):
    items = list(items)
    sizes = range(least, (len(items) if most is None else most) + 1)
    return itertools.chain.from_iterable(itertools.combinations(items, n) for n in sizes)


def is_tree(edges, nodes):
    """No edge closes a cycle and all nodes are joined."""
    part = {node: node for node in nodes}
    for a, b in edges:
        old, new = part[a], part[b]
        if old == new:
            return False
        part = {node: new if p == old else p for node, p in part.items()}
    return len(set(part.values())) == 1


def is_matching(pairs):
    return all(len(set(side)) == len(pairs) for side in zip(*pairs, strict=True))


def total(values, action):
    return float(sum(values[i] for i in action))


def allowed(values):
    return {i for i, value in enumerate(values) if value > -INF}


def check_set(action, values):
    """Sorted, distinct indices of arms that may be chosen."""
    assert isinstance(action, np.ndarray)
    assert action.dtype == np.intp
    assert action.ndim == 1
    assert (np.diff(action) > 0).all()
    assert set(action.tolist()) <= allowed(values)


def check_best(oracle, values, actions):
    """The oracle's action is one of the legal `actions`, and none of them is better."""
    actions = {tuple(sorted(a)) for a in actions if set(a) <= allowed(values)}
    if not actions:
        with pytest.raises(ValueError, match=r"; (add|allow)"):
            oracle(values)
        return
    chosen = oracle(values)
    check_set(chosen, values)
    assert tuple(chosen.tolist()) in actions
    assert total(values, chosen) == pytest.approx(max(total(values, a) for a in actions))


# one arm


@given(st.lists(numbers, min_size=1, max_size=8))
def test_best_arm_is_the_first_of_the_largest(values):
    if not allowed(values):
        with pytest.raises(ValueError, match="every arm is -inf; allow at least one"):
            BestArm()(np.array(values))
        return
    arm = BestArm()(np.array(values))
    assert type(arm) is int
    assert arm == values.index(max(values))


def test_best_arm_takes_infinity_but_not_nan():
    assert BestArm()(np.array([1.0, INF])) == 1
    with pytest.raises(ValueError, match="arm 1 is NaN"):
        BestArm()(np.array([INF, np.nan]))


def test_best_arm_is_quick():
    best, values = BestArm(), np.random.default_rng(0).normal(size=10)
    seconds = min(timeit.repeat(lambda: best(values), number=200, repeat=200)) / 200
    assert seconds < 5e-6  # about 0.5 µs on a quiet machine


def test_best_row():
    features = np.random.default_rng(1).normal(size=(7, 3))
    theta = np.array([1.0, -2.0, 0.5])
    oracle = BestRow(features)
    arm = oracle(theta)
    assert type(arm) is int
    assert features[arm] @ theta == max(row @ theta for row in features)
    assert not oracle.features.flags.writeable
    features[:] = 0.0  # the oracle has its own copy
    assert oracle(theta) == arm


@pytest.mark.parametrize("features", [[1.0, 2.0], np.empty((0, 2)), [[1.0, np.nan]], [[INF]]])
def test_best_row_wants_a_finite_matrix(features):
    with pytest.raises(ValueError, match="features"):
        BestRow(features)


def test_best_row_wants_a_theta_that_fits():
    with pytest.raises(ValueError, match=r"shape \(3,\); give 2 numbers"):
        BestRow(np.eye(2))(np.ones(3))
    with pytest.raises(ValueError, match="NaN"):
        BestRow(np.eye(2))(np.array([0.0, np.nan]))


# subsets


@given(st.lists(numbers, min_size=1, max_size=7), st.integers(1, 7))
def test_top_is_the_best_subset(values, size):
    values, size = np.array(values), min(size, len(values))
    check_best(Top(size), values, subsets(range(len(values)), most=size))
    check_best(Top(size, exactly=True), values, subsets(range(len(values)), size, size))


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=9), st.integers(1, 9))
def test_top_takes_the_lowest_index_in_a_tie(values, size):
    size = min(size, len(values))
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    assert Top(size)(np.array(values)).tolist() == sorted(order[:size])


def test_top_leaves_out_negative_means():
    assert Top(3)(np.array([-1.0, 0.0, -0.0, -INF, 2.0])).tolist() == [1, 2, 4]
    for values in ([-1.0, -2.0], [-INF, -INF]):
        check_set(Top(2)(np.array(values)), np.array(values))
        assert Top(2)(np.array(values)).size == 0
    assert Top(1)(np.array([3.0, INF])).tolist() == [1]


@pytest.mark.parametrize("size", [0, -1, 1.0, 2.5, "2", True, None])
def test_top_wants_a_positive_whole_size(size):
    with pytest.raises(ValueError, match=r"size is .*; give"):
        Top(size)


def test_top_wants_enough_arms():
    with pytest.raises(ValueError, match="size is 3 but there are 2 arms"):
        Top(3)(np.zeros(2))
    with pytest.raises(ValueError, match="exactly 2 arms are due but only 1 may be chosen"):
        Top(2, exactly=True)(np.array([-INF, 1.0, -INF]))


# paths


@given(graphs(), st.booleans())
def test_shortest_path_among_all_simple_paths(graph, directed):
    edges, values = graph
    source, target = edges[0][0], edges[-1][1]
    if source == target:
        source, target = edges[0]
    oracle = ShortestPath(edges, source, target, floor=0.25, directed=directed)
    # a latency below the floor counts as the floor
    clipped = np.where(values > -INF, np.minimum(values, -0.25), -INF)
    actions = {
        tuple(sorted(path))
        for path in simple_paths(edges, source, target, directed)
        if set(path) <= allowed(values)
    }
    if not actions:
        with pytest.raises(ValueError, match=f"no path leads from {source} to {target}; add"):
            oracle(values)
        return
    chosen = oracle(values)
    check_set(chosen, values)
    assert tuple(chosen.tolist()) in actions
    assert total(clipped, chosen) == pytest.approx(max(total(clipped, a) for a in actions))


def test_shortest_path_takes_the_best_of_parallel_edges():
    edges = [("s", "t"), ("t", "s"), ("s", "t"), ("s", "m"), ("m", "t")]
    values = np.array([-3.0, -1.5, -2.0, -1.0, -1.0])
    assert ShortestPath(edges, "s", "t")(values).tolist() == [1]
    assert ShortestPath(edges, "s", "t", directed=True)(values).tolist() in ([2], [3, 4])
    values[2] = -1.9
    assert ShortestPath(edges, "s", "t", directed=True)(values).tolist() == [2]


def test_shortest_path_with_means_of_any_size():
    path = ShortestPath(TRIANGLE, "a", "c")
    assert path(np.array([0.0, 0.0, -1.0])).tolist() == [0, 1]  # zero latencies
    assert path(np.array([5.0, INF, -1.0])).tolist() == [0, 1]  # negative ones
    assert path(np.array([-1e308, -1e308, -INF])).tolist() == [0, 1]  # their sum overflows
    assert path(np.array([-1e-9, -1e-9, -1e-9])).tolist() == [2]


@pytest.mark.parametrize("directed", [False, True])
def test_a_path_through_an_edge(directed):
    """Against all simple paths; unknown is an answer only in a directed graph with a cycle."""
    rng, unknown, known = np.random.default_rng(2), 0, 0
    for _ in range(60):
        edges = [(int(a), int(b)) for a, b in rng.integers(0, 7, (12, 2)) if a != b]
        open_ = rng.random(len(edges)) < 0.9
        if {0, 6} - {node for edge in edges for node in edge}:
            continue
        oracle = ShortestPath(edges, 0, 6, directed=directed)
        paths = {
            tuple(sorted(path))
            for path in simple_paths(edges, 0, 6, directed)
            if open_[list(path)].all()
        }
        for arm in np.flatnonzero(open_):
            path = oracle.through(int(arm), allowed=open_)
            if path is None:
                unknown += 1
            elif path.size:
                known += 1
                assert arm in path
                assert tuple(path.tolist()) in paths
            else:
                assert not any(arm in p for p in paths)
    assert known > 50
    assert directed or not unknown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], "a", "b"), "edges is empty; give at least one"),
        ((TRIANGLE, "z", "a"), "source is 'z', which no edge touches"),
        ((TRIANGLE, "a", "z"), "target is 'z', which no edge touches"),
        ((TRIANGLE, "a", "a"), "both 'a'; give two nodes"),
        (([("a", "b"), ("b", "b")], "a", "b"), r"loop \('b', 'b'\); leave loops out"),
        ((["ab"], "a", "b"), "edges holds 'ab'; give pairs"),
        (([("a", "b", "c")], "a", "b"), "give pairs of two nodes"),
        (([3], "a", "b"), "edges holds 3; give pairs"),
        (([("a", 1.5)], "a", "b"), "node 1.5; name nodes by str or int"),
        ((TRIANGLE, ["a"], "b"), r"source holds the node \['a'\]; name nodes"),
    ],
)
def test_shortest_path_wants_a_graph(arguments, message):
    with pytest.raises(ValueError, match=message):
        ShortestPath(*arguments)


@pytest.mark.parametrize("floor", [0.0, -1.0, INF, np.nan, 1e305, "low"])
def test_shortest_path_wants_a_positive_floor(floor):
    with pytest.raises(ValueError, match="floor"):
        ShortestPath(TRIANGLE, "a", "c", floor=floor)


# trees


@given(graphs())
def test_spanning_tree_among_all_trees(graph):
    edges, values = graph
    nodes = {node for edge in edges for node in edge}
    trees = [
        tree
        for tree in itertools.combinations(range(len(edges)), len(nodes) - 1)
        if is_tree([edges[i] for i in tree], nodes)
    ]
    check_best(SpanningTree(edges), values, trees)


def test_spanning_tree_with_means_of_hugely_different_sizes():
    """A shift of the costs would round them to one another; their ranks do not."""
    values = np.array([1e300, 1e-300, 2e-300])
    assert SpanningTree(TRIANGLE)(values).tolist() == [0, 2]
    assert SpanningTree(TRIANGLE)(np.array([INF, -1e300, -1e299])).tolist() == [0, 2]
    assert SpanningTree(TRIANGLE)(np.zeros(3)).tolist() == [0, 1]  # a tie: the first


def test_spanning_tree_wants_a_connected_graph():
    with pytest.raises(ValueError, match="leave the 4 nodes in 2 parts; add edges"):
        SpanningTree([(1, 2), (3, 4)])(np.zeros(2))
    with pytest.raises(ValueError, match="3 nodes in 3 parts"):
        SpanningTree(TRIANGLE)(np.full(3, -INF))
    with pytest.raises(ValueError, match="leave loops out"):
        SpanningTree([(1, 1)])
    with pytest.raises(ValueError, match="edges is empty"):
        SpanningTree([])


# matchings


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), numbers), min_size=1, max_size=8),
    st.booleans(),
)
def test_matching_among_all_matchings(arms, perfect):
    pairs, values = [arm[:2] for arm in arms], np.array([arm[2] for arm in arms])
    smaller = min(len({a for a, _ in pairs}), len({b for _, b in pairs}))
    actions = subsets(range(len(pairs)), smaller if perfect else 0, smaller)
    matchings = [a for a in actions if is_matching([pairs[i] for i in a])]
    check_best(Matching(pairs, perfect=perfect), values, matchings)


def test_matching_leaves_out_negative_means_unless_perfect():
    pairs = [("ann", 1), ("ann", 2), ("bob", 1)]
    assert Matching(pairs)(np.array([-1.0, -2.0, -3.0])).size == 0
    assert Matching(pairs)(np.full(3, -INF)).size == 0
    assert Matching(pairs, perfect=True)(np.array([9.0, -2.0, -3.0])).tolist() == [1, 2]
    assert Matching([("x", "x")])(np.ones(1)).tolist() == [0]  # left and right are two worlds


def test_matching_with_means_of_any_size():
    pairs = [("ann", 1), ("ann", 2), ("bob", 1), ("bob", 2)]
    assert Matching(pairs)(np.array([INF, 0.0, 0.0, 1.0])).tolist()[0] == 0
    assert Matching(pairs, perfect=True)(np.array([-1e308, 1.0, 1.0, -1e308])).tolist() == [1, 2]


def test_matching_wants_pairs():
    with pytest.raises(ValueError, match="pairs is empty"):
        Matching([])
    with pytest.raises(ValueError, match="every left node; allow more pairs or"):
        Matching([("a", 1), ("b", 1), ("b", 2)], perfect=True)(np.array([-INF, 1.0, 1.0]))
    with pytest.raises(ValueError, match="every right node"):
        Matching([("a", 1), ("a", 2), ("b", 3), ("c", 3), ("d", 3)], perfect=True)(np.zeros(5))


# all of them

SETS = [
    Top(2),
    Top(2, exactly=True),
    ShortestPath(TRIANGLE, "a", "c", directed=True),
    SpanningTree(TRIANGLE),
    Matching(TRIANGLE, perfect=True),
]


@pytest.mark.parametrize("oracle", SETS, ids=repr)
def test_means_must_be_numbers_one_an_arm(oracle):
    with pytest.raises(ValueError, match="arm 1 is NaN"):
        oracle(np.array([1.0, np.nan, -INF]))
    with pytest.raises(ValueError, match=r"values have shape \(1, 3\)"):
        oracle(np.ones((1, 3)))
    if not isinstance(oracle, Top):
        with pytest.raises(ValueError, match="give 3 numbers, one an arm"):
            oracle(np.ones(4))


@pytest.mark.parametrize("oracle", [BestArm(), *SETS], ids=repr)
def test_the_values_are_left_as_they_are(oracle):
    values = np.array([1.0, 0.5, -1.0])
    values.setflags(write=False)
    again = oracle(values)
    assert np.array_equal(oracle(values), again)
    assert values.tolist() == [1.0, 0.5, -1.0]


@pytest.mark.parametrize("oracle", [BestArm(), *SETS], ids=repr)
def test_oracles_are_plain_values(oracle):
    """Equal, hashable, frozen, and the same again from JSON."""
    oracle(np.ones(3))
    fields = {f.name: getattr(oracle, f.name) for f in dataclasses.fields(oracle)}
    again = type(oracle)(**json.loads(json.dumps(fields)))
    assert again == oracle
    assert hash(again) == hash(oracle)
    for name in fields:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(oracle, name, None)


def test_numpy_inputs_become_plain():
    edges = np.array([[0, 1], [1, 2]])
    oracle = ShortestPath(edges, np.int64(0), np.int64(2), floor=np.float64(0.5))
    assert oracle == ShortestPath(((0, 1), (1, 2)), 0, 2, floor=0.5)
    assert {type(node) for edge in oracle.edges for node in edge} == {int}
    assert type(oracle.source) is int
    assert type(oracle.floor) is float
    assert type(Top(np.int64(2)).size) is int


def test_importing_oracles_loads_no_graphs():
    code = (
        "import sys, adats.agents.oracles, adats.agents.exploration;"
        "print([m for m in ('scipy.sparse.csgraph', 'scipy.optimize') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
