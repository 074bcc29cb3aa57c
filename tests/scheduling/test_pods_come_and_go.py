"""Pods appear, change, fail to bind, finish and vanish; nodes go and return. The indices always agree."""

import pytest
from msgspec.structs import replace

from closeby.objects.reasons import Reason
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.events import BindFailed, NodeDeleted, NodeUpserted, PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of, outcomes_of
from tests.worlds import GPU, gang, node, pods, spec, world

ONE_NODE = "zone-a rack-1 : a1=2"


def test_a_finished_pod_frees_its_node_and_a_terminating_one_does_not() -> None:
    drawn = world(ONE_NODE)
    old = pods(None, 2, prefix="old", on="a1")
    new = pods(None, 1, prefix="new")
    drawn.run(members=[*old, *new])
    assert drawn.reason("new-0") is Reason.INSUFFICIENT_RESOURCES

    drawn.run(members=[replace(old[0], terminating=True)])
    assert drawn.where == {}

    drawn.run(members=[replace(old[1], phase="Succeeded")])
    assert drawn.where == {"new-0": "a1"}


def test_a_finished_pod_counts_for_the_gang_that_it_names_last() -> None:
    drawn = world(ONE_NODE)
    one, other = pods("train", 2)
    done = replace(one, phase="Succeeded")
    drawn.tell(PodUpserted(done), PodUpserted(replace(done, group="other")))
    drawn.run(gang(min_member=2), members=[other])
    assert drawn.reason("train") is Reason.GANG_INCOMPLETE
    drawn.tell(PodDeleted(one.uid), PodDeleted(other.uid))
    assert not drawn.engine.state.members


@pytest.mark.parametrize("owner", ["Job/js-prep-0", "Job/other"])
def test_a_finished_pod_of_another_job_of_the_same_job_set_counts(owner: str) -> None:
    """That of a Job of another name did its work in an earlier run of the gang."""
    drawn = world(ONE_NODE)
    one, other = pods("train", 2)
    labels = {"jobset.sigs.k8s.io/jobset-name": "js"}
    mine = replace(other, owner="Job/js-train-0", labels=labels)
    done = replace(one, phase="Succeeded", owner=owner, labels=labels if "js" in owner else {})
    drawn.run(gang(min_member=2), members=[done, mine])
    assert drawn.where == ({mine.name: "a1"} if "js" in owner else {})


def test_a_waiting_pod_that_is_being_deleted_is_not_placed() -> None:
    drawn = world(ONE_NODE)
    one, other = pods(None, 2)
    drawn.run(members=[replace(one, terminating=True), other])
    assert drawn.where == {"pod-1": "a1"}
    drawn.tell(PodDeleted(one.uid))


def test_a_gang_does_not_count_members_that_are_being_deleted() -> None:
    drawn = world(ONE_NODE)
    one, other = pods("train", 2)
    drawn.run(gang(min_member=2), members=[one, replace(other, terminating=True)])
    assert drawn.reason("train") is Reason.GANG_INCOMPLETE


def test_a_pod_whose_binding_is_on_the_way_keeps_its_node_when_it_changes() -> None:
    drawn = world(ONE_NODE)
    [pod] = pods(None, 1)
    drawn.run(members=[pod])
    decisions = drawn.engine.handle(PodUpserted(replace(pod, labels={"touched": "yes"})))
    drawn.run()
    assert decisions == []
    assert drawn.engine.cluster.placement(pod.uid) == drawn.engine.cluster.slot("a1")
    assert not drawn.engine.unschedulable


def test_a_pod_is_bound_where_another_scheduler_bound_it() -> None:
    drawn = world("zone-a rack-1 : a1=1 a2=1")
    one, other = pods(None, 2)
    drawn.run(members=[one])
    elsewhere = "a2" if drawn.where["pod-0"] == "a1" else "a1"
    drawn.run(members=[replace(one, node_name=elsewhere, phase="Running"), other])
    assert drawn.where["pod-1"] != elsewhere


def test_a_running_pod_that_shrinks_makes_room() -> None:
    drawn = world(ONE_NODE)
    [big] = pods(None, 1, spec(gpu=2), prefix="big", on="a1")
    drawn.run(members=[big, *pods(None, 1)])
    assert drawn.where == {}
    drawn.run(members=[replace(big, spec=spec(gpu=1))])
    assert drawn.where == {"pod-0": "a1"}


