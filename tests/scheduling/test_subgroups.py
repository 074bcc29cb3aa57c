"""Gangs that are trees of subgroups: siblings that share racks out, parents that confine their children."""

import pytest
from msgspec.structs import replace

from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.events import NodeUpserted
from tests.golden.fixture import Golden
from tests.worlds import GPU, World, fabric, gang, node, pods, spec, subgroup, world


def members(*subgroups: SubGroup, gpu: int = 1) -> list[Pod]:
    """As many equal pods as each leaf needs at least."""
    parents = {one.parent for one in subgroups}
    leaves = [one for one in subgroups if one.name not in parents]
    return [pod for one in leaves for pod in pods("train", one.min_member, spec(gpu=gpu), one.name)]


def placed(drawing: str, *subgroups: SubGroup, levels: tuple[str, ...] = ("zone", "rack")) -> World:
    """A world in which a gang of these subgroups was placed if possible."""
    return world(drawing, levels=levels).run(gang(subgroups=subgroups), members=members(*subgroups))


def racks(drawn: World, name: str, label: str = "rack") -> set[str]:
    """The label values of the nodes that a subgroup's pods got."""
    found = [drawn.engine.cluster.slot(chosen) for chosen in drawn.used(name)]
    return {drawn.engine.cluster.node_at(slot).labels[label] for slot in found if slot is not None}


class TestSiblings:
    def test_groups_of_2_3_and_4_share_racks_of_5_and_4(self) -> None:
        sizes = {"a": 2, "b": 3, "c": 4}
        groups = [subgroup(name, size, required="rack") for name, size in sizes.items()]
        drawn = placed("zone-a rack-1 : a1=5\nzone-a rack-2 : b1=4", *groups)
        assert drawn.used("a") | drawn.used("b") == {"a1": 3}
        assert drawn.used() == {"a1": 5, "b1": 4}
        assert drawn.used("c") == {"b1": 4}

    def test_groups_of_8_6_and_6_share_racks_of_12_and_11(self) -> None:
        groups = [subgroup(name, size, required="rack") for name, size in (("a", 8), ("b", 6), ("c", 6))]
        drawn = placed("zone-a rack-1 : a1=12\nzone-a rack-2 : b1=11", *groups)
        assert drawn.used("a") == {"b1": 8}
        assert drawn.used("b") == drawn.used("c") == {"a1": 6}

    def test_groups_that_largest_first_does_not_share_out(self) -> None:
        # Largest first into the tightest rack: 5 into 8 leaves 3, and so on; only 5+5 | 4+4+2 works.
        sizes = (("a", 5), ("b", 5), ("c", 4), ("d", 4), ("e", 2))
        groups = [subgroup(name, size, required="rack") for name, size in sizes]
        drawn = placed("zone-a rack-1 : a1=10\nzone-a rack-2 : b1=10", *groups)
        assert drawn.used() == {"a1": 10, "b1": 10}
        assert all(len(drawn.used(name)) == 1 for name, _ in sizes)

    def test_groups_that_fit_nowhere_beside_each_other_wait_as_a_whole(self, golden: Golden) -> None:
        groups = [subgroup(name, 3, required="rack") for name in ("a", "b", "c")]
        drawn = placed("zone-a rack-1 : a1=5\nzone-a rack-2 : b1=4", *groups)
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        golden("refusals", drawn.outcome("train").message or "")

    def test_siblings_may_share_a_rack(self) -> None:
        groups = [subgroup(name, 2, required="rack") for name in ("a", "b")]
        assert placed("zone-a rack-1 : a1=4\nzone-a rack-2 : b1=8", *groups).used() == {"a1": 4}

    def test_the_finer_requirement_goes_first(self) -> None:
        # The zone-level sibling could take rack-1's room; then the rack-level one would not fit.
        drawing = "zone-a rack-1 : a1=2 a2=2\nzone-a rack-2 : b1=3"
        drawn = placed(drawing, subgroup("a", 3, required="zone"), subgroup("z", 4, required="rack"))
        assert drawn.used("z") == {"a1": 2, "a2": 2}
        assert drawn.used("a") == {"b1": 3}

    def test_siblings_without_a_constraint_go_anywhere_in_the_gangs_domain(self) -> None:
        drawing = "zone-a rack-1 : a1=2\nzone-a rack-2 : a2=2\nzone-b rack-3 : b1=3"
        groups = [subgroup(name, 2) for name in ("a", "b")]
        drawn = world(drawing).run(
            gang(required="zone", subgroups=groups, min_member=4), members=members(*groups)
        )
        assert drawn.used() == {"a1": 2, "a2": 2}

    def test_only_some_subgroups_may_have_a_constraint(self) -> None:
        drawing = "zone-a rack-1 : a1=1\nzone-a rack-2 : b1=3"
        drawn = placed(drawing, subgroup("a", 1), subgroup("b", 3, required="rack"))
        assert drawn.used("b") == {"b1": 3}
        assert drawn.used("a") == {"a1": 1}


