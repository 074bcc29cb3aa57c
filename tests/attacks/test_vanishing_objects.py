"""Attack: whatever a gang relies on is deleted at the worst moment: its namespace, its PodGroup, its priority
class, its Topology, the nodes that it is about to be bound to. A careless operator does the same.

What must hold: no fault of closeby comes to light; the state of the engine stays valid and holds nothing for
what is gone; other tenants are served meanwhile; a gang that can still run does, as a whole.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from closeby.kube.scheduler.live import LiveScheduler
from tests.attacks.applications import neighbour
from tests.control_plane.api import ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined
from tests.kube.faulty_proxy import Proxy, Refuse
from tests.kube.live_world import (
    World,
    condition,
    group_of,
    host,
    planned,
    until,
    until_heard,
    until_logged,
    until_said,
)
from tests.kube.priority_classes import priority_class
from tests.kube.troubled import held_back, hold, trouble

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class Scene:
    """A scheduler at work behind a proxy, for a victim (``it``) and another tenant."""

    def __init__(self, it: World, other: World, proxy: Proxy, scheduler: LiveScheduler) -> None:
        self.it = it
        self.other = other
        self.proxy = proxy
        self.scheduler = scheduler

    async def others_go_on(self, name: str) -> None:
        """A gang of the other tenant takes a whole rack, and ends."""
        pods = [f"{name}-{i}" for i in range(8)]
        await self.other.gang(name, 8, required="rack")

        async def placed() -> bool:
            return (await self.other.placed()).keys() >= set(pods)

        await until(placed)
        await self.other.delete(*pods)

    async def forgotten(self, namespace: str) -> None:
        """Waits until the engine knows nothing of a namespace, and keeps no node for it."""
        engine = self.scheduler.engine

        async def nothing() -> bool:
            groups = [key for key in engine.state.groups if key.startswith(f"{namespace}/")]
            pods = [*engine.state.pods.values(), *(pod for pod, _ in engine.cluster.placed_pods())]
            return not groups and not [pod for pod in pods if pod.namespace == namespace]

        await until(nothing)
        engine.validate_state()


@asynccontextmanager
async def scene(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Scene]:
    async with (
        trouble(control_plane, namespace) as (it, proxy, _),
        neighbour(it) as other,
        it.scheduling() as scheduler,
    ):
        yield Scene(it, other, proxy, scheduler)
        assert not [fields for _, fields in it.lines if "traceback" in fields]


async def delete_all_of(it: World, namespace: str) -> None:
    """Deletes the namespace and waits until it is gone."""
    await it.api.delete(f"/api/v1/namespaces/{namespace}")
    # Nobody ends the pods of nodes that have no kubelet.
    await it.api.delete(f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})

    async def gone() -> bool:
        try:
            await it.api.get(f"/api/v1/namespaces/{namespace}")
        except ApiError as error:
            return error.status == 404
        return False

    await until(gone, 180)


@pytest.mark.parametrize("bound", [0, 3])
def test_the_namespace_goes_in_the_middle_of_a_start(
    bound: int, control_plane: ControlPlane, namespace: str
) -> None:
    """Before any member is bound, and when some are."""
    if not control_plane.controllers:
        pytest.skip("deletes a namespace: the controller manager does that")

    async def run() -> None:
        async with scene(control_plane, namespace) as they, neighbour(they.it) as victim:
            hold(they.proxy, *range(bound, 8))
            await victim.gang("g", 8, required="rack")
            await victim.bound(bound)

            async def all_planned() -> bool:
                return len(planned(await group_of(victim, "g"))) == 8

            await until(all_planned)
            await delete_all_of(they.it, victim.namespace)
            they.proxy.forgive()
            await they.forgotten(victim.namespace)
            await they.others_go_on("later")

    asyncio.run(run())


def test_the_namespace_of_a_gang_that_waits(control_plane: ControlPlane, namespace: str) -> None:
    """The gang asks for more than there is; another one waits behind it, and is placed once there is room."""
    if not control_plane.controllers:
        pytest.skip("deletes a namespace: the controller manager does that")

    async def run() -> None:
        async with scene(control_plane, namespace) as they, neighbour(they.it) as victim:
            await victim.gang("g", 9, required="rack")
            await until_said(victim, "g", "TopologyPlacementFailed")
            await delete_all_of(they.it, victim.namespace)
            await they.forgotten(victim.namespace)
            await they.others_go_on("later")

    asyncio.run(run())


def test_the_pod_group_goes_in_the_middle_of_a_start(control_plane: ControlPlane, namespace: str) -> None:
    """Its members stay. Made anew under its name it is a gang again, whose missing members follow."""

    async def run() -> None:
        async with scene(control_plane, namespace) as they:
            await held_back(they.it, they.proxy, 3)
            await they.it.api.delete(f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/g")

            async def heard() -> bool:
                return f"{namespace}/g" not in they.scheduler.engine.state.groups

            await until(heard)
            await they.others_go_on("meanwhile")
            they.proxy.forgive()
            await they.it.create_group("g", 8, required="rack")
            await they.it.bound(8, 120)
            await until_said(they.it, "g", "Placed")

    asyncio.run(run())


def test_the_priority_class_of_a_gang_that_waits(control_plane: ControlPlane, namespace: str) -> None:
    """The pods were admitted with its value, which they keep; nothing of the gang changes."""

    async def run() -> None:
        async with scene(control_plane, namespace) as they:
            it = they.it
            async with priority_class(it, 1000) as name:
                await it.create_group("g", 9, required="rack")
                await it.create(*(it.pod(f"g-{i}", gang="g", priorityClassName=name) for i in range(9)))
                await until_said(it, "g", "TopologyPlacementFailed")
            await they.others_go_on("meanwhile")
            # Room comes: a rack of three nodes.
            async with joined(it.api, [host("r0-2", "r0", 4)]):
                await it.bound(9, 120)
                await until_said(it, "g", "Placed")
                await it.delete(*(f"g-{i}" for i in range(9)))

                async def forgotten() -> bool:
                    """While members go, those that are left have a plan. It goes with the last one."""
                    said = await condition(it, "g")
                    return said["reason"] == "GangIncomplete" and not planned(await group_of(it, "g"))

                await until(forgotten)

    asyncio.run(run())


def test_the_topology_of_a_gang_that_waits(control_plane: ControlPlane, namespace: str) -> None:
    """While it is gone the gang waits, and says for what; it is placed once the Topology is there again."""

    async def run() -> None:
        async with scene(control_plane, namespace) as they:
            it = they.it
            path = f"/apis/closeby.dev/v1alpha1/topologies/{it.topology}"
            await it.create_group("g", 8, required="rack")
            await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(7)))
            await until_said(it, "g", "GangIncomplete")
            await it.api.delete(path)

            async def heard() -> bool:
                return it.topology not in they.scheduler.engine.topologies.usable()

            await until(heard)
            await it.create(it.pod("g-7", gang="g"))
            await until_said(it, "g", "TopologyNotFound")
            assert await it.placed() == {}
            await it.declare()
            await it.bound(8, 120)

    asyncio.run(run())


def test_the_nodes_that_a_gang_is_about_to_be_bound_to(control_plane: ControlPlane, namespace: str) -> None:
    """A whole rack goes before the first binding. The gang is never started there in part."""

    async def run() -> None:
        spare = [host(f"gone-{i}", "gone", 8) for i in range(2)]
        async with scene(control_plane, namespace) as they:
            it, proxy = they.it, they.proxy
            async with joined(it.api, spare):
                await until_heard(they.scheduler, "gone-1", 8)
                # Nothing else holds sixteen.
                for member in range(16):
                    proxy.inject("POST", f"/pods/g-{member}/binding", Refuse(429), times=1000)
                await it.gang("g", 16, required="rack")
                await until(lambda: asyncio.sleep(0, proxy.count("POST", "/binding") >= 16))
            await until_heard(they.scheduler, "gone-1", None)
            # Until then a binding may be on its way that was sent before.
            await until_logged(it, "bindings withdrawn")
            proxy.forgive()
            await until_said(it, "g", "TopologyPlacementFailed")
            assert await it.placed() == {}
            assert (await condition(it, "g"))["status"] == "False"
            await they.others_go_on("later")

    asyncio.run(run())
