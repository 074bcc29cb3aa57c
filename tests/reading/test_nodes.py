from typing import Any

import pytest

from closeby.objects.nodes import Node, NodeImage, Taint
from tests.reading.manifest_text import error_of, read_good, read_objects


def node_of(**parts: Any) -> Node:
    manifests = read_objects({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, **parts})
    assert manifests.errors == ()
    return manifests.nodes[0]


def test_a_node_as_kubectl_prints_it() -> None:
    (node,) = read_good(
        """
        apiVersion: v1
        kind: Node
        metadata:
          name: gpu-1
          uid: 6f5c
          creationTimestamp: 2026-01-02T03:04:05Z
          labels: {kubernetes.io/hostname: gpu-1, rack: r1}
          annotations:
            kubectl.kubernetes.io/last-applied-configuration: "{}"
            network.qos.kubernetes.io/switches: "{}"
        spec:
          podCIDR: 10.0.0.0/24
          unschedulable: true
          taints:
          - {key: nvidia.com/gpu, value: present, effect: NoSchedule}
          - {key: maintenance, effect: NoExecute, timeAdded: 2026-01-02T03:04:05Z}
        status:
          capacity: {cpu: "96", memory: 1Ti, pods: "110"}
          allocatable: {cpu: 95500m, memory: 1047552Mi, nvidia.com/gpu: 8, pods: "110"}
          conditions:
          - {type: Ready, status: "True"}
          - {type: MemoryPressure, status: "False"}
          images: [{names: [a, b], sizeBytes: 5}]
        """
    ).nodes
    assert node == Node(
        name="gpu-1",
        uid="6f5c",
        images=(NodeImage("a", 5), NodeImage("b", 5)),
        labels={"kubernetes.io/hostname": "gpu-1", "rack": "r1"},
        annotations={"network.qos.kubernetes.io/switches": "{}"},
        allocatable={"cpu": 95500, "memory": 1047552 * 1024**2, "nvidia.com/gpu": 8, "pods": 110},
        taints=(Taint("nvidia.com/gpu", "present", "NoSchedule"), Taint("maintenance", "", "NoExecute")),
        unschedulable=True,
        ready=True,
    )


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_ready_is_what_the_condition_says(status: str, ready: bool) -> None:
    assert node_of(status={"conditions": [{"type": "Ready", "status": status}]}).ready is ready


@pytest.mark.parametrize(
    "status", [{}, {"conditions": None}, {"conditions": [{"type": "DiskPressure", "status": "True"}]}]
)
def test_a_node_without_the_condition_is_ready(status: dict[str, Any]) -> None:
    assert node_of(status=status).ready


def test_capacity_stands_in_for_allocatable() -> None:
    assert node_of(status={"capacity": {"cpu": 4}}).allocatable == {"cpu": 4000}
    assert node_of(status={"capacity": {"cpu": 4}, "allocatable": {}}).allocatable == {}


def test_allocatable_is_rounded_down() -> None:
    assert node_of(status={"allocatable": {"cpu": "1999.9m", "memory": "1500m"}}).allocatable == {
        "cpu": 1999,
        "memory": 1,
    }


def test_absurd_quantities_are_cut_so_that_sums_stay_right() -> None:
    """A thousand of them fit 64 bits."""
    assert node_of(status={"allocatable": {"memory": "7Ei", "example.com/free": 2**63 - 1}}).allocatable == {
        "memory": 2**53 - 1,
        "example.com/free": 2**53 - 1,
    }


def test_a_bare_node() -> None:
    assert node_of() == Node(name="n")


def test_a_wrong_amount_names_its_field() -> None:
    assert error_of(
        "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {cpu: 4 cores}}}"
    ) == (
        "standard input, document 1, line 1: Node/n: status.allocatable.cpu: "
        "'4 cores' is not a quantity; write a number such as 2, 500m or 2Gi"
    )
    assert "status.allocatable.pods: -1 is negative" in error_of(
        "{apiVersion: v1, kind: Node, metadata: {name: n}, status: {allocatable: {pods: -1}}}"
    )
