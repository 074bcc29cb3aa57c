"""How much of the network an agent may use, for itself and for others."""

import time
from collections.abc import Callable
from threading import Lock

from msgspec import Struct


class ResponderLimits(Struct, frozen=True, kw_only=True):
    """What an agent asks of peers, and what it grants them. Times in seconds."""

    #: Questions of one probe whose time is taken, and those before that warm the connection up.
    trips: int = 50
    warm: int = 5
    #: One probe, all in all; and at least so many answers must come within it.
    within: float = 2.0
    least: int = 5
    #: Probes that are begun, and bytes that they send and receive, per second.
    probes: float = 5.0
    bytes: float = 1_000_000.0
    #: Peers that are answered at the same time: all together, and from one address.
    connections: int = 32
    per_address: int = 4
    #: Conversations that are begun with us, per second: all together, and from one address.
    arrivals: float = 100.0
    arrivals_per_address: float = 25.0
    #: Until a client has authenticated, and until it is done.
    proof_within: float = 1.0
    served_within: float = 10.0
    #: Requests that one client may send.
    questions: int = 1000


class Bucket:
    """So much a second, and after a pause up to a second's worth at once; for several threads."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``rate`` is a number per second."""
        self._rate = rate
        self._clock = clock
        self._lock = Lock()
        self._left = self._most(1.0)
        self._seen = clock()

    def wait(self, amount: float = 1.0) -> float:
        """Takes ``amount`` in any case; seconds to wait before it may be used."""
        with self._lock:
            self._refill(amount)
            self._left -= amount
            return max(0.0, -self._left / self._rate)

    def take(self, amount: float = 1.0) -> bool:
        """Takes ``amount`` if it is there."""
        with self._lock:
            self._refill(amount)
            if self._left < amount:
                return False
            self._left -= amount
            return True

    def _refill(self, amount: float) -> None:
        now = self._clock()
        self._left = min(self._most(amount), self._left + (now - self._seen) * self._rate)
        self._seen = now

    def _most(self, amount: float) -> float:
        # What is greater than a second's worth must fit too, or it would never be had.
        return max(self._rate, amount)
