"""Pods with claims on a real API server: where their volumes let them go, and what wakes those that wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import unique
from tests.kube.live_world import ZONE, World, behind_proxy, until_said, world

DRIVER = "disk.example.com"
VOLUMES = "/api/v1/persistentvolumes"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"


def host(name: str, zone: str, gpus: int = 8) -> Object:
    return node(name, labels={ZONE: zone}, allocatable={"nvidia.com/gpu": str(gpus)})


def hosts(number: int = 2) -> list[Object]:
    """Nodes of names that no other test has, each in a zone of its own."""
    return [host(unique(f"n{i}"), f"z{i}") for i in range(number)]


def name_of(made: Object) -> str:
    return str(made["metadata"]["name"])


def claiming(it: World, name: str, *claims: str, gang: str | None = None) -> Object:
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    return it.pod(name, gang=gang, volumes=volumes)


class Disks:
    """Claims and the volumes that they are bound to."""

    def __init__(self, it: World) -> None:
        self._it = it
        self.made: list[str] = []

    async def bound(self, name: str, zone: str = "", mode: str = "ReadWriteOnce") -> None:
        """A claim that is bound to a volume in a zone, or one that all nodes reach."""
        it, size = self._it, {"storage": "1Gi"}
        volume = unique(f"pv-{name}")
        claim = f"/api/v1/namespaces/{it.namespace}/persistentvolumeclaims"
        common: dict[str, Any] = {"accessModes": [mode], "storageClassName": "by-hand"}
        made = await it.api.create(
            claim,
            {
                "metadata": {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {**common, "resources": {"requests": size}, "volumeName": volume},
            },
        )
        spec: dict[str, Any] = {
            **common,
            "capacity": size,
            "csi": {"driver": DRIVER, "volumeHandle": volume},
            "claimRef": {"namespace": it.namespace, "name": name, "uid": made["metadata"]["uid"]},
        }
        if zone:
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        await it.api.create(VOLUMES, {"metadata": {"name": volume}, "spec": spec})
        self.made.append(f"{VOLUMES}/{volume}")

    async def limit(self, node_name: str, count: int) -> None:
        """A node attaches only so many."""
        driver = {"name": DRIVER, "nodeID": node_name, "allocatable": {"count": count}}
        path = f"{CSI_NODES}/{node_name}"
        if path in self.made:
            await self._it.api.delete(path)
        else:
            self.made.append(path)
        await self._it.api.create(CSI_NODES, {"metadata": {"name": node_name}, "spec": {"drivers": [driver]}})


@asynccontextmanager
async def disks(it: World) -> AsyncIterator[Disks]:
    """What is made of it is gone in the end, as far as it has no namespace."""
    found = Disks(it)
    try:
        yield found
    finally:
        for path in found.made:
            await it.api.patch(path, {"metadata": {"finalizers": None}})
            await it.api.delete(path)


def test_a_pod_goes_to_the_zone_of_its_volume(control_plane: ControlPlane, namespace: str) -> None:
    nodes = hosts(3)

    async def run() -> None:
        async with world(control_plane, namespace, *nodes) as it, disks(it) as made:
            await made.bound("there", "z1")
            await it.create(claiming(it, "early", "there"))
            async with it.scheduling():
                assert await it.bound(1) == {"early": name_of(nodes[1])}
                await made.bound("then", "z2")
                await it.create(claiming(it, "late", "then"))
                assert (await it.bound(2))["late"] == name_of(nodes[2])

    asyncio.run(run())


def test_nothing_about_volumes_is_followed_before_a_pod_needs_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *hosts(1)) as (it, proxy), disks(it) as made:
            await made.bound("data")
            async with it.scheduling():
                await it.create(it.pod("plain"))
                await it.bound(1)
                paths = ("/persistentvolume", "/storage.k8s.io/")
                assert [proxy.count("GET", part) for part in paths] == [0, 0]
                await it.create(claiming(it, "first", "data"))
                await it.bound(2)
                assert proxy.count("GET", "/persistentvolumes") == 1
                assert proxy.count("GET", "/storage.k8s.io/") == 5

    asyncio.run(run())


def test_a_claim_that_is_not_there(control_plane: ControlPlane, namespace: str) -> None:
    nodes = hosts()

    async def run() -> None:
        async with world(control_plane, namespace, *nodes) as it, disks(it) as made, it.scheduling():
            await it.create(claiming(it, "p", "data"))
            message = await it.refusal("p", "ClaimNotFound")
            assert f"{namespace}/data" in message
            await made.bound("data", "z1")
            assert await it.bound(1) == {"p": name_of(nodes[1])}

    asyncio.run(run())


def test_a_claim_for_one_pod_at_a_time(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *hosts()) as it, disks(it) as made, it.scheduling():
            await made.bound("data", mode="ReadWriteOncePod")
            await it.create(claiming(it, "first", "data"))
            await it.bound(1)
            await it.create(claiming(it, "second", "data"))
            await it.refusal("second", "VolumeInUse")
            await it.delete("first")
            assert set(await it.bound(1)) == {"second"}

    asyncio.run(run())


def test_a_node_attaches_only_so_many(control_plane: ControlPlane, namespace: str) -> None:
    (only,) = hosts(1)

    async def run() -> None:
        async with world(control_plane, namespace, only) as it, disks(it) as made:
            await made.limit(name_of(only), 1)
            await made.bound("one")
            await made.bound("two")
            async with it.scheduling():
                await it.create(claiming(it, "first", "one"))
                await it.bound(1)
                await it.create(claiming(it, "second", "two"))
                await it.refusal("second", "VolumeLimitReached")
                await made.limit(name_of(only), 2)
                assert set(await it.bound(2)) == {"first", "second"}

    asyncio.run(run())


def test_a_gang_whose_volumes_are_in_different_zones(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *hosts()) as it, disks(it) as made, it.scheduling():
            await made.bound("left", "z0")
            await made.bound("right", "z1")
            await it.create_group("g", 2, required="zone")
            await it.create(claiming(it, "g-0", "left", gang="g"), claiming(it, "g-1", "right", gang="g"))
            said = await until_said(it, "g", "TopologyPlacementFailed")
            assert "1 VolumeNotBindable" in said["message"]
            assert await it.placed() == {}
            await it.change_group("g", {"spec": {"topologyConstraint": None}})
            await it.bound(2)

    asyncio.run(run())


def test_a_right_that_is_missing(control_plane: ControlPlane, namespace: str) -> None:
    """Pods without claims go on; the others say which right they need, and start once it is there."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *hosts()) as (it, proxy), disks(it) as made:
            proxy.inject("GET", "/csinodes", Refuse(403), times=1000)
            await made.bound("data")
            await it.create(claiming(it, "p", "data"))
            async with it.scheduling():
                await it.create(it.pod("plain"))
                await it.bound(1)
                assert "csinodes.storage.k8s.io" in await it.refusal("p", "may not list")
                proxy.forgive()
                await it.bound(2)

    asyncio.run(run())
