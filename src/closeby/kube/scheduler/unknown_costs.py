"""Tells in the log of which applications the costs are unknown, each once for as long as the reason stays."""

import asyncio
from collections.abc import Iterable
from typing import Final, get_args

from closeby.applications.registry import Applications
from closeby.objects.process import Reported, Say
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import AppGroupChanged, AppGroupDeleted, Event, NetworkEvent
from closeby.scheduling.services import DependencyCost

#: Objects come and go together: their changes are gathered for so long (seconds).
_GATHERED: Final = 1.0
#: Events after which other costs may be known.
_ABOUT_COSTS: Final = get_args(AppGroupChanged | AppGroupDeleted | NetworkEvent)


class UnknownCosts:
    """What was logged last of each application."""

    def __init__(self, engine: Engine, say: Say) -> None:
        self._applications: Applications = engine.applications
        self._plugin = next(iter(engine.profile.dependency_costs), None)
        self._say = say
        self._changed = asyncio.Event()
        #: By key: what is not known.
        self._reported: Reported[str] = Reported()

    def took_in(self, events: Iterable[Event]) -> None:
        """The engine has taken in these."""
        if any(isinstance(one, _ABOUT_COSTS) for one in events):
            self._changed.set()

    async def run(self, listed: asyncio.Event) -> None:
        """Logs what changes, from when everything is ``listed`` until it is cancelled."""
        await listed.wait()
        while self._plugin is not None:
            await self._changed.wait()
            await asyncio.sleep(_GATHERED)
            self._changed.clear()
            self._report(self._plugin)

    def _report(self, plugin: DependencyCost) -> None:
        gone = {*self._reported}
        for application in self._applications:
            key, problems = application.key, tuple(plugin.unknown_costs(application))
            gone.discard(key)
            if not problems:
                if self._reported.over(key):
                    self._say("costs known", object=f"AppGroup/{key}")
            elif self._reported.changes(key, tuple(one.sentence() for one in problems)):
                for one in problems:
                    self._say(
                        "problem",
                        warning=True,
                        object=one.object,
                        reason=one.reason,
                        problem=one.sentence(),
                    )
        for key in gone:
            self._reported.over(key)
