"""Backfill, as EASY of batch systems: who has ended before the gang could start may use its nodes meanwhile.

A gang with a reservation can't start on its nodes before so many of the pods there have ended that it has the
room. Where all of these ends are known, that moment is, and what certainly has ended by then delays nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import inf
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import Cluster, Demand
from closeby.objects.arrays import Ints
from closeby.objects.groups import is_for_places
from closeby.objects.pods import Pod
from closeby.objects.workloads import is_long_running
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.placing.tools import Tools, WaitingGang

#: Kinds of a gang's pods that are looked at, those of most pods. Fewer kinds could only start earlier.
KINDS: Final = 8
#: With more pods than this on its nodes the moment is worked out once in so many seconds, as each time takes
#: milliseconds, and every pod that comes, ends or changes may be a reason. Until then the last one counts.
MANY_PODS: Final = 100
PAUSE: Final = 1.0
#: At least so many seconds for each pod: a look takes about 5 microseconds for each.
PAUSE_PER_POD: Final = 2e-4


class _Leaving(Struct, frozen=True):
    """A pod that will leave its slot, at that time."""

    end: float
    slot: int
    holds: Demand


class Backfill:
    """Knows when the gang with the reservation is expected to start. Time is that of the pods' times."""

    def __init__(self, tools: Tools, state: SchedulingState) -> None:
        self._tools = tools
        self._state = state
        #: The time of this turn.
        self.clock = 0.0
        #: When the gang is expected to have the room on its nodes; None when that is not known.
        self.starts: float | None = None
        #: Cursor of the changes of usage by which ``starts`` was worked out; None: it was not.
        self._known_at: int | None = None
        #: The time then, and how many pods were looked at.
        self._worked_out = 0.0
        self._looked_at = 0
        #: When pods were placed here: their time counts from then, as long as no start of theirs is known.
        self._placed: dict[str, float] = {}

    # Ends of pods

    def note_placed(self, pods: Iterable[Pod]) -> None:
        """Pods got their nodes: the time that they may take counts from now, until their start is known."""
        self._placed.update((pod.uid, self.clock) for pod in pods)

    def forget_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._placed.pop(uid, None)

    def _end(self, pod: Pod) -> float | None:
        """When a pod that holds a node will be gone, as far as is known."""
        if is_for_places(pod.group or ""):
            return None
        ends = [pod.ends, pod.deleted_by if pod.terminating else None]
        placed = self._placed.get(pod.uid)
        if pod.started is None and placed is not None and pod.lasts is not None:
            ends.append(placed + pod.lasts)
        return min((one for one in ends if one is not None), default=None)

    def _estimated_end(self, pod: Pod) -> float:
        """The same; where that is not known, or past: when it will have run twice as long as now."""
        end = self._end(pod)
        if end is not None and end > self.clock:
            return end
        started = self._placed.get(pod.uid, self.clock) if pod.started is None else pod.started
        return 2 * self.clock - started

    # When the gang starts

    def forget(self) -> None:
        """Another gang, other nodes, or none: nothing is known."""
        self.starts, self._known_at = None, None

    def doubt(self) -> None:
        """Something about the gang or its nodes may have changed."""
        self._known_at = None

    def outdated(self, slots: Ints) -> bool:
        """Whether the moment must be worked out again: pods came to these slots or left, or it is past."""
        if self._known_at is None:
            return True
        if self.starts is not None and self.starts <= self.clock:
            return True
        pause = max(PAUSE, self._looked_at * PAUSE_PER_POD) if self._looked_at > MANY_PODS else 0.0
        if 0 <= self.clock - self._worked_out < pause:
            return False
        log = self._tools.cluster.usage_changes
        touched = log.since(self._known_at)
        if touched is None or (len(touched) and np.isin(touched, slots).any()):
            return True
        self._known_at = log.cursor
        return False

    def review(self, gang: WaitingGang, slots: Ints) -> None:
        """Work the moment out again."""
        cluster = self._tools.cluster
        self.starts = self.start_on(gang, slots)
        self._known_at = cluster.usage_changes.cursor
        self._worked_out = self.clock
        self._looked_at = int(cluster.requested[cluster.row_of["pods"], slots].sum())

    def start_on(self, gang: WaitingGang, slots: Ints) -> float | None:
        """When a gang is expected to have the room for its minimum on these slots; None: it is not known.

        It is not where a pod without a known end makes a difference, or where nothing but pods that should
        have ended by now is in the way.
        Ports, volumes and the topology inside are left out: they could only let the gang start later.
        """
        cluster = self._tools.cluster
        known, unknown = list[_Leaving](), list[_Leaving]()
        for pod, slot in self._that_leave(gang, slots):
            end = self._end(pod)
            if end is None:
                unknown.append(_Leaving(-inf, slot, cluster.demand(pod.spec)))
            else:
                known.append(_Leaving(end, slot, cluster.demand(pod.spec)))
        if not known:
            return None
        known.sort(key=lambda one: one.end)
        wanted = self._wanted(gang)
        first = _room_from(cluster, wanted, slots, [*unknown, *known])
        if not self.clock < first < inf or (unknown and _room_from(cluster, wanted, slots, known) != first):
            return None
        return first

    def idle_until_start(self, gang: WaitingGang, slots: Ints, rows: Sequence[int]) -> float:
        """Units x seconds of these resources that will idle until the gang has the room; an estimate."""
        cluster = self._tools.cluster
        leaving = [
            _Leaving(self._estimated_end(pod), slot, cluster.demand(pod.spec))
            for pod, slot in self._that_leave(gang, slots)
        ]
        leaving.sort(key=lambda one: one.end)
        first = _room_from(cluster, self._wanted(gang), slots, leaving)
        if not leaving or first == -inf:
            return 0.0
        first = min(first, leaving[-1].end)  # Where parts of it may be left out.
        idle = sum(int(cluster.free(row, slots).sum()) for row in rows) * (first - self.clock)
        for one in leaving:
            freed = dict(zip(one.holds.rows, one.holds.amounts, strict=True))
            idle += sum(freed.get(row, 0) for row in rows) * max(first - one.end, 0.0)
        return idle

    def _that_leave(self, gang: WaitingGang, slots: Ints) -> Iterator[tuple[Pod, int]]:
        """The pods on these slots that do not stay beside the gang."""
        for slot in slots.tolist():
            for pod in self._tools.cluster.pods_at(slot):
                mine = pod.group is not None and self._state.item_key(pod) == gang.group.key
                if not is_long_running(pod) and (pod.terminating or not mine):
                    yield pod, slot

    def _wanted(self, gang: WaitingGang) -> list[tuple[Demand, int]]:
        """What a gang's minimum asks for, by kind of pod."""
        members = chain.from_iterable(leaf.core for leaf in gang.parts(everyone=False).leaves())
        return Counter(self._tools.cluster.demand(pod.spec) for pod in members).most_common(KINDS)

    # Who may backfill

    def admits(self, pods: Sequence[Pod]) -> bool:
        """Whether all of these pods, if they were placed now, would certainly have ended by that moment."""
        starts = self.starts
        return starts is not None and all(_done_by(pod, starts, self.clock) for pod in pods)


