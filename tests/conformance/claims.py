"""Pods with ResourceClaims for which devices are allocated; kube-scheduler is not to allocate any."""

from random import Random
from typing import TYPE_CHECKING

from tests.control_plane.api import Object

if TYPE_CHECKING:
    from tests.conformance.worlds import World

_CLAIMS = 6
#: With those of a world fewer than can be: beyond that closeby waits on purpose, and counts all pods.
_MOST = 100


def add_claims(world: "World", random: Random) -> None:
    """Some claims: for all nodes, for some, and one that many pods use."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{world.namespace}/resourceclaims"
    for i in range(_CLAIMS):
        request = {"name": "all", "exactly": {"deviceClassName": "devices"}}
        claim: Object = {"metadata": {"name": f"claim-{i}"}, "spec": {"devices": {"requests": [request]}}}
        result = {"request": "all", "driver": "example.com", "pool": "p", "device": f"d{i}"}
        allocation: Object = {"devices": {"results": [result]}}
        if i:
            names = [made["metadata"]["name"] for made in world.nodes]
            some = random.sample(names, k=len(names) // 2)
            field = {"key": "metadata.name", "operator": "In", "values": [random.choice(names)]}
            label = {"key": "kubernetes.io/hostname", "operator": "In", "values": some}
            one_term = {"matchFields": [field]} if random.random() < 0.2 else {"matchExpressions": [label]}
            allocation["nodeSelector"] = {"nodeSelectorTerms": [one_term]}
        status: Object = {"allocation": allocation}
        if i == 1:
            users = [{"resource": "pods", "name": f"u{n}", "uid": f"u{n}"} for n in range(_MOST)]
            status["reservedFor"] = users
        world.add(path, claim, status)


def claim_devices(world: "World", random: Random, pod: Object) -> None:
    """Some pods use one claim or two."""
    if random.random() < 0.15:
        numbers = random.sample(range(_CLAIMS), k=random.choice((1, 1, 2)))
        claims = [{"name": f"c{i}", "resourceClaimName": f"claim-{i}"} for i in numbers]
        pod["spec"]["resourceClaims"] = claims
