"""Whether a gang that waits could ever start: what is said of it must not depend on room alone."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.reading.configuration import Configuration
from closeby.simulator.runs import simulate
from closeby.whatif.prospects import prospect
from tests.crowded import world
from tests.golden.fixture import Golden
from tests.worlds import GPU, draw, gang, pods, spec

TWO_RACKS = "a r1 : n1=4 n2=4\na r2 : n3=4 n4=4"
ONE_RACK = "a r1 : n1=4 n2=4"
STARTS = "so it can start once enough is free."
FOR_EVER = (
    "but the end of jobs is not enough for that: long-running pods (of Deployments, StatefulSets and the "
    "like) would have to go."
)
ADVICE = "ask for a coarser level or for fewer pods at once."


def said(members: Sequence[Pod], nodes: str | Sequence[Node], group: PodGroup | None = None) -> list[str]:
    """The outlook of a gang ``train`` that requires a rack."""
    group = group or gang(min_member=sum(one.group == "train" for one in members), required="rack")
    run = simulate(world([group], members, nodes), Configuration())
    reason = run.gang_outcomes["default/train"].reason
    assert reason in (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)
    own = [pod for pod in run.pods if pod.group == "train"]
    outlook = prospect(run, group, reason, own)
    assert outlook is not None
    return list(outlook.sentences)


def whole(count: int) -> list[Pod]:
    """Members of which each wants a node for itself."""
    return pods("train", count, spec(gpu=4))


def on(node: str, gpus: int, owner: str = "") -> list[Pod]:
    return pods(None, 1, spec(gpu=gpus), prefix=f"on-{node}", on=node, owner=owner)


def test_no_rack_is_large_enough_although_the_cluster_is(golden: Golden) -> None:
    """Three whole nodes of two racks of two; on each rack one node is busy."""
    golden("explain", said([*whole(3), *on("n1", 4), *on("n3", 4)], TWO_RACKS))


def test_a_cluster_without_a_topology_may_be_too_small_even_if_it_were_empty() -> None:
    manifests = replace(world([gang(min_member=5)], whole(5), TWO_RACKS), topologies=())
    run = simulate(manifests, Configuration())
    assert run.tree_of(run.groups[0]) is None
    outlook = prospect(run, run.groups[0], run.gang_outcomes["default/train"].reason, run.pods)
    assert outlook is not None and not outlook.ever_fits
    assert "would hold only 4 of its 5 pods" in outlook.sentences[0]


def test_a_coarser_level_is_advised_only_where_it_would_do(golden: Golden) -> None:
    golden("explain", said(whole(3), ONE_RACK))
    golden("explain", said(pods("train", 1, spec(gpu=9)), ONE_RACK))


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        ({"unschedulable": True}, "n2 (the node is cordoned (spec.unschedulable))"),
        ({"ready": False}, "n2 (the node is not ready)"),
        (
            {"taints": (Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),)},
            "n2 (taint node.kubernetes.io/not-ready:NoSchedule not tolerated)",
        ),
    ],
)
def test_an_empty_rack_of_which_a_node_takes_no_pods(broken: dict[str, object], cause: str) -> None:
    one, other = draw(ONE_RACK)
    never = "As the nodes are, no rack would hold more than 1 of its 2 pods even if it were empty"
    advice = "Ask for fewer pods at once."
    broken_one = replace(other, **broken)
    assert said(whole(2), [one, broken_one]) == [f"{never}: none fits on {cause}.", advice]
    few = "If these nodes took its pods, it would hold 2 of them."
    said_of_three = said(whole(3), [one, broken_one])
    assert said_of_three == [f"{never.replace('2 pods', '3 pods')}: none fits on {cause}.", few, advice]


def test_what_a_daemon_holds_does_not_get_free(golden: Golden) -> None:
    never, why = said([*whole(2), *on("n1", 1, "DaemonSet/agent")], ONE_RACK)
    golden("explain", never)
    golden("explain", why)


def test_a_daemon_that_takes_no_room_from_the_gang_is_not_to_blame() -> None:
    agent = pods(None, 1, PodSpec(requests=(("cpu", 100),)), prefix="agent", on="n1", owner="DaemonSet/agent")
    asks = PodSpec(requests=((GPU, 4), ("cpu", 1_000)))
    nodes = [replace(one, allocatable={**one.allocatable, "cpu": 64_000}) for one in draw(ONE_RACK)]
    (never,) = said([*pods("train", 3, asks), *agent], nodes)
    assert never.startswith("Even if it were empty, no rack would hold more than 2 of its 3 pods")


def test_what_a_deployment_holds_gets_free_but_not_by_an_end(golden: Golden) -> None:
    golden("explain", said([*whole(2), *on("n1", 1, "ReplicaSet/web")], ONE_RACK))


def test_it_can_start_where_ends_of_jobs_are_enough(golden: Golden) -> None:
    (one,) = said([*whole(2), *on("n1", 1), *on("n4", 1, "ReplicaSet/web")], "a r1 : n1=4 n2=4\na r2 : n4=4")
    golden("explain", one)
    anywhere = gang(min_member=2)
    golden("explain", said([*whole(2), *on("n1", 1)], ONE_RACK, anywhere))


def test_the_same_holds_for_the_whole_cluster(golden: Golden) -> None:
    anywhere = gang(min_member=3)
    golden("explain", said(whole(3), ONE_RACK, anywhere))
    golden(
        "explain", said([*whole(3), *on("n1", 1, "ReplicaSet/web")], TWO_RACKS.replace("n4=4", ""), anywhere)
    )


def test_members_that_run_hold_the_others_to_their_rack() -> None:
    """r2 is empty and large, but one member runs in r1, which has no node for the two others."""
    first, *others = whole(3)
    members = [replace(first, node_name="n1", phase="Running"), *others]
    assert said(members, "a r1 : n1=4 n2=4\na r2 : n3=4 n4=4 n5=4") == [
        f"Even if it were empty, no rack would hold more than 1 of its 2 pods: {ADVICE}"
    ]
