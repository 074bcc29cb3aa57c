"""Instances of the Online Boutique: its real manifests, an AppGroup of its services, three zones of nodes.

Each seed draws other costs between the zones and other numbers of replicas. The nodes have little room, so
that the services need several of them and no zone holds them alone.
"""

import itertools
import random
from collections.abc import Mapping
from typing import Any

import yaml
from msgspec import Struct

from closeby.reading.manifests import Manifests
from closeby.simulator.runs import Run
from tests.reading.manifest_text import read_objects
from tests.real_input import shared_data

Manifest = dict[str, Any]

#: Who calls whom (network-aware scheduling KEP), by the names of the Deployments: 10 services, 14 edges.
CALLS: Mapping[str, tuple[str, ...]] = {
    "frontend": (
        "cartservice",
        "productcatalogservice",
        "currencyservice",
        "shippingservice",
        "checkoutservice",
        "recommendationservice",
        "adservice",
    ),
    "cartservice": (),
    "productcatalogservice": (),
    "currencyservice": (),
    "paymentservice": (),
    "shippingservice": (),
    "emailservice": (),
    "checkoutservice": (
        "cartservice",
        "productcatalogservice",
        "currencyservice",
        "paymentservice",
        "shippingservice",
        "emailservice",
    ),
    "recommendationservice": ("productcatalogservice",),
    "adservice": (),
}
#: Thousandths of a CPU that a pod of a service asks for; 100 unless it stands here.
HEAVY = {"adservice": 200, "cartservice": 200}
LOAD_GENERATOR = 300
ZONES = ("zone-a", "zone-b", "zone-c")
NODES_A_ZONE = 4


class Boutique(Struct, frozen=True, kw_only=True):
    """One instance."""

    seed: int
    replicas: Mapping[str, int]
    #: Thousandths of a CPU that each node has free.
    free_cpu: int
    #: Cost between two zones, by their names in order; there may be a shorter way by the third.
    zone_costs: Mapping[tuple[str, str], int]

    @property
    def cpu(self) -> int:
        """Thousandths of a CPU that all services ask for."""
        return sum(count * HEAVY.get(service, 100) for service, count in self.replicas.items())

    @property
    def pods(self) -> int:
        """Pods of the services."""
        return sum(self.replicas.values())

    @property
    def manifests(self) -> Manifests:
        """Everything: the shop with its load generator and its database, the cluster, who calls whom.

        A load generator that would fill a node is left out: least-allocated placement leaves none empty.
        """
        shop = [
            one
            for one in _shop(self.replicas)
            if one["metadata"]["name"] != "loadgenerator" or self.free_cpu > LOAD_GENERATOR
        ]
        return read_objects(*shop, _app_group(), _network(self.zone_costs), *_cluster(self.free_cpu))

    def cost_of(self, run: Run) -> int:
        """What the calls cost as the pods are, worked out from the placement alone."""
        nodes: dict[str, list[str]] = {}
        for pod in run.pods:
            node = run.node_of(pod)
            workload = pod.labels.get("appgroup.diktyo.x-k8s.io.workload")
            if node is not None and workload is not None:
                nodes.setdefault(workload, []).append(node)
        return sum(
            self._distance(here, there)
            for caller, callees in CALLS.items()
            for callee in callees
            for here, there in itertools.product(nodes[caller], nodes[callee])
        )

    def _distance(self, here: str, there: str) -> int:
        one, two = sorted((_zone(here), _zone(there)))
        if one == two:
            return 0 if here == there else 1
        third = next(zone for zone in ZONES if zone not in (one, two))
        detour = sum(self.zone_costs[min(end, third), max(end, third)] for end in (one, two))
        return min(self.zone_costs[one, two], detour)


