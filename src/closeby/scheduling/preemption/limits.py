"""When items may preempt again, and who was evicted how often, so that evictions don't go round in circles.

All times are by the clock of the pods' times, in seconds.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from closeby.objects.pods import Pod
from closeby.scheduling.outcomes import Eviction, Preemption
from closeby.scheduling.preemption.rule import DAY
from closeby.scheduling.preemption.running import RunningPods, owner_of

#: Owners from which on those are forgotten that were not evicted for a day.
_MANY: Final = 1024
#: Seconds for which a victim that comes back does not preempt itself.
COOLDOWN: Final = 60.0
#: Seconds for which a victim that comes back waits before it is tried, and at most; they double with each
#: eviction of the day.
_BACKOFF: Final = 1.0
_LONGEST_BACKOFF: Final = 10.0


class Evictions:
    """The evictions of each gang or owner. Without times all of them count."""

    def __init__(self, most: int) -> None:
        """``most`` evictions within a day protect from the same priority."""
        self._most = most
        self._of: dict[str, list[Eviction]] = {}
        self._many = _MANY
        #: By owner: the preemptors whose plans in force have counted an eviction of it.
        self._counted: dict[str, set[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, owner: str) -> tuple[Eviction, ...]:
        """The evictions of a gang or owner that are known, oldest first."""
        return tuple(self._of.get(owner, ()))

    def restore(self, owner: str, evictions: Iterable[Eviction]) -> None:
        """What an earlier process counted."""
        found = self._of.setdefault(owner, [])
        found[:] = sorted({*found, *evictions})

    def note(self, plan: Preemption, now: float | None) -> None:
        """The victims of a plan are evicted."""
        for owner in {owner_of(pod) for pod in plan.victims if not pod.terminating}:
            self._add(owner, plan.priority, 0.0 if now is None else now)

    def note_once(self, pod: Pod, by: str, priority: int, now: float) -> None:
        """A victim was evicted for a preemptor; all of one owner that fall to one plan count once."""
        owner = owner_of(pod)
        if by not in self._counted.get(owner, ()):
            self.count(owner, by)
            self._add(owner, priority, now)

    def count(self, owner: str, by: str) -> None:
        """What is evicted of an owner for a preemptor is counted already, until its plan ends."""
        self._counted.setdefault(owner, set()).add(by)

    def ended(self, plan: Preemption, by: str) -> None:
        """A plan is in force no more: what is evicted for the next one of its preemptor counts."""
        for owner in {owner_of(pod) for pod in plan.victims}:
            counted = self._counted.get(owner)
            if counted is not None:
                counted.discard(by)
                if not counted:
                    del self._counted[owner]

    def cooldown(self, pod: Pod, now: float) -> float | None:
        """Until when a pod does not preempt since its gang or owner was evicted; None if it may."""
        found = self._of.get(owner_of(pod))
        if found is None:
            return None
        # The sum is what the deadline is compared with: a difference of floats may fall short of it.
        until = found[-1].when + COOLDOWN
        return until if now < until else None

    def backoff(self, pod: Pod, now: float) -> float:
        """Seconds for which a pod waits before it is tried, as its gang or owner was just evicted; else 0."""
        if not self._of or self.cooldown(pod, now) is None:
            return 0.0
        today = sum(now - one.when < DAY for one in self._of[owner_of(pod)])
        return min(_BACKOFF * 2.0 ** min(today - 1, 16), _LONGEST_BACKOFF)

    def shielded(self, running: RunningPods, priority: int, now: float | None) -> Iterator[int]:
        """Holders that were evicted too often for such a priority."""
        for owner, evictions in self._of.items():
            if self._shields([one for one in evictions if now is None or now < one.when + DAY], priority):
                yield from running.owners.get(owner, ())

    def next_unshielded(self, running: RunningPods, priority: int, now: float) -> float | None:
        """When the next holder is protected from such a priority no more; None without any."""
        ends = []
        for owner, evictions in self._of.items():
            recent = [one for one in evictions if now < one.when + DAY]
            if self._shields(recent, priority) and _any_below(running, owner, priority):
                # Those that are left once the first so many are a day old.
                left = (at for at in range(1, len(recent) + 1) if not self._shields(recent[at:], priority))
                ends.append(recent[next(left) - 1].when + DAY)
        return min(ends, default=None)

    def _shields(self, recent: Sequence[Eviction], priority: int) -> bool:
        """Whether the evictions of a day protect from such a priority."""
        return len(recent) >= self._most and priority <= max(
            (one.priority for one in recent), default=priority
        )

    def _add(self, owner: str, priority: int, now: float) -> None:
        found = self._of.setdefault(owner, [])
        found[:] = [one for one in found if now - one.when < DAY]
        found.append(Eviction(now, priority))
        if len(self._of) >= self._many:
            self._of = {one: when for one, when in self._of.items() if now - when[-1].when < DAY}
            self._many = max(_MANY, 2 * len(self._of))


def _any_below(running: RunningPods, owner: str, priority: int) -> bool:
    """Whether a pod of an owner that holds a node is of lower priority."""
    rows = [row for number in running.owners.get(owner, ()) for row in running.holders[number].members]
    return any(int(running.priorities[row]) < priority for row in rows)


class Deadlines:
    """Since when items have been refused, and when those that wait for their time are tried."""

    def __init__(self, delay: float, waits: Callable[[str], bool]) -> None:
        """``waits`` tells whether anything of a work item looks for a node."""
        self._delay = delay
        self._waits = waits
        #: By preemptor: when it was refused first.
        self._since: dict[str, float] = {}
        #: Heap of when which item is tried, and the same as a set.
        self._due: list[tuple[float, str]] = []
        self._known: set[tuple[float, str]] = set()

    def delay(self, by: str, now: float, own: float = 0.0, created: float | None = None) -> float | None:
        """Until when a preemptor that was refused waits; None if that is over.

        By the rule it waits from the first refusal on, by its ``own`` delay from when it was ``created``.
        """
        if not self._delay and not own:
            return None
        since = self._since.setdefault(by, now)
        until = max(since + self._delay, (since if created is None else created) + own)
        return until if now < until else None

    def wake(self, key: str, when: float) -> None:
        """An item is to be tried at that time."""
        if (when, key) not in self._known:
            self._known.add((when, key))
            heapq.heappush(self._due, (when, key))

    @property
    def next(self) -> float | None:
        """When the first item that waits is to be tried; None if none is."""
        while self._due and not self._waits(self._due[0][1]):
            self._pop()
        return self._due[0][0] if self._due else None

    def take_due(self, now: float) -> list[str]:
        """The items whose time has come."""
        found: dict[str, None] = {}
        while self._due and self._due[0][0] <= now:
            found[self._pop()] = None
        return list(found)

    def forget(self, by: str) -> None:
        """A preemptor was placed, or is gone."""
        self._since.pop(by, None)

    def _pop(self) -> str:
        entry = heapq.heappop(self._due)
        self._known.discard(entry)
        return entry[1]
