"""What preemption would do, as a live scheduler on a real API server reports it."""

import asyncio
import contextlib

import pytest

from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.reading.configuration import Configuration, PluginEntry
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import host, until, until_said, world
from tests.kube.priority_classes import priority_class

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)
#: Two racks of two nodes with one GPU each.
HOSTS = [host(f"r{rack}-{index}", f"r{rack}", 1) for rack in (1, 2) for index in (1, 2)]


@pytest.mark.parametrize("mode", ["observe", "on"])
def test_only_a_scheduler_that_observes_reports_who_would_go_and_none_evicts(
    mode: str, control_plane: ControlPlane, namespace: str
) -> None:
    entry = PluginEntry(name="DefaultPreemption", arguments={"preemption": mode})

    async def run() -> None:
        meters = SchedulerMeters("closeby")
        async with contextlib.AsyncExitStack() as stack:
            it = await stack.enter_async_context(world(control_plane, namespace, *HOSTS))
            low = await stack.enter_async_context(priority_class(it, 10))
            middle = await stack.enter_async_context(priority_class(it, 20))
            high = await stack.enter_async_context(priority_class(it, 1_000))
            await stack.enter_async_context(it.scheduling(Configuration(plugins=(entry,)), meters=meters))
            pods = []
            for number, name in enumerate((low, middle)):
                group = f"old-{number}"
                await it.create_group(group, 2, required="rack")
                await it.create(
                    *(it.pod(f"{group}-{i}", gang=group, priorityClassName=name) for i in range(2))
                )
                pods += [f"{group}-{i}" for i in range(2)]
                await it.bound(len(pods))
            before = await it.pods()
            await it.create_group("train", 2, required="rack")
            await it.create(*(it.pod(f"train-{i}", gang="train", priorityClassName=high) for i in range(2)))
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
            assert {name: now[name]["metadata"]["uid"] for name in pods} == {
                name: before[name]["metadata"]["uid"] for name in pods
            }
            assert not any("deletionTimestamp" in now[name]["metadata"] for name in pods)

    asyncio.run(run())