class TestPreferences:
    def test_no_subgroup_is_parted_that_needs_not_be(self) -> None:
        """Racks of 5 and 4: 2 and 3 go to the one, so that 4 that prefer a rack have the other."""
        groups = [
            subgroup("a", 2, required="rack"),
            subgroup("b", 3, required="rack"),
            subgroup("c", 4, preferred="rack"),
        ]
        drawn = placed("zone-a rack-1 : a1=5\nzone-a rack-2 : b1=4", *groups)
        assert drawn.used("c") == {"b1": 4}

    def test_a_preference_that_cannot_be_met_parts_its_subgroup_alone(self) -> None:
        groups = [subgroup("a", 3, required="rack"), subgroup("c", 6, preferred="rack")]
        drawn = placed("zone-a rack-1 : a1=5\nzone-a rack-2 : b1=4", *groups)
        assert len(racks(drawn, "a")) == 1
        assert sum(drawn.used("c").values()) == 6


class TestGangsWithoutAConstraintOfTheirOwn:
    """They go to the tightest domain that holds them, as far as their subgroups let them."""

    TWO_ZONES = "zone-a rack-1 : a1=1 a2=1 a3=1\nzone-a rack-2 : b1=1 b2=1 b3=1\nzone-b rack-3 : c1=1 c2=1"

    @pytest.mark.parametrize("asks", [{"required": "rack"}, {"preferred": "rack"}])
    def test_stay_together_though_one_subgroup_alone_fits_tighter_elsewhere(
        self, asks: dict[str, str]
    ) -> None:
        #   The workers alone would fill rack-3, and leave their leader in another zone.
        drawn = placed(self.TWO_ZONES, subgroup("leader", 1), subgroup("worker", 2, **asks))
        assert set(drawn.used()) == {"a1", "a2", "a3"}

    def test_but_first_what_a_subgroup_prefers(self) -> None:
        #   zone-b would hold all three, but the two workers only in two racks.
        drawing = "zone-a rack-1 : a1=2\nzone-b rack-2 : b1=1\nzone-b rack-3 : b2=1\nzone-b rack-4 : b3=1"
        drawn = placed(drawing, subgroup("leader", 1), subgroup("worker", 2, preferred="rack"))
        assert drawn.used("worker") == {"a1": 2}

    def test_members_beyond_the_minimum_count_where_all_find_a_place(self) -> None:
        groups = [subgroup("leader", 1), subgroup("worker", 1, required="rack")]
        everybody = [*pods("train", 1, subgroup="leader"), *pods("train", 2, subgroup="worker")]
        drawn = world(self.TWO_ZONES).run(gang(subgroups=groups), members=everybody)
        assert set(drawn.used()) == {"a1", "a2", "a3"}

    def test_unless_they_want_no_closeness(self) -> None:
        groups = [subgroup("leader", 1), subgroup("worker", 2, required="rack")]
        apart = replace(gang(subgroups=groups), wants_closeness=False)
        drawn = world(self.TWO_ZONES).run(apart, members=members(*groups))
        assert set(drawn.used("worker")) == {"c1", "c2"}


