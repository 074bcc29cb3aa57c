"""Plans of preemption when the lead changes hands, or the API server or the scheduler is away for a while."""

import asyncio
import re
import signal
from pathlib import Path

import pytest

from closeby.kube.client.transport import Limits
from closeby.kube.writing.writer import Writer
from closeby.objects.pods import Pod, PodSpec
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Cut, Fault, Refuse
from tests.kube.live import through_proxy
from tests.kube.live_world import World, replica, until, until_logged, until_placed, until_said
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
    until_evictions,
    until_half_gone,
    until_no_plan,
    until_train_replaced_cheap,
)
from tests.kube.priority_classes import priority_class

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


async def only_cheap_went(it: World, plan: str) -> None:
    """The gang has the rack of ``cheap``, by this plan alone, and nobody else was evicted."""
    await until_train_replaced_cheap(it)
    await until_no_plan(it, "train")
    events = await it.events("Preempted")
    assert all(plan in one["note"] and one["regarding"]["name"].startswith("cheap") for one in events)


async def half_done(it: World) -> str:
    """Waits until the plan is written and one of two victims has gone; the plan's id."""

    async def half() -> bool:
        there = {name for name in await it.pods() if name.startswith("cheap")}
        return there == {"cheap-1"} and bool(await plan_of(it, "train"))

    await until(half, 120)
    plan = await plan_of(it, "train")
    assert len(plan["victims"]) == 2
    return str(plan["id"])


def log_of(folder: Path, number: int) -> str:
    """What the replica said that began as this one."""
    logs = sorted(folder.glob("log-*.txt"), key=lambda path: path.stat().st_ctime_ns)
    assert len(logs) == 2
    return next(
        text for text in (log.read_text() for log in logs) if ("msg=preempts" in text) == (number == 0)
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "lost its lead"])
def test_another_replica_carries_a_plan_on(
    how: str, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The leader is at its second eviction, which the server does not answer to."""

    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 20, 1_000) as (it, proxy, classes),
            through_proxy(control_plane.access()) as (other, _),
            replica(it, proxy, tmp_path) as first,
        ):
            await two_full_racks(it, classes)
            async with replica(it, other, tmp_path):

                async def watches() -> bool:
                    return other.count("WATCH", "/podgroups") > 0

                await until(watches)
                proxy.inject("POST", "/cheap-1/eviction", Refuse(503), times=NEVER)
                await gang(it, "train", 2, classes[1_000])
                plan = await half_done(it)

                async def deserted() -> bool:
                    """What it sent last may come after its end."""
                    return proxy.clients == 0

                async def handed_over() -> bool:
                    lost = 'msg="leadership lost"' in log_of(tmp_path, 0)
                    return lost and "msg=leading" in log_of(tmp_path, 1)

                if how == "killed":
                    first.send_signal(signal.SIGKILL)
                    await asyncio.to_thread(first.wait)
                    await until(deserted)
                else:
                    # All that it asks for is refused until another may lead; then nothing is any more.
                    proxy.inject("PUT", "/leases/", Refuse(503), times=NEVER)
                    await until(handed_over, 120)
                proxy.forgive()
                asked = proxy.count("POST", "/cheap-1/eviction")
                await only_cheap_went(it, plan)
                assert proxy.count("POST", "/eviction") - proxy.count("POST", "/cheap-0/eviction") == asked
                assert other.count("POST", "/eviction") == other.count("POST", "/cheap-1/eviction") >= 1
                said = log_of(tmp_path, 1)
                assert re.findall(r'msg="preemption resumed".* plan=(\w+)', said) == [plan]

    asyncio.run(run())


@pytest.mark.parametrize(("deadline", "seconds"), [("2m", 3.0), ("5s", 7.0)])
@pytest.mark.parametrize("fault", [Cut(), Refuse(500)])
@pytest.mark.parametrize("at", ["plan", "eviction"])
def test_the_api_server_is_away_in_the_middle_and_back(
    at: str,
    fault: Fault,
    deadline: str,
    seconds: float,
    control_plane: ControlPlane,
    namespace: str,
) -> None:
    """No request succeeds for some seconds, from the write of the plan or from the second eviction on.

    That is less than plans may take, or more.
    """

    async def run() -> None:
        configuration = preempting(planDeadline=deadline)
        async with full_racks(control_plane, namespace, configuration) as (it, proxy, classes):
            away = asyncio.Event()

            async def leave() -> None:
                proxy.chance = lambda method, path: fault
                proxy.cut_streams()
                away.set()

            part = "/cheap-1/eviction" if at == "eviction" else "/podgroups/train/status"
            proxy.before("POST" if at == "eviction" else "PATCH", part, leave)
            await gang(it, "train", 2, classes[1_000])
            await asyncio.wait_for(away.wait(), 60)
            await asyncio.sleep(seconds)
            assert {"dear-0", "dear-1"} <= (await it.placed()).keys()
            proxy.forgive()
            await until_train_replaced_cheap(it)
            await until_said(it, "train", "Placed")
            await until_no_plan(it, "train")
            assert len({one["plan"] for one in it.said("preempts")}) == 1
            assert it.said("preemption given up") == []

    asyncio.run(run())


def test_time_in_which_the_api_server_is_away_is_no_victims_delay(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A victim can't end while the server is away for longer than plans may take, and ends soon after."""

    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 20, 1_000) as (it, proxy, classes),
            it.scheduling(preempting(planDeadline="5s")),
        ):
            await stuck(it, classes)
            await gang(it, "train", 2, classes[1_000])
            await until_half_gone(it)
            plan = await plan_of(it, "train")
            proxy.chance = lambda method, path: Cut()
            proxy.cut_streams()

            async def asked(times: int) -> None:
                """Waits until the scheduler has asked so often whether the victim is there."""
                before = proxy.count("GET", "/pods/cheap-0")

                async def so() -> bool:
                    return proxy.count("GET", "/pods/cheap-0") >= before + times

                await until(so)

            await asyncio.sleep(8)
            proxy.forgive()
            # The first answer says that the victim is there, and is no reason to give the plan up.
            await asked(2)
            await release(it)
            await only_cheap_went(it, str(plan["id"]))
            assert it.said("preemption given up") == []

    asyncio.run(run())


