"""Uplinks that nodes describe, compared with those of siblings, and what degraded ones cost."""

import json
from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.topologies import Topology, TopologyLevel
from closeby.topology.costs import edge_costs
from closeby.topology.registry import Topologies
from closeby.topology.tree import Domain, Tree
from closeby.topology.uplinks import Uplinks, greatest_distance, link_distances
from tests.topology.drawing import Slots, domain

GIGABIT = 10**9


def drawn(*nodes: tuple[str, str, Mapping[str, Mapping[str, object]]]) -> tuple[Topologies, Tree, Slots]:
    """Nodes n0, n1, … given by spine, leaf and what their annotation says of those."""
    slots = Slots()
    for number, (spine, leaf, says) in enumerate(nodes):
        slots.add(f"n{number}", {"spine": spine, "leaf": leaf}, json.dumps(says) if says else None)
    topologies = Topologies(slots.labels, slots.names)
    topologies.declare(Topology(name="t", levels=(TopologyLevel("spine"), TopologyLevel("leaf"))))
    tree = topologies.tree("t")
    assert tree is not None
    return topologies, tree, slots


def says(leaf: str, cables: int | None, rate: str | None = None) -> dict[str, dict[str, object]]:
    metrics = {"uplinks": cables, "bandwidth": rate}
    return {leaf: {key: value for key, value in metrics.items() if value is not None}}


def costs(*nodes: tuple[str, str, Mapping[str, Mapping[str, object]]]) -> dict[str, float]:
    """Cost of every domain that is described, by path."""
    topologies, tree, _ = drawn(*nodes)
    return {
        "/".join(value or "-" for value in tree.path(one)): uplinks.cost
        for one, uplinks in topologies.uplinks("t").items()
    }


def test_a_leaf_with_half_the_uplinks_costs_two_edges() -> None:
    found = costs(
        ("s", "L1", says("L1", 4, "400Gbps")),
        ("s", "L2", says("L2", 2, "200Gbps")),
        ("s", "L3", says("L3", 4, "400Gbps")),
    )
    assert found == {"s/L1": 1, "s/L2": 2, "s/L3": 1}


def test_faster_cables_make_up_for_missing_ones_and_none_makes_up_for_slow_ones() -> None:
    found = costs(
        ("s", "L1", says("L1", 4, "400Gbps")),
        ("s", "L2", says("L2", 2, "400Gbps")),
        ("s", "L3", says("L3", 4, "100Gbps")),
    )
    assert found == {"s/L1": 1, "s/L2": 1, "s/L3": 4}


def test_where_no_rate_is_known_cables_count() -> None:
    assert costs(("s", "L1", says("L1", 3)), ("s", "L2", says("L2", 1))) == {"s/L1": 1, "s/L2": 3}


def test_leaves_of_other_spines_are_no_siblings() -> None:
    assert costs(("s", "L1", says("L1", 4)), ("t", "L2", says("L2", 1))) == {"s/L1": 1, "t/L2": 1}


def test_what_two_nodes_say_differently_is_unknown() -> None:
    found = costs(("s", "L1", says("L1", 4)), ("s", "L1", says("L1", 2)), ("s", "L2", says("L2", 8)))
    assert found == {"s/L1": 1, "s/L2": 1}


def test_what_is_said_of_a_name_that_two_switches_share_is_unknown() -> None:
    """Spine s1 and a leaf below it are both called s1; nothing tells which of them has one uplink."""
    found = costs(
        ("s1", "s1", says("s1", 1)),
        ("s1", "L2", {**says("s1", 1), **says("L2", 4)}),
        ("s2", "L3", {**says("s2", 4), **says("L3", 4)}),
    )
    assert found == {"s1": 4, "s1/L2": 1, "s2": 1, "s2/L3": 1}


def test_a_spine_is_compared_with_spines() -> None:
    topologies, tree, _ = drawn(
        ("s", "L1", {**says("s", 8), **says("L1", 2)}),
        ("t", "L2", {**says("t", 2), **says("L2", 2)}),
    )
    found = topologies.uplinks("t")
    assert found[domain(tree, "t")] == Uplinks(cables=2, usual_cables=8)
    assert found[domain(tree, "t")].cost == 4
    assert tree.depths[0].tolist() == [1, 4]
    # From n0: two edges up, one each for leaf and spine; then four down to t, one to L2, one to n1.
    assert link_distances(tree, Domain(tree.node_level, 0)).tolist() == [0, 3 + 6]


def test_nodes_that_say_nothing_cost_nothing() -> None:
    _, tree, _ = drawn(("s", "L1", {}), ("s", "L2", {}))
    assert tree.depths == ()
    assert greatest_distance(tree) == 6


def test_healthy_links_leave_the_tree_as_it_is() -> None:
    _, tree, _ = drawn(("s", "L1", says("L1", 2)), ("s", "L2", says("L2", 2)))
    assert tree.depths == ()


def test_a_change_of_the_annotation_is_seen() -> None:
    topologies, tree, slots = drawn(("s", "L1", says("L1", 2)), ("s", "L2", says("L2", 2)))
    slots.labels.set(1, {"spine": "s", "leaf": "L2"}, json.dumps(says("L2", 1)))
    later = topologies.tree("t")
    assert later is not tree and later is not None
    assert later.depths[1].tolist() == [2, 3]
    slots.labels.set(1, {"spine": "s", "leaf": "L2"})
    healed = topologies.tree("t")
    assert healed is not None and healed.depths == ()


places = st.tuples(st.sampled_from("st"), st.sampled_from("xyz"), st.integers(1, 4))


@given(st.lists(places, min_size=1, max_size=8))
def test_distances_are_those_of_the_tree_with_longer_edges(drawing: list[tuple[str, str, int]]) -> None:
    """Against a walk up from both nodes to where they meet."""
    cables = {f"{spine}{leaf}": count for spine, leaf, count in drawing}
    topologies, tree, _ = drawn(
        *((spine, spine + leaf, says(spine + leaf, cables[spine + leaf])) for spine, leaf, _ in drawing)
    )
    uplinks = topologies.uplinks("t")

    def walk(one: Domain, other: Domain) -> float:
        total, level = 0.0, tree.node_level
        while tree.ancestor(one, level) != tree.ancestor(other, level):
            for side in (one, other):
                at = tree.ancestor(side, level)
                total += uplinks[at].cost if at in uplinks else 1
            level -= 1
        return total

    hosts = [Domain(tree.node_level, index) for index in range(tree.size)]
    between = edge_costs(tree, len(drawing))
    for one in hosts:
        expected = [walk(one, other) for other in hosts]
        assert np.allclose(link_distances(tree, one), expected)
        assert max(expected) <= greatest_distance(tree)
        for other in hosts:
            if one != other:
                groups = [between.group_of[tree.slot_at[host.index]] for host in (one, other)]
                assert np.isclose(between.between[groups[0], groups[1]], walk(one, other))