class TestBindFailures:
    def test_the_pod_waits_again_and_is_placed_again(self) -> None:
        drawn = world(ONE_NODE)
        [pod] = pods(None, 1)
        drawn.run(members=[pod]).tell(BindFailed(pod.uid, "the API server said no"))
        assert drawn.engine.cluster.placement(pod.uid) is None
        drawn.where.clear()
        drawn.run()
        assert drawn.where == {"pod-0": "a1"}
        assert any("the API server said no" in entry.what for entry in drawn.engine.story("default/pod-0"))

    def test_a_final_failure_forgets_the_pod(self) -> None:
        drawn = world(ONE_NODE)
        [pod] = pods(None, 1, spec(gpu=2))
        drawn.run(members=[pod]).tell(BindFailed(pod.uid, "it was deleted", final=True))
        drawn.run(members=pods(None, 2, prefix="next"))
        assert drawn.used("next") == {"a1": 2}

    def test_a_pod_that_turns_out_to_be_bound_stays_where_it_is(self) -> None:
        drawn = world(ONE_NODE)
        [pod] = pods(None, 1)
        drawn.run(members=[pod])
        drawn.tell(
            PodUpserted(replace(pod, node_name="a1", phase="Running")), BindFailed(pod.uid, "timed out")
        )
        assert drawn.engine.cluster.placement(pod.uid) is not None

    def test_a_gang_member_is_placed_again_beside_the_others(self) -> None:
        drawn = world("zone-a rack-1 : a1=2 a2=2\nzone-a rack-2 : b1=1")
        members = pods("train", 3)
        drawn.run(gang(min_member=3, required="rack"), members=members)
        drawn.tell(BindFailed(members[1].uid, "conflict"))
        drawn.run(members=pods(None, 1, prefix="other"))
        assert set(drawn.used("train")) == {"a1", "a2"}

    def test_on_a_node_that_is_gone_by_then(self) -> None:
        drawn = world(ONE_NODE)
        [pod] = pods(None, 1)
        drawn.run(members=[pod]).tell(NodeDeleted("a1"), BindFailed(pod.uid, "no such node"))
        drawn.tell(NodeUpserted(node("a1", allocatable={GPU: 2})))
        assert drawn.engine.cluster.placement(pod.uid) is None
        drawn.run()
        assert drawn.engine.cluster.placement(pod.uid) is not None

    def test_of_an_unknown_pod_says_nothing(self) -> None:
        assert world(ONE_NODE).engine.handle(BindFailed("nobody", "whatever")) == []


class TestNodesGoAndReturn:
    def test_the_pods_on_it_hold_it_again_when_it_returns(self) -> None:
        drawn = world(ONE_NODE)
        drawn.run(members=pods(None, 2, prefix="old", on="a1"))
        drawn.tell(NodeDeleted("a1"))
        assert drawn.engine.cluster.placed_count == 0
        drawn.tell(NodeUpserted(node("a1", allocatable={GPU: 2})))
        assert drawn.engine.cluster.placed_count == 2
        drawn.run(members=pods(None, 1))
        assert drawn.reason("pod-0") is Reason.INSUFFICIENT_RESOURCES

    def test_a_pod_deleted_in_between_does_not_come_back(self) -> None:
        drawn = world(ONE_NODE)
        [placed] = pods(None, 1)
        [running] = pods(None, 1, prefix="old", on="a1")
        drawn.run(members=[placed, running])
        drawn.tell(NodeDeleted("a1"), PodDeleted(placed.uid), PodDeleted(running.uid))
        drawn.tell(NodeUpserted(node("a1", allocatable={GPU: 2})))
        assert drawn.engine.cluster.placed_count == 0

    def test_pods_may_be_known_before_their_node(self) -> None:
        drawn = world(ONE_NODE).run(members=pods(None, 2, prefix="old", on="late"))
        drawn.tell(NodeUpserted(node("late", allocatable={GPU: 2})))
        drawn.run(members=pods(None, 4))
        assert drawn.used("pod") == {"a1": 2}

    def test_waiting_pods_take_what_a_new_node_brings(self) -> None:
        drawn = world(ONE_NODE).run(members=pods(None, 3))
        assert len(drawn.where) == 2
        drawn.tell(NodeUpserted(node("a2", allocatable={GPU: 1}))).run()
        assert drawn.used() == {"a1": 2, "a2": 1}

    def test_a_node_that_shrinks_keeps_its_pods_and_takes_no_more(self) -> None:
        drawn = world("zone-a rack-1 : a1=4").run(members=pods(None, 2, prefix="old"))
        drawn.tell(NodeUpserted(node("a1", allocatable={GPU: 1}))).run(members=pods(None, 1))
        assert drawn.reason("pod-0") is Reason.INSUFFICIENT_RESOURCES
        drawn.tell(NodeUpserted(node("a1", allocatable={GPU: 3}))).run()
        assert drawn.where["pod-0"] == "a1"

    def test_removing_an_unknown_node_changes_nothing(self) -> None:
        assert world(ONE_NODE).tell(NodeDeleted("nowhere")).engine.cluster.node_count == 1


