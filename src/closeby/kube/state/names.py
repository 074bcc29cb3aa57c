"""One name, several objects: gangs, topologies and applications of all dialects share a space of names each,
because a reference to one does not say the dialect.
"""

from collections.abc import Callable, Iterator
from typing import Final

from closeby.kube.watch.resources import WATCHED, Resource
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.events import Event

#: Dialects by precedence: of two objects with one name the earlier one counts.
_PRECEDENCE: Final = {(one.group, one.kind): place for place, one in enumerate(WATCHED)}
#: What is read from node labels gives way to every object.
_LAST: Final = len(WATCHED)


class SharedNames:
    """What is said under each name, by whom; tells the engine only what counts, and only when it changed."""

    def __init__(self, removed: Callable[[str], Event]) -> None:
        """``removed`` makes the event for a name that nothing bears any more."""
        self._removed = removed
        self._said: dict[str, dict[Resource | None, Event]] = {}
        self._told: dict[str, Event] = {}
        self._touched: dict[str, None] = {}

    def put(self, name: str, source: Resource | None, event: Event) -> None:
        """``source`` (None: the node labels) now says ``event`` under this name."""
        self._said.setdefault(name, {})[source] = event
        self._touched[name] = None

    def drop(self, name: str, source: Resource | None) -> None:
        """``source`` says nothing under this name any more; unknown names are fine."""
        said = self._said.get(name, {})
        if said.pop(source, None) is not None:
            self._touched[name] = None
        if not said:
            self._said.pop(name, None)

    def sources(self, name: str) -> tuple[Resource | None, ...]:
        """Who says something under this name; the first one counts."""
        return tuple(sorted(self._said.get(name, ()), key=_precedence))

    def news(self) -> Iterator[Event]:
        """What is different since the last call, for the engine."""
        for name in self._touched:
            sources = self.sources(name)
            event = self._said[name][sources[0]] if sources else None
            if event == self._told.get(name):
                continue
            if event is None:
                del self._told[name]
                yield self._removed(name)
            else:
                self._told[name] = event
                yield event
        self._touched.clear()


def clash(resource: Resource, key: str, sources: tuple[Resource | None, ...]) -> Iterator[Condition]:
    """Says so when objects of several dialects bear one name."""
    others = [one for one in sources if one is not None]
    if len({(one.group, one.kind) for one in others}) > 1:
        yield Condition(
            reason=Reason.INVALID_SPEC,
            object=f"{resource.kind}/{key}",
            message=f"the name is borne by {' and by '.join(one.api_version for one in others)}",
            remedy=f"that of {others[0].api_version} counts; delete or rename the others",
        )


def _precedence(source: Resource | None) -> tuple[int, str]:
    if source is None:
        return _LAST, ""
    return _PRECEDENCE.get((source.group, source.kind), _LAST), source.version
