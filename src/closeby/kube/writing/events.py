"""Events: how users see what happened. None is vital, so nothing waits for one, and some may be lost.

They are posted in the background, a few at a time and those of one object in their order. One that could not
be written is logged for the operator. While the server is slow they queue up, and the oldest are dropped.
"""

import asyncio
import time
from collections.abc import Hashable
from functools import partial
from typing import Final, NamedTuple

from closeby.kube.writing.writer import Note, Reference, Writer, WriteResult
from closeby.objects.process import Contained, Say, fields_of

#: Events that are posted at the same time.
_AT_ONCE: Final = 8
#: Events that wait to be posted: as many as there are while a gang of some thousand pods is bound.
_MOST: Final = 4_000
#: Seconds for those that are left when the process ends.
_TO_FINISH: Final = 5.0


class _Queued(NamedTuple):
    about: Reference
    note: Note
    #: Seconds since the epoch.
    when: float


class Events:
    """Posts the Events of one component."""

    def __init__(self, writer: Writer, say: Say, *, wanted: bool = True, most: int = _MOST) -> None:
        """Unless they are ``wanted`` none is posted; at most so many wait to be posted."""
        self._writer = writer
        self._say = say
        self.wanted = wanted
        self._most = most
        #: Those that wait, the oldest first, by a number that rises.
        self._queue: dict[int, _Queued] = {}
        self._numbers = 0
        #: By object: the task that posts its Event.
        self._posting: dict[Hashable, asyncio.Task[None]] = {}
        #: Events that were dropped since the queue was last empty.
        self._dropped = 0

    def post(self, about: Reference, note: Note, when: float | None = None) -> None:
        """Says ``note`` about an object soon; it happened ``when`` (seconds since the epoch; None: now)."""
        if not self.wanted:
            return
        self._numbers += 1
        self._queue[self._numbers] = _Queued(about, note, time.time() if when is None else when)
        if len(self._queue) > self._most:
            if not self._dropped:
                self._say("event queue full", warning=True, queued=self._most)
            self._dropped += 1
            del self._queue[next(iter(self._queue))]
        self._fill()

    async def finish(self, within: float = _TO_FINISH) -> None:
        """Returns when all are posted, or after so many seconds without those that are left."""
        ends = time.monotonic() + within
        while self._posting and (left := ends - time.monotonic()) > 0:
            await asyncio.wait(self._posting.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        self._dropped += len(self._queue) + len(self._posting)
        self._queue.clear()
        if posting := list(self._posting.values()):
            for task in posting:
                task.cancel()
            await asyncio.wait(posting)
        self._report_dropped()

    def _fill(self) -> None:
        """Begins as many as may be posted at the same time: the oldest of objects without one under way."""
        free, begun = _AT_ONCE - len(self._posting), list[int]()
        for number, queued in self._queue.items():
            if len(begun) == free:
                break
            key = _key(queued.about)
            if key not in self._posting:
                begun.append(number)
                self._posting[key] = task = asyncio.create_task(self._post(queued))
                task.add_done_callback(partial(self._posted, key))
        for number in begun:
            del self._queue[number]
        if not self._posting:
            self._report_dropped()

    def _posted(self, key: Hashable, task: asyncio.Task[None]) -> None:
        del self._posting[key]
        if not task.cancelled():
            self._fill()

    def _report_dropped(self) -> None:
        if self._dropped:
            self._say("events dropped", warning=True, dropped=self._dropped)
            self._dropped = 0

    async def _post(self, queued: _Queued) -> None:
        about, note, when = queued
        with Contained() as posting:
            written = await self._writer.event(about, note, when)
            # The server creates no Events in a namespace that is being deleted.
            gone = written.verdict is WriteResult.GONE
            if written.error is not None and not gone and not written.error.namespace_ends:
                error = written.error
                self._say("event not written", warning=True, object=about, event=note.reason, error=error)
        if posting.error is not None:
            self._say("event not written", warning=True, object=about, **fields_of(posting.error))


def _key(about: Reference) -> Hashable:
    return about.kind, about.namespace, about.name
