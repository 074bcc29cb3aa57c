"""Claims that get their volumes with their pods, by the volume binder of a real kube-controller-manager."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from closeby.reading.configuration import Configuration, PluginEntry
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.faulty_proxy import Cut, Fault, Proxy, Refuse
from tests.kube.live import unique
from tests.kube.live_world import (
    ZONE,
    World,
    behind_proxy,
    group_of,
    planned,
    until,
    until_logged,
    until_said,
)
from tests.kube.provisioner import Provisioner
from tests.kube.troubled import until_refused

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)
#: Seconds within which a claim must be bound where that never happens.
SHORT = Configuration(plugins=(PluginEntry(name="VolumeBinding", arguments={"bindTimeoutSeconds": 2}),))


def hosts(number: int = 4) -> list[Object]:
    """Nodes with one GPU, each in a zone of its own."""
    gpu = {"nvidia.com/gpu": "1"}
    return [node(unique(f"n{i}"), labels={ZONE: f"z{i}"}, allocatable=gpu) for i in range(number)]


def claiming(it: World, name: str, claim: str, gang: str | None = None, **spec: Any) -> Object:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claim}}
    return it.pod(name, gang=gang, volumes=[volume], **spec)


@asynccontextmanager
async def storing(
    control_plane: ControlPlane, namespace: str, *nodes: Object
) -> AsyncIterator[tuple[World, Proxy, Provisioner]]:
    if not control_plane.controllers:
        pytest.skip("needs the volume binder of kube-controller-manager")
    async with (
        behind_proxy(control_plane, namespace, *nodes) as (it, proxy),
        Provisioner(it.api, namespace, ZONE).serving() as made,
    ):
        yield it, proxy, made


async def gang_with_claims(it: World, made: Provisioner) -> None:
    await it.create_group("g", 4)
    for i in range(4):
        await made.claim(f"c{i}")
    await it.create(*(claiming(it, f"g-{i}", f"c{i}", "g") for i in range(4)))


def test_a_volume_that_is_there_is_bound_before_its_pod(control_plane: ControlPlane, namespace: str) -> None:
    nodes = hosts()

    async def run() -> None:
        async with storing(control_plane, namespace, *nodes) as (it, _, made), it.scheduling():
            volume = await made.volume("z2")
            await made.claim("data", made.by_hand)
            await it.create(claiming(it, "p", "data"))
            assert await it.bound(1) == {"p": nodes[2]["metadata"]["name"]}
            assert await made.bound() == {"data": volume}
            meta = (await made.volumes())[volume]["metadata"]
            assert meta["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"

    asyncio.run(run())


def test_two_pods_do_not_get_the_same_volume(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, _, made), it.scheduling():
            volumes = {await made.volume("z0"), await made.volume("z1")}
            for name in ("a", "b", "c"):
                await made.claim(name, made.by_hand)
            await it.create(*(claiming(it, name, name) for name in ("a", "b", "c")))
            await it.bound(2)
            assert set((await made.bound()).values()) == volumes
            (left,) = {"a", "b", "c"} - set(await it.placed())
            assert "VolumeNotBindable" in await it.refusal(left, "VolumeNotBindable")

    asyncio.run(run())


def test_the_volumes_of_a_gang_are_made_before_any_member_is_bound(
    control_plane: ControlPlane, namespace: str
) -> None:
    seen: list[int] = []

    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made):

            async def look() -> None:
                seen.append(len(await made.bound()))

            proxy.before("POST", "/pods/g-", look)
            async with it.scheduling():
                await gang_with_claims(it, made)
                placed = await it.bound(4)
                await until_said(it, "g", "Placed")
            assert seen == [4]
            assert dict(made.asked) == {f"c{i}": placed[f"g-{i}"] for i in range(4)}

    asyncio.run(run())


def test_a_member_whose_volume_is_not_made_gives_the_whole_gang_back(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made):
            made.silent |= {"c0", "c1", "c2"}
            made.refuses["c3"] = 1
            # The others would wait for ten minutes.
            async with it.scheduling():
                await gang_with_claims(it, made)
                await until_logged(it, "bindings withdrawn")
                assert proxy.count("POST", "/binding") == 0
                assert f"{namespace}/c3" in str(it.said("bindings withdrawn")[0]["why"])
                made.silent.clear()
                await it.bound(4)
                await until_said(it, "g", "Placed")

    asyncio.run(run())


def test_a_provisioner_that_never_answers(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made):
            made.silent.add("data")

            async def free() -> bool:
                return bool(it.said("preparing the binding failed")) and not await made.selected()

            async with it.scheduling(SHORT):
                await made.claim("data")
                await it.create(claiming(it, "p", "data"))
                # The pod says what it waits for before that has failed.
                await it.refusal("p", f"VolumeNotBindable: claim {namespace}/data has no volume")
                await until(free)
                assert "not bound within 2 s" in str(it.said("preparing the binding failed")[0]["error"])
                assert proxy.count("POST", "/binding") == 0

                async def told() -> bool:
                    notes = [str(one["note"]) for one in await it.events("FailedScheduling")]
                    return any(f"VolumeNotBindable: claim {namespace}/data" in one for one in notes)

                await until(told)
                made.silent.clear()
                await it.bound(1)

    asyncio.run(run())


def test_a_volume_that_was_kept_is_free_again(control_plane: ControlPlane, namespace: str) -> None:
    """Another volume of the gang is never made."""

    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, _, made):
            volume = await made.volume("z0")
            made.silent.add("c1")
            async with it.scheduling(SHORT):
                await it.create_group("g", 2)
                await made.claim("c0", made.by_hand)
                await made.claim("c1")
                await it.create(claiming(it, "g-0", "c0", "g"), claiming(it, "g-1", "c1", "g"))
                await until_logged(it, "bindings withdrawn")
                assert await it.placed() == {}
                made.silent.clear()
                await it.bound(2)
                assert (await made.bound())["c0"] == volume

    asyncio.run(run())


def test_the_next_leader_carries_on_between_the_write_and_the_binding(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made):
            made.silent |= {"c0", "c1", "c2", "c3"}

            async def written() -> bool:
                return len(await made.selected()) == 4

            async with it.scheduling():
                await gang_with_claims(it, made)
                await until(written)
                promised = planned(await group_of(it, "g"))
            assert proxy.count("POST", "/binding") == 0
            assert await made.selected() == {f"c{i}": promised[f"g-{i}"] for i in range(4)}
            made.silent.clear()
            again = it.successor()
            async with again.scheduling():
                assert await again.bound(4) == promised
                await until_said(again, "g", "Placed")

    asyncio.run(run())


@pytest.mark.parametrize(
    "fault", [Refuse(409, reason="Conflict"), Refuse(410), Refuse(500), Cut(), Cut(carried_out=True)], ids=str
)
def test_trouble_with_the_writes(control_plane: ControlPlane, namespace: str, fault: Fault) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made), it.scheduling():
            volume = await made.volume("z0")
            await made.claim("there", made.by_hand)
            await made.claim("made")
            for part in ("/persistentvolumes/", "/persistentvolumeclaims/"):
                for method in ("GET", "PATCH"):
                    proxy.inject(method, part, fault, times=2)
            # The other one keeps off the only node where that volume is.
            other = claiming(it, "b", "made", nodeSelector={ZONE: "z1"})
            await it.create(claiming(it, "a", "there"), other)
            await it.bound(2)
            bound = await made.bound()
            assert bound["there"] == volume and bound["made"].startswith("pvc-")

    asyncio.run(run())


def test_a_claim_that_may_not_be_written(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, proxy, made), it.scheduling():
            await made.claim("c")
            proxy.inject("PATCH", "/persistentvolumeclaims/c", Refuse(403, reason="Forbidden"), 100_000)
            await it.create(claiming(it, "w", "c"))
            (told,) = await until_refused(it, "w")
            assert f"claim {namespace}/c: Forbidden (403)" in told["message"]
            proxy.forgive()
            await it.bound(1)

    asyncio.run(run())


def test_a_pod_with_an_ephemeral_volume(control_plane: ControlPlane, namespace: str) -> None:
    """Its claim is made by a controller; the pod waits until then."""

    async def run() -> None:
        async with storing(control_plane, namespace, *hosts()) as (it, _, made), it.scheduling():
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            spec["storageClassName"] = made.storage_class
            volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
            await it.create(it.pod("p", volumes=[volume]))
            await it.bound(1)
            assert list(await made.bound()) == ["p-scratch"]

    asyncio.run(run())
