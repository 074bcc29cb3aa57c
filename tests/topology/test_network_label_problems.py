"""What is wrong with network labels or annotations is reported, and nothing else suffers from it."""

import json

import pytest

from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition, Reason
from closeby.topology.families import KEP_4962
from closeby.topology.finding import NetworkLabels, read_network_labels
from closeby.topology.qos import Quality
from tests.golden.fixture import Golden
from tests.topology.drawing import domain, drawn, host, members, node

NETWORK = "network.topology.kubernetes.io/"
ACCELERATOR, BLOCK, SPINE, DATACENTER, ZONE = (
    NETWORK + one for one in ("accelerator", "block", "spine", "datacenter", "zone")
)
AREA, SECTOR, CENTER = (NETWORK + one for one in ("area", "sector", "center"))
ANNOTATION = "metadata.annotations[network.qos.kubernetes.io/switches]"


def only(result: NetworkLabels) -> Condition:
    """The single condition, which says everything a user needs and blocks nothing."""
    assert len(result.conditions) == 1, [one.sentence() for one in result.conditions]
    condition = result.conditions[0]
    assert condition.reason is Reason.INVALID_SPEC
    assert condition.field
    assert condition.remedy
    assert not condition.blocking
    return condition


def types(result: NetworkLabels) -> list[str]:
    """The types of the main topology, coarse to fine."""
    return [level.node_label.removeprefix(NETWORK) for level in result.topologies[0].levels]


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("{", "", "not valid JSON"),
        ("", "", "not valid JSON"),
        ("block-b: {latency: 2us}", "", "not valid JSON"),
        ('{"block-b": {"latency": "2us"}, "block-b": {"latency": "3us"}}', "", "twice"),
        ('{"block-b": {"latency": "2us", "latency": "3us"}}', "", "twice"),
        ("[" * 100_000, "", "nested too deeply"),
        ('{"block-b": {"distance": ' + "9" * 5000 + "}}", "", "not valid JSON"),
        ("[]", "", "not a JSON object of switches"),
        ("null", "", "not a JSON object of switches"),
        ('{"block-b": "2us"}', '["block-b"]', "switch block-b is not described by a JSON object"),
        ('{"block-b": {"latency": 2}}', '["block-b"].latency', "not text with a unit"),
        ('{"block-b": {"latency": "2"}}', '["block-b"].latency', "followed by one of ns, us, ms, s"),
        ('{"block-b": {"bandwidth": "40Gb"}}', '["block-b"].bandwidth', "Kbps, Mbps, Gbps, Tbps"),
        ('{"block-b": {"distance": true}}', '["block-b"].distance', "not a number"),
        ('{"block-b": {"distance": "1"}}', '["block-b"].distance', "not a number"),
        ('{"block-b": {"distance": 0}}', '["block-b"].distance', "above zero"),
        ('{"block-b": {"distance": NaN}}', '["block-b"].distance', "finite"),
        ('{"block-b": {"distance": 1e999}}', '["block-b"].distance', "finite"),
    ],
)
def test_a_wrong_annotation_is_reported_with_node_field_and_remedy(text: str, field: str, says: str) -> None:
    nodes = [
        node("n1", {BLOCK: "block-b"}, text),
        node("n2", {BLOCK: "block-c"}, '{"block-c": {"latency": "3us"}}'),
    ]

    result = read_network_labels(nodes)

    condition = only(result)
    assert condition.object == "Node/n1"
    assert condition.field == ANNOTATION + field
    assert says in condition.message
    assert types(result) == ["block"]
    assert result.quality.get((BLOCK, "block-c")) == Quality(latency=3_000)
    assert result.quality.get((BLOCK, "block-b"), Quality()) == Quality()


def test_a_wrong_value_leaves_the_other_values_and_switches() -> None:
    qos = '{"b": {"latency": "2", "bandwidth": "1Gbps"}, "d": {"latency": "2us"}, "z": 5}'

    result = read_network_labels([node("n1", {BLOCK: "b", DATACENTER: "d", ZONE: "z"}, qos)])

    assert [one.field for one in result.conditions] == [ANNOTATION + '["b"].latency', ANNOTATION + '["z"]']
    assert result.quality == {
        (BLOCK, "b"): Quality(bandwidth=1_000_000_000),
        (DATACENTER, "d"): Quality(latency=2_000),
    }


