"""How long to wait before the next attempt: longer after each failure, and never all clients at once."""

import random

from msgspec import Struct


class RequestPace(Struct, frozen=True):
    """Seconds: the first wait is about ``first``, each further one twice as long, none beyond ``longest``."""

    first: float = 0.1
    longest: float = 10.0


class Backoff:
    """Counts failures in a row and says how long to wait after each."""

    def __init__(self, pace: RequestPace, chance: random.Random | None = None) -> None:
        self._pace = pace
        self._chance = chance or random.Random()
        self.failures = 0

    def next(self, at_least: float | None = None) -> float:
        """Seconds to wait after one more failure: half to all of the step, or what the server asked for.

        A wait that the server asked for (``Retry-After``) is lengthened by up to a quarter, so that clients
        which were told the same do not come back together.
        """
        step = min(self._pace.longest, self._pace.first * 2.0 ** min(self.failures, 32))
        self.failures += 1
        wait = step * self._chance.uniform(0.5, 1.0)
        if at_least is not None:
            wait = max(wait, at_least * self._chance.uniform(1.0, 1.25))
        return wait

    def reset(self) -> None:
        """Things went well."""
        self.failures = 0
