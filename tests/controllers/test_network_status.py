"""The costs out of measured latencies, what the status says of them, and what the scheduler reads of it."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.controllers.networks.settings import read_settings
from closeby.controllers.networks.status import Failure, Limit, Measurement, network_status
from closeby.controllers.networks.weights import Detour, NetworkPlace, NetworkWeights, weights_of
from closeby.controllers.statuses import WantedStatus
from closeby.measurements.latencies import Latencies
from closeby.measurements.links import Latency, Links
from closeby.objects.applications import NetworkTopology
from closeby.topology.costs import choose, locate, network_costs
from closeby.topology.labels import LabelTable
from tests.controllers.custom import KEP, PUBLISHED_NETWORK, network
from tests.golden.fixture import Golden
from tests.reading.manifest_text import read_objects

NOW = 1_700_000_000.0
STAMP = "2023-11-14T22:13:20Z"

#: The KEP's five nodes in three zones, and what was measured between them.
NODES = {
    "worker-1": NetworkPlace(zone="Z1"),
    "worker-2": NetworkPlace(zone="Z1"),
    "worker-3": NetworkPlace(zone="Z2"),
    "worker-4": NetworkPlace(zone="Z3"),
    "worker-5": NetworkPlace(zone="Z3"),
}
LINKS = """
worker-1 worker-2 1
worker-1 worker-3 4
worker-2 worker-4 6
worker-3 worker-4 5
worker-3 worker-5 3
worker-4 worker-5 2
"""
SPEC = """
spec:
  metricProvider: {type: Prometheus, address: "http://prometheus:9090"}
  topologyAlgorithm: Dijkstra
