"""Nodes that are kept free for a gang that has waited long, on a real API server."""

import asyncio
import json

from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.reading.configuration import Configuration
from tests.cli.calling import closeby
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import World, group_of, host, until, until_said, world

#: Two racks of two nodes with one GPU each.
HOSTS = [host(f"r{rack}-{index}", f"r{rack}", 1) for rack in (1, 2) for index in (1, 2)]


def test_a_gang_keeps_nodes_free_and_all_get_conditions(control_plane: ControlPlane, namespace: str) -> None:
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
            await look_at_it(it, control_plane)
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

            async def decided() -> bool:
                status = (await group_of(it, "big"))["status"]
                return "reservation" not in status and "reason" not in status["lastDecision"]

            await until(decided)

    asyncio.run(run())


def test_a_short_pod_uses_the_nodes_until_the_gang_is_expected_to_start(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with (
            world(control_plane, namespace, *HOSTS) as it,
            it.scheduling(Configuration(reserve_after=1.0, reserve_budget=10.0)) as scheduler,
        ):
            await it.create(*(it.pod(f"old-{index}", activeDeadlineSeconds=3600) for index in range(4)))
            placed = await it.bound(4)
            await it.gang("big", 2, required="rack")
            await until_said(it, "big", "GangDoesNotFit")
            await asyncio.sleep(1.0)
            await it.delete(next(name for name, where in placed.items() if where == "r1-1"))

            async def reserved() -> bool:
                kept = scheduler.engine.reservation
                return kept is not None and kept.expected is not None

            await until(reserved)
            await it.create(it.pod("long", activeDeadlineSeconds=7200), it.pod("endless"))
            for name in ("long", "endless"):
                assert "NodeReserved" in await it.refusal(name)
            await it.create(it.pod("short", activeDeadlineSeconds=600, terminationGracePeriodSeconds=5))

            async def bound() -> bool:
                return (await it.placed()).get("short") == "r1-1"

            await until(bound)

            async def written() -> bool:
                status = (await group_of(it, "big")).get("status", {})
                return str(status.get("reservation", {}).get("expected", "")).startswith("20")

            await until(written)

    asyncio.run(run())


def test_a_gang_lets_go_once_its_budget_is_spent_and_says_so(
    control_plane: ControlPlane, namespace: str
) -> None:
    """It may let 10 GPU-seconds idle: a GPU that is free on its nodes for ten seconds."""

    async def run() -> None:
        configuration = Configuration(reserve_after=1.0, reserve_budget=10 / (2 * 3600))
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling(configuration) as scheduler:
            await it.create(*(it.pod(f"old-{index}") for index in range(4)))
            placed = await it.bound(4)
            await it.gang("big", 2, required="rack")

            async def reserved() -> bool:
                return scheduler.engine.reservation is not None

            await until(reserved)
            kept = scheduler.engine.reservation
            assert kept is not None
            await it.delete(next(name for name, where in placed.items() if where == kept.nodes[0]))
            await it.create(it.pod("late"))
            await it.refusal("late")

            async def bound() -> bool:
                return (await it.placed()).get("late") == kept.nodes[0]

            await until(bound)
            spent: dict[str, str] = {}

            async def said() -> bool:
                status = (await group_of(it, "big"))["status"]
                spent.update(status.get("reservation", {}), told=status["conditions"][0]["message"])
                return "reason" in spent

            await until(said)
            assert spent["reason"] == "ReservationBudgetSpent" and spent["resumes"].startswith("20")
            assert spent["told"].endswith(f"so it keeps none until {spent['resumes']}")
            [event] = await it.events("NodesReleased")
            assert "as much has idled there as its reserveBudget allows" in event["note"]
            [logged] = it.said("released")
            assert logged["reason"] == "ReservationBudgetSpent"

    asyncio.run(run())


async def look_at_it(it: World, control_plane: ControlPlane) -> None:
    """The gang's status says which nodes are kept free, and `closeby explain` shows it."""

    async def told() -> bool:
        return "reservation" in (await group_of(it, "big"))["status"]

    await until(told)
    status = (await group_of(it, "big"))["status"]
    kept = status["reservation"]
    assert (kept["nodes"], kept["level"], kept["domain"]) == (2, "rack", ["z1", "r1"])
    assert kept["since"].startswith("20") and kept["topology"] == it.topology
    assert status["lastDecision"]["reason"] == "GangDoesNotFit"
    assert kept["since"] not in status["lastDecision"]["message"]
    asked = ("explain", "podgroup/big", "-n", it.namespace, "-o", "json", "--scheduler-name", it.name)
    done = await asyncio.to_thread(closeby, *asked, "--kubeconfig", control_plane.kubeconfig)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["lastDecision"], found["reservation"]) == (status["lastDecision"], kept)
    assert (found["reason"], found["gang"]["message"]) == (
        "GangDoesNotFit",
        status["lastDecision"]["message"],
    )
    assert [one for one in found["sentences"] if kept["since"] in one]
