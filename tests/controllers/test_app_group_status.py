"""What the status of an AppGroup says: its pods, its order, and what is wrong with it."""

from typing import Any

import msgspec
import pytest

from closeby.controllers.applications.status import (
    Calculation,
    Member,
    app_group_status,
    calculated,
    member,
    problems_of,
)
from closeby.controllers.statuses import SeenStatus, WantedStatus
from closeby.objects.applications import AppGroup
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Condition
from tests.applications.calls import ONLINE_BOUTIQUE
from tests.controllers.custom import PUBLISHED_APP, app_group

NOW = 1_700_000_000.0
STAMP = "2023-11-14T22:13:20Z"

#: The KEP's example: P1 needs P2, and P2 needs P3.
CHAIN = """
spec:
  numMembers: 3
  topologySortingAlgorithm: KahnSort
  Pods:
    - {name: P1, type: Pod, dependencies: [{name: P2, type: Pod}]}
    - {name: P2, type: Pod, dependencies: [{name: P3, type: Pod}]}
    - {name: P3, type: Pod}
"""
PUBLISHED_CHAIN = """
spec:
  numMembers: 3
  topologySortingAlgorithm: KahnSort
  workloads:
    - workload:
        {kind: Deployment, name: p1-deployment, selector: p1, apiVersion: apps/v1, namespace: default}
      dependencies: [{workload: {kind: Deployment, name: p3-deployment, selector: p3}, minBandwidth: 1M}]
    - workload: {kind: Deployment, name: p3-deployment, selector: p3, apiVersion: apps/v1}
      dependencies: [{workload: {kind: Deployment, name: p2-deployment, selector: p2}}]
"""


def boutique(algorithm: str) -> str:
    pods = []
    for line in ONLINE_BOUTIQUE.strip().splitlines():
        name, _, needs = line.partition(">")
        calls = ", ".join(f"{{name: {one}, type: Pod}}" for one in needs.split())
        pods.append(f"    - {{name: {name.strip()}, type: Pod, dependencies: [{calls}]}}")
    head = f"spec:\n  numMembers: 10\n  topologySortingAlgorithm: {algorithm}\n  Pods:\n"
    return head + "\n".join(pods)


def pod(name: str, workload: str, node: str | None = None, phase: str = "", **more: Any) -> Member:
    label = {"appgroup.diktyo.x-k8s.io.workload": workload} if workload else {}
    phase = phase or ("Running" if node else "Pending")
    return member(
        Pod(
            namespace="default",
            name=name,
            uid=name,
            spec=PodSpec(),
            labels=label,
            node_name=node,
            phase=phase,
            **more,
        )
    )


def order_of(group: AppGroup | Condition, before: Calculation | None = None) -> Calculation | None:
    return calculated(group, before, NOW) if isinstance(group, AppGroup) else None


def status(
    it: SeenStatus, group: AppGroup | Condition, *members: Member, longest: int = 500_000
) -> WantedStatus:
    return app_group_status(it, group, order_of(group), members, longest)


def kep_order(*names: str) -> list[dict[str, object]]:
    return [{"podName": name, "index": place} for place, name in enumerate(names, start=1)]


def test_the_keps_pods() -> None:
    """Two replicas each of P1 and P2 have nodes."""
    it, group = app_group(CHAIN)
    found = status(
        it,
        group,
        pod("pod2-test2", "P2", "worker-4", created=40.0),
        pod("pod1-test1", "P1", "worker-1", created=20.0),
        pod("pod3-test1", "P3", created=50.0),
        pod("pod1-test2", "P1", "worker-2", created=30.0),
        pod("pod2-test1", "P2", "worker-2", "Pending", created=35.0),
    )
    assert found.fields == {
        "runningPods": 3,
        "podsScheduled": [
            {"name": "P1", "replicaID": "pod1-test1", "hostname": "worker-1"},
            {"name": "P1", "replicaID": "pod1-test2", "hostname": "worker-2"},
            {"name": "P2", "replicaID": "pod2-test1", "hostname": "worker-2"},
            {"name": "P2", "replicaID": "pod2-test2", "hostname": "worker-4"},
        ],
        "scheduleStartTime": "1970-01-01T00:00:20Z",
        "topologyCalculationTime": STAMP,
        "topologyOrder": kep_order("P1", "P2", "P3"),
    }
    (valid,) = found.conditions
    assert (valid.type, valid.status, valid.observed_generation) == ("Valid", "True", 3)


