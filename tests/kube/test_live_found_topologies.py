"""A real cluster without a Topology object, and one with two that say the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.control_plane.nodes import joined, kubelets, node
from tests.kube.live import direct
from tests.kube.live_world import RACK, World, group_of, host, until, until_said, world

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
pytestmark = pytest.mark.timeout(400)


def zoned(name: str, zone: str, gpus: int = 8) -> Object:
    labels = {ZONE: zone, REGION: "r", "kubernetes.io/hostname": name}
    return node(name, labels=labels, allocatable={"nvidia.com/gpu": str(gpus)})


#: Zone a has room for three pods of 4 GPUs, zone b for four, and c for one.
HOSTS = [zoned("a1", "a", 4), zoned("a2", "a"), zoned("b1", "b"), zoned("b2", "b"), zoned("c1", "c", 4)]


@asynccontextmanager
async def without_topology(control_plane: ControlPlane, namespace: str) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(Api(control_plane.access()))
        await define(api)
        await stack.enter_async_context(joined(api, HOSTS))
        await stack.enter_async_context(kubelets(api, {one["metadata"]["name"] for one in HOSTS}))
        transport = await stack.enter_async_context(direct(control_plane.kubeconfig))
        yield World(api, transport, namespace)


def test_zones_of_nodes_are_a_topology_until_an_object_declares_one(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with without_topology(control_plane, namespace) as it, it.scheduling() as scheduler:
            await it.gang("g", 4, gpus=4)
            placed = await it.bound(4)
            await until_said(it, "g", "Placed")
            group = await group_of(it, "g")
            assert {name[0] for name in placed.values()} == {"b"}
            assert group["status"]["domain"] == "r/b"
            async with it.declared():

                async def replaced() -> bool:
                    return scheduler.engine.topologies.usable() == (it.topology,)

                await until(replaced)

            async def back() -> bool:
                return scheduler.engine.topologies.usable() == ("zones",)

            await until(back)

    asyncio.run(run())


def test_a_level_of_two_equal_topologies_is_required_without_naming_one(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Rack r1 has room for two pods, and rack r2 for three."""
    hosts = [host("r1-0", "r1", 2), host("r2-0", "r2", 2), host("r2-1", "r2", 1)]

    async def run() -> None:
        async with world(control_plane, namespace, *hosts) as it:
            copy = World(it.api, it.transport, namespace, name=it.name)
            async with copy.declared(), it.scheduling():
                level = {"requiredTopologyLevel": RACK}
                await it.declare_group("g", {"minMember": 3, "topologyConstraint": level})
                await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(3)))
                placed = await it.bound(3)
                assert {name[:2] for name in placed.values()} == {"r2"}

    asyncio.run(run())