def test_a_metric_of_the_future_and_null_are_no_problem() -> None:
    qos = '{"b": {"jitter": "1us", "latency": null, "bandwidth": "1Gbps"}}'

    result = read_network_labels([node("n1", {BLOCK: "b"}, qos)])

    assert result.conditions == ()
    assert result.quality == {(BLOCK, "b"): Quality(bandwidth=1_000_000_000)}


def test_one_wrong_text_on_many_nodes_is_reported_once(golden: Golden) -> None:
    nodes = [node(f"n{index}", {BLOCK: f"b{index % 3}"}, "{") for index in range(12, 0, -1)]

    condition = only(read_network_labels(nodes))

    assert condition.object == "Node/n1"
    golden("network-labels", condition.message)


def test_a_described_switch_that_the_node_does_not_have_is_a_warning() -> None:
    nodes = [
        node("n1", {BLOCK: "b1"}, '{"b1": {"latency": "1us"}, "b2": {"latency": "2us"}}'),
        node("n2", {BLOCK: "b2"}),
    ]

    result = read_network_labels(nodes)

    condition = only(result)
    assert condition.object == "Node/n1"
    assert "b2" in condition.message
    assert result.quality == {(BLOCK, "b1"): Quality(latency=1_000)}


def test_a_name_that_two_types_of_one_node_share_is_ambiguous_in_its_annotation(golden: Golden) -> None:
    nodes = [node("n1", {BLOCK: "sw", DATACENTER: "sw"}, '{"sw": {"latency": "1us"}}')]

    result = read_network_labels(nodes)

    golden("network-labels", only(result).message)
    assert result.quality == {}
    tree, slots = drawn(result, nodes)
    assert tree.path(host(tree, slots, "n1")) == ("sw", "sw", "n1")


def test_two_values_for_one_switch_are_reported_and_dropped(golden: Golden) -> None:
    nodes = [
        node("n1", {BLOCK: "b"}, '{"b": {"latency": "2us", "bandwidth": "1Gbps"}}'),
        node("n2", {BLOCK: "b"}, '{"b": {"latency": "3us", "bandwidth": "1Gbps"}}'),
        node("n3", {BLOCK: "b"}),
    ]

    result = read_network_labels(nodes)

    condition = only(result)
    assert condition.field == ANNOTATION + '["b"].latency'
    golden("network-labels", condition.message)
    assert result.quality == {(BLOCK, "b"): Quality(bandwidth=1_000_000_000)}


def test_one_value_written_in_two_ways_is_no_conflict() -> None:
    nodes = [
        node("n1", {BLOCK: "b"}, '{"b": {"latency": "1000ns", "distance": 1, "bandwidth": "1000Mbps"}}'),
        node("n2", {BLOCK: "b"}, '{"b": {"latency": "1us", "distance": 1.0, "bandwidth": "1Gbps"}}'),
    ]

    result = read_network_labels(nodes)

    assert result.conditions == ()
    assert result.quality == {(BLOCK, "b"): Quality(latency=1_000, bandwidth=1_000_000_000, distance=1)}


def test_a_custom_type_without_distance_is_dropped_alone(golden: Golden) -> None:
    labels = {AREA: "sw-a", SECTOR: "sw-b", CENTER: "sw-c"}
    qos = '{"sw-a": {"distance": 1}, "sw-b": {"latency": "5us"}, "sw-c": {"distance": 3}}'

    result = read_network_labels([node("n1", labels, qos)])

    condition = only(result)
    assert condition.object == "Node/n1"
    golden("network-labels", condition.message)
    assert types(result) == ["center", "area"]
    assert result.quality == {(AREA, "sw-a"): Quality(distance=1), (CENTER, "sw-c"): Quality(distance=3)}


def test_custom_types_alone_and_without_distances_give_no_topology() -> None:
    result = read_network_labels([node("n1", {AREA: "sw-a"})])

    assert "missing distance of sw-a" in only(result).message
    assert result.topologies == ()


