"""A real Prometheus that scrapes latencies which a test makes up."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from closeby.kube.metrics.meters import gauge
from tests.measurements.real_prometheus import Prometheus, running


class Probes(Collector):
    """What agents on nodes would say on their ``/metrics``: the median latency of pairs, in microseconds."""

    def __init__(self) -> None:
        self._latencies: dict[tuple[str, ...], float] = {}

    def measure(self, latencies: Mapping[tuple[str, str], float]) -> None:
        """From now on it is so; pairs that are not named stay as they are. No scrape sees half of it."""
        self._latencies = dict([*self._latencies.items(), *latencies.items()])

    def collect(self) -> Iterator[Metric]:
        """As it is now."""
        yield gauge(
            "netperf_p50_latency_microseconds",
            "Median latency of requests and their responses.",
            ("origin", "destination"),
            self._latencies,
        )


@contextmanager
def measuring(directory: Path) -> Iterator[tuple[Prometheus, Probes]]:
    """Prometheus and the probes it scrapes, inside the context; without Prometheus the test is skipped."""
    registry = CollectorRegistry()
    probes = Probes()
    registry.register(probes)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        targets: Mapping[str, Mapping[str, str]] = {f"127.0.0.1:{server.server_port}": {}}
        # The probes are in this process, which may have other things to do.
        with running(Prometheus(directory, targets, scrape_seconds=1.0)) as prometheus:
            yield prometheus, probes
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
