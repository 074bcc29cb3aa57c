"""Tells in the log of which applications the costs are unknown, each once for as long as the reason stays."""

import asyncio
from collections.abc import Iterable
from typing import Final

from closeby.applications.registry import Applications
from closeby.objects.saying import Say
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import AppGroupChanged, AppGroupDeleted, Event, NetworkEvent
from closeby.scheduling.services import DependencyCost

#: Objects come and go together: their changes are gathered for so long (seconds).
_GATHERED: Final = 1.0


class UnknownCosts:
    """What was told of each application."""

    def __init__(self, engine: Engine, say: Say) -> None:
        self._applications: Applications = engine.applications
        self._plugin = next(iter(engine.profile.dependency_costs), None)
        self._say = say
        self._changed = asyncio.Event()
        #: By key: the sentence that was told last.
        self._told: dict[str, str] = {}

    def took_in(self, events: Iterable[Event]) -> None:
        """The engine has heard of these."""
        if any(isinstance(one, AppGroupChanged | AppGroupDeleted | NetworkEvent) for one in events):
            self._changed.set()

    async def run(self, heard: asyncio.Event) -> None:
        """Tells what changes, from when everything is ``heard`` until it is cancelled."""
        await heard.wait()
        while self._plugin is not None:
            await self._changed.wait()
            await asyncio.sleep(_GATHERED)
            self._changed.clear()
            self._tell(self._plugin)

    def _tell(self, plugin: DependencyCost) -> None:
        told: dict[str, str] = {}
        for application in self._applications:
            for problem in plugin.unknown_costs(application):
                told[application.key] = problem.sentence()
                if self._told.get(application.key) != problem.sentence():
                    self._say(
                        "problem",
                        warning=True,
                        object=problem.object,
                        reason=problem.reason,
                        problem=problem.sentence(),
                    )
            if application.key in self._told and application.key not in told:
                self._say("costs known", object=f"AppGroup/{application.key}")
        self._told = told
