"""Real networks from the package topohub (extra `networks`)."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np


def load_network(name: str) -> dict[str, Any]:
    """Edges, their lengths in km, and the two nodes whose shortest path is longest."""
    known = network_names()
    full = [key for key in known if key == name or key.split("/")[-1] == name]
    if not full:
        raise ValueError(f"unknown network {name!r}; known are {', '.join(known)}")
    graph = json.loads((_data() / f"{full[0]}.json").read_text(encoding="utf-8"))
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


def _data() -> Path:
    """The folder of the package; its own reader leaves files open."""
    found = importlib.util.find_spec("topohub")
    if found is None or found.origin is None:
        raise ValueError("networks come from the package topohub: pip install 'adats[networks]'")
    return Path(found.origin).parent / "data"


def network_names() -> list[str]:
    """All networks of the package with nodes on a map, as folder/name."""
    data = _data()
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
