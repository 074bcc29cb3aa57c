"""The clusters and gangs that the benchmarks use: the shape of Kueue's placement benchmark.

16 nodes a rack, 32 racks a block; nodes of 192 CPU, 2 TiB, 110 pods and 8 GPUs; 60 % of the nodes free, 20 %
half used, 20 % full, by a seeded draw; 8 CPU and 64 GiB asked per GPU.
"""

import random
from collections.abc import Iterator, Sequence

from closeby.objects.groups import PodGroup, TopologyConstraint
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Event, NodeUpserted, PodUpserted, TopologyChanged

GPU = "nvidia.com/gpu"
NODES_A_RACK = 16
RACKS_A_BLOCK = 32
GIB = 1 << 30
NODE_CAPACITY = {"cpu": 192_000, "memory": 2048 * GIB, "pods": 110, GPU: 8}


def topology(*levels: str) -> Topology:
    """The topology ``network`` of plain label keys, with single nodes as its last level."""
    return Topology(name="network", levels=tuple(TopologyLevel(level) for level in (*levels, HOSTNAME)))


def nodes(count: int, racks_a_block: int = RACKS_A_BLOCK, nodes_a_rack: int = NODES_A_RACK) -> list[Node]:
    """Equal nodes in racks and blocks."""
    made = []
    for index in range(count):
        rack = index // nodes_a_rack
        name = f"node-{index}"
        labels = {"block": f"block-{rack // racks_a_block}", "rack": f"rack-{rack}", HOSTNAME: name}
        made.append(Node(name=name, labels=labels, allocatable=NODE_CAPACITY))
    return made


def needs(gpus: int, extra_cpu: int = 0) -> PodSpec:
    """A pod's needs: 8 CPU and 64 GiB per GPU."""
    return PodSpec(requests=(("cpu", 8_000 * gpus + extra_cpu), ("memory", 64 * GIB * gpus), (GPU, gpus)))


def usage(count: int) -> Iterator[Pod]:
    """Running pods that leave 60 % of the nodes free, 20 % half used and 20 % full."""
    draw = random.Random(7)
    half, full = needs(4), needs(8)
    for index in range(count):
        kind = draw.random()
        if kind < 0.6:
            continue
        name = f"busy-{index}"
        yield Pod(
            namespace="busy",
            name=name,
            uid=f"busy/{name}",
            spec=half if kind < 0.8 else full,
            node_name=f"node-{index}",
            phase="Running",
        )


def gang(
    name: str, size: int, gpus: int, required: str | None = None, preferred: str | None = None
) -> tuple[PodGroup, list[Pod]]:
    """A gang of equal pods with its pods."""
    asked = required is not None or preferred is not None
    constraint = TopologyConstraint(topology="network", required=required, preferred=preferred)
    group = PodGroup(namespace="bench", name=name, min_member=size, constraint=constraint if asked else None)
    return group, gang_pods(name, size, needs(gpus))


def gang_pods(name: str, size: int, spec: PodSpec) -> list[Pod]:
    """Equal members of one gang."""
    return [
        Pod(namespace="bench", name=f"{name}-{i}", uid=f"{name}-{i}", spec=spec, group=name, index=i)
        for i in range(size)
    ]


def plain_pods(specs: Sequence[PodSpec], prefix: str) -> list[Pod]:
    """One plain pod for each spec."""
    return [
        Pod(namespace="bench", name=f"{prefix}-{index}", uid=f"{prefix}-{index}", spec=spec)
        for index, spec in enumerate(specs)
    ]


def fill(engine: Engine, members: Sequence[Node], fabric: Topology, busy: Iterator[Pod]) -> None:
    """Put nodes, a topology and running pods into an engine."""
    events: list[Event] = [NodeUpserted(node) for node in members]
    events.append(TopologyChanged(fabric))
    events.extend(PodUpserted(pod) for pod in busy)
    engine.handle(*events)
