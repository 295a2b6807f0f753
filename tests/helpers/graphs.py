"""Graphs, looked at the long way."""


def simple_paths(edges, source, target, directed=False):
    """The edges of every simple path, by depth-first search."""

    def walk(node, seen, used):
        if node == target:
            yield used
            return
        for i, (a, b) in enumerate(edges):
            for x, y in [(a, b)] if directed else [(a, b), (b, a)]:
                if x == node and y not in seen:
                    yield from walk(y, seen | {y}, (*used, i))

    return set(walk(source, {source}, ()))
