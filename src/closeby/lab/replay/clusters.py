"""The cluster that a workload runs on, made up or read from manifests, and what it could never hold."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from closeby.lab.workloads.jobs import Jobs
from closeby.objects.applications import LinkCost, NetworkTopology, WeightSet
from closeby.objects.arrays import Counts
from closeby.objects.labels import HOSTNAME, REGION, ZONE
from closeby.objects.nodes import Node, admission_tolerations, keeps_off
from closeby.objects.pods import Pod, Toleration
from closeby.objects.reasons import Condition
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.objects.words import natural_key, plural
from closeby.reading.manifests import Manifests
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    NetworkTopologyChanged,
    NodeUpserted,
    PodUpserted,
    TopologyChanged,
)
from closeby.simulator.expansion import expand
from closeby.simulator.surroundings import surroundings_of
from closeby.simulator.synthetic import GPU, GPUS_PER_HOST, LEAF_LABEL, POD_LABEL, fabric_topology, gpu_hosts
from closeby.topology.tree import Tree


class GivenCluster(Struct, frozen=True, kw_only=True, eq=False):
    """What is there before the first job: as events for an engine, in an order that no file can change."""

    #: What it is called in reports.
    name: str
    nodes: tuple[Node, ...]
    #: Topologies, priority classes, and the pods that run and stay.
    others: tuple[Event, ...]
    #: The resource that a job's pods ask for.
    resource: str = GPU
    #: Whether these have the tolerations that ExtendedResourceToleration adds.
    tolerate: bool = True
    #: Pods of the manifests that wait: they are left aside.
    waiting: int = 0
    #: What is wrong with the manifests' objects as such.
    conditions: tuple[Condition, ...] = ()

    def enter(self, engine: Engine) -> None:
        """Put everything into an empty engine."""
        engine.handle(*(NodeUpserted(node) for node in self.nodes))
        engine.handle(*self.others)

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        """What the pods of jobs tolerate."""
        return admission_tolerations((self.resource,)) if self.tolerate else ()

    @property
    def running(self) -> tuple[Pod, ...]:
        """The pods that run there already and stay."""
        return tuple(event.pod for event in self.others if isinstance(event, PodUpserted))


class ClusterRoom(Struct, frozen=True, eq=False):
    """GPUs by slot: what a node has, and what of it the jobs may use."""

    total: Counts
    free: Counts


def room_of(engine: Engine, resource: str, tolerations: Sequence[Toleration] = ()) -> ClusterRoom:
    """The room of a cluster whose pods are those that stay; shapes (slots,).

    Nodes that take no pods of the jobs have none: they are cordoned, not ready or have a taint that the
    jobs do not tolerate.
    """
    cluster = engine.cluster
    row = cluster.row_of.get(resource)
    if row is None:
        none = np.zeros(cluster.capacity, dtype=np.int64)
        return ClusterRoom(none, none.copy())
    usable = np.array(
        [node is not None and _takes_jobs(node, tolerations) for node in cluster.nodes], dtype=bool
    )
    total = cluster.allocatable[row, : cluster.capacity] * usable
    return ClusterRoom(total, cluster.free(row, slice(0, cluster.capacity)) * usable)


def _takes_jobs(node: Node, tolerations: Sequence[Toleration]) -> bool:
    kept_off = any(keeps_off(taint, tolerations) for taint in node.taints)
    return node.ready and not node.unschedulable and not kept_off


def usual_needs(nodes: tuple[Node, ...], resource: str) -> tuple[tuple[str, int], ...]:
    """CPU (thousandths) and memory (bytes) that a job asks for with each GPU.

    Half of what the poorest node with GPUs has for each of them: scorers that weigh CPU and memory see the
    jobs, and GPUs are what runs out first.
    """
    offers = [
        (node.allocatable[resource], node.allocatable) for node in nodes if node.allocatable.get(resource)
    ]
    needs = []
    for name in ("cpu", "memory"):
        share = min((offer.get(name, 0) // (2 * gpus) for gpus, offer in offers), default=0)
        if share:
            needs.append((name, share))
    return tuple(needs)


def judged_in(engine: Engine, topology: str | None) -> Tree | None:
    """The tree in which places are judged: the named topology's, else the only one's, else a flat one.

    None when there is none of that name, or when there are several and none is named.
    """
    if topology is not None:
        return engine.topologies.tree(topology)
    if not engine.topologies.usable():
        return engine.topologies.flat()
    return engine.topologies.main_tree()


def cluster_of(manifests: Manifests, name: str, resource: str = GPU) -> GivenCluster:
    """The nodes of manifests with what runs on them; pods that wait are counted and left aside."""
    expansion = expand(manifests)
    surroundings = surroundings_of(manifests, expansion.pods)
    pods = [pod for pod in expansion.pods if not pod.finished]
    held = sorted((pod for pod in pods if pod.node_name is not None), key=_by_name)
    return GivenCluster(
        name=name,
        nodes=surroundings.nodes,
        others=(*surroundings.events, *map(PodUpserted, held)),
        resource=resource,
        waiting=sum(pod.node_name is None and not pod.terminating for pod in pods),
        conditions=(*surroundings.conditions, *expansion.conditions),
    )


class ClusterShape(Struct, frozen=True):
    """A made-up cluster: its hosts, and what it is like."""

    hosts: Callable[[], tuple[Node, ...]]
    #: For lists and help.
    summary: str
    #: Topologies and costs.
    others: tuple[Event, ...] = (TopologyChanged(fabric_topology()),)


def _lingjun() -> tuple[Node, ...]:
    return tuple(host for leaf in gpu_hosts() for host in leaf)


def _even(pods: int, leaves: int, hosts: int) -> Iterator[Node]:
    """Equal leaves of equal hosts, as the hosts of ``gpu_hosts`` are."""
    for number in range(pods * leaves * hosts):
        leaf = number // hosts
        name = f"gpu-{number + 1:03}"
        yield Node(
            name=name,
            labels={
                POD_LABEL: f"pod-{leaf // leaves + 1}",
                LEAF_LABEL: f"leaf-{leaf % leaves + 1}",
                HOSTNAME: name,
            },
            allocatable={"cpu": 128_000, "memory": 1 << 40, GPU: GPUS_PER_HOST, "pods": 110},
        )


def _nvl72() -> Iterator[Node]:
    """Racks as NVIDIA's GB200 NVL72 has them: 18 trays of 4 GPUs and 144 cores; 8 racks in a block."""
    for number in range(64 * 18):
        rack = number // 18
        name = f"gpu-{number + 1:04}"
        yield Node(
            name=name,
            labels={BLOCK_LABEL: f"block-{rack // 8 + 1}", RACK_LABEL: f"rack-{rack + 1}", HOSTNAME: name},
            allocatable={"cpu": 144_000, "memory": 1 << 40, GPU: 4, "pods": 110},
        )