class TestUnequalMembers:
    def test_those_of_another_kind_go_to_a_rack_that_has_members_already(self) -> None:
        #   rack-1 comes first by name and would take the pod without accelerators, as a third rack.
        drawing = "zone-a rack-1 : a1=1\nzone-a rack-2 : b1=2 b2=2\nzone-a rack-3 : c1=2 c2=2"
        members = [*pods("train", 1, spec(), prefix="head"), *pods("train", 4, spec(gpu=2))]
        drawn = world(drawing).run(gang(min_member=5), members=members)
        assert sum(drawn.used().values()) == 5
        assert set(drawn.used()) == {"b1", "b2", "c1", "c2"}

    def test_but_elsewhere_where_that_leaves_no_room_for_others(self) -> None:
        #   The two pods of one kind fill b1, the rack of the others; the last one needs what is left.
        drawing = "zone-a rack-1 : a1=2\nzone-a rack-2 : b1=4"
        members = [
            *pods("train", 1, spec(gpu=3), prefix="big"),
            *pods("train", 1, spec(gpu=1), prefix="small"),
            *pods("train", 1, spec(gpu=2), prefix="middle"),
        ]
        drawn = world(drawing).run(gang(min_member=3), members=members)
        assert sum(drawn.used().values()) == 3


class TestUnequalSiblings:
    def test_a_sibling_leaves_the_only_big_node_to_the_one_that_needs_it(self) -> None:
        drawn = world("zone-a rack-1 : a1=4 a2=3")
        groups = [subgroup("a", 3), subgroup("b", 1)]
        both = [*pods("train", 3, subgroup="a"), *pods("train", 1, spec(gpu=4), "b")]
        drawn.run(gang(subgroups=groups), members=both)
        assert drawn.where["b-0"] == "a1"

    def test_every_way_to_fill_a_rack_is_tried_before_giving_up(self) -> None:
        # b's pods of 2 need both nodes' remainders: a's pods of 1 must be split 1 + 1.
        drawn = world("zone-a rack-1 : a1=3 a2=3")
        groups = [subgroup("a", 2, required="rack"), subgroup("b", 2, required="rack")]
        both = [*pods("train", 2, spec(gpu=1), "a"), *pods("train", 2, spec(gpu=2), "b")]
        drawn.run(gang(subgroups=groups), members=both)
        assert drawn.used("a") == drawn.used("b") == {"a1": 1, "a2": 1}

    @pytest.mark.parametrize("fast", ["a1", "a2"])
    def test_nodes_that_are_alike_for_a_sibling_may_differ_for_a_later_one(self, fast: str) -> None:
        nodes = [
            node(name, {"rack": "rack-1"}, {"cpu": 1, GPU: 1, "example.com/nic": int(name == fast)})
            for name in ("a1", "a2")
        ]
        drawn = world(nodes, levels=("rack",))
        groups = [subgroup("a", 1, required="rack"), subgroup("b", 1, required="rack")]
        plain, special = spec(cpu=1, gpu=1), spec(cpu=1, gpu=1, **{"example.com/nic": 1})
        both = [*pods("train", 1, plain, "a"), *pods("train", 1, special, "b")]
        drawn.run(gang(required="rack", subgroups=groups), members=both)
        assert drawn.where.get("b-0") == fast

    def test_a_no_is_only_said_when_every_way_was_tried(self) -> None:
        groups = [subgroup("a", 2, required="rack"), subgroup("b", 1, required="rack")]
        both = [*pods("train", 2, spec(gpu=3), "a"), *pods("train", 1, spec(gpu=2), "b")]
        drawn = world("zone-a rack-1 : a1=4 a2=4").run(gang(subgroups=groups), members=both)
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT
        # Here it is the racks that stand in the way, not the nodes.
        drawn = world("zone-a rack-1 : a1=4\nzone-a rack-2 : b1=5").run(gang(subgroups=groups), members=both)
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED


