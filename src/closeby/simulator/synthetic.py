"""Made-up clusters of real shapes, the same every time."""

from collections.abc import Iterator

from msgspec import Struct

from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.topologies import Topology, TopologyLevel

GPU = "nvidia.com/gpu"
POD_LABEL = "fabric.example.com/pod"
LEAF_LABEL = "fabric.example.com/leaf"

GPUS_PER_HOST = 8
HOSTS_PER_LEAF = 8
#: Hosts that a leaf falls short of full, in turn over the leaves that do.
_SHORTFALLS = (1, 2, 1, 3, 1, 2, 6)
#: Step in which shortfalls are dealt out, so that uneven leaves are scattered; prime to every leaf count.
_STRIDE = 11


class FabricPod(Struct, frozen=True):
    """One aggregation pod: leaves below one pair of switches."""

    name: str
    hosts: int
    leaves: int


#: Sizes of Alibaba's Lingjun cluster as of 2023 (alibaba-lingjun-dataset-2023): 847 hosts in 119 leaves
#: below three aggregation pods and one core. How hosts are dealt out to leaves here follows a formula.
LINGJUN = (
    FabricPod("pod-1", hosts=362, leaves=48),
    FabricPod("pod-2", hosts=306, leaves=42),
    FabricPod("pod-3", hosts=179, leaves=29),
)


def leaf_sizes(pod: FabricPod) -> tuple[int, ...]:
    """Hosts per leaf: mostly 8, some fewer, 2 at least; their sum is the pod's number of hosts."""
    sizes = [HOSTS_PER_LEAF] * pod.leaves
    short = pod.leaves * HOSTS_PER_LEAF - pod.hosts
    turn = 0
    while short:
        leaf = turn * _STRIDE % pod.leaves
        taken = min(_SHORTFALLS[turn % len(_SHORTFALLS)], short, sizes[leaf] - 2)
        sizes[leaf] -= taken
        short -= taken
        turn += 1
    return tuple(sizes)


def fabric_topology() -> Topology:
    """The topology ``fabric``: pod, leaf, host."""
    labels = (POD_LABEL, LEAF_LABEL, HOSTNAME)
    return Topology(name="fabric", levels=tuple(TopologyLevel(label) for label in labels), source="made up")


def gpu_hosts(pods: tuple[FabricPod, ...] = LINGJUN) -> Iterator[tuple[Node, ...]]:
    """The hosts of each leaf, leaf by leaf: 8 GPUs, 128 cores and 1 TiB each."""
    number = 0
    for pod in pods:
        for leaf, size in enumerate(leaf_sizes(pod)):
            yield tuple(_host(number + index, pod.name, f"leaf-{leaf + 1}") for index in range(size))
            number += size


def _host(number: int, pod: str, leaf: str) -> Node:
    name = f"gpu-{number + 1:03}"
    return Node(
        name=name,
        labels={POD_LABEL: pod, LEAF_LABEL: leaf, HOSTNAME: name},
        allocatable={"cpu": 128_000, "memory": 1 << 40, GPU: GPUS_PER_HOST, "pods": 110},
    )
