"""What soaks on a real API server share: faults by chance, requests that go on, and what is judged."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp

from closeby.kube.scheduler.live import LiveScheduler, SchedulerSettings
from closeby.reading.configuration import Configuration
from tests.control_plane.api import ApiError, Object
from tests.kube.auditing import Audit, broken, overcommitted, pages
from tests.kube.faulty_proxy import Cut, Fault, Proxy, Refuse
from tests.kube.live_world import RACK, World, until_none

#: For what is left to do in the end, on a machine that does much else besides.
SETTLE_SECONDS = 240.0


async def persist(request: Callable[[], Awaitable[object]], fine: int) -> None:
    """Until it is done; the answer ``fine`` says that it was done before."""
    while True:
        try:
            await request()
        except aiohttp.ClientError:
            await asyncio.sleep(0.2)
        except ApiError as error:
            if error.status == fine:
                return
            if error.status not in (409, 429) and error.status < 500:
                raise
            await asyncio.sleep(0.2)
        else:
            return


class Harm:
    """Faults of the proxy, by chance."""

    FAULTS: tuple[Fault, ...] = (
        Refuse(409, reason="Conflict"),
        Refuse(429, {"Retry-After": "1"}),
        Refuse(500),
        Refuse(503),
        Cut(),
        Cut(carried_out=True),
    )

    def __init__(self, proxy: Proxy, random: Random) -> None:
        self._proxy = proxy
        self._random = random
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        """Ends, cuts and refuses watches now and then."""
        self._proxy.chance = self._maybe
        while True:
            await asyncio.sleep(self._random.uniform(2.0, 8.0))
            match self._random.choice(("end", "cut", "forget")):
                case "end":
                    self._proxy.end_streams()
                case "cut":
                    self._proxy.cut_streams()
                case "forget":
                    kind = self._random.choice(("/pods", "/podgroups", "/nodes"))
                    self._proxy.inject("WATCH", kind, Refuse(410, reason="Expired"))
                    self._proxy.end_streams()
                    self.done["forgotten watches"] += 1
            self.done["ended watches"] += 1

    def _maybe(self, method: str, path: str) -> Fault | None:
        if method not in ("POST", "PATCH") or self._random.random() > 0.02:
            return None
        self.done["faults"] += 1
        return self._random.choice(self.FAULTS)


@asynccontextmanager
async def background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs these inside the context."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in work]
        yield
        for task in tasks:
            task.cancel()


async def at(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


async def would_place(it: World) -> list[str]:
    """What a scheduler that starts now, and reads all objects anew, finds room for."""
    lines: list[str] = []

    def say(message: str, /, *, warning: bool = False, **fields: object) -> None:
        if message == "would place":
            lines.append(str(fields["item"]))

    scheduler = LiveScheduler(
        it.transport, Configuration(), SchedulerSettings(scheduler_name=it.name, dry_run=True), say
    )
    stop = asyncio.Event()
    running = asyncio.create_task(scheduler.run(stop))
    async with asyncio.timeout(120):
        await scheduler.ready.wait()
    scheduler.engine.validate_state()
    stop.set()
    assert await running is None
    return lines


async def settled(it: World, audit: Audit) -> None:
    """Waits until nothing more can be placed."""
    deadline = time.monotonic() + SETTLE_SECONDS
    left: list[str] = []
    while time.monotonic() < deadline:
        before = len(audit.nodes)
        await asyncio.sleep(3.0)
        if len(audit.nodes) == before:
            left = await would_place(it)
            if not left:
                return
    raise AssertionError(f"these would fit and wait: {left}")


async def judged(it: World, audit: Audit) -> tuple[int, int]:
    """What may not be is not; returns how many pods are bound and how many wait."""
    pods: list[Object] = []

    async def wrong() -> list[str]:
        pods[:] = await pages(it.api, f"/api/v1/namespaces/{it.namespace}/pods")
        nodes = await pages(it.api, "/api/v1/nodes")
        groups = await pages(it.api, f"/apis/closeby.dev/v1alpha1/namespaces/{it.namespace}/podgroups")
        racks = {one["metadata"]["name"]: one["metadata"]["labels"][RACK] for one in nodes}
        assert overcommitted(pods, nodes) == []
        return broken(groups, pods, racks)

    # The last word on a gang is written after its last binding.
    await until_none(wrong)
    events = await pages(it.api, f"/apis/events.k8s.io/v1/namespaces/{it.namespace}/events")
    told = Counter(one["regarding"]["uid"] for one in events if one["reason"] == "Scheduled")
    assert [uid for uid, number in told.items() if number > 1] == []

    async def unseen() -> list[str]:
        return audit.never_bound(told)

    # What the audit watches may come behind what a list shows.
    await until_none(unseen)
    bound = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
    return bound, len(pods) - bound
