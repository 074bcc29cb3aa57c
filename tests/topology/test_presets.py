import pytest

from closeby.topology.families import PRESETS
from closeby.topology.finding import read_network_labels
from tests.topology.drawing import drawn, host, node

# Per family the labels of one node, coarse to fine.
NODES = {
    "network-labels": {
        "network.topology.kubernetes.io/zone": "z",
        "network.topology.kubernetes.io/datacenter": "d",
        "network.topology.kubernetes.io/block": "b",
        "network.topology.kubernetes.io/accelerator": "a",
    },
    "kep4962": {
        "network.topology.kubernetes.io/datacenter": "d",
        "network.topology.kubernetes.io/spine": "s",
        "network.topology.kubernetes.io/block": "b",
        "network.topology.kubernetes.io/accelerator": "a",
    },
    "zones": {"topology.kubernetes.io/region": "r", "topology.kubernetes.io/zone": "z"},
    "topograph-nvidia": {
        "network.topology.nvidia.com/core": "c",
        "network.topology.nvidia.com/spine": "s",
        "network.topology.nvidia.com/leaf": "l",
        "network.topology.nvidia.com/accelerator": "a",
    },
    "topograph": {
        "fabric.topograph.run/tier-10": "t10",
        "fabric.topograph.run/tier-2": "t2",
        "fabric.topograph.run/tier-0": "t0",
        "accelerator.topograph.run/domain": "a",
    },
    "gke": {
        "cloud.google.com/gce-topology-block": "b",
        "cloud.google.com/gce-topology-subblock": "s",
        "cloud.google.com/gce-topology-host": "h",
    },
    "eks": {
        "topology.k8s.aws/network-node-layer-1": "nn-1",
        "topology.k8s.aws/network-node-layer-2": "nn-2",
        "topology.k8s.aws/network-node-layer-3": "nn-3",
    },
    "eks-ultraserver": {
        "topology.k8s.aws/network-node-layer-1": "nn-1",
        "topology.k8s.aws/network-node-layer-2": "nn-2",
        "topology.k8s.aws/network-node-layer-3": "nn-3",
        "topology.k8s.aws/ultraserver-id": "u",
    },
    "eks-capacity-block": {
        "topology.k8s.aws/network-node-layer-1": "nn-1",
        "topology.k8s.aws/network-node-layer-2": "nn-2",
        "topology.k8s.aws/network-node-layer-3": "nn-3",
        "topology.k8s.aws/capacity-block-id": "c",
    },
    "oke": {
        "oci.oraclecloud.com/rdma.hpc_island_id": "i",
        "oci.oraclecloud.com/rdma.network_block_id": "n",
        "oci.oraclecloud.com/host.network_block_id": "b",
        "oci.oraclecloud.com/rdma.local_block_id": "l",
        "oci.oraclecloud.com/host.rack_id": "r",
    },
    "coreweave": {
        "backend.coreweave.cloud/fabric": "f",
        "backend.coreweave.cloud/superpod": "1",
        "backend.coreweave.cloud/leafgroup": "1",
        "ds.coreweave.com/nvlink.domain": "d",
    },
    "gpu-clique": {"nvidia.com/gpu.clique": "uuid.1"},
}

#: Families that share labels with another one.
SHARING = {"network-labels", "kep4962", "eks", "eks-ultraserver", "eks-capacity-block"}


def test_each_family_is_found_by_its_name() -> None:
    assert sorted(PRESETS) == sorted(NODES)
    assert all(family.name == name for name, family in PRESETS.items())


@pytest.mark.parametrize("name", sorted(NODES))
def test_the_labels_of_a_family_are_levels_from_coarse_to_fine(name: str) -> None:
    labels = NODES[name]
    nodes = [node("n1", dict(reversed(labels.items())))]

    result = read_network_labels(nodes, PRESETS[name])

    assert result.conditions == ()
    assert [topology.name for topology in result.topologies] == [name]
    assert [level.node_label for level in result.topologies[0].levels] == list(labels)
    tree, slots = drawn(result, nodes, name)
    assert tree.path(host(tree, slots, "n1")) == (*labels.values(), "n1")


@pytest.mark.parametrize("name", sorted(set(NODES) - SHARING))
def test_labels_of_other_families_do_not_count(name: str) -> None:
    others = {key: value for other, labels in NODES.items() if other != name for key, value in labels.items()}

    assert read_network_labels([node("n1", others)], PRESETS[name]).topologies == ()


def test_accelerators_that_span_leaves_are_apart_in_other_families_too() -> None:
    nodes = [
        node(
            f"n{index}",
            {
                "fabric.topograph.run/tier-0": f"leaf-{index}",
                "accelerator.topograph.run/domain": "nvl-a",
            },
        )
        for index in (1, 2)
    ]

    result = read_network_labels(nodes, PRESETS["topograph"])

    assert [topology.name for topology in result.topologies] == ["topograph", "topograph-accelerator"]


def test_equal_zone_names_in_two_regions_are_two_zones() -> None:
    nodes = [
        node("n1", {"topology.kubernetes.io/region": "r1", "topology.kubernetes.io/zone": "a"}),
        node("n2", {"topology.kubernetes.io/region": "r2", "topology.kubernetes.io/zone": "a"}),
    ]

    result = read_network_labels(nodes, PRESETS["zones"])

    assert result.conditions == ()
    tree, slots = drawn(result, nodes, "zones")
    assert tree.count(1) == 2
    assert tree.distance(host(tree, slots, "n1"), host(tree, slots, "n2")) == 6


def test_a_family_without_the_annotation_does_not_read_it() -> None:
    nodes = [node("n1", {"topology.kubernetes.io/zone": "a"}, "{")]

    result = read_network_labels(nodes, PRESETS["zones"])

    assert result.conditions == ()
    assert result.quality == {}


@pytest.mark.parametrize(
    "key", ["fabric.topograph.run/tier-", "fabric.topograph.run/tier-01", "fabric.topograph.run/tier-x"]
)
def test_only_plain_numbers_are_tiers(key: str) -> None:
    assert not PRESETS["topograph"].covers(key)
