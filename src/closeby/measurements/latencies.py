"""How long nodes take to answer each other, as probes on them measured it and Prometheus keeps it.

The metrics are those of the network-aware scheduling KEP: for every probed pair the latency of requests and
their responses in microseconds; one metric each for the 50th, 90th and 99th percentile of a round of probes.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import urlencode

from msgspec import Struct

from closeby.measurements.access import ANYBODY, Access, Client
from closeby.measurements.bandwidth import Unavailable
from closeby.measurements.fetching import TIMEOUT, address_of, refusal
from closeby.measurements.prometheus import parse_series, query_address, usable_number

#: The KEP's metrics. Any other will do that has the labels ``origin`` and ``destination``, and microseconds.
METRICS: Final = tuple(f"netperf_{percentile}_latency_microseconds" for percentile in ("p50", "p90", "p99"))
#: Of an answer, in bytes: latencies between 500 nodes in all directions. Whoever may write a NetworkTopology
#: names who answers.
LONGEST: Final = 32 * 1024 * 1024
#: A greater one is no latency: an hour, in microseconds.
GREATEST: Final = 3.6e9
_METRIC_NAME: Final = re.compile(r"[A-Za-z_:][A-Za-z0-9_:]*")


class Latency(NamedTuple):
    """From one node to another; names as the probes give them."""

    origin: str
    destination: str
    microseconds: float


class Latencies(Struct, frozen=True):
    """What was measured. ``unusable`` counts the series that name no two nodes, or have no usable value."""

    links: tuple[Latency, ...]
    unusable: int = 0


class _Names(Struct, frozen=True, gc=False):
    origin: str = ""
    destination: str = ""


class _Series(Struct, frozen=True):
    metric: _Names
    value: tuple[float, str]


class PrometheusLatencies:
    """The latencies that one Prometheus server has seen in the last ``minutes``."""

    def __init__(
        self,
        address: str,
        *,
        minutes: int,
        metric: str = METRICS[0],
        access: Access = ANYBODY,
        timeout: float = TIMEOUT,
    ) -> None:
        """``address`` such as ``http://prometheus:9090``; ``metric`` a name that ``is_metric`` takes;
        ``timeout`` in seconds.
        """
        self._url = query_address(address)
        self.query = latency_query(metric, minutes)
        self._client = Client(access, timeout)

    def read(self) -> Latencies | Unavailable:
        """Asks once; this may take as long as the timeout. No measurements at all are ``Unavailable`` too."""
        url, source = f"{self._url}?{urlencode({'query': self.query})}", address_of(self._url)
        answer = self._client.get(url, LONGEST)
        if isinstance(answer, Unavailable):
            return answer
        if refused := refusal(answer, source):
            return refused
        found = parse_latencies(answer.body, source, answer.status)
        if isinstance(found, Latencies) and not found.links:
            return Unavailable(f"{source} has no latencies for {self.query}", "do the probes run?")
        return found


def is_metric(name: str) -> bool:
    """Whether Prometheus takes this as the name of a metric."""
    return _METRIC_NAME.fullmatch(name) is not None


def latency_query(metric: str, minutes: int) -> str:
    """PromQL: for each pair the median over the time range; of all its series, if probes were restarted."""
    return f"quantile by (origin, destination) (0.5, quantile_over_time(0.5, {metric}[{minutes}m]))"


def parse_latencies(content: bytes, source: str, status: str = "200 OK") -> Latencies | Unavailable:
    """The latencies in an answer of ``/api/v1/query``; ``source`` and ``status`` are for messages."""
    series = parse_series(content, source, status, tuple[_Series, ...])
    if isinstance(series, Unavailable):
        return series
    links = []
    for one in series:
        value = usable_number(one.value[1])
        if value is not None and value <= GREATEST and one.metric.origin and one.metric.destination:
            links.append(Latency(one.metric.origin, one.metric.destination, value))
    return Latencies(tuple(links), len(series) - len(links))
