"""The queue of work items: gangs and plain pods, in one total order.

The place of an item is fixed when the item is put. Where its priority changes (members come or go), whoever
drives the queue drops the item and puts it again.
"""

import heapq
from collections.abc import Callable, Collection, Hashable
from itertools import count
from typing import Final

from closeby.scheduling.extension import QueuedItem, QueueSort
from closeby.scheduling.intake.cures import ANYTHING, Stir
from closeby.scheduling.intake.keys import namespace_of
from closeby.scheduling.intake.lanes import Lanes
from closeby.scheduling.intake.shapes import Place, Shape
from closeby.scheduling.judging.needs import Need

#: Rest of an item after its first refusal, and at most (seconds); it doubles from refusal to refusal.
FIRST_REST: Final = 1.0
LONGEST_REST: Final = 10.0
#: Seconds that an item rests at least for each step of a decision that left something of it waiting, and at
#: most for the whole decision. A step is about a microsecond, so the rest is about ten times as long.
REST_PER_STEP: Final = 1e-5
LONGEST_REST_BY_COST: Final = 60.0
#: Decisions with fewer steps are cheap: their items rest no longer than others.
CHEAP: Final = 20_000
#: What can be seen in what the nodes have room for. What else happens is not measured against a need.
_SEEN: Final = Stir.ROOM | Stir.MEASURED
#: The same of items that need a place for any of their pods, for which limits by the network count too.
_SEEN_BY_POD: Final = _SEEN | Stir.NETWORK


