"""Placements that KAI-Scheduler's topology plugin misses or makes worse than needed; none may be ours."""

from closeby.objects.nodes import Node, Taint
from closeby.objects.reasons import Reason
from closeby.scheduling.events import NodeUpserted, PodDeleted
from tests.worlds import GPU, THREE_ZONES, draw, fabric, gang, node, pods, spec, subgroup, world


def many_racks(count: int, nodes: int = 2, gpus: int = 2) -> str:
    return "\n".join(
        f"zone-{rack % 4} rack-{rack} : " + " ".join(f"n{rack}x{at}={gpus}" for at in range(nodes))
        for rack in range(count)
    )


def test_mixed_sizes_are_not_counted_as_so_many_of_the_largest() -> None:
    for required, preferred in (("rack", None), (None, "rack"), (None, None)):
        drawn = world("zone-a rack-1 : a1=8")
        leader = pods("train", 1, spec(gpu=4), prefix="leader")
        drawn.run(
            gang(min_member=5, required=required, preferred=preferred), members=[*leader, *pods("train", 4)]
        )
        assert drawn.used() == {"a1": 5}


def test_siblings_are_searched_backwards_too() -> None:
    groups = [subgroup(name, size, required="rack") for name, size in (("a", 2), ("b", 3), ("c", 4))]
    drawn = world("zone-a rack-1 : a1=5\nzone-a rack-2 : b1=4").run(
        gang(subgroups=groups),
        members=[pod for one in groups for pod in pods("train", one.min_member, None, one.name)],
    )
    assert drawn.used() == {"a1": 5, "b1": 4}


def test_a_required_level_is_found_even_if_all_nodes_share_a_finer_domain() -> None:
    drawn = world("zone-a rack-1 : a1=4").run(gang(min_member=2, required="rack"), members=pods("train", 2))
    assert drawn.used() == {"a1": 2}
    groups = [subgroup("parent", required="rack"), subgroup("child", 2, required="zone", parent="parent")]
    drawn = world("zone-a rack-1 : a1=4")
    drawn.run(gang(subgroups=groups), members=pods("train", 2, subgroup="child"))
    assert drawn.used() == {"a1": 2}


def test_capacity_is_counted_with_every_filter() -> None:
    def tainted(one: Node) -> Node:
        return node(one.name, one.labels, one.allocatable, taints=[Taint("broken", "", "NoSchedule")])

    nodes = [tainted(one) if one.labels["rack"] != "rack-40" else one for one in draw(many_racks(50))]
    drawn = world(nodes, fabric("zone", "rack"), explain=True)
    drawn.run(gang(min_member=4, required="rack"), members=pods("train", 4))
    assert drawn.used(by="rack") == {"rack-40": 4}
    first, second, *_ = drawn.outcome("train").domains
    assert (first.path[-1], first.fits) == ("rack-40", 4)
    assert (second.fits, dict(second.blocked_by)) == (0, {Reason.TAINT_NOT_TOLERATED: 2})


def test_any_number_of_racks_is_distinguished() -> None:
    drawn = world(many_racks(256)).run(gang(min_member=10, preferred="rack"), members=pods("train", 10))
    assert sorted(drawn.used(by="rack").values()) == [2, 4, 4]
    assert len(drawn.used(by="zone")) == 1


def test_the_remainder_goes_to_the_smallest_rack_that_holds_it() -> None:
    drawing = "zone-a rack-1 : a1=19\nzone-a rack-2 : b1=10\nzone-a rack-3 : c1=2"
    drawn = world(drawing).run(gang(min_member=20, preferred="rack"), members=pods("train", 20))
    assert drawn.used() == {"a1": 19, "c1": 1}


def test_a_required_zone_still_uses_the_fewest_racks_and_nodes() -> None:
    drawn = world(THREE_ZONES).run(gang(min_member=11, required="zone"), members=pods("train", 11))
    assert drawn.used(by="rack") == {"rack-a1": 6, "rack-a3": 5}
    assert len(drawn.used()) == 6


def test_two_elastic_groups_get_a_rack_each_rather_than_both_racks_in_half() -> None:
    groups = [subgroup(name, 2, preferred="rack") for name in ("a", "b")]
    drawn = world("zone-a rack-1 : a1=4\nzone-a rack-2 : b1=4").run(
        gang(subgroups=groups), members=[*pods("train", 4, subgroup="a"), *pods("train", 4, subgroup="b")]
    )
    assert sorted((len(drawn.used("a-")), len(drawn.used("b-")))) == [1, 1]
    assert drawn.used() == {"a1": 4, "b1": 4}


def test_8_6_and_6_share_12_and_11_and_a_level_asked_for_twice_counts_once() -> None:
    groups = [
        subgroup("parent", required="zone"),
        *(
            subgroup(name, size, required="rack", parent="parent")
            for name, size in (("a", 8), ("b", 6), ("c", 6))
        ),
        subgroup("inner", required="zone", parent="parent"),
        subgroup("d", 2, required="rack", parent="inner"),
    ]
    drawn = world("zone-a rack-1 : a1=12\nzone-a rack-2 : b1=11")
    members = [
        pod for one in groups if one.min_member > 1 for pod in pods("train", one.min_member, None, one.name)
    ]
    drawn.run(gang(subgroups=groups), members=members)
    assert len(drawn.where) == 22


def test_a_childs_capacity_is_counted_inside_its_parents_domain_of_another_topology() -> None:
    nodes = [
        node("a1", {"zone": "a", "power": "p1"}, {GPU: 1}),
        node("a2", {"zone": "a", "power": "p2"}, {GPU: 2}),
        node("b1", {"zone": "b", "power": "p1"}, {GPU: 4}),
    ]
    groups = [
        subgroup("parent", required="zone"),
        subgroup("x", 2, required="power", parent="parent", topology="supply"),
        subgroup("y", 1, required="power", parent="parent", topology="supply"),
    ]
    drawn = world(nodes, fabric("zone"), fabric("power", name="supply"))
    # b1 is taken, so that only zone a is left, where p1 has room for one.
    members = [*pods("train", 2, subgroup="x"), *pods("train", 1, subgroup="y"), *pods(None, 4, on="b1")]
    drawn.run(gang(subgroups=groups), members=members)
    assert drawn.used("x") == {"a2": 2}
    assert drawn.used("y") == {"a1": 1}


def test_a_gang_is_not_bound_to_the_domain_in_which_it_was_tried_before() -> None:
    drawn = world("zone-a rack-1 : a1=3\nzone-a rack-2 : b1=4")
    drawn.run(gang(min_member=4, required="rack"), members=[*pods(None, 2, on="b1"), *pods("train", 4)])
    assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
    drawn.tell(PodDeleted("default/pod-0"), PodDeleted("default/pod-1")).run()
    assert drawn.used("train") == {"b1": 4}


def test_a_node_that_appears_is_neither_dropped_nor_forgotten() -> None:
    drawn = world("zone-a rack-1 : a1=2").run(gang(min_member=4, preferred="rack"), members=pods("train", 4))
    assert drawn.where == {}
    # It carries none of the topology's labels.
    drawn.tell(NodeUpserted(node("new", allocatable={GPU: 2}))).run()
    assert drawn.used() == {"a1": 2, "new": 2}