@pytest.mark.parametrize(
    ("algorithm", "order"),
    [
        ("KahnSort", "P1 P10 P9 P8 P7 P6 P5 P4 P3 P2"),
        ("ReverseKahn", "P2 P3 P4 P5 P6 P7 P8 P9 P10 P1"),
        ("AlternateKahn", "P1 P2 P10 P3 P9 P4 P8 P5 P7 P6"),
        ("TarjanSort", "P1 P10 P9 P8 P7 P5 P6 P4 P3 P2"),
    ],
)
def test_the_keps_online_boutique(algorithm: str, order: str) -> None:
    it, group = app_group(boutique(algorithm))
    found = status(it, group)
    assert found.fields["topologyOrder"] == kep_order(*order.split())
    assert found.fields["runningPods"] == 0
    assert found.fields["podsScheduled"] is None
    assert found.fields["scheduleStartTime"] is None


def test_the_published_shape_names_workloads_as_its_spec_does() -> None:
    """The entries are sorted by selector, as the published plugin looks them up; p2 is not declared."""
    it, group = app_group(PUBLISHED_CHAIN, PUBLISHED_APP)
    found = status(it, group, pod("a", "p1", "n1", created=7.0), pod("b", "p1"))
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment"}
    first = {**deployment, "name": "p1-deployment", "namespace": "default", "selector": "p1"}
    assert found.fields == {
        "runningWorkloads": 1,
        "scheduleStartTime": "1970-01-01T00:00:07Z",
        "topologyCalculationTime": STAMP,
        "topologyOrder": [
            {"workload": first, "index": 1},
            {"workload": {"kind": "Deployment", "name": "p2-deployment", "selector": "p2"}, "index": 3},
            {"workload": {**deployment, "name": "p3-deployment", "selector": "p3"}, "index": 2},
        ],
    }
    # Its definition knows no conditions.
    assert (found.conditions, found.types) == ((), frozenset())


@pytest.mark.parametrize(
    ("one", "scheduled", "running"),
    [
        (pod("p", "P1"), False, 0),
        (pod("p", "P1", "n1", "Pending"), True, 0),
        (pod("p", "P1", "n1"), True, 1),
        (pod("p", "P1", "n1", terminating=True), True, 0),
        (pod("p", "P1", "n1", "Succeeded"), False, 0),
        (pod("p", "P1", "n1", "Failed"), False, 0),
        (pod("p", "P1", "n1", "Unknown"), True, 0),
    ],
)
def test_which_pods_are_scheduled_and_which_run(one: Member, scheduled: bool, running: int) -> None:
    it, group = app_group(CHAIN)
    found = status(it, group, one)
    entry = {"name": "P1", "replicaID": "p", "hostname": "n1"}
    assert found.fields["podsScheduled"] == ([entry] if scheduled else None)
    assert found.fields["runningPods"] == running


def test_a_pod_without_a_workload_label_counts_by_its_name() -> None:
    it, group = app_group(CHAIN)
    found = status(it, group, pod("P3", "", "n1"))
    assert found.fields["podsScheduled"] == [{"name": "P3", "replicaID": "P3", "hostname": "n1"}]


def test_what_was_written_stays() -> None:
    """The start is told once, and the time of the calculation is that of the order that stands there."""
    it, group = app_group(
        CHAIN
        + """
status:
  scheduleStartTime: "2020-01-01T00:00:00Z"
  topologyCalculationTime: "2020-02-02T00:00:00Z"
  topologyOrder: [{podName: P1, index: 1}, {podName: P2, index: 2}, {podName: P3, index: 3}]
"""
    )
    found = status(it, group, pod("p", "P1", created=50.0))
    assert found.fields["scheduleStartTime"] == "2020-01-01T00:00:00Z"
    assert found.fields["topologyCalculationTime"] == "2020-02-02T00:00:00Z"