class TestMembersComeAndGo:
    def test_a_running_member_that_appears_late_completes_the_gang(self) -> None:
        drawn = world("zone-a rack-1 : a1=3")
        members = pods("train", 3)
        drawn.run(gang(min_member=3), members=members[:2])
        assert drawn.reason("train") is Reason.GANG_INCOMPLETE
        drawn.run(members=[replace(members[2], node_name="a1", phase="Running")])
        assert drawn.used() == {"a1": 2}

    def test_a_hopeless_member_that_is_deleted_no_longer_stands_in_the_way(self) -> None:
        drawn = world(ONE_NODE)
        [big] = pods("train", 1, spec(gpu=8), prefix="a-big")
        drawn.run(gang(min_member=2), members=[big, *pods("train", 2)])
        assert drawn.where == {}
        drawn.tell(PodDeleted(big.uid)).run()
        assert drawn.used() == {"a1": 2}

    def test_a_recreated_member_joins_the_others(self) -> None:
        drawn = world("zone-a rack-1 : a1=2 a2=2\nzone-b rack-1 : b1=1")
        members = pods("train", 4)
        drawn.run(gang(min_member=4, required="rack"), members=members)
        gone = members[2]
        drawn.tell(PodDeleted(gone.uid))
        assert drawn.where.pop(gone.name) in ("a1", "a2")
        drawn.run(members=[replace(gone, uid="another")])
        assert drawn.used() == {"a1": 2, "a2": 2}

    def test_a_pod_that_leaves_its_gang_is_a_plain_pod(self) -> None:
        drawn = world(ONE_NODE)
        [pod] = pods("train", 1)
        drawn.run(gang(min_member=2), members=[pod])
        drawn.run(members=[replace(pod, group=None)])
        assert drawn.where == {"train-0": "a1"}
        assert not drawn.engine.unschedulable


def test_a_newer_pod_of_the_same_name_waits_on_when_the_older_one_is_deleted() -> None:
    drawn = world("zone-a rack-1 : a1=0")
    [old] = pods(None, 1)
    new = replace(old, uid="newer")
    drawn.tell(PodUpserted(old), PodUpserted(new), PodDeleted(old.uid))
    drawn.tell(NodeUpserted(node("a1", allocatable={GPU: 1}))).run()
    assert drawn.engine.cluster.placement("newer") is not None


def test_a_uid_that_changes_its_name_is_one_pod() -> None:
    drawn = world(ONE_NODE)
    [pod] = pods(None, 1)
    drawn.run(members=[pod, replace(pod, name="renamed")])
    assert drawn.where == {"renamed": "a1"}
    assert drawn.engine.cluster.placed_count == 1


def test_a_gang_in_a_namespace_called_pod_is_a_gang() -> None:
    drawn = world(ONE_NODE)
    group = replace(gang(min_member=2), namespace="pod")
    drawn.run(group, members=[replace(pod, namespace="pod") for pod in pods("train", 2)])
    assert drawn.rank == {"train-0": 0, "train-1": 1}


def test_every_decision_about_an_item_is_in_its_story() -> None:
    drawn = world(ONE_NODE)
    [pod] = pods(None, 1, spec(gpu=3))
    drawn.run(members=[pod])
    drawn.tell(NodeUpserted(node("a2", allocatable={GPU: 3}))).run()
    story = drawn.engine.story("default/pod-0")
    assert [entry.outcome.reason for entry in story if entry.outcome is not None] == [
        Reason.INSUFFICIENT_RESOURCES,
        None,
    ]
    assert drawn.engine.story("default/nobody") == ()


def test_a_tick_may_be_limited_to_some_items() -> None:
    drawn = world(ONE_NODE)
    drawn.tell(*(PodUpserted(pod) for pod in pods(None, 2)))
    for expected in (1, 1, 0):
        decisions = drawn.engine.handle(Tick(limit=1))
        assert len(bindings_of(decisions)) == expected
        assert len(outcomes_of(decisions)) == expected


class TestTheOrderInWhichNodesAppearDecidesNothing:
    """Of equal nodes the first by name is taken, whatever slot it has."""

    def test_for_a_plain_pod(self) -> None:
        nodes = [node(name, allocatable={GPU: 1}) for name in ("n10", "n9", "n2")]
        assert world(nodes).run(members=pods(None, 1)).where == {"pod-0": "n2"}

    def test_for_a_node_that_takes_the_slot_of_another(self) -> None:
        drawn = world("zone-a rack-1 : a1=1 a2=1")
        drawn.tell(NodeDeleted("a1"), NodeUpserted(node("a9", allocatable={GPU: 1})))
        assert drawn.run(members=pods(None, 1)).where == {"pod-0": "a2"}

    def test_for_pods_placed_one_by_one(self) -> None:
        near = PluginEntry(name="network-topology", arguments={"network-topology.keys": "rack"})
        nodes = [node(name, {"rack": "r"}, {GPU: 1}) for name in ("n3", "n1", "n2")]
        drawn = world(nodes, levels=("rack",), plugins=[near])
        assert drawn.run(gang(min_member=2), members=pods("train", 2)).where == {
            "train-0": "n1",
            "train-1": "n2",
        }