BLOCK_LABEL, RACK_LABEL = "fabric.example.com/block", "fabric.example.com/rack"


def _racks_topology() -> Topology:
    levels = tuple(TopologyLevel(label) for label in (BLOCK_LABEL, RACK_LABEL, HOSTNAME))
    return Topology(name="fabric", levels=levels, source="made up")


def _in_zones() -> Iterator[Node]:
    """Two regions of three zones of 20 nodes, without GPUs."""
    for number in range(120):
        zone = number // 20
        name = f"node-{number + 1:03}"
        yield Node(
            name=name,
            labels={REGION: f"region-{zone // 3 + 1}", ZONE: f"zone-{zone + 1}", HOSTNAME: name},
            allocatable={"cpu": 32_000, "memory": 1 << 37, "pods": 110},
        )


def _zone_costs() -> tuple[Event, ...]:
    """Zones of a region cost 5 to talk to, regions 20; nodes of one zone cost 1 (NetworkMinCost's rule)."""
    zones = tuple(
        LinkCost(origin=f"zone-{one}", destination=f"zone-{other}", cost=5)
        for first in (1, 4)
        for one in range(first, first + 3)
        for other in range(first, first + 3)
        if one != other
    )
    regions = tuple(
        LinkCost(origin=f"region-{one}", destination=f"region-{3 - one}", cost=20) for one in (1, 2)
    )
    costs = WeightSet(name="UserDefined", zone_costs=zones, region_costs=regions)
    levels = tuple(TopologyLevel(label) for label in (REGION, ZONE, HOSTNAME))
    return (
        TopologyChanged(Topology(name="places", levels=levels, source="made up")),
        NetworkTopologyChanged(NetworkTopology(namespace="default", name="places", weight_sets=(costs,))),
    )


#: Made-up clusters by name; hosts have 8 GPUs each, but for those of ``nvl72`` and ``zones``.
SHAPES: Mapping[str, ClusterShape] = {
    "lingjun": ClusterShape(_lingjun, "847 hosts in 119 uneven leaves, 3 pods (Alibaba's Lingjun, 2023)"),
    "small": ClusterShape(lambda: tuple(_even(2, 4, 8)), "64 hosts in 8 leaves of 8, 2 pods"),
    "superpod": ClusterShape(lambda: tuple(_even(1, 4, 32)), "128 hosts in 4 leaves of 32, 1 pod"),
    "nvl72": ClusterShape(
        lambda: tuple(_nvl72()),
        "1,152 hosts with 4 GPUs in 64 racks of 18, 8 blocks (GB200 NVL72)",
        (TopologyChanged(_racks_topology()),),
    ),
    "zones": ClusterShape(
        lambda: tuple(_in_zones()),
        "120 nodes of 32 cores without GPUs in 6 zones, 2 regions, with costs between them",
        _zone_costs(),
    ),
    "racks": ClusterShape(lambda: tuple(_even(5, 10, 100)), "5,000 hosts in 50 racks of 100, 5 pods"),
}


