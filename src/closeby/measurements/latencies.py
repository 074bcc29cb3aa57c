"""How long nodes take to answer each other, as probes on them measured it and Prometheus keeps it.

The metrics are those of the network-aware scheduling KEP: for every probed pair the latency of requests and
their responses in microseconds; one metric each for the 50th, 90th and 99th percentile of a round of probes.
"""

import re
import threading
from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct

from closeby.measurements.addresses import ANONYMOUS, TIMEOUT, Access, address_of
from closeby.measurements.bandwidth import Cause, Unavailable
from closeby.measurements.fetching import Client, refusal
from closeby.measurements.links import Links, Packer
from closeby.measurements.prometheus import query_address, usable_number
from closeby.measurements.series import SeriesStream

#: The KEP's metrics. Any other will do that has the labels ``origin`` and ``destination``, and microseconds.
METRICS: Final = tuple(f"netperf_{percentile}_latency_microseconds" for percentile in ("p50", "p90", "p99"))
#: Of an answer, in bytes: latencies between 500 nodes in all directions.
LONGEST: Final = 32 * 1024 * 1024
#: A greater one is not a latency: an hour, in microseconds.
GREATEST: Final = 3.6e9
#: Names of no node that are remembered of one answer, to tell of them.
_MOST_UNKNOWN: Final = 1000
_LONGEST_NAME: Final = 253
_METRIC_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")
#: Several answers are read at the same time, but decoded one after another: the interpreter decodes no faster
#: otherwise, and its other threads (an event loop) would wait for all of them.
_DECODING: Final = threading.Lock()


class Latencies(Struct, frozen=True, kw_only=True):
    """What was measured between nodes that are known."""

    links: Links
    #: Series that name no two nodes, or have no usable value.
    unusable: int = 0
    #: Names that no known node has; of very many some, and the number of the series with others.
    unknown_names: tuple[str, ...] = ()
    more_unknown: int = 0

    @property
    def empty(self) -> bool:
        """Whether nothing at all was measured, between whatever nodes."""
        return not self.links and not self.unknown_names


class _Names(Struct, frozen=True, gc=False):
    origin: str = ""
    destination: str = ""


class _Series(Struct, frozen=True):
    metric: _Names
    value: tuple[float, str]


class _Reading:
    """What was read of one answer so far."""

    def __init__(self, known: Collection[str] | None) -> None:
        self._known = known
        self._packer = Packer()
        self._unusable = 0
        self._unknown_names: set[str] = set()
        self._more = 0

    def take(self, series: Sequence[_Series]) -> None:
        # There may be hundreds of thousands, of which a few operations each are seconds.
        known, add = self._known, self._packer.add
        for one in series:
            value = usable_number(one.value[1])
            names = one.metric
            origin, destination = names.origin, names.destination
            if value is None or value > GREATEST or not origin or not destination:
                self._unusable += 1
            elif known is None or (origin in known and destination in known):
                add(origin, destination, value)
            else:
                self._unknown(origin, destination)

    def latencies(self) -> Latencies:
        return Latencies(
            links=Links(self._packer),
            unusable=self._unusable,
            unknown_names=tuple(sorted(self._unknown_names)),
            more_unknown=self._more,
        )

    def _unknown(self, *names: str) -> None:
        for name in names:
            shown = name[:_LONGEST_NAME]
            if name in (self._known or ()) or shown in self._unknown_names:
                continue
            if len(self._unknown_names) < _MOST_UNKNOWN:
                self._unknown_names.add(shown)
            else:
                self._more += 1


class PrometheusLatencies:
    """The latencies that one Prometheus server has seen in the last ``minutes``."""

    def __init__(
        self,
        address: str,
        *,
        minutes: int,
        metric: str = METRICS[0],
        access: Access = ANONYMOUS,
        timeout: float = TIMEOUT,
    ) -> None:
        """``address`` such as ``http://prometheus:9090``; ``metric`` a name that ``is_metric`` takes;
        ``timeout`` in seconds.
        """
        self._url = query_address(address)
        self.query = latency_query(metric, minutes)
        self._client = Client(access, timeout)

    def read(self, known: Collection[str] | None = None) -> Latencies | Unavailable:
        """Asks once; this may take as long as the timeout. No measurements at all are ``Unavailable`` too.

        Only latencies between ``known`` names are kept; None: all. No redirect is followed.
        """
        url, source = f"{self._url}?{urlencode({'query': self.query})}", address_of(self._url)
        reader = _Reader(source, known)
        head = self._client.stream(url, reader.feed, LONGEST)
        if isinstance(head, Unavailable):
            return head
        if refused := refusal(head, source):
            return refused
        found = reader.end(head.status)
        if isinstance(found, Latencies) and found.empty:
            return Unavailable(
                f"{source} has no latencies for {self.query}", "do the probes run?", cause=Cause.EMPTY
            )
        return found


def is_metric(name: str) -> bool:
    """Whether Prometheus takes this as the name of a metric."""
    return _METRIC_NAME.fullmatch(name) is not None


def latency_query(metric: str, minutes: int) -> str:
    """PromQL: for each pair the median over the time range; of all its series, if probes were restarted."""
    return f"quantile by (origin, destination) (0.5, quantile_over_time(0.5, {metric}[{minutes}m]))"


def parse_latencies(content: bytes, source: str, status: str = "200 OK") -> Latencies | Unavailable:
    """The latencies in an answer of ``/api/v1/query``; ``source`` and ``status`` are for messages."""
    reader = _Reader(source, None)
    return reader.feed(content) or reader.end(status)


class _Reader:
    """Makes latencies of one answer."""

    def __init__(self, source: str, known: Collection[str] | None) -> None:
        self._reading = _Reading(known)
        self._stream: SeriesStream[_Series] = SeriesStream(source, tuple[_Series, ...], self._reading.take)

    def feed(self, chunk: bytes) -> Unavailable | None:
        with _DECODING:
            return self._stream.feed(chunk)

    def end(self, status: str) -> Latencies | Unavailable:
        with _DECODING:
            return self._stream.end(status) or self._reading.latencies()
