"""Candidate domains are judged with every filter, and tried one after another until one holds the gang."""

from typing import Any

import pytest
from msgspec.structs import replace

from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import HostPort, NodeSelectorTerm, Pod, PodSpec, Requirement, Toleration
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.reasons.facts import ShortOf
from tests.golden.fixture import Golden
from tests.worlds import GPU, fabric, gang, node, pods, spec, world

PAIR = gang(min_member=2, required="rack")


def two_racks(tight: Node, *others: Node) -> list[Node]:
    """rack-1 with one node of 2 GPUs that something is wrong with, rack-2 with one of 4."""
    return [tight, *others, node("b1", {"zone": "z", "rack": "rack-2"}, {GPU: 4, "cpu": 4000})]


def tight(**fields: Any) -> Node:
    return replace(node("a1", {"zone": "z", "rack": "rack-1"}, {GPU: 2, "cpu": 2000}), **fields)


class TestATighterRackIsPassedOver:
    def test_not_when_nothing_is_wrong_with_it(self) -> None:
        drawn = world(two_racks(tight()), fabric("zone", "rack"))
        assert drawn.run(PAIR, members=pods("train", 2)).used() == {"a1": 2}

    def test_when_its_nodes_are_tainted(self) -> None:
        nodes = two_racks(tight(taints=(Taint("maintenance", "", "NoSchedule"),)))
        drawn = world(nodes, fabric("zone", "rack"))
        assert drawn.run(PAIR, members=pods("train", 2)).used() == {"b1": 2}
        tolerating = PodSpec(
            requests=((GPU, 1),), tolerations=(Toleration("maintenance", operator="Exists"),)
        )
        drawn = world(nodes, fabric("zone", "rack"))
        assert drawn.run(PAIR, members=pods("train", 2, tolerating)).used() == {"a1": 2}

    def test_when_its_nodes_lack_cpu(self) -> None:
        drawn = world(two_racks(tight(allocatable={GPU: 2, "cpu": 1500})), fabric("zone", "rack"))
        assert drawn.run(PAIR, members=pods("train", 2, spec(gpu=1, cpu=1000))).used() == {"b1": 2}

    def test_when_its_nodes_take_no_more_pods(self) -> None:
        drawn = world(two_racks(tight(allocatable={GPU: 2, "pods": 1})), fabric("zone", "rack"))
        assert drawn.run(PAIR, members=pods("train", 2)).used() == {"b1": 2}

    def test_when_its_nodes_are_unschedulable_or_not_ready(self) -> None:
        for broken in (tight(unschedulable=True), tight(ready=False)):
            drawn = world(two_racks(broken), fabric("zone", "rack"))
            assert drawn.run(PAIR, members=pods("train", 2)).used() == {"b1": 2}

    def test_when_its_nodes_do_not_match_the_affinity(self) -> None:
        term = NodeSelectorTerm(expressions=(Requirement("rack", "NotIn", ("rack-1",)),))
        needs = PodSpec(requests=((GPU, 1),), required_affinity=(term,))
        drawn = world(two_racks(tight()), fabric("zone", "rack"))
        assert drawn.run(PAIR, members=pods("train", 2, needs)).used() == {"b1": 2}

    def test_when_its_host_ports_are_taken(self) -> None:
        needs = PodSpec(requests=((GPU, 1),), host_ports=(HostPort(8080),))
        more = node("b2", {"zone": "z", "rack": "rack-2"}, {GPU: 4})
        nodes = two_racks(tight(), node("a2", {"zone": "z", "rack": "rack-1"}, {GPU: 1}), more)
        free = world(nodes, fabric("zone", "rack")).run(PAIR, members=pods("train", 2, needs))
        assert free.used() == {"a1": 1, "a2": 1}
        web = pods(None, 1, PodSpec(host_ports=(HostPort(8080),)), prefix="web", on="a2")
        taken = world(nodes, fabric("zone", "rack")).run(PAIR, members=[*web, *pods("train", 2, needs)])
        assert taken.used("train") == {"b1": 1, "b2": 1}

    def test_when_others_use_it(self) -> None:
        drawn = world(two_racks(tight()), fabric("zone", "rack"))
        drawn.run(PAIR, members=[*pods(None, 1, prefix="old", on="a1"), *pods("train", 2)])
        assert drawn.used() == {"b1": 2}


