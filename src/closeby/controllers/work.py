"""What a reconciler still has to do, by key, and when: what failed waits longer each time."""

import random
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from closeby.kube.client.backoff import Backoff, Pace

#: Between two attempts at one key (seconds).
DEFAULT_PACE: Final = Pace(first=1.0, longest=10.0)

Key = TypeVar("Key", bound=Hashable)


class Work(Generic[Key]):
    """Keys to look at. ``clock`` counts seconds and never goes back."""

    def __init__(
        self, clock: Callable[[], float], pace: Pace = DEFAULT_PACE, chance: random.Random | None = None
    ) -> None:
        self._clock = clock
        self._pace = pace
        self._chance = chance or random.Random()
        #: When each key is due.
        self._due: dict[Key, float] = {}
        self._failing: dict[Key, tuple[Backoff, float]] = {}

    def add(self, key: Key, after: float = 0.0) -> None:
        """There is something new about it, now or in so many seconds; a key that failed keeps its pause."""
        due = self._clock() + after
        failing = self._failing.get(key)
        if failing is not None:
            due = max(due, failing[1])
        self._due[key] = min(due, self._due.get(key, due))

    def forget(self, key: Key) -> None:
        """Nothing is left to be done about it, whatever was to be."""
        self._due.pop(key, None)
        self._failing.pop(key, None)

    def take(self) -> list[Key]:
        """The keys that are due, the longest waiting first; they are work no more until they are added."""
        now = self._clock()
        due = sorted((when, place, key) for place, (key, when) in enumerate(self._due.items()) if when <= now)
        for _, _, key in due:
            del self._due[key]
        return [key for _, _, key in due]

    def done(self, key: Key) -> None:
        """An attempt at it succeeded."""
        self._failing.pop(key, None)

    def failed(self, key: Key, at_least: float | None = None) -> float:
        """An attempt failed: the key is due again after a pause (seconds), which is returned.

        ``at_least`` is what the server asked for (``Retry-After``).
        """
        backoff, _ = self._failing.get(key) or (Backoff(self._pace, self._chance), 0.0)
        wait = backoff.next(at_least)
        until = self._clock() + wait
        self._failing[key] = backoff, until
        self._due[key] = max(until, self._due.get(key, until))
        return wait

    def wait(self) -> float | None:
        """Seconds until the next key is due; None while there is none. What ``reconcile`` may return."""
        if not self._due:
            return None
        return max(0.0, min(self._due.values()) - self._clock())