def _done_by(pod: Pod, moment: float, clock: float) -> bool:
    """Whether a pod that starts now has ended by a moment, and none comes in its place.

    Its kubelet ends it at its deadline. What its annotation says ends nothing, and any user may write it.
    """
    if is_long_running(pod) or is_for_places(pod.group or ""):
        return False
    return pod.lasts is not None and clock + pod.lasts <= moment


def _room_from(
    cluster: Cluster, wanted: Sequence[tuple[Demand, int]], slots: Ints, leaving: Sequence[_Leaving]
) -> float:
    """When the last of these kinds has room for so many pods on its own; ``leaving`` in the order of time.

    -inf: it has now. inf: it never has.
    """
    return max((_room_of(cluster, one, count, slots, leaving) for one, count in wanted), default=-inf)


def _room_of(
    cluster: Cluster, demand: Demand, wanted: int, slots: Ints, leaving: Sequence[_Leaving]
) -> float:
    rows = list(demand.rows)
    free = cluster.allocatable[rows][:, slots] - cluster.requested[rows][:, slots]
    left = {
        slot: dict(zip(rows, amounts, strict=True))
        for slot, amounts in zip(slots.tolist(), free.T.tolist(), strict=True)
    }
    rooms = {slot: demand.pods_that_fit_one(here) for slot, here in left.items()}
    total = sum(rooms.values())
    if total >= wanted:
        return -inf
    for one in leaving:
        here = left[one.slot]
        for row, amount in zip(one.holds.rows, one.holds.amounts, strict=True):
            if row in here:
                here[row] += amount
        more = demand.pods_that_fit_one(here)
        total += more - rooms[one.slot]
        rooms[one.slot] = more
        if total >= wanted:
            return one.end
    return inf
