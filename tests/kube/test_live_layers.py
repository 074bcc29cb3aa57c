"""Gangs with layers on a real API server: each segment is bound in one rack."""

import asyncio
from collections import Counter

import pytest

from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import behind_proxy, host, until_said

#: Three racks of two nodes, four GPUs each.
HOSTS = [host(f"r{rack}-{i}", f"r{rack}", 4) for rack in range(3) for i in range(2)]
pytestmark = pytest.mark.timeout(400)


def test_segments_are_bound_rack_by_rack(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, _):
            layer = {"topology": it.topology, "level": "rack", "size": 6}
            await it.declare_group("g", {"minMember": 18, "layers": [layer]})
            await it.create(*(it.pod(f"g-{at}", 1, gang="g") for at in range(18)))
            async with it.scheduling():
                placed = await it.bound(18)
        assert Counter(node.partition("-")[0] for node in placed.values()) == {"r0": 6, "r1": 6, "r2": 6}
        for first in range(0, 18, 6):
            racks = {placed[f"g-{at}"].partition("-")[0] for at in range(first, first + 6)}
            assert len(racks) == 1

    asyncio.run(run())


def test_a_limit_of_racks_falls_after_its_time(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, _):
            layer = {"topology": it.topology, "level": "rack", "maxDomains": 2, "relaxAfter": "20s"}
            await it.declare_group("g", {"minMember": 18, "layers": [layer]})
            await it.create(*(it.pod(f"g-{at}", 1, gang="g") for at in range(18)))
            async with it.scheduling():
                said = await until_said(it, "g", "TopologyPlacementFailed")
                assert "the limit of 2 racks falls at" in said["message"]
                # Nothing happens in the cluster from here on: the scheduler wakes by itself.
                placed = await it.bound(18)
        assert Counter(node.partition("-")[0] for node in placed.values()) == {"r0": 8, "r1": 8, "r2": 2}

    asyncio.run(run())
