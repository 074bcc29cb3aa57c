"""What the status of a NetworkTopology should say (network-aware scheduling KEP), from all that is known.

Costs that were calculated once stay for a while when nothing can be measured, and a condition says so, and
since when. Then they are dropped, which the condition says too: a network is not what it was days ago.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from closeby.controllers.networks.settings import SettingsReading
from closeby.controllers.networks.weights import Detour, NetworkPlace, NetworkWeights, weights_of
from closeby.controllers.statuses import VALID, SeenStatus, WantedStatus, validity
from closeby.kube.writing.writer import StatusCondition, moment
from closeby.measurements.latencies import Latencies
from closeby.objects.applications import NetworkTopology
from closeby.objects.bounds import sentences, some
from closeby.objects.quantities import utc
from closeby.objects.reasons import Condition

#: Whether latencies could be read; if not, since when (``lastTransitionTime``).
MEASURED: Final = "LatenciesMeasured"
#: Whether every node is among them.
ALL_NODES: Final = "AllNodesMeasured"
#: Whether all costs are listed.
LISTED: Final = "AllCostsListed"
_TYPES: Final = frozenset((VALID, MEASURED, ALL_NODES, LISTED))
#: As long as costs stay as they are, so does what was said of them.
_WITHOUT_NEWS: Final = frozenset((VALID, MEASURED))

#: Names that a condition gives; it counts the others.
_SHOWN: Final = 3


class Failure(Struct, frozen=True):
    """Why there are no new latencies: a token, and a sentence."""

    reason: str
    sentence: str


class Measurement(Struct, frozen=True, kw_only=True):
    """What came of measuring: the last latencies that could be read, and what went wrong since."""

    latencies: Latencies | None = None
    #: When they were read, in seconds since the epoch.
    time: float = 0.0
    failure: Failure | None = None


class Limit(Struct, frozen=True):
    """How old costs may get while nothing can be measured; ``now`` is in seconds since the epoch."""

    now: float
    seconds: float

    def exceeded(self, time: object) -> bool:
        """Whether an RFC 3339 time is longer ago; False for what is none."""
        since = moment(time)
        return since is not None and self.now - since >= self.seconds


def network_status(
    it: SeenStatus,
    network: NetworkTopology | Condition,
    reading: SettingsReading,
    measurement: Measurement | None,
    nodes: Mapping[str, NetworkPlace],
    limit: Limit | None = None,
) -> WantedStatus:
    """The status that ``it`` should have; ``measurement`` is None where nothing is measured.

    Without a ``limit`` costs never get too old.
    """
    fields: dict[str, object] = {"nodeCount": len(nodes)}
    if not it.is_kep:
        return WantedStatus(fields=fields)
    conditions = [validity(_problems(network, reading), it.generation)]
    types = _WITHOUT_NEWS if reading.measured else _TYPES
    if reading.measured and measurement is not None:
        weights = None
        if measurement.latencies is not None:
            algorithm = network.algorithm if isinstance(network, NetworkTopology) else ""
            weights = weights_of(measurement.latencies.links, nodes, algorithm)
        if weights is not None:
            fields["weights"] = [weights.entry]
            fields["weightCalculationTime"] = utc(measurement.time)
        time = str(fields.get("weightCalculationTime") or it.status.get("weightCalculationTime") or "")
        failed = measurement.failure is not None or weights is None
        dropped = limit if failed and limit is not None and limit.exceeded(time) else None
        conditions.append(_measured(measurement, weights, time, dropped))
        if dropped is not None:
            fields["weights"] = None
            types = _TYPES
        elif weights is not None:
            conditions += [_all_nodes(measurement, weights, len(nodes)), _listed(weights)]
            types = _TYPES
    return WantedStatus(fields=fields, conditions=conditions, types=types)


def _problems(network: NetworkTopology | Condition, reading: SettingsReading) -> tuple[Condition, ...]:
    """What is wrong with the spec; the status is our own."""
    if isinstance(network, Condition):
        return (network, *reading.problems)
    about_spec = (one for one in network.conditions if not one.field.startswith("status"))
    return (*about_spec, *reading.problems)


def _measured(
    measurement: Measurement, weights: NetworkWeights | None, time: str, dropped: Limit | None
) -> StatusCondition:
    failure = measurement.failure
    if failure is None and weights is None:
        links = measurement.latencies.links if measurement.latencies else ()
        names = _unknown_names(measurement.latencies, {link.origin for link in links})
        failure = Failure("NoNodeMeasured", f"no node of the cluster was measured, but {names}")
    if failure is None:
        detours = () if weights is None else weights.detours
        return StatusCondition(type=MEASURED, status="True", reason="Measured", message=_around(detours))
    stale = f"the costs are those of {time}" if time else "no costs are known yet"
    if dropped is not None:
        stale = f"the costs of {time} were dropped, for they are more than {_duration(dropped.seconds)} old"
    return StatusCondition(
        type=MEASURED,
        status="False",
        reason=failure.reason,
        message=f"{stale}; {failure.sentence}",
    )


def _all_nodes(measurement: Measurement, weights: NetworkWeights, nodes: int) -> StatusCondition:
    missing = weights.unmeasured
    told = [f"{len(missing)} of {nodes} nodes were not measured: {some(missing, _SHOWN)}"] if missing else []
    if unknown_names := _unknown_names(measurement.latencies, weights.unknown_names):
        told.append(f"no node has the names {unknown_names}")
    if measurement.latencies is not None and measurement.latencies.unusable:
        told.append(f"{measurement.latencies.unusable} series are no latencies between two nodes")
    return StatusCondition(
        type=ALL_NODES,
        status="False" if missing else "True",
        reason="NodesNotMeasured" if missing else "Measured",
        message="; ".join(told),
    )


def _unknown_names(latencies: Latencies | None, gone: Collection[str]) -> str:
    """Names of no node: those that were none when it was measured, and those whose nodes are ``gone``."""
    if latencies is None:
        return some(sorted(gone), _SHOWN)
    more = latencies.more_unknown
    told = some(sorted({*latencies.unknown_names, *gone}), _SHOWN)
    return f"{told}, and others in {more} series" if more else told


def _listed(weights: NetworkWeights) -> StatusCondition:
    return StatusCondition(
        type=LISTED,
        status="False" if weights.omitted else "True",
        reason="TooManyCosts" if weights.omitted else "Listed",
        message=sentences(weights.omitted),
    )


def _around(detours: Sequence[Detour]) -> str:
    """Packets need not take the shortest path; the explanation of a cost is here."""
    if not detours:
        return ""
    pairs = "1 pair of nodes was" if len(detours) == 1 else f"{len(detours)} pairs of nodes were"
    worst = detours[0]
    return (
        f"{pairs} measured as much farther apart than the way over other nodes, which counts: "
        f"{worst.one} and {worst.other} {worst.measured} instead of {worst.counts} microseconds"
    )


def _duration(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:g} h" if hours >= 1 else f"{seconds:g} s"
