"""Workers go on, whatever becomes of one attempt."""

import asyncio
import time

from closeby.kube.writing.events import Events
from closeby.kube.writing.work_queue import WorkQueue
from closeby.kube.writing.workers import Workers
from closeby.kube.writing.writer import Reference
from tests.kube.live import eventually


class GivenUp:
    """A reconciler whose first attempts end by what they wait for being cancelled."""

    name = "given-up"
    events: Events

    def __init__(self, times: int) -> None:
        self.work: WorkQueue[str] = WorkQueue(time.monotonic, str)
        self.attempts = 0
        self._times = times

    async def reconcile(self, key: str) -> None:
        self.attempts += 1
        if self.attempts <= self._times:
            waiting = asyncio.ensure_future(asyncio.sleep(60))
            waiting.cancel()
            await waiting

    def regarding(self, key: str) -> Reference | None:
        return None


def test_an_attempt_that_is_cancelled_leaves_its_place_and_is_made_again() -> None:
    async def run() -> None:
        one, stopping = GivenUp(times=1), asyncio.Event()
        at_work = asyncio.create_task(Workers(one, lambda *_, **__: None).run(stopping))
        one.work.add("a")
        await eventually(lambda: asyncio.sleep(0, one.attempts == 2))
        assert one.work.longest == 0
        stopping.set()
        await asyncio.wait_for(at_work, 60)

    asyncio.run(run())
