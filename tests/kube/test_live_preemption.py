"""Preemption on a real API server: who is evicted, by which plan, and what observing says."""

import asyncio
import contextlib

import pytest

from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_dialects import KAI, served
from tests.kube.live_dialects import gang as in_kai
from tests.kube.live_world import host, until, until_logged, until_placed, until_said, world
from tests.kube.preempting import HOSTS, gang, plan_of, preempting, ranked, two_full_racks
from tests.kube.priority_classes import priority_class

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize("mode", ["observe", "off"])
def test_a_scheduler_that_observes_reports_who_would_go_and_evicts_none(
    mode: str, control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        meters = SchedulerMeters("closeby")
        async with contextlib.AsyncExitStack() as stack:
            it = await stack.enter_async_context(world(control_plane, namespace, *HOSTS))
            low = await stack.enter_async_context(priority_class(it, 10))
            middle = await stack.enter_async_context(priority_class(it, 20))
            high = await stack.enter_async_context(priority_class(it, 1_000))
            await stack.enter_async_context(it.scheduling(preempting(preemption=mode), meters=meters))
            for number, name in enumerate((low, middle)):
                await gang(it, f"old-{number}", 2, name)
                await it.bound(2 * number + 2)
            before = await it.pods()
            await gang(it, "train", 2, high)
            await until_said(it, "train", "GangDoesNotFit")
            total = "closeby_preemption_observed_plans_total"
            if mode == "observe":
                await until(lambda: it.events("PreemptionObserved"))
                [event] = await it.events("PreemptionObserved")
                assert event["regarding"]["name"] == "train"
                assert "old-0-0..1 would be evicted" in event["note"]
                assert [one["pods"] for one in it.said("would preempt")] == [2]
                assert meters.registry.get_sample_value(total) == 1
            else:
                assert it.said("would preempt") == []
                assert meters.registry.get_sample_value(total) == 0
            now = await it.pods()
            assert {name: now[name]["metadata"]["uid"] for name in before} == {
                name: before[name]["metadata"]["uid"] for name in before
            }
            assert not any("deletionTimestamp" in now[name]["metadata"] for name in before)
            assert await plan_of(it, "train") == {}

    asyncio.run(run())


def test_a_gang_clears_the_cheapest_rack(control_plane: ControlPlane, namespace: str) -> None:
    """The plan stands before the first eviction, and is gone once the gang has its place."""
    plans = []

    async def run() -> None:
        meters = SchedulerMeters("closeby")
        async with ranked(control_plane, namespace, 10, 20, 1_000) as (it, proxy, classes):

            async def look() -> None:
                plans.append(await plan_of(it, "train"))

            async with it.scheduling(preempting(), meters=meters):
                await two_full_racks(it, classes)
                before = await it.pods()
                racks = {
                    node: "r1" if node.startswith("r1") else "r2" for node in (await it.placed()).values()
                }
                proxy.before("POST", "/eviction", look)
                await gang(it, "train", 2, classes[1_000])
                await until_placed(it, "train-0", "train-1")
                now = await it.placed()
                assert now.keys() == {"dear-0", "dear-1", "train-0", "train-1"}
                [plan] = plans
                cheap = {before[f"cheap-{i}"]["metadata"]["uid"] for i in range(2)}
                assert {one["uid"] for one in plan["victims"]} == cheap
                assert plan["cost"]["gangsBroken"] == 1 and plan["cost"]["highestPriority"] == 10
                assert {one["name"] for one in plan["nodes"]} == {now["train-0"], now["train-1"]}
                assert len({racks[now[f"train-{i}"]] for i in range(2)}) == 1

                async def said() -> bool:
                    return len(await it.events("Preempted")) == 2 and not await plan_of(it, "train")

                await until(said)
                assert all(plan["id"] in one["note"] for one in await it.events("Preempted"))
                await until(lambda: it.events("Preempting"))
                [begun] = await it.events("Preempting")
                assert begun["regarding"]["name"] == "train"
                assert proxy.count("POST", "/eviction") == 2
                await until_said(it, "train", "Placed")
        value = meters.registry.get_sample_value
        assert value("scheduler_preemption_attempts_total") == 1
        assert value("closeby_preemption_plans_total", {"result": "placed"}) == 1
        assert value("closeby_preemption_evictions_total", {"result": "agreed"}) == 2

    asyncio.run(run())


def test_a_plain_pod_takes_the_node_of_the_least_priority(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 20, 1_000, hosts=HOSTS[:2]) as (it, proxy, classes):
            written = []

            async def look() -> None:
                written.append((await it.pods())["high"]["status"])

            async with it.scheduling(preempting()):
                await it.create(it.pod("low", priorityClassName=classes[10]))
                await it.create(it.pod("middle", priorityClassName=classes[20]))
                before = await it.bound(2)
                uid = (await it.pods())["low"]["metadata"]["uid"]
                proxy.before("POST", "/eviction", look)
                await it.create(it.pod("high", priorityClassName=classes[1_000]))
                await until_placed(it, "high")
                assert await it.placed() == {"middle": before["middle"], "high": before["low"]}
            [status] = written
            assert status["nominatedNodeName"] == before["low"]
            [condition] = [one for one in status["conditions"] if one["type"] == "closeby.dev/Preempting"]
            assert condition["status"] == "True" and uid in condition["message"]
            status = (await it.pods())["high"]["status"]
            [condition] = [one for one in status["conditions"] if one["type"] == "closeby.dev/Preempting"]
            assert (condition["status"], condition["reason"]) == ("False", "Placed")

    asyncio.run(run())


def test_a_dry_run_reports_the_plan_and_writes_nothing(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:1]) as (it, proxy, classes):
            node_name = HOSTS[0]["metadata"]["name"]
            await it.create(it.pod("low", priorityClassName=classes[10], nodeName=node_name))
            async with it.scheduling(preempting(), dry_run=True):
                await it.create(it.pod("high", priorityClassName=classes[1_000]))
                await until_logged(it, "would preempt")
            assert proxy.count("POST", "/eviction") == proxy.count("PATCH", "/") == 0

    asyncio.run(run())


def test_the_plan_of_another_dialects_gang_is_in_its_mirror(
    control_plane: ControlPlane, namespace: str
) -> None:
    plans = []

    async def run() -> None:
        async with (
            ranked(control_plane, namespace, -10, hosts=[host("h", "r1", 4)]) as (it, proxy, classes),
            served(it.api, KAI),
            it.scheduling(preempting()),
        ):

            async def look() -> None:
                plans.append(await plan_of(it, "g"))

            proxy.before("POST", "/eviction", look)
            await it.create(*(it.pod(f"low-{i}", priorityClassName=classes[-10]) for i in range(4)))
            await it.bound(4)
            pods = await it.pods()
            await in_kai(it, KAI, "g", 4)

            async def placed() -> bool:
                return (await it.placed()).keys() == {f"g-{i}" for i in range(4)}

            await until(placed)
            [plan] = plans
            assert {one["uid"] for one in plan["victims"]} == {
                one["metadata"]["uid"] for one in pods.values()
            }

    asyncio.run(run())


def test_an_item_preempts_when_its_delay_is_over(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:1]) as (it, _, classes),
            it.scheduling(preempting(preemptionDelay="1s")),
        ):
            await it.create(it.pod("low", priorityClassName=classes[10]))
            await it.bound(1)
            await it.create(it.pod("high", priorityClassName=classes[1_000]))

            # All that waits is looked at again after a minute.
            await until_placed(it, "high", seconds=45)

    asyncio.run(run())
