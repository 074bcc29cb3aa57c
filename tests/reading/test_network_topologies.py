"""NetworkTopologies in the KEP's shape and as published."""

import pytest

from closeby.objects.applications import LinkCost, NetworkTopology, WeightSet
from closeby.reading.manifests import read_manifests
from tests.reading.manifest_text import read, read_good
from tests.real_input import shared_data

KEP = "scheduling.sigs.k8s.io/v1alpha1"
PUBLISHED = "networktopology.diktyo.x-k8s.io/v1alpha1"

#: The five-node graph of the KEP.
FIVE_NODES = """
- {origin: worker-1, originZone: Z1, destination: worker-2, destinationZone: Z1, cost: 1}
- {origin: worker-1, originZone: Z1, destination: worker-3, destinationZone: Z2, cost: 4}
- {origin: worker-2, originZone: Z1, destination: worker-4, destinationZone: Z3, cost: 6}
- {origin: worker-3, originZone: Z2, destination: worker-4, destinationZone: Z3, cost: 5}
- {origin: worker-3, originZone: Z2, destination: worker-5, destinationZone: Z3, cost: 3}
- {origin: worker-4, originZone: Z3, destination: worker-5, destinationZone: Z3, cost: 2}
"""


def network(content: str, api: str = KEP) -> NetworkTopology:
    metadata = "{name: net, namespace: default}"
    (result,) = read_good(
        f"{{apiVersion: {api}, kind: NetworkTopology, metadata: {metadata}, {content}}}"
    ).network_topologies
    return result


def kep(costs: str) -> NetworkTopology:
    return network(f"status: {{weights: [{{algorithmName: Dijkstra, costList: [{costs}]}}]}}")


def published(topology_list: str) -> NetworkTopology:
    return network(f"spec: {{weights: [{{name: UserDefined, topologyList: [{topology_list}]}}]}}", PUBLISHED)


def told(topology: NetworkTopology) -> list[tuple[str, str, bool]]:
    named = "NetworkTopology/default/net"
    assert all((one.reason, one.object) == ("InvalidSpec", named) for one in topology.conditions)
    assert all(one.remedy for one in topology.conditions)
    return [(one.field, one.message, one.blocking) for one in topology.conditions]


def costs(links: tuple[LinkCost, ...]) -> list[tuple[str, str, int]]:
    return [(link.origin, link.destination, link.cost) for link in links]


@pytest.mark.parametrize(
    "cost_list", [FIVE_NODES, "items:\n" + FIVE_NODES], ids=["as the schema has it", "as the example has it"]
)
def test_the_keps_graph(cost_list: str) -> None:
    indented = "\n".join(f"      {line}" for line in cost_list.strip().split("\n"))
    text = (
        f"apiVersion: {KEP}\nkind: NetworkTopology\n"
        "metadata: {name: net-topology-test, namespace: test-namespace}\n"
        "spec:\n"
        "  metricProvider: {type: Prometheus, address: 'http://prometheus-k8s:9090'}\n"
        "  topologyAlgorithm: Dijkstra\n"
        "  freqUpdate: 5\n"
        "  timeRangeInMinutes: 30\n"
        "status:\n  nodeCount: 5\n  weights:\n  - algorithmName: Dijkstra\n    costList:\n"
    )
    (topology,) = read_good(text + indented).network_topologies
    assert (topology.key, topology.algorithm) == ("test-namespace/net-topology-test", "Dijkstra")
    assert topology.conditions == ()
    (weights,) = topology.weight_sets
    assert (weights.name, weights.zone_costs, weights.region_costs) == ("Dijkstra", (), ())
    assert costs(weights.node_costs) == [
        ("worker-1", "worker-2", 1),
        ("worker-1", "worker-3", 4),
        ("worker-2", "worker-4", 6),
        ("worker-3", "worker-4", 5),
        ("worker-3", "worker-5", 3),
        ("worker-4", "worker-5", 2),
    ]


REGIONS = """{topologyKey: topology.kubernetes.io/region, originList: [
  {origin: west, costList: [{destination: east, networkCost: 20, bandwidthCapacity: 10Gi}]}]}"""
ZONES = """{topologyKey: topology.kubernetes.io/zone, originList: [
  {origin: z1, costList: [{destination: z2, networkCost: 5, bandwidthCapacity: 1G, bandwidthAllocated: 1500m},
                          {destination: z3, networkCost: 7}]}]}"""
NODES = """{topologyKey: kubernetes.io/hostname, originList: [
  {origin: n1, costList: [{destination: n2, networkCost: 0}]}]}"""


