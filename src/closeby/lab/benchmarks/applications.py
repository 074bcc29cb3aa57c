"""Applications whose pods talk: scores by network cost, shortest paths between locations, placements."""

import random
from collections.abc import Iterator, Sequence

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.lab.benchmarks.figures import Figure, TimedSample, quiet_collector, summary, timed
from closeby.objects.applications import (
    APP_GROUP_LABEL,
    WORKLOAD_LABEL,
    AppGroup,
    AppWorkload,
    Dependency,
    LinkCost,
    NetworkTopology,
    WeightSet,
)
from closeby.objects.labels import REGION, ZONE
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupDeleted,
    NetworkTopologyChanged,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.extension import NormalizeScore
from closeby.scheduling.outcomes import bindings_of
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.costs import locate, network_costs

REGIONS = 5
ZONES_A_REGION = 10
#: Cost between regions, and between zones of one (the shape of scheduler-plugins' own benchmark).
REGION_COST = 50
ZONE_COST = 10
#: Who calls whom in the Online Boutique (network-aware scheduling KEP); the first is scored.
CALLS = {1: (2, 3, 4, 6, 8, 9, 10), 8: (2, 3, 4, 5, 6, 7), 9: (3,)}
REPLICAS = 2
RUNS = 7
TARGETS = {"score": 1.0, "paths": 2_000.0}


def scoring(sizes: Sequence[int] = (100, 1_000, 10_000)) -> Iterator[Figure]:
    """One pod's score and normalized score on every node, with ten pods of its application placed."""
    for count in sizes:
        engine = _engine(count)
        names = [f"P{index}" for index in range(1, 11)]
        calls = {f"P{caller}": [f"P{callee}" for callee in callees] for caller, callees in CALLS.items()}
        engine.handle(AppGroupChanged(_app_group(names, calls)))
        draw = random.Random(1)
        engine.handle(*(PodUpserted(_pod(name, 0, f"node-{draw.randrange(count)}")) for name in names))
        plugin = next(one for one in engine.profile.dependency_costs if isinstance(one, NormalizeScore))
        nodes, pod = Nodes(engine.cluster), _pod("P1", 1)

        def score(plugin: NormalizeScore = plugin, nodes: Nodes = nodes, pod: Pod = pod) -> int:
            state = CycleState()
            plugin.normalize(state, pod, plugin.score(state, pod, nodes))
            return 0

        with quiet_collector():
            samples = [timed(score) for _ in range(50)]
        yield summary(
            "network cost, score", "10 placed pods, 7 edges", count, 1, samples[1:], TARGETS["score"]
        )


def paths(count: int = 5_000, zones: int = 500) -> Iterator[Figure]:
    """All shortest paths between zones, and from them the costs between the locations of all nodes."""
    cluster = Cluster()
    for node in _nodes(count, 1, zones):
        cluster.add_node(node)
    draw = random.Random(1)
    ring = [(one, (one + 1) % zones) for one in range(zones)]
    sparse = ring + [(one, draw.randrange(zones)) for one in range(zones) for _ in range(7)]
    every = [(one, other) for one in range(zones) for other in range(one)]
    for case, pairs in (("8 links a zone", sparse), ("links between all zones", every)):
        links = tuple(
            LinkCost(origin=f"zone-{one}", destination=f"zone-{other}", cost=draw.randint(1, 100))
            for one, other in pairs
        )
        network = _network(zone_costs=links)

        def work(network: NetworkTopology = network) -> int:
            costs = network_costs(network, network.weight_sets[0])
            located = locate(costs, cluster.names, cluster.labels)
            return int(np.isnan(located.between).sum())

        with quiet_collector():
            samples = [timed(work) for _ in range(RUNS)]
        yield summary(
            "network cost, paths", f"{zones} zones, {case}", count, 0, samples[1:], TARGETS["paths"]
        )


def placing(sizes: Sequence[int] = (11, 100), count: int = 5_000) -> Iterator[Figure]:
    """The tick that places a whole application: each service calls up to three later ones."""
    for services in sizes:
        engine = _engine(count)
        names = [f"P{index}" for index in range(services)]
        draw = random.Random(1)
        calls = {
            name: [names[other] for other in sorted({draw.randrange(place + 1, services) for _ in range(3)})]
            for place, name in enumerate(names[:-1])
        }
        group = _app_group(names, calls)
        with quiet_collector():
            samples = [_place(engine, group) for _ in range(4)]
        case = f"{services} services of {REPLICAS} replicas"
        yield summary("application, placement", case, count, services * REPLICAS, samples[1:])


def _place(engine: Engine, group: AppGroup) -> TimedSample:
    pods = [_pod(workload.name, replica) for workload in group.workloads for replica in range(REPLICAS)]
    engine.handle(AppGroupChanged(group), *(PodUpserted(pod) for pod in pods))

    def decide() -> int:
        return len(bindings_of(engine.handle(Tick())))

    sample = timed(decide)
    engine.handle(*(PodDeleted(pod.uid) for pod in pods), AppGroupDeleted(group.key))
    return sample


def _engine(count: int) -> Engine:
    """Nodes in 5 regions of 10 zones."""
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    engine.handle(*(NodeUpserted(node) for node in _nodes(count, REGIONS, ZONES_A_REGION)))
    zones = tuple(
        LinkCost(origin=f"zone-{first + one}", destination=f"zone-{first + other}", cost=ZONE_COST)
        for first in range(0, REGIONS * ZONES_A_REGION, ZONES_A_REGION)
        for one in range(ZONES_A_REGION)
        for other in range(one)
    )
    regions = tuple(
        LinkCost(origin=f"region-{one}", destination=f"region-{other}", cost=REGION_COST)
        for one in range(REGIONS)
        for other in range(one)
    )
    engine.handle(NetworkTopologyChanged(_network(zones, regions)))
    return engine


def _network(zone_costs: tuple[LinkCost, ...], region_costs: tuple[LinkCost, ...] = ()) -> NetworkTopology:
    weights = WeightSet(name="UserDefined", zone_costs=zone_costs, region_costs=region_costs)
    return NetworkTopology(namespace="bench", name="network", weight_sets=(weights,))


def _nodes(count: int, regions: int, zones_a_region: int) -> list[Node]:
    """Nodes of half a CPU, room for five pods, dealt out to the zones in turn."""
    found = []
    for index in range(count):
        zone = index % (regions * zones_a_region)
        labels = {REGION: f"region-{zone // zones_a_region}", ZONE: f"zone-{zone}"}
        found.append(Node(name=f"node-{index}", labels=labels, allocatable={"cpu": 500, "pods": 110}))
    return found


def _app_group(names: Sequence[str], calls: dict[str, list[str]]) -> AppGroup:
    workloads = tuple(
        AppWorkload(
            name=name, dependencies=tuple(Dependency(workload=callee) for callee in calls.get(name, ()))
        )
        for name in names
    )
    return AppGroup(namespace="bench", name="shop", workloads=workloads)


def _pod(workload: str, replica: int, node: str | None = None) -> Pod:
    name = f"{workload}-{replica}"
    return Pod(
        namespace="bench",
        name=name,
        uid=f"bench/{name}",
        spec=PodSpec(requests=(("cpu", 100),)),
        labels={APP_GROUP_LABEL: "shop", WORKLOAD_LABEL: workload},
        node_name=node,
        phase="Pending" if node is None else "Running",
    )
