"""What others do to a cluster while decisions wait to be carried out."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from closeby.kube.scheduler.live import LiveScheduler
from closeby.scheduling.engine import Engine
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Fault, Proxy
from tests.kube.live_world import RACK, World, behind_proxy, group_of, host, planned, until

#: Two racks of four nodes of 8 GPUs: each holds a gang of 32, and nothing else says which one it takes.
HOSTS = [host(f"r{rack}-{i}", f"r{rack}") for rack in range(2) for i in range(4)]
NAMES = [one["metadata"]["name"] for one in HOSTS]
MEMBERS = 32


@asynccontextmanager
async def decided(
    control_plane: ControlPlane, namespace: str, part: str, fault: Fault, method: str = "POST"
) -> AsyncIterator[tuple[World, Proxy, LiveScheduler, list[str]]]:
    """A gang of 32 that requires a rack was decided; requests with ``part`` in their path meet a fault.

    Yields the nodes that were chosen, too.
    """
    async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy), it.scheduling() as scheduler:
        proxy.inject(method, part, fault, times=1_000_000)
        await it.gang("g", MEMBERS, required="rack")

        async def met() -> bool:
            return proxy.count(method, part) > 0 and len(chosen(scheduler.engine, namespace)) == MEMBERS

        await until(met)
        assert await it.placed() == {}
        yield it, proxy, scheduler, sorted(set(chosen(scheduler.engine, namespace)))


def chosen(engine: Engine, namespace: str) -> list[str]:
    """The node of each member of the gang that holds one, in the scheduler's mind."""
    slots = (engine.cluster.placement(pod.uid) for pod in engine.state.placed(f"{namespace}/g"))
    return [engine.cluster.node_at(slot).name for slot in slots if slot is not None]


async def fill(it: World, names: Iterable[str], gpus: int = 8) -> list[str]:
    """Another scheduler binds a pod of its own to each of these nodes; returns the pods' names."""

    async def take(name: str) -> str:
        rival = f"rival-{name}"
        await it.create(it.pod(rival, gpus, schedulerName="rival"))
        binding = {"metadata": {"name": rival}, "target": {"kind": "Node", "name": name}}
        await it.api.create(f"/api/v1/namespaces/{it.namespace}/pods/{rival}/binding", binding)
        return rival

    return list(await asyncio.gather(*(take(name) for name in names)))


async def until_full(engine: Engine, names: Iterable[str]) -> None:
    """Waits until the scheduler has heard of the rivals."""

    async def heard() -> bool:
        known = {pod.name for pod, _ in engine.cluster.placed_pods()}
        return all(f"rival-{name}" in known for name in names)

    await until(heard)


async def until_given_up(engine: Engine, namespace: str, names: Iterable[str] = NAMES) -> None:
    """Waits until no member holds one of these nodes: from then on no binding is on its way to them.

    A binding that was sent before the scheduler heard of a change may reach the server after it.
    """
    without = set(names)

    async def given_up() -> bool:
        return without.isdisjoint(chosen(engine, namespace))

    await until(given_up)


async def relabel(it: World, engine: Engine, name: str, rack: str) -> None:
    """Moves a node to another rack, and waits until the scheduler has heard of it."""
    await it.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {RACK: rack}}})

    async def heard() -> bool:
        return engine.cluster.node_at(engine.cluster.slot_of(name)).labels[RACK] == rack

    await until(heard)


async def members(it: World) -> dict[str, str]:
    """The node of each bound member of the gang."""
    return {name: node for name, node in (await it.placed()).items() if name.startswith("g-")}


async def plan_of(it: World) -> dict[str, str]:
    """pod -> node of the plan that stands in the PodGroup's status."""
    return planned(await group_of(it, "g"))
