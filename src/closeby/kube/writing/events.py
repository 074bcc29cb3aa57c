"""Events: how users see what happened; one that could not be written is logged for the operator."""

import asyncio
import time
from typing import Final

from closeby.kube.writing.writer import Note, Reference, Verdict, Writer
from closeby.objects.saying import Say
from closeby.objects.unexpected import Contained, fields_of

#: Events that are posted at the same time, of those for which no task waits.
_AT_ONCE: Final = 4


class Events:
    """Posts the Events of one component. None is vital: one that fails is logged, and dropped."""

    def __init__(self, writer: Writer, say: Say, *, wanted: bool = True) -> None:
        """Unless they are ``wanted`` none is posted."""
        self._writer = writer
        self._say = say
        self.wanted = wanted
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._posting: set[asyncio.Task[None]] = set()

    async def post(self, about: Reference, note: Note, now: float) -> None:
        """Says ``note`` about an object; ``now`` is when it happened, in seconds since the epoch."""
        if not self.wanted:
            return
        written = await self._writer.event(about, note, now)
        # The server creates no Events in a namespace that is being deleted.
        if written.error is None or written.verdict is Verdict.GONE or written.error.namespace_ends:
            return
        self._say("event not written", warning=True, object=about, event=note.reason, error=written.error)

    def post_soon(self, about: Reference, note: Note) -> None:
        """As ``post``, for callers that do not wait: what happened just now."""
        if self.wanted:
            task = asyncio.create_task(self._post_in_turn(about, note, time.time()))
            self._posting.add(task)
            task.add_done_callback(self._posting.discard)

    async def finish(self) -> None:
        """Waits for all that are to be posted."""
        while self._posting:
            await asyncio.wait(self._posting)

    async def _post_in_turn(self, about: Reference, note: Note, now: float) -> None:
        async with self._slots:
            with Contained() as posting:
                await self.post(about, note, now)
        if posting.error is not None:
            self._say("event not written", warning=True, object=about, **fields_of(posting.error))