"""


STRANGERS = {"ghost", "w", "x", "y", "z"}


def links(text: str) -> tuple[Latency, ...]:
    rows = (line.split() for line in text.strip().splitlines())
    return tuple(Latency(origin, destination, float(value)) for origin, destination, value in rows)


def weights(text: str, nodes: Mapping[str, NetworkPlace], longest: int = 1_000_000) -> NetworkWeights:
    found = weights_of(links(text), nodes, longest=longest)
    assert found is not None
    return found


def node_costs(found: NetworkWeights) -> dict[tuple[str, str], int]:
    listed: Any = found.entry.get("costList", ())
    return {(one["origin"], one["destination"]): one["cost"] for one in listed}


def area_costs(found: NetworkWeights, key: str) -> dict[tuple[str, str], int]:
    listed: Any = found.entry.get("topologyList", ())
    return {
        (origin["origin"], one["destination"]): one["networkCost"]
        for area in listed
        if area["topologyKey"] == f"topology.kubernetes.io/{key}"
        for origin in area["originList"]
        for one in origin["costList"]
    }


def status(
    text: str, measurement: Measurement | None, nodes: Mapping[str, NetworkPlace], group: str = KEP
) -> WantedStatus:
    it, record = network(text, group)
    return network_status(it, record, read_settings(it.key, it.spec), measurement, nodes)


def measured(text: str, unusable: int = 0) -> Measurement:
    """As it is read where these five nodes are known, and any others but ``ghost``, ``w`` … ``z``."""
    known = [one for one in links(text) if not STRANGERS & {one.origin, one.destination}]
    strangers = {name for one in links(text) for name in (one.origin, one.destination)} & STRANGERS
    latencies = Latencies(links=Links.of(known), unusable=unusable, unknown_names=tuple(sorted(strangers)))
    return Measurement(latencies=latencies, time=NOW)


def conditions(wanted: WantedStatus) -> dict[str, tuple[str, str, str]]:
    return {one.type: (one.status, one.reason, one.message) for one in wanted.conditions}


# Costs


def test_the_keps_graph() -> None:
    """What was measured is in the list as the KEP has it; the other pairs are shortest paths over it."""
    found = weights(LINKS, NODES)
    listed: Any = found.entry["costList"]
    assert listed[0] == {
        "origin": "worker-1",
        "originZone": "Z1",
        "destination": "worker-2",
        "destinationZone": "Z1",
        "cost": 1,
    }
    assert found.entry["algorithmName"] == "Dijkstra"
    assert node_costs(found) == {
        ("worker-1", "worker-2"): 1,
        ("worker-1", "worker-3"): 4,
        ("worker-1", "worker-4"): 7,
        ("worker-1", "worker-5"): 7,
        ("worker-2", "worker-3"): 5,
        ("worker-2", "worker-4"): 6,
        ("worker-2", "worker-5"): 8,
        ("worker-3", "worker-4"): 5,
        ("worker-3", "worker-5"): 3,
        ("worker-4", "worker-5"): 2,
    }
    # Z2-Z3: the median of 5 and 3.
    assert area_costs(found, "zone") == {("Z1", "Z2"): 4, ("Z1", "Z3"): 6, ("Z2", "Z3"): 4}
    assert area_costs(found, "region") == {}
    assert (found.unmeasured, found.unknown_names, found.omitted) == ((), (), ())


@pytest.mark.parametrize("algorithm", ["BellmanFord", "Dijkstra", "Mystery", ""])
def test_all_algorithms_agree(algorithm: str) -> None:
    found = weights_of(links(LINKS), NODES, algorithm)
    assert found is not None
    assert found.entry["algorithmName"] == ("BellmanFord" if algorithm == "BellmanFord" else "Dijkstra")
    assert node_costs(found) == node_costs(weights(LINKS, NODES))


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("a b 100", 100),
        ("b a 100", 100),
        ("a b 100\nb a 140", 140),
        ("a b 140\nb a 100", 140),
        ("a b 99.5", 100),
        ("a b 0", 1),
        ("a b 0.2", 1),
        ("a b 5\na a 70", 5),
    ],
    ids=["one way", "the other way", "slower back", "slower there", "rounded", "0", "nearly 0", "to itself"],
)
def test_the_cost_of_one_pair(text: str, cost: int) -> None:
    assert node_costs(weights(text, {"a": NetworkPlace(), "b": NetworkPlace()})) == {("a", "b"): cost}


def test_one_bad_link_does_not_move_a_zone() -> None:
    nodes = {f"{zone}{i}": NetworkPlace("eu", zone) for zone in ("x", "y") for i in range(2)}
    found = weights("x0 y0 100\nx0 y1 110\nx1 y0 9000\nx1 y1 120", nodes)
    assert area_costs(found, "zone") == {("x", "y"): 115}


def test_a_pair_that_is_far_only_by_its_own_link_is_reported(golden: Golden) -> None:
    """a -100- b -100- c, and a -5000- c: packets need not go by way of b, but the KEP's costs do."""
    nodes = {name: NetworkPlace() for name in "abcd"}
    text = "a b 100\nb c 100\na c 5000\nc d 10\na d 400"
    found = weights(text, nodes)
    assert node_costs(found)["a", "c"] == 200
    # a and d are not so far around.
    assert found.detours == (Detour("a", "c", 5000, 200),)
    golden("controllers", conditions(status(SPEC, measured(text), nodes))["LatenciesMeasured"])


def test_zones_are_compared_inside_a_region_and_regions_across() -> None:
    nodes = {
        "a": NetworkPlace("eu", "x"),
        "b": NetworkPlace("eu", "y"),
        "c": NetworkPlace("us", "z"),
        "d": NetworkPlace("us", "z"),
    }
    found = weights("a b 10\nc d 2\na c 70\nb c 90\nb d 80", nodes)
    assert area_costs(found, "zone") == {("x", "y"): 10}
    assert area_costs(found, "region") == {("eu", "us"): 80}