class TestTrees:
    TWO_ZONES = """
    zone-a rack-1 : a1=4
    zone-a rack-2 : a2=2
    zone-b rack-3 : b1=3
    zone-b rack-4 : b2=3
    """

    def test_children_stay_in_their_parents_zone(self) -> None:
        drawn = placed(
            self.TWO_ZONES,
            subgroup("one", required="zone"),
            subgroup("x", 3, required="rack", parent="one"),
            subgroup("y", 3, required="rack", parent="one"),
        )
        assert drawn.used() == {"b1": 3, "b2": 3}

    def test_each_parent_gets_a_zone_that_holds_its_children(self) -> None:
        drawn = placed(
            self.TWO_ZONES,
            subgroup("one", required="zone"),
            subgroup("one-x", 3, required="rack", parent="one"),
            subgroup("one-y", 3, required="rack", parent="one"),
            subgroup("two", required="zone"),
            subgroup("two-x", 4, required="rack", parent="two"),
            subgroup("two-y", 2, required="rack", parent="two"),
        )
        assert drawn.used("one") == {"b1": 3, "b2": 3}
        assert drawn.used("two") == {"a1": 4, "a2": 2}

    def test_the_gangs_own_constraint_confines_all(self) -> None:
        groups = [subgroup(name, 3, required="rack") for name in ("x", "y")]
        drawn = world(self.TWO_ZONES).run(gang(required="zone", subgroups=groups), members=members(*groups))
        assert drawn.used() == {"b1": 3, "b2": 3}

    def test_a_parent_that_requires_finer_than_its_child(self) -> None:
        # The child's zone is that of its parent's rack.
        drawn = placed(
            self.TWO_ZONES,
            subgroup("one", required="rack"),
            subgroup("x", 2, required="zone", parent="one"),
            subgroup("y", 2, required="zone", parent="one"),
        )
        assert drawn.used() == {"a1": 4}

    def test_parent_and_child_at_the_same_level_count_once(self) -> None:
        drawn = placed(
            self.TWO_ZONES,
            subgroup("one", required="rack"),
            subgroup("x", 4, required="rack", parent="one"),
        )
        assert drawn.used() == {"a1": 4}

    def test_a_free_child_leaves_room_for_the_racks_of_a_later_parent(self) -> None:
        # Only if one-y keeps out of rack-1 does two-x find 3 in one rack.
        drawing = "zone-a rack-1 : a1=3\nzone-a rack-2 : a2=2\nzone-a rack-3 : a3=2"
        drawn = placed(
            drawing,
            subgroup("one", required="zone"),
            subgroup("one-x", 2, required="rack", parent="one"),
            subgroup("one-y", 2, parent="one"),
            subgroup("two", required="zone"),
            subgroup("two-x", 3, required="rack", parent="two"),
        )
        assert drawn.used("two") == {"a1": 3}
        assert drawn.used() == {"a1": 3, "a2": 2, "a3": 2}

    def test_a_child_of_a_zone_leaves_room_for_one_whose_parent_needs_a_rack(self) -> None:
        nodes = [
            node("n0", {"zone": "zone-a"}, {GPU: 2}),
            node("n1", {"zone": "zone-a", "rack": "rack-1"}, {GPU: 4}),
        ]
        groups = [
            subgroup("p0"),
            subgroup("s2", required="zone", parent="p0"),
            subgroup("s3", 3, required="rack", parent="p0"),
            subgroup("p1", required="rack"),
            subgroup("s0", required="zone", parent="p1"),
            subgroup("s1"),
        ]
        drawn = world(nodes).run(gang(subgroups=groups), members=members(*groups))
        assert drawn.used("s3") == {"n1": 3}
        assert drawn.used("s0") == {"n1": 1}
        assert drawn.used("s1") == drawn.used("s2") == {"n0": 1}

    def test_three_levels_of_groups(self) -> None:
        drawing = "\n".join(f"z{z} b{b} r{r} : n{z}{b}{r}=2" for z in (1, 2) for b in (1, 2) for r in (1, 2))
        drawn = placed(
            drawing,
            subgroup("all", required="zone"),
            subgroup("half", required="block", parent="all"),
            subgroup("p", 2, required="rack", parent="half"),
            subgroup("q", 2, required="rack", parent="half"),
            subgroup("rest", 3, required="block", parent="all"),
            levels=("zone", "block", "rack"),
        )
        assert len(racks(drawn, "", "zone")) == 1
        assert len(drawn.used("p") | drawn.used("q")) == 2
        assert len(drawn.where) == 7


