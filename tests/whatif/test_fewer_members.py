"""A gang that is too large is told which fields of its workload to edit, and then it fits."""

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from tests.cli.calling import GPU, Manifest, node, report, text


def template(gpus: int = 8) -> Manifest:
    resources = {"limits": {GPU: str(gpus)}} if gpus else {"requests": {"cpu": "1"}}
    return {"spec": {"containers": [{"name": "main", "image": "busybox", "resources": resources}]}}


def roles(field: str, **replicas: int) -> Manifest:
    return {field: {role: {"replicas": number, "template": template()} for role, number in replicas.items()}}


def job(name: str, replicas: int, parallelism: int, gpus: int = 8) -> Manifest:
    spec = {"parallelism": parallelism, "completions": parallelism, "template": template(gpus)}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def ray(**workers: object) -> Manifest:
    group = {"groupName": "gpu", "template": template(), **workers}
    return {"headGroupSpec": {"template": template(0)}, "workerGroupSpecs": [group]}


TASKS = [
    {"name": "ps", "replicas": 1, "template": template(0)},
    {"name": "worker", "replicas": 7, "template": template()},
]

#: By what is tried: API version, kind, spec, and what must be written instead for four nodes.
CASES: dict[str, tuple[str, str, Manifest, Mapping[str, int]]] = {
    "jobs of a JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [job("driver", 1, 1, gpus=0), job("workers", 3, 2)]},
        {"replicatedJobs[1].replicas": 2},
    ),
    "pods of a JobSet's job": (
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        {"replicatedJobs": [job("workers", 1, 6)]},
        {"replicatedJobs[0].template.spec.parallelism": 4},
    ),
    "workers": (
        "kubeflow.org/v1",
        "PyTorchJob",
        roles("pytorchReplicaSpecs", Master=1, Worker=5),
        {"pytorchReplicaSpecs.Worker.replicas": 3},
    ),
    "two roles of which neither alone is enough": (
        "kubeflow.org/v1",
        "TFJob",
        roles("tfReplicaSpecs", PS=4, Worker=6),
        {"tfReplicaSpecs.PS.replicas": 1, "tfReplicaSpecs.Worker.replicas": 2},
    ),
    "an elastic minimum": (
        "kubeflow.org/v1",
        "PyTorchJob",
        {**roles("pytorchReplicaSpecs", Master=1, Worker=9), "elasticPolicy": {"minReplicas": 6}},
        {"elasticPolicy.minReplicas": 3},
    ),
    "a minimum of its own": (
        "kubeflow.org/v1",
        "MPIJob",
        {**roles("mpiReplicaSpecs", Worker=6), "runPolicy": {"schedulingPolicy": {"minAvailable": 5}}},
        {"runPolicy.schedulingPolicy.minAvailable": 4},
    ),
    "workers of several hosts": (
        "ray.io/v1",
        "RayCluster",
        ray(replicas=4, numOfHosts=2),
        {"workerGroupSpecs[0].replicas": 2},
    ),
    "the least workers": (
        "ray.io/v1",
        "RayJob",
        {"rayClusterSpec": ray(replicas=8, minReplicas=6)},
        {"rayClusterSpec.workerGroupSpecs[0].minReplicas": 4},
    ),
    "tasks": ("batch.volcano.sh/v1alpha1", "Job", {"tasks": TASKS}, {"minAvailable": 5}),
    "the size of a group": (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"replicas": 1, "leaderWorkerTemplate": {"size": 6, "workerTemplate": template()}},
        {"leaderWorkerTemplate.size": 4},
    ),
}


def edited(manifest: Manifest, change: Mapping[str, int]) -> Manifest:
    """The object with values written at paths below ``spec``."""
    found = deepcopy(manifest)
    for path, value in change.items():
        *way, last = [int(one) if one.isdigit() else one for one in re.findall(r"[^.\[\]]+", path)]
        place: Any = found["spec"]
        for one in way:
            place = place[one]
        place[last] = value
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_fields_that_are_named_make_it_fit(case: str) -> None:
    version, kind, spec, change = CASES[case]
    nodes = [node(f"node-{number}", {}) for number in range(4)]
    workload = {"apiVersion": version, "kind": kind, "metadata": {"name": "big"}, "spec": spec}
    found = report("explain", f"{kind.lower()}/big", "-f", "-", stdin=text(*nodes, workload))
    assert found["reason"] == "GangDoesNotFit"
    changes = [one["change"] for one in found["counterfactuals"] if one["kind"] == "relaxed"]
    assert changes == [change]
    (gang,) = report("simulate", "-f", "-", stdin=text(*nodes, edited(workload, change)))["groups"]
    assert gang["reason"] is None
    assert gang["scheduled"] >= gang["minMember"]
