"""What an attacker does in a namespace of its own, all the while a good tenant works beside it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from itertools import cycle, islice
from typing import Any, Final

from closeby.reading.decoding.keys import TASK_AFFINITY, TASK_ORDER, TASK_TRAFFIC
from tests.attacks.applications import KEP, MIDDLE_IS_NEAR, create_network, member
from tests.control_plane.api import Api, ApiError, Object, create_namespace, delete_namespace
from tests.kube.live_world import World

#: A quarter of a megabyte is what the annotations of an object may have.
ANNOTATION: Final = 250_000
#: By what it is: annotations about roles, as long as may be.
BOMBS: Final[dict[str, Object]] = {
    "roles that nobody has": {TASK_AFFINITY: ",".join(f"r{i}" for i in range(40_000))[:ANNOTATION]},
    "many groups of roles": {TASK_AFFINITY: ";".join(f"r{i}" for i in range(40_000))[:ANNOTATION]},
    "one role again and again": {TASK_ORDER: ",".join(["main"] * (ANNOTATION // 5))},
    "one long role": {TASK_ORDER: "x" * ANNOTATION},
    "dashes": {TASK_TRAFFIC: "-" * ANNOTATION},
    "names of dashes": {TASK_TRAFFIC: f"{'a-' * (ANNOTATION // 2 - 2)}=1"},
    "many talks": {TASK_TRAFFIC: ",".join(f"a-{i}=1" for i in range(30_000))[:ANNOTATION]},
    "commands to a terminal": {TASK_ORDER: "\x1b]0;owned\x07\x1b[2J\n" * (ANNOTATION // 20)},
}
#: Nodes have no such label.
NOWHERE: Final = {"attacks.closeby.dev/nowhere": "x"}

#: Prepares, and goes on while the context of ``under`` is open.
Assault = Callable[[World], AsyncIterator[None]]


@asynccontextmanager
async def under(good: World, assault: Assault | None) -> AsyncIterator[None]:
    """The attack goes on inside the context; afterwards nothing of it is left to be scheduled."""
    if assault is None:
        yield
        return
    namespace = await create_namespace(good.api)
    attacker = World(good.api, good.transport, namespace, topology=good.topology, name=good.name)
    steps = assault(attacker)
    await anext(steps)
    try:
        yield
    finally:
        async for _ in steps:
            pass
        await delete_namespace(good.api, namespace)
        await _gone(good.api, namespace)


async def _gone(api: Api, namespace: str) -> None:
    """Waits until the namespace and its objects are gone: deleting them is work for the API server too."""
    async with asyncio.timeout(120.0):
        while True:
            try:
                await api.get(f"/api/v1/namespaces/{namespace}")
            except ApiError as error:
                if error.status == 404:
                    return
                raise
            await asyncio.sleep(0.2)


async def hostile_owners(it: World) -> AsyncIterator[None]:
    """Pods whose owner, once it stands in an address, is a watch that never ends."""

    async def one(i: int) -> None:
        pod = it.pod(f"p{i}")
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "?watch=true", "uid": f"00-{i}"}
        pod["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        await it.create(pod)

    await together(one(i) for i in range(40))
    yield


async def hostile_metrics(it: World) -> AsyncIterator[None]:
    """NetworkTopologies whose Prometheus is the tenant's own, and answers with 31 MiB."""
    series = '{"metric":{"origin":"a","destination":"b"},"value":[0,"1"]},' * 500_000
    body = '{"status":"success","data":{"resultType":"vector","result":[' + series[: 31 << 20] + "{}]}}"
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider = {"type": "Prometheus", "address": f"http://127.0.0.1:{port}"}
    spec = {"metricProvider": provider, "freqUpdate": 1, "timeRangeInMinutes": 1}
    path = f"/apis/{KEP}/namespaces/{it.namespace}/networktopologies"

    async def one(i: int) -> None:
        body = {"apiVersion": KEP, "kind": "NetworkTopology", "metadata": {"name": f"n{i}"}, "spec": spec}
        await it.api.create(path, body)

    await together(one(i) for i in range(16))
    yield
    server.close()


