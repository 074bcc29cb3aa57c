"""`closeby simulate` and `closeby explain`: what does not fit clears the cheapest domain."""

from typing import Any

import pytest

from tests.cli.calling import Manifest, closeby, gang, pod, racks, report, text, train
from tests.golden.fixture import Golden

CLASSES = {"low": 10, "middle": 100, "high": 1000}
BUDGET: Manifest = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "keep", "namespace": "default"},
    "spec": {"selector": {"matchLabels": {"closeby.dev/pod-group": "fresh"}}, "maxUnavailable": 0},
}


def running(name: str, nodes: tuple[int, ...], priority: str, start: str) -> list[Manifest]:
    """A gang of a Job, with one pod of 8 GPUs on each node."""
    members = []
    for index, number in enumerate(nodes):
        one = pod(f"{name}-{index}", 8, gang=name, on=f"node-{number}", priorityClassName=priority)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "controller": True, "uid": name}
        one["metadata"]["ownerReferences"] = [owner]
        one["status"]["startTime"] = f"2026-01-01T{start}:00Z"
        members.append(one)
    return [gang(name, len(nodes)), *members]


def cluster(priority: str = "high") -> list[Manifest]:
    """Three racks of two nodes, all full, and a gang that needs one of them."""
    classes: list[Manifest] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in CLASSES.items()
    ]
    waiting = train(2, 8)
    for one in waiting[1:]:
        one["spec"]["priorityClassName"] = priority
    return [
        *racks({"a/r1": 2, "a/r2": 2, "b/r3": 2}),
        *classes,
        *running("old", (1, 2), "low", "00:00"),
        *running("fresh", (3, 4), "low", "09:00"),
        *running("important", (5, 6), "middle", "10:00"),
        *waiting,
    ]


def simulated(*manifests: Manifest, options: tuple[str, ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = report("simulate", "-f", "-", *options, stdin=text(*manifests))
    return found


def test_the_cheapest_rack_is_cleared() -> None:
    found = simulated(*cluster())
    assert found["preemptions"] == [
        {
            "preemptor": "default/train",
            "kind": "gang",
            "node": None,
            "domain": ["a", "r2"],
            "victims": ["default/fresh-0", "default/fresh-1"],
            "cost": {
                "pdbViolations": 0,
                "highestPriority": 10,
                "gangsBroken": 1,
                "lostAcceleratorSeconds": 57600.0 + 16 * 300,
                "accelerators": 16,
                "outside": 0,
                "pods": 2,
                "secondsToEnd": 30,
            },
        }
    ]
    pods = {one["name"]: one for one in found["pods"]}
    assert (pods["fresh-0"]["phase"], pods["fresh-0"]["node"], pods["fresh-0"]["reason"]) == (
        "Preempted",
        None,
        None,
    )
    assert "default/train" in pods["fresh-0"]["message"]
    assert "Job fresh makes it again" in pods["fresh-0"]["message"]
    assert {pods[name]["node"] for name in ("train-0", "train-1")} == {"node-3", "node-4"}
    groups = {one["name"]: one["scheduled"] for one in found["groups"]}
    assert groups == {"fresh": 0, "important": 2, "old": 2, "train": 2}


def test_the_time_of_lost_work_can_be_said() -> None:
    found = simulated(*cluster(), options=("--now", "2026-01-01T09:00:30Z"))
    assert found["preemptions"][0]["cost"]["lostAcceleratorSeconds"] == (30 + 300) * 16
    explained = report("explain", "train", "-f", "-", "--now", "2026-01-01T09:00:30Z", stdin=text(*cluster()))
    assert explained["preemptions"][0]["cost"]["lostAcceleratorSeconds"] == (30 + 300) * 16


@pytest.mark.parametrize("written", ["now", "2026-01-01", "2026-02-30T09:00:30Z"])
def test_what_is_no_time_is_refused_with_one_that_is(written: str) -> None:
    refused = closeby("simulate", "-f", "-", "--now", written, stdin=text(*cluster()))
    assert (refused.exit_code, f"{written!r} is not a time; write it like 20" in refused.stderr) == (2, True)


def test_a_live_cluster_has_its_own_time() -> None:
    refused = closeby("explain", "train", "--now", "2026-01-01T09:00:30Z")
    assert (refused.exit_code, "--now is the time of manifests" in refused.stderr) == (2, True)


def test_without_preemption_the_gang_waits() -> None:
    found = simulated(*cluster(), options=("--no-preemption",))
    assert found["preemptions"] == []
    assert {one["phase"] for one in found["pods"]} == {"Running", "Pending"}


def test_a_budget_protects_a_rack() -> None:
    assert simulated(*cluster(), BUDGET)["preemptions"][0]["domain"] == ["a", "r1"]


def test_a_plain_pod_clears_a_node_as_kube_scheduler_does() -> None:
    alone = pod("solo", 8, priorityClassName="high")
    lone = pod("lone", 8, on="node-7", priorityClassName="low")
    manifests = cluster(priority="low")
    found = simulated(*manifests, *racks({"c/r4": 7})[-1:], lone, alone)
    (entry,) = found["preemptions"]
    assert (entry["kind"], entry["node"], entry["victims"]) == ("pod", "node-7", ["default/lone"])


def test_the_order_of_the_input_changes_nothing() -> None:
    manifests = cluster()
    assert simulated(*manifests) == simulated(*reversed(manifests))


def test_explain_says_what_priority_would_do() -> None:
    found = report("explain", "train", "-f", "-", stdin=text(*cluster(priority="low")))
    assert found["preemptions"] == []
    assert (found["noPreemption"]["abovePriority"], found["noPreemption"]["domain"]) == (10, ["a", "r2"])


@pytest.mark.parametrize("command", [("simulate",), ("explain", "train"), ("explain", "fresh-0")])
def test_views(golden: Golden, command: tuple[str, ...]) -> None:
    golden("preemption", closeby(*command, "-f", "-", stdin=text(*cluster())).stdout)


def test_a_view_of_what_waits(golden: Golden) -> None:
    golden("preemption", closeby("explain", "train", "-f", "-", stdin=text(*cluster(priority="low"))).stdout)
