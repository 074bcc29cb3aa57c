"""What a reconciler still has to do, by key, and when; no key is done twice at the same time.

As in client-go's workqueue a key that is added while somebody is at it is due again when that ends, and what
fails waits longer each time. Besides, keys may share something slow, such as a server, and then get some of
the places only: those who wait for that server do not keep the others waiting.
"""

import asyncio
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from msgspec import Struct

from closeby.kube.client.backoff import Backoff, Pace

#: Between two attempts at one key (seconds).
DEFAULT_PACE: Final = Pace(first=1.0, longest=10.0)
#: The same after attempts that ended with what nobody expected: it will hardly cure itself.
AFTER_CRASHES: Final = Pace(first=1.0, longest=60.0)

Key = TypeVar("Key", bound=Hashable)


class Places(Struct, frozen=True, kw_only=True):
    """How many keys may be taken at the same time: of all, and of those that share something."""

    all: int = 8
    sharing: int = 8


class Work(Generic[Key]):
    """Keys to look at. ``clock`` counts seconds and never goes back."""

    def __init__(
        self,
        clock: Callable[[], float],
        pace: Pace = DEFAULT_PACE,
        chance: random.Random | None = None,
        *,
        places: Places | None = None,
        shares: Callable[[Key], Hashable] | None = None,
    ) -> None:
        """``shares`` says what a key has in common with others; None: nothing."""
        self._clock = clock
        self._pace = pace
        self._chance = chance or random.Random()
        self._places = places or Places()
        self._shares = shares or (lambda key: None)
        #: When each key is due.
        self._due: dict[Key, float] = {}
        #: The same in order, with a number that keeps the order of arrival. What ``_due`` has otherwise by
        #: now, or is taken, does not count.
        self._queue: list[tuple[float, int, Key]] = []
        self._number = itertools.count()
        #: Keys that somebody is at: since when, and what they share.
        self._taken: dict[Key, tuple[float, Hashable]] = {}
        self._sharing: Counter[Hashable] = Counter()
        self._failing: dict[Key, tuple[Backoff, float]] = {}
        self._crashing: dict[Key, tuple[Backoff, float]] = {}
        #: Set when there may be something to take, or something to wait for.
        self.news = asyncio.Event()

    def add(self, key: Key, after: float = 0.0) -> None:
        """There is something new about it, now or in so many seconds; a key that failed keeps its pause."""
        due = max(self._clock() + after, self._paused_until(key))
        self._is_due(key, min(due, self._due.get(key, due)))

    def forget(self, key: Key) -> None:
        """Nothing is left to be done about it, whatever was to be."""
        for kept in (self._due, self._failing, self._crashing):
            kept.pop(key, None)

    # Who does it

    def take(self) -> Key | None:
        """The key that has been due for longest, if one is due and there is a place for it.

        It is nobody else's until ``ended`` or ``crashed``, one of which must be called.
        """
        first = self._first()
        now = self._clock()
        if first is None or first[0] > now:
            return None
        _, key, shared = first
        del self._due[key]
        self._taken[key] = now, shared
        self._sharing[shared] += 1
        return key

    def ended(self, key: Key) -> None:
        """The attempt at a key that was taken came to its end, whatever came of it."""
        self._crashing.pop(key, None)
        self._leave(key)

    def crashed(self, key: Key) -> float:
        """The attempt ended with what nobody expected: as ``failed``, with pauses of their own."""
        wait = self._pause(key, self._crashing, AFTER_CRASHES)
        self._leave(key)
        return wait

    def wait(self) -> float | None:
        """Seconds until the next key can be taken; None while that depends on others."""
        first = self._first()
        return None if first is None else max(0.0, first[0] - self._clock())

    # What came of it

    def done(self, key: Key) -> None:
        """An attempt at it succeeded."""
        self._failing.pop(key, None)

    def failed(self, key: Key, at_least: float | None = None) -> float:
        """An attempt failed: the key is due again after a pause (seconds), which is returned.

        ``at_least`` is what the server asked for (``Retry-After``).
        """
        return self._pause(key, self._failing, self._pace, at_least)

    # How things stand

    @property
    def depth(self) -> int:
        """Keys that are due and that nobody is at."""
        now = self._clock()
        return sum(due <= now for key, due in self._due.items() if key not in self._taken)

    @property
    def longest(self) -> float:
        """Seconds since the first of those keys was taken that somebody is at; 0 if there are none."""
        now = self._clock()
        return max((now - since for since, _ in self._taken.values()), default=0.0)

    def _pause(
        self,
        key: Key,
        pauses: dict[Key, tuple[Backoff, float]],
        pace: Pace,
        at_least: float | None = None,
    ) -> float:
        backoff, _ = pauses.get(key) or (Backoff(pace, self._chance), 0.0)
        wait = backoff.next(at_least)
        until = self._clock() + wait
        pauses[key] = backoff, until
        # Not later, whatever it is due for otherwise: what failed is not put off until then.
        self._is_due(key, max(self._paused_until(key), until))
        return wait

    def _paused_until(self, key: Key) -> float:
        return max((kept[key][1] for kept in (self._failing, self._crashing) if key in kept), default=0.0)

    def _is_due(self, key: Key, due: float) -> None:
        if self._due.get(key) == due:
            return
        self._due[key] = due
        if key not in self._taken:
            self._line_up(key)

    def _leave(self, key: Key) -> None:
        _, shared = self._taken.pop(key)
        self._sharing[shared] -= 1
        if not self._sharing[shared]:
            del self._sharing[shared]
        if key in self._due:
            self._line_up(key)
        self.news.set()

    def _line_up(self, key: Key) -> None:
        heapq.heappush(self._queue, (self._due[key], next(self._number), key))
        self.news.set()

    def _first(self) -> tuple[float, Key, Hashable] | None:
        """The first key for which there is a place, when it is due, and what it shares."""
        if len(self._taken) >= self._places.all:
            return None
        found = None
        passed = []
        while self._queue and found is None:
            due, _, key = self._queue[0]
            if self._due.get(key) == due and key not in self._taken:
                shared = self._shares(key)
                if shared is None or self._sharing[shared] < self._places.sharing:
                    found = due, key, shared
                    break
                passed.append(self._queue[0])
            heapq.heappop(self._queue)
        for one in passed:
            heapq.heappush(self._queue, one)
        return found
