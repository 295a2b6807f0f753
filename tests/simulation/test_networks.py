"""Real networks: what topohub has, as edges with lengths."""

import gc
import warnings

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, dijkstra

from adats.simulation.networks import load_network, network_names
from adats.simulation.problems import RoutingProblem

SOME = ["sndlib/germany50", "sndlib/abilene", "topozoo/Geant2012"]


def graph_of(network):
    ends = np.array(network["edges"])
    nodes = ends.max() + 1
    return coo_array((network["lengths"], ends.T), shape=(nodes, nodes)).tocsr()


def test_names_are_sorted_and_of_both_collections():
    names = network_names()
    assert names == sorted(set(names))
    assert set(SOME) <= set(names)
    assert {name.split("/")[0] for name in names} == {"sndlib", "topozoo"}
    assert len(names) > 100


@pytest.mark.parametrize("name", SOME)
def test_a_network_is_connected_with_positive_lengths(name):
    network = load_network(name)
    edges, lengths = network["edges"], network["lengths"]
    assert len(edges) == len(set(edges)) == len(lengths)
    assert all(a < b for a, b in edges)
    assert min(lengths) > 0
    graph = graph_of(network)
    assert connected_components(graph, directed=False)[0] == 1
    distance = dijkstra(graph, directed=False)
    assert distance[network["source"], network["target"]] == distance.max() > 0


def test_germany50_is_what_it_is_known_to_be():
    network = load_network("sndlib/germany50")
    assert graph_of(network).shape == (50, 50)
    assert len(network["edges"]) == 88
    assert 20 < np.mean(network["lengths"]) < 300  # km
    assert 500 < dijkstra(graph_of(network), directed=False).max() < 2000


def test_the_folder_may_be_left_out():
    assert load_network("germany50") == load_network("sndlib/germany50")


def test_loading_leaves_no_file_open():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_network("sndlib/germany50")
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


@pytest.mark.parametrize("name", ["sndlib/atlantis", "", "germany", "../germany50"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(ValueError, match="unknown network") as error:
        load_network(name)
    assert repr(name) in str(error.value)
    assert all(known in str(error.value) for known in network_names())


def test_a_problem_by_the_name_of_its_network():
    problem = RoutingProblem.named("sndlib/abilene", noise=0.5)
    assert problem.describe()["network"] == "sndlib/abilene"
    assert problem.noise == 0.5
    assert problem.arms == len(load_network("sndlib/abilene")["edges"])
    with pytest.raises(ValueError, match="'atlantis'"):
        RoutingProblem.named("atlantis")
