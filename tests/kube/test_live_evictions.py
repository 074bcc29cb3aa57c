"""Members that are evicted because a gang's start does not come to its end, on a real API server."""

import asyncio

import pytest

from closeby.objects.groups import OnPartial
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import unique
from tests.kube.live_world import World, behind_proxy, group_of, host, planned, until, until_said

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


async def an_owner(it: World) -> list[Object]:
    """What pods say of who makes them anew."""
    made = await it.api.create(
        f"/api/v1/namespaces/{it.namespace}/configmaps", {"metadata": {"name": unique("owner")}}
    )
    meta = made["metadata"]
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
    ]


def test_only_who_asked_for_it_and_only_what_comes_back(control_plane: ControlPlane, namespace: str) -> None:
    """The last member of two gangs is refused for ever; the one that asks for it gives its nodes back."""
    hosts = [host("n1", "r1", 4), host("n2", "r2", 4)]

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *hosts) as (it, proxy), it.scheduling():
            for name in ("keeps", "leaves"):
                proxy.inject("POST", f"/pods/{name}-3/binding", Refuse(403), times=1000)
                await it.create_group(name, 4, required="rack")
            path = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/leaves"
            patient = {"onPartial": "Evict", "completionTimeout": "3s"}
            await it.api.patch(path, {"spec": {"placement": patient}}, kind="merge")
            owner = await an_owner(it)
            for name in ("keeps", "leaves"):
                pods = [it.pod(f"{name}-{i}", gang=name) for i in range(4)]
                for pod in pods[1:]:
                    pod["metadata"]["ownerReferences"] = owner
                await it.create(*pods)

            async def all_bound() -> bool:
                # Of those that were evicted since then too.
                bound = {one["regarding"]["name"] for one in await it.events("Scheduled")}
                return bound == {f"{name}-{i}" for name in ("keeps", "leaves") for i in range(3)}

            async def gone() -> bool:
                return not {"leaves-1", "leaves-2"} & (await it.pods()).keys()

            async def told() -> bool:
                return bool(await it.events("Evicted"))

            async def all_planned() -> bool:
                return planned(await group_of(it, "keeps")).keys() == {f"keeps-{i}" for i in range(4)}

            await until(all_bound)
            await until(gone)
            pods_left = await it.placed()
            # Nobody would make leaves-0 anew, and the other gang did not ask for anything.
            assert set(pods_left) == {"keeps-0", "keeps-1", "keeps-2", "leaves-0"}
            # It is told after the members have been asked to go.
            await until(told)
            assert {one["regarding"]["name"] for one in await it.events("Evicted")} == {"leaves"}
            await until(all_planned)

    asyncio.run(run())


@pytest.mark.parametrize("ends", [True, False])
def test_a_start_that_comes_to_its_end_meanwhile_keeps_its_members(
    ends: bool, control_plane: ControlPlane, namespace: str
) -> None:
    """It does, or its owner changes his mind, between the look at the member and its eviction."""

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, host("n")) as (it, proxy),
            it.scheduling() as scheduler,
        ):
            looked = asyncio.Event()

            async def heard() -> bool:
                group = scheduler.engine.state.groups[f"{namespace}/g"]
                return group.on_partial is OnPartial.KEEP

            async def change() -> None:
                if ends:
                    proxy.forgive()
                    await it.bound(2)
                    await until_said(it, "g", "Placed")
                else:
                    await it.change_group("g", {"spec": {"placement": {"onPartial": "Keep"}}})
                    await until(heard)
                looked.set()

            proxy.before("GET", "/pods/g-0", change)
            proxy.inject("POST", "/pods/g-1/binding", Refuse(503), times=1000)
            await overdue(it)
            await asyncio.wait_for(looked.wait(), 150)
            # Until the eviction would have been sent.
            await asyncio.sleep(2.0)
            assert proxy.count("POST", "/eviction") == 0
            assert "g-0" in await it.placed()

    asyncio.run(run())


def test_members_that_could_not_be_looked_at_are_evicted_later(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, host("n")) as (it, proxy), it.scheduling():
            proxy.inject("GET", "/pods/g-0", Refuse(500), times=12)
            proxy.inject("POST", "/pods/g-1/binding", Refuse(503), times=1000)
            await overdue(it)

            async def gone() -> bool:
                return "g-0" not in await it.pods()

            await until(gone)

    asyncio.run(run())


async def overdue(it: World) -> None:
    """A gang of two that a controller would make anew."""
    placement = {"onPartial": "Evict", "completionTimeout": "1s"}
    await it.declare_group("g", {"minMember": 2, "placement": placement})
    pods = [it.pod(f"g-{i}", gang="g") for i in range(2)]
    owner = await an_owner(it)
    for pod in pods:
        pod["metadata"]["ownerReferences"] = owner
    await it.create(*pods)