def made_up(name: str, resource: str = GPU) -> GivenCluster:
    """The made-up cluster of that name.

    Raises:
        KeyError: there is none.
    """
    return GivenCluster(
        name=name,
        nodes=SHAPES[name].hosts(),
        others=SHAPES[name].others,
        resource=resource,
    )


def _by_name(pod: Pod) -> tuple[object, ...]:
    return natural_key(pod.namespace), natural_key(pod.name), pod.uid


def gpus_of_a_pod(room: ClusterRoom) -> int:
    """GPUs of each pod of a generated job of several: those of a host, 8 at most."""
    return min(int(room.total.max(initial=0)), GPUS_PER_HOST) or GPUS_PER_HOST


def largest_job(room: ClusterRoom, tree: Tree, required: str | None) -> int:
    """GPUs of the largest job that the cluster could hold if no other ran, made as generated jobs are.

    That is one pod a host, all in one domain of the required level, or else a single pod.
    """
    level = None if required is None else tree.level_named(required)
    each = gpus_of_a_pod(room)
    together = _most_pods(each, room.free, tree, level) * each
    return max(together, min(int(room.free.max(initial=0)), each))


def too_large(
    jobs: Jobs, room: ClusterRoom, tree: Tree, bounds: Sequence[tuple[str, int | None]] = ()
) -> dict[int, str]:
    """Jobs that the cluster could not hold if no other job ran, with the reason, in GPUs.

    ``bounds``: levels of which one domain has all pods of a job, or each segment of so many.
    """
    levels = [(tree.level_named(level), size) for level, size in bounds]
    found: dict[int, str] = {}
    for gpus in np.unique(jobs.gpus).tolist():
        if gpus == 0:
            continue
        asks_so = jobs.gpus == gpus
        in_all = _most_pods(gpus, room.free, tree, None)
        for job in np.flatnonzero(asks_so & (jobs.pods > in_all)).tolist():
            found[job] = f"all nodes together take {_pods(in_all, gpus)} when no other job runs"
        for level, size in levels:
            if level is None:
                continue
            in_one = _most_pods(gpus, room.free, tree, level)
            together = jobs.pods if size is None else np.minimum(jobs.pods, size)
            for job in np.flatnonzero(asks_so & (together > max(in_one, 1))).tolist():
                message = f"no {tree.level_names[level]} takes more than {_pods(in_one, gpus)}"
                found.setdefault(job, f"{message} when no other job runs")
    return found


def too_many_pods(jobs: Jobs, room: Counts) -> dict[int, str]:
    """Jobs without GPUs of more pods than all nodes take, with the reason.

    ``room`` is how many pods the nodes could still take if no job ran; shape (slots,).
    """
    in_all = int(room.sum())
    message = f"all nodes together take {in_all:,} pods when no other job runs"
    return dict.fromkeys(np.flatnonzero((jobs.gpus == 0) & (jobs.pods > in_all)).tolist(), message)


def too_many_cores(jobs: Jobs, room: ClusterRoom) -> dict[int, str]:
    """Applications that the cluster could not hold alone, with the reason, in CPU."""
    in_all, in_one = int(room.free.sum()) / 1000, int(room.free.max(initial=0)) / 1000
    found = {}
    for job, graph in enumerate(jobs.graphs):
        if graph is not None and max(graph.cpu) / 1000 > in_one:
            found[job] = f"no node has more than {in_one:,g} cores when no other application runs"
        elif graph is not None and graph.cores > in_all:
            found[job] = f"all nodes together have {in_all:,g} cores when no other application runs"
    return found


def _pods(count: int, gpus: int) -> str:
    return f"{plural(count, 'pod')} of {plural(gpus, 'GPU')}"


def _most_pods(gpus: int, free: Counts, tree: Tree, level: int | None) -> int:
    """The most pods of so many GPUs that one domain of the level holds (the whole cluster without one)."""
    holds: Counts = (free // gpus)[tree.slot_at]
    if level is None:
        return int(holds.sum())
    return int(tree.sums(level, holds)[tree.labelled[level]].max(initial=0))