def test_a_node_that_was_not_measured_is_as_far_as_its_zone() -> None:
    """Nothing is known of a1 and c0: a1 is to a0 as zone a is to itself (unknown), else as its region."""
    nodes = {
        "a0": NetworkPlace("eu", "a"),
        "a1": NetworkPlace("eu", "a"),
        "b0": NetworkPlace("eu", "b"),
        "b1": NetworkPlace("eu", "b"),
        "b2": NetworkPlace("eu", "b"),
        "c0": NetworkPlace("us", "c"),
        "lost": NetworkPlace(),
    }
    found = weights("a0 b0 50\nb0 b1 4", nodes)
    assert found.unmeasured == ("a1", "b2", "c0", "lost")
    costs = node_costs(found)
    assert costs["b0", "b2"] == costs["b1", "b2"] == 4
    assert costs["a1", "b0"] == costs["a0", "b2"] == 50
    # The median of 50 and 4 is 27.
    assert costs["a0", "a1"] == 27
    assert not any(name in pair for pair in costs for name in ("c0", "lost"))


def test_names_that_are_no_nodes() -> None:
    nodes = {"a.example.com": NetworkPlace(), "b": NetworkPlace(), "c_d": NetworkPlace()}
    found = weights("a_example_com b 5\nb c_d 6\nghost b 7", nodes)
    assert node_costs(found) == {
        ("a.example.com", "b"): 5,
        ("a.example.com", "c_d"): 11,
        ("b", "c_d"): 6,
    }
    assert found.unknown_names == ("ghost",)


def test_nothing_of_these_nodes_was_measured() -> None:
    assert weights_of(links("x y 5"), NODES) is None
    assert weights_of(links("worker-1 worker-1 5"), NODES) is None
    assert weights_of((), NODES) is None


def big(count: int) -> tuple[dict[str, NetworkPlace], str]:
    """Nodes in four zones, each measured from the first."""
    nodes = {f"node-{i:04}.example.com": NetworkPlace("eu-west", f"eu-west-{i % 4}") for i in range(count)}
    first, *others = nodes
    return nodes, "\n".join(f"{first} {other} {100 + i % 4}" for i, other in enumerate(others))


def test_up_to_100_nodes_are_listed_pair_by_pair() -> None:
    found = weights(big(100)[1], big(100)[0])
    assert len(node_costs(found)) == 100 * 99 // 2
    assert len(msgspec.json.encode(found.entry)) < 1_000_000
    assert found.omitted == ()


def test_beyond_100_nodes_zones_and_regions_stand_for_them(golden: Golden) -> None:
    found = weights(big(101)[1], big(101)[0])
    assert node_costs(found) == {}
    assert "costList" not in found.entry
    assert len(area_costs(found, "zone")) == 6
    golden("controllers", found.omitted)


def test_what_makes_the_object_too_long_is_left_out(golden: Golden) -> None:
    nodes, text = big(20)
    full = weights(text, nodes)
    areas = len(msgspec.json.encode(full.entry["topologyList"]))
    found = weights(text, nodes, longest=areas + 50)
    assert "costList" not in found.entry
    assert found.entry["topologyList"] == full.entry["topologyList"]
    (told,) = found.omitted
    golden("controllers", told)
    assert weights(text, nodes, longest=10).entry == {"algorithmName": "Dijkstra"}


# Status


def test_the_first_costs() -> None:
    found = status(SPEC, measured(LINKS), NODES)
    assert found.fields["nodeCount"] == 5
    assert found.fields["weightCalculationTime"] == STAMP
    assert found.fields["weights"] == [weights(LINKS, NODES).entry]
    assert conditions(found) == {
        "Valid": ("True", "Valid", ""),
        "LatenciesMeasured": ("True", "Measured", ""),
        "AllNodesMeasured": ("True", "Measured", ""),
        "AllCostsListed": ("True", "Listed", ""),
    }


UNREACHABLE = Failure("NoLatencies", "http://prometheus:9090 can't be reached: Connection refused")


def test_without_prometheus_the_last_costs_stay() -> None:
    """Restarted while Prometheus is down: the status holds costs that nobody remembers."""
    text = SPEC + f"status: {{weightCalculationTime: {STAMP!r}, weights: [{{algorithmName: Dijkstra}}]}}"
    found = status(text, Measurement(failure=UNREACHABLE), NODES)
    assert found.fields == {"nodeCount": 5}
    assert conditions(found)["LatenciesMeasured"] == (
        "False",
        "NoLatencies",
        f"the costs are those of {STAMP}; {UNREACHABLE.sentence}",
    )
    # What was said of them stays as well.
    assert found.types == {"Valid", "LatenciesMeasured"}