#: Sizes are multiples of 7, so that no node takes more than 994 of its 1000; they need 8 x 994 + 7. All
#: differ, so that a node has too many mixtures to judge them by sums.
TOO_MANY = [259, 224, 210, 273, 266, 168, 175, 287, 308, 245, 378, 189, 357, 196, 154]
TOO_MANY += [420, 203, 140, 364, 392, 294, 252, 182, 231, 315, 280, 371, 343, 322, 161]


@pytest.fixture
def no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that proves in a moment that pods don't fit is not begun."""
    for limit in ("SOLVER", "SOLVER_WITHOUT_LIMIT"):
        monkeypatch.setattr(f"closeby.scheduling.steps.{limit}", 0)


def members_of(sizes: list[int]) -> list[Pod]:
    """Members of one gang, by the GPUs of each."""
    return [pod for at, size in enumerate(sizes) for pod in pods("train", 1, spec(gpu=size), prefix=f"p{at}")]


class TestUnequalPods:
    """A gang of unequal pods is placed by trial, not refused by counting its largest pod."""

    def test_a_leader_of_4_and_four_workers_of_1_fill_a_node_of_8(self) -> None:
        drawn = world("zone-a rack-1 : a1=8")
        leader = pods("train", 1, spec(gpu=4), prefix="leader")
        drawn.run(gang(min_member=5, required="rack"), members=[*leader, *pods("train", 4, prefix="worker")])
        assert drawn.used() == {"a1": 5}

    def test_racks_that_only_seem_to_hold_them_are_tried_and_left(self) -> None:
        # rack-1 has 8 GPUs, and each kind of pod fits there, but 4 + 3 + 1 do not.
        drawing = "zone-a rack-1 : a1=4 a2=2 a3=2\nzone-a rack-2 : b1=5 b2=4"
        unequal = [pod for size in (4, 3, 1) for pod in pods("train", 1, spec(gpu=size), prefix=f"of-{size}")]
        drawn = world(drawing).run(gang(min_member=3, required="rack"), members=unequal)
        assert drawn.used() == {"b1": 2, "b2": 1}

    def test_a_packing_that_neither_order_of_sizes_finds(self) -> None:
        # 7 + 5 into 12, 6 + 6 into 12, 5 + 4 + 3 into 12.
        sizes = (7, 6, 6, 5, 5, 4, 3)
        unequal = [
            pod for at, size in enumerate(sizes) for pod in pods("train", 1, spec(gpu=size), prefix=f"p{at}")
        ]
        drawn = world("zone-a rack-1 : a1=12 a2=12 a3=12")
        drawn.run(gang(min_member=7, required="rack"), members=unequal)
        assert len(drawn.where) == 7
        assert {pod.name for pod in unequal} == set(drawn.where)

    def test_a_no_says_that_they_do_not_fit_beside_each_other(self) -> None:
        drawn = world("zone-a rack-1 : a1=5 a2=5")
        unequal = [
            *pods("train", 2, spec(gpu=3), prefix="big"),
            *pods("train", 3, spec(gpu=1), prefix="small"),
        ]
        drawn.run(gang(min_member=5), members=unequal)
        assert len(drawn.where) == 5
        drawn = world("zone-a rack-1 : a1=5 a2=5")
        unequal = [
            *pods("train", 2, spec(gpu=3), prefix="big"),
            *pods("train", 2, spec(gpu=2), prefix="small"),
        ]
        more = pods("train", 1, spec(gpu=1), prefix="last")
        drawn.run(gang(min_member=5), members=[*unequal, *more])
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT

    def test_a_topology_is_only_blamed_where_the_cluster_would_hold_them(self) -> None:
        unequal = [
            *pods("train", 1, spec(gpu=4), prefix="big"),
            *pods("train", 3, spec(gpu=2), prefix="small"),
        ]
        drawing = "zone-a rack-1 : a1=4\nzone-a rack-2 : b1=4"
        drawn = world(drawing).run(gang(min_member=4, required="rack"), members=unequal)
        assert drawn.reason("train") is Reason.GANG_DOES_NOT_FIT
        drawn = world(f"{drawing} b2=2").run(gang(min_member=4, required="rack"), members=unequal)
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_a_level_is_named_where_it_is_unknown_whether_the_cluster_holds_the_gang(
        self, no_steps: None
    ) -> None:
        #   No rack holds them, and to try all racks together is too much.
        drawn = world("\n".join(f"zone-a rack-{index} : a{index}=1000" for index in range(8)))
        drawn.run(gang(min_member=len(TOO_MANY), required="rack"), members=members_of(TOO_MANY))
        assert drawn.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED

    def test_a_search_too_large_says_so_instead(self, no_steps: None) -> None:
        unequal = members_of(TOO_MANY)
        drawn = world("zone-a rack-1 : " + " ".join(f"a{index}=1000" for index in range(8)))
        drawn.run(gang(min_member=len(unequal), required="rack"), members=unequal)
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.SEARCH_BUDGET_EXHAUSTED
        assert drawn.shortfall("train").what is ShortOf.SEARCH


