"""Reservations: after a while the first gang that does not fit keeps nodes free against those after it.

One at a time, as with the backfill of batch systems: the first in the queue is promised a place, and all
others fill the gaps that this leaves. More would tie up nodes for gangs whose turn may come long after, and
the next one takes over in the very tick in which the first is placed.

What idles there is bounded by a budget, a part of what the gang itself will use: nodes are kept only where
less is expected to idle until the gang starts, and until the budget is spent.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.arrays import Ints
from closeby.objects.nodes import is_accelerator
from closeby.objects.process import Contained
from closeby.objects.quantities import utc
from closeby.objects.reasons import Reason
from closeby.scheduling.intake.active_queue import SortKey
from closeby.scheduling.intake.queue import SchedulingQueue
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.holds import Comer, Hold, HoldKind
from closeby.scheduling.outcomes import (
    Decision,
    Outcome,
    Released,
    Reservation,
    Reserved,
    failed,
    namespace_of,
)
from closeby.scheduling.placing.tools import Tools, WaitingGang, waiting_gang
from closeby.scheduling.reserving.backfill import Backfill
from closeby.scheduling.reserving.choosing import Chooser, ReservationChoice
from closeby.topology.tree import ROOT_LEVEL

#: Reasons for which a gang may keep nodes free: it lacks room, and nothing else.
ROOM: Final = frozenset(
    {
        Reason.GANG_DOES_NOT_FIT,
        Reason.TOPOLOGY_PLACEMENT_FAILED,
        Reason.SEARCH_BUDGET_EXHAUSTED,
        Reason.NODE_RESERVED,
        Reason.DOMAIN_EXCLUSIVE,
    }
)
#: Least seconds until a gang that was passed over is looked at again.
LOOK_AGAIN: Final = 10.0
#: Looks in ``reserve_after``: whether the nodes suffice still, whether others are better, and whether a gang
#: that was passed over may keep some after all.
LOOKS: Final = 10
#: Seconds that a gang is taken to run where nothing is known.
HOUR: Final = 3600.0


_Answer = TypeVar("_Answer")


class Moment(Struct, frozen=True):
    """The time of a tick: by the clock that only goes forward, and in seconds since the epoch if known."""

    now: float
    wall: float | None = None

    @property
    def clock(self) -> float:
        """By the clock of the pods' times: seconds since the epoch, where these are known."""
        return self.now if self.wall is None else self.wall

    def text(self, clock: float | None = None) -> str:
        """For messages: this moment, or another one of the same clock."""
        at = self.clock if clock is None else clock
        return utc(at) if self.wall is not None else f"second {at:g}"


class _Waiter(Struct):
    """A gang that lacks room, and since when it has waited (by the ticks' clock)."""

    place: SortKey
    since: float
    #: What has idled on the nodes that it kept since its budget was new, in units times seconds; and how long
    #: it kept them.
    idled: float = 0.0
    kept: float = 0.0
    #: What it keeps, or kept last.
    last: Reservation | None = None
    #: It keeps no nodes before that, as its budget was spent; and what it says of that meanwhile.
    rests: float = -inf
    resting: Reservation | None = None
    #: Until then those after it go first: it would have no place, or too much would idle.
    passed_over: float = -inf


class _Held(Struct, frozen=True, eq=False):
    """What is reserved, and what it was worked out from."""

    waiter: _Waiter
    priority: int
    #: How much may idle, and the rows of the resources that count.
    budget: float
    rows: tuple[int, ...]
    shown: Reservation
    slots: Ints
    #: Cursor of the nodes' changes by then.
    nodes: int
    hold: Hold

    @property
    def key(self) -> str:
        """The gang's."""
        return self.shown.key