def test_one_switch_without_distance_costs_its_nodes_the_layer() -> None:
    nodes = [
        node("n1", {AREA: "sw-a", ZONE: "z"}, '{"sw-a": {"distance": 1}}'),
        node("n2", {AREA: "sw-a", ZONE: "z"}),
        node("n3", {AREA: "sw-q", ZONE: "z"}),
    ]

    result = read_network_labels(nodes)

    condition = only(result)
    assert condition.object == "Node/n3"
    assert "missing distance of sw-q" in condition.message
    assert result.ignored == {"network-labels": {AREA: frozenset({"n3"})}}
    tree, slots = drawn(result, nodes)
    assert members(tree, slots, domain(tree, "z", "sw-a")) == ["n1", "n2"]
    assert tree.path(host(tree, slots, "n3")) == ("z", None, "n3")


def test_a_custom_switch_with_two_distances_has_none(golden: Golden) -> None:
    nodes = [
        node("n1", {AREA: "sw-a", ZONE: "z"}, '{"sw-a": {"distance": 1}}'),
        node("n2", {AREA: "sw-a", ZONE: "z"}, '{"sw-a": {"distance": 2}}'),
    ]

    result = read_network_labels(nodes)

    golden("network-labels", [one.message.split(",")[0] for one in result.conditions])
    assert types(result) == ["zone"]


def test_equal_distances_are_reported_and_ordered_by_key(golden: Golden) -> None:
    nodes = [node("n1", {SECTOR: "s", AREA: "a"}, '{"s": {"distance": 2}, "a": {"distance": 2}}')]

    result = read_network_labels(nodes)

    condition = only(result)
    assert condition.object == "Node/n1"
    golden("network-labels", condition.message)
    assert types(result) == ["sector", "area"]


def test_a_custom_distance_equal_to_a_reserved_place_goes_above_the_reserved_type(golden: Golden) -> None:
    result = read_network_labels([node("n1", {BLOCK: "b", AREA: "a"}, '{"a": {"distance": 2}}')])

    golden("network-labels", only(result).message)
    assert types(result) == ["area", "block"]


def test_distances_that_differ_between_switches_of_one_type_are_fine_where_each_node_is_in_order() -> None:
    nodes = [
        node("n1", {AREA: "a1", SECTOR: "s1"}, '{"a1": {"distance": 1}, "s1": {"distance": 2}}'),
        node("n2", {AREA: "a2", SECTOR: "s2"}, '{"a2": {"distance": 3}, "s2": {"distance": 4}}'),
    ]

    result = read_network_labels(nodes)

    assert result.conditions == ()
    assert types(result) == ["sector", "area"]


def test_nodes_that_disagree_about_the_order_of_types_are_reported(golden: Golden) -> None:
    nodes = [
        node("n1", {AREA: "a1", SECTOR: "s1"}, '{"a1": {"distance": 1}, "s1": {"distance": 2}}'),
        node("n2", {AREA: "a2", SECTOR: "s2"}, '{"a2": {"distance": 4}, "s2": {"distance": 3}}'),
    ]

    result = read_network_labels(nodes)

    assert only(result).object == "Node/n2"
    golden("network-labels", only(result).message)
    assert types(result) == ["sector", "area"]


def test_a_reserved_order_turned_round_by_a_missing_distance_is_reported(golden: Golden) -> None:
    result = read_network_labels([node("n1", {BLOCK: "b", ZONE: "z"}, '{"b": {"distance": 10}}')])

    condition = only(result)
    golden("network-labels", condition.message)
    assert "puts block above zone" in condition.message
    assert types(result) == ["block", "zone"]


# dc-1: block-a (n1 n2)  block-x (n3)
# dc-2: block-x (n4)     block-b (n5)
def _block_under_two_datacenters() -> list[Node]:
    return [
        node("n1", {DATACENTER: "dc-1", BLOCK: "block-a"}),
        node("n2", {DATACENTER: "dc-1", BLOCK: "block-a"}),
        node("n3", {DATACENTER: "dc-1", BLOCK: "block-x"}),
        node("n4", {DATACENTER: "dc-2", BLOCK: "block-x"}),
        node("n5", {DATACENTER: "dc-2", BLOCK: "block-b"}),
    ]