async def hostile_costs(it: World) -> AsyncIterator[None]:
    """A hundred NetworkTopologies with costs that nobody measured."""
    await together(create_network(it.api, it.namespace, f"n{i}", MIDDLE_IS_NEAR) for i in range(100))
    yield


async def forged_priorities(it: World) -> AsyncIterator[None]:
    """Gangs that fit nowhere name the highest class that there is."""

    async def one(i: int) -> None:
        spec = {"minMember": 65, "priorityClassName": "system-node-critical"}
        await it.declare_group(f"g{i}", spec)
        await it.create(*(it.pod(f"g{i}-{j}", 8, gang=f"g{i}") for j in range(65)))

    await together(one(i) for i in range(6))
    yield


async def hostile_applications(it: World) -> AsyncIterator[None]:
    """Applications of 150 workloads that all need each other near by; most of their pods fit nowhere."""
    names = [f"w{i}" for i in range(150)]

    async def one(app: str) -> None:
        pods = [
            {
                "name": own,
                "dependencies": [{"name": other, "maxNetworkCost": 1} for other in names if other != own],
            }
            for own in names
        ]
        body = {"apiVersion": KEP, "kind": "AppGroup", "metadata": {"name": app}, "spec": {"Pods": pods}}
        await it.api.create(f"/apis/{KEP}/namespaces/{it.namespace}/appgroups", body)
        made = [member(it, f"{app}-{name}", name, app, gpus=0) for name in names]
        for pod in made[30:]:
            pod["spec"]["nodeSelector"] = NOWHERE
        await it.create(*made)

    await together(one(f"app{i}") for i in range(6))
    yield


async def many_shapes(it: World) -> AsyncIterator[None]:
    """Pods that fit nowhere, no two of which are alike."""
    await it.create(*(it.pod(f"p{i}", 0, cpu=f"{33_000 + i}m") for i in range(1200)))
    yield


async def annotation_bombs(it: World) -> AsyncIterator[None]:
    """Gangs whose annotations are as long as may be, and make no sense."""

    async def one(i: int, annotations: Object) -> None:
        await it.declare_group(f"g{i}", {"minMember": 2}, annotations=annotations)
        pods = [it.pod(f"g{i}-{j}", 0, gang=f"g{i}") for j in range(2)]
        for pod in pods:
            pod["metadata"]["labels"]["volcano.sh/task-spec"] = "main"
        await it.create(*pods)

    await together(one(i, bomb) for i, bomb in enumerate(islice(cycle(BOMBS.values()), 40)))
    yield


async def pod_flood(it: World) -> AsyncIterator[None]:
    """Single pods come and go, as fast as the server takes them."""
    pods = f"/api/v1/namespaces/{it.namespace}/pods"

    async def flood() -> None:
        number = 0
        while True:
            await it.create(*(it.pod(f"p{number + i}", 0, cpu="10m") for i in range(200)))
            number += 200
            if number % 1000 == 0:
                await it.api.delete(pods, {"gracePeriodSeconds": 0})

    flooding = asyncio.create_task(flood())
    yield
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)


async def flood_for_another(it: World) -> AsyncIterator[None]:
    """The same pods, for a scheduler that does not exist: what the flood costs the API server."""
    it.name = "somebody-else"
    async for _ in pod_flood(it):
        yield


#: What attacks others than closeby, to compare with.
CONTROLS: Final[dict[str, Assault]] = {"the same, for another scheduler": flood_for_another}
ASSAULTS: Final[dict[str, Assault]] = {
    "hostile owners": hostile_owners,
    "hostile metrics addresses": hostile_metrics,
    "hostile NetworkTopologies": hostile_costs,
    "forged priorities": forged_priorities,
    "hostile applications": hostile_applications,
    "1,200 shapes that fit nowhere": many_shapes,
    "annotation bombs": annotation_bombs,
    "pod flood": pod_flood,
}


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of it; what the API server refuses is an attack that it stops itself."""

    async def tried(one: Awaitable[None]) -> None:
        try:
            await one
        except ApiError as error:
            if error.status not in (400, 403, 422):
                raise

    await asyncio.gather(*(tried(one) for one in work))
