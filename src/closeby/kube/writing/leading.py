"""Whether this replica leads: of several that run only the one that holds the Lease decides and writes.

The others watch everything meanwhile, so that they can go on at once. A replica that lost the Lease drops all
it knows, which may be wrong by now, stands by, and begins with what the cluster says (``terms``).

The Lease is renewed in a thread of its own, with a connection of its own: a decision may take seconds, and
neither it nor a queue of requests may cost the lead.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.metrics.health import Right, Rights
from closeby.kube.writing.lease import Elector, LeaseSettings, LeaseStatus
from closeby.objects.process import Say

#: Token of the error with which the work of a leader ends that does not lead any more.
LEASE_LOST: Final = "LeaseLost"
#: Seconds without a sign of life of the main thread after which it does not lead any more.
_STANDSTILL: Final = 120.0
#: Seconds for the Lease to be handed over.
_TO_HAND_OVER: Final = 5.0


async def terms(work: Callable[[], Awaitable[ApiError | None]], say: Say) -> ApiError | None:
    """Does ``work`` again each time that it ends because the lead was lost; returns why it ended at last."""
    while True:
        error = await work()
        if error is None or error.reason != LEASE_LOST:
            return error
        say("leadership lost", warning=True, error=error)


class Lead:
    """The lead of one replica; without a Lease there is one replica only, and it leads."""

    def __init__(
        self, transport: Transport, settings: LeaseSettings | None, say: Say, needed: Iterable[Right] = ()
    ) -> None:
        """``needed``: what a leader must be allowed to do, besides what the Lease takes."""
        self._transport = transport
        self._settings = settings
        self._say = say
        self._elector: Elector | None = None
        self.rights = Rights(transport, (*needed, *(() if settings is None else settings.rights)), say)
        #: Set while this replica leads.
        self.held = asyncio.Event()

    @property
    def certain(self) -> bool:
        """Whether no other replica can lead at this very moment; to be asked before each binding."""
        if self._settings is None:
            return True
        return self.held.is_set() and self._elector is not None and self._elector.leading

    async def campaign(self) -> ApiError | None:
        """Tries to lead, and leads; returns why it does so no more. Without a Lease it never returns.

        Cancel it once nothing is under way any more: another replica may begin at that moment. Who may not do
        what a leader does does not try: another replica may.
        """
        asking = asyncio.create_task(self.rights.run())
        try:
            await self.rights.complete.wait()
            if self._settings is not None:
                return await self._by_lease(self._settings)
            self.held.set()
            await asyncio.Event().wait()
            return None
        finally:
            asking.cancel()

    async def _by_lease(self, settings: LeaseSettings) -> ApiError | None:
        loop = asyncio.get_running_loop()
        statuses: asyncio.Queue[LeaseStatus] = asyncio.Queue()
        candidate = _Candidate(
            self._transport.another(),
            settings,
            lambda standing: loop.call_soon_threadsafe(statuses.put_nowait, standing),
        )
        self._elector = candidate.elector
        running = asyncio.create_task(asyncio.to_thread(candidate.run))
        beating = asyncio.create_task(candidate.beat())
        try:
            while True:
                news = asyncio.create_task(statuses.get())
                await asyncio.wait([running, news], return_when=asyncio.FIRST_COMPLETED)
                if not news.done():
                    news.cancel()
                    await running  # It ends by itself only when something is wrong with it.
                    return None
                lost = self._take_in(news.result(), settings.name)
                if lost is not None:
                    return lost
        finally:
            beating.cancel()
            candidate.end()
            await asyncio.wait([running], timeout=_TO_HAND_OVER)

    def _take_in(self, standing: LeaseStatus, name: str) -> ApiError | None:
        """Notes how things stand now; returns why the lead is lost, if it is."""
        if standing.leading:
            self._say("leading", lease=name)
            self.held.set()
            return None
        if self.held.is_set():
            self.held.clear()
            why = standing.error or f"{standing.holder or 'no replica'} leads now"
            return ApiError(None, LEASE_LOST, f"{name}: {why}")
        self._say(
            "waiting for leadership",
            warning=standing.error is not None,
            lease=name,
            holder=standing.holder or None,
            error=standing.error,
        )
        return None


class _Candidate:
    """One candidate in an event loop of its own."""

    def __init__(
        self, transport: Transport, settings: LeaseSettings, tell: Callable[[LeaseStatus], object]
    ) -> None:
        self.elector = Elector(transport, settings, time.time)
        self._transport = transport
        self._tell = tell
        self._begun = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._beaten_at = time.monotonic()

    async def beat(self) -> None:
        """Shows, in the main thread and until it is cancelled, that there is a process to lead."""
        while True:
            self._beaten_at = time.monotonic()
            await asyncio.sleep(1.0)

    def run(self) -> None:
        """Keeps the candidate going until ``end`` is called in another thread; then hands the Lease over."""
        try:
            asyncio.run(self._work())
        finally:
            self._begun.set()

    def end(self) -> None:
        """Tells ``run`` to come to its end."""
        self._begun.wait()
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # It has ended by itself.
                self._loop.call_soon_threadsafe(self._ending.set)

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun.set()
        async with self._transport, asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow())
            listening = tasks.create_task(self._listen())
            await self._ending.wait()
            following.cancel()
            listening.cancel()

    async def _follow(self) -> None:
        async with contextlib.aclosing(self.elector.standings()) as standings:
            async for standing in standings:
                self._tell(standing)

    async def _listen(self) -> None:
        """Ends the candidacy when the main thread stands still for good: another replica is to lead then."""
        while True:
            await asyncio.sleep(1.0)
            if time.monotonic() > self._beaten_at + _STANDSTILL:
                raise RuntimeError(f"nothing was done for {_STANDSTILL:g} s: giving up leadership")
