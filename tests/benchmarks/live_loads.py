"""The cluster of the live benchmark, and pods that mind each other or have volumes; all get the same."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.nodes import node
from tests.kube.live import eventually
from tests.kube.provisioner import Provisioner

NODES, LEAVES = 2_000, 125
DRIVER, DISKS, STORAGE = "disk.example.com", "disks", "/apis/storage.k8s.io/v1"
#: Pods with claims that look for a node, where starts are measured.
WAITING = 20
GPU = "nvidia.com/gpu"
ZONE, LEAF = "topology.kubernetes.io/zone", "benchmarks.closeby.dev/leaf"
#: Applications of equal pods, each spread over the zones and never twice on a node.
APPS = 50
_COMMON = {"accessModes": ["ReadWriteOnce"]}
_SIZE = {"storage": "1Gi"}
_VOLUMES = "/api/v1/persistentvolumes"
_AT_ONCE = 100


def with_terms(number: int, made: Object) -> None:
    """Hard spread over zones, and required anti-affinity by node, among the pods of one application."""
    app = {"app": f"app-{number % APPS}"}
    made["metadata"]["labels"] |= app
    selector = {"matchLabels": app}
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    made["spec"]["topologySpreadConstraints"] = [{**spread, "labelSelector": selector}]
    apart = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    made["spec"]["affinity"] = {"podAntiAffinity": required}


def with_volume(number: int, made: Object) -> None:
    """One claim for each pod: ``c-`` and the number."""
    claim = {"claimName": f"c-{number}"}
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]


@contextlib.asynccontextmanager
async def volumes(api: Api, namespace: str, pods: int) -> AsyncIterator[None]:
    """The claims: every second one has its volume, in some leaf; for the others it is made with the node."""
    names = [f"{namespace}-{number}" for number in range(0, pods, 2)]
    async with Provisioner(api, namespace, LEAF).serving() as provisioner:
        try:
            for start in range(0, pods, _AT_ONCE):
                numbers = range(start, min(pods, start + _AT_ONCE))
                await asyncio.gather(*(_claim(provisioner, namespace, one) for one in numbers))

            async def bound() -> bool:
                return len(await provisioner.bound()) >= len(names)

            await eventually(bound)
            yield
        finally:
            for start in range(0, len(names), _AT_ONCE):
                await asyncio.gather(*(_remove(api, name) for name in names[start : start + _AT_ONCE]))


async def _claim(provisioner: Provisioner, namespace: str, number: int) -> None:
    name = f"c-{number}"
    if number % 2:
        await provisioner.claim(name)
        return
    volume = f"{namespace}-{number}"
    leaf = {"key": LEAF, "operator": "In", "values": [f"leaf-{number % LEAVES}"]}
    spec = {
        **_COMMON,
        "capacity": _SIZE,
        "storageClassName": provisioner.by_hand,
        "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": "disk.example.com", "volumeHandle": volume},
        "claimRef": {"namespace": namespace, "name": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [leaf]}]}},
    }
    await provisioner.api.create(_VOLUMES, {"metadata": {"name": volume}, "spec": spec})
    wanted = {**_COMMON, "storageClassName": provisioner.by_hand, "volumeName": volume}
    claim = {"metadata": {"name": name}, "spec": {**wanted, "resources": {"requests": _SIZE}}}
    await provisioner.api.create(provisioner.claims, claim)


async def _remove(api: Api, name: str) -> None:
    with contextlib.suppress(ApiError):
        await api.patch(f"{_VOLUMES}/{name}", {"metadata": {"finalizers": None}})
        await api.delete(f"{_VOLUMES}/{name}")


def check_terms(nodes: dict[str, str]) -> None:
    """No application is twice on a node, and its pods are spread over the zones."""
    for app in range(APPS):
        its = [on for name, on in nodes.items() if int(name.removeprefix("p-")) % APPS == app]
        assert len(set(its)) == len(its), f"app-{app} is twice on a node"
        zones = [sum(zone_of(int(on.removeprefix("n-"))) == f"zone-{i}" for on in its) for i in range(3)]
        assert max(zones) - min(zones) <= 1, f"app-{app} is spread as {zones}"


def zone_of(number: int) -> str:
    """Of a node: zones take turns."""
    return f"zone-{number % 3}"


def all_nodes(number: int = NODES) -> list[Object]:
    """The cluster's nodes, 16 in a leaf."""
    return [
        node(
            f"n-{i:04}",
            labels={LEAF: f"leaf-{i // (NODES // LEAVES)}", ZONE: zone_of(i)},
            allocatable={GPU: "8"},
        )
        for i in range(number)
    ]


def storage_of(namespace: str, pods: int, nodes: int) -> Iterator[tuple[str, Object]]:
    """Paths and objects of all volumes: each pod has a claim, whose volume is attached to its node."""
    names = [f"n-{i:04}" for i in range(nodes)]
    waits = {"provisioner": DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}
    yield f"{STORAGE}/storageclasses", {"metadata": {"name": DISKS}, **waits}
    for name in names:
        driver = {"name": DRIVER, "nodeID": name, "topologyKeys": [LEAF], "allocatable": {"count": 25}}
        yield f"{STORAGE}/csinodes", {"metadata": {"name": name}, "spec": {"drivers": [driver]}}
    common = {"accessModes": ["ReadWriteOnce"], "storageClassName": DISKS}
    size, done = {"storage": "10Gi"}, {"pv.kubernetes.io/bind-completed": "yes"}
    for number in range(pods + WAITING):
        claim, volume, bound = f"c-{number}", f"v-{number}", number < pods
        spec = {**common, "resources": {"requests": size}, **({"volumeName": volume} if bound else {})}
        meta = {"name": claim, **({"annotations": done} if bound else {})}
        claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        yield claims, {"metadata": meta, "spec": spec, "status": {"phase": "Bound" if bound else "Pending"}}
        if not bound:
            continue
        leaf = {"key": LEAF, "operator": "In", "values": [f"leaf-{number % nodes // (NODES // LEAVES)}"]}
        spec = {
            **common,
            "capacity": size,
            "csi": {"driver": DRIVER, "volumeHandle": volume},
            "claimRef": {"namespace": namespace, "name": claim},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [leaf]}]}},
        }
        yield _VOLUMES, {"metadata": {"name": volume}, "spec": spec, "status": {"phase": "Bound"}}
        source = {"persistentVolumeName": volume}
        spec = {"attacher": DRIVER, "nodeName": names[number % nodes], "source": source}
        yield f"{STORAGE}/volumeattachments", {"metadata": {"name": f"a-{number}"}, "spec": spec}
