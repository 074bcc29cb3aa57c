"""A Volcano Job with task-topology on the command line: the proposal's own example."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.cli.calling import Manifest, closeby, report, text

AFFINITY = "volcano.sh/task-topology-affinity"
ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
TRAFFIC = "closeby.dev/task-traffic"


def nodes(**cpus: int) -> list[Manifest]:
    """``node1=2``: a node with two CPUs."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": str(cpu), "pods": "110"}},
        }
        for name, cpu in cpus.items()
    ]


def job(annotations: Mapping[str, str] = {}, min_available: int = 6) -> Manifest:
    """Two ps and four workers of one CPU each."""
    containers = [{"name": "main", "image": "tensorflow", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "tf", "namespace": "default", "annotations": dict(annotations)},
        "spec": {
            "minAvailable": min_available,
            "tasks": [
                {"name": role, "replicas": count, "template": {"spec": {"containers": containers}}}
                for role, count in (("ps", 2), ("worker", 4))
            ],
        },
    }


SEED = {AFFINITY: "ps,worker", ANTI_AFFINITY: "ps"}
CLUSTER = nodes(node1=2, node2=1, node3=4)
BUCKETS = [["tf-ps-0", "tf-worker-0", "tf-worker-2"], ["tf-ps-1", "tf-worker-1", "tf-worker-3"]]


def simulate(*manifests: Manifest, explain: bool = True) -> Any:
    return report("simulate", *(["--explain"] if explain else []), "-f", "-", stdin=text(*manifests))


def test_the_example_of_the_proposal() -> None:
    found = simulate(*CLUSTER, job(SEED))
    placed = sorted(found["pods"], key=lambda pod: pod["order"])
    assert [(pod["name"], pod["node"]) for pod in placed[:5]] == [
        ("tf-ps-0", "node3"),
        ("tf-worker-0", "node3"),
        ("tf-worker-2", "node3"),
        ("tf-ps-1", "node1"),
        ("tf-worker-1", "node1"),
    ]
    assert placed[5]["name"] == "tf-worker-3"
    assert placed[5]["node"] in ("node2", "node3")
    scores = {
        one["pod"].partition("/")[2]: {name: entry["task-topology"] for name, entry in one["scores"].items()}
        for one in found["explain"]
    }
    assert scores["tf-ps-0"] == {"node1": 2, "node2": 1, "node3": 3}
    assert scores["tf-worker-0"] == {"node1": 2, "node2": 1, "node3": 3}
    assert scores["tf-ps-1"] == {"node1": 2, "node2": 1, "node3": 0}
    assert {json.dumps(one["buckets"]) for one in found["explain"]} == {json.dumps(BUCKETS)}


def test_a_job_without_annotations_has_no_buckets() -> None:
    found = simulate(*CLUSTER, job())
    assert {one["buckets"] for one in found["explain"]} == {None}
    assert all("task-topology" not in entry for one in found["explain"] for entry in one["scores"].values())


def test_the_minimum_is_the_first_bucket() -> None:
    found = simulate(*nodes(node1=3), job(SEED, min_available=3))
    assert [pod["name"] for pod in found["pods"] if pod["node"]] == BUCKETS[0]


@pytest.mark.parametrize("annotation", [AFFINITY, ANTI_AFFINITY])
def test_a_wrong_role_is_reported_and_the_job_is_placed_without(annotation: str) -> None:
    found = simulate(*CLUSTER, job({**SEED, annotation: "ps,wroker"}))
    [group] = found["groups"]
    [condition] = group["conditions"]
    assert (condition["reason"], condition["blocking"]) == ("InvalidSpec", False)
    assert condition["field"] == f'metadata.annotations["{annotation}"]'
    assert "no pod of the gang has the role 'wroker'" in condition["message"]
    assert "roles there are: ps, worker" in condition["remedy"]
    assert group["scheduled"] == 6
    assert {one["buckets"] for one in found["explain"]} == {None}


