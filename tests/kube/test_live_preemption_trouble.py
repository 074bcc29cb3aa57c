"""Preemption on a real API server when something comes between: budgets, faults, restarts, other pods."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.control_plane.api import create_namespace, delete_namespace
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Cut, Fault, Proxy, Refuse
from tests.kube.live_world import (
    World,
    group_of,
    host,
    replica,
    until,
    until_logged,
    until_placed,
    until_said,
)
from tests.kube.preempting import (
    HOSTS,
    NEVER,
    Classes,
    full_racks,
    gang,
    plan_of,
    preempting,
    ranked,
    release,
    stuck,
    two_full_racks,
    until_no_plan,
    until_train_replaced_cheap,
)
from tests.kube.test_live_older_definition import older_definition

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def budgets_count(control_plane: ControlPlane) -> None:
    """Skips where no controller counts the pods of PodDisruptionBudgets."""
    if not control_plane.controllers:
        pytest.skip("needs the controller of PodDisruptionBudgets")


async def budget(it: World, name: str, **spec: object) -> str:
    """A PodDisruptionBudget of the pods with a label of its name; its path."""
    path = f"/apis/policy/v1/namespaces/{it.namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"covered-by": name}}
    await it.api.create(path, {"metadata": {"name": name}, "spec": {"selector": selector, **spec}})
    return f"{path}/{name}"


async def counted(it: World, path: str, healthy: int) -> None:
    """Waits until the controller has counted the pods of a budget."""

    async def done() -> bool:
        return bool((await it.api.get(path)).get("status", {}).get("currentHealthy") == healthy)

    await until(done)


async def low_under_a_budget(it: World, classes: Classes, available: int = 1) -> str:
    """A plain pod of low priority, and a budget that it counts for; the budget's path."""
    path = await budget(it, "keep", minAvailable=available)
    low = it.pod("low", priorityClassName=classes[10])
    low["metadata"]["labels"]["covered-by"] = "keep"
    await it.create(low)
    await it.bound(1)
    await counted(it, path, 1)
    return path


@pytest.mark.usefixtures("budgets_count")
def test_a_budget_that_never_allows_it_has_the_plan_given_up(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:1]) as (it, _, classes),
            it.scheduling(preempting(planDeadline="1s")),
        ):
            await low_under_a_budget(it, classes)
            uid = (await it.pods())["low"]["metadata"]["uid"]
            await it.create(it.pod("high", priorityClassName=classes[1_000]))
            await until(lambda: it.events("PreemptionGivenUp"))
            [event, *_] = await it.events("PreemptionGivenUp")
            assert "PodDisruptionBudget does not allow 1 eviction" in event["note"]

            async def cleared() -> bool:
                status = (await it.pods())["high"]["status"]
                found = [one for one in status["conditions"] if one["type"] == "closeby.dev/Preempting"]
                return "nominatedNodeName" not in status and found[0]["reason"] == "GivenUp"

            await until(cleared)
            low = (await it.pods())["low"]["metadata"]
            assert low["uid"] == uid and "deletionTimestamp" not in low

    asyncio.run(run())


@pytest.mark.usefixtures("budgets_count")
def test_a_budget_that_allows_it_in_time_is_waited_for(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:1]) as (it, _, classes),
            it.scheduling(preempting()),
        ):
            path = await low_under_a_budget(it, classes)
            await it.create(it.pod("high", priorityClassName=classes[1_000]))
            await until_logged(it, "not evicted")
            assert "low" in await it.placed()
            await it.api.delete(path)
            await until_placed(it, "high")
            assert await it.events("PreemptionGivenUp") == []

    asyncio.run(run())


@pytest.mark.usefixtures("budgets_count")
def test_victims_without_a_budget_stay_while_a_budget_refuses(
    control_plane: ControlPlane, namespace: str
) -> None:
    """One of two victims is covered; while its budget refuses the other one is not evicted either."""

    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:2]) as (it, _, classes),
            it.scheduling(preempting(pdb="soft")),
        ):
            path = await low_under_a_budget(it, classes)
            await it.create(it.pod("free", priorityClassName=classes[10]))
            await it.bound(2)
            await gang(it, "train", 2, classes[1_000])
            await until_logged(it, "not evicted", times=2)
            now = await it.pods()
            assert not any("deletionTimestamp" in now[name]["metadata"] for name in ("low", "free"))
            await it.api.delete(path)
            await until_placed(it, "train-0", "train-1")

    asyncio.run(run())