class WorkQueue:
    """Items that are ready, items that wait for an event, and items that had theirs but rest for a while."""

    def __init__(self, order: QueueSort, lacks: Callable[[Need, str], bool]) -> None:
        """``lacks`` tells of an item whether an attempt is in vain now, since what it needs is not there."""
        self._order = order
        self._lacks = lacks
        #: item key -> its fixed place in the order, until the item is gone. Those whose start was begun go
        #: before all others, then comes the QueueSort's key.
        self._places: dict[str, Place] = {}
        self._priorities: dict[str, int] = {}
        #: item key -> whether its start was begun, as it was when the item got its place.
        self._begun: dict[str, bool] = {}
        #: The ready items in their order; may hold some that are no longer ready.
        self._lanes = Lanes()
        #: Ready items whose decision is parked.
        self._interrupted: set[str] = set()
        self._ready: set[str] = set()
        self._shapes: dict[Hashable, Shape] = {}
        #: item key -> its shape, in the order in which they began to wait.
        self._waiting: dict[str, Shape] = {}
        #: item key -> the shape for which it is tried.
        self._trying: dict[str, Shape] = {}
        #: Heap of (end of rest, a number that breaks ties, shape): may hold some that are no longer due.
        self._resting: list[tuple[float, int, Shape]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def waiting(self) -> tuple[str, ...]:
        """Keys of the items that wait for an event, in the order they began to wait."""
        return tuple(self._waiting)

    @property
    def next_due(self) -> float | None:
        """When the first item that rests becomes ready; None when none rests."""
        while self._resting and not self._resting[0][2].due:
            heapq.heappop(self._resting)
        return self._resting[0][0] if self._resting else None

    @property
    def resting(self) -> tuple[str, ...]:
        """Keys of the items that something may have helped, but which rest still."""
        return tuple(key for key, shape in self._waiting.items() if shape.due)

    def knows(self, key: str) -> bool:
        """Whether the item already has its place in the order."""
        return key in self._places

    def place(self, key: str) -> Place:
        """Where a known item stands in the order."""
        return self._places[key]

    def priority(self, key: str) -> int:
        """A known item's priority, as it was when the item got its place."""
        return self._priorities[key]

    def stands(self, item: QueuedItem) -> bool:
        """Whether a known item has the place that belongs to its priority."""
        key = item.key
        return self._priorities[key] == item.priority and self._begun[key] == item.begun

    def put(self, item: QueuedItem, now: float | None = None) -> None:
        """Make an item ready, unless it rests from a long search.

        Its place is computed when it first appears.
        """
        if item.key not in self._places:
            self._places[item.key] = (not item.begun, *self._order.sort_key(item))
            self._priorities[item.key] = item.priority
            self._begun[item.key] = item.begun
        self._renew(item.key, now)

    def wake(self, key: str) -> None:
        """Make a known item ready again."""
        shape = self._waiting.pop(key, None)
        if shape is not None:
            shape.remove(self._places[key], key)
            self._forget_if_empty(shape)
        self._end_trial(key)
        self._make_ready(key)

    def stir(self, stir: Stir, now: float | None) -> None:
        """Make ready what this may help; what still rests becomes so when its rest is over."""
        for shape in list(self._shapes.values()):
            self._stir_one(shape, stir, now)

    def stir_item(self, key: str, stir: Stir, now: float | None) -> None:
        """The same for the shape of one item that waits."""
        self._stir_one(self._waiting[key], stir, now)

    def stir_in(self, namespaces: Collection[str], stir: Stir, now: float | None) -> None:
        """The same for items of these namespaces. What they lack together with others is not helped by it."""
        own = [key for key, shape in self._waiting.items() if shape.key == key]
        for key in own:
            if namespace_of(key) in namespaces and key in self._waiting:
                self._stir_one(self._waiting[key], stir, now)

    def rise(self, now: float) -> None:
        """Make ready what has rested long enough."""
        while self._resting and self._resting[0][0] <= now:
            _, _, shape = heapq.heappop(self._resting)
            if shape.due:
                self._rouse(shape)

    def pop(self) -> str | None:
        """Take the first ready item; None when there is none."""
        while (entry := self._lanes.pop()) is not None:
            place, key = entry
            # An item that was dropped and came again has a new place; the old one counts no more.
            if key not in self._ready or self._places[key] != place:
                continue
            self._ready.remove(key)
            shape = self._trying.get(key)
            if key in self._interrupted or shape is None or not self._in_vain(shape):
                self._interrupted.discard(key)
                return key
            # What was tried before took the room: there is nothing to decide.
            del self._trying[key]
            shape.tried = None
            self._rejoin(shape, key)
        self._lanes.settle()
        return None

    def charge(self, key: str, steps: int, allowance: int, *, in_vain: bool) -> None:
        """A decision about an item took so many steps of the allowance of a turn."""
        self._lanes.charge(key, steps, allowance, in_vain=in_vain)

    def interrupted(self, key: str) -> bool:
        """Whether the decision about a ready item is to go on."""
        return key in self._interrupted

    def interrupt(self, key: str) -> None:
        """The decision about an item was parked: it keeps its place, and is ready to go on."""
        self._interrupted.add(key)
        self._make_ready(key)

    def park(
        self,
        key: str,
        cure: Stir = ANYTHING,
        now: float | None = None,
        need: Need | None = None,
        steps: int = 0,
    ) -> None:
        """The item was refused at ``now``, after so many steps: it waits for an event that may help it."""
        shape_key = self._shape_key(key, cure, need)
        shape = self._shapes.get(shape_key)
        again = self._trying.get(key)
        if shape is None:
            shape = self._shapes[shape_key] = Shape(shape_key, need, cure)
        elif shape_key == key:
            # What it lacked before, it may not lack any more: only those that share a shape lack the same.
            shape.need, shape.cure = need, cure
        if now is not None and (not shape or shape is again):
            # A rest that would be longer than the longest needs no exact power of two.
            rest = min(FIRST_REST * 2.0 ** min(shape.refusals, 16), LONGEST_REST)
            shape.refusals += 1
            shape.exhausted_until = now + min(steps * REST_PER_STEP, LONGEST_REST_BY_COST) * (steps >= CHEAP)
            shape.rests_until = max(now + rest, shape.exhausted_until)
        self._rejoin(shape, key)
        self._end_trial(key)

    def drop(self, key: str) -> None:
        """The item is gone (placed, or deleted)."""
        shape = self._waiting.pop(key, None)
        if shape is not None:
            shape.remove(self._places[key], key)
            self._forget_if_empty(shape)
        self._places.pop(key, None)
        self._priorities.pop(key, None)
        self._begun.pop(key, None)
        self._ready.discard(key)
        self._interrupted.discard(key)
        self._end_trial(key)

    def validate(self, settled: bool) -> None:
        """Assert every invariant; ``settled``: since the last tick nothing happened that may help anybody."""
        for key, shape in self._waiting.items():
            assert key in self._places and key not in self._ready, f"{key} waits and is ready"
            assert self._shapes.get(shape.key) is shape, f"{key} waits in a shape that is not kept"
        for shape in self._shapes.values():
            shape.validate()
            assert all(self._waiting.get(key) is shape for key in shape), "an item is in two shapes"
            assert shape.tried is None or self._trying.get(shape.tried) is shape, "two are tried at once"
            lacks = shape.key in self._waiting or not shape.cure or self._in_vain(shape)
            assert lacks or not settled or shape.due or shape.tried, f"{tuple(shape)} wait, but there is room"
        assert sum(sum(1 for _ in shape) for shape in self._shapes.values()) == len(self._waiting)
        assert self._trying.keys() <= self._ready, "an item is tried, but not ready"
        assert self._interrupted <= self._ready, "a decision is parked, but its item is not ready"
        entries = set(self._lanes)
        assert all((self._places[key], key) in entries for key in self._ready), "a ready item is in no lane"

    # Inside

    def _renew(self, key: str, now: float | None) -> None:
        """There is news of the item itself: only the rest from a long search is not cut short by that."""
        shape = self._waiting.get(key)
        if shape is not None and now is not None and shape.exhausted_until > now:
            shape.all_due = True
            self._rest(shape)
            return
        self._interrupted.discard(key)
        self.wake(key)

    def _stir_one(self, shape: Shape, stir: Stir, now: float | None) -> None:
        if not shape.cure & stir:
            return
        by_pod = shape.need is not None and shape.need.some
        if stir & ~(_SEEN_BY_POD if by_pod else _SEEN):
            shape.all_due = True
        elif shape.due or shape.tried is not None or self._in_vain(shape):
            return
        if now is None or shape.rests_until <= now:
            self._rouse(shape)
        else:
            self._rest(shape)

    def _rest(self, shape: Shape) -> None:
        """It is tried when its rest is over."""
        if not shape.due:
            shape.due = True
            heapq.heappush(self._resting, (shape.rests_until, next(self._numbers), shape))

    def _shape_key(self, key: str, cure: Stir, need: Need | None) -> Hashable:
        """Items share a shape where one lack keeps all of them out, or where nothing can help them."""
        if not cure:
            return cure
        if need is None or need.key is None or not self._lacks(need, key):
            return key
        # Of one priority, since a reservation bars all that come after some item of one.
        return need.key, cure, self._priorities[key]

    def _in_vain(self, shape: Shape) -> bool:
        first = shape.tried or shape.first()
        return shape.need is not None and first is not None and self._lacks(shape.need, first)

    def _make_ready(self, key: str) -> None:
        if key not in self._ready:
            self._ready.add(key)
            self._lanes.push(self._places[key], key)

    def _rouse(self, shape: Shape) -> None:
        """Try a shape's first item, or everyone if that is due."""
        everyone = shape.all_due
        shape.due = shape.all_due = False
        if everyone:
            for key in (*shape, *(() if shape.tried is None else (shape.tried,))):
                self.wake(key)
        elif shape.tried is None:
            self._try_first(shape)

    def _try_first(self, shape: Shape) -> None:
        key = shape.first()
        if key is not None:
            shape.remove(self._places[key], key)
            del self._waiting[key]
            shape.tried = key
            self._trying[key] = shape
            self._make_ready(key)

    def _rejoin(self, shape: Shape, key: str) -> None:
        self._waiting[key] = shape
        shape.add(self._places[key], key)

    def _end_trial(self, key: str) -> None:
        """An item that was tried for its shape was decided, or is gone: if there is room, the next is."""
        shape = self._trying.pop(key, None)
        if shape is None:
            return
        shape.tried = None
        if key not in self._waiting or self._waiting[key] is not shape:
            shape.refusals = 0
            shape.rests_until = shape.exhausted_until = 0.0
            if not self._in_vain(shape):
                self._try_first(shape)
        self._forget_if_empty(shape)

    def _forget_if_empty(self, shape: Shape) -> None:
        if not shape:
            shape.due = shape.all_due = False
            self._shapes.pop(shape.key, None)
