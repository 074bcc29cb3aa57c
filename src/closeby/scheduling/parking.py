"""Decisions that are parked after a number of steps, and go on where they were when their turn comes again.

A decision that may be parked runs on a stack of its own (a greenlet), so that a count deep inside a search
can leave it without the code in between knowing. While it is parked it holds nothing on the cluster. When it
goes on it takes again what it held, if that is still to be had; else it begins again.
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from greenlet import getcurrent, greenlet

from closeby.cluster.columns import Cluster
from closeby.objects.unexpected import Contained
from closeby.scheduling.intake.cures import NOTHING, Stir
from closeby.scheduling.intake.keys import namespace_of
from closeby.scheduling.pace import Outdated, Pace, Suspendable

#: How often a decision about one item begins again because the cluster changed, before it is given up.
RESTARTS: Final = 4

_Result = TypeVar("_Result")


class Progress(NamedTuple, Generic[_Result]):
    """What became of a decision in one turn."""

    #: None: it is parked, or began again too often and is given up.
    result: _Result | None
    #: Steps of this turn, and of the decision so far.
    steps: int
    total: int
    parked: bool = False
    #: What happened while it was parked that may help its item.
    missed: Stir = NOTHING


class _Ended(NamedTuple, Generic[_Result]):
    """How a stack came to its end; neither: it must begin again."""

    result: _Result | None = None
    error: Exception | None = None


class _Parked:
    """A decision that is under way, and what it has done so far."""

    def __init__(self, stack: greenlet, ground: Hashable) -> None:
        self.stack = stack
        #: What it goes by; where that changes it begins again.
        self.ground = ground
        self.steps = 0
        self.holds: list[Suspendable] = []
        self.disturbed = False
        #: Changes of usage and of nodes up to which it knows the cluster; None before it was parked first.
        self.known: tuple[int, int] | None = None
        self.missed = NOTHING


class Parking(Generic[_Result]):
    """Runs decisions, and owns those that are parked, by the key of their item."""

    def __init__(self, pace: Pace, cluster: Cluster) -> None:
        self._pace = pace
        self._cluster = cluster
        self._parked: dict[str, _Parked] = {}
        #: By key: how often the decision in hand began again.
        self._restarts: dict[str, int] = {}
        #: By key: steps of decisions that began again since the last one that came to its end.
        self._lost: dict[str, int] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The items whose decision is parked."""
        return tuple(self._parked)

    def missed(self, stir: Stir) -> None:
        """Something happened that may help items; parked decisions may have looked there before."""
        for parked in self._parked.values():
            parked.missed |= stir

    def abandon(self, key: str) -> None:
        """A decision is not to go on: what it decides about has changed, or is gone."""
        parked = self._parked.pop(key, None)
        if parked is not None:
            self._lose(key, parked)
            self._restarts.pop(key, None)

    def abandon_all(self, namespace: str | None = None) -> None:
        """What all decisions (of one namespace) go by has changed: each begins again."""
        for key in self.keys:
            if namespace is None or namespace_of(key) == namespace:
                self.abandon(key)

    def forget(self, key: str) -> None:
        """The item is gone, or was placed."""
        if self._parked:
            self.abandon(key)
        self._lost.pop(key, None)

    def run(
        self, key: str, decide: Callable[[], _Result], allowance: int | None, ground: Hashable
    ) -> Progress[_Result]:
        """Begin a decision, or go on with it until ``allowance`` more steps are taken (None: to its end).

        Where ``ground`` is not what it was, the decision begins again.
        """
        parked = self._parked.pop(key, None) if self._parked else None
        if parked is not None and parked.ground != ground:
            parked.stack.throw()
        if parked is None and allowance is None:
            self._pace.begin()
            result, steps = decide(), self._pace.steps
            return Progress(result, steps, self._total(key, steps) if self._lost else steps)
        spent = 0
        while True:
            if parked is None:
                parked = _Parked(greenlet(_on_a_stack(decide)), ground)
            before = parked.steps
            ended = self._go_on(parked, None if allowance is None else max(1, allowance - spent))
            spent += parked.steps - before
            if ended is None:
                self._parked[key] = parked
                return Progress(None, spent, parked.steps, parked=True)
            if ended.error is not None:
                self._restarts.pop(key, None)
                raise ended.error
            if ended.result is not None:
                self._restarts.pop(key, None)
                return Progress(ended.result, spent, self._total(key, parked.steps), missed=parked.missed)
            self._lose(key, parked)
            again = self._restarts[key] = self._restarts.get(key, 0) + 1
            if again > RESTARTS:
                del self._restarts[key]
                return Progress(None, spent, self._total(key, 0), missed=parked.missed)
            parked = None

    def _lose(self, key: str, parked: _Parked) -> None:
        """A decision began again: what it has cost counts with the next one."""
        self._lost[key] = self._lost.get(key, 0) + parked.steps
        if not parked.stack.dead:
            parked.stack.throw()

    def _total(self, key: str, steps: int) -> int:
        return steps + self._lost.pop(key, 0)

    def _go_on(self, parked: _Parked, allowance: int | None) -> _Ended[_Result] | None:
        """Run a decision for a while; None when it is parked then."""
        cluster, pace = self._cluster, self._pace
        if parked.stack.dead:
            return _Ended()
        if parked.known is not None:
            parked.disturbed |= _changes(cluster) != parked.known
        pace.steps, pace.holds, pace.disturbed = parked.steps, parked.holds, parked.disturbed
        home = getcurrent()

        def park() -> None:
            for held in reversed(pace.holds):
                held.suspend()
            parked.known = _changes(cluster)
            home.switch(None)
            for held in pace.holds:
                held.resume()

        pace.allow(allowance, park)
        ended: _Ended[_Result] | None = parked.stack.switch()
        pace.allow(None, None)
        parked.steps = pace.steps
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
