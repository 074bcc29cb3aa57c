"""Traffic in a random world: an application whose calls cost more between zones than inside of one."""

from collections.abc import Sequence
from itertools import combinations
from random import Random

from tests.random_worlds.facts import APP, WORKLOAD, Document

WORKLOADS = "abc"


def let_talk(random: Random, pods: Sequence[Document], zones: Sequence[str]) -> list[Document]:
    """Makes pods replicas of an application; returns it, and what its calls cost."""
    for pod in pods:
        pod["metadata"]["labels"] |= {APP: "shop", WORKLOAD: random.choice(WORKLOADS)}
    edges = [one for one in combinations(WORKLOADS, 2) if random.random() < 0.7] or [("a", "b")]
    callers = []
    for name in WORKLOADS:
        called = [{"name": other, "type": "Deployment"} for one, other in edges if one == name]
        callers.append({"name": name, "type": "Deployment", "dependencies": called})
    spec: Document = {"numMembers": len(pods), "topologySortingAlgorithm": "KahnSort", "Pods": callers}
    application = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "AppGroup",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": spec,
    }
    origins = [
        {
            "origin": one,
            "costList": [
                {"destination": other, "networkCost": random.randint(2, 9)} for other in zones if other > one
            ],
        }
        for one in zones
    ]
    weights = {"topologyKey": "topology.kubernetes.io/zone", "originList": origins}
    network = {
        "apiVersion": "networktopology.diktyo.x-k8s.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "costs", "namespace": "default"},
        "spec": {
            "configmapName": "costs",
            "weights": [{"name": "UserDefined", "topologyList": [weights]}],
        },
    }
    return [application, network]


def alone(pods: Sequence[Document], group: str) -> None:
    """Takes pods out of their gang: the application is what they have in common."""
    for pod in pods:
        pod["metadata"]["labels"].pop(group, None)
        pod["spec"].pop("priority", None)