class TestSeveralTopologies:
    def test_a_child_of_another_topology_stays_inside_its_parents_domain(self) -> None:
        # The power line p1 has room for 4, but only 2 of them in zone-a.
        nodes = [
            node("a1", {"zone": "zone-a", "power": "p1"}, {GPU: 2}),
            node("a2", {"zone": "zone-a", "power": "p2"}, {GPU: 3}),
            node("b1", {"zone": "zone-b", "power": "p1"}, {GPU: 2}),
        ]
        group = gang(
            subgroups=[
                subgroup("one", required="zone"),
                subgroup("x", 3, required="power", parent="one", topology="supply"),
                subgroup("y", 2, parent="one"),
            ]
        )
        drawn = world(nodes, fabric("zone"), fabric("power", name="supply"))
        drawn.run(group, members=members(*group.subgroups))
        assert drawn.used("x") == {"a2": 3}
        assert drawn.used("y") == {"a1": 2}

    def test_siblings_of_different_topologies_do_not_block_each_other(self) -> None:
        # x fits p1 only as a1 + b1, so y must not take either rack of it.
        nodes = [
            node("a1", {"rack": "a", "power": "p1"}, {GPU: 2}),
            node("b1", {"rack": "b", "power": "p1"}, {GPU: 2}),
            node("c1", {"rack": "c", "power": "p2"}, {GPU: 1}),
            node("c2", {"rack": "c", "power": "p3"}, {GPU: 1}),
        ]
        groups = [
            subgroup("x", 4, required="power", topology="supply"),
            subgroup("y", 2, required="rack"),
        ]
        drawn = world(nodes, fabric("rack"), fabric("power", name="supply"))
        drawn.run(gang(subgroups=groups), members=members(*groups))
        assert drawn.used("x") == {"a1": 2, "b1": 2}
        assert drawn.used("y") == {"c1": 1, "c2": 1}


