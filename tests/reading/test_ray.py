"""RayClusters, as pods and as gangs."""

import pytest

from closeby.reading.manifests import Manifests, read_manifests
from closeby.simulator.expansion import expand

CLUSTER = """
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: ray
  annotations: {kai.scheduler/topology-required-placement: rack}
spec:
  headGroupSpec:
    template: {spec: {containers: [{name: head, resources: {requests: {cpu: 1}}}]}}
  workerGroupSpecs:
    - groupName: gpu
      replicas: 2
      numOfHosts: 2
      template: {spec: {containers: [{name: worker}]}}
    - groupName: cpu
      minReplicas: 1
      maxReplicas: 5
      template: {spec: {containers: [{name: worker}]}}
    - groupName: later
      replicas: 3
      suspend: true
      template: {spec: {containers: [{name: worker}]}}
"""


def read(text: str) -> Manifests:
    return read_manifests(["-"], lambda: text)


def test_a_head_and_groups_of_workers() -> None:
    (cluster,) = read(CLUSTER).workloads
    sizes = {one.name: one.replicas for one in cluster.pod_sets}
    assert sizes == {"headgroup": 1, "gpu": 4, "cpu": 1, "later": 0}
    assert cluster.pod_sets[0].template.spec.requests == (("cpu", 1000),)
    assert [one.template.role for one in cluster.pod_sets] == ["headgroup", "gpu", "cpu", "later"]


def test_it_is_one_gang_where_it_asks_and_its_pods_are_known_by_their_group() -> None:
    existing = """
---
apiVersion: v1
kind: Pod
metadata:
  name: ray-gpu-worker-x7k2p
  labels: {ray.io/group: gpu}
  ownerReferences: [{kind: RayCluster, name: ray, controller: true}]
spec: {containers: [{name: worker}]}
"""
    expansion = expand(read(CLUSTER + existing))
    (group,) = expansion.groups
    assert (group.name, group.min_member) == ("ray", 6)
    names = {pod.name for pod in expansion.pods if pod.group == "ray"}
    assert names == {
        "ray-head",
        "ray-gpu-worker-x7k2p",
        "ray-gpu-worker-0",
        "ray-gpu-worker-1",
        "ray-gpu-worker-2",
        "ray-cpu-worker-0",
    }


@pytest.mark.parametrize(
    ("sizes", "pods"),
    [
        ("replicas: 9", 9),
        ("minReplicas: 2, maxReplicas: 5", 2),
        ("replicas: 1, minReplicas: 2, maxReplicas: 5", 2),
        ("replicas: 3, minReplicas: 2, maxReplicas: 5", 3),
        ("replicas: 9, minReplicas: 2, maxReplicas: 5", 5),
        ("replicas: 9, maxReplicas: 2147483647", 9),
        ("replicas: 9, minReplicas: 2, suspend: true", 0),
    ],
)
def test_a_group_has_no_more_workers_and_no_fewer_than_its_limits_say(sizes: str, pods: int) -> None:
    group = f"{{groupName: gpu, {sizes}, template: {{spec: {{containers: [{{name: worker}}]}}}}}}"
    (cluster,) = read(f"{CLUSTER.partition('  workerGroupSpecs')[0]}  workerGroupSpecs: [{group}]").workloads
    assert cluster.pod_sets[1].replicas == pods


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("replicas: 2", "replicas: -1"), "spec.workerGroupSpecs[0].replicas"),
        (("numOfHosts: 2", "numOfHosts: 900000"), "spec.workerGroupSpecs[0].replicas"),
        (("minReplicas: 1", "minReplicas: -1"), "spec.workerGroupSpecs[1].minReplicas"),
        (("maxReplicas: 5", "maxReplicas: -1"), "spec.workerGroupSpecs[1].maxReplicas"),
    ],
)
def test_numbers_that_make_no_sense(change: tuple[str, str], field: str) -> None:
    (error,) = read(CLUSTER.replace(*change)).errors
    assert (error.object, error.field) == ("RayCluster/ray", field)
