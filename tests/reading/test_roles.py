"""Roles of pods, and the annotations that say how the roles of a gang are to be to each other."""

from typing import Any

import pytest

from closeby.reading.decoding.keys import TASK_AFFINITY, TASK_ANTI_AFFINITY, TASK_ORDER, TASK_TRAFFIC
from tests.reading.manifest_text import read_good, read_objects, read_pod

ANNOTATIONS = {
    TASK_AFFINITY: "ps,worker",
    TASK_ANTI_AFFINITY: "ps",
    TASK_ORDER: "worker,ps",
    TASK_TRAFFIC: "ps-worker=10,worker-worker=1",
}


@pytest.mark.parametrize(
    ("annotations", "labels", "role"),
    [
        ({}, {}, ""),
        ({"volcano.sh/task-spec": "ps"}, {"volcano.sh/task-spec": "worker"}, "ps"),
        ({}, {"volcano.sh/task-spec": "worker", "closeby.dev/role": "ps"}, "worker"),
        ({}, {"closeby.dev/role": "ps"}, "ps"),
        ({"closeby.dev/role": "ps"}, {}, ""),
        ({}, {"training.kubeflow.org/replica-type": "worker"}, "worker"),
        ({}, {"training.kubeflow.org/job-role": "launcher"}, "launcher"),
        ({}, {"jobset.sigs.k8s.io/replicatedjob-name": "driver"}, "driver"),
        ({"volcano.sh/task-spec": ""}, {"closeby.dev/role": "ps"}, "ps"),
    ],
)
def test_a_pods_role(annotations: dict[str, str], labels: dict[str, str], role: str) -> None:
    assert read_pod({}, annotations=annotations, labels=labels).role == role


@pytest.mark.parametrize(
    ("api", "spec"),
    [
        ("closeby.dev/v1alpha1", {}),
        ("scheduling.volcano.sh/v1beta1", {}),
        ("scheduling.run.ai/v2alpha2", {}),
        ("scheduling.x-k8s.io/v1alpha1", {}),
        ("scheduling.k8s.io/v1beta1", {"schedulingPolicy": {"gang": {"minCount": 2}}}),
    ],
)
def test_pod_groups_of_all_dialects_keep_them(api: str, spec: dict[str, Any]) -> None:
    metadata = {"name": "g", "annotations": ANNOTATIONS}
    manifests = read_objects({"apiVersion": api, "kind": "PodGroup", "metadata": metadata, "spec": spec})
    (group,) = manifests.groups
    assert group.annotations == ANNOTATIONS
    assert group.conditions == ()


def test_a_slip_in_the_key_of_the_traffic_is_reported() -> None:
    manifests = read_good(
        """
        apiVersion: closeby.dev/v1alpha1
        kind: PodGroup
        metadata: {name: g, annotations: {closeby.dev/task-trafic: a-b=1}}
        """
    )
    (condition,) = manifests.groups[0].conditions
    assert condition.remedy == "did you mean closeby.dev/task-traffic?"
