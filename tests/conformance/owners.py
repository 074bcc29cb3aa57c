"""Pods that their Services and workloads spread, by default constraints that the scheduler enforces."""

from random import Random
from typing import TYPE_CHECKING

from tests.control_plane.api import Object

if TYPE_CHECKING:
    from tests.conformance.worlds import World

_APPS = ("web", "db", "cache")
_KEYS = ("topology.kubernetes.io/zone", "kubernetes.io/hostname", "disk")
_KINDS = {
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicationController": "v1",
}


def add_owners(world: "World", random: Random) -> None:
    """Services, one workload of each kind that make no pods themselves, and the constraints."""
    for i in range(random.randrange(3)):
        selector = random.choice(({"app": random.choice(_APPS)}, {"track": random.choice("xy")}))
        service: Object = {
            "metadata": {"name": f"s{i}"},
            "spec": {"selector": selector, "ports": [{"port": 80}]},
        }
        world.add(f"/api/v1/namespaces/{world.namespace}/services", service)
    for kind, version in _KINDS.items():
        labels = {"app": random.choice(_APPS)}
        pod: Object = {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
        }
        selected: Object = dict(labels) if version == "v1" else {"matchLabels": labels}
        spec: Object = {"replicas": 0, "selector": selected, "template": pod}
        if kind == "StatefulSet":
            spec["serviceName"] = "none"
        root = "/api/v1" if version == "v1" else f"/apis/{version}"
        made: Object = {"metadata": {"name": kind.lower()}, "spec": spec}
        world.add(f"{root}/namespaces/{world.namespace}/{kind.lower()}s", made)
    keys = random.sample(_KEYS, k=random.choice((1, 2)))
    world.default_constraints = [_constraint(random, key) for key in keys]


def _constraint(random: Random, key: str) -> Object:
    one: Object = {
        "topologyKey": key,
        "maxSkew": random.choice((1, 2)),
        "whenUnsatisfiable": random.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
    }
    if random.random() < 0.3:
        one["minDomains"] = random.choice((2, 20))
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if random.random() < 0.4:
            one[name] = random.choice(("Honor", "Ignore"))
    return one


def own(world: "World", random: Random, pod: Object) -> None:
    """Some pods have a workload, which is not always there."""
    if random.random() < 0.5:
        kind = random.choice(tuple(_KINDS))
        name = kind.lower() if random.random() < 0.9 else "gone"
        owner = {"apiVersion": _KINDS[kind], "kind": kind, "name": name, "uid": name, "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