@asynccontextmanager
async def other_tenant(control_plane: ControlPlane, it: World) -> AsyncIterator[World]:
    """The same cluster and scheduler, as a user of another namespace sees it."""
    name = await create_namespace(it.api, service_accounts=control_plane.controllers)
    try:
        yield World(it.api, it.transport, name, topology=it.topology, name=it.name)
    finally:
        await delete_namespace(it.api, name)


def test_a_tenant_whose_pods_do_not_end_is_the_last_choice(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Two of three racks hold what is cheaper, with finalizers; the second plan takes the other tenant's."""
    hosts = [host(f"r{rack}", f"r{rack}", 1) for rack in (1, 2, 3)]

    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 20, 1_000, hosts=hosts) as (it, _, classes),
            other_tenant(control_plane, it) as other,
            it.scheduling(preempting(planDeadline="1s")),
        ):
            slow = [it.pod(f"slow-{i}", priorityClassName=classes[10]) for i in (1, 2)]
            for one in slow:
                one["metadata"]["finalizers"] = ["tests.closeby.dev/stays"]
                one["spec"]["terminationGracePeriodSeconds"] = 1
            await it.create(*slow)
            await other.create(other.pod("quick", priorityClassName=classes[20]))
            await it.bound(2), await other.bound(1)
            try:
                await gang(it, "train", 1, classes[1_000])
                await until_placed(it, "train-0")
                assert await other.placed() == {}
                [said] = it.said("preemption given up")
                assert "did not end in time" in str(said["why"])
                terminating = [
                    one for one in (await it.pods()).values() if "deletionTimestamp" in one["metadata"]
                ]
                assert len(terminating) == 1
            finally:
                await release(it, "slow-1")
                await release(it, "slow-2")

    asyncio.run(run())


@pytest.mark.usefixtures("budgets_count")
def test_the_budget_that_keeps_victims_is_named_to_the_gang(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:1]) as (it, _, classes),
            it.scheduling(preempting()),
        ):
            await low_under_a_budget(it, classes)
            await gang(it, "train", 1, classes[1_000])
            said = f"PodDisruptionBudget {namespace}/keep allows no eviction of 1 pod"
            assert said in await it.refusal("train-0", said)

            async def told() -> bool:
                status = (await group_of(it, "train")).get("status", {})
                return any(said in one["message"] for one in status.get("conditions", ()))

            await until(told)

    asyncio.run(run())


def test_a_pod_with_the_name_of_a_victim_is_not_evicted(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:1]) as (it, proxy, classes):

            async def another() -> None:
                await it.delete("low")
                low = it.pod("low", priorityClassName=classes[10])
                await it.create(low)
                uids.append((await it.pods())["low"]["metadata"]["uid"])

            uids: list[str] = []
            async with it.scheduling(preempting()):
                await it.create(it.pod("low", priorityClassName=classes[10]))
                await it.bound(1)
                proxy.before("POST", "/pods/low/eviction", another)
                await it.create(it.pod("high", priorityClassName=classes[1_000]))
                await until_placed(it, "high")
                assert (await it.pods())["low"]["metadata"]["uid"] == uids[0]

    asyncio.run(run())


WRITES = [
    ("PATCH", "/podgroups/train/status", "gang"),
    ("POST", "/eviction", "gang"),
    ("PATCH", "/pods/high/status", "pod"),
    ("POST", "/eviction", "pod"),
]


@pytest.mark.parametrize("fault", [Refuse(409), Refuse(410), Refuse(500), Refuse(429), Cut(), Cut(True)])
@pytest.mark.parametrize(("method", "part", "kind"), WRITES)
def test_a_write_that_fails_costs_no_other_victims(
    method: str, part: str, kind: str, fault: Fault, control_plane: ControlPlane, namespace: str
) -> None:
    """Each write fails twice."""

    async def run() -> None:
        async with full_racks(control_plane, namespace, preempting()) as (it, proxy, classes):
            before = await it.pods()
            proxy.inject(method, part, fault, times=2)
            if kind == "gang":
                await gang(it, "train", 2, classes[1_000])
                await until_train_replaced_cheap(it)
                await until_said(it, "train", "Placed")
            else:
                await it.create(it.pod("high", priorityClassName=classes[1_000]))
                await until_placed(it, "high")
            now = await it.pods()
            for name in ("dear-0", "dear-1"):
                assert now[name]["metadata"]["uid"] == before[name]["metadata"]["uid"]

    asyncio.run(run())


