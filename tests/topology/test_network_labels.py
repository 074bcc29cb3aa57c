"""The examples of the Topograph label standard, with the numbers of its text."""

import json

from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.nodes import Node
from closeby.topology.finding import NetworkLabels, read_network_labels
from closeby.topology.qos import Quality
from closeby.topology.tree import Domain
from tests.golden.fixture import Golden
from tests.topology.drawing import domain, drawn, host, members, node

NETWORK = "network.topology.kubernetes.io/"
ACCELERATOR, BLOCK, DATACENTER, ZONE = (
    NETWORK + one for one in ("accelerator", "block", "datacenter", "zone")
)
AREA, SECTOR, CENTER = (NETWORK + one for one in ("area", "sector", "center"))

RESERVED = {ACCELERATOR: "nvl72-a", BLOCK: "block-b", DATACENTER: "dc-c", ZONE: "zone-d"}
RESERVED_QOS = {
    "nvl72-a": {"latency": "2us", "bandwidth": "100Gbps"},
    "block-b": {"latency": "50us", "bandwidth": "40Gbps"},
    "dc-c": {"latency": "500us", "bandwidth": "20Gbps"},
    "zone-d": {"latency": "1ms", "bandwidth": "10Gbps"},
}
CUSTOM = {AREA: "sw-a", SECTOR: "block-b", CENTER: "center-c"}
CUSTOM_QOS = {
    "sw-a": {"distance": 1, "latency": "100ns", "bandwidth": "40Gbps"},
    "block-b": {"distance": 2, "latency": "500ns", "bandwidth": "20Gbps"},
    "center-c": {"distance": 3, "latency": "1ms", "bandwidth": "10Gbps"},
}


def levels(result: NetworkLabels) -> dict[str, list[str]]:
    return {
        topology.name: [level.node_label.removeprefix(NETWORK) for level in topology.levels]
        for topology in result.topologies
    }


def test_reserved_types_are_a_tree_from_zone_to_accelerator() -> None:
    nodes = [node("n1", RESERVED)]

    result = read_network_labels(nodes)

    assert levels(result) == {"network-labels": ["zone", "datacenter", "block", "accelerator"]}
    assert result.conditions == ()
    assert result.quality == {}
    tree, slots = drawn(result, nodes)
    assert tree.path(host(tree, slots, "n1")) == ("zone-d", "dc-c", "block-b", "nvl72-a", "n1")


def test_reserved_types_take_latency_and_bandwidth_from_the_annotation() -> None:
    result = read_network_labels([node("n1", RESERVED, json.dumps(RESERVED_QOS))])

    assert levels(result) == {"network-labels": ["zone", "datacenter", "block", "accelerator"]}
    assert result.conditions == ()
    assert result.quality == {
        (ACCELERATOR, "nvl72-a"): Quality(latency=2_000, bandwidth=100_000_000_000),
        (BLOCK, "block-b"): Quality(latency=50_000, bandwidth=40_000_000_000),
        (DATACENTER, "dc-c"): Quality(latency=500_000, bandwidth=20_000_000_000),
        (ZONE, "zone-d"): Quality(latency=1_000_000, bandwidth=10_000_000_000),
    }


def test_custom_types_are_ordered_by_distance() -> None:
    result = read_network_labels([node("n1", CUSTOM, json.dumps(CUSTOM_QOS))])

    assert levels(result) == {"network-labels": ["center", "sector", "area"]}
    assert result.conditions == ()
    assert result.quality == {
        (AREA, "sw-a"): Quality(distance=1, latency=100, bandwidth=40_000_000_000),
        (SECTOR, "block-b"): Quality(distance=2, latency=500, bandwidth=20_000_000_000),
        (CENTER, "center-c"): Quality(distance=3, latency=1_000_000, bandwidth=10_000_000_000),
    }


def test_custom_types_need_no_latency_and_no_bandwidth() -> None:
    qos = '{"sw-a": {"distance": 1}, "block-b": {"distance": 2}, "center-c": {"distance": 3}}'

    result = read_network_labels([node("n1", CUSTOM, qos)])

    assert levels(result) == {"network-labels": ["center", "sector", "area"]}
    assert result.quality[AREA, "sw-a"] == Quality(distance=1)
    assert result.conditions == ()