class TestHeldPods:
    def test_a_gated_member_waits_alone_when_the_others_suffice(self) -> None:
        gated = pods("train", 1, PodSpec(requests=((GPU, 1),), scheduling_gates=("quota",)), prefix="gated")
        drawn = world("zone-a rack-1 : a1=4")
        drawn.run(PAIR, members=[*gated, *pods("train", 2)])
        assert drawn.used() == {"a1": 2}
        assert drawn.left("train") == {"gated-0": Reason.SCHEDULING_GATED}
        drawn.run(members=pods("train", 1, prefix="gated"))
        assert drawn.where["gated-0"] == "a1"

    def test_a_gang_that_needs_its_gated_members_is_incomplete(self) -> None:
        gated = pods("train", 1, PodSpec(requests=((GPU, 1),), scheduling_gates=("quota",)), prefix="gated")
        drawn = world("zone-a rack-1 : a1=4").run(PAIR, members=[*gated, *pods("train", 1)])
        assert drawn.left("train") == {
            "gated-0": Reason.SCHEDULING_GATED,
            "train-0": Reason.GANG_INCOMPLETE,
        }

    def test_a_member_with_an_unknown_hard_constraint_keeps_the_gang_waiting(self) -> None:
        odd = PodSpec(requests=((GPU, 1),), unsupported=("spec.affinity.podAffinity",))
        drawn = world("zone-a rack-1 : a1=4")
        drawn.run(PAIR, members=[*pods("train", 1, odd, prefix="odd"), *pods("train", 2)])
        assert drawn.where == {}
        assert drawn.reason("train") is Reason.UNSUPPORTED
        assert "spec.affinity.podAffinity" in (drawn.outcome("train").message or "")

    def test_plain_pods_give_their_own_reason(self) -> None:
        odd = PodSpec(unsupported=("spec.resourceClaims",))
        gated = PodSpec(scheduling_gates=("quota",))
        drawn = world("zone-a rack-1 : a1=4")
        drawn.run(members=[*pods(None, 1, odd, prefix="odd"), *pods(None, 1, gated, prefix="gated")])
        assert drawn.reason("odd-0") is Reason.UNSUPPORTED
        assert drawn.reason("gated-0") is Reason.SCHEDULING_GATED


class TestIncompleteGangs:
    def test_members_wait_for_each_other(self, golden: Golden) -> None:
        drawn = world("zone-a rack-1 : a1=4").run(PAIR, members=pods("train", 1))
        assert drawn.reason("train") is Reason.GANG_INCOMPLETE
        golden("refusals", drawn.outcome("train").message or "")
        drawn.run(members=pods("train", 2)[1:])
        assert drawn.used() == {"a1": 2}

    def test_members_wait_for_their_podgroup(self, golden: Golden) -> None:
        drawn = world("zone-a rack-1 : a1=4").run(members=pods("train", 2))
        assert drawn.reason("train") is Reason.GANG_INCOMPLETE
        golden("refusals", drawn.outcome("train").message or "")
        assert drawn.run(PAIR).used() == {"a1": 2}

    def test_a_blocking_condition_of_the_podgroup_keeps_it_waiting(self) -> None:
        wrong = Condition(reason=Reason.INVALID_SPEC, object="PodGroup/train", message="minus", blocking=True)
        drawn = world("zone-a rack-1 : a1=4")
        drawn.run(replace(PAIR, conditions=(wrong,)), members=pods("train", 2))
        assert drawn.reason("train") is Reason.INVALID_SPEC
        assert drawn.run(PAIR).used() == {"a1": 2}
