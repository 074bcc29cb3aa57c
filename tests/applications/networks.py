"""Networks drawn as text, and clusters whose nodes are in them."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from closeby.objects.applications import LinkCost, NetworkTopology, WeightSet
from closeby.objects.labels import REGION, ZONE
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from tests.worlds import GPU, node, pods, spec

#: The KEP's.
#: worker-1 -1- worker-2 -6- worker-4 -2- worker-5
#:     \-------4- worker-3 -5-/          /
#:                    \------------3----/
FIVE_NODES = """
worker-1 worker-2 1
worker-1 worker-3 4
worker-2 worker-4 6
worker-3 worker-4 5
worker-3 worker-5 3
worker-4 worker-5 2
"""
#: Two regions 20 apart, of two zones each (tests of the published plugin).
EIGHT_NODES = "west Z1 n-1 n-2|west Z2 n-3 n-4|east Z3 n-5 n-6|east Z4 n-7 n-8"
EIGHT_ZONES, EIGHT_REGIONS = "Z1 Z2 5\nZ3 Z4 10", "west east 20"


def links(text: str) -> tuple[LinkCost, ...]:
    """One link a line: origin, destination, cost."""
    rows = [line.split() for line in text.strip().splitlines()]
    return tuple(LinkCost(origin=a, destination=b, cost=int(cost)) for a, b, cost in rows)


def network(
    nodes: str = "", zones: str = "", regions: str = "", name: str = "net", weights: str = "UserDefined"
) -> NetworkTopology:
    """A NetworkTopology with one weight set."""
    costs = WeightSet(
        name=weights, node_costs=links(nodes), zone_costs=links(zones), region_costs=links(regions)
    )
    return NetworkTopology(namespace="default", name=name, weight_sets=(costs,))


def workers(count: int = 5, gpus: int = 9) -> list[Node]:
    """worker-1, worker-2, …"""
    return [node(f"worker-{number}", allocatable={GPU: gpus}) for number in range(1, count + 1)]


def in_zones(text: str, gpus: int | Mapping[str, int] = 9) -> list[Node]:
    """``west Z1 n-1 n-2|east Z2 n-3`` puts nodes into regions and zones; ``-`` is a missing label."""
    found = []
    for group in text.split("|"):
        region, zone, *names = group.split()
        labels = {key: value for key, value in ((REGION, region), (ZONE, zone)) if value != "-"}
        found += [
            node(name, labels, {GPU: gpus if isinstance(gpus, int) else gpus.get(name, 0)}) for name in names
        ]
    return found


def replicas(
    workload: str,
    count: int = 1,
    app: str = "A1",
    prefix: str | None = None,
    on: str | None = None,
    group: str | None = None,
    gpus: int = 1,
    **fields: Any,
) -> list[Pod]:
    """Pods of one workload of an application, called ``prefix-0``, ``prefix-1``, …"""
    labels = {"appgroup.diktyo.x-k8s.io": app, "appgroup.diktyo.x-k8s.io.workload": workload}
    prefix = workload.lower() if prefix is None else prefix
    return pods(group, count, spec(gpu=gpus), prefix=prefix, on=on, labels=labels, **fields)


def distances(names: Sequence[str], costs: NetworkTopology) -> dict[tuple[str, str], float]:
    """Shortest paths the slow way; unknown ones count as the greatest known one and one more."""
    ends = [end for link in costs.weight_sets[0].node_costs for end in (link.origin, link.destination)]
    places = dict.fromkeys([*names, *ends])
    far = {(a, b): 0.0 if a == b else inf for a in places for b in places}
    for link in costs.weight_sets[0].node_costs:
        there, back = (link.origin, link.destination), (link.destination, link.origin)
        far[there] = far[back] = min(far[there], link.cost)
    for through in places:
        far = {(a, b): min(cost, far[a, through] + far[through, b]) for (a, b), cost in far.items()}
    unknown = max((cost for cost in far.values() if cost < inf), default=0) + 1
    return {pair: unknown if cost == inf else cost for pair, cost in far.items()}