def test_a_switch_under_two_parents_loses_its_layer_for_its_nodes_only(golden: Golden) -> None:
    nodes = _block_under_two_datacenters()

    result = read_network_labels(nodes)

    condition = only(result)
    assert condition.field == f"metadata.labels[{BLOCK}]"
    golden("network-labels", condition.message)
    assert result.ignored == {"network-labels": {BLOCK: frozenset({"n3", "n4"})}}
    tree, slots = drawn(result, nodes)
    assert tree.path(host(tree, slots, "n3")) == ("dc-1", None, "n3")
    assert tree.path(host(tree, slots, "n4")) == ("dc-2", None, "n4")
    assert members(tree, slots, domain(tree, "dc-1", "block-a")) == ["n1", "n2"]


def test_only_the_switch_with_two_parents_is_reported_not_those_below_it(golden: Golden) -> None:
    nodes = [
        node("n1", {ZONE: "z1", DATACENTER: "dc", BLOCK: "b"}),
        node("n2", {ZONE: "z2", DATACENTER: "dc", BLOCK: "b"}),
    ]

    result = read_network_labels(nodes)

    golden("network-labels", only(result).message)
    assert result.ignored == {"network-labels": {DATACENTER: frozenset({"n1", "n2"})}}


def test_where_the_next_layer_is_missing_the_one_above_it_counts_as_the_parent(golden: Golden) -> None:
    nodes = [
        node("n1", {ZONE: "z1", BLOCK: "b"}),
        node("n2", {ZONE: "z2", BLOCK: "b"}),
        node("n3", {ZONE: "z2", DATACENTER: "dc"}),
    ]

    golden("network-labels", only(read_network_labels(nodes)).message)


def test_a_conflict_of_blocks_does_not_move_the_accelerators() -> None:
    nodes = [*_block_under_two_datacenters(), node("n6", {BLOCK: "block-b", ACCELERATOR: "nvl-a"})]

    assert types(read_network_labels(nodes)) == ["datacenter", "block", "accelerator"]


@pytest.mark.parametrize("value", ["has space", "-b", "b-", "x" * 64, "a/b", "ü"])
def test_an_illegal_value_does_not_count(value: str) -> None:
    nodes = [node("n1", {BLOCK: value, ZONE: "z"}), node("n2", {BLOCK: "b", ZONE: "z"})]

    result = read_network_labels(nodes)

    condition = only(result)
    assert condition.object == "Node/n1"
    assert condition.field == f"metadata.labels[{BLOCK}]"
    assert "not a legal label" in condition.message
    tree, slots = drawn(result, nodes)
    assert tree.path(host(tree, slots, "n1")) == ("z", None, "n1")
    assert tree.path(host(tree, slots, "n2")) == ("z", "b", "n2")


@pytest.mark.parametrize("key", [NETWORK, NETWORK + "a/b", NETWORK + "a b"])
def test_an_illegal_type_does_not_count(key: str) -> None:
    result = read_network_labels([node("n1", {key: "b", ZONE: "z"})])

    assert only(result).field == f"metadata.labels[{key}]"
    assert types(result) == ["zone"]


def test_a_label_of_the_successor_proposal_is_not_guessed(golden: Golden) -> None:
    labels = {BLOCK: "b", SPINE: "s", DATACENTER: "d"}

    as_seed = read_network_labels([node("n1", labels)])
    as_kep = read_network_labels([node("n1", labels)], KEP_4962)

    golden("network-labels", only(as_seed).message)
    assert types(as_seed) == ["datacenter", "block"]
    assert as_kep.conditions == ()
    assert types(as_kep) == ["datacenter", "spine", "block"]


def test_conditions_name_the_first_node_in_natural_order(golden: Golden) -> None:
    qos = json.dumps({"elsewhere": {"latency": "1us"}})
    nodes = [node(f"n{index}", {BLOCK: "b"}, qos) for index in (10, 2, 9)]

    condition = only(read_network_labels(nodes))

    assert condition.object == "Node/n2"
    golden("network-labels", condition.message)
