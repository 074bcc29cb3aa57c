"""Nodes that are kept free for a gang that has waited long, on a real API server."""

import asyncio

from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.reading.configuration import Configuration
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import host, until, until_said, world

#: Two racks of two nodes with one GPU each.
HOSTS = [host(f"r{rack}-{index}", f"r{rack}", 1) for rack in (1, 2) for index in (1, 2)]


def test_a_gang_keeps_nodes_free_and_all_are_told(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        meters = SchedulerMeters("closeby")
        configuration = Configuration(reserve_after=1.0)
        async with (
            world(control_plane, namespace, *HOSTS) as it,
            it.scheduling(configuration, meters=meters) as scheduler,
        ):
            await it.create(*(it.pod(f"old-{index}") for index in range(4)))
            placed = await it.bound(4)
            await it.gang("big", 2, required="rack")
            await until_said(it, "big", "GangDoesNotFit")
            await asyncio.sleep(1.0)
            gone = next(name for name, where in placed.items() if where == "r1-1")
            await it.delete(gone)

            async def reserved() -> bool:
                return scheduler.engine.reservation is not None

            await until(reserved)
            await it.create(it.pod("late"))
            why = await it.refusal("late")
            assert "1 NodeReserved (for instance reserved for gang" in why
            assert f"{namespace}/big since 20" in why
            await until(lambda: it.events("NodesReserved"))
            [event] = await it.events("NodesReserved")
            assert event["regarding"]["name"] == "big"
            assert event["note"].startswith("2 nodes of z1/r1 are reserved for it since 20")
            assert meters.registry.get_sample_value("closeby_reserved_nodes") == 2
            other = next(name for name, where in placed.items() if where == "r1-2")
            await it.delete(other)

            async def started() -> bool:
                now = await it.placed()
                return {now.get("big-0"), now.get("big-1")} == {"r1-1", "r1-2"}

            await until(started)
            await until(lambda: it.events("NodesReleased"))
            assert len(await it.events("NodesReleased")) == 1
            assert meters.registry.get_sample_value("closeby_reserved_nodes") == 0
            assert meters.registry.get_sample_value("closeby_reservations_total") == 1
            assert [one["gang"] for one in it.said("reserved")] == [f"{namespace}/big"]

    asyncio.run(run())
