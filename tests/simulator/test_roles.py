"""Pods that are made of a workload have the role of their set, and its gang keeps what is said of roles."""

from typing import Any

import pytest

from closeby.reading.decoding.keys import TASK_AFFINITY, TASK_ANTI_AFFINITY, TASK_ORDER, TASK_TRAFFIC
from closeby.simulator.expansion import Expansion, expand
from tests.reading.manifest_text import read_objects

ANNOTATIONS = {
    TASK_AFFINITY: "ps,worker",
    TASK_ANTI_AFFINITY: "ps",
    TASK_ORDER: "worker,ps",
    TASK_TRAFFIC: "ps-worker=10,worker-worker=1",
}


def expanded(
    api: str, kind: str, spec: dict[str, Any], annotations: dict[str, str] | None = None
) -> Expansion:
    metadata = {"name": "job", "annotations": annotations or {}}
    manifests = read_objects({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})
    assert (manifests.errors, manifests.notices) == ((), ())
    return expand(manifests)


VOLCANO_TASKS = {"tasks": [{"name": "ps", "replicas": 1}, {"name": "worker", "replicas": 2}]}


@pytest.mark.parametrize(
    ("api", "kind", "spec", "roles"),
    [
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            VOLCANO_TASKS,
            {"job-ps-0": "ps", "job-worker-0": "worker", "job-worker-1": "worker"},
        ),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 1}}},
            {"job-master-0": "master", "job-worker-0": "worker"},
        ),
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 1}}},
            {"job-launcher-0": "launcher", "job-worker-0": "worker"},
        ),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {"replicatedJobs": [{"name": "driver"}, {"name": "workers"}]},
            {"job-driver-0-0": "driver", "job-workers-0-0": "workers"},
        ),
    ],
)
def test_pods_that_are_made_have_the_role_of_their_set(
    api: str, kind: str, spec: dict[str, Any], roles: dict[str, str]
) -> None:
    assert {pod.name: pod.role for pod in expanded(api, kind, spec).pods} == roles


def test_a_role_that_a_template_names_counts() -> None:
    template = {"metadata": {"labels": {"closeby.dev/role": "chief"}}}
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}}
    (pod,) = expanded("kubeflow.org/v1", "PyTorchJob", spec).pods
    assert pod.role == "chief"


@pytest.mark.parametrize(
    ("api", "kind", "spec"),
    [
        ("batch.volcano.sh/v1alpha1", "Job", VOLCANO_TASKS),
        ("batch/v1", "Job", {"parallelism": 2, "completions": 2}),
        ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}),
        (
            "kubeflow.org/v1",
            "PyTorchJob",
            {
                "pytorchReplicaSpecs": {"Worker": {"replicas": 2}},
                "runPolicy": {"schedulingPolicy": {"minAvailable": 1}},
            },
        ),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": "w"}]}),
    ],
)
def test_a_job_that_says_how_its_roles_lie_is_a_gang_with_these_annotations(
    api: str, kind: str, spec: dict[str, Any]
) -> None:
    (group,) = expanded(api, kind, spec, ANNOTATIONS).groups
    assert {key: group.annotations[key] for key in ANNOTATIONS} == ANNOTATIONS
    assert group.conditions == ()
