"""Manifests that others wrote, read as they are."""

import pytest

from closeby.objects.groups import SubGroup, TopologyConstraint
from closeby.objects.topologies import TopologyLevel
from closeby.reading.manifests import Manifests, read_manifests
from tests.real_input import shared_data


def read(*paths: str) -> Manifests:
    return read_manifests([str(shared_data(path)) for path in paths])


@pytest.mark.parametrize(
    "path",
    [
        "kai/multi-topology-jobs.yaml",
        "kai/topology-aliases.yaml",
        "kueue/sample-gpu-queues.yaml",
        "kueue/sample-queues.yaml",
        "kueue/sample-job-required.yaml",
        "kueue/sample-job-preferred.yaml",
        "kueue/sample-job-unconstrained.yaml",
        "kueue/sample-jobset-tas-required.yaml",
        "kueue/sample-jobset-tas-sliced.yaml",
        "online-boutique/kubernetes-manifests.yaml",
        "network-aware/appGroup-example.yaml",
        "network-aware/networkTopology-example.yaml",
        "network-aware/redis-appGroup-example.yaml",
    ],
)
def test_what_others_publish_is_read_without_errors(path: str) -> None:
    assert read(path).errors == ()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "kueue/perf-tas-generator.yaml",
            "line 10: apiVersion: is missing, so this is not a Kubernetes object",
        ),
        ("volcano/net-topo.yaml", "line 4: apiVersion: is missing, so this is not a Kubernetes object"),
        ("volcano/hypernode-discovery-example.yaml", "line 2: apiVersion: is missing"),
        (
            "network-aware/onlineBoutique-appGroup-example.yaml",
            "line 80: is not YAML: mapping values are not allowed in this context",
        ),
    ],
)
def test_what_is_no_manifest_is_said_to_be_none(path: str, said: str) -> None:
    (error,) = read(path).errors
    assert f"{path}, document 1, {said}" in str(error)


def test_kais_multi_topology_pipeline() -> None:
    manifests = read("kai/multi-topology-jobs.yaml")
    assert [topology.name for topology in manifests.topologies] == ["rack-topology", "zone-topology"]
    (group,) = manifests.groups
    assert (group.key, group.min_member, group.min_subgroups) == ("default/multi-topology-pipeline", 6, 2)
    assert group.subgroups == (
        SubGroup(
            name="rack-workers",
            min_member=3,
            constraint=TopologyConstraint(topology="rack-topology", required="topology.test/rack-domain"),
        ),
        SubGroup(
            name="zone-workers",
            min_member=3,
            constraint=TopologyConstraint(topology="zone-topology", required="topology.test/zone-domain"),
        ),
    )
    assert [
        (one.name, one.pod_sets[0].template.group, one.pod_sets[0].template.subgroup)
        for one in manifests.workloads
    ] == [
        ("rack-bound-job", "multi-topology-pipeline", "rack-workers"),
        ("zone-bound-job", "multi-topology-pipeline", "zone-workers"),
    ]
    assert manifests.workloads[0].pod_sets[0].template.spec.requests == (("cpu", 250), ("nvidia.com/gpu", 4))


def test_kais_aliases() -> None:
    manifests = read("kai/topology-aliases.yaml")
    assert manifests.topologies[0].levels == (
        TopologyLevel("accelerator.nvidia.com/rack", "rack"),
        TopologyLevel("kubernetes.io/hostname", "node"),
    )
    assert manifests.groups[0].constraint == TopologyConstraint(topology="network", required="rack")


def test_the_same_queue_with_two_meanings_is_an_error() -> None:
    errors = read("kueue/sample-gpu-queues.yaml", "kueue/sample-queues.yaml").errors
    assert [error.object for error in errors] == [
        "ResourceFlavor/tas-flavor",
        "ClusterQueue/tas-cluster-queue",
    ]
    assert all("already defined differently in" in error.message for error in errors)


def test_the_online_boutique() -> None:
    manifests = read("online-boutique/kubernetes-manifests.yaml")
    assert len(manifests.workloads) == 12
    assert {one.kind for one in manifests.workloads} == {"Deployment"}
    assert manifests.others == {"ServiceAccount": 11}
    assert len(manifests.services) == 12
    assert manifests.notices == ()
    frontend = next(one for one in manifests.workloads if one.name == "frontend")
    assert frontend.pod_sets[0].template.spec.requests == (("cpu", 100), ("memory", 64 * 1024**2))
