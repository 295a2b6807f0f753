"""Real networks from the package topohub (extra `networks`)."""

from typing import Any

import numpy as np


def load_network(name: str) -> dict[str, Any]:
    """Edges, their lengths in km, and the two nodes whose shortest path is longest."""
    topohub = _topohub()
    known = network_names()
    full = [key for key in known if key == name or key.split("/")[-1] == name]
    if not full:
        near = ", ".join(known[:8])
        raise ValueError(f"unknown network {name!r}; known are {near}, … ({len(known)} in all)")
    graph = topohub.get(full[0])
    links = graph["edges"] if "edges" in graph else graph["links"]
    order = {node["id"]: i for i, node in enumerate(graph["nodes"])}
    shortest: dict[tuple[int, int], float] = {}
    for link in links:
        a, b = sorted((order[link["source"]], order[link["target"]]))
        if a != b:
            length = max(float(link["dist"]), 1.0)
            shortest[a, b] = min(length, shortest.get((a, b), np.inf))
    edges = tuple(sorted(shortest))
    lengths = tuple(shortest[edge] for edge in edges)
    source, target = _far_apart(edges, lengths)
    return {"edges": edges, "lengths": lengths, "source": source, "target": target}


def _topohub() -> Any:
    try:
        import topohub
    except ImportError:
        raise ValueError(
            "networks come from the package topohub: pip install 'adats[networks]'"
        ) from None
    return topohub


def network_names() -> list[str]:
    """All networks of the package with nodes on a map, as folder/name."""
    from pathlib import Path

    data = Path(_topohub().__file__).parent / "data"
    return sorted(
        f"{path.parent.name}/{path.stem}"
        for folder in ("sndlib", "topozoo")
        for path in (data / folder).glob("*.json")
    )


def _far_apart(edges: tuple[tuple[int, int], ...], lengths: tuple[float, ...]) -> tuple[int, int]:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    size = max(max(edge) for edge in edges) + 1
    rows, columns = np.array(edges).T
    graph = coo_array((lengths, (rows, columns)), shape=(size, size)).tocsr()
    distance = dijkstra(graph, directed=False)
    distance[np.isinf(distance)] = -1.0
    source, target = np.unravel_index(int(distance.argmax()), distance.shape)
    return int(source), int(target)