class TestMinima:
    def test_a_subgroup_that_has_not_appeared_keeps_the_gang_waiting(self, golden: Golden) -> None:
        drawn = world("zone-a rack-1 : a1=8")
        drawn.run(
            gang(subgroups=[subgroup("a", 2), subgroup("b", 2)]), members=pods("train", 3, subgroup="a")
        )
        assert drawn.reason("train") is Reason.GANG_INCOMPLETE
        golden("refusals", drawn.outcome("train").message or "")

    def test_the_gangs_own_minimum_counts_over_all_subgroups(self) -> None:
        drawn = world("zone-a rack-1 : a1=3")
        groups = [subgroup("a", 1), subgroup("b", 1)]
        everybody = [*pods("train", 2, subgroup="a"), *pods("train", 2, subgroup="b")]
        drawn.run(gang(min_member=4, subgroups=groups), members=everybody)
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT
        drawn.tell(NodeUpserted(node("a2", {"zone": "zone-a", "rack": "rack-1"}, {GPU: 1}))).run()
        assert drawn.used() == {"a1": 3, "a2": 1}

    def test_a_domain_is_left_where_the_gang_cannot_reach_its_own_minimum(self) -> None:
        # By their minimum alone both groups would go to rack-1, which has the most room to grow.
        drawn = world("zone-a rack-1 : a1=3\nzone-a rack-2 : b1=2")
        groups = [subgroup("a", 1, required="rack"), subgroup("b", 1, required="rack")]
        everybody = [*pods("train", 3, subgroup="a"), *pods("train", 3, subgroup="b")]
        drawn.run(gang(min_member=5, subgroups=groups), members=everybody)
        assert drawn.used() == {"a1": 3, "b1": 2}

    def test_subgroups_without_a_minimum_go_where_there_is_room(self) -> None:
        drawn = world("zone-a rack-1 : a1=0\nzone-a rack-2 : b1=4")
        groups = [subgroup("a", 0), subgroup("b", 0)]
        everybody = [*pods("train", 3, subgroup="a"), *pods("train", 3, subgroup="b")]
        drawn.run(gang(min_member=2, required="rack", subgroups=groups), members=everybody)
        assert drawn.used() == {"b1": 4}

    def test_members_beyond_a_subgroups_minimum_follow_if_they_can(self) -> None:
        drawn = world("zone-a rack-1 : a1=3\nzone-a rack-2 : b1=2")
        groups = [subgroup("a", 2, required="rack"), subgroup("b", 2, required="rack")]
        everybody = [*pods("train", 4, subgroup="a"), *pods("train", 2, subgroup="b")]
        drawn.run(gang(subgroups=groups), members=everybody)
        assert drawn.used("a") == {"a1": 3}
        assert drawn.left("train") == {"a-3": Reason.INSUFFICIENT_RESOURCES}

    def test_room_to_grow_beats_the_tightest_domain(self) -> None:
        # By their minimum alone both groups would share rack-1 and none could grow.
        drawn = world("zone-a rack-1 : a1=4\nzone-a rack-2 : b1=6\nzone-a rack-3 : c1=6")
        groups = [subgroup("a", 2, required="rack"), subgroup("b", 2, required="rack")]
        everybody = [*pods("train", 6, subgroup="a"), *pods("train", 6, subgroup="b")]
        drawn.run(gang(subgroups=groups), members=everybody)
        assert sorted([drawn.used("a"), drawn.used("b")], key=str) == [{"b1": 6}, {"c1": 6}]

    def test_members_beyond_the_minimum_leave_a_domain_that_is_only_preferred(self) -> None:
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=2\nzone-b rack-3 : c1=1")
        groups = [subgroup("a", 2), subgroup("b", 2)]
        everybody = [*pods("train", 2, subgroup="a"), *pods("train", 4, subgroup="b")]
        drawn.run(gang(preferred="zone", subgroups=groups), members=everybody)
        assert drawn.where["b-2"] == "c1"
        assert drawn.left("train") == {"b-3": Reason.INSUFFICIENT_RESOURCES}

    def test_members_beyond_the_minimum_leave_what_is_preferred_as_far_as_what_is_required(self) -> None:
        drawn = world("zone-a rack-1 : a1=4\nzone-a rack-2 : b1=1\nzone-b rack-3 : c1=3")
        groups = [subgroup("a", 2), subgroup("b", 2)]
        everybody = [*pods("train", 2, subgroup="a"), *pods("train", 4, subgroup="b")]
        drawn.run(gang(required="zone", preferred="rack", subgroups=groups), members=everybody)
        assert drawn.used() == {"a1": 4, "b1": 1}
        assert drawn.left("train") == {"b-3": Reason.TOPOLOGY_PLACEMENT_FAILED}

    def test_a_pod_that_names_no_subgroup_is_extra_and_reported(self) -> None:
        drawn = world("zone-a rack-1 : a1=3")
        lost = pods("train", 1, prefix="lost")
        drawn.run(gang(subgroups=[subgroup("a", 2)]), members=[*pods("train", 2, subgroup="a"), *lost])
        assert drawn.used() == {"a1": 3}
        [condition] = drawn.outcome("train").conditions
        assert condition.reason is Reason.INVALID_SPEC
        assert "lost-0" in condition.message