# zone-d
# └─ dc-c
#    ├─ block-b
#    │  ├─ nvl72-a: n1 n2
#    │  └─ nvl72-x: n3
#    └─ block-y
#       └─ nvl72-y: n4
# zone-e
# └─ dc-e: n5
def _fabric() -> list[Node]:
    qos = json.dumps(RESERVED_QOS)
    partly = {ACCELERATOR: "nvl72-y", BLOCK: "block-y", DATACENTER: "dc-c", ZONE: "zone-d"}
    return [
        node("n1", RESERVED, qos),
        node("n2", RESERVED, qos),
        node("n3", {**RESERVED, ACCELERATOR: "nvl72-x"}),
        node("n4", partly),
        node("n5", {DATACENTER: "dc-e", ZONE: "zone-e"}),
    ]


def test_nodes_are_the_farther_apart_the_coarser_the_layer_at_which_they_meet() -> None:
    nodes = _fabric()
    tree, slots = drawn(read_network_labels(nodes), nodes)
    n1, n2, n3, n4 = (host(tree, slots, name) for name in ("n1", "n2", "n3", "n4"))
    assert [tree.distance(n1, other) for other in (n1, n2, n3, n4)] == [0, 2, 4, 6]


def test_a_missing_label_leaves_the_node_usable_at_coarser_layers() -> None:
    nodes = _fabric()
    result = read_network_labels(nodes)
    tree, slots = drawn(result, nodes)
    n5 = host(tree, slots, "n5")

    assert tree.path(n5) == ("zone-e", "dc-e", None, None, "n5")
    assert not tree.is_labelled(tree.ancestor(n5, 2))
    assert members(tree, slots, domain(tree, "zone-e", "dc-e")) == ["n5"]
    assert result.conditions == ()


def test_only_the_layers_in_use_are_levels() -> None:
    nodes = [node("n1", {BLOCK: "b1", ZONE: "z1"}), node("n2", {ZONE: "z1"})]

    assert levels(read_network_labels(nodes)) == {"network-labels": ["zone", "block"]}


def test_no_labels_no_topology() -> None:
    nodes = [node("n1", {"kubernetes.io/hostname": "n1"}), node("n2", {BLOCK: ""}), node("n3", {}, "{}")]

    assert read_network_labels(nodes) == NetworkLabels()
    assert read_network_labels([]) == NetworkLabels()


# block-1: n1 n2    nvl-a: n1 n2
# block-2: n3 n4    nvl-b: n3     nvl-c: n4
def test_accelerators_that_nest_in_blocks_are_the_finest_level() -> None:
    nodes = [
        node("n1", {BLOCK: "block-1", ACCELERATOR: "nvl-a"}),
        node("n2", {BLOCK: "block-1", ACCELERATOR: "nvl-a"}),
        node("n3", {BLOCK: "block-2", ACCELERATOR: "nvl-b"}),
        node("n4", {BLOCK: "block-2", ACCELERATOR: "nvl-c"}),
    ]

    assert levels(read_network_labels(nodes)) == {"network-labels": ["block", "accelerator"]}


# block-1: n1 n2    nvl-a: n1
# block-2: n3 n4    nvl-b: n2 n3    nvl-c: n4
def test_accelerators_across_blocks_are_a_topology_of_their_own(golden: Golden) -> None:
    nodes = [
        node("n1", {BLOCK: "block-1", ACCELERATOR: "nvl-a"}),
        node("n2", {BLOCK: "block-1", ACCELERATOR: "nvl-b"}),
        node("n3", {BLOCK: "block-2", ACCELERATOR: "nvl-b"}),
        node("n4", {BLOCK: "block-2", ACCELERATOR: "nvl-c"}),
    ]

    result = read_network_labels(nodes)

    assert levels(result) == {"network-labels": ["block"], "network-labels-accelerator": ["accelerator"]}
    golden("network-labels", result.topologies[1].source)
    assert result.conditions == ()
    blocks, slots = drawn(result, nodes)
    accelerators, _ = drawn(result, nodes, "network-labels-accelerator")
    assert members(blocks, slots, domain(blocks, "block-1")) == ["n1", "n2"]
    assert members(accelerators, slots, domain(accelerators, "nvl-b")) == ["n2", "n3"]


def test_accelerators_outside_all_blocks_are_a_topology_of_their_own() -> None:
    nodes = [
        node("n1", {BLOCK: "block-1"}),
        node("n2", {ACCELERATOR: "nvl-a"}),
        node("n3", {ACCELERATOR: "nvl-a"}),
    ]

    result = read_network_labels(nodes)

    assert levels(result) == {"network-labels": ["block"], "network-labels-accelerator": ["accelerator"]}
    accelerators, slots = drawn(result, nodes, "network-labels-accelerator")
    assert members(accelerators, slots, domain(accelerators, "nvl-a")) == ["n2", "n3"]


