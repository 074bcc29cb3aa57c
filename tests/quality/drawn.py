"""Small clusters drawn as text, and jobs on their nodes, in columns."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.pods import Pod
from closeby.objects.topologies import TopologyLevel
from closeby.quality.gangs import Members
from closeby.quality.model import Model, Tier
from closeby.quality.moments import RunColumns
from closeby.quality.placements import Placements, placements
from closeby.topology.tree import Tree, build_tree
from tests.topology.drawing import Slots
from tests.worlds import GPU, draw

#: Two blocks of two racks; the racks of the second hold less.
FOUR_RACKS = """
block-1 rack-1 : a=8 b=8
block-1 rack-2 : c=8 d=8
block-2 rack-3 : e=8
block-2 rack-4 : f=8
"""


def tier(latency: float, speed: float, oversubscription: float = 1.0) -> Tier:
    return Tier(
        latency_seconds=latency, bytes_per_second=speed, oversubscription=oversubscription, source="drawn"
    )


#: Inside a node 1 s a step and 800 B/s; a rack 2 s and 100 B/s a link; beyond 4 s and a quarter of 100 B/s.
ROUND = Model(
    tiers=(tier(1, 800), tier(2, 100), tier(4, 100, 4)),
    message_bytes=1000,
    communication_share=0.25,
    communication_source="drawn",
)


class Drawn:
    """A tree, the GPUs of its nodes, and ways to say where jobs are."""

    def __init__(self, drawing: str, levels: Sequence[str] = ("block", "rack")) -> None:
        nodes = draw(drawing, levels)
        self.slots = Slots({node.name: node.labels for node in nodes})
        self.tree = self.slots.tree(*levels)
        self.gpus = np.asarray([node.allocatable[GPU] for node in nodes], dtype=np.int64)

    def slot(self, name: str) -> int:
        """Slot of a node."""
        return self.slots.names.index(name)

    def slots_of(self, *jobs: str) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Offsets and slots of jobs, each told as the nodes of its pods by rank: ``"a a b"``."""
        lines = [job.split() for job in jobs]
        offsets = np.cumsum([0, *(len(line) for line in lines)])
        slots = [self.slot(name) for line in lines for name in line]
        return offsets.astype(np.intp), np.asarray(slots, dtype=np.intp)

    def lying(self, *jobs: str) -> Placements:
        """Jobs in this tree."""
        return placements(self.tree, *self.slots_of(*jobs))

    def run(self, jobs: Mapping[str, tuple[str, int, float, float, float]], until: float = 1e9) -> RunColumns:
        """A run: job -> nodes of its pods by rank, GPUs of each, and when it came, began and ended.

        A job that never started has a number of pods in place of nodes: ``"3"``.
        """
        on = ["" if nodes.isdigit() else nodes for nodes, *_ in jobs.values()]
        offsets, slots = self.slots_of(*on)
        counts = [int(nodes) if nodes.isdigit() else len(nodes.split()) for nodes, *_ in jobs.values()]
        times = np.asarray([row[2:] for row in jobs.values()], dtype=np.float64).reshape(-1, 3)
        return RunColumns(
            tree=self.tree,
            node_gpus=self.gpus,
            pods=np.asarray(counts, dtype=np.int64),
            gpus=np.asarray([row[1] for row in jobs.values()], dtype=np.int64),
            priorities=np.zeros(len(jobs), dtype=np.int64),
            submitted=times[:, 0],
            started=times[:, 1],
            ended=times[:, 2],
            offsets=offsets,
            slots=slots,
            until=until,
        )


def cluster_of(drawing: str = FOUR_RACKS) -> tuple[Cluster, Tree]:
    """A cluster, and the tree of its blocks and racks."""
    cluster = Cluster()
    for one in draw(drawing, ("block", "rack")):
        cluster.add_node(one)
    levels = [TopologyLevel("block"), TopologyLevel("rack")]
    return cluster, build_tree("fabric", levels, cluster.labels, cluster.names)


def on(cluster: Cluster, members: list[Pod], nodes: str) -> Members:
    """Members of a gang on these nodes, by rank."""
    slots = [cluster.slot(name) for name in nodes.split()]
    return [(pod, slot) for pod, slot in zip(members, slots, strict=True) if slot is not None]
