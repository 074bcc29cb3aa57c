"""Gangs of which some members run, that grow, or that lose members: the rest joins the others' domain."""

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Strategy
from closeby.objects.reasons import Reason
from closeby.scheduling.events import (
    GroupChanged,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    TopologyChanged,
)
from tests.golden.fixture import Golden
from tests.worlds import GPU, THREE_ZONES, fabric, gang, node, pods, spec, subgroup, world

TWO_RACKS = """
zone-a rack-1 : a1=4 a2=4
zone-a rack-2 : b1=2
"""


class TestSomeMembersRun:
    def test_the_rest_joins_their_required_domain(self) -> None:
        drawn = world(TWO_RACKS)
        running = pods("train", 1, prefix="old", on="a2")
        drawn.run(gang(min_member=3, required="rack"), members=[*running, *pods("train", 2)])
        # rack-2 would be tighter.
        assert drawn.used() == {"a2": 2}

    def test_and_waits_when_that_is_full(self, golden: Golden) -> None:
        drawn = world("zone-a rack-1 : a1=1\nzone-a rack-2 : b1=8")
        running = pods("train", 1, prefix="old", on="a1")
        drawn.run(gang(min_member=3, required="rack"), members=[*running, *pods("train", 2)])
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        golden("refusals", drawn.outcome("train").message or "")

    def test_each_domain_without_them_is_explained_by_that(self) -> None:
        drawn = world("zone-a rack-1 : a1=1\nzone-a rack-2 : b1=8", explain=True)
        running = pods("train", 1, prefix="old", on="a1")
        drawn.run(gang(min_member=3, required="rack"), members=[*running, *pods("train", 2)])
        said = {one.path[-1]: one.lack for one in drawn.outcome("train").domains}
        assert said["rack-2"].endswith("already run are in zone-a/rack-1")
        assert "already run" not in said["rack-1"]

    def test_each_part_joins_its_own_members_though_another_part_is_where_there_is_room(self) -> None:
        drawn = world("zone-a rack-1 : a1=4\nzone-a rack-2 : b1=8")
        parts = (subgroup("lead", 1, required="rack"), subgroup("work", 4, required="rack"))
        running = [*pods("train", 3, subgroup="work", on="a1"), *pods("train", 1, subgroup="lead", on="b1")]
        full = pods(None, 1, prefix="full", on="a1")
        late = pods("train", 1, subgroup="work", prefix="late")
        drawn.run(gang(min_member=5, subgroups=parts), members=[*running, *full, *late])
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        assert drawn.where == {}

    def test_the_rest_joins_their_preferred_domain(self) -> None:
        drawn = world(TWO_RACKS)
        running = pods("train", 1, prefix="old", on="a2")
        drawn.run(gang(min_member=3, preferred="rack"), members=[*running, *pods("train", 2)])
        assert drawn.used() == {"a2": 2}

    def test_and_goes_to_the_nearest_when_that_is_full(self) -> None:
        drawing = "zone-a rack-1 : a1=2\nzone-b rack-2 : b1=9\nzone-a rack-3 : a3=8"
        drawn = world(drawing)
        running = pods("train", 1, prefix="old", on="a1")
        drawn.run(gang(min_member=4, preferred="rack"), members=[*running, *pods("train", 3)])
        assert drawn.used() == {"a1": 1, "a3": 2}

    def test_without_a_constraint_they_gather_too(self) -> None:
        drawn = world("zone-a rack-1 : a1=2 a2=2\nzone-a rack-2 : b1=2")
        running = pods("train", 1, prefix="old", on="a1")
        drawn.run(gang(min_member=3), members=[*running, *pods("train", 2)])
        assert drawn.used() == {"a1": 1, "a2": 1}

    def test_where_they_break_the_required_level_the_rest_waits(self) -> None:
        drawn = world("zone-a rack-1 : a1=8\nzone-a rack-2 : b1=8")
        running = [
            *pods("train", 1, prefix="one", on="a1"),
            *pods("train", 2, prefix="two", on="b1"),
        ]
        drawn.run(gang(min_member=4, required="rack"), members=[*running, *pods("train", 2)])
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
        told = drawn.outcome("train").message or ""
        assert "zone-a/rack-1" in told and "zone-a/rack-2" in told
        drawn.tell(PodDeleted(running[0].uid)).run()
        assert drawn.used() == {"b1": 2}

    def test_finished_members_draw_no_pod(self) -> None:
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=3")
        [done] = pods("train", 1, prefix="old", on="b1", terminating=False)
        drawn.run(gang(min_member=2, required="rack"), members=[done])
        drawn.tell(PodDeleted(done.uid)).run(members=pods("train", 2))
        assert drawn.used() == {"a1": 2}

    def test_members_on_a_removed_node_draw_no_pod(self) -> None:
        drawn = world("zone-a rack-1 : a1=4\nzone-a rack-2 : b1=2")
        drawn.run(gang(min_member=2, required="rack"), members=pods("train", 1, prefix="old", on="a1"))
        drawn.tell(NodeDeleted("a1")).run(members=pods("train", 2))
        assert drawn.used() == {"b1": 2}


