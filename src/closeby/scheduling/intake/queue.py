"""The scheduling queue: the owner of which items wait (gangs, applications, plain pods), and in which part.

An item is active, unschedulable or in backoff. Its sort key is fixed when it is added. When its priority
changes (members come or go), the caller deletes the item and adds it again.

Unschedulable items that need the same form an equivalence class. After an event only the first item of a
class is tried, and the next one as long as there is room. So the cost of a tick grows with the number of
classes, not of items.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from closeby.scheduling.extension import QueuedItem, QueueSort
from closeby.scheduling.intake.active_queue import ActiveQueue, Entry, SortKey
from closeby.scheduling.intake.cluster_events import ANY_EVENT, NO_EVENT, ClusterEvent, PreemptionHint
from closeby.scheduling.judging.needs import Need
from closeby.scheduling.outcomes import namespace_of

#: Backoff of an item after its first refusal, and at most (seconds); it doubles with each refusal.
INITIAL_BACKOFF: Final = 1.0
MAX_BACKOFF: Final = 10.0
#: Least backoff, in seconds, for each step of a decision that left something of the item waiting, and the
#: most for one decision. A step is about a microsecond, so that is about ten times as long as the decision.
BACKOFF_PER_STEP: Final = 1e-5
MAX_BACKOFF_BY_COST: Final = 60.0
#: Decisions with fewer steps are cheap: their items back off no longer than others.
CHEAP_STEPS: Final = 20_000
#: Events whose effect shows in the room of the nodes, so that it can be compared with what an item needs.
_SEEN: Final = (
    ClusterEvent.CAPACITY
    | ClusterEvent.PLACED
    | ClusterEvent.SELECTION
    | ClusterEvent.MEASUREMENT
    | ClusterEvent.NETWORK
)
#: The scope of an event that may help all items; else it is the key of an item, or a namespace with a ``/``.
EVERYWHERE: Final = ""


class _Class:
    """Unschedulable items with the same need. An item whose need is unknown is alone in its class."""

    __slots__ = (
        "backoff_until",
        "cost_backoff_until",
        "hints",
        "in_backoff",
        "items",
        "key",
        "may_preempt",
        "need",
        "refusals",
        "retry_all",
        "trying",
    )

    def __init__(self, key: Hashable, need: Need | None, hints: ClusterEvent) -> None:
        self.key = key
        self.need = need
        #: The events that may help them.
        self.hints = hints
        #: The items that are not being tried, in order.
        self.items: list[Entry] = []
        #: The one that is being tried.
        self.trying: str | None = None
        #: Refusals in a row, and the end of the backoff.
        self.refusals = 0
        self.backoff_until = 0.0
        #: The end of the backoff after a long search, which no event shortens.
        self.cost_backoff_until = 0.0
        #: Their event came: the first item, or all of them, are tried when the backoff ends.
        self.in_backoff = False
        self.retry_all = False
        #: The first item is tried also while what it needs is not free: it may find victims now.
        self.may_preempt = False

    @property
    def keys(self) -> Iterator[str]:
        """Of the items that are not being tried, in order."""
        return (key for _, key in self.items)

    @property
    def first(self) -> str | None:
        """The first item that is not being tried."""
        return self.items[0][1] if self.items else None

    def shows(self, event: ClusterEvent) -> bool:
        """Whether the effect of an event shows in the room of the nodes, which is compared with the need."""
        # What pods need beside each other was worked out with the namespaces as they were.
        by_namespaces = self.need is not None and not self.need.some and self.need.by_namespaces
        return not event & ~(_SEEN & ~ClusterEvent.SELECTION if by_namespaces else _SEEN)

    def refused(self, now: float, steps: int) -> None:
        """An item of the class was refused, after so many steps: all of them back off from now on."""
        # The exponent is bounded, so that many refusals overflow nothing.
        backoff = min(INITIAL_BACKOFF * 2.0 ** min(self.refusals, 16), MAX_BACKOFF)
        self.refusals += 1
        by_cost = min(steps * BACKOFF_PER_STEP, MAX_BACKOFF_BY_COST) if steps >= CHEAP_STEPS else 0.0
        self.cost_backoff_until = now + by_cost
        self.backoff_until = max(now + backoff, self.cost_backoff_until)

    def remove(self, place: SortKey, key: str) -> None:
        """Remove an item."""
        del self.items[bisect_left(self.items, (place, key))]


class _Item(Struct, gc=False):
    """An item of the queue."""

    #: Items with a written plan come first, then the QueueSort decides.
    place: SortKey
    priority: int
    #: Whether a plan was written for its start.
    begun: bool
    active: bool = False
    #: The class in which it is unschedulable; of an active one (or the one being decided) that for which it
    #: is tried.
    of: _Class | None = None


class SchedulingQueue:
    """Active items, unschedulable items that wait for an event, and items whose event came during backoff."""

    def __init__(
        self,
        order: QueueSort,
        lacks: Callable[[Need, str], bool],
        not_kept_off: Callable[[Need, Iterable[str]], str | None],
    ) -> None:
        """``lacks`` tells whether an attempt at an item must fail now, since what it needs is not free.

        ``not_kept_off``: of items with one need, the first that does not lack it, be it after one that does.
        """
        self._order = order
        self._lacks = lacks
        self._not_kept_off = not_kept_off
        self._items: dict[str, _Item] = {}
        #: The active items in order; may also hold some that are no longer active.
        self._active = ActiveQueue()
        self._classes: dict[Hashable, _Class] = {}
        #: Items that changed since the last tick, in order.
        self._changed: dict[str, None] = {}
        #: Cluster events since the last tick, by their scope.
        self._events: dict[str, ClusterEvent] = {}
        #: Classes that items left which were deleted, or are tried for themselves.
        self._left: dict[_Class, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._items

    @property
    def unschedulable(self) -> tuple[str, ...]:
        """Keys of the items that wait for an event, or back off, in the order in which they were added."""
        return tuple(key for key, item in self._items.items() if item.of is not None and not item.active)

    @property
    def backing_off(self) -> tuple[str, ...]:
        """Keys of the unschedulable items whose event came, and which back off until they are tried."""
        return tuple(key for one in self._classes.values() if one.in_backoff for key in one.keys)

    @property
    def next_backoff_end(self) -> float | None:
        """When the first item in backoff becomes active; None when none is in backoff."""
        return min((one.backoff_until for one in self._classes.values() if one.in_backoff), default=None)

    def place(self, key: str) -> SortKey:
        """The sort key of an item in the queue."""
        return self._items[key].place

    def priority(self, key: str) -> int:
        """The priority of an item in the queue, when it was added."""
        return self._items[key].priority

    # What happens

    def note_changed(self, key: str) -> None:
        """An item changed: it is queued at the next tick, when all events are known."""
        self._changed[key] = None

    def note(self, event: ClusterEvent, scope: str = EVERYWHERE) -> None:
        """An event may help all items, or those of a scope: at the next tick they are queued."""
        self._events[scope] = self._events.get(scope, NO_EVENT) | event

    def take_changed(self) -> list[str]:
        """The items that changed since the last tick."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def begin(self, now: float | None, hint: PreemptionHint | None) -> None:
        """A tick begins: move what backed off long enough, and what the events since the last one may help.

        ``now``: None where nothing backs off. ``hint``: which items may find victims now, also where the
        events free too little for them.
        """
        for of in [one for one in self._classes.values() if one.in_backoff]:
            if of.in_backoff and (now is None or of.backoff_until <= now):
                self._retry(of)
        events, self._events = self._events, {}
        left, self._left = self._left, {}
        for scope, event in events.items():
            self.move(event, now, scope, None if scope else hint)
        for of in left:
            # Of items that must keep off reserved nodes only so many are asked.
            if self._classes.get(of.key) is of:
                self._move(of, ClusterEvent.CAPACITY, now)

    def move_helped_by_placed(self, now: float | None) -> bool:
        """Move what may have to be near what was placed in this tick; False if nothing was placed."""
        events = self._events.get(EVERYWHERE, NO_EVENT)
        if not events & ClusterEvent.PLACED:
            return False
        self._events[EVERYWHERE] = events & ~ClusterEvent.PLACED
        self.move(ClusterEvent.PLACED, now)
        return True

    def move(
        self,
        event: ClusterEvent,
        now: float | None,
        scope: str = EVERYWHERE,
        hint: PreemptionHint | None = None,
    ) -> None:
        """Move the items that an event may help: to the active ones, or into backoff until that ends."""
        for of in self._in_scope(scope):
            self._move(of, event, now, hint)

    def move_helped(
        self, helped: Callable[[Iterable[str]], bool], event: ClusterEvent, now: float | None
    ) -> None:
        """The same for each equivalence class of which the event has ``helped`` an item; it is asked once."""
        for of in list(self._classes.values()):
            if helped(of.keys):
                self._move(of, event, now)

    # Items come and go

    def add(self, item: QueuedItem, now: float | None = None, late: float = 0.0) -> None:
        """Make an item active. Its sort key is computed when it is new; then it backs off first for ``late``.

        One that is known has changed, which ends every backoff but the one after a long search.
        """
        key, known = item.key, self._items.get(item.key)
        if known is None:
            place = (not item.begun, *self._order.sort_key(item))
            known = self._items[key] = _Item(place, item.priority, item.begun)
            if late and now is not None:
                of = self._class(key, None, ANY_EVENT)
                # A change of the item itself does not end this backoff either: its pods come one by one.
                of.backoff_until = of.cost_backoff_until = now + late
                self._join(of, key)
        of_known = known.of
        if of_known is None or known.active or now is None or of_known.cost_backoff_until <= now:
            self._activate(key)
        else:
            of_known.in_backoff = of_known.retry_all = True

    def is_in_place(self, item: QueuedItem) -> bool:
        """Whether the sort key of an item in the queue is still right for its priority."""
        known = self._items[item.key]
        return known.priority == item.priority and known.begun == item.begun

    def pop(self) -> str | None:
        """Take the first active item; None when there is none."""
        while (entry := self._active.pop()) is not None:
            place, key = entry
            item = self._items.get(key)
            # An item that was deleted and added again has a new sort key; the old entry is void.
            if item is None or not item.active or item.place != place:
                continue
            item.active = False
            of = item.of
            if of is None or of.may_preempt or not self._infeasible(of):
                return key
            # The item before it took the room: there is nothing to decide.
            of.trying = None
            self._join(of, key)
            if not self._infeasible(of):
                self._try_next(of)  # One that may use nodes which are kept from this one.
        return None

    def charge(self, key: str, steps: int, *, placed: bool) -> None:
        """A decision about an item took so many steps, and ``placed`` something."""
        self._active.charge(key, steps, placed=placed)

    def add_unschedulable(
        self,
        key: str,
        hints: ClusterEvent,
        now: float | None,
        need: Need | None,
        steps: int,
        *,
        preempts: bool,
    ) -> None:
        """The item was refused at ``now``, after so many steps. It waits for an event among its ``hints``.

        ``preempts``: it found victims; others that need the same may find some too.
        """
        again = self._items[key].of
        of = self._class(self._class_key(key, hints, need), need, hints)
        if of.key == key:
            # Its need may have changed. Only the items of a shared class are known to need the same.
            of.need, of.hints = need, hints
        if now is not None and (of is again or not (of.items or of.trying)):
            of.refused(now, steps)
        self._join(of, key)
        if again is not None:
            found_victims = again.may_preempt and preempts
            again.may_preempt = False
            self._end_trial(again, key, stays=of is again)
            for other in tuple(again.keys) if found_victims else ():
                if other != key:
                    self._activate(other)

    def add_like(self, key: str, other: str) -> bool:
        """The item was refused like another one, since when nothing has changed: it waits for the same.

        False, and nothing was done, where they can't share their class.
        """
        item, like = self._items[key], self._items.get(other)
        if item.of is not None or like is None or like.active or item.priority != like.priority:
            return False
        if like.of is None or like.of.key == other:
            return False
        self._join(like.of, key)
        return True

    def divide(self, need_now: Callable[[str], Need | None], now: float | None) -> None:
        """Items that needed the same may differ from now on: sort them into classes by what they need now.

        One whose need is not known any more (None) is tried at the next event that may help it.
        """
        for before in [one for one in self._classes.values() if one.need is not None and one.hints]:
            tried, before.trying = before.trying, None
            if tried is not None:
                self._items[tried].of = None  # It is active, and is decided for itself.
            elif isinstance(before.key, str):
                before.need = need_now(before.key)
                continue
            del self._classes[before.key]
            for key in before.keys:
                self._sort_again(key, before, need_now(key), now, tried is not None)

    def delete(self, key: str) -> None:
        """Delete an item: it was placed, or is gone."""
        self._changed.pop(key, None)
        if key in self._items:
            self._leave(key)
            del self._items[key]

    def validate(self, waiting: Iterable[str], settled: bool) -> None:
        """Assert every invariant; ``settled``: only what was noted since the last tick may help an item."""
        keys = set(waiting)
        assert self._changed.keys() <= keys <= self._items.keys() | self._changed.keys(), (
            "what waits is queued"
        )
        entries = set(self._active)
        for key, item in self._items.items():
            assert not item.active or (item.place, key) in entries, f"{key} is missing from the active items"
            assert item.active or item.of is not None, f"{key} is neither active nor unschedulable"
            assert item.of is None or (item.of.trying == key) == item.active, (
                f"{key} is tried, but not active"
            )
            assert item.of is None or self._classes.get(item.of.key) is item.of, f"the class of {key} is gone"
        settled = settled and not self._changed and not self._events
        for of in self._classes.values():
            assert of.items or of.trying, "a class without items is kept"
            assert of.items == sorted(set(of.items)), "items of a class are out of order"
            assert all(self._items[key].of is of for key in of.keys), "an item is in two classes"
            assert of.in_backoff or not of.retry_all, "all items of a class are to be tried, but when?"
            waits = of.key in self._items or not of.hints or self._infeasible(of) or of in self._left
            assert waits or of.in_backoff or of.trying or not settled, (
                f"{tuple(of.keys)} wait, but there is room"
            )

    # Inside

    def _in_scope(self, scope: str) -> list[_Class]:
        if not scope:
            return list(self._classes.values())
        items: Iterable[_Item | None] = (self._items.get(scope),)
        if scope.endswith("/"):
            items = (item for key, item in self._items.items() if f"{namespace_of(key)}/" == scope)
        return list(dict.fromkeys(one.of for one in items if one is not None and one.of is not None))

    def _move(
        self, of: _Class, event: ClusterEvent, now: float | None, hint: PreemptionHint | None = None
    ) -> None:
        if not of.hints & event:
            return
        if not of.shows(event):
            of.retry_all = True
        else:
            first = of.trying or of.first
            if hint is not None and first is not None and hint.helps(self._items[first].priority):
                of.may_preempt = True
            if of.in_backoff or of.trying is not None or (not of.may_preempt and self._infeasible(of)):
                return
        self._retry_in_time(of, now)

    def _retry_in_time(self, of: _Class, now: float | None) -> None:
        of.in_backoff = True
        if now is None or of.backoff_until <= now:
            self._retry(of)

    def _retry(self, of: _Class) -> None:
        """Activate the first item of a class, or all of them where the event may help any of them."""
        every_item = of.retry_all
        of.in_backoff = of.retry_all = False
        if every_item:
            for key in (*of.keys, *(() if of.trying is None else (of.trying,))):
                self._activate(key)
        elif of.trying is None:
            self._try_next(of)

    def _try_next(self, of: _Class) -> None:
        key = of.first if of.may_preempt else self._with_room(of) or of.first
        if key is not None:
            of.remove(self._items[key].place, key)
            of.trying = key
            self._push(key)

    def _end_trial(self, of: _Class, key: str, *, stays: bool = False) -> None:
        """The item tried for its class was decided, or is gone. While there is room, try the next.

        ``stays``: it was refused again.
        """
        of.trying = None
        if not stays:
            # The others back off from the beginning again.
            of.refusals, of.backoff_until, of.cost_backoff_until = 0, 0.0, 0.0
            if of.may_preempt or not self._infeasible(of):
                self._try_next(of)
        elif of.need is not None and self._lacks(of.need, key):
            # Refused for itself. Another one may have room that is kept from it.
            other = self._not_kept_off(of.need, of.keys)
            if other is not None and other != key:
                self._try_next(of)
        self._forget_if_empty(of)

    def _infeasible(self, of: _Class) -> bool:
        """Whether an attempt at an item of a class must fail now."""
        if of.need is None or not (of.items or of.trying):
            return False
        return self._with_room(of) is None if of.trying is None else self._lacks(of.need, of.trying)

    def _with_room(self, of: _Class) -> str | None:
        """The first item of a class, or one after it that has room where that has none; None: no item has."""
        if of.need is None or of.first is None or not self._lacks(of.need, of.first):
            return of.first
        return self._not_kept_off(of.need, of.keys)

    def _class_key(self, key: str, hints: ClusterEvent, need: Need | None) -> Hashable:
        """Items share a class where the same lack keeps all of them out, or where no event can help them."""
        if not hints:
            return hints
        if need is None or need.key is None or not self._lacks(need, key):
            return key
        # Of one priority, since a reservation keeps out all items behind a place in the order.
        return need.key, hints, self._items[key].priority

    def _class(self, class_key: Hashable, need: Need | None, hints: ClusterEvent) -> _Class:
        of = self._classes.get(class_key)
        if of is None:
            of = self._classes[class_key] = _Class(class_key, need, hints)
        return of

    def _sort_again(
        self, key: str, before: _Class, need: Need | None, now: float | None, tried: bool
    ) -> None:
        class_key = self._class_key(key, before.hints, need)
        of = self._classes.get(class_key)
        if of is None:
            of = self._class(class_key, need, before.hints)
            of.refusals, of.backoff_until = before.refusals, before.backoff_until
            of.cost_backoff_until = before.cost_backoff_until
        of.may_preempt |= before.may_preempt
        self._join(of, key)
        if tried or before.in_backoff or (need is not None and not self._infeasible(of)):
            of.retry_all |= before.retry_all
            self._retry_in_time(of, now)

    def _join(self, of: _Class, key: str) -> None:
        item = self._items[key]
        item.of = of
        insort(of.items, (item.place, key))

    def _leave(self, key: str) -> None:
        """An item is unschedulable no more, or is tried no more."""
        item = self._items[key]
        of, item.of = item.of, None
        if of is None:
            return
        if of.trying == key:
            self._end_trial(of, key)
        else:
            of.remove(item.place, key)
            self._left[of] = None
            self._forget_if_empty(of)

    def _activate(self, key: str) -> None:
        """Move an item to the active ones, for itself."""
        self._leave(key)
        self._push(key)

    def _push(self, key: str) -> None:
        item = self._items[key]
        if not item.active:
            item.active = True
            self._active.push(item.place, key)

    def _forget_if_empty(self, of: _Class) -> None:
        if not (of.items or of.trying):
            of.in_backoff = of.retry_all = of.may_preempt = False
            if self._classes.get(of.key) is of:
                del self._classes[of.key]