def test_costs_between_regions_zones_and_nodes() -> None:
    topology = published(f"{REGIONS}, {ZONES}, {NODES}")
    assert (topology.conditions, topology.source) == ((), PUBLISHED)
    assert topology.weight_sets == (
        WeightSet(
            name="UserDefined",
            node_costs=(LinkCost(origin="n1", destination="n2", cost=0),),
            zone_costs=(
                LinkCost(
                    origin="z1",
                    destination="z2",
                    cost=5,
                    bandwidth_capacity=10**9,
                    # What is taken is rounded up, as everywhere.
                    bandwidth_allocated=2,
                ),
                LinkCost(origin="z1", destination="z3", cost=7),
            ),
            region_costs=(
                LinkCost(origin="west", destination="east", cost=20, bandwidth_capacity=10 * 2**30),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("api", "field"), [(KEP, "status.weights"), (PUBLISHED, "spec.weights")], ids=["kep", "published"]
)
def test_costs_may_come_later(api: str, field: str) -> None:
    topology = network("spec: {}", api)
    assert (topology.weight_sets, topology.usable) == ((), True)
    assert told(topology) == [(field, "no costs are given", False)]


@pytest.mark.parametrize("name", ["Dijkstra", "BellmanFord"])
def test_known_algorithms(name: str) -> None:
    topology = network(f"spec: {{topologyAlgorithm: {name}, weights: [{{name: w}}]}}", PUBLISHED)
    assert (topology.algorithm, topology.conditions) == (name, ())


def test_an_unknown_algorithm() -> None:
    topology = network("spec: {topologyAlgorithm: Astar, weights: [{name: w}]}", PUBLISHED)
    message = "'Astar' is not an algorithm, so Dijkstra is used"
    assert told(topology) == [("spec.topologyAlgorithm", message, False)]


@pytest.mark.parametrize(
    ("entries", "kept", "field", "message"),
    [
        (
            "{origin: a, destination: b, cost: -1}",
            [],
            "[0].cost",
            "the cost from a to b is -1, not from 0 to 1,000,000,000,000",
        ),
        (
            "{origin: a, destination: b, cost: 1000000000001}",
            [],
            "[0].cost",
            "the cost from a to b is 1000000000001, not from 0 to 1,000,000,000,000",
        ),
        ("{origin: a, destination: b}", [], "[0].cost", "the cost from a to b is missing"),
        ("{origin: a, cost: 1}", [], "[0]", "names no two places"),
        (
            "{origin: a, destination: a, cost: 3}",
            [],
            "[0].cost",
            "the cost from a to a is 3, but no place has a cost to itself",
        ),
        (
            "{origin: a, destination: b, cost: 3}, {origin: a, destination: b, cost: 5}",
            [("a", "b", 5)],
            "[1].cost",
            "the cost from a to b is given as 3 and as 5",
        ),
        (
            "{origin: a, destination: b, cost: 5}, {origin: a, destination: b, cost: 3}",
            [("a", "b", 5)],
            "[1].cost",
            "the cost from a to b is given as 5 and as 3",
        ),
        (
            "{origin: a, destination: b}, {origin: b, destination: c}, {origin: c, destination: d, cost: 1}",
            [("c", "d", 1)],
            "[0].cost",
            "the cost from a to b is missing (and 1 more like it)",
        ),
    ],
)
def test_costs_that_make_no_sense(
    entries: str, kept: list[tuple[str, str, int]], field: str, message: str
) -> None:
    topology = kep(entries)
    assert costs(topology.weight_sets[0].node_costs) == kept
    assert told(topology) == [(f"status.weights[0].costList{field}", message, False)]


@pytest.mark.parametrize(
    "entries",
    [
        "{origin: a, destination: a, cost: 0}",
        "{origin: a, destination: b, cost: 1000000000000}",
        "{origin: a, destination: b, cost: 2}, {origin: b, destination: a, cost: 3}",
        "{origin: a, destination: b, cost: 2}, {origin: a, destination: b, cost: 2}",
    ],
)
def test_costs_that_do(entries: str) -> None:
    assert kep(entries).conditions == ()


@pytest.mark.parametrize(
    ("topology_list", "field", "message"),
    [
        (
            "{topologyKey: topology.kubernetes.io/segment}",
            "[0].topologyKey",
            "costs between values of 'topology.kubernetes.io/segment' are not supported",
        ),
        ("{originList: []}", "[0].topologyKey", "is missing"),
        (
            """{topologyKey: topology.kubernetes.io/zone, originList: [
                {origin: a, costList: [{destination: b, networkCost: 1, bandwidthCapacity: fast}]}]}""",
            "[0].originList[0].costList[0].bandwidthCapacity",
            "'fast' is not a quantity",
        ),
    ],
)
def test_what_else_is_wrong_as_published(topology_list: str, field: str, message: str) -> None:
    ((where, said, blocking),) = told(published(topology_list))
    assert (where, blocking) == (f"spec.weights[0].topologyList{field}", False)
    assert said.startswith(message)


def test_sets_of_one_name_are_one_set() -> None:
    one = "{{name: w, topologyList: [{{topologyKey: topology.kubernetes.io/zone, originList: [{}]}}]}}"
    first = one.format("{origin: a, costList: [{destination: b, networkCost: 1}]}")
    second = one.format("{origin: a, costList: [{destination: c, networkCost: 2}]}")
    topology = network(f"spec: {{weights: [{first}, {{name: v}}, {second}]}}", PUBLISHED)
    assert [weights.name for weights in topology.weight_sets] == ["w", "v"]
    assert costs(topology.weight_sets[0].zone_costs) == [("a", "b", 1), ("a", "c", 2)]
    assert told(topology) == [("spec.weights[2].name", "w is the name of an earlier set", False)]


def test_a_set_without_a_name() -> None:
    topology = network("spec: {weights: [{topologyList: []}]}", PUBLISHED)
    assert told(topology) == [("spec.weights[0].name", "is missing", False)]


def test_a_status_may_hold_costs_of_zones_and_regions_too() -> None:
    zones = (
        "{topologyKey: topology.kubernetes.io/zone, originList: [{origin: a, costList: "
        "[{destination: b, networkCost: 5}, {destination: c, networkCost: -1}]}]}"
    )
    nodes = "{origin: n1, destination: n2, cost: 1}, {origin: n1, destination: n3}"
    one = f"{{algorithmName: Dijkstra, costList: [{nodes}], topologyList: [{zones}]}}"
    other = "{algorithmName: BellmanFord, costList: [{origin: n1, destination: n2, cost: 2}]}"
    topology = network(f"status: {{weights: [{one}, {other}]}}")
    weights = topology.weight_sets[0]
    assert costs(weights.node_costs) == [("n1", "n2", 1)]
    assert costs(weights.zone_costs) == [("a", "b", 5)]
    assert told(topology) == [
        (
            "status.weights[0].costList[1].cost",
            "the cost from n1 to n3 is missing (and 1 more like it)",
            False,
        )
    ]


@pytest.mark.parametrize(
    ("api", "content", "field", "right"),
    [
        (KEP, "spec: {weights: []}", "spec.weights", "status.weights"),
        (KEP, "status: {weights: [{name: w, costList: []}]}", "status.weights[0].name", "algorithmName"),
        (PUBLISHED, "spec: {Weights: []}", "spec.Weights", "weights"),
        (PUBLISHED, "spec: {weights: [{name: w, costList: []}]}", "spec.weights[0].costList", "topologyList"),
    ],
)
def test_wrong_names_are_met_with_the_right_ones(api: str, content: str, field: str, right: str) -> None:
    topology = network(content, api)
    found = {one.field: one for one in topology.conditions}
    assert found[field].remedy == f"the right field is {right}"
    assert found[field].blocking


def test_both_groups_share_one_space_of_names() -> None:
    head = "kind: NetworkTopology, metadata: {name: net, namespace: default}, spec: {}"
    manifests = read(f"{{apiVersion: {KEP}, {head}}}\n---\n{{apiVersion: {PUBLISHED}, {head}}}")
    (error,) = manifests.errors
    assert "is already defined differently" in error.message


def test_all_wrong_names_of_the_published_example_are_reported() -> None:
    path = shared_data("network-aware/networkTopology-example.yaml")
    (topology,) = read_manifests([str(path)]).network_topologies
    assert not topology.usable
    assert [(one.field, one.sentence(), one.blocking) for one in topology.conditions] == [
        (
            "spec.configMapName",
            "configMapName is not a field here; it is ignored; the right field is configmapName",
            False,
        ),
        (
            "spec.weights[0].costList",
            "costList is not a field here; the right field is topologyList",
            True,
        ),
        (
            "spec.weights[0].costList[0].originCosts",
            "originCosts is not a field here (and 1 more like it); the right field is originList",
            True,
        ),
        (
            "spec.weights[0].costList[0].originCosts[0].costs",
            "costs is not a field here (and 5 more like it); the right field is costList",
            True,
        ),
    ]


def test_the_published_example_with_its_names_put_right() -> None:
    text = shared_data("network-aware/networkTopology-example.yaml").read_text()
    for wrong, right in (
        ("configMapName", "configmapName"),
        ("costList:", "topologyList:"),
        ("originCosts:", "originList:"),
        ("costs:\n", "costList:\n"),
    ):
        text = text.replace(wrong, right)
    (topology,) = read_good(text).network_topologies
    (weights,) = topology.weight_sets
    assert topology.conditions == ()
    assert costs(weights.region_costs) == [("us-west-1", "us-east-1", 20), ("us-east-1", "us-west-1", 20)]
    assert costs(weights.zone_costs) == [("z1", "z2", 5), ("z2", "z1", 5), ("z3", "z4", 10), ("z4", "z3", 10)]