def test_another_order_has_another_time() -> None:
    it, group = app_group(
        CHAIN.replace("KahnSort", "ReverseKahn")
        + """
status:
  topologyCalculationTime: "2020-02-02T00:00:00Z"
  topologyOrder: [{podName: P1, index: 1}, {podName: P2, index: 2}, {podName: P3, index: 3}]
"""
    )
    found = status(it, group)
    assert found.fields["topologyOrder"] == kep_order("P3", "P2", "P1")
    assert found.fields["topologyCalculationTime"] == STAMP


def test_an_order_that_did_not_change_keeps_its_calculation() -> None:
    _, group = app_group(CHAIN)
    assert isinstance(group, AppGroup)
    first = calculated(group, None, NOW)
    assert calculated(group, first, NOW + 60) is first


@pytest.mark.parametrize(
    ("change", "message", "order"),
    [
        (
            ("{name: P3, type: Pod}", "{name: P3, type: Pod, dependencies: [{name: P2}]}"),
            "spec: P2 and P3 need each other in a circle; drop a dependency",
            "P1 P2 P3",
        ),
        (
            ("KahnSort", "BubbleSort"),
            "spec.topologySortingAlgorithm: 'BubbleSort' is not a sort, so KahnSort is used; use one of",
            "P1 P2 P3",
        ),
        (
            ("numMembers: 3", "numMembers: 2"),
            "spec.numMembers: 2 is less than the 3 workloads, each of which has at least one pod",
            "P1 P2 P3",
        ),
        (
            ("- {name: P3, type: Pod", "- {type: Pod"),
            "spec.Pods[2].name: is missing; name the workload",
            None,
        ),
    ],
)
def test_problems_become_conditions(change: tuple[str, str], message: str, order: str | None) -> None:
    """What can't be used has no order; with all else it has one."""
    it, group = app_group(CHAIN.replace(*change))
    found = status(it, group)
    (valid,) = found.conditions
    assert (valid.type, valid.status, valid.reason) == ("Valid", "False", "InvalidSpec")
    assert valid.message.startswith(message)
    assert found.fields["topologyOrder"] == (order and kep_order(*order.split()))


def test_a_dependency_on_what_is_no_workload_and_no_pod_is_a_problem_once_there_are_pods() -> None:
    it, group = app_group(CHAIN.replace("- {name: P3, type: Pod", "- {name: P4, type: Pod"))
    assert status(it, group).conditions[0].status == "True"
    (valid,) = status(it, group, pod("p", "P1", "n1")).conditions
    assert (valid.status, valid.reason) == ("False", "InvalidSpec")
    assert "'P3'" in valid.message
    (valid,) = status(it, group, pod("p", "P3", "n1")).conditions
    assert valid.status == "True"


def test_an_object_that_cant_be_read_still_counts_its_pods() -> None:
    it, group = app_group("spec: {Pods: 5}")
    assert isinstance(group, Condition)
    found = status(it, group, pod("p", "P1", "n1"))
    assert found.fields["runningPods"] == 1
    assert found.fields["topologyOrder"] is None
    (valid,) = found.conditions
    assert (valid.status, valid.reason) == ("False", "InvalidSpec")
    assert problems_of(group, None) == (group,)


def test_a_list_too_long_for_one_object_is_cut_and_says_so() -> None:
    it, group = app_group(CHAIN)
    members = [pod(f"pod-{place:05}", "P1", "node-1") for place in range(20_000)]
    found = status(it, group, *members)
    listed = found.fields["podsScheduled"]
    assert isinstance(listed, list)
    assert len(msgspec.json.encode(listed)) <= 500_000
    assert found.fields["runningPods"] == 20_000
    _, cut = found.conditions
    assert (cut.type, cut.status, cut.reason) == ("PodsListed", "False", "TooManyPods")
    assert cut.message == f"{len(listed):,} of 20,000 pods with a node are listed; the others are not"
    assert {one.type for one in status(it, group, *members[:9]).conditions} == {"Valid"}
