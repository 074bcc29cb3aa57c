"""What an agent has measured and done, as metrics for Prometheus.

The latencies have the network-aware scheduling KEP's names and labels; the others have the prefix
``closeby_agent_``. Everything is looked up on each scrape, so what is too old or gone is not exposed.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from closeby.agents.latency.results import Results


class AgentStatus(Struct, frozen=True, kw_only=True):
    """What else is exposed."""

    #: Peers that are known, this node among them, and rounds that are over.
    peers: int = 0
    rounds: int = 0
    #: Conversations with peers that asked, by how they ended; and those at the moment.
    outcomes: Mapping[str, int] = {}
    connections: int = 0
    #: Bits/s that the interface carries, and that the node's status says; None where that is not known.
    speed: float | None = None
    advertised: float | None = None


class AgentMeters(Collector):
    """To be registered with a registry."""

    def __init__(self, name: str, results: Results, standing: Callable[[], AgentStatus]) -> None:
        """``name`` is the own node's."""
        self._name = name
        self._results = results
        self._standing = standing

    def collect(self) -> Iterator[Metric]:
        """All metrics now."""
        yield from self._latencies()
        yield self._pairs(
            "closeby_agent_throughput_bits_per_second",
            "Bits per second that the destination received of the origin, as iperf3 measured it.",
            self._results.bandwidths(),
        )
        now = self._standing()
        failures = CounterMetricFamily(
            "closeby_agent_probe_failures_total", "Probes that came to nothing, by why.", labels=("reason",)
        )
        for reason, count in sorted(self._results.failures().items()):
            failures.add_metric((reason,), count)
        conversations = CounterMetricFamily(
            "closeby_agent_conversations_total",
            "Conversations with peers that asked, by how they ended.",
            labels=("outcome",),
        )
        for outcome, count in sorted(now.outcomes.items()):
            conversations.add_metric((outcome,), count)
        yield from (failures, conversations)
        for name, text, count in (
            ("probes_total", "Probes that went well.", self._results.probes),
            ("rounds_total", "Rounds that are over.", now.rounds),
        ):
            yield CounterMetricFamily(f"closeby_agent_{name}", text, value=count)
        for name, text, value in (
            ("peers", "Nodes with an agent, this one among them.", now.peers),
            ("connections", "Peers that ask at the moment.", now.connections),
            ("interface_bits_per_second", "What the node's interface carries.", now.speed),
            ("advertised_bits_per_second", "What the node's status says that it carries.", now.advertised),
        ):
            if value is not None:
                yield GaugeMetricFamily(f"closeby_agent_{name}", text, value=value)

    def _latencies(self) -> Iterator[Metric]:
        found = self._results.latencies()
        text = "Latency of requests and their responses"
        for share in (50, 90, 99):
            figures = ((peer, getattr(one.value, f"p{share}")) for peer, one in found.items())
            values = {peer: value for peer, value in figures if value is not None}
            yield self._pairs(
                f"netperf_p{share}_latency_microseconds", f"{text}, percentile {share}.", values
            )
        samples = {peer: one.value.samples for peer, one in found.items()}
        yield self._pairs("closeby_agent_latency_samples", "Answers that a latency is of.", samples)
        ages = {peer: one.age for peer, one in found.items()}
        yield self._pairs("closeby_agent_latency_age_seconds", "Time since a latency was measured.", ages)

    def _pairs(self, name: str, text: str, values: Mapping[str, float]) -> GaugeMetricFamily:
        family = GaugeMetricFamily(name, text, labels=("origin", "destination"))
        for peer, value in sorted(values.items()):
            family.add_metric((self._name, peer), value)
        return family
