"""PodGroups of other schedulers on a real API server: placed as gangs, and told as their kinds allow."""

import asyncio
import json

import pytest

from tests.cli.calling import closeby
from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Refuse
from tests.kube.live_dialects import (
    COSCHEDULING,
    KAI,
    NATIVE,
    UPSTREAM,
    VOLCANO,
    Dialect,
    gang,
    mirror_of,
    nodes_by_uid,
    planned,
    served,
)
from tests.kube.live_world import World, behind_proxy, host, until, until_said

#: r1 is too small for a gang of four.
HOSTS = (host("r1-0", "r1", 3), host("r2-0", "r2", 2), host("r2-1", "r2", 2))


@pytest.fixture(params=[VOLCANO, KAI, COSCHEDULING, NATIVE], ids=lambda dialect: dialect.group)
def dialect(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Dialect:
    found: Dialect = request.param

    async def there() -> bool:
        async with Api(control_plane.access()) as api:
            try:
                await api.get(f"/apis/{found.group}/{found.version}/podgroups")
            except ApiError:
                return False
        return True

    if found.builtin and not asyncio.run(there()):
        pytest.skip("the API server does not serve scheduling.k8s.io v1beta1")
    return found


def test_a_gang_is_placed_and_its_plan_stands_only_meanwhile(
    control_plane: ControlPlane, namespace: str, dialect: Dialect
) -> None:
    plans: list[dict[str, str]] = []

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy), served(it.api, dialect):

            async def look() -> None:
                plans.append(await planned(it, dialect))

            async def plan_gone() -> bool:
                return not await planned(it, dialect)

            proxy.before("POST", "/binding", look)
            async with it.scheduling():
                await gang(it, dialect)
                placed = await it.bound(4)
                if dialect.requires:
                    assert {place.partition("-")[0] for place in placed.values()} == {"r2"}
                assert plans == [await nodes_by_uid(it)]
                await until(plan_gone)
                group = await it.api.get(dialect.path(namespace, "g"))
                if dialect.group == UPSTREAM:
                    await until(lambda: _told(it, dialect, "True"))
                else:
                    # Nobody else's status is written, and what can't have a condition gets an Event.
                    assert "status" not in group
                    await until(lambda: _told_by_event(it, "Scheduled"))
                await _explained(it, control_plane, dialect)

    asyncio.run(run())


def test_a_waiting_gang_gets_a_condition_where_its_kind_allows(
    control_plane: ControlPlane, namespace: str, dialect: Dialect
) -> None:
    """Seven members are needed in one rack, or in all where nothing requires one."""
    hosts = (host("r1-0", "r1", 2), host("r2-0", "r2", 1))

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *hosts) as (it, proxy), served(it.api, dialect):
            # All its members are there: of one that is incomplete for a moment that would be told first.
            await gang(it, dialect)
            async with it.scheduling():
                if dialect.group == UPSTREAM:
                    await until(lambda: _told(it, dialect, "False"))
                else:
                    await until(lambda: _told_by_event(it, "FailedScheduling"))
                assert await it.placed() == {}
                assert proxy.count("POST", "/binding") == 0
                assert not await planned(it, dialect)

    asyncio.run(run())


def test_a_start_that_stopped_is_carried_on_along_the_mirror(
    control_plane: ControlPlane, namespace: str, dialect: Dialect
) -> None:
    """The scheduler ends with half of the bindings sent; the next one finds where the others were to go."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy), served(it.api, dialect):
            for member in (1, 3):
                proxy.inject("POST", f"/{namespace}/pods/g-{member}/binding", Refuse(503), times=1000)
            async with it.scheduling():
                await gang(it, dialect)
                await it.bound(2)
            promised = await planned(it, dialect)
            assert len(promised) == 4
            proxy.forgive()
            again = it.successor()
            async with again.scheduling():
                await again.bound(4)
                assert await nodes_by_uid(again) == promised

                async def plan_gone() -> bool:
                    return not await planned(it, dialect)

                await until(plan_gone)

    asyncio.run(run())


def test_a_gang_of_another_scheduler_is_left_alone(
    control_plane: ControlPlane, namespace: str, dialect: Dialect
) -> None:
    """It is complete and loses a member; what is told of our gangs after that shows that we know of it."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy), served(it.api, dialect):
            await gang(it, dialect, scheduler="another")
            for member, node in enumerate(("r2-0", "r2-0", "r2-1", "r2-1")):
                binding = {"metadata": {"name": f"g-{member}"}, "target": {"kind": "Node", "name": node}}
                await it.api.create(f"/api/v1/namespaces/{namespace}/pods/g-{member}/binding", binding)
            if dialect.group == UPSTREAM:
                placed = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled"}
                told = placed | {"message": "all are placed", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                status = {"status": {"conditions": [told]}}
                await it.api.patch(f"{dialect.path(namespace, 'g')}/status", status, kind="merge")
            before = await it.api.get(dialect.path(namespace, "g"))
            async with it.scheduling():
                await it.gang("ours", 2)
                await until_said(it, "ours", "Placed")
                await it.delete("g-0")
                await it.delete("ours-0")
                await until_said(it, "ours", "PartlyPlaced")
                await it.gang("later", 1)
                await until_said(it, "later", "Placed")
            # A process that finds the loss says nothing either.
            again = it.successor()
            async with again.scheduling():
                await again.gang("last", 1)
                await until_said(again, "last", "Placed")
            assert await it.api.get(dialect.path(namespace, "g")) == before
            assert await mirror_of(it, dialect) == {}
            assert proxy.count("PATCH", "/podgroups/g/status") == 0
            regarding = [one["regarding"]["name"] for one in await it.events("FailedScheduling")]
            assert "g" not in regarding

    asyncio.run(run())


async def _explained(it: World, control_plane: ControlPlane, dialect: Dialect) -> None:
    """`closeby explain` reads the scheduler's decision from the mirror."""
    decided = (await mirror_of(it, dialect))["status"]["lastDecision"]
    assert "reason" not in decided
    asked = ("explain", "podgroup/g", "-n", it.namespace, "--scheduler-name", it.name, "-o", "json")
    done = await asyncio.to_thread(closeby, *asked, "--kubeconfig", control_plane.kubeconfig)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["lastDecision"], found["reason"]) == (decided, None)


async def _told(it: World, dialect: Dialect, status: str) -> bool:
    group = await it.api.get(dialect.path(it.namespace, "g"))
    conditions = group.get("status", {}).get("conditions") or ()
    found = [one for one in conditions if one["type"] == "PodGroupScheduled" and one["status"] == status]
    if status == "False":
        assert all(one["reason"] == "Unschedulable" for one in found)
    return bool(found)


async def _told_by_event(it: World, reason: str) -> bool:
    found = [one for one in await it.events(reason) if one["regarding"]["kind"] == "PodGroup"]
    assert len(found) <= 1, found
    return [one["regarding"]["name"] for one in found] == ["g"]
