"""The scheduling queue: gangs, applications and plain pods in one total order.

An item is active, backing off or unschedulable. Its sort key is fixed when it is added. When its priority
changes (members come or go), the caller deletes the item and adds it again.
"""

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from itertools import count

from msgspec import Struct

from closeby.scheduling.extension import QueuedItem, QueueSort
from closeby.scheduling.intake.active_queue import ActiveQueue, SortKey
from closeby.scheduling.intake.cluster_events import ANY_EVENT, ClusterEvent, PreemptionHint
from closeby.scheduling.intake.item_classes import ItemClass
from closeby.scheduling.judging.needs import Need
from closeby.scheduling.outcomes import namespace_of


class _Queued(Struct, frozen=True, gc=False):
    """What is fixed of an item as long as it is in the queue."""

    #: Items with a written plan come first, then the QueueSort decides.
    place: SortKey
    priority: int
    #: Whether a plan was written for its start.
    begun: bool


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
        #: The items of the queue, by key.
        self._items: dict[str, _Queued] = {}
        #: The active items in order; may also hold some that are no longer active.
        self._active = ActiveQueue()
        self._active_keys: set[str] = set()
        self._classes: dict[Hashable, ItemClass] = {}
        #: Unschedulable item -> its equivalence class, in the order in which they were refused.
        self._waiting: dict[str, ItemClass] = {}
        #: Active item -> the equivalence class for which it is tried.
        self._trying: dict[str, ItemClass] = {}
        #: Heap of (end of backoff, a number that breaks ties, class); may hold some that are not in backoff.
        self._backoff: list[tuple[float, int, ItemClass]] = []
        self._numbers = count()
        #: Classes that items left which were deleted, or are tried for themselves, by their keys.
        self._left: dict[Hashable, ItemClass] = {}

    def __len__(self) -> int:
        return len(self._active_keys)

    @property
    def unschedulable(self) -> tuple[str, ...]:
        """Keys of the items that wait for an event, or back off, in the order in which they were refused."""
        return tuple(self._waiting)

    @property
    def next_backoff_end(self) -> float | None:
        """When the first item in backoff becomes active; None when none is in backoff."""
        while self._backoff and not self._backoff[0][2].in_backoff:
            heapq.heappop(self._backoff)
        return self._backoff[0][0] if self._backoff else None

    @property
    def backing_off(self) -> tuple[str, ...]:
        """Keys of the unschedulable items whose event came, and which back off until they are tried."""
        return tuple(key for key, item_class in self._waiting.items() if item_class.in_backoff)

    def knows(self, key: str) -> bool:
        """Whether the item is in the queue."""
        return key in self._items

    def place(self, key: str) -> SortKey:
        """The sort key of an item in the queue."""
        return self._items[key].place

    def priority(self, key: str) -> int:
        """The priority of an item in the queue, when it was added."""
        return self._items[key].priority

    def is_in_place(self, item: QueuedItem) -> bool:
        """Whether the sort key of an item in the queue is still right for its priority."""
        queued = self._items[item.key]
        return queued.priority == item.priority and queued.begun == item.begun

    def add(self, item: QueuedItem, now: float | None = None, late: float = 0.0) -> None:
        """Make an item active, unless it backs off after a long search.

        Its sort key is computed when it is new; then it backs off first for ``late`` seconds.
        """
        if item.key in self._items:
            self._renew(item.key, now)
            return
        place = (not item.begun, *self._order.sort_key(item))
        self._items[item.key] = _Queued(place, item.priority, item.begun)
        if not late or now is None:
            self._active_keys.add(item.key)
            self._active.push(place, item.key)
        else:
            item_class = self._classes[item.key] = ItemClass(item.key, None, ANY_EVENT)
            # News of the item itself do not end this backoff either: its pods come one by one.
            item_class.backoff_until = item_class.cost_backoff_until = now + late
            item_class.retry_all = True
            self._rejoin(item_class, item.key)
            self._back_off(item_class)

    def activate(self, key: str) -> None:
        """Move an item of the queue to the active ones."""
        item_class = self._waiting.pop(key, None)
        if item_class is not None:
            item_class.remove(self._items[key].place, key)
            self._left[item_class.key] = item_class
            self._forget_if_empty(item_class)
        self._end_trial(key)
        self._add_active(key)

    def move_to_active_or_backoff(
        self, event: ClusterEvent, now: float | None, preemption: PreemptionHint | None = None
    ) -> None:
        """Move the items that the event may help: to the active ones, or into backoff until that ends.

        ``preemption``: which items may find victims now, also where the event frees too little for them.
        """
        for item_class in list(self._classes.values()):
            self._move(item_class, event, now, preemption)

    def move_item_to_active_or_backoff(self, key: str, event: ClusterEvent, now: float | None) -> None:
        """The same for the equivalence class of an item, if it is unschedulable."""
        if key in self._waiting:
            self._move(self._waiting[key], event, now)

    def move_helped_to_active_or_backoff(
        self, helped: Callable[[Iterable[str]], bool], event: ClusterEvent, now: float | None
    ) -> None:
        """The same for each equivalence class of which the event has ``helped`` an item; it is asked once."""
        for item_class in list(self._classes.values()):
            if helped(item_class):
                self._move(item_class, event, now)

    def move_namespaces_to_active_or_backoff(
        self, namespaces: Collection[str], event: ClusterEvent, now: float | None
    ) -> None:
        """The same for items of these namespaces that share their class with no other item."""
        own = [key for key, item_class in self._waiting.items() if item_class.key == key]
        for key in own:
            if namespace_of(key) in namespaces and key in self._waiting:
                self._move(self._waiting[key], event, now)

    def move_classes_of_namespaces_to_active_or_backoff(
        self, namespaces: Collection[str], event: ClusterEvent, now: float | None
    ) -> None:
        """The same for all classes that have an item of these namespaces."""
        items = (
            (key, item_class) for waits in (self._waiting, self._trying) for key, item_class in waits.items()
        )
        found = {id(one): one for key, one in items if namespace_of(key) in namespaces}
        for item_class in found.values():
            self._move(item_class, event, now)

    def move_behind_gone(self, now: float | None) -> None:
        """Move items that may be tried since others of their class are gone: only so many are asked."""
        left, self._left = self._left, {}
        for class_key, item_class in left.items():
            if self._classes.get(class_key) is item_class:
                self._move(item_class, ClusterEvent.CAPACITY, now)

    def flush_backoff(self, now: float) -> None:
        """Move items whose backoff has ended to the active ones."""
        while self._backoff and self._backoff[0][0] <= now:
            _, _, item_class = heapq.heappop(self._backoff)
            if item_class.in_backoff:
                self._retry(item_class)

    def pop(self) -> str | None:
        """Take the first active item; None when there is none."""
        while (entry := self._active.pop()) is not None:
            place, key = entry
            # An item that was deleted and added again has a new sort key; the old entry is void.
            if key not in self._active_keys or self._items[key].place != place:
                continue
            self._active_keys.remove(key)
            item_class = self._trying.get(key)
            if item_class is None or item_class.may_preempt or not self._in_vain(item_class):
                return key
            # The item before it took the room: there is nothing to decide.
            del self._trying[key]
            item_class.trying = None
            self._rejoin(item_class, key)
            if not self._in_vain(item_class):
                self._try_next(item_class)  # One that may use nodes which are kept from this one.
        self._active.settle()
        return None

    def charge(self, key: str, steps: int, *, in_vain: bool) -> None:
        """A decision about an item took so many steps."""
        self._active.charge(key, steps, in_vain=in_vain)

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
        class_key = self._class_key(key, hints, need)
        item_class = self._classes.get(class_key)
        again = self._trying.get(key)
        if item_class is None:
            item_class = self._classes[class_key] = ItemClass(class_key, need, hints)
        elif class_key == key:
            # Its need may have changed. Only the items of a shared class are known to need the same.
            item_class.need, item_class.hints = need, hints
        if now is not None and (not item_class or item_class is again):
            item_class.refused(now, steps)
        self._rejoin(item_class, key)
        found_victims = again is not None and again.may_preempt and preempts
        if again is not None:
            again.may_preempt = False
        self._end_trial(key)
        for other in tuple(again) if again is not None and found_victims else ():
            if other != key:
                self.activate(other)

    def add_like(self, key: str, other: str) -> bool:
        """The item was refused like another one, since when nothing has changed: it waits for the same.

        False, and nothing was done, where they can't share their class.
        """
        item_class = self._waiting.get(other)
        if item_class is None or item_class.key == other or key in self._trying:
            return False
        queued = self._items[key]
        if queued.priority != self._items[other].priority:
            return False
        self._waiting[key] = item_class
        item_class.add(queued.place, key)
        return True

    def take_like(self, other: str, alike: Callable[[str], bool]) -> Iterator[str]:
        """Take the items that come first as long as they are ``alike``; each waits like the ``other`` one."""
        item_class = self._waiting.get(other)
        if item_class is None or item_class.key == other:
            return
        items, priority = self._items, self._items[other].priority
        active, waiting, trying, pop = self._active_keys, self._waiting, self._trying, self._active.pop
        while (entry := pop()) is not None:
            place, key = entry
            queued = items.get(key)
            in_turn = queued is not None and queued.place is place and key in active
            if not in_turn or key in trying or items[key].priority != priority or not alike(key):
                self._active.push(place, key)
                return
            active.remove(key)
            waiting[key] = item_class
            item_class.add(place, key)
            yield key

    def divide(self, need_now: Callable[[str], Need | None], now: float | None) -> None:
        """Items that needed the same may differ from now on: sort them into classes by what they need now.

        One whose need is not known any more (None) is tried at the next event that may help it.
        """
        for item_class in [one for one in self._classes.values() if one.need is not None and one.hints]:
            tried = item_class.trying is not None
            if item_class.trying is not None:
                del self._trying[item_class.trying]  # It is active, and is decided for itself.
                item_class.trying = None
            if item_class.key in self._waiting:
                assert isinstance(item_class.key, str), "only the key of an item is in the queue"
                item_class.need = need_now(item_class.key)
                continue
            del self._classes[item_class.key]
            for key in tuple(item_class):
                self._sort_again(key, item_class, need_now(key), now, retry=tried or item_class.in_backoff)
            item_class.in_backoff = item_class.retry_all = False

    def delete(self, key: str) -> None:
        """Delete an item: it was placed, or is gone."""
        item_class = self._waiting.pop(key, None)
        if item_class is not None:
            item_class.remove(self._items[key].place, key)
            self._left[item_class.key] = item_class
            self._forget_if_empty(item_class)
        self._items.pop(key, None)
        self._active_keys.discard(key)
        self._end_trial(key)

    def validate(self, settled: bool) -> None:
        """Assert every invariant; ``settled``: no event that may help an item came since the last tick."""
        for key, item_class in self._waiting.items():
            assert key in self._items and key not in self._active_keys, f"{key} is unschedulable and active"
            assert self._classes.get(item_class.key) is item_class, f"the class of {key} is unknown"
        for item_class in self._classes.values():
            item_class.validate()
            assert all(self._waiting.get(key) is item_class for key in item_class), (
                "an item is in two classes"
            )
            assert item_class.trying is None or self._trying.get(item_class.trying) is item_class, (
                "two items of a class are tried"
            )
            lacks = item_class.key in self._waiting or not item_class.hints or self._in_vain(item_class)
            behind = self._left.get(item_class.key) is item_class
            assert lacks or behind or not settled or item_class.in_backoff or item_class.trying, (
                f"{tuple(item_class)} wait, but there is room"
            )
        assert sum(sum(1 for _ in item_class) for item_class in self._classes.values()) == len(self._waiting)
        assert self._trying.keys() <= self._active_keys, "an item is tried, but not active"
        entries = set(self._active)
        assert all((self._items[key].place, key) in entries for key in self._active_keys), (
            "an active item is missing from the heaps"
        )

    # Inside

    def _renew(self, key: str, now: float | None) -> None:
        """The item itself changed. That ends every backoff but the one after a long search."""
        item_class = self._waiting.get(key)
        if item_class is not None and now is not None and item_class.cost_backoff_until > now:
            item_class.retry_all = True
            self._back_off(item_class)
            return
        self.activate(key)

    def _move(
        self,
        item_class: ItemClass,
        event: ClusterEvent,
        now: float | None,
        preemption: PreemptionHint | None = None,
    ) -> None:
        if not item_class.hints & event:
            return
        if event & ~item_class.seen_in_room:
            item_class.retry_all = True
        else:
            first = item_class.trying or item_class.first()
            if preemption is not None and first is not None and preemption.helps(self._items[first].priority):
                item_class.may_preempt = True
            if item_class.in_backoff or item_class.trying is not None:
                return
            if not item_class.may_preempt and self._in_vain(item_class):
                return
        if now is None or item_class.backoff_until <= now:
            self._retry(item_class)
        else:
            self._back_off(item_class)

    def _back_off(self, item_class: ItemClass) -> None:
        """Retry the class when its backoff ends."""
        if not item_class.in_backoff:
            item_class.in_backoff = True
            heapq.heappush(self._backoff, (item_class.backoff_until, next(self._numbers), item_class))

    def _class_key(self, key: str, hints: ClusterEvent, need: Need | None) -> Hashable:
        """Items share a class where the same lack keeps all of them out, or where no event can help them."""
        if not hints:
            return hints
        if need is None or need.key is None or not self._lacks(need, key):
            return key
        # Of one priority, since a reservation keeps out all items behind a place in the order.
        return need.key, hints, self._items[key].priority

    def _sort_again(
        self, key: str, before: ItemClass, need: Need | None, now: float | None, *, retry: bool
    ) -> None:
        class_key = self._class_key(key, before.hints, need)
        item_class = self._classes.get(class_key)
        if item_class is None:
            item_class = self._classes[class_key] = ItemClass(class_key, need, before.hints)
            item_class.refusals, item_class.backoff_until = before.refusals, before.backoff_until
            item_class.cost_backoff_until = before.cost_backoff_until
        item_class.may_preempt |= before.may_preempt
        self._rejoin(item_class, key)
        if retry or (need is not None and not self._in_vain(item_class)):
            item_class.retry_all |= before.retry_all
            if now is None or item_class.backoff_until <= now:
                self._retry(item_class)
            else:
                self._back_off(item_class)

    def _in_vain(self, item_class: ItemClass) -> bool:
        trying, need = item_class.trying, item_class.need
        if need is None or not item_class:
            return False
        return self._with_room(item_class) is None if trying is None else self._lacks(need, trying)

    def _with_room(self, item_class: ItemClass) -> str | None:
        """The first item of a class, or one after it that has room where that has none; None: no item has."""
        first, need = item_class.first(), item_class.need
        if need is None or first is None or not self._lacks(need, first):
            return first
        return self._not_kept_off(need, item_class)

    def _add_active(self, key: str) -> None:
        if key not in self._active_keys:
            self._active_keys.add(key)
            self._active.push(self._items[key].place, key)

    def _retry(self, item_class: ItemClass) -> None:
        """Activate the first item of a class, or all of them where the event may help any of them."""
        every_item = item_class.retry_all
        item_class.in_backoff = item_class.retry_all = False
        if every_item:
            for key in (*item_class, *(() if item_class.trying is None else (item_class.trying,))):
                self.activate(key)
        elif item_class.trying is None:
            self._try_next(item_class)

    def _try_next(self, item_class: ItemClass) -> None:
        first = item_class.first()
        key = first if item_class.may_preempt else self._with_room(item_class) or first
        if key is not None:
            item_class.remove(self._items[key].place, key)
            del self._waiting[key]
            item_class.trying = key
            self._trying[key] = item_class
            self._add_active(key)

    def _rejoin(self, item_class: ItemClass, key: str) -> None:
        self._waiting[key] = item_class
        item_class.add(self._items[key].place, key)

    def _end_trial(self, key: str) -> None:
        """The item tried for its class was decided, or is gone. While there is room, try the next."""
        item_class = self._trying.pop(key, None)
        if item_class is None:
            return
        item_class.trying = None
        if key not in self._waiting or self._waiting[key] is not item_class:
            item_class.reset_backoff()
            if item_class.may_preempt or not self._in_vain(item_class):
                self._try_next(item_class)
        elif item_class.need is not None and self._lacks(item_class.need, key):
            # Refused for itself. Another one may have room that is kept from it.
            other = self._not_kept_off(item_class.need, item_class)
            if other is not None and other != key:
                self._try_next(item_class)
        self._forget_if_empty(item_class)

    def _forget_if_empty(self, item_class: ItemClass) -> None:
        if not item_class:
            item_class.in_backoff = item_class.retry_all = item_class.may_preempt = False
            self._classes.pop(item_class.key, None)