def test_without_prometheus_remembered_latencies_serve_nodes_that_move() -> None:
    before = measured(LINKS)
    failed = Measurement(latencies=before.latencies, time=before.time, failure=UNREACHABLE)
    found = status(SPEC, failed, {**NODES, "worker-5": NetworkPlace(zone="Z2")})
    assert found.fields["weightCalculationTime"] == STAMP
    assert found.fields["weights"] != status(SPEC, before, NODES).fields["weights"]
    assert conditions(found)["LatenciesMeasured"][0] == "False"


def test_there_never_were_any_costs(golden: Golden) -> None:
    found = status(SPEC, Measurement(failure=UNREACHABLE), NODES)
    golden("controllers", conditions(found)["LatenciesMeasured"][2])


def test_measurements_of_another_cluster_are_none(golden: Golden) -> None:
    text = SPEC + f"status: {{weightCalculationTime: {STAMP!r}}}"
    found = status(text, measured("w x 1\ny z 2"), NODES)
    assert found.fields == {"nodeCount": 5}
    golden("controllers", conditions(found)["LatenciesMeasured"])


def test_nodes_that_were_not_measured_are_reported(golden: Golden) -> None:
    found = status(SPEC, measured("worker-1 worker-2 1\nghost worker-1 2", unusable=2), NODES)
    *token, message = conditions(found)["AllNodesMeasured"]
    assert token == ["False", "NodesNotMeasured"]
    golden("controllers", message.split("; "))


def test_too_many_nodes_are_reported(golden: Golden) -> None:
    nodes, text = big(150)
    golden("controllers", conditions(status(SPEC, measured(text), nodes))["AllCostsListed"])


def test_costs_given_by_hand_are_left_alone() -> None:
    text = "status: {weights: [{algorithmName: Dijkstra, costList: [{origin: a, destination: b, cost: 1}]}]}"
    found = status(text, None, NODES)
    assert found.fields == {"nodeCount": 5}
    assert conditions(found) == {"Valid": ("True", "Valid", "")}


def test_the_published_shape_gets_its_nodes_counted() -> None:
    text = "spec: {configmapName: c, weights: [{name: UserDefined, topologyList: []}]}"
    assert status(text, None, NODES, PUBLISHED_NETWORK) == WantedStatus(fields={"nodeCount": 5})


def test_problems_of_the_spec_are_reported(golden: Golden) -> None:
    """That there are no costs yet is not the user's fault."""
    text = SPEC.replace("Dijkstra", "Floyd") + "  freqUpdate: 0"
    valid = conditions(status(text, Measurement(failure=UNREACHABLE), NODES))["Valid"]
    assert valid[:2] == ("False", "InvalidSpec")
    golden("controllers", valid[2].split("; "))


# Round trips


def read_back(found: WantedStatus) -> NetworkTopology:
    """What closeby's reader of manifests makes of a status."""
    meta = {"name": "net", "namespace": "default"}
    body = {"apiVersion": f"{KEP}/v1alpha1", "kind": "NetworkTopology", "metadata": meta}
    spec = {"metricProvider": {"address": "http://p"}, "topologyAlgorithm": "Dijkstra", "freqUpdate": 5}
    status = json.loads(msgspec.json.encode(found.fields))
    manifests = read_objects({**body, "spec": spec, "status": status})
    assert manifests.errors == ()
    (topology,) = manifests.network_topologies
    assert topology.conditions == ()
    return topology


def distances(topology: NetworkTopology, nodes: Mapping[str, NetworkPlace]) -> dict[tuple[str, str], float]:
    """What the scheduler takes it to cost from node to node."""
    chosen = choose(topology)
    assert chosen is not None
    costs = network_costs(topology, chosen)
    assert costs.conditions == ()
    table = LabelTable()
    for slot, place in enumerate(nodes.values()):
        labels = {"topology.kubernetes.io/region": place.region, "topology.kubernetes.io/zone": place.zone}
        table.set(slot, {key: value for key, value in labels.items() if value})
    located = locate(costs, list(nodes), table)
    between = located.between[np.ix_(located.locations, located.locations)]
    return {
        (one, other): float(between[i, j])
        for i, one in enumerate(nodes)
        for j, other in enumerate(nodes)
        if one < other and not np.isnan(between[i, j])
    }


