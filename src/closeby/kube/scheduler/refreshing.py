"""Keeps what plugins decide by fresh: reads their sources again and again, beside the event loop.

The engine takes it in between two rounds; no decision waits for a source but the first. While a source does
not answer the last good measurements are used until they are too old. Each turn for better or worse is logged
once, and those that change decisions are Events.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from closeby.kube.client.waiting import Backoff, RequestPace, in_thread
from closeby.kube.scheduler.measurement_events import MeasurementEvents
from closeby.measurements.ageing import Known, State
from closeby.objects.process import Contained, Say, fields_of
from closeby.scheduling.events import MeasurementsChanged
from closeby.scheduling.services import Measured, Measurements, Reading, Source

#: Seconds that the first decisions wait for sources that do not answer.
FIRST_WAIT: Final = 10.0
#: The wait after a failure grows from half of the usual one to this many times it.
_LONGEST: Final = 4.0
#: What is logged when the state becomes this, and whether it is a warning.
_TURNS: Final = {
    State.GOOD: ("measurements", False),
    State.STALE: ("measurements get old", True),
    State.GONE: ("no measurements", True),
}


class Refreshing:
    """All sources of one engine's plugins."""

    def __init__(
        self,
        plugins: Iterable[Measured],
        say: Say,
        news: Callable[[], None],
        events: MeasurementEvents | None = None,
    ) -> None:
        """``news`` is called when there is something to take; ``events`` reports losses."""
        self._say = say
        self._events = events
        self._news = news
        #: What is known, by plugin.
        self.known = {plugin: Known(source) for plugin in plugins if (source := plugin.source) is not None}
        self._untaken: dict[str, Measurements] = {}
        self._waits = bool(self.known)

    @property
    def begun(self) -> bool:
        """Whether each source has had its chance to answer."""
        return not self._waits

    def take(self) -> list[MeasurementsChanged]:
        """What is known now, of the plugins for which it is something else than at the last call."""
        taken, self._untaken = self._untaken, {}
        return [MeasurementsChanged(name, measurements) for name, measurements in taken.items()]

    async def run(self) -> None:
        """Reads until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for plugin, known in self.known.items():
                for warning in known.source.warnings:
                    self._say("insecure measurements", warning=True, source=known.source.name, why=warning)
                tasks.create_task(self._follow(plugin, known))
                tasks.create_task(self._age(plugin, known))
            tasks.create_task(self._begin())

    async def _begin(self) -> None:
        """The first decisions wait so long."""
        await asyncio.sleep(FIRST_WAIT)
        if self._waits:
            self._waits = False
            self._news()

    async def _follow(self, plugin: Measured, known: Known) -> None:
        every = known.source.every
        backoff = Backoff(RequestPace(every / 2, every * _LONGEST))
        while True:
            answer = await self._read(known.source)
            before = known.state
            self._tell(plugin, before, known.take(answer))
            if known.state is State.GOOD:
                backoff.reset()
            await asyncio.sleep(every if known.state is State.GOOD else backoff.next())

    async def _read(self, source: Source) -> Reading | str:
        """What a source answers; a faulty one, perhaps of a third party, is one that does not."""
        with Contained() as reading:
            return await in_thread(f"reading {source.name}", source.read)
        if reading.error is not None:
            fields = fields_of(reading.error)
            self._say("reading failed unexpectedly", warning=True, source=source.name, **fields)
        return f"reading {source.name} failed unexpectedly"

    async def _age(self, plugin: Measured, known: Known) -> None:
        """Drops what is too old, however long the source takes to answer."""
        while True:
            age = known.age
            left = known.source.every if age is None else known.source.max_age - age
            await asyncio.sleep(min(max(left, 0.01), known.source.every))
            before = known.state
            now = known.now()
            if known.state is not before:
                self._tell(plugin, before, now)

    def _tell(self, plugin: Measured, before: State, now: Measurements) -> None:
        known = self.known[plugin]
        self._untaken[plugin.name] = now
        self._waits = any(one.state is State.UNREAD for one in self.known.values()) and self._waits
        self._news()
        if known.state is before:
            return
        message, warning = _TURNS[known.state]
        age = now.age if known.state is State.STALE else None
        self._say(
            message,
            warning=warning,
            plugin=plugin.name,
            source=known.source.name,
            age=None if age is None else f"{age:.0f}s",
            error=now.trouble or None,
            instead=known.source.fallback if known.state is State.GONE else None,
        )
        if self._events is not None and known.state is State.GONE:
            self._events.lost(plugin.name, f"{now.trouble}; {known.source.fallback}")
        elif self._events is not None and known.state is State.GOOD:
            self._events.back(plugin.name, known.source.name)