class Reservations:
    """The owner of who waits for how long, and of the one reservation."""

    def __init__(
        self,
        after: float,
        tools: Tools,
        state: SchedulingState,
        queue: SchedulingQueue,
        chooser: Chooser,
        *,
        contain_faults: bool,
    ) -> None:
        """``after``: seconds; 0 reserves nothing. ``contain_faults`` as the engine takes it."""
        self._after = after
        self._tools = tools
        self._state = state
        self._queue = queue
        self._chooser = chooser
        self._contain_faults = contain_faults
        #: Refusals of gangs for which looking for nodes ended in a fault, since the last review.
        self._failed: list[Decision] = []
        self._waiters: dict[str, _Waiter] = {}
        #: The same, by place.
        self._line: list[tuple[SortKey, str]] = []
        self._held: _Held | None = None
        self._number = 0
        self._backfill = Backfill(tools, state)
        #: The gang is expected to have the room later than before: more may use its nodes meanwhile.
        self._postponed = False
        self._next_look = 0.0
        #: What has idled on the reserved nodes since the last tick, by the second, and when that was.
        self._idle, self._counted = 0, 0.0
        #: Gangs that something of their own is new about since they were decided last.
        self._renewed: set[str] = set()
        #: Something happened after which what is reserved may not suffice any more.
        self._doubted = False

    @property
    def current(self) -> Reservation | None:
        """What is reserved now."""
        return None if self._held is None else self._held.shown

    # Who waits

    def decided(self, key: str, outcome: Outcome, moment: Moment | None) -> None:
        """An item that stays in the queue was decided."""
        if not self._after or moment is None or not outcome.is_gang:
            return
        if not outcome.refused or outcome.reason not in ROOM:
            self.gone(key)
        elif key in self._waiters:
            if key in self._renewed:
                self._waiters[key].passed_over = -inf
                self._doubted = True
        else:
            anchors = [pod.created for pod in outcome.refused if pod.created is not None]
            waited = 0.0 if moment.wall is None or not anchors else max(moment.wall - min(anchors), 0.0)
            place = self._queue.place(key)
            self._waiters[key] = _Waiter(place, moment.now - waited)
            insort(self._line, (place, key))
        self._renewed.discard(key)

    def renewed(self, key: str) -> None:
        """There is news of an item's own: other members, or a gang that asks for something else."""
        if key in self._waiters:
            self._renewed.add(key)

    def doubt(self) -> None:
        """What nodes are judged by has changed: what was worked out about gangs may be wrong."""
        for waiter in self._waiters.values():
            waiter.passed_over = -inf
        self._doubted = True

    def placed(self, key: str, outcome: Outcome, moment: Moment | None) -> bool:
        """Pods of an item got their nodes; whether it took reserved ones before their gang."""
        if not self._after or moment is None:
            return False
        self._backfill.note_placed(one.pod for one in outcome.bindings)
        held = self._held
        if held is None or held.key == key or self.keeps_from(key):
            return False
        slots = [self._tools.cluster.slot(one.node) for one in outcome.bindings]
        return bool(np.isin([slot for slot in slots if slot is not None], held.slots).any())

    def pod_gone(self, uid: str) -> None:
        """A pod is gone, from its node or while it waited."""
        self._backfill.forget_pod(uid)

    def gone(self, key: str) -> None:
        """An item was placed, deleted, or lacks something else."""
        waiter = self._waiters.pop(key, None)
        if waiter is not None:
            del self._line[bisect_left(self._line, (waiter.place, key))]
            self._renewed.discard(key)

    def of(self, key: str) -> Reservation | None:
        """What is reserved for a gang, or was until its budget was spent."""
        held, waiter = self._held, self._waiters.get(key)
        if held is not None and held.key == key:
            return held.shown
        return None if waiter is None else waiter.resting

    def mentioned(self, key: str, outcome: Outcome) -> Outcome:
        """What was decided, with the nodes that are kept free for the gang meanwhile."""
        kept = self.of(key)
        return outcome if kept is None or not outcome.refused else replace(outcome, reservation=kept)

    def off(self, comer: Comer) -> Hold | None:
        """The reserved nodes where they are kept from an item, and it can't backfill.

        Nothing is evicted from them for what only fills the time until they are needed.
        """
        held = self._held
        if held is None or not self.keeps_from(comer.key):
            return None
        return held.hold if comer.preempts or not self.backfills(comer.key) else None

    def backfills(self, key: str) -> bool:
        """Whether all that waits of an item will certainly have ended before the gang could start."""
        return self._backfill.starts is not None and self._backfill.admits(self._state.waiting(key))

    @property
    def some_may_backfill(self) -> bool:
        """Whether it is known when the gang could start."""
        return self._backfill.starts is not None

    def keeps_from(self, key: str) -> bool:
        """Whether nodes are kept free from an item: it comes later, and its priority is no higher.

        A gang that lost a member is not kept from becoming whole: what it holds else never comes free.
        """
        held = self._held
        if held is None or not self._queue.place(key) > held.waiter.place:
            return False
        return self._queue.priority(key) <= held.priority and not self._recovers(key)

    def _recovers(self, key: str) -> bool:
        group = self._state.groups.get(key)
        placed = 0 if group is None else len(self._state.placed(key))
        return group is not None and 0 < placed < group.min_member - len(self._state.done(key))

    # The one reservation

    def review(self, moment: Moment | None) -> list[Reserved | Released | Decision]:
        """Make, keep, move or lift the reservation, as things stand; returns what changed.

        Decisions are refusals of gangs for which looking for nodes ended in a fault.
        """
        if moment is not None:
            self._backfill.clock = moment.clock
        changes = self._review(moment)
        if moment is not None:
            self._expect(moment)
        failed, self._failed = self._failed, []
        return [*failed, *changes]

    def _review(self, moment: Moment | None) -> list[Reserved | Released]:
        if not self._after or moment is None:
            return []
        changes: list[Reserved | Released] = [*self._spent(moment)]
        while self._line or self._held:
            held, first = self._held, self._first(moment.now)
            if held is not None and first == held.key and self._suffices(held, moment):
                return [*changes, *self._moved(moment)]
            choose = partial(self._choose, at=moment)
            choice = None if first is None else self._asked(choose, self._gang(first), None)
            if held is not None and first == held.key:
                if choice is not None and self._is_held(choice):
                    # Where parts of a gang may be left out, the search can find more among more nodes.
                    self._next_look = moment.now + self._after / LOOKS
                    self._stands(held, choice.slots)
                    return changes
                changes.append(self._lift(held, "its nodes do not suffice any more"))
            if first is not None and choice is None and moment.now >= self._waiters[first].rests:
                self._give_up(first, moment.now)
                continue
            if self._held is not None:
                waits = self._held.key in self._waiters and first is not None
                why = f"{first} goes before it" if waits else "it waits no more"
                changes.append(self._lift(self._held, why))
            if first is None or choice is None:
                rests = None if first is None else self._waiters[first].resting
                if rests is not None and (held is None or first != held.key):
                    changes.append(Released(rests, rests.status.why))
                break
            return [*changes, self._take(first, choice, moment, moment.text())]
        return changes

    def _spent(self, moment: Moment) -> list[Released]:
        """Count what has idled since the last tick; let go once that is more than may idle."""
        held, seconds = self._held, moment.now - self._counted
        self._counted = moment.now
        if held is None:
            return []
        waiter = held.waiter
        waiter.idled += self._idle * seconds
        waiter.kept += seconds
        if waiter.idled <= held.budget or held.key not in self._waiters:
            return []
        self._rest(waiter, moment)
        return [self._lift(held, "its budget is spent")]

    def _rest(self, waiter: _Waiter, moment: Moment) -> None:
        """From now on the gang keeps no nodes for as long as it kept some, and has a new budget then."""
        assert waiter.last is not None, "only on nodes that it kept something can have idled"
        waiter.rests = moment.now + waiter.kept
        resumes = moment.text(moment.clock + waiter.kept)
        spent = Reason.RESERVATION_BUDGET_SPENT
        waiter.resting = replace(waiter.last, reason=spent, resumes=resumes, expected=None)
        waiter.idled, waiter.kept = 0.0, 0.0

    def tick_ended(self) -> None:
        """What is free on the reserved nodes now idles until the next tick."""
        held, cluster = self._held, self._tools.cluster
        self._idle = 0 if held is None else sum(int(cluster.free(row, held.slots).sum()) for row in held.rows)

    def _choose(self, gang: WaitingGang, at: Moment | None = None) -> ReservationChoice | None:
        """Nodes to keep; None where none are known, or more than its budget is expected to idle there.

        ``at``: where a new budget would do, what is left of this one counts as spent at that moment. Else it
        could be neither spent nor renewed.
        """
        choice = self._chooser.choose(gang)
        if choice is None:
            return None
        budget, rows = self._budget_of(gang)
        idle = self._backfill.idle_until_start(gang, choice.slots, rows)
        waiter = self._waiters[gang.group.key]
        if idle <= budget - waiter.idled:
            return choice
        if at is not None and waiter.idled and idle <= budget:
            self._rest(waiter, at)
        return None

    def _budget_of(self, gang: WaitingGang) -> tuple[float, tuple[int, ...]]:
        """How much may idle for a gang, and the rows of the resources that count.

        These are its accelerators; where it asks for none, CPU, or else places for pods.
        """
        minimum = [pod for leaf in gang.parts(everyone=False).leaves() for pod in leaf.core]
        asked = Counter[str]()
        for pod in (*minimum, *(pod for pod, _ in gang.running)):
            asked.update({"pods": 1, **dict(pod.spec.requests)})
        names = [name for name in asked if is_accelerator(name)] or ["cpu" if asked["cpu"] else "pods"]
        seconds = max((pod.lasts for pod in minimum if pod.lasts is not None), default=HOUR)
        budget = self._tools.profile.reserve_budget * sum(asked[name] for name in names) * seconds
        return budget, tuple(map(self._tools.cluster.row_for, names))

    def _is_held(self, choice: ReservationChoice) -> bool:
        """Whether these nodes are reserved already."""
        return self._held is not None and self._held.shown.nodes == self._names_at(choice.slots)

    def _first(self, now: float) -> str | None:
        """The first gang in the queue that has waited long enough and is not hopeless."""
        for _, key in self._line:
            waiter = self._waiters[key]
            # One whose object is gone still waits in line until it is decided again.
            if now >= max(waiter.since + self._after, waiter.passed_over) and key in self._state.groups:
                # While it rests, those after it do not take its nodes.
                return key if now >= waiter.rests else None
        return None

    def _give_up(self, key: str, now: float) -> None:
        waiter = self._waiters[key]
        waiter.resting, waiter.passed_over = None, now + max(LOOK_AGAIN, self._after / LOOKS)

    def _suffices(self, held: _Held, moment: Moment) -> bool:
        """Whether the reserved nodes are still what they were, or would do as they are now.

        That is also asked now and then: pods that run for ever may have come to them from elsewhere.
        """
        log = self._tools.cluster.node_changes
        touched = log.since(held.nodes)
        untouched = touched is not None and not (len(touched) and np.isin(touched, held.slots).any())
        if untouched and not self._doubted and moment.now < self._next_look:
            self._held = replace(held, nodes=log.cursor)
            return True
        slots = np.sort(self._slots_of(held.shown.nodes))
        suffice = partial(self._chooser.suffices, slots=slots)
        if len(slots) < len(held.shown.nodes) or not self._asked(suffice, self._gang(held.key), False):
            return False
        self._stands(held, slots)
        return True

    def _stands(self, held: _Held, slots: Ints) -> None:
        """The nodes were looked at and suffice; others are only reported where their slots have changed."""
        if np.array_equal(slots, held.slots):
            self._doubted = False
            self._held = replace(held, nodes=self._tools.cluster.node_changes.cursor)
            self._backfill.doubt()
        else:
            self._put(held.key, slots, held.shown)

    def _moved(self, moment: Moment) -> list[Reserved | Released]:
        """Now and then: whether there is clearly less to wait for elsewhere."""
        held = self._held
        if held is None or moment.now < self._next_look:
            return []
        self._next_look = moment.now + self._after / LOOKS
        gang = self._gang(held.key)
        better = self._asked(self._choose, gang, None)
        if better is None or 2 * better.missing >= self._chooser.missing(gang, held.slots):
            return []
        expected = self._backfill.starts
        if expected is not None:
            # What backfills is no reason to move, nor may a gang that moves start later than expected.
            there = self._backfill.start_on(gang, better.slots)
            if there is None or there >= expected:
                return []
        return [self._take(held.key, better, moment, held.shown.since)]

    def _asked(
        self, question: Callable[[WaitingGang], _Answer], gang: WaitingGang, otherwise: _Answer
    ) -> _Answer:
        """The answer to a question about a gang, ``otherwise`` where that ended in a fault."""
        if not self._contain_faults:
            return question(gang)
        with Contained() as asking:
            return question(gang)
        assert asking.error is not None
        self._failed.append(failed(gang.group.key, gang.waiting, asking.error))
        return otherwise

    def _gang(self, key: str) -> WaitingGang:
        """A gang that lacks room, as it stands now."""
        state = self._state
        ready = tuple(pod for pod in state.waiting(key) if pod.uid not in state.gated)
        return waiting_gang(self._tools, state, state.groups[key], ready)

    def _take(self, key: str, choice: ReservationChoice, moment: Moment, since: str) -> Reserved:
        tree, domain = choice.tree, choice.domain
        nodes = self._names_at(choice.slots)
        shown = Reservation(
            key=key,
            nodes=nodes,
            topology=tree.name,
            level=None if domain.level == ROOT_LEVEL else tree.level_names[domain.level],
            path=tree.path(domain),
            missing=choice.missing,
            since=since,
        )
        self._next_look = moment.now + self._after / LOOKS
        self._put(key, choice.slots, shown)
        return Reserved(self._expect(moment) or shown)

    def _expect(self, moment: Moment) -> Reservation | None:
        """Work out when the gang will have the room, where that may have changed; returns what is shown."""
        held, backfill = self._held, self._backfill
        if held is None or not backfill.outdated(held.slots):
            return self.current
        before = backfill.starts
        backfill.review(self._gang(held.key), held.slots)
        after = backfill.starts
        self._postponed |= after is not None and (before is None or after > before)
        expected = None if after is None else moment.text(after)
        if expected != held.shown.expected:
            self._held = replace(held, shown=replace(held.shown, expected=expected))
        return self.current

    def take_postponed(self) -> bool:
        """Whether more items may use the nodes than at the last call."""
        postponed, self._postponed = self._postponed, False
        return postponed

    def _put(self, key: str, slots: Ints, shown: Reservation) -> None:
        cluster = self._tools.cluster
        mask = np.zeros(cluster.capacity, dtype=np.bool_)
        mask[slots] = True
        self._number += 1
        self._tools.holds.version += 1
        self._doubted = False
        waiter, priority = self._waiters[key], self._queue.priority(key)
        budget, rows = self._budget_of(self._gang(key))
        waiter.last, waiter.resting = shown, None
        hold = Hold(HoldKind.RESERVATION, self._number, mask, self._says)
        self._held = _Held(waiter, priority, budget, rows, shown, slots, cluster.node_changes.cursor, hold)
        self._backfill.forget()

    def _lift(self, held: _Held, why: str) -> Released:
        self._held = None
        self._backfill.forget()
        self._tools.holds.version += 1
        resting = held.waiter.resting
        return Released(held.shown, why) if resting is None else Released(resting, resting.status.why)

    def _says(self, slot: int, namespace: str) -> str:
        """For whom and since when. Owners of pods in other namespaces do not learn which gang that is."""
        if self._held is None:
            return "reserved for a gang"
        shown = self._held.shown
        same = namespace_of(shown.key) == namespace
        text = f"reserved for {f'gang {shown.key}' if same else 'a gang of another namespace'}"
        text += f" since {shown.since}"
        if shown.expected is None:
            return text
        return f"{text}, but for pods whose activeDeadlineSeconds end by {shown.expected}"

    def _names_at(self, slots: Ints) -> tuple[str, ...]:
        return tuple(sorted(self._tools.cluster.node_at(slot).name for slot in slots.tolist()))

    def _slots_of(self, names: tuple[str, ...]) -> Ints:
        slots = [self._tools.cluster.slot(name) for name in names]
        return np.asarray([slot for slot in slots if slot is not None], dtype=np.intp)

    def validate(self) -> None:
        """Assert every invariant."""
        assert self._line == sorted((waiter.place, key) for key, waiter in self._waiters.items())
        for key in self._waiters:
            assert key in self._queue, f"{key} waits for nodes, but is not queued"
