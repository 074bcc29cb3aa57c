"""Cleared nodes are held against other schedulers by a taint, which never stays behind."""

import asyncio

import pytest

from closeby.kube.scheduler.live import LiveScheduler
from closeby.reading.configuration import Configuration
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Refuse
from tests.kube.live_world import World, until, until_placed
from tests.kube.preempting import (
    HOSTS,
    NEVER,
    full_racks,
    gang,
    plan_of,
    preempting,
    ranked,
    release,
    stuck,
    two_full_racks,
    until_half_gone,
)

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)
KEY = "closeby.dev/held-by"
HELD = {"r1-1", "r1-2"}
OTHER = {"key": "tests.closeby.dev/other", "effect": "PreferNoSchedule"}


def holding(**arguments: object) -> Configuration:
    return preempting(hold="taint", **arguments)


async def taints(it: World) -> dict[str, list[Object]]:
    """By node."""
    found = await it.api.get("/api/v1/nodes")
    names = {one["metadata"]["name"] for one in HOSTS}
    nodes = [one for one in found["items"] if one["metadata"]["name"] in names]
    return {one["metadata"]["name"]: one["spec"].get("taints", []) for one in nodes}


async def held(it: World) -> set[str]:
    ours = {"key": KEY, "value": it.name, "effect": "NoSchedule"}
    return {node for node, there in (await taints(it)).items() if ours in there}


async def taint(it: World, node: str, *wanted: Object) -> None:
    await it.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": list(wanted)}})


async def until_heard_tainted(scheduler: LiveScheduler, names: set[str]) -> None:
    """Waits until the scheduler knows a taint of each of these nodes: pods come by another watch."""
    cluster = scheduler.engine.cluster

    async def heard() -> bool:
        return all(cluster.node_at(cluster.slot_of(name)).taints for name in names)

    await until(heard)


async def none_is_held(it: World) -> None:
    async def free() -> bool:
        return not any(one["key"] == KEY for there in (await taints(it)).values() for one in there)

    await until(free)


def test_nodes_are_held_from_before_the_first_eviction_until_the_last_binding(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with full_racks(control_plane, namespace, holding()) as (it, proxy, classes):
            await taint(it, "r1-1", OTHER)
            at: dict[str, set[str]] = {}

            async def evicted() -> None:
                at["eviction"] = await held(it)

            async def bound() -> None:
                await asyncio.sleep(1)
                at["binding"] = await held(it)

            proxy.before("POST", "/eviction", evicted)
            proxy.before("POST", "/train-1/binding", bound)
            await gang(it, "train", 2, classes[1_000])
            await until_placed(it, "train-0", "train-1")
            assert at["eviction"] == HELD
            assert "r1-1" in at["binding"] or "r1-2" in at["binding"]
            await none_is_held(it)
            assert (await taints(it))["r1-1"] == [OTHER]
            assert it.said("preemption given up") == []

    asyncio.run(run())


def test_the_taint_keeps_others_off_and_not_the_preemptor(
    control_plane: ControlPlane, namespace: str
) -> None:
    """While victims leave, the other schedulers would find the nodes tainted: here another closeby."""

    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 20, 1_000) as (it, _, classes):
            other = World(it.api, it.transport, namespace, topology=it.topology)
            async with (
                it.scheduling(holding()),
                other.scheduling(preempting(preemption="off")) as scheduler,
            ):
                await stuck(it, classes)
                await gang(it, "train", 2, classes[1_000])
                await until_half_gone(it)
                await until_heard_tainted(scheduler, HELD)
                # There is room for it now on the node of `cheap-1`.
                await other.create(other.pod("intruder"))
                assert "2 TaintNotTolerated" in await other.refusal("intruder")
                await release(it)
                await until_placed(it, "train-0", "train-1")
                assert "intruder" not in await it.placed()
                await none_is_held(it)

    asyncio.run(run())


@pytest.mark.parametrize("why", ["given up", "deleted"])
def test_a_plan_that_comes_to_nothing_leaves_no_taint(
    why: str, control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:2]) as (it, proxy, classes),
            it.scheduling(holding(planDeadline="2s" if why == "given up" else "2m")),
        ):
            await gang(it, "cheap", 2, classes[10])
            await it.bound(2)
            proxy.inject("POST", "/cheap-1/eviction", Refuse(503), times=NEVER)
            await gang(it, "train", 2, classes[1_000])

            async def is_held() -> bool:
                return await held(it) == HELD

            await until(is_held)
            if why == "deleted":
                await it.delete("train-0", "train-1")
            await until(lambda: it.events("PreemptionGivenUp"))
            proxy.forgive()
            if why == "deleted":
                assert "cheap-1" in await it.placed()
            else:
                await until_placed(it, "train-0", "train-1")
            await none_is_held(it)

    asyncio.run(run())


@pytest.mark.parametrize("then", ["carried on", "gone", "hold: none"])
def test_the_next_leader_takes_the_taint_back(then: str, control_plane: ControlPlane, namespace: str) -> None:
    """The process ends in the middle of a plan; a node beside it has a taint of ours and no plan at all."""

    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 20, 1_000) as (it, _, classes):
            async with it.scheduling(holding()):
                await stuck(it, classes)
                await gang(it, "train", 2, classes[1_000])
                await until_half_gone(it)
                assert await held(it) == HELD
            await taint(it, "r2-1", {"key": KEY, "value": it.name, "effect": "NoSchedule"})
            assert await held(it) == {*HELD, "r2-1"}
            if then == "gone":
                await it.delete("train-0", "train-1")
                await it.api.delete(f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/train")
            again = it.successor()
            async with again.scheduling(preempting() if then == "hold: none" else holding()):
                if then == "carried on":

                    async def only_its_own() -> bool:
                        return await held(it) == HELD

                    await until(only_its_own)
                    assert await plan_of(it, "train")
                else:
                    await none_is_held(it)
                await release(it)
                if then != "gone":
                    await until_placed(it, "train-0", "train-1")
                await none_is_held(it)

    asyncio.run(run())


def test_nodes_that_can_not_be_tainted_delay_no_preemptor(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with full_racks(control_plane, namespace, holding()) as (it, proxy, classes):
            proxy.inject("PATCH", "/api/v1/nodes/r1-1", Refuse(403, reason="Forbidden"), times=NEVER)
            await gang(it, "train", 2, classes[1_000])
            await until_placed(it, "train-0", "train-1")
            [said] = it.said("node not held")
            assert said["node"] == "r1-1" and "scheduler.taintNodes" in str(said["remedy"])
            await none_is_held(it)

    asyncio.run(run())


def test_a_taint_of_another_closeby_is_left_alone(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        theirs = {"key": KEY, "value": "another", "effect": "NoSchedule"}
        async with (
            ranked(control_plane, namespace, 10, 20, 1_000) as (it, _, classes),
            it.scheduling(holding()) as scheduler,
        ):
            await two_full_racks(it, classes)
            await taint(it, "r1-1", theirs)
            await until_heard_tainted(scheduler, {"r1-1"})
            await gang(it, "train", 2, classes[1_000])
            await until_placed(it, "train-0", "train-1")
            assert {"cheap-0", "cheap-1"} <= (await it.placed()).keys()

            async def over() -> bool:
                return not await held(it)

            await until(over)
            assert (await taints(it))["r1-1"] == [theirs]

    asyncio.run(run())
