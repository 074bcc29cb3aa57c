"""What a long-running command does, as numbers for Prometheus: requests, watches, the lead, the process.

The names are those of Kubernetes' own components where they mean the same (``component-base/metrics`` of
Kubernetes 1.36), so that dashboards and alerts serve; else they have the prefix ``closeby_``. What happens is
counted when it happens; what is, such as ages, is looked up at each scrape.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics import disable_created_metrics
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

import closeby
from closeby.kube.client.transport import OnRequest
from closeby.kube.watch.reflector import Reflector
from closeby.kube.watch.resources import Resource

_REQUEST_BUCKETS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class Meters:
    """The metrics of one process, in a registry of their own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` gives seconds; only for tests."""
        # Each counter would have a second series, with the time at which it was made.
        disable_created_metrics()
        self.clock = clock
        self.registry = registry = CollectorRegistry()
        self._watches = _Watches(clock)
        registry.register(self._watches)
        self._leader = Gauge(
            "leader_election_master_status",
            "Whether this process leads (1) or stands by (0), by the name of the Lease.",
            ("name",),
            registry=registry,
        )
        self._requests = Counter(
            "rest_client_requests_total",
            "HTTP requests to the API server, by status code, method and host.",
            ("code", "method", "host"),
            registry=registry,
        )
        self._latencies = Histogram(
            "rest_client_request_duration_seconds",
            "Time until an answer was complete, watches left out, by verb and host.",
            ("verb", "host"),
            buckets=_REQUEST_BUCKETS,
            registry=registry,
        )
        self._authorizations = Counter(
            "closeby_metrics_requests_total",
            "Requests for metrics and stories, where the API server says who may read, by what was answered.",
            ("ruling",),
            registry=registry,
        )
        build = Gauge(
            "closeby_build_info", "Always 1; the label says which.", ("version",), registry=registry
        )
        build.labels(closeby.full_version()).set(1)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics now, in the format that ``accept`` (a header of HTTP) asks for, and its type."""
        encode, kind = choose_encoder(accept)
        return encode(self.registry), kind

    def follows_anew(self) -> None:
        """Nothing is followed any more of what was until now."""
        self._watches.followed.clear()

    def follows(self, reflector: Reflector) -> None:
        """This kind is followed from now on."""
        self._watches.followed[reflector.resource] = reflector

    def leaves(self, resource: Resource) -> None:
        """This kind is followed no more; fine if it never was."""
        self._watches.followed.pop(resource, None)

    def leads(self, lease: str, leading: Callable[[], bool]) -> None:
        """``leading`` is called at each scrape: whether this process holds the Lease."""
        self._leader.labels(lease).set_function(lambda: float(leading()))

    def authorized(self, result: str) -> None:
        """A request for metrics or stories was authorized with this result."""
        self._authorizations.labels(result).inc()

    def requests(self, host: str) -> OnRequest:
        """What a ``Transport`` calls for each request to ``host``."""
        counters: dict[tuple[str, int | None], Counter] = {}
        histograms: dict[str, Histogram] = {}

        def requested(method: str, code: int | None, seconds: float | None) -> None:
            counter = counters.get((method, code))
            if counter is None:
                label = "<error>" if code is None else str(code)
                counter = counters[method, code] = self._requests.labels(label, method, host)
            counter.inc()
            if seconds is None:
                return
            histogram = histograms.get(method)
            if histogram is None:
                histogram = histograms[method] = self._latencies.labels(method, host)
            histogram.observe(seconds)

        return requested


def gauge(
    name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily:
    """A gauge with a value for each tuple of label values."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


class _Watches(Collector):
    """How well each kind is watched."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.followed: dict[Resource, Reflector] = {}

    def collect(self) -> Iterator[Metric]:
        """Ages and counts by kind."""
        labels = ("group", "kind")
        by_kind = {(one.group, one.kind): reflector for one, reflector in self.followed.items()}
        yield gauge(
            "closeby_watch_silence_seconds",
            "Time since the last news of a kind from the API server; something arrives about every minute.",
            labels,
            {key: self._clock() - reflector.answered_at for key, reflector in by_kind.items()},
        )
        yield gauge(
            "closeby_watched_objects",
            "Objects of a kind.",
            labels,
            {key: reflector.objects for key, reflector in by_kind.items()},
        )
        lists = CounterMetricFamily(
            "closeby_lists_total", "Times that all objects of a kind were listed.", labels=labels
        )
        watches = CounterMetricFamily(
            "closeby_watches_total", "Times that a watch of a kind was begun or resumed.", labels=labels
        )
        for key, reflector in by_kind.items():
            lists.add_metric(key, reflector.lists)
            watches.add_metric(key, reflector.watches)
        yield from (lists, watches)
