"""Tree edges between all nodes, told by groups of nodes that are equally far from all others."""

import numpy as np
from hypothesis import given

from closeby.topology.costs import EdgeCosts, edge_costs
from tests.topology.drawing import Slots
from tests.topology.test_tree_properties import KEYS, Labels, slots_and_nodes


def edges(costs: EdgeCosts, one: int, other: int) -> float:
    """Edges between two slots, as the record tells them."""
    return 0.0 if one == other else float(costs.between[costs.group_of[one], costs.group_of[other]])


def test_a_rack_is_a_group() -> None:
    """zone - rack - node: 2 edges inside a rack, 4 inside a zone, 6 between zones."""
    slots = Slots(
        {
            "a1": {"zone": "a", "rack": "r1"},
            "a2": {"zone": "a", "rack": "r1"},
            "a3": {"zone": "a", "rack": "r2"},
            "b1": {"zone": "b", "rack": "r1"},
        }
    )
    costs = edge_costs(slots.tree("zone", "rack"), 4)
    assert costs.group_of.tolist() == [0, 0, 1, 2]
    assert costs.between.tolist() == [[2, 4, 6], [4, 2, 6], [6, 6, 2]]


def test_nodes_without_a_label_share_a_group_though_each_is_alone() -> None:
    """Both racks of zone a are unknown, so x and y are as far from each other as from a1."""
    slots = Slots({"a1": {"zone": "a", "rack": "r1"}, "x": {"zone": "a"}, "y": {"zone": "a"}})
    costs = edge_costs(slots.tree("zone", "rack"), 3)
    assert len(costs.between) == 2
    assert edges(costs, 1, 2) == edges(costs, 0, 1) == 4


def test_without_a_tree_different_nodes_are_one_apart() -> None:
    costs = edge_costs(None, 3)
    assert (costs.group_of.tolist(), costs.between.tolist()) == ([0, 0, 0], [[1]])


@given(slots_and_nodes())
def test_it_tells_the_distance_of_the_tree_for_every_pair(drawn: tuple[Slots, dict[str, Labels]]) -> None:
    slots, _ = drawn
    tree = slots.tree(*KEYS)
    costs = edge_costs(tree, len(slots.names))
    assert costs.group_of.shape == (len(slots.names),)
    np.testing.assert_array_equal(costs.between, costs.between.T)
    for one in tree.slot_at.tolist():
        for other in tree.slot_at.tolist():
            here, there = tree.node_domain(one), tree.node_domain(other)
            assert here is not None
            assert there is not None
            assert edges(costs, one, other) == tree.distance(here, there)
