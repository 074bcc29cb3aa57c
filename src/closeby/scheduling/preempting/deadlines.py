"""When items that were refused may preempt: not before their delay, backoff or cooldown is over.

All times are by the clock of the pods' times, in seconds.
"""

import heapq
from collections.abc import Callable


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
