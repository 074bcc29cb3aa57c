"""The results of probes: the latest latencies, how old they are, and how often probes failed and why."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock

from msgspec import Struct


class PeerLatency(Struct, frozen=True, kw_only=True):
    """What one probe of one peer found: requests and their responses, in microseconds."""

    p50: float
    #: None where a program reports only a mean, which is ``p50`` then.
    p90: float | None = None
    p99: float | None = None
    #: How many answers that is of.
    samples: int


class LatencyResult(Struct, frozen=True):
    """A figure, and its age in seconds."""

    value: PeerLatency
    age: float


def latency_of(microseconds: Sequence[float]) -> PeerLatency:
    """The percentiles of at least one time: each the smallest time that so many did not exceed."""
    times = sorted(microseconds)

    def percentile(share: float) -> float:
        return times[max(0, math.ceil(share * len(times)) - 1)]

    return PeerLatency(p50=percentile(0.5), p90=percentile(0.9), p99=percentile(0.99), samples=len(times))


class Results:
    """Of one agent, by the names of its peers; written by the thread that asks, read by who looks."""

    def __init__(self, oldest: float, clock: Callable[[], float] = time.monotonic) -> None:
        """What is older than ``oldest`` seconds counts no more."""
        self._oldest = oldest
        self._clock = clock
        self._lock = Lock()
        self._latencies: dict[str, tuple[PeerLatency, float]] = {}
        self._bandwidths: dict[str, tuple[float, float]] = {}
        self._failures: Counter[str] = Counter()
        self._probes = 0

    def measured(self, peer: str, latency: PeerLatency) -> None:
        """A probe went well."""
        with self._lock:
            self._probes += 1
            self._latencies[peer] = latency, self._clock()

    def carries(self, peer: str, bits: float) -> None:
        """So many bits/s went to a peer."""
        with self._lock:
            self._bandwidths[peer] = bits, self._clock()

    def failed(self, reason: str) -> None:
        """A probe came to nothing. What was measured before stands until it is too old."""
        with self._lock:
            self._failures[reason] += 1

    def keep(self, peers: Collection[str]) -> None:
        """All others are gone, and what was measured of them."""
        with self._lock:
            for kept in (self._latencies, self._bandwidths):
                for name in [one for one in kept if one not in peers]:
                    del kept[name]

    def latencies(self) -> Mapping[str, LatencyResult]:
        """What counts now."""
        with self._lock:
            ages = ((peer, value, self._clock() - at) for peer, (value, at) in self._latencies.items())
            return {peer: LatencyResult(value, age) for peer, value, age in ages if age <= self._oldest}

    def bandwidths(self) -> Mapping[str, float]:
        """Bits/s that count now."""
        with self._lock:
            since = self._clock() - self._oldest
            return {peer: bits for peer, (bits, at) in self._bandwidths.items() if at >= since}

    def failures(self) -> Mapping[str, int]:
        """How often each reason was why a probe came to nothing."""
        with self._lock:
            return dict(self._failures)

    @property
    def probes(self) -> int:
        """Probes that went well."""
        return self._probes