def test_time_in_which_the_api_server_is_away_is_no_budgets_delay(
    control_plane: ControlPlane, namespace: str
) -> None:
    """No eviction succeeds; in between the server is away for longer than plans may take."""

    async def run() -> None:
        configuration = preempting(planDeadline="15s")
        async with full_racks(control_plane, namespace, configuration) as (it, proxy, classes):
            proxy.inject("POST", "/eviction", Refuse(503), times=NEVER)
            await gang(it, "train", 2, classes[1_000])
            await until_logged(it, "not evicted", times=2)
            proxy.forgive()
            proxy.chance = lambda method, path: Cut()
            proxy.cut_streams()
            await asyncio.sleep(16)
            before = proxy.count("POST", "/eviction")
            proxy.chance = None
            proxy.inject("POST", "/eviction", Refuse(503), times=NEVER)

            async def asked() -> bool:
                return proxy.count("POST", "/eviction") >= before + 2

            # The first answer after that is no reason to give the plan up.
            await until(asked)
            proxy.forgive()
            await until_train_replaced_cheap(it)
            assert it.said("preemption given up") == []

    asyncio.run(run())


def test_a_victims_status_that_can_not_be_written_delays_no_preemptor(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with full_racks(control_plane, namespace, preempting()) as (it, proxy, classes):
            proxy.inject("PATCH", "/podgroups/cheap/status", Refuse(500), times=NEVER)
            await gang(it, "train", 2, classes[1_000])
            await until_placed(it, "train-0", "train-1")
            proxy.forgive()
            await until_evictions(it, "cheap", 1)

    asyncio.run(run())


def test_a_server_in_trouble_drops_no_field_of_a_victims_status(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Only a definition that lacks a field is a reason to leave it out."""

    async def run() -> None:
        async with full_racks(control_plane, namespace, preempting()) as (it, proxy, classes):
            proxy.inject("PATCH", "/podgroups/cheap/status", Refuse(500), times=Limits().attempts)
            await gang(it, "train", 2, classes[1_000])
            await until_evictions(it, "cheap", 1)

    asyncio.run(run())


def test_the_next_leader_gives_up_a_plan_whose_victim_does_not_end(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 20, 1_000) as (it, _, classes):
            async with it.scheduling(preempting()):
                await stuck(it, classes)
                await gang(it, "train", 2, classes[1_000])
                await until_half_gone(it)
                plan = await plan_of(it, "train")
            again = it.successor()
            try:
                async with again.scheduling(preempting(planDeadline="1s")):
                    await until_placed(it, "train-0", "train-1")
                    [end, *_] = again.said("preemption given up")
                    assert end["plan"] == plan["id"] and "1 victim did not end in time" in str(end["why"])
                    assert not {"dear-0", "dear-1"} & (await it.placed()).keys()
            finally:
                await release(it)

    asyncio.run(run())


def test_a_higher_priority_that_came_between_two_leaders_takes_the_plan_over(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:2]) as (it, proxy, classes),
            priority_class(it, 2_000) as highest,
        ):
            async with it.scheduling(preempting()):
                await gang(it, "cheap", 2, classes[10])
                await it.bound(2)
                proxy.inject("POST", "/cheap-1/eviction", Refuse(503), times=NEVER)
                await gang(it, "train", 2, classes[1_000])
                plan = await half_done(it)
            proxy.forgive()
            await gang(it, "vip", 2, highest)
            again = it.successor()
            async with again.scheduling(preempting()):
                await until_placed(it, "vip-0", "vip-1")
                [end] = again.said("preemption given up")
                assert (end["plan"], end["item"]) == (plan, f"{namespace}/train")
                assert "higher priority" in str(end["why"])
                assert (await it.placed()).keys() == {"vip-0", "vip-1"}
                await until_no_plan(it, "train")

    asyncio.run(run())


@pytest.mark.parametrize("evicted", [0, 1])
def test_the_next_leader_carries_a_plan_on(evicted: int, control_plane: ControlPlane, namespace: str) -> None:
    """The process ends before the first eviction, or between the first and the second."""

    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 20, 1_000) as (it, proxy, classes):
            async with it.scheduling(preempting()):
                await two_full_racks(it, classes)
                for index in range(evicted, 2):
                    proxy.inject("POST", f"/cheap-{index}/eviction", Refuse(503), times=NEVER)
                await gang(it, "train", 2, classes[1_000])

                async def refused() -> bool:
                    left = {f"cheap-{index}" for index in range(evicted, 2)}
                    there = {name for name in await it.pods() if name.startswith("cheap")}
                    return bool(it.said("not evicted")) and there == left

                await until(refused)
                plan = await plan_of(it, "train")
            assert (await plan_of(it, "train"))["id"] == plan["id"]
            proxy.forgive()
            again = it.successor()
            async with again.scheduling(preempting()):
                await until_placed(it, "train-0", "train-1")
                assert [one["plan"] for one in again.said("preemption resumed")] == [plan["id"]]
                assert again.said("preempts") == []
                assert (await it.placed()).keys() == {"dear-0", "dear-1", "train-0", "train-1"}
                await until_said(it, "train", "Placed")
                await until_no_plan(it, "train")
            assert len(await it.events("Preempted")) == 2

    asyncio.run(run())


def test_the_next_leader_carries_on_the_plan_of_a_plain_pod(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 20, 1_000, hosts=HOSTS[:2]) as (it, proxy, classes):
            async with it.scheduling(preempting()):
                for value in (10, 20):
                    await it.create(it.pod(f"p{value}", priorityClassName=classes[value]))
                before = await it.bound(2)
                proxy.inject("POST", "/eviction", Refuse(503), times=NEVER)
                await it.create(it.pod("high", priorityClassName=classes[1_000]))
                await until_logged(it, "not evicted")
                [plan] = [one["plan"] for one in it.said("preempts")]
            proxy.forgive()
            again = it.successor()
            async with again.scheduling(preempting()):
                await until_placed(it, "high")
                assert [one["plan"] for one in again.said("preemption resumed")] == [plan]
                assert await it.placed() == {"p20": before["p20"], "high": before["p10"]}

    asyncio.run(run())


def test_a_gang_is_protected_after_so_many_evictions_by_the_next_leader_too(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:2]) as (it, _, classes):
            once = preempting(maxEvictions=1)
            async with it.scheduling(once):
                await gang(it, "cheap", 2, classes[10])
                await it.bound(2)
                await gang(it, "train", 2, classes[1_000])
                await until_placed(it, "train-0", "train-1")
                await until_evictions(it, "cheap", 1)
            again = it.successor()
            async with again.scheduling(once):
                # Its owner makes it again, once the preemptor is done.
                await it.delete("train-0", "train-1")
                pods = (it.pod(f"back-{i}", gang="cheap", priorityClassName=classes[10]) for i in range(2))
                await it.create(*pods)
                await until_placed(it, "back-0", "back-1")
                await gang(it, "later", 2, classes[1_000])
                await until_said(it, "later", "GangDoesNotFit")
                assert await it.events("PreemptionGivenUp") == []
                assert again.said("preempts") == []
                assert {"back-0", "back-1"} <= (await it.placed()).keys()

    asyncio.run(run())


def test_a_nomination_that_an_earlier_process_left_is_removed_and_that_of_others_stays(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The process ended after its plan, and before the members' statuses were written again."""

    async def run() -> None:
        async with ranked(control_plane, namespace, 10, hosts=HOSTS[:1]) as (it, _, classes):
            names = ("ours", "theirs")
            for name in names:
                await it.create(it.pod(name, 2, priorityClassName=classes[10]))
            pods = await it.pods()
            ours = Pod(namespace=namespace, name="ours", uid=pods["ours"]["metadata"]["uid"], spec=PodSpec())
            written = await Writer(it.transport, "closeby-scheduler", "test").pod_conditions(ours, [], "gone")
            assert written.ok, written.error
            path = f"/api/v1/namespaces/{namespace}/pods/theirs/status"
            await it.api.patch(path, {"status": {"nominatedNodeName": "gone"}}, kind="strategic")
            async with it.scheduling(preempting()):

                async def cleared() -> bool:
                    return "nominatedNodeName" not in (await it.pods())["ours"]["status"]

                await until(cleared)
                assert (await it.pods())["theirs"]["status"]["nominatedNodeName"] == "gone"

    asyncio.run(run())