def test_victims_that_stay_have_the_plan_given_up_and_others_go(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A finalizer holds one victim, so the gang clears the other rack."""

    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 20, 1_000) as (it, _, classes),
            it.scheduling(preempting(planDeadline="1s")),
        ):
            await stuck(it, classes)
            await gang(it, "train", 2, classes[1_000])
            await until_placed(it, "train-0", "train-1")
            assert any("did not end in time" in str(one["why"]) for one in it.said("preemption given up"))
            assert not {"dear-0", "dear-1"} & (await it.placed()).keys()
            await release(it)

    asyncio.run(run())


def test_a_preemptor_that_is_deleted_evicts_no_more(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with full_racks(control_plane, namespace, preempting()) as (it, proxy, classes):
            proxy.inject("POST", "/eviction", Refuse(503), times=NEVER)
            await gang(it, "train", 2, classes[1_000])

            async def refused() -> bool:
                return bool(it.said("not evicted")) and bool(await plan_of(it, "train"))

            await until(refused)
            await it.delete("train-0", "train-1")
            await until_no_plan(it, "train")
            proxy.forgive()
            asked = proxy.count("POST", "/eviction")
            # The room is not kept any more, and nobody goes: the next pod waits.
            await it.create(it.pod("next", priorityClassName=classes[10]))
            await it.refusal("next")
            assert proxy.count("POST", "/eviction") == asked
            assert (await it.placed()).keys() == {"cheap-0", "cheap-1", "dear-0", "dear-1"}

    asyncio.run(run())


def test_without_a_place_for_the_plan_no_pod_is_evicted(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with AsyncExitStack() as stack:
            it, proxy, classes = await stack.enter_async_context(
                ranked(control_plane, namespace, 10, 20, 1_000)
            )
            await stack.enter_async_context(older_definition(it))
            await stack.enter_async_context(it.scheduling(preempting()))
            await two_full_racks(it, classes)
            await gang(it, "train", 2, classes[1_000])
            await until(lambda: it.events("PreemptionGivenUp"))
            [event, *_] = await it.events("PreemptionGivenUp")
            assert "no place for a plan of preemption: update the definition" in event["note"]
            assert proxy.count("POST", "/eviction") == 0
            # Its status is written all the same.
            await until_said(it, "train", "GangDoesNotFit")

    asyncio.run(run())


def test_without_its_pod_group_a_plan_is_given_up(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with full_racks(control_plane, namespace, preempting()) as (it, proxy, classes):
            proxy.inject("POST", "/eviction", Refuse(503), times=NEVER)
            await gang(it, "train", 2, classes[1_000])
            await until_logged(it, "not evicted")
            await it.api.delete(f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/train")
            await until_logged(it, "preemption given up")
            proxy.forgive()
            assert (await it.placed()).keys() == {"cheap-0", "cheap-1", "dear-0", "dear-1"}

    asyncio.run(run())


@pytest.mark.usefixtures("budgets_count")
def test_where_nothing_can_be_tried_without_effect_victims_are_evicted_all_the_same(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A webhook on evictions that knows no dry runs has the server refuse those."""

    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 1_000, hosts=HOSTS[:1]) as (it, proxy, classes),
            it.scheduling(preempting()),
        ):
            await low_under_a_budget(it, classes, available=0)
            proxy.inject("POST", "eviction?dryRun=All", Refuse(400), times=NEVER)
            await it.create(it.pod("high", priorityClassName=classes[1_000]))
            await until_placed(it, "high")
            assert await it.events("PreemptionGivenUp") == []

    asyncio.run(run())


