"""Costs between nodes: the five-node graph of the KEP, zones and regions as published."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.cluster.columns import Cluster
from closeby.objects.applications import NetworkTopology, WeightSet
from closeby.objects.labels import REGION, ZONE
from closeby.objects.nodes import Node
from closeby.topology.costs import NetworkCosts, choose, locate, network_costs
from tests.applications.networks import FIVE_NODES, links
from tests.golden.fixture import Golden

#: Two regions 20 apart; zones Z1, Z2 in the west, Z3, Z4 in the east.
EIGHT_NODES = "west Z1 1 2|west Z2 3 4|east Z3 5 6|east Z4 7 8"


def worked_out(nodes: str = "", zones: str = "", regions: str = "", algorithm: str = "") -> NetworkCosts:
    weights = WeightSet(
        name="UserDefined", node_costs=links(nodes), zone_costs=links(zones), region_costs=links(regions)
    )
    return network_costs(NetworkTopology(namespace="default", name="net"), weights, algorithm)


def costs(
    of: NetworkCosts, nodes: dict[str, tuple[str | None, str | None]]
) -> dict[tuple[str, str], float | None]:
    """Cost between all different nodes; ``nodes`` maps a name to its region and zone."""
    cluster = Cluster()
    for name, (region, zone) in nodes.items():
        labels = {key: value for key, value in ((REGION, region), (ZONE, zone)) if value is not None}
        cluster.add_node(Node(name=name, labels=labels))
    located = locate(of, cluster.names, cluster.labels)
    found = located.between[np.ix_(located.locations, located.locations)]
    return {
        (one, other): None if np.isnan(found[i, j]) else float(found[i, j])
        for i, one in enumerate(nodes)
        for j, other in enumerate(nodes)
        if i != j
    }


def spread(text: str) -> dict[str, tuple[str | None, str | None]]:
    """``west Z1 1 2`` puts n-1 and n-2 into that region and zone; ``-`` is a missing label."""
    nodes: dict[str, tuple[str | None, str | None]] = {}
    for group in text.split("|"):
        region, zone, *numbers = (None if word == "-" else word for word in group.split())
        nodes.update({f"n-{number}": (region, zone) for number in numbers})
    return nodes


@pytest.mark.parametrize("algorithm", ["", "Dijkstra", "BellmanFord"])
def test_paths_on_the_five_node_graph(algorithm: str) -> None:
    found = worked_out(nodes=FIVE_NODES, algorithm=algorithm).nodes
    order = [f"worker-{number}" for number in range(1, 6)]
    at = [found.index[name] for name in order]
    assert found.costs[np.ix_(at, at)].tolist() == [
        [0, 1, 4, 7, 7],
        [1, 0, 5, 6, 8],
        [4, 5, 0, 5, 3],
        [7, 6, 5, 0, 2],
        [7, 8, 3, 2, 0],
    ]
    assert found.largest == 8


def test_zones_hold_inside_a_region_and_regions_between_them() -> None:
    found = costs(worked_out(zones="Z1 Z2 5\nZ3 Z4 10", regions="west east 20"), spread(EIGHT_NODES))
    assert found["n-1", "n-2"] == 1  # one zone
    assert found["n-1", "n-3"] == 5
    assert found["n-5", "n-7"] == 10
    assert found["n-1", "n-8"] == 20


def test_a_node_without_labels_is_unknown_to_all_others() -> None:
    found = costs(
        worked_out(zones="Z1 Z2 5", regions="west east 20"), spread("west Z1 1|- - 2 3|west - 4|east Z1 5")
    )
    assert found["n-1", "n-2"] is None
    assert found["n-2", "n-3"] is None
    assert found["n-1", "n-4"] is None  # the zone is missing
    assert found["n-1", "n-5"] == 20  # equal zone names in two regions are two zones
    assert found["n-4", "n-5"] == 20


def test_an_unmeasured_pair_is_unknown_and_never_free() -> None:
    found = costs(worked_out(nodes="a b 3"), {"a": (None, None), "b": (None, None), "c": (None, None)})
    assert found["a", "b"] == 3
    assert found["a", "c"] is None
    assert found["b", "c"] is None


def test_zones_alone_are_enough() -> None:
    found = costs(worked_out(zones="Z1 Z2 5"), spread("- Z1 1 2|- Z2 3"))
    assert found["n-1", "n-2"] == 1
    assert found["n-1", "n-3"] == 5


def test_measured_nodes_go_before_their_zones() -> None:
    found = costs(worked_out(nodes="n-1 n-2 7", zones="Z1 Z2 5"), spread("west Z1 1 2|west Z2 3"))
    assert found["n-1", "n-2"] == 7
    assert found["n-1", "n-3"] == 5


def test_of_two_directions_the_greater_counts_and_is_reported(golden: Golden) -> None:
    found = worked_out(nodes="a b 3\nb a 5\nb c 1")
    assert found.nodes.costs[found.nodes.index["a"], found.nodes.index["b"]] == 5
    [condition] = found.conditions
    golden("network-labels", condition.message)


def test_a_free_link_is_a_link() -> None:
    found = worked_out(nodes="a b 0\nb c 2")
    assert found.nodes.costs[found.nodes.index["a"], found.nodes.index["c"]] == 2


def test_the_weight_set_is_chosen_by_name() -> None:
    sets = tuple(WeightSet(name=name) for name in ("NetperfCosts", "UserDefined"))
    topology = NetworkTopology(namespace="default", name="net", weight_sets=sets)
    assert choose(topology) == sets[1]
    assert choose(topology, "NetperfCosts") == sets[0]
    assert choose(topology, "Nobody") is None


@given(
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 50)), min_size=1, max_size=25),
    st.sampled_from(["Dijkstra", "BellmanFord"]),
)
def test_path_costs_are_a_metric_where_there_is_a_path(
    drawn: list[tuple[int, int, int]], algorithm: str
) -> None:
    text = "\n".join(f"p{a} p{b} {cost}" for a, b, cost in drawn)
    found = worked_out(nodes=text, algorithm=algorithm).nodes.costs
    assert (np.diag(found) == 0).all()
    assert np.array_equal(found, found.T, equal_nan=True)
    through = found[:, :, None] + found[None, :, :]
    direct = np.broadcast_to(found[:, None, :], through.shape)
    known = ~np.isnan(through)
    assert (direct[known] <= through[known]).all()
    for a, b, cost in drawn:
        if a != b:
            index = worked_out(nodes=text).nodes.index
            greatest = max(c for x, y, c in drawn if {x, y} == {a, b})
            assert found[index[f"p{a}"], index[f"p{b}"]] <= greatest
            assert cost <= greatest


def test_regions_alone_are_enough() -> None:
    found = costs(worked_out(regions="west east 20"), spread("west Z1 1 2|west Z2 3|east Z3 4"))
    assert found["n-1", "n-2"] == 1
    assert found["n-1", "n-3"] is None
    assert found["n-1", "n-4"] == 20


def test_where_only_nodes_have_costs_zones_say_nothing() -> None:
    found = costs(worked_out(nodes="n-1 n-9 7"), spread("west Z1 1 2|west Z2 3|- - 9"))
    assert found["n-1", "n-2"] is None
    assert found["n-1", "n-9"] == 7


def test_nodes_without_a_path_are_as_far_as_their_zones() -> None:
    """Two measured pairs, and no way from one to the other."""
    found = costs(
        worked_out(nodes="n-1 n-2 7\nn-3 n-4 9", zones="Z1 Z2 5"), spread("west Z1 1 2|west Z2 3 4")
    )
    assert (found["n-1", "n-2"], found["n-3", "n-4"], found["n-1", "n-3"]) == (7, 9, 5)


@pytest.mark.parametrize(
    "text", ["a b 3\na b 5", "a b 5\na b 3", "b a 5\nb a 3", "a b 3\nb a 3\na b 5\nb a 5"]
)
def test_of_links_that_are_given_twice_the_greater_counts_and_nothing_is_reported(text: str) -> None:
    found = worked_out(nodes=text)
    assert found.nodes.costs[found.nodes.index["a"], found.nodes.index["b"]] == 5
    assert found.conditions == ()


def test_a_link_from_a_node_to_itself_is_free_whatever_is_written() -> None:
    found = worked_out(nodes="a a 9\na b 2")
    assert found.nodes.costs.tolist() == [[0, 2], [2, 0]]


@pytest.mark.parametrize(
    ("given", "largest"),
    [
        ({}, 0.0),
        ({"nodes": "a b 3\nc d 9"}, 9.0),
        ({"nodes": "a b 0"}, 0.0),
        # Two nodes of one zone cost 1, if zones or regions cost anything.
        ({"zones": "Z1 Z2 0"}, 1.0),
        ({"regions": "west east 0"}, 1.0),
        ({"nodes": "a b 2", "zones": "Z1 Z2 8", "regions": "west east 5"}, 8.0),
        ({"nodes": "a b 2", "zones": "Z1 Z2 3", "regions": "west east 5"}, 5.0),
    ],
)
def test_the_greatest_cost_that_is_known(given: dict[str, str], largest: float) -> None:
    assert worked_out(**given).largest == largest


@pytest.mark.parametrize(
    ("sets", "name", "algorithm", "of_object", "chosen"),
    [
        ("BellmanFord UserDefined", "", "BellmanFord", "", "UserDefined"),
        ("Netperf Dijkstra BellmanFord", "", "", "", "Dijkstra"),
        ("Netperf Dijkstra BellmanFord", "", "", "BellmanFord", "BellmanFord"),
        ("Netperf Dijkstra BellmanFord", "", "Dijkstra", "BellmanFord", "Dijkstra"),
        ("Netperf Iperf", "", "", "", "Netperf"),
        ("Netperf Iperf", "", "BellmanFord", "", "Netperf"),
        ("Netperf UserDefined", "Netperf", "", "", "Netperf"),
        ("Netperf UserDefined", "Iperf", "", "", None),
        ("", "", "", "", None),
    ],
)
def test_which_weight_set_counts(
    sets: str, name: str, algorithm: str, of_object: str, chosen: str | None
) -> None:
    weights = tuple(WeightSet(name=one) for one in sets.split())
    topology = NetworkTopology(namespace="default", name="net", algorithm=of_object, weight_sets=weights)
    found = choose(topology, name, algorithm)
    assert (None if found is None else found.name) == chosen
