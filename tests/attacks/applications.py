"""What attacks on applications share: AppGroups and NetworkTopologies of several namespaces."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from tests.control_plane.api import Api, Object, create_namespace, delete_namespace
from tests.control_plane.nodes import node
from tests.kube.live_world import World

KEP = "scheduling.sigs.k8s.io/v1alpha1"
APP, WORKLOAD = "appgroup.diktyo.x-k8s.io", "appgroup.diktyo.x-k8s.io.workload"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OPERATOR = "kube-system"

#: Three zones of a region with a node each, all alike.
HOSTS = tuple(
    node(name, labels={ZONE: name, REGION: "eu"}, allocatable={"nvidia.com/gpu": "4"})
    for name in ("east", "middle", "west")
)
#: From the east, where every database is: one zone is near, the other far.
Costs = Sequence[tuple[str, str, int]]
WEST_IS_NEAR: Costs = (("east", "middle", 9), ("east", "west", 2), ("middle", "west", 9))
MIDDLE_IS_NEAR: Costs = (("east", "middle", 2), ("east", "west", 9), ("middle", "west", 9))


def weights(costs: Costs) -> Object:
    """A weight set between zones, as in the status of a NetworkTopology."""
    origins = [
        {"origin": one, "costList": [{"destination": other, "networkCost": cost}]}
        for one, other, cost in costs
    ]
    return {
        "algorithmName": "UserDefined",
        "topologyList": [{"topologyKey": ZONE, "originList": origins}],
    }


def path_of(namespace: str, name: str = "") -> str:
    """The path of the NetworkTopologies of a namespace, or of one."""
    root = f"/apis/{KEP}/namespaces/{namespace}/networktopologies"
    return f"{root}/{name}" if name else root


async def create_network(api: Api, namespace: str, name: str, costs: Costs) -> None:
    """A NetworkTopology with costs by hand."""
    body = {
        "apiVersion": KEP,
        "kind": "NetworkTopology",
        "metadata": {"name": name},
        "spec": {"configmapName": "none"},
    }
    await api.create(path_of(namespace), body)
    await api.patch(f"{path_of(namespace, name)}/status", {"status": {"weights": [weights(costs)]}})


@asynccontextmanager
async def networks(api: Api, given: Mapping[tuple[str, str], Costs]) -> AsyncIterator[None]:
    """NetworkTopologies by namespace and name are there inside the context, made in this order."""
    async with AsyncExitStack() as stack:
        for (namespace, name), costs in given.items():
            stack.push_async_callback(api.delete, path_of(namespace, name))
            await create_network(api, namespace, name, costs)
        yield


@asynccontextmanager
async def neighbour(it: World) -> AsyncIterator[World]:
    """Another tenant's namespace in the same world, whose pods name the same scheduler."""
    namespace = await create_namespace(it.api)
    try:
        yield World(it.api, it.transport, namespace, topology=it.topology, name=it.name)
    finally:
        await delete_namespace(it.api, namespace)


async def declare_app(it: World, name: str = "app", limit: int | None = None) -> None:
    """An AppGroup in which the web needs the database, at most so far away."""
    need: Object = {"name": "db", "type": "Pod"} | ({} if limit is None else {"maxNetworkCost": limit})
    pods = [{"name": "web", "type": "Pod", "dependencies": [need]}, {"name": "db", "type": "Pod"}]
    body = {
        "apiVersion": KEP,
        "kind": "AppGroup",
        "metadata": {"name": name},
        "spec": {"numMembers": 2, "Pods": pods},
    }
    await it.api.create(f"/apis/{KEP}/namespaces/{it.namespace}/appgroups", body)


def member(it: World, name: str, workload: str, app: str = "app", gpus: int = 1) -> Object:
    """A pod of a workload of the AppGroup."""
    pod = it.pod(name, gpus)
    pod["metadata"]["labels"] = {APP: app, WORKLOAD: workload}
    return pod


async def database(it: World, name: str = "db", to: str = "east", app: str = "app") -> None:
    """A database that fills the east, bound as another scheduler does: no other pod fits beside it."""
    pod = member(it, name, "db", app, gpus=4)
    pod["spec"]["schedulerName"] = "nobody"
    await it.create(pod)
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": to}}
    await it.api.create(f"/api/v1/namespaces/{it.namespace}/pods/{name}/binding", body)
