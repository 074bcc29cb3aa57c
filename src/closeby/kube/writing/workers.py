"""Does the work of a reconciler, several objects at once, each by itself.

What goes wrong with one object ends nothing else, and one that takes long does not hold up the others. What
was unexpected is reported in the log with its traceback, as a metric and in an Event on the object, and is
tried again, ever later. An attempt that does not end is reported too, and the process is not ready meanwhile.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, Protocol

from closeby.kube.client.waiting import unless
from closeby.kube.writing.events import Events
from closeby.kube.writing.work_queue import Key, WorkQueue
from closeby.kube.writing.writer import Note, Reference
from closeby.objects.bounds import clipped
from closeby.objects.process import Contained, Reported, Say, brief, fields_of

#: Reason of the Event.
NOT_RECONCILED: Final = "NotReconciled"
#: All that an attempt waits for has deadlines; one that takes so many seconds is stuck.
STUCK_AFTER: Final = 120.0


class Working(Protocol[Key]):
    """What reconcilers have for their workers."""

    @property
    def name(self) -> str:
        """What metrics, and ``--only``, call it."""

    @property
    def work(self) -> WorkQueue[Key]:
        """Keys of objects to look at."""

    @property
    def events(self) -> Events:
        """Where users see errors."""

    async def reconcile(self, key: Key) -> None:
        """Does what is to be done about one object now; never twice at once for one key.

        What fails as it may fail is the reconciler's own to repeat, by its ``work``.
        """

    def regarding(self, key: Key) -> Reference | None:
        """The object that Events are about; None where there is none any more."""


class Workers(Generic[Key]):
    """Those of one reconciler."""

    def __init__(
        self,
        reconciler: Working[Key],
        say: Say,
        unexpected: Callable[[], None] = lambda: None,
        stuck_after: float = STUCK_AFTER,
    ) -> None:
        """``unexpected`` counts errors; an attempt of more than ``stuck_after`` seconds is stuck."""
        self._reconciler = reconciler
        self._say = say
        self._count = unexpected
        self._stuck_after = stuck_after
        #: Keys of which the log says that their attempt is stuck.
        self._stuck: set[Key] = set()
        #: Unexpected errors, by key: the uid of the object and the text.
        self._reported: Reported[Key] = Reported()

    async def run(self, stopping: asyncio.Event) -> None:
        """Works until ``stopping`` is set, then ends what is under way."""
        work = self._reconciler.work
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch(stopping))
            while not stopping.is_set():
                work.news.clear()
                while (key := work.take()) is not None:
                    tasks.create_task(self._look_at(key))
                await unless(stopping, work.news.wait, work.wait())

    @property
    def stuck(self) -> str | None:
        """How many attempts do not come to an end, and for how long; None if all do. The log names them."""
        found = self._reconciler.work.stuck(self._stuck_after)
        if not found:
            return None
        return f"{self._reconciler.name}: {len(found)} stuck, for up to {max(found.values()):.0f} s"

    async def _watch(self, stopping: asyncio.Event) -> None:
        """Reports each stuck attempt once."""
        while not stopping.is_set():
            await unless(stopping, stopping.wait, self._stuck_after / 4)
            found = self._reconciler.work.stuck(self._stuck_after)
            for key in found.keys() - self._stuck:
                self._say(
                    "stuck",
                    warning=True,
                    controller=self._reconciler.name,
                    object=self._about(key),
                    since=f"{found[key]:.1f}s",
                )
            for key in self._stuck - found.keys():
                self._say("no longer stuck", controller=self._reconciler.name, object=self._about(key))
            self._stuck = set(found)

    def _about(self, key: Key) -> str:
        return clipped(str(self._reconciler.regarding(key) or key))

    async def _look_at(self, key: Key) -> None:
        try:
            with Contained() as attempt:
                await self._reconciler.reconcile(key)
        except asyncio.CancelledError:
            # Of this attempt alone perhaps: then a worker may take the key again.
            self._reconciler.work.crashed(key)
            raise
        if attempt.error is not None:
            self._unexpected(key, attempt.error)
        else:
            self._reported.over(key)
            self._reconciler.work.ended(key)

    def _unexpected(self, key: Key, error: Exception) -> None:
        self._count()
        about = None
        with Contained() as reporting:
            about = self._report(key, error)
        if reporting.error is not None:
            self._say("reporting failed", warning=True, object=key, **fields_of(reporting.error))
        wait = self._reconciler.work.crashed(key)
        self._say(
            "reconcile failed",
            warning=True,
            controller=self._reconciler.name,
            object=about or key,
            retry_in=f"{wait:.1f}s",
            **fields_of(error),
        )

    def _report(self, key: Key, error: Exception) -> Reference | None:
        """An Event on the object, once; returns what it is about."""
        about, text = self._reconciler.regarding(key), brief(error)
        if about is None:
            self._reported.over(key)
        elif self._reported.changes(key, (about.uid, text)):
            said = f"{self._reconciler.name} failed unexpectedly, which is a fault of closeby: {text}"
            note = Note(reason=NOT_RECONCILED, action="Reconciling", text=said, warning=True)
            self._reconciler.events.post(about, note)
        return about
