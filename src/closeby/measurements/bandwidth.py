"""How busy the nodes' network links are, as a metrics system measured it.

A provider reads host by host what it finds; which node a host is, is found out here, so that nodes that come
later are matched without asking again. What is odd about the measurements is data beside them.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from closeby.objects.reasons import Condition, Problem, invalid

#: The two figures about one host and one direction of traffic.
Operator = Literal["average", "deviation"]

#: Hosts or nodes that a condition names; it counts the others.
NAMED = 3


class NodeBandwidth(Struct, frozen=True, kw_only=True):
    """Traffic of one node in bits/s over some window, of the busier direction."""

    average: float
    #: Standard deviation.
    deviation: float = 0.0
    #: End of the window, seconds since the epoch; None when the source does not say.
    measured: float | None = None


class Cause(Enum):
    """Why there is nothing to read, without a word of what a server said."""

    UNREACHABLE = "can't be reached"
    LATE = "does not answer in time"
    UNUSABLE = "gives no answer that can be used"
    EMPTY = "has nothing of what was asked for"


class Unavailable(Problem, frozen=True):
    """Why there is nothing to read."""

    cause: Cause = Cause.UNUSABLE


class BandwidthMeasurements(Struct, frozen=True, kw_only=True):
    """Measurements by node; a node without one is absent."""

    of: Mapping[str, NodeBandwidth]
    #: Hosts that match no node, nodes without a host, bad values, missing operators.
    problems: tuple[Condition, ...] = ()


class BandwidthReadings:
    """Measurements by host, as the source names hosts: ``node-1``, ``10.0.0.7:9100``, ``[fd00::7]:9100``."""

    def __init__(
        self,
        source: str,
        hosts: Mapping[str, NodeBandwidth],
        problems: tuple[Condition, ...] = (),
        window: float = 0.0,
    ) -> None:
        #: Where they come from, for messages.
        self.source = source
        self.hosts = hosts
        #: Seconds that averages are taken over; 0 where that is not known.
        self.window = window
        #: What is odd about them, whatever nodes there are.
        self.problems = problems
        self._by_part: dict[str, str] = {}
        for host in sorted(hosts, reverse=True):
            self._by_part[host_part(host)] = host

    @property
    def measured(self) -> float | None:
        """When the newest of them was measured; None when the source does not say, or knows no host."""
        return max((one.measured for one in self.hosts.values() if one.measured is not None), default=None)

    def host_of(self, names: Iterable[str]) -> str | None:
        """The host of a node that goes by these names, the best one first; None when there is none.

        A host is meant by its whole name before it is meant by what stands before its port.
        """
        listed = tuple(names)
        whole = next((name for name in listed if name in self.hosts), None)
        if whole is not None:
            return whole
        return next((self._by_part[name] for name in listed if name in self._by_part), None)

    def of_nodes(self, nodes: Mapping[str, Sequence[str]]) -> BandwidthMeasurements:
        """Measurements of nodes, given by name with all the names each goes by, its own first."""
        hosts = {node: self.host_of(names) for node, names in nodes.items()}
        found = {node: self.hosts[host] for node, host in hosts.items() if host is not None}
        taken = {host for host in hosts.values() if host is not None}
        parts = {host_part(host) for host in taken}
        spare = [host for host in self.hosts if host not in taken]
        missing = [node for node, host in hosts.items() if host is None]
        problems = (
            *self.problems,
            *problem(
                self.source,
                [host for host in spare if host_part(host) not in parts],
                "measured hosts match no node",
                "relabel `instance` to the node's name",
            ),
            *problem(
                self.source,
                [host for host in spare if host_part(host) in parts],
                "hosts are left aside, as their node has another one",
                "measure each node once",
            ),
            *problem(
                self.source, missing, "nodes are not measured", "they count as using what their pods request"
            ),
        )
        return BandwidthMeasurements(of=found, problems=problems)


class BandwidthProvider(Protocol):
    """A metrics system to ask."""

    def read(self) -> BandwidthReadings | Unavailable:
        """The newest measurements of all hosts; this may take as long as the provider's timeout."""
        ...


class Sample(NamedTuple):
    """One figure about one host in one direction, in bits/s."""

    host: str
    operator: Operator
    bits: float


def readings_of(
    source: str,
    samples: Iterable[Sample],
    measured: float | None,
    problems: Iterable[Condition] = (),
    *,
    window: float = 0.0,
    sampled: Mapping[str, float] | None = None,
) -> BandwidthReadings:
    """Samples by host: per operator the greater direction counts.

    A host without an average is left out, one without a deviation counts as steady; both are reported.
    ``measured`` is when all were measured, but for hosts of which ``sampled`` knows better.
    """
    figures: dict[Operator, dict[str, float]] = {"average": {}, "deviation": {}}
    for host, operator, bits in samples:
        known = figures[operator]
        known[host] = max(known.get(host, 0.0), bits)
    average, deviation = figures["average"], figures["deviation"]
    hosts = {
        host: NodeBandwidth(
            average=average[host],
            deviation=deviation.get(host, 0.0),
            measured=measured if sampled is None else sampled.get(host, measured),
        )
        for host in sorted(average)
    }
    missing = (
        *problem(
            source,
            [host for host in deviation if host not in average],
            "hosts have a deviation but no average",
            "they are left out",
        ),
        *problem(
            source,
            [host for host in average if host not in deviation],
            "hosts have no deviation",
            "they count as steady",
        ),
    )
    return BandwidthReadings(source, hosts, (*problems, *missing), window)


def problem(source: str, names: Iterable[str], message: str, remedy: str) -> tuple[Condition, ...]:
    """One condition about all the hosts or nodes named, none without names."""
    listed = sorted(set(names))
    if not listed:
        return ()
    shown = ", ".join(listed[:NAMED]) + (", …" if len(listed) > NAMED else "")
    return (invalid(f"BandwidthMetrics/{source}", "", f"{message} ({len(listed)}: {shown})", remedy),)


def host_part(host: str) -> str:
    """A host without its port: ``10.0.0.7:9100`` is ``10.0.0.7``, ``[fd00::7]:9100`` is ``fd00::7``."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and ":" not in name else host
