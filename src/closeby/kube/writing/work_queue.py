"""A work queue: what is still to be done, by key, and when; no key is done twice at the same time.

As in client-go's workqueue a key that is added while a worker has it is due again when that attempt ends, and
a key that fails waits longer each time.

Namespaces share the workers fairly:

* They take turns: of the keys that are due, one of the next namespace in the round is taken.
* A namespace may have only as many places as are free besides (half of all where it is alone, as with dynamic
  thresholds of shared buffers). However many keys of one namespace hang, another one finds a place.
* Keys that failed before may have half of all places together. Retries that hang leave the rest to
  new keys.

Besides, keys may share something slow, such as a server, and then get some of the places only. And no more
keys may be taken in a second than a rate allows.
"""

import asyncio
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

from msgspec import Struct

from closeby.kube.client.waiting import Backoff, RequestPace

#: Between two attempts at one key (seconds).
DEFAULT_PACE: Final = RequestPace(first=1.0, longest=10.0)
#: The same after attempts that ended with an unexpected error, which will hardly cure itself.
AFTER_CRASHES: Final = RequestPace(first=1.0, longest=60.0)
#: So many entries are kept whether they count or not.
_MANY: Final = 64

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T", bound=Hashable)


class Places(Struct, frozen=True, kw_only=True):
    """How many keys may be taken at the same time: of all, and of those that share something."""

    all: int = 16
    sharing: int = 16
    #: Keys taken in a second; None: as many as there are places for.
    rate: float | None = None

    @property
    def retries(self) -> int:
        """How many of those that failed before."""
        return max(1, self.all // 2)


class _Lane(NamedTuple):
    """Due keys of one namespace that may be taken, or may not, for the same reason."""

    shared: Hashable
    retry: bool


class _Taken(NamedTuple):
    since: float
    namespace: str
    lane: _Lane


class WorkQueue(Generic[Key]):
    """Keys to look at. ``clock`` counts seconds and never goes back."""

    def __init__(
        self,
        clock: Callable[[], float],
        namespace: Callable[[Key], str],
        pace: RequestPace = DEFAULT_PACE,
        chance: random.Random | None = None,
        *,
        places: Places | None = None,
        shares: Callable[[Key], Hashable] | None = None,
    ) -> None:
        """``namespace`` says whose key it is (empty: of the cluster); ``shares`` what it has in common with
        others (None: nothing).
        """
        self._clock = clock
        self._namespace = namespace
        self._pace = pace
        self._chance = chance or random.Random()
        self._places = places or Places()
        self._shares = shares or (lambda key: None)
        #: When each key is due.
        self._due: dict[Key, float] = {}
        #: Keys that are due later, in order, with a number that keeps the order of arrival. An entry does not
        #: count if its key has another time in ``_due`` by now, or is taken.
        self._later: list[tuple[float, int, Key]] = []
        self._number = itertools.count()
        #: Keys that are due, by namespace in the order of turns, and by lane in the order of their times.
        self._rounds: dict[str, dict[_Lane, dict[Key, None]]] = {}
        #: Where each of those stands.
        self._ready: dict[Key, tuple[str, _Lane]] = {}
        self._taken: dict[Key, _Taken] = {}
        #: How many are taken, by namespace and by what they share; and how many that failed before.
        self._held: Counter[str] = Counter()
        self._sharing: Counter[Hashable] = Counter()
        self._retries = 0
        self._failing: dict[Key, tuple[Backoff, float]] = {}
        self._crashing: dict[Key, tuple[Backoff, float]] = {}
        #: Seconds between two keys, and when the next one may be taken.
        self._interval = 0.0 if self._places.rate is None else 1.0 / self._places.rate
        self._next_at = clock()
        #: Set when there may be something to take, or something to wait for.
        self.news = asyncio.Event()

    def add(self, key: Key, after: float = 0.0) -> None:
        """There is something new about it, now or in so many seconds; a key that failed keeps its pause."""
        due = max(self._clock() + after, self._paused_until(key))
        self._is_due(key, min(due, self._due.get(key, due)))

    def forget(self, key: Key) -> None:
        """Nothing is left to be done about it, whatever was to be."""
        self._leave_line(key)
        for kept in (self._due, self._failing, self._crashing):
            kept.pop(key, None)

    # Who does it

    def take(self) -> Key | None:
        """The key whose turn it is, if one is due and there is a place for it.

        No other worker gets it until ``ended`` or ``crashed``, one of which must be called.
        """
        found = self._next()
        if found is None:
            return None
        key, namespace, lane = found
        self._leave_line(key)
        # The others come first now.
        if namespace in self._rounds:
            self._rounds[namespace] = self._rounds.pop(namespace)
        del self._due[key]
        self._taken[key] = _Taken(self._clock(), namespace, lane)
        self._held[namespace] += 1
        self._sharing[lane.shared] += 1
        self._retries += lane.retry
        self._next_at = max(self._next_at, self._clock()) + self._interval
        return key

    def spared(self) -> None:
        """The attempt at a key had nothing to do: it does not count towards the rate."""
        self._next_at -= self._interval

    def ended(self, key: Key) -> None:
        """The attempt at a key that was taken came to its end, whatever came of it."""
        self._crashing.pop(key, None)
        self._release(key)

    def crashed(self, key: Key) -> float:
        """The attempt ended with an unexpected error: as ``failed``, with pauses of their own."""
        wait = self._pause(key, self._crashing, AFTER_CRASHES)
        self._release(key)
        return wait

    def wait(self) -> float | None:
        """Seconds until the next key can be taken; None while that depends on others."""
        if len(self._taken) >= self._places.all:
            return None
        # Read before it is asked for the next key, or its time could come between the two.
        now = self._clock()
        if self._next() is not None:
            return 0.0
        if self._rounds and (pause := self._next_at - now) > 0:
            return pause
        return max(0.0, self._later[0][0] - self._clock()) if self._later else None

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
    def keys(self) -> tuple[Key, ...]:
        """All that are due, now or later."""
        return tuple(self._due)

    @property
    def depth(self) -> int:
        """Keys that are due and that no worker has."""
        now = self._clock()
        return sum(due <= now for key, due in self._due.items() if key not in self._taken)

    @property
    def longest(self) -> float:
        """Seconds since the first of those keys was taken that a worker has; 0 if there are none."""
        now = self._clock()
        return max((now - one.since for one in self._taken.values()), default=0.0)

    def stuck(self, seconds: float) -> dict[Key, float]:
        """Keys whose attempt takes longer than ``seconds``, and how long it has taken so far."""
        now = self._clock()
        return {key: now - one.since for key, one in self._taken.items() if now - one.since > seconds}

    def _pause(
        self,
        key: Key,
        pauses: dict[Key, tuple[Backoff, float]],
        pace: RequestPace,
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
        changed = self._due.get(key) != due
        self._due[key] = due
        if key in self._taken:
            return
        # What it shares may have changed with it.
        if changed or self._ready.get(key, (None, None))[1] != self._lane(key):
            self._line_up(key)

    def _release(self, key: Key) -> None:
        _, namespace, lane = self._taken.pop(key)
        self._retries -= lane.retry
        _less(self._held, namespace)
        _less(self._sharing, lane.shared)
        if key in self._due:
            self._line_up(key)
        self.news.set()

    def _line_up(self, key: Key) -> None:
        self._leave_line(key)
        heapq.heappush(self._later, (self._due[key], next(self._number), key))
        if len(self._later) > _MANY + 2 * len(self._due):
            # What was forgotten, or is due at another time by now, takes no memory until its time has come.
            counting = {entry[2]: entry for entry in self._later if self._due.get(entry[2]) == entry[0]}
            self._later = list(counting.values())
            heapq.heapify(self._later)
        self.news.set()

    def _leave_line(self, key: Key) -> None:
        """It stands among those that are due no longer."""
        place = self._ready.pop(key, None)
        if place is None:
            return
        namespace, lane = place
        lanes = self._rounds[namespace]
        del lanes[lane][key]
        if not lanes[lane]:
            del lanes[lane]
        if not lanes:
            del self._rounds[namespace]

    def _ripen(self) -> None:
        """Lets what is due by now stand among those that take turns."""
        now = self._clock()
        while self._later:
            due, _, key = self._later[0]
            if self._due.get(key) == due and key not in self._taken and key not in self._ready:
                if due > now:
                    return
                place = self._namespace(key), self._lane(key)
                self._ready[key] = place
                self._rounds.setdefault(place[0], {}).setdefault(place[1], {})[key] = None
            heapq.heappop(self._later)

    def _lane(self, key: Key) -> _Lane:
        return _Lane(self._shares(key), key in self._failing or key in self._crashing)

    def _next(self) -> tuple[Key, str, _Lane] | None:
        """The key whose turn it is; None where there is no place for any that is due."""
        self._ripen()
        if self._clock() < self._next_at:
            return None
        free = self._places.all - len(self._taken)
        for namespace, lanes in self._rounds.items():
            if self._held[namespace] >= free:
                continue
            firsts = [(next(iter(keys)), lane) for lane, keys in lanes.items() if self._has_place(lane)]
            if firsts:
                key, lane = min(firsts, key=lambda one: self._due[one[0]])
                return key, namespace, lane
        return None

    def _has_place(self, lane: _Lane) -> bool:
        if lane.retry and self._retries >= self._places.retries:
            return False
        return lane.shared is None or self._sharing[lane.shared] < self._places.sharing


def _less(counts: Counter[T], of: T) -> None:
    counts[of] -= 1
    if not counts[of]:
        del counts[of]