def boutique(seed: int) -> Boutique:
    """One to three replicas a service on nodes with 0.5 CPU free; drawn again where a zone would hold all."""
    draw = random.Random(seed)
    while True:
        replicas = {service: draw.randint(1, 3) for service in CALLS}
        drawn = Boutique(seed=seed, replicas=replicas, free_cpu=500, zone_costs=_zone_costs(draw))
        if drawn.cpu > NODES_A_ZONE * drawn.free_cpu:
            return drawn


def small_boutique(seed: int) -> Boutique:
    """At most 12 pods, so that the optimum can be worked out: up to two services have two replicas.

    The nodes have 0.3 CPU free: of 0.5 one zone would hold them all.
    """
    draw = random.Random(seed)
    twice = draw.sample(list(CALLS), 2)
    return Boutique(
        seed=seed,
        replicas={service: 2 if service in twice else 1 for service in CALLS},
        free_cpu=300,
        zone_costs=_zone_costs(draw),
    )


def _zone_costs(draw: random.Random) -> dict[tuple[str, str], int]:
    return {pair: draw.randint(2, 20) for pair in itertools.combinations(ZONES, 2)}


def _shop(replicas: Mapping[str, int]) -> list[Manifest]:
    text = shared_data("online-boutique/kubernetes-manifests.yaml").read_text(encoding="utf-8")
    objects = [one for one in yaml.safe_load_all(text) if one is not None]
    for one in objects:
        name = one["metadata"]["name"]
        if one["kind"] == "Deployment" and name in replicas:
            one["spec"]["replicas"] = replicas[name]
            labels = one["spec"]["template"]["metadata"].setdefault("labels", {})
            labels["appgroup.diktyo.x-k8s.io"] = "online-boutique"
            labels["appgroup.diktyo.x-k8s.io.workload"] = name
    return objects


def _app_group() -> Manifest:
    def workload(name: str) -> Manifest:
        return {"kind": "Deployment", "name": name, "selector": name, "apiVersion": "apps/v1"}

    workloads = [
        {"workload": workload(caller), "dependencies": [{"workload": workload(callee)} for callee in callees]}
        for caller, callees in CALLS.items()
    ]
    return {
        "apiVersion": "appgroup.diktyo.x-k8s.io/v1alpha1",
        "kind": "AppGroup",
        "metadata": {"name": "online-boutique", "namespace": "default"},
        "spec": {
            "numMembers": len(CALLS),
            "topologySortingAlgorithm": "KahnSort",
            "workloads": workloads,
        },
    }


def _network(zone_costs: Mapping[tuple[str, str], int]) -> Manifest:
    origins = [
        {"origin": one, "costList": [{"destination": two, "networkCost": cost}]}
        for (one, two), cost in zone_costs.items()
    ]
    zones = {"topologyKey": "topology.kubernetes.io/zone", "originList": origins}
    return {
        "apiVersion": "networktopology.diktyo.x-k8s.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "net", "namespace": "default"},
        "spec": {"weights": [{"name": "UserDefined", "topologyList": [zones]}]},
    }


def _cluster(free_cpu: int) -> list[Manifest]:
    """Nodes of 2 CPUs, most of which a pod takes that runs already."""
    objects: list[Manifest] = []
    for zone in ZONES:
        for index in range(NODES_A_ZONE):
            name = f"{zone}-{index}"
            labels = {
                "topology.kubernetes.io/region": "region",
                "topology.kubernetes.io/zone": zone,
                "kubernetes.io/hostname": name,
            }
            objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": name, "labels": labels},
                    "status": {"allocatable": {"cpu": "2", "memory": "16Gi", "pods": "110"}},
                }
            )
            resources = {"requests": {"cpu": f"{2000 - free_cpu}m"}}
            objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"busy-{name}", "namespace": "busy"},
                    "spec": {"nodeName": name, "containers": [{"name": "main", "resources": resources}]},
                    "status": {"phase": "Running"},
                }
            )
    return objects


def _zone(node: str) -> str:
    return node.rpartition("-")[0]
