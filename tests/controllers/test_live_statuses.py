"""The keeper of statuses on a real API server: what it writes, how often, and when it looks again.

Its clock is the test's own; the first pause before the very same values is 4 to 8 seconds of it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace

from closeby.controllers.statuses import (
    VALID,
    Key,
    SeenStatus,
    WantedStatus,
    desired_status,
    namespace_of,
    seen,
)
from closeby.kube.client.waiting import RequestPace
from closeby.kube.watch.changes import upserted
from closeby.kube.writing.events import Events
from closeby.kube.writing.statuses import StatusWriter
from closeby.kube.writing.work_queue import WorkQueue
from closeby.kube.writing.writer import StatusCondition
from tests.control_plane.cluster import ControlPlane
from tests.controllers.at_work import Site, site
from tests.controllers.custom import KEP, resource

SPEC = "spec: {numMembers: 1, topologySortingAlgorithm: KahnSort, Pods: [{name: P1, type: Pod}]}"
GROUPS = resource(KEP, "AppGroup")
NOW = 1_700_000_000.0
VALID_NOW = WantedStatus(
    conditions=(StatusCondition(type=VALID, status="True", reason="Valid"),), types=frozenset((VALID,))
)


class Keeping:
    """A keeper and an AppGroup a1."""

    def __init__(self, it: Site) -> None:
        self.it = it
        self.now = 0.0
        self.work: WorkQueue[Key] = WorkQueue(lambda: self.now, namespace_of, RequestPace(1.0, 64.0))
        self.statuses = StatusWriter(
            self.work,
            Events(it.writer, it.say),
            it.say,
            clock=lambda: self.now,
            insistence=RequestPace(8.0, 64.0),
        )
        self.path = it.path("appgroups", "a1")
        self.key: Key = (GROUPS, f"{it.namespace}/a1")

    async def look(self) -> SeenStatus:
        """The object as it is now."""
        return seen(GROUPS, upserted(msgspec.Raw(msgspec.json.encode(await self.it.api.get(self.path)))))

    async def keep(
        self, running: object, it: SeenStatus | None = None, wanted: WantedStatus | None = None
    ) -> float:
        """One attempt at the number of running pods; seconds until the next one, 0 where none is due."""
        self.work.add(self.key)
        assert self.work.take() == self.key
        wanted = wanted or WantedStatus(fields={"runningPods": running})
        desired = desired_status(self.it.writer, it or await self.look(), wanted, NOW)
        await self.statuses.keep(self.key, desired)
        self.work.ended(self.key)
        wait = self.work.wait()
        return 0.0 if wait is None else wait

    async def running(self) -> object:
        return (await self.it.status("appgroups", "a1")).get("runningPods")

    async def spoil(self) -> None:
        """Somebody else writes another number."""
        await self.it.api.patch(f"{self.path}/status", {"status": {"runningPods": 99}})

    async def made_again(self) -> None:
        await self.it.api.delete(self.path)
        await self.it.create("appgroups", "a1", SPEC)


@asynccontextmanager
async def keeping(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Keeping]:
    async with site(control_plane, namespace) as it:
        await it.create("appgroups", "a1", SPEC)
        yield Keeping(it)


@pytest.fixture
def kept(
    control_plane: ControlPlane, namespace: str
) -> Callable[[Callable[[Keeping], Awaitable[None]]], None]:
    """Runs a test on a keeper."""

    def run(test: Callable[[Keeping], Awaitable[None]]) -> None:
        async def go() -> None:
            async with keeping(control_plane, namespace) as it:
                await test(it)

        asyncio.run(go())

    return run


Run = Callable[[Callable[[Keeping], Awaitable[None]]], None]


def test_the_same_values_are_written_again_after_ever_longer_pauses(kept: Run) -> None:
    async def test(it: Keeping) -> None:
        assert await it.keep(1) == 0.0
        assert await it.running() == 1
        await it.spoil()
        wait = await it.keep(1)
        assert 4.0 <= wait <= 8.0
        assert await it.running() == 99
        it.now += wait
        assert await it.keep(1) == 0.0
        assert await it.running() == 1
        await it.spoil()
        assert 8.0 < await it.keep(1) <= 16.0

    kept(test)


def test_other_values_are_written_at_once_and_have_pauses_of_their_own(kept: Run) -> None:
    async def test(it: Keeping) -> None:
        await it.keep(1)
        await it.spoil()
        it.now += await it.keep(1)
        await it.keep(1)
        it.now += 0.1
        assert await it.keep(2) == 0.0
        assert await it.running() == 2
        await it.spoil()
        assert 3.0 < await it.keep(2) <= 8.0

    kept(test)


def test_a_large_object_is_written_less_often(kept: Run) -> None:
    """10 s for a megabyte, whatever the values."""

    async def test(it: Keeping) -> None:
        await it.keep(1, replace(await it.look(), size=2_000_000))
        assert await it.keep(2) == pytest.approx(20.0)
        await it.spoil()
        assert await it.keep(1) == pytest.approx(20.0)
        it.now += 20.0
        assert await it.keep(2) == 0.0
        assert await it.running() == 2

    kept(test)


def test_a_recreated_object_is_another_one(kept: Run) -> None:
    async def test(it: Keeping) -> None:
        await it.keep(1)
        await it.made_again()
        it.now += 0.1
        assert await it.keep(1) == 0.0
        assert await it.running() == 1

    kept(test)


def test_what_was_forgotten_is_written_at_once(kept: Run) -> None:
    async def test(it: Keeping) -> None:
        await it.keep(1)
        await it.spoil()
        it.statuses.forget(it.key)
        assert await it.keep(1) == 0.0
        assert await it.running() == 1

    kept(test)


def test_conditions_are_only_written_into_what_was_looked_at(kept: Run) -> None:
    """They are one list, which others share; a single field is the keeper's alone."""

    async def test(it: Keeping) -> None:
        old = await it.look()
        await it.spoil()
        assert 0.0 < await it.keep(None, old, VALID_NOW) <= 1.0
        assert "conditions" not in await it.it.status("appgroups", "a1")
        it.now += 1.0
        assert await it.keep(1, old) == 0.0
        assert await it.running() == 1

    kept(test)


def test_a_refused_write_is_reported_and_retried_after_a_pause(kept: Run) -> None:
    async def test(it: Keeping) -> None:
        assert 4.0 <= await it.keep("many") <= 8.0
        assert [str(line["object"]) for line in it.it.said("status refused")] == [f"AppGroup/{it.key[1]}"]

    kept(test)


def test_an_object_that_is_gone_needs_nothing_more(kept: Run) -> None:
    async def test(it: Keeping) -> None:
        old = await it.look()
        await it.spoil()
        assert await it.keep(None, old, VALID_NOW) > 0.0
        await it.it.api.delete(it.path)
        it.now += 1.0
        assert await it.keep(1, old) == 0.0
        # The failure before is forgotten with it: the next one is a first one.
        await it.it.create("appgroups", "a1", SPEC)
        old = await it.look()
        await it.spoil()
        assert 0.0 < await it.keep(None, old, VALID_NOW) <= 1.0

    kept(test)