class TestOptionalSubgroups:
    """``min_subgroups``: so many of the children must find a place."""

    @staticmethod
    def some(count: int, *subgroups: SubGroup) -> PodGroup:
        return replace(gang(subgroups=subgroups), min_subgroups=count)

    def test_what_does_not_fit_is_left_out_and_follows_later(self) -> None:
        groups = [subgroup("a", 4, required="rack"), subgroup("b", 4, required="rack")]
        drawn = world("zone-a rack-1 : a1=4\nzone-a rack-2 : b1=2")
        drawn.run(self.some(1, *groups), members=members(*groups))
        assert drawn.used() == {"a1": 4}
        assert drawn.left("train") == {f"b-{index}": Reason.GANG_DOES_NOT_FIT for index in range(4)}
        drawn.tell(NodeUpserted(node("c1", {"zone": "zone-a", "rack": "rack-3"}, {GPU: 4}))).run()
        assert drawn.used("b") == {"c1": 4}
        assert not drawn.engine.unschedulable

    @pytest.mark.parametrize("required", [None, "zone"])
    def test_the_minimum_is_enough_where_the_gang_or_a_parent_asks_for_a_domain(
        self, required: str | None
    ) -> None:
        #   Each of one and two needs a rack, and one of its two subgroups; no rack holds both of them.
        groups = [
            subgroup("one", required="rack"),
            *(subgroup(name, 2, parent="one") for name in ("one-x", "one-y")),
            subgroup("two", required="rack"),
            *(subgroup(name, 2, parent="two") for name in ("two-x", "two-y")),
        ]
        groups = [replace(one, min_subgroups=None if one.parent else 1) for one in groups]
        drawn = world("zone-a rack-1 : a1=3\nzone-a rack-2 : b1=2 b2=1")
        group = gang(required=required, subgroups=groups)
        drawn.run(group, members=members(*(one for one in groups if one.parent)))
        assert (len(drawn.used("one-")), len(drawn.used("two-"))) == (1, 1)
        assert (sum(drawn.used("one-").values()), sum(drawn.used("two-").values())) == (2, 2)
        assert set(drawn.left("train").values()) == {Reason.GANG_DOES_NOT_FIT}

    def test_one_that_fits_is_enough_without_any_constraint(self) -> None:
        groups = [subgroup("a", 1), subgroup("b", 3)]
        drawn = world("zone-a rack-1 : a1=1")
        drawn.run(self.some(1, *groups), members=members(*groups))
        assert drawn.used() == {"a1": 1}
        assert drawn.left("train") == {f"b-{index}": Reason.GANG_DOES_NOT_FIT for index in range(3)}

    def test_pods_of_another_size_that_fit_nowhere_may_stay_out(self) -> None:
        groups = [subgroup("a", 2), subgroup("b", 2)]
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=2")
        large = pods("train", 2, spec(gpu=8), subgroup="b")
        drawn.run(self.some(1, *groups), members=[*pods("train", 2, subgroup="a"), *large])
        assert drawn.used() == {"a1": 2}

    def test_what_is_left_out_goes_beyond_the_domain_that_is_only_preferred(self) -> None:
        groups = [subgroup(name, 2) for name in ("a", "b", "c")]
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=1\nzone-b rack-3 : c1=2")
        drawn.run(self.some(1, *groups), members=members(*groups))
        assert drawn.used() == {"a1": 2, "c1": 2}
        assert set(drawn.left("train").values()) == {Reason.GANG_DOES_NOT_FIT}

    def test_what_is_left_out_stays_in_the_domain_that_is_required(self) -> None:
        groups = [subgroup(name, 2) for name in ("a", "b", "c")]
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=1\nzone-b rack-3 : c1=2")
        group = replace(self.some(1, *groups), constraint=gang(required="zone").constraint)
        drawn.run(group, members=members(*groups))
        assert drawn.used() == {"a1": 2}

    def test_all_are_placed_when_all_fit(self) -> None:
        groups = [subgroup(name, 2, required="rack") for name in ("a", "b", "c")]
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=4")
        drawn.run(self.some(1, *groups), members=members(*groups))
        assert drawn.used() == {"a1": 2, "b1": 4}

    def test_too_few_that_fit_wait_together(self) -> None:
        groups = [subgroup(name, 2, required="rack") for name in ("a", "b", "c")]
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=1 b2=1\nzone-a rack-3 : c1=1")
        drawn.run(self.some(3, *groups), members=members(*groups))
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT

    def test_a_subgroup_whose_members_have_not_all_appeared_stays_out(self) -> None:
        groups = [subgroup("a", 2, required="rack"), subgroup("b", 2, required="rack")]
        drawn = world("zone-a rack-1 : a1=8")
        drawn.run(self.some(1, *groups), members=members(*groups)[:3])
        assert drawn.used() == {"a1": 2}
        assert drawn.left("train") == {"b-0": Reason.GANG_INCOMPLETE}
        drawn.run(members=members(*groups)[3:])
        assert drawn.used() == {"a1": 4}

    def test_an_incomplete_subgroup_does_not_count_as_placed(self) -> None:
        groups = [subgroup(name, 2, required="rack") for name in ("a", "b", "c")]
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=1")
        two_of_three = [pod for pod in members(*groups) if pod.subgroup != "b"]
        drawn.run(self.some(2, *groups), members=two_of_three)
        assert drawn.where == {}

    def test_pods_without_a_subgroup_do_not_count_as_one(self) -> None:
        groups = [subgroup(name, 2, required="rack") for name in ("a", "b", "c")]
        drawn = world(
            "zone-a rack-1 : a1=3\nzone-a rack-2 : b1=1\nzone-a rack-3 : c1=1\nzone-a rack-4 : d1=1"
        )
        everybody = [*members(*groups), *pods("train", 1, prefix="lost")]
        drawn.run(self.some(2, *groups), members=everybody)
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_an_incomplete_parent_keeps_all_its_children_back(self) -> None:
        groups = [
            subgroup("one"),
            subgroup("one-x", 1, parent="one"),
            subgroup("one-y", 1, parent="one"),
            subgroup("two", 1),
        ]
        drawn = world("zone-a rack-1 : a1=8")
        there = [*pods("train", 1, subgroup="one-x"), *pods("train", 1, subgroup="two")]
        drawn.run(self.some(1, *groups), members=there)
        assert drawn.used("two") == {"a1": 1}
        assert drawn.left("train") == {"one-x-0": Reason.GANG_INCOMPLETE}


def test_members_that_run_hold_their_subgroup_where_it_is() -> None:
    drawn = world("zone-a rack-1 : a1=4\nzone-a rack-2 : b1=4")
    groups = [subgroup("a", 2, required="rack"), subgroup("b", 2, required="rack")]
    running = pods("train", 1, subgroup="a", on="b1")
    late = [*pods("train", 1, subgroup="a", prefix="late-a"), *pods("train", 2, subgroup="b")]
    drawn.run(gang(subgroups=groups), members=[*running, *late])
    assert drawn.where["late-a-0"] == "b1"
    assert len(drawn.used("b-")) == 1


def test_a_parents_running_child_holds_its_siblings_in_the_same_zone() -> None:
    drawing = "zone-a rack-1 : a1=2\nzone-b rack-2 : b1=1\nzone-b rack-3 : b2=4"
    groups = [
        subgroup("one", required="zone"),
        subgroup("x", 1, required="rack", parent="one"),
        subgroup("y", 2, required="rack", parent="one"),
    ]
    running = pods("train", 1, subgroup="x", on="b1")
    drawn = world(drawing).run(gang(subgroups=groups), members=[*running, *pods("train", 2, subgroup="y")])
    assert drawn.used() == {"b2": 2}