def test_a_higher_priority_takes_the_plan_of_another_over(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The one rack is being cleared for a gang when a gang of higher priority comes."""

    async def run() -> None:
        async with (
            ranked(control_plane, namespace, 10, 1_000, 2_000, hosts=HOSTS[:2]) as (it, proxy, classes),
            it.scheduling(preempting()),
        ):
            await gang(it, "low", 2, classes[10])
            await it.bound(2)
            proxy.inject("POST", "/pods/low-1/eviction", Refuse(503), times=NEVER)
            await gang(it, "train", 2, classes[1_000])

            async def half() -> bool:
                return bool(it.said("not evicted")) and "low-0" not in await it.pods()

            await until(half)
            assert await plan_of(it, "train")
            await gang(it, "vip", 2, classes[2_000])

            async def taken_over() -> bool:
                return bool(await plan_of(it, "vip")) and not await plan_of(it, "train")

            await until(taken_over)
            assert [one["uid"] for one in (await plan_of(it, "vip"))["victims"]] == [
                (await it.pods())["low-1"]["metadata"]["uid"]
            ]
            [end] = it.said("preemption given up")
            assert end["item"] == f"{namespace}/train" and "higher priority" in str(end["why"])
            proxy.forgive()
            await until_placed(it, "vip-0", "vip-1")
            assert (await it.placed()).keys() == {"vip-0", "vip-1"}

            async def each_once() -> bool:
                return len(await it.events("Preempted")) == 2

            await until(each_once)

    asyncio.run(run())


ONE_RACK = [host(name, "r1", 1) for name in ("a", "b", "c")]


@asynccontextmanager
async def one_rack(
    control_plane: ControlPlane, namespace: str
) -> AsyncIterator[tuple[World, Proxy, Classes]]:
    """A scheduler on a rack of three nodes, and priorities for ``low``, ``train`` and ``other``."""
    async with (
        ranked(control_plane, namespace, 10, 1_000, 2_000, hosts=ONE_RACK) as (it, proxy, classes),
        it.scheduling(preempting()),
    ):
        yield it, proxy, classes


async def half_evicted(it: World, proxy: Proxy, classes: Classes) -> None:
    """Of a rack's three nodes ``low`` has two, and has lost one to ``train``; its other eviction fails."""
    await it.create(it.pod("other", priorityClassName=classes[2_000]))
    await it.bound(1)
    await gang(it, "low", 2, classes[10])
    await it.bound(3)
    proxy.inject("POST", "/pods/low-1/eviction", Refuse(503), times=NEVER)
    await gang(it, "train", 2, classes[1_000])

    async def half() -> bool:
        return proxy.count("POST", "/pods/low-1/eviction") > 0 and "low-0" not in await it.pods()

    await until(half)


async def until_gone(it: World, name: str) -> None:
    """Waits until there is no pod of this name."""

    async def gone() -> bool:
        return name not in await it.pods()

    await until(gone)


def test_a_gang_that_lost_a_member_goes_whole_although_its_room_is_needed_no_more(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Room elsewhere makes up for the victim that is left; alone it would keep its node for nothing."""

    async def run() -> None:
        async with one_rack(control_plane, namespace) as (it, proxy, classes):
            await half_evicted(it, proxy, classes)
            await it.delete("other")
            await until_placed(it, "train-0", "train-1")
            assert "low-1" in await it.placed()
            proxy.forgive()
            await until_gone(it, "low-1")
            assert await it.events("PreemptionGivenUp") == []

    asyncio.run(run())


def test_a_gang_that_lost_a_member_to_an_earlier_process_goes_whole(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The next leader needs no more room, and has evicted none of its members itself."""

    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 1_000, 2_000, hosts=ONE_RACK) as (it, proxy, classes):
            async with it.scheduling(preempting()):
                await half_evicted(it, proxy, classes)
            await it.delete("other")
            # Nothing says any more which gang the first process evicted.
            path = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/low/status"
            await it.api.patch(path, {"status": {"evictions": None}})
            async with it.scheduling(preempting()):
                await until_placed(it, "train-0", "train-1")
                proxy.forgive()
                await until_gone(it, "low-1")

    asyncio.run(run())


@pytest.mark.parametrize("killed", [True, False])
def test_what_a_plan_left_of_a_gang_goes_although_the_process_ends(
    killed: bool, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The preemptor has its place, and the member that is left of ``low`` could not be evicted yet."""

    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 1_000, 2_000, hosts=ONE_RACK) as (it, proxy, classes):
            async with replica(it, proxy, tmp_path) if killed else it.scheduling(preempting()):
                await half_evicted(it, proxy, classes)
                await it.delete("other")
                await until_placed(it, "train-0", "train-1")
                await until_said(it, "train", "Placed")
            assert "low-1" in await it.placed()
            proxy.forgive()
            again = it.successor()
            async with again.scheduling(preempting()):
                await until_gone(it, "low-1")
                await until_no_plan(it, "train")
                assert {"train-0", "train-1"} == (await it.placed()).keys()
                assert again.said("preempts") == again.said("preemption given up") == []

    asyncio.run(run())


def test_a_gang_that_lost_a_member_goes_whole_although_others_took_its_room(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Another scheduler takes the room that was cleared, so that the plan is given up."""

    async def run() -> None:
        async with one_rack(control_plane, namespace) as (it, proxy, classes):
            await half_evicted(it, proxy, classes)
            await take_room(it)
            proxy.forgive()
            await until_gone(it, "low-1")

    asyncio.run(run())


def test_what_a_plan_left_of_a_gang_stays_where_no_pod_may_be_evicted_any_more(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The operator has excluded the namespace meanwhile."""

    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 1_000, 2_000, hosts=ONE_RACK) as (it, proxy, classes):
            async with it.scheduling(preempting()):
                await half_evicted(it, proxy, classes)
                await it.delete("other")
                await until_placed(it, "train-0", "train-1")
            proxy.forgive()
            assert await plan_of(it, "train")
            async with it.successor().scheduling(preempting(), excluded_namespaces=(namespace,)):
                await until_no_plan(it, "train")
                pods = await it.pods()
                assert pods.keys() == {"low-1", "train-0", "train-1"}
                assert "deletionTimestamp" not in pods["low-1"]["metadata"]

    asyncio.run(run())


async def take_room(it: World) -> None:
    """Another scheduler takes the node that was cleared, and the plan is given up."""
    [free] = {"a", "b", "c"} - set((await it.placed()).values())
    taker = it.pod("taker")
    taker["spec"] |= {"schedulerName": "another", "nodeName": free}
    await it.create(taker)
    await until_logged(it, "preemption given up")


def test_what_a_plan_that_was_given_up_left_of_a_gang_goes_although_the_process_ends(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The gang that asked for the room still waits."""

    async def run() -> None:
        async with ranked(control_plane, namespace, 10, 1_000, 2_000, hosts=ONE_RACK) as (it, proxy, classes):
            async with it.scheduling(preempting()):
                await half_evicted(it, proxy, classes)
                await take_room(it)
                await until_said(it, "train", "GangDoesNotFit")
            assert "low-1" in await it.placed()
            proxy.forgive()
            async with it.successor().scheduling(preempting()):
                await until_gone(it, "low-1")
                await until_no_plan(it, "train")
                assert {"other", "taker"} == (await it.placed()).keys()

    asyncio.run(run())


def test_a_gang_that_can_do_with_the_members_left_keeps_them(
    control_plane: ControlPlane, namespace: str
) -> None:
    """``low`` needs one of its two members."""

    async def run() -> None:
        async with one_rack(control_plane, namespace) as (it, proxy, classes):
            await it.create(it.pod("other", priorityClassName=classes[2_000]))
            await it.bound(1)
            await it.create_group("low", 1, required="rack")
            await it.create(*(it.pod(f"low-{i}", gang="low", priorityClassName=classes[10]) for i in (0, 1)))
            await it.bound(3)
            proxy.inject("POST", "/eviction", Refuse(503), times=NEVER)
            await gang(it, "train", 2, classes[1_000])
            await until_logged(it, "not evicted", times=2)
            # One of them may go now.
            proxy.forgive()
            proxy.inject("POST", "/pods/low-1/eviction", Refuse(503), times=NEVER)
            await until_gone(it, "low-0")
            await it.delete("other")
            await until_placed(it, "train-0", "train-1")
            proxy.forgive()
            await it.create(it.pod("low-2", gang="low", priorityClassName=classes[10]))
            await it.refusal("low-2")
            assert "low-1" in await it.placed()

    asyncio.run(run())
