"""Pods whose resources are resized in place hold what they have until the resize is done (KEP-1287)."""

from typing import Any

import pytest

from tests.reading.manifest_text import read_objects

Spec = dict[str, Any]
INFEASIBLE = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}


def resources(cpu: str) -> Spec:
    return {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}


def status(has: str, allocated: str, name: str = "main") -> Spec:
    return {"name": name, "resources": resources(has), "allocatedResources": {"cpu": allocated}}


def held(spec: Spec, status: Spec, node: str | None = "n1") -> dict[str, int]:
    """What the pod takes of its node."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {**spec, "nodeName": node},
        "status": {"phase": "Running", **status},
    }
    manifests = read_objects(body)
    assert manifests.errors == () and manifests.notices == ()
    (pod,) = manifests.pods
    return dict(pod.spec.requests)


@pytest.mark.parametrize(
    ("what", "asked", "has", "allocated", "more", "cpu"),
    [
        ("nothing is being resized", "2", "2", "2", {}, 2000),
        ("downwards: the old size until the kubelet has done it", "1", "4", "4", {}, 4000),
        ("downwards: allocated, and not yet done", "1", "4", "1", {}, 4000),
        ("upwards: the new size at once", "4", "1", "1", {}, 4000),
        ("upwards, deferred: it may still be granted", "4", "1", "1", DEFERRED, 4000),
        ("upwards, infeasible: it stays as it is", "4", "1", "1", INFEASIBLE, 1000),
        ("infeasible, as Kubernetes before 1.33 says it", "4", "1", "1", {"resize": "Infeasible"}, 1000),
    ],
)
def test_a_container_holds(what: str, asked: str, has: str, allocated: str, more: Spec, cpu: int) -> None:
    spec = {"containers": [{"name": "main", "resources": resources(asked)}]}
    assert held(spec, {"containerStatuses": [status(has, allocated)], **more}) == {"cpu": cpu}, what


def test_sidecars_hold_what_they_have_and_init_containers_do_not() -> None:
    init = [
        {"name": "setup", "resources": resources("1")},
        {"name": "proxy", "resources": resources("1"), "restartPolicy": "Always"},
    ]
    spec = {"initContainers": init, "containers": [{"name": "main", "resources": resources("1")}]}
    statuses = [status("9", "9", "setup"), status("3", "3", "proxy")]
    assert held(spec, {"initContainerStatuses": statuses}) == {"cpu": 4000}


def test_resources_of_the_whole_pod() -> None:
    spec = {"containers": [{"name": "main"}], "resources": resources("1")}
    assert held(spec, {"resources": resources("3"), "allocatedResources": {"cpu": "2"}}) == {"cpu": 3000}


def test_other_resources_stay_as_the_spec_says() -> None:
    asked = {"requests": {"cpu": "1", "nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}
    spec = {"containers": [{"name": "main", "resources": asked}]}
    assert held(spec, {"containerStatuses": [status("3", "3")]}) == {"cpu": 3000, "nvidia.com/gpu": 2}


def test_a_container_without_a_status_and_a_pod_without_a_node_go_by_the_spec() -> None:
    spec = {"containers": [{"name": "main", "resources": resources("1")}]}
    statuses = {"containerStatuses": [status("4", "4", "another")]}
    assert held(spec, statuses) == {"cpu": 1000}
    assert held(spec, {"containerStatuses": [status("4", "4")]}, node=None) == {"cpu": 1000}