class TestMembersBeyondTheMinimum:
    def test_the_domain_with_room_for_all_is_taken(self) -> None:
        # rack-1 holds the minimum more tightly, but only rack-2 holds everybody.
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=5")
        drawn.run(gang(min_member=2, required="rack"), members=pods("train", 5))
        assert drawn.used() == {"b1": 5}

    def test_else_the_one_with_the_most_room(self) -> None:
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=4\nzone-a rack-3 : c1=3")
        drawn.run(gang(min_member=2, required="rack"), members=pods("train", 6))
        assert drawn.used() == {"b1": 4}
        assert drawn.left("train") == {
            "train-4": Reason.TOPOLOGY_PLACEMENT_FAILED,
            "train-5": Reason.TOPOLOGY_PLACEMENT_FAILED,
        }

    def test_those_left_follow_into_the_same_rack_when_there_is_room(self) -> None:
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=8").run(
            gang(min_member=2, required="rack"),
            members=[*pods(None, 5, prefix="old", on="b1"), *pods("train", 4)],
        )
        assert drawn.used("train") == {"b1": 3}
        drawn.tell(PodDeleted("default/old-0")).run()
        assert drawn.used("train") == {"b1": 4}
        assert not drawn.engine.unschedulable

    def test_with_a_preferred_level_they_go_to_the_nearest(self) -> None:
        drawing = "zone-a rack-1 : a1=3\nzone-b rack-2 : b1=2\nzone-a rack-3 : a3=1"
        drawn = world(drawing).run(gang(min_member=3, preferred="rack"), members=pods("train", 6))
        assert drawn.used() == {"a1": 3, "a3": 1, "b1": 2}

    def test_late_ones_join_the_others(self) -> None:
        drawn = world(TWO_RACKS).run(gang(min_member=3, required="rack"), members=pods("train", 3))
        assert drawn.used(by="rack") == {"rack-1": 3}
        drawn.run(members=pods("train", 2, prefix="late"))
        assert drawn.used("late", by="rack") == {"rack-1": 2}

    def test_late_ones_that_find_no_room_wait_alone(self) -> None:
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=1", explain=True)
        drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2))
        drawn.run(members=pods("train", 1, prefix="late"))
        assert drawn.reason("train") is None
        assert drawn.left("train") == {"late-0": Reason.TOPOLOGY_PLACEMENT_FAILED}

    def test_unequal_ones_are_placed_as_far_as_they_fit(self) -> None:
        drawn = world("zone-a rack-1 : a1=5\nzone-a rack-2 : b1=1")
        extra = [*pods("train", 1, spec(gpu=3), prefix="x-big"), *pods("train", 1, prefix="y-small")]
        drawn.run(gang(min_member=3, required="rack"), members=[*pods("train", 3), *extra])
        assert drawn.used() == {"a1": 4}
        assert drawn.left("train") == {"x-big-0": Reason.INSUFFICIENT_RESOURCES}

    def test_a_gang_that_spreads_grows_in_its_rack(self) -> None:
        drawn = world("zone-a rack-1 : a1=3\nzone-a rack-2 : b1=5")
        spread = gang(min_member=2, required="rack", strategy=Strategy.SPREAD)
        drawn.run(spread, members=pods("train", 6))
        assert drawn.used() == {"b1": 5}


