"""topology: nodes score by the edges of the tree between them and the members placed."""

import numpy as np
from msgspec.structs import replace

from closeby.plugins.topology import TopologyArguments, TopologyPlacement, closeness
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.tree import Tree
from tests.plugins.asking import handle_of
from tests.worlds import THREE_ZONES, draw, fabric, gang, pods, subgroup, world


def plugin() -> tuple[TopologyPlacement, Tree]:
    """The plugin on the example tree, and that tree."""
    handle = handle_of(draw(THREE_ZONES))
    handle.topologies.declare(fabric("zone", "rack"))
    tree = handle.topologies.tree("fabric")
    assert tree is not None
    return TopologyPlacement(TopologyArguments(), handle), tree


def near(name: str) -> dict[str, float]:
    """How close each node is to one."""
    asked, tree = plugin()
    cluster = asked.handle.cluster
    slot = cluster.slot(name)
    assert slot is not None
    values = closeness(tree, slot, np.arange(cluster.capacity))
    return {node or "": float(value) for node, value in zip(cluster.names, values.tolist(), strict=True)}


def test_the_same_node_the_same_rack_the_same_zone_and_the_rest() -> None:
    scores = near("na1")
    # 0, 2, 4 and 6 edges of at most 6.
    assert scores["na1"] == 100
    assert round(scores["na2"], 3) == 66.667
    assert round(scores["na4"], 3) == 33.333
    assert scores["nb1"] == scores["nc2"] == 0


def test_a_node_outside_the_tree_is_close_to_no_other() -> None:
    _, tree = plugin()
    outside = len(tree.position_of)
    assert closeness(tree, outside, np.arange(3)).tolist() == [0, 0, 0]


def test_only_members_with_a_placed_member_are_scored() -> None:
    asked, tree = plugin()
    [pod] = pods("train", 1)
    assert not asked.pre_score(CycleState(), pod)
    assert not asked.pre_score(CycleState(gang(), tree), pod)
    assert asked.pre_score(CycleState(gang(), tree, anchors=(0,)), pod)


def test_members_that_run_draw_the_pods_that_are_explained() -> None:
    drawn = world(THREE_ZONES, explain=True)
    running = pods("train", 1, prefix="old", on="nb1")
    drawn.run(gang(min_member=1, preferred="rack"), members=[*running, *pods("train", 1)])
    [explained] = drawn.outcome("train").explanations
    assert explained.scores["nb1"]["topology"] == 100
    assert explained.scores["nb2"]["topology"] > explained.scores["nb3"]["topology"] > 0
    assert explained.scores["nc1"]["topology"] == 0


def test_a_member_that_runs_counts_before_those_that_were_just_placed() -> None:
    asked, tree = plugin()
    cluster = asked.handle.cluster
    running, placed = cluster.slot_of("nb1"), cluster.slot_of("na1")
    one, other = pods("train", 2)
    state = CycleState(gang(), tree, anchors=(running,))
    state.placed.append((one, placed))
    assert np.argmax(asked.score(state, other, Nodes(cluster))) == running
    alone = CycleState(gang(), tree)
    alone.placed.append((one, placed))
    assert asked.pre_score(alone, other)
    assert np.argmax(asked.score(alone, other, Nodes(cluster))) == placed


def test_nodes_without_the_label_are_no_rack() -> None:
    #   The two nodes of no rack would be the tightest.
    drawn = world("zone-a - : x1=2 x2=2\nzone-a rack-1 : a1=4 a2=4")
    drawn.run(gang(min_member=4, required="rack"), members=pods("train", 4))
    assert drawn.used(by="rack") == {"rack-1": 4}


def test_a_rack_outside_every_zone_does_where_no_zone_is_required() -> None:
    drawing = "- rack-1 : a1=4\nzone-b rack-2 : b1=8"
    required = gang(min_member=4, required="zone", preferred="rack")
    assert world(drawing).run(required, members=pods("train", 4)).used() == {"b1": 4}
    assert world(drawing).run(gang(min_member=4, preferred="rack"), members=pods("train", 4)).used() == {
        "a1": 4
    }


def test_a_gang_that_may_lie_anywhere_is_not_gathered() -> None:
    #   One rack holds all; the fewest nodes are two of two racks.
    drawing = "zone-a rack-1 : a1=3 a2=3\nzone-a rack-2 : b1=2 b2=2"
    anywhere = replace(gang(min_member=4), wants_closeness=False)
    assert world(drawing).run(gang(min_member=4), members=pods("train", 4)).used(by="rack") == {"rack-2": 4}
    assert len(world(drawing).run(anywhere, members=pods("train", 4)).used(by="rack")) == 2


def test_the_rest_of_a_gang_begins_where_most_of_it_runs() -> None:
    drawn = world("zone-a rack-1 : a1=8\nzone-a rack-2 : b1=8")
    running = [*pods("train", 1, prefix="one", on="a1"), *pods("train", 2, prefix="two", on="b1")]
    drawn.run(gang(min_member=5, required="zone"), members=[*running, *pods("train", 2)])
    assert drawn.used() == {"b1": 2}


def test_a_gang_that_asks_for_nothing_takes_the_fewest_domains_level_by_level() -> None:
    #   The fewest racks: all of rack-1, the rest on rack-2. By nodes alone b1 would come first.
    drawn = world("zone-a rack-1 : a1=2 a2=2\nzone-a rack-2 : b1=3")
    drawn.run(gang(min_member=6), members=pods("train", 6))
    assert drawn.used() == {"a1": 2, "a2": 2, "b1": 2}


def test_a_preferred_rack_carries_its_label_too() -> None:
    #   x1 would be the tightest; a node of no rack is not a rack of its own.
    drawn = world("zone-a - : x1=4\nzone-a rack-1 : a1=3 a2=3")
    drawn.run(gang(min_member=4, preferred="rack"), members=pods("train", 4))
    assert drawn.used(by="rack") == {"rack-1": 4}


def test_a_subgroup_inside_a_rack_of_no_zone_is_in_no_zone() -> None:
    #   rack-1 would be the tighter one for the parent, but x must be in a zone.
    drawn = world("- rack-1 : a1=4\nzone-b rack-2 : b1=8")
    groups = [subgroup("p", required="rack"), subgroup("x", 4, required="zone", parent="p")]
    drawn.run(gang(subgroups=groups), members=pods("train", 4, subgroup="x"))
    assert drawn.used() == {"b1": 4}