def test_a_node_that_is_not_fully_labelled_yet_does_not_move_the_accelerators() -> None:
    nodes = [
        node("n1", {BLOCK: "block-1", ACCELERATOR: "nvl-a"}),
        node("n2", {BLOCK: "block-1", ACCELERATOR: "nvl-a"}),
        node("n3", {ACCELERATOR: "nvl-a"}),
    ]

    assert levels(read_network_labels(nodes)) == {"network-labels": ["block", "accelerator"]}


def test_without_blocks_the_next_coarser_layer_decides_about_accelerators() -> None:
    across = [
        node("n1", {ZONE: "z1", ACCELERATOR: "nvl-a"}),
        node("n2", {ZONE: "z2", ACCELERATOR: "nvl-a"}),
    ]

    assert levels(read_network_labels(across)) == {
        "network-labels": ["zone"],
        "network-labels-accelerator": ["accelerator"],
    }
    assert levels(read_network_labels(across[:1])) == {"network-labels": ["zone", "accelerator"]}


def test_accelerators_alone_are_the_main_topology() -> None:
    nodes = [node("n1", {ACCELERATOR: "nvl-a"}), node("n2", {ACCELERATOR: "nvl-a"})]

    assert levels(read_network_labels(nodes)) == {"network-labels": ["accelerator"]}


def test_a_reserved_type_without_distance_takes_its_reserved_place_among_custom_types() -> None:
    # accelerator 1, rack 1.5, block 2, row 2.5, datacenter 3, zone 4, continent 9
    labels = {**RESERVED, NETWORK + "rack": "r", NETWORK + "row": "w", NETWORK + "continent": "c"}
    qos = '{"r": {"distance": 1.5}, "w": {"distance": 2.5}, "c": {"distance": 9}}'

    result = read_network_labels([node("n1", labels, qos)])

    assert levels(result)["network-labels"] == [
        "continent",
        "zone",
        "datacenter",
        "row",
        "block",
        "rack",
        "accelerator",
    ]
    assert result.conditions == ()


def test_stated_distances_override_the_reserved_order() -> None:
    qos = '{"block-b": {"distance": 7}, "dc-c": {"distance": 5}}'

    result = read_network_labels([node("n1", {BLOCK: "block-b", DATACENTER: "dc-c"}, qos)])

    assert levels(result) == {"network-labels": ["block", "datacenter"]}
    assert result.conditions == ()


def test_equal_names_of_two_types_are_two_switches() -> None:
    nodes = [
        node("n1", {BLOCK: "sw", DATACENTER: "dc"}, '{"sw": {"latency": "1us"}}'),
        node("n2", {BLOCK: "b", DATACENTER: "sw"}, '{"sw": {"latency": "2us"}}'),
    ]

    result = read_network_labels(nodes)

    assert result.quality == {(BLOCK, "sw"): Quality(latency=1000), (DATACENTER, "sw"): Quality(latency=2000)}
    assert result.conditions == ()


@st.composite
def labelled_nodes(draw: st.DrawFn) -> list[Node]:
    """Up to eight nodes with any mixture of right and wrong labels and annotations."""
    switches = st.sampled_from(["a", "b", "c", "", "no good"])
    types = st.sampled_from([ACCELERATOR, BLOCK, DATACENTER, ZONE, AREA, SECTOR])
    metrics = st.fixed_dictionaries(
        {},
        optional={
            "distance": st.sampled_from([1, 2, 2.5, 0, "x"]),
            "latency": st.sampled_from(["1us", "2us", "2", 3]),
            "bandwidth": st.sampled_from(["1Gbps", "1G"]),
        },
    )
    texts = st.one_of(
        st.none(),
        st.just("{"),
        st.just("[]"),
        st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), metrics).map(json.dumps),
    )
    chosen = draw(st.lists(st.tuples(st.dictionaries(types, switches), texts), max_size=8))
    return [node(f"n{index}", labels, qos) for index, (labels, qos) in enumerate(chosen)]


@given(st.data())
def test_the_order_of_the_nodes_does_not_matter(data: st.DataObject) -> None:
    nodes = data.draw(labelled_nodes())
    shuffled = data.draw(st.permutations(nodes))

    assert read_network_labels(shuffled) == read_network_labels(nodes)


@given(labelled_nodes())
def test_a_switch_lies_in_one_place(nodes: list[Node]) -> None:
    """However wrong the labels are, no switch is found under two fully labelled paths."""
    result = read_network_labels(nodes)

    for topology in result.topologies:
        tree, _ = drawn(result, nodes, topology.name)
        for level in range(tree.node_level):
            paths = [tree.path(Domain(level, index)) for index in range(tree.count(level))]
            switches = [path[-1] for path in paths if None not in path]
            assert len(switches) == len(set(switches))