class TestTheGangChanges:
    def test_a_lower_minimum_lets_it_start(self) -> None:
        drawn = world("zone-a rack-1 : a1=2").run(gang(min_member=3), members=pods("train", 3))
        assert drawn.where == {}
        drawn.run(gang(min_member=2))
        assert drawn.used() == {"a1": 2}

    def test_a_looser_constraint_lets_it_start(self) -> None:
        drawn = world(THREE_ZONES).run(gang(min_member=9, required="rack"), members=pods("train", 9))
        assert drawn.where == {}
        drawn.run(gang(min_member=9, required="zone"))
        assert drawn.used(by="zone") == {"zone-b": 9}

    def test_a_new_constraint_holds_for_those_who_still_wait(self) -> None:
        drawn = world("zone-a rack-1 : a1=2\nzone-a rack-2 : b1=4").run(
            gang(min_member=2), members=pods("train", 2)
        )
        drawn.tell(GroupChanged(gang(min_member=3, required="rack")))
        drawn.run(members=pods("train", 1, prefix="late"))
        assert drawn.used("late") == {}
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED

    @pytest.mark.parametrize(("required", "preferred"), [("rack", None), (None, "rack")])
    def test_a_topology_that_changes_while_it_runs(self, required: str | None, preferred: str | None) -> None:
        nodes = [
            node("a1", {"rack": "r1", "row": "w1"}, {GPU: 2}),
            node("a2", {"rack": "r2", "row": "w1"}, {GPU: 2}),
            node("b1", {"rack": "r3", "row": "w2"}, {GPU: 9}),
        ]
        drawn = world(nodes, fabric("rack"))
        drawn.run(gang(min_member=2, required=required, preferred=preferred), members=pods("train", 2))
        assert drawn.used() == {"a1": 2}
        drawn.tell(TopologyChanged(fabric("row", "rack"))).run(
            gang(min_member=2, required="row"), members=pods("train", 2, prefix="late")
        )
        assert drawn.used("late") == {"a2": 2}

    def test_a_node_relabelled_under_a_running_gang(self) -> None:
        drawn = world("zone-a rack-1 : a1=2 a2=2\nzone-a rack-2 : b1=8")
        drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2))
        assert drawn.used() == {"a1": 2}
        drawn.tell(NodeUpserted(node("a1", {"zone": "zone-a", "rack": "rack-2"}, {GPU: 2})))
        drawn.run(members=pods("train", 2, prefix="late"))
        assert drawn.used("late") == {"b1": 2}

    def test_a_node_that_loses_its_label_under_a_running_gang(self) -> None:
        drawn = world("zone-a rack-1 : a1=2 a2=2\nzone-a rack-2 : b1=8")
        drawn.run(gang(min_member=2, required="rack"), members=pods("train", 2))
        drawn.tell(NodeUpserted(node("a1", {"zone": "zone-a"}, {GPU: 4})))
        drawn.run(members=pods("train", 2, prefix="late"))
        # Nobody shares a rack with the running members, so the rest must wait.
        assert drawn.used("late") == {}
        assert set(drawn.left("train").values()) == {Reason.TOPOLOGY_PLACEMENT_FAILED}


class TestSomeMembersHaveDoneTheirWork:
    def test_a_recreated_member_does_not_wait_for_them(self) -> None:
        drawn = world(TWO_RACKS)
        done = [replace(pod, phase="Succeeded", node_name="a1") for pod in pods("train", 3, prefix="done")]
        running = pods("train", 2, prefix="old", on="a2")
        drawn.run(gang(min_member=6, required="rack"), members=[*done, *running, *pods("train", 1)])
        assert drawn.used() == {"a2": 1}

    def test_those_that_are_there_still_start_together(self) -> None:
        drawn = world("zone-a rack-1 : a1=2")
        done = [replace(pod, phase="Succeeded", node_name="a1") for pod in pods("train", 3, prefix="done")]
        drawn.run(gang(min_member=6), members=[*done, *pods("train", 3)])
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT

    def test_once_their_objects_are_gone_they_count_no_more(self) -> None:
        drawn = world(TWO_RACKS)
        [done] = [replace(pod, phase="Succeeded", node_name="a1") for pod in pods("train", 1, prefix="done")]
        drawn.tell(GroupChanged(gang(min_member=2)), PodUpserted(done), PodDeleted(done.uid))
        drawn.run(members=pods("train", 1))
        assert drawn.reason("train") is Reason.GANG_INCOMPLETE
        assert drawn.engine.state.done("default/train") == ()

    def test_those_that_failed_have_not(self) -> None:
        drawn = world(TWO_RACKS)
        [failed] = [replace(pod, phase="Failed", node_name="a1") for pod in pods("train", 1, prefix="failed")]
        drawn.run(gang(min_member=2), members=[failed, *pods("train", 1)])
        assert drawn.reason("train") is Reason.GANG_INCOMPLETE

    def test_of_subgroups_each_counts_its_own(self) -> None:
        drawn = world(TWO_RACKS)
        group = gang(min_member=4, subgroups=[subgroup("left", 2), subgroup("right", 2)])
        done = [
            replace(pod, phase="Succeeded", node_name="a1")
            for pod in pods("train", 1, subgroup="left", prefix="done")
        ]
        members = [*done, *pods("train", 1, subgroup="left"), *pods("train", 2, subgroup="right")]
        drawn.run(group, members=members)
        assert len(drawn.where) == 3
