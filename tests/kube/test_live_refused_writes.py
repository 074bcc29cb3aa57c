"""What users hear where the API server refuses what a start needs: at once, in the server's own words."""

import asyncio
from collections.abc import Callable

import pytest

from closeby.kube.metrics.stories import story_json
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Proxy, Refuse
from tests.kube.live_world import (
    World,
    behind_proxy,
    condition,
    group_of,
    host,
    until,
    until_said,
)
from tests.kube.troubled import REFUSED, held_back, trouble, until_refused

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)

ALWAYS = 100_000


def bindings(proxy: Proxy, fault: Refuse, times: int = ALWAYS) -> None:
    proxy.inject("POST", "/binding", fault, times)


@pytest.mark.parametrize(
    "fault",
    [
        Refuse(403, reason="Forbidden"),
        Refuse(422, reason="Invalid"),
        Refuse(409, reason="Conflict"),
        Refuse(500, reason="InternalError"),  # So the server answers where a webhook can't be called.
    ],
    ids=lambda fault: str(fault.status),
)
def test_a_refused_binding(control_plane: ControlPlane, namespace: str, fault: Refuse) -> None:
    """The pod has a condition and an Event with the server's words, and runs once it may."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, host("n1")) as (it, proxy):
            bindings(proxy, fault)
            async with it.scheduling() as scheduler:
                await it.create(it.pod("w"))
                (told,) = await until_refused(it, "w")
                assert f"{fault.reason} ({fault.status}): injected by a test" in told["message"]
                story = story_json(scheduler.engine, it.name, namespace, "w")
                assert story is not None and f'"reason":"{REFUSED}"'.encode() in story
                # Once for all attempts: the next ones are not news.
                before = proxy.count("POST", "/binding")
                await until(_more(proxy, before + 2))
                assert len(await it.events("FailedScheduling")) == 1
                proxy.forgive()
                await it.bound(1)
                await until(_scheduled(it, "w"))

    def _more(proxy: Proxy, number: int) -> Callable[[], object]:
        async def more() -> bool:
            return proxy.count("POST", "/binding") >= number

        return more

    def _scheduled(it: World, name: str) -> Callable[[], object]:
        async def so() -> bool:
            (one,) = (
                one
                for one in (await it.pods())[name]["status"]["conditions"]
                if one["type"] == "PodScheduled"
            )
            return bool(one["status"] == "True")

        return so

    asyncio.run(run())


def test_a_gang_whose_members_are_refused(control_plane: ControlPlane, namespace: str) -> None:
    """Its condition and its last decision say so, as long as that is so, and an Event on it."""

    async def run() -> None:
        async with trouble(control_plane, namespace) as (it, proxy, _), it.scheduling():
            proxy.inject("POST", "/pods/g-3/binding", Refuse(422, reason="Invalid"), ALWAYS)
            await it.gang("g", 8, required="rack")
            await until_refused(it, "g-3")
            told = await until_said(it, "g", REFUSED, says="7 of 8 members are bound")
            assert told["status"] == "False" and "Invalid (422)" in told["message"]
            assert (await group_of(it, "g"))["status"]["lastDecision"]["reason"] == REFUSED
            events = await it.events("FailedScheduling")
            assert [one for one in events if one["regarding"]["kind"] == "PodGroup"]
            proxy.forgive()
            await it.bound(8)
            await until_said(it, "g", "Placed")
            await until(lambda: _decided(it))

    async def _decided(it: World) -> bool:
        return "reason" not in (await group_of(it, "g"))["status"]["lastDecision"]

    asyncio.run(run())


def test_a_plan_that_may_not_be_written(control_plane: ControlPlane, namespace: str) -> None:
    """No member is bound without it, so each of them hears why."""

    async def run() -> None:
        async with trouble(control_plane, namespace) as (it, proxy, _), it.scheduling():
            proxy.inject("PATCH", "/podgroups/g/status", Refuse(403, reason="Forbidden"), ALWAYS)
            await it.gang("g", 3, required="rack")
            for one in await until_refused(it, "g-0", "g-1", "g-2"):
                assert "Forbidden (403): injected by a test" in one["message"]
            assert not await it.placed()
            proxy.forgive()
            await it.bound(3)
            await until_said(it, "g", "Placed")

    asyncio.run(run())


def test_many_refusals_are_few_lines(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *(host(f"n{i}") for i in range(4))) as (it, proxy):
            bindings(proxy, Refuse(403, reason="Forbidden"))
            async with it.scheduling():
                names = [f"w-{i}" for i in range(30)]
                await it.create(*(it.pod(name) for name in names))
                await until_refused(it, *names)
                assert proxy.count("POST", "/binding") >= len(names)
                assert len(it.said("binding failed")) <= proxy.count("POST", "/binding") / 10
                assert len(it.said("placed")) <= len(names)

    asyncio.run(run())


def test_members_that_are_deleted_on_their_way(control_plane: ControlPlane, namespace: str) -> None:
    """The status counts the two that are bound, and not the six whose bindings nobody answered."""

    async def run() -> None:
        async with trouble(control_plane, namespace) as (it, proxy, _), it.scheduling():
            await held_back(it, proxy, 2)
            await it.delete(*(f"g-{i}" for i in range(2, 8)))
            await until_said(it, "g", "PartlyPlaced")
            assert (await group_of(it, "g"))["status"]["scheduled"] == 2
            assert (await condition(it, "g"))["message"].startswith("2 of at least 8 members are placed")
            assert not it.said("status refused")
            proxy.forgive()
            await it.create(*(it.pod(f"g-{i}", gang="g") for i in range(2, 8)))
            await it.bound(8)

    asyncio.run(run())
