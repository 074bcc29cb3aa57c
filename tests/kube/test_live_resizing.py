"""Members of a gang that runs are resized in place, on a real API server, while others wait for the room."""

import asyncio

import pytest

from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.live import unique
from tests.kube.live_world import World, until_placed, until_running, world

pytestmark = pytest.mark.timeout(300)
CPUS = "4"


def path(it: World, name: str, part: str) -> str:
    return f"/api/v1/namespaces/{it.namespace}/pods/{name}/{part}"


async def resize(it: World, name: str, cpus: str) -> None:
    """What a user asks for."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpus}}}
    await it.api.patch(path(it, name, "resize"), {"spec": {"containers": [container]}}, kind="strategic")


async def holds(it: World, name: str, cpus: str, **status: object) -> None:
    """What the kubelet says that the pod holds."""
    has = {"allocatedResources": {"cpu": cpus}, "resources": {"requests": {"cpu": cpus}}}
    body = {"status": {"containerStatuses": [{"name": "main", **has}], **status}}
    await it.api.patch(path(it, name, "status"), body, kind="strategic")


async def gang_of_two(it: World) -> None:
    """It fills a node of four CPUs."""
    await it.create_group("g", 2)
    await it.create(*(it.pod(f"g-{i}", 0, gang="g", cpu="2") for i in range(2)))
    await it.bound(2)
    await until_running(it, "g-0", "g-1")
    for name in ("g-0", "g-1"):
        await holds(it, name, "2")


def host() -> Object:
    return node(unique("n"), allocatable={"cpu": CPUS})


def test_a_member_holds_its_room_until_the_kubelet_has_made_it_smaller(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, host()) as it, it.scheduling():
            await gang_of_two(it)
            await resize(it, "g-0", "1")
            await it.create(it.pod("one", 0, cpu="1"))
            assert "InsufficientResources" in await it.refusal("one", "InsufficientResources")
            await holds(it, "g-0", "1")
            await until_placed(it, "one")

    asyncio.run(run())


def test_a_member_that_is_to_grow_takes_its_room_at_once(control_plane: ControlPlane, namespace: str) -> None:
    """A resize that the kubelet finds infeasible gives the room back."""

    async def run() -> None:
        async with world(control_plane, namespace, host()) as it, it.scheduling():
            await gang_of_two(it)
            for name in ("g-0", "g-1"):
                await resize(it, name, "1")
                await holds(it, name, "1")
            await resize(it, "g-0", "3")
            await it.create(it.pod("two", 0, cpu="2"))
            assert "InsufficientResources" in await it.refusal("two", "InsufficientResources")
            infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
            await holds(it, "g-0", "1", conditions=[infeasible])
            await until_placed(it, "two")

    asyncio.run(run())