def test_traffic_alone_makes_buckets() -> None:
    found = simulate(*nodes(a=3, b=6), job({TRAFFIC: "ps-worker=10"}))
    assert {pod["node"] for pod in found["pods"]} == {"b"}
    assert found["groups"][0]["conditions"] == []
    assert len(found["explain"][0]["buckets"]) == 1


def test_the_cost_of_a_gangs_traffic_is_reported() -> None:
    """Two nodes of three: each ps and two of its workers on one, which leaves four pairs across."""
    manifests = text(*nodes(a=3, b=3), job({TRAFFIC: "ps-worker=10"}))
    [group] = report("simulate", "-f", "-", stdin=manifests)["groups"]
    assert group["traffic"]["together"] <= group["traffic"]["oneByOne"]
    assert group["traffic"]["together"] > 0
    shown = closeby("explain", "podgroup/tf", "-f", "-", stdin=manifests).stdout
    assert f"The traffic of the pods placed now costs {group['traffic']['together']}" in shown
    [silent] = report("simulate", "-f", "-", stdin=text(*CLUSTER, job(SEED)))["groups"]
    assert "traffic" not in silent


def test_explain_shows_the_buckets() -> None:
    manifests = text(*CLUSTER, job(SEED))
    assert report("explain", "tf", "-f", "-", stdin=manifests)["buckets"] == BUCKETS
    assert report("explain", "tf", "-f", "-", stdin=text(*CLUSTER, job()))["buckets"] is None


@pytest.mark.parametrize("command", [["explain", "podgroup/tf"], ["simulate", "--explain"]])
def test_the_table_says_which_pods_belong_together_and_where_they_are(command: list[str]) -> None:
    shown = closeby(*command, "-f", "-", stdin=text(*CLUSTER, job(SEED)), environment={"COLUMNS": "80"})
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "bucket pods that belong on one node nodes" in lines
    assert "1 tf-ps-0, tf-worker-0, tf-worker-2 node3" in lines
    assert any(line.startswith("2 tf-ps-1, tf-worker-1, tf-worker-3 node1 ×2, node") for line in lines)
    assert max(len(line) for line in shown.stdout.splitlines()) <= 80


def test_roles_that_are_to_be_kept_apart_are_not_moved_together_by_an_application() -> None:
    """One node holds everybody, and each ps talks to each worker: without anti-affinity they share it."""
    zone = "topology.kubernetes.io/zone"
    cluster = nodes(node1=8, node2=8, node3=1)
    for node, name in zip(cluster, "aab", strict=True):  # One zone alone holds all.
        node["metadata"]["labels"][zone] = name
    costs = [{"origin": "a", "costList": [{"destination": "b", "networkCost": 5}]}]
    weights = [{"name": "UserDefined", "topologyList": [{"topologyKey": zone, "originList": costs}]}]
    calls = [{"name": "ps", "type": "Job", "dependencies": [{"name": "worker", "type": "Job"}]}]
    talk: list[Manifest] = [
        {
            "apiVersion": "networktopology.diktyo.x-k8s.io/v1alpha1",
            "kind": "NetworkTopology",
            "metadata": {"name": "costs"},
            "spec": {"configmapName": "costs", "weights": weights},
        },
        {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "AppGroup",
            "metadata": {"name": "tf"},
            "spec": {"numMembers": 6, "Pods": calls},
        },
    ]

    def hosts(annotations: Mapping[str, str]) -> set[str]:
        asked = job(annotations)
        for task in asked["spec"]["tasks"]:
            label = "appgroup.diktyo.x-k8s.io"
            labels = {label: "tf", f"{label}.workload": task["name"]}
            task["template"]["metadata"] = {"labels": labels}
        found = simulate(*cluster, *talk, asked)
        assert found["appGroups"][0]["scheduled"] == 6
        return {pod["node"] for pod in found["pods"] if "ps" in pod["name"]}

    assert len(hosts({})) == 1
    assert len(hosts({ANTI_AFFINITY: "ps"})) == 2
