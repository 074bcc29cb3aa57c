"""Long searches are suspended after a number of steps and resumed when it is their turn again.

A decision that may be suspended runs on a stack of its own (a greenlet), so that a counter deep inside a
search can leave it without the code in between. A suspended search holds nothing on the cluster. When it
resumes, it takes again what it held; if that is no longer free, it starts over.
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet

from closeby.cluster.columns import Cluster
from closeby.objects.process import Contained
from closeby.scheduling.intake.cluster_events import NO_EVENT, ClusterEvent
from closeby.scheduling.outcomes import namespace_of
from closeby.scheduling.pace import Outdated, Pace, Suspendable

#: How often a decision about one item starts over because the cluster changed, before it is given up.
RESTARTS: Final = 4

_Result = TypeVar("_Result")


class SearchProgress(NamedTuple, Generic[_Result]):
    """The result of one turn of a decision."""

    #: None: it is suspended, or it started over too often and was given up.
    result: _Result | None
    #: Steps of this turn, and of the decision so far.
    steps: int
    total: int
    suspended: bool = False
    #: Cluster events during the suspension that may help its item.
    missed: ClusterEvent = NO_EVENT


class _Ended(NamedTuple, Generic[_Result]):
    """How a stack ended; with neither a result nor an error it must start over."""

    result: _Result | None = None
    error: Exception | None = None


class _Search:
    """A decision in progress, and what it has done so far."""

    def __init__(self, stack: greenlet, ground: Hashable) -> None:
        self.stack = stack
        #: What it depends on; when that changes, it starts over.
        self.ground = ground
        self.steps = 0
        self.holds: list[Suspendable] = []
        self.disturbed = False
        #: Version of usage and nodes that it knows; None before the first suspension.
        self.known: tuple[int, int] | None = None
        self.missed = NO_EVENT


class Suspensions(Generic[_Result]):
    """Runs decisions, and owns the suspended ones by the key of their item."""

    def __init__(self, pace: Pace, cluster: Cluster) -> None:
        self._pace = pace
        self._cluster = cluster
        self._searches: dict[str, _Search] = {}
        #: By key: how often the present decision started over.
        self._restarts: dict[str, int] = {}
        #: By key: steps of decisions that started over since the last one that ended.
        self._lost: dict[str, int] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The items whose decision is suspended."""
        return tuple(self._searches)

    def note_event(self, event: ClusterEvent) -> None:
        """An event may help items; suspended searches may have looked there before it."""
        for search in self._searches.values():
            search.missed |= event

    def cancel(self, key: str) -> None:
        """Do not resume a decision: its item has changed, or is gone."""
        search = self._searches.pop(key, None)
        if search is not None:
            self._lose(key, search)
            self._restarts.pop(key, None)

    def cancel_all(self, namespace: str | None = None) -> None:
        """What all decisions (of one namespace) depend on has changed: each starts over."""
        for key in self.keys:
            if namespace is None or namespace_of(key) == namespace:
                self.cancel(key)

    def forget(self, key: str) -> None:
        """The item is gone, or was placed."""
        if self._searches:
            self.cancel(key)
        self._lost.pop(key, None)

    def run(
        self, key: str, decide: Callable[[], _Result], allowance: int | None, ground: Hashable
    ) -> SearchProgress[_Result]:
        """Start or resume a decision, for at most ``allowance`` steps (None: to its end).

        If ``ground`` has changed, the decision starts over.
        """
        search = self._searches.pop(key, None) if self._searches else None
        if search is not None and search.ground != ground:
            search.stack.throw()
        if search is None and allowance is None:
            self._pace.begin()
            result, steps = decide(), self._pace.steps
            self._pace.end()
            return SearchProgress(result, steps, self._total(key, steps) if self._lost else steps)
        spent = 0
        while True:
            if search is None:
                search = _Search(greenlet(_on_a_stack(decide)), ground)
            before = search.steps
            ended = self._go_on(search, None if allowance is None else max(1, allowance - spent))
            spent += search.steps - before
            if ended is None:
                self._searches[key] = search
                return SearchProgress(None, spent, search.steps, suspended=True)
            self._pace.end()
            if ended.error is not None:
                self._restarts.pop(key, None)
                raise ended.error
            if ended.result is not None:
                self._restarts.pop(key, None)
                return SearchProgress(
                    ended.result, spent, self._total(key, search.steps), missed=search.missed
                )
            self._lose(key, search)
            again = self._restarts[key] = self._restarts.get(key, 0) + 1
            if again > RESTARTS:
                del self._restarts[key]
                return SearchProgress(None, spent, self._total(key, 0), missed=search.missed)
            search = None

    def _lose(self, key: str, search: _Search) -> None:
        """A decision starts over: its cost counts with the next one."""
        self._lost[key] = self._lost.get(key, 0) + search.steps
        if not search.stack.dead:
            search.stack.throw()

    def _total(self, key: str, steps: int) -> int:
        return steps + self._lost.pop(key, 0)

    def _go_on(self, search: _Search, allowance: int | None) -> _Ended[_Result] | None:
        """Run a decision for a while; None if it is suspended then."""
        cluster, pace = self._cluster, self._pace
        if search.stack.dead:
            return _Ended()
        if search.known is not None:
            search.disturbed |= _changes(cluster) != search.known
        pace.steps, pace.holds, pace.disturbed = search.steps, search.holds, search.disturbed
        home = getcurrent()

        def suspend() -> None:
            for held in reversed(pace.holds):
                held.suspend()
            search.known = _changes(cluster)
            home.switch(None)
            for held in pace.holds:
                held.resume()

        pace.allow(allowance, suspend)
        ended: _Ended[_Result] | None = search.stack.switch()
        pace.allow(None, None)
        search.steps = pace.steps
        return ended


def _changes(cluster: Cluster) -> tuple[int, int]:
    return cluster.usage_changes.cursor, cluster.node_changes.cursor


def _on_a_stack(decide: Callable[[], _Result]) -> Callable[[], _Ended[_Result]]:
    def run() -> _Ended[_Result]:
        try:
            with Contained() as deciding:
                return _Ended(result=decide())
        except Outdated:
            return _Ended()
        return _Ended(error=deciding.error)  # It is raised where the decision was asked for.

    return run