def test_the_scheduler_reads_what_was_written() -> None:
    found = status(SPEC, measured(LINKS), NODES)
    assert distances(read_back(found), NODES) == node_costs(weights(LINKS, NODES))


def test_the_scheduler_reads_the_zones_of_many_nodes() -> None:
    nodes, text = big(120)
    between = distances(read_back(status(SPEC, measured(text), nodes)), nodes)
    zones = area_costs(weights(text, nodes), "zone")
    for (one, other), cost in between.items():
        here, there = sorted((nodes[one].zone, nodes[other].zone))
        assert cost == (1 if here == there else zones[here, there])
    assert len(between) == 120 * 119 // 2


DAY = 24 * 3600.0


@pytest.mark.parametrize(("age", "kept"), [(0.0, True), (DAY - 1, True), (DAY, False), (3 * DAY, False)])
@pytest.mark.parametrize("restarted", [False, True])
def test_costs_that_nothing_renews_are_dropped_after_a_day(
    age: float, kept: bool, restarted: bool, golden: Golden
) -> None:
    """Also by a controller that was started anew, and knows their time from the status alone."""
    failed = Failure("NoLatencies", "it is gone")
    known = Measurement(failure=failed) if restarted else replace(measured(LINKS), failure=failed)
    it, record = network(SPEC, KEP)
    it = replace(it, status={"weights": [{"name": "before"}], "weightCalculationTime": STAMP})
    limit = Limit(NOW + age, DAY)
    wanted = network_status(it, record, read_settings(it.key, it.spec), known, NODES, limit)
    state, reason, message = conditions(wanted)["LatenciesMeasured"]
    assert (state, reason) == ("False", "NoLatencies")
    golden("controllers", message)
    if kept:
        assert wanted.fields.get("weights", ()) is not None
    else:
        assert wanted.fields["weights"] is None
        assert "AllNodesMeasured" not in conditions(wanted) and "AllNodesMeasured" in wanted.types


def test_costs_that_were_just_measured_are_kept_however_the_clock_stands() -> None:
    it, record = network(SPEC, KEP)
    limit = Limit(NOW + 3 * DAY, DAY)
    wanted = network_status(it, record, read_settings(it.key, it.spec), measured(LINKS), NODES, limit)
    assert wanted.fields["weights"]


names = st.sampled_from([f"n{i}" for i in range(6)])
places = st.builds(NetworkPlace, st.sampled_from(["", "eu", "us"]), st.sampled_from(["", "x", "y"]))
measurements = st.lists(st.builds(Latency, names, names, st.floats(0, 1e6)), max_size=12)


@given(st.dictionaries(names, places, max_size=6), measurements)
def test_any_costs_can_be_read_back_and_are_metric(
    nodes: dict[str, NetworkPlace], latencies: list[Latency]
) -> None:
    found = weights_of(latencies, nodes)
    if found is None:
        return
    written = WantedStatus(fields={"weights": [found.entry], "nodeCount": len(nodes)})
    costs = node_costs(found)
    read = read_back(written).weight_sets[0].node_costs
    assert {(one.origin, one.destination): one.cost for one in read} == costs
    known = {pair: float(cost) for pair, cost in costs.items()}
    assert {
        pair: cost for pair, cost in distances(read_back(written), nodes).items() if pair in known
    } == known
    assert all(one < other and cost >= 1 for (one, other), cost in costs.items())
    for link in latencies:
        if link.origin != link.destination and {link.origin, link.destination} <= nodes.keys():
            slower = max(
                one.microseconds for one in latencies if {*one[:2]} == {link.origin, link.destination}
            )
            one, other = sorted((link.origin, link.destination))
            assert costs[one, other] <= max(1, round(slower))
