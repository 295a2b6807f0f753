"""Oracles over the edges of a graph: paths, spanning trees, matchings, all through SciPy."""

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from adats.agents.oracles.arms import means
from adats.models.core import checks
from adats.models.core.frozen import fill
from adats.models.core.types import BoolArray, FloatArray, IntArray

Node = str | int
_INF = float("inf")
_HUGE = 1e300  # larger means are cut here: their sums stay finite, and no order of use changes


@dataclass(frozen=True)
class ShortestPath:
    """The edges of the shortest path; an edge is an arm and its latency is minus its mean.

    Latencies below `floor`, as a sample may be, count as `floor`. Parallel edges are fine.

    >>> path = ShortestPath([("a", "b"), ("b", "c"), ("a", "c")], "a", "c")
    >>> path(np.array([-1.0, -1.0, -5.0]))
    array([0, 1])
    >>> path(np.array([-np.inf, -1.0, -5.0]))
    array([2])
    """

    edges: Sequence[tuple[Node, Node]]
    source: Node
    target: Node
    _: KW_ONLY
    floor: float = 1e-6
    directed: bool = False

    def __post_init__(self) -> None:
        edges = _pairs(self.edges, "edges", loops=False)
        fill(self, edges=edges, directed=bool(self.directed))
        nodes = {node for edge in self.edges for node in edge}
        for role in ("source", "target"):
            node = _node(getattr(self, role), role)
            if node not in nodes:
                raise ValueError(f"{role} is {node!r}, which no edge touches; name a node of edges")
            fill(self, **{role: node})
        if self.source == self.target:
            raise ValueError(f"source and target are both {self.source!r}; give two nodes")
        fill(self, floor=checks.number("floor", self.floor))
        if not 0 < self.floor < _HUGE:
            raise ValueError(f"floor is {self.floor}; give a small positive latency")

    @cached_property
    def graph(self) -> tuple[IntArray, dict[Node, int]]:
        """The two ends of each edge as numbers, and the number of each node."""
        number = _numbered(node for edge in self.edges for node in edge)
        return _ends(self.edges, number, number, ordered=self.directed), number

    def __call__(self, values: FloatArray, /) -> IntArray:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        values = means(values, len(self.edges))
        cost = np.clip(-values, self.floor, _HUGE)
        ends, number = self.graph
        nodes = len(number)
        kept, cells = _best_of_parallel(values, ends, nodes)
        # a sparse matrix adds up duplicates and drops zeros; here there are neither
        graph = csr_array((cost[kept], (ends[kept, 0], ends[kept, 1])), shape=(nodes, nodes))
        source, node = number[self.source], number[self.target]
        _, before = dijkstra(
            graph, directed=self.directed, indices=[source], return_predecessors=True
        )
        path = []
        while node != source:
            last, node = node, int(before[0, node])
            if node < 0:
                raise ValueError(
                    f"no path leads from {self.source!r} to {self.target!r}; "
                    "add edges or allow more of them"
                )
            path.append((node, last))
        steps = np.array(path if self.directed else [sorted(step) for step in path])
        return np.sort(kept[np.searchsorted(cells, steps[:, 0] * nodes + steps[:, 1])])

    def through(self, arm: int, *, allowed: BoolArray | None = None) -> IntArray | None:
        """A simple path with the given edge; an empty one if there is none; None if unknown.

        Two paths that share no node lead from its ends to source and target: a flow of 2. In a
        directed graph with cycles the flow may pair the wrong ends, and the answer is unknown (to
        find it is NP-hard). Only `allowed` edges are used.

        >>> path = ShortestPath([("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")], "a", "c")
        >>> path.through(0)
        array([0, 1])
        >>> path.through(3).size
        0
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow

        _, number = self.graph
        head, tail = (number[node] for node in self.edges[arm])
        source, target = number[self.source], number[self.target]
        starts, stops = (
            ((source, tail), (head, target)) if self.directed else ((head, tail), (source, target))
        )
        # node i is entered at 2i and left at 2i + 1, once
        arcs = {(2 * i, 2 * i + 1): -1 for i in range(len(number))}
        for i, edge in enumerate(self.edges):
            a, b = (number[node] for node in edge)
            if i != arm and (allowed is None or allowed[i]):
                arcs[2 * a + 1, 2 * b] = i
                if not self.directed:
                    arcs[2 * b + 1, 2 * a] = i
        first, last = 2 * len(number), 2 * len(number) + 1
        arcs |= {(first, 2 * i): -1 for i in starts} | {(2 * i + 1, last): -1 for i in stops}
        places = np.array(list(arcs)).T
        ones = np.ones(len(arcs), dtype=np.int32)
        result = maximum_flow(csr_array((ones, places), shape=(last + 1, last + 1)), first, last)
        if result.flow_value < 2:
            return np.empty(0, dtype=np.intp)
        flow = result.flow.tocoo()
        pairs = zip(flow.row.tolist(), flow.col.tolist(), flow.data.tolist(), strict=True)
        onward = {a: b for a, b, amount in pairs if amount > 0 and a != first}
        path, ends = [arm], []
        for start in starts:
            at = 2 * start
            while (to := onward[at]) != last:
                path.append(arcs[at, to])
                at = to
            ends.append(at // 2)
        if self.directed and ends != [head, target]:
            return None
        return np.sort([i for i in path if i >= 0])


@dataclass(frozen=True)
class SpanningTree:
    """The edges of the spanning tree of the largest total mean; an edge is an arm.

    >>> SpanningTree([("a", "b"), ("b", "c"), ("a", "c")])(np.array([1.0, -2.0, 3.0]))
    array([0, 2])
    """

    edges: Sequence[tuple[Node, Node]]

    def __post_init__(self) -> None:
        fill(self, edges=_pairs(self.edges, "edges", loops=False))

    @cached_property
    def _graph(self) -> tuple[IntArray, int]:
        number = _numbered(node for edge in self.edges for node in edge)
        return _ends(self.edges, number, number, ordered=False), len(number)

    def __call__(self, values: FloatArray, /) -> IntArray:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import minimum_spanning_tree

        values = means(values, len(self.edges))
        ends, nodes = self._graph
        kept, _ = _best_of_parallel(values, ends, nodes)
        order = np.sort(kept)
        order = order[np.argsort(-values[order], kind="stable")]
        # the tree depends only on the order of the costs, and a rank is never zero
        rank = np.arange(1.0, order.size + 1)
        graph = csr_array((rank, (ends[order, 0], ends[order, 1])), shape=(nodes, nodes))
        tree = minimum_spanning_tree(graph).data.astype(np.intp)
        if tree.size < nodes - 1:
            raise ValueError(
                f"the edges that may be chosen leave the {nodes} nodes in {nodes - tree.size} "
                "parts; add edges or allow more of them"
            )
        return np.sort(order[tree - 1])


@dataclass(frozen=True)
class Matching:
    """Pairs of the largest total mean, no left and no right node twice; a pair is an arm.

    The matching may be of any size, so pairs of negative mean are left out, and it is empty where
    every mean is negative. With `perfect`, every node of the smaller side is matched (every left
    node where the sides are equal).

    >>> pairs = [("ann", "x"), ("ann", "y"), ("bob", "x")]
    >>> Matching(pairs)(np.array([5.0, 1.0, 2.0]))
    array([0])
    >>> Matching(pairs, perfect=True)(np.array([5.0, 1.0, 2.0]))
    array([1, 2])
    """

    pairs: Sequence[tuple[Node, Node]]
    _: KW_ONLY
    perfect: bool = False

    def __post_init__(self) -> None:
        pairs = _pairs(self.pairs, "pairs", loops=True)
        fill(self, pairs=pairs, perfect=bool(self.perfect))

    @cached_property
    def _graph(self) -> tuple[IntArray, int, int]:
        left = _numbered(pair[0] for pair in self.pairs)
        right = _numbered(pair[1] for pair in self.pairs)
        return _ends(self.pairs, left, right, ordered=True), len(left), len(right)

    def __call__(self, values: FloatArray, /) -> IntArray:
        from scipy.optimize import linear_sum_assignment

        values = means(values, len(self.pairs))
        ends, left, right = self._graph
        kept, _ = _best_of_parallel(values, ends, right)
        if not self.perfect:
            kept = kept[values[kept] >= 0]
        # a cell without a pair is worth nothing: to leave two nodes alone; or it may not be used
        gain = np.full((left, right), -_INF if self.perfect else 0.0)
        arm = np.full((left, right), -1, dtype=np.intp)
        gain[ends[kept, 0], ends[kept, 1]] = np.clip(values[kept], -_HUGE, _HUGE)
        arm[ends[kept, 0], ends[kept, 1]] = kept
        try:
            chosen = arm[linear_sum_assignment(gain, maximize=True)]
        except ValueError:
            side = "left" if left <= right else "right"
            raise ValueError(
                f"no matching has every {side} node; allow more pairs or give perfect=False"
            ) from None
        return np.sort(chosen[chosen >= 0])


def _node(node: object, where: str) -> Node:
    if isinstance(node, str):
        return str(node)
    if isinstance(node, int | np.integer):
        return int(node)
    raise ValueError(f"{where} holds the node {node!r}; name nodes by str or int")


def _pairs(pairs: Iterable[Any], where: str, *, loops: bool) -> tuple[tuple[Node, Node], ...]:
    """The pairs as tuples of plain str and int, checked."""
    found = []
    for pair in pairs:
        if isinstance(pair, str) or not isinstance(pair, Iterable) or len(tuple(pair)) != 2:
            raise ValueError(f"{where} holds {pair!r}; give pairs of two nodes")
        first, second = (_node(node, where) for node in pair)
        if first == second and not loops:
            raise ValueError(f"{where} holds the loop {(first, second)!r}; leave loops out")
        found.append((first, second))
    if not found:
        raise ValueError(f"{where} is empty; give at least one pair of nodes")
    return tuple(found)


def _numbered(nodes: Iterable[Node]) -> dict[Node, int]:
    return {node: i for i, node in enumerate(dict.fromkeys(nodes))}


def _ends(
    pairs: Iterable[tuple[Node, Node]],
    left: dict[Node, int],
    right: dict[Node, int],
    *,
    ordered: bool,
) -> IntArray:
    """One row a pair: the numbers of its nodes, the smaller first unless the pair is ordered."""
    ends = np.array([(left[a], right[b]) for a, b in pairs], dtype=np.intp)
    return ends if ordered else np.sort(ends, axis=1)


def _best_of_parallel(
    values: FloatArray, ends: IntArray, columns: int
) -> tuple[IntArray, IntArray]:
    """The best allowed arm between each two nodes, the first in a tie, and its cell, ascending."""
    order = np.argsort(-values, kind="stable")
    order = order[values[order] > -_INF]
    cells, first = np.unique(ends[order, 0] * columns + ends[order, 1], return_index=True)
    return order[first], cells
