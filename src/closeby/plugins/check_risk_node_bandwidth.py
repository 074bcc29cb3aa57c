"""CheckRiskNodeBandwidth: keeps pods off nodes whose links are, or may soon be, too busy for them.

Source: the network-aware scheduling KEP. With all amounts in bits/s::

    mu    = clamp01((average + request) / capacity)
    sigma = clamp01(margin x clamp01(deviation / capacity) ^ (1 / sensitivity))
    risk  = (mu + sigma) / 2

A node whose risk is above the threshold is refused; risk equal to it passes (to within a billionth). Capacity
is what the node offers of ``network.aware.com/bandwidth``, request what the pod asks of it.

**What is used** on a measured node is the measured average, and on top what pods request that it does not
cover: the sum of requests now minus what it covers. Of a pod that was bound when the measurement was taken in
it covers all, or, if the pod came within the time that the average is over, that share of its request: else
a new measurement would make room that is not there. When more left than came the average counts as measured:
what the pods that left had to do with it is unknown. On a node without measurements the sum of requests is
used, and the deviation is 0. The pod's own request is counted once.

Measurements come in from outside (``Measured``); when they are too old they are taken away again.
"""

import math
from collections.abc import Hashable, Iterator
from typing import NamedTuple

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from closeby.cluster.columns import UNLIMITED
from closeby.measurements.bandwidth import BandwidthReadings, NodeBandwidth
from closeby.measurements.coverage import Coverage
from closeby.measurements.providers import TrafficArguments
from closeby.objects.arrays import Counts, Scores
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.quantities import time_of_day
from closeby.objects.reasons import Condition, Reason, Rejection
from closeby.reading.decoding.bandwidth import BANDWIDTH
from closeby.scheduling.extension import Capacity, Handle
from closeby.scheduling.plugin_view import CycleState, NodeChanges, Nodes
from closeby.scheduling.services import Measured, Measurements, Source

#: Risks that differ by less are equal: they come from sums of rounded numbers.
ROUNDING = 1e-9

#: Limits that no sum of requests exceeds, and that every one exceeds.
_ENDLESS, _NOTHING = 1 << 62, -1

#: Where the kubelet notes the addresses it was started with.
_NODE_IP = "alpha.kubernetes.io/provided-node-ip"


class BandwidthArguments(TrafficArguments, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Names as in the KEP, and where measurements come from."""

    margin: float = field(name="safeVarianceMargin", default=1.0)
    sensitivity: float = field(name="safeVarianceSensitivity", default=2.0)
    threshold: float = field(name="RiskThreshold", default=0.75)

    def __post_init__(self) -> None:
        for name, value in (
            ("safeVarianceMargin", self.margin),
            ("safeVarianceSensitivity", self.sensitivity),
        ):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be a number from 0 up, not {value:g}")
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"RiskThreshold must be between 0 and 1, not {self.threshold:g}")
        super().__post_init__()


def deviation_risk(deviation: float, capacity: float, margin: float, sensitivity: float) -> float:
    """The KEP's sigma; ``capacity`` is above 0. Sensitivity 0 makes it 0."""
    if sensitivity == 0:
        return 0.0
    return _clamped(margin * _clamped(deviation / capacity) ** (1 / sensitivity))


def deviation_risks(
    deviations: Scores, capacities: Scores, margin: float, sensitivity: float
) -> NDArray[np.float64]:
    """``deviation_risk`` of many nodes, in the order given; 0 where the capacity is none."""
    if sensitivity == 0:
        return np.zeros(len(deviations))
    offered = capacities > 0
    part = np.clip(np.divide(deviations, capacities, out=np.zeros(len(deviations)), where=offered), 0.0, 1.0)
    return np.where(offered, np.clip(margin * part ** (1 / sensitivity), 0.0, 1.0), 0.0)


def node_risk(average: float, request: float, capacity: float, sigma: float) -> float:
    """The KEP's risk, from 0 to 1; amounts in bits/s, ``capacity`` above 0."""
    return (_clamped((average + request) / capacity) + sigma) / 2


class CheckRiskNodeBandwidth(Capacity, Measured):
    """The KEP's plugin of that name. Counts how many equal pods fit until the threshold is exceeded.

    Every pod is judged while there are measurements. Without any, the risk is at most 0.5, so that with a
    threshold of 0.5 or more only pods that ask for bandwidth need to be (of nodes that offer none).
    """

    name = "CheckRiskNodeBandwidth"
    shares_by_spec = True
    reason = Reason.BANDWIDTH_RISK
    Arguments = BandwidthArguments

    def __init__(self, arguments: BandwidthArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._arguments = arguments
        self._source = arguments.source()
        self._known = Measurements()
        self._links = _Links(handle, arguments)

    @property
    def source(self) -> Source | None:
        return self._source

    def take(self, measurements: Measurements) -> bool:
        before, self._known = self._known, measurements
        reading = measurements.reading
        if reading is before.reading:
            return False
        if reading is None or not isinstance(reading.values, BandwidthReadings):
            self._links.take(None)
        else:
            self._links.take(reading.values, reading.measured)
        return True

    @property
    def measured_nodes(self) -> int:
        return self._links.measured_nodes

    def class_key(self, pod: Pod) -> Hashable:
        return _request(pod.spec)

    def concerns(self, pod: Pod) -> bool:
        judges_all = self._links.known or self._arguments.threshold < 0.5
        return judges_all or _request(pod.spec) > 0

    def conditions(self) -> tuple[Condition, ...]:
        source = self._source
        if source is None:
            return ()
        return (*_standing(source, self._known), *self._links.conditions())

    def capacity(self, state: CycleState, pod: Pod, nodes: Nodes) -> Counts:
        request = _request(pod.spec)
        limits = self._links.limits()
        index = nodes.index
        if not request:
            passes = nodes.requested(BANDWIDTH) <= limits.requested[index]
            return np.where(passes & (limits.measured[index] >= 0), UNLIMITED, 0)
        left: Counts = (limits.requested[index] - nodes.requested(BANDWIDTH)) // request
        np.clip(left, 0, UNLIMITED, out=left)
        left[request > limits.measured[index]] = 0
        left[nodes.allocatable(BANDWIDTH) <= 0] = 0
        return left

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        request = _request(pod.spec)
        here = Nodes(self.handle.cluster, np.asarray([slot]))
        capacity, requested = int(here.allocatable(BANDWIDTH)[0]), int(here.requested(BANDWIDTH)[0])
        if capacity <= 0:
            return Rejection(Reason.BANDWIDTH_RISK, f"{_bits(request)} bits/s asked, none offered")
        use = self._links.use(slot, requested)
        sigma = self._links.sigma(use.deviation, capacity)
        risk = node_risk(use.average, request, capacity, sigma)
        figures = f"{use.what} {_bits(use.average)} + {_bits(request)} of {_bits(capacity)} bits/s"
        steadiness = f", deviation {_bits(use.deviation)}" if use.measured else ", not measured"
        if use.measured and self._known.trouble:
            steadiness += f", of {time_of_day(use.when)}" if use.when is not None else ", not measured lately"
        above = _above(risk, self._arguments.threshold)
        return Rejection(Reason.BANDWIDTH_RISK, f"risk {above}: {figures}{steadiness}")


class _Limits(NamedTuple):
    """The most that may be in use on each slot, in whole bits/s, so that the risk stays within the threshold.

    Shape (room,) each. Whole numbers make a count of pods exact: each pod placed leaves room for one fewer.
    """

    #: For the sum of requests, a pod's own included.
    requested: NDArray[np.int64]
    #: For what a pod asks beyond the measured average, which counts even when pods left.
    measured: NDArray[np.int64]


class _Use(NamedTuple):
    """What a node's link carries, in bits/s."""

    average: float
    deviation: float
    measured: bool
    #: When it was measured, seconds since the epoch; None when that is not known.
    when: float | None = None

    @property
    def what(self) -> str:
        return "average" if self.measured else "requested"


class _Links:
    """The limits of all nodes; follows the nodes' changes, not their use."""

    def __init__(self, handle: Handle, arguments: BandwidthArguments) -> None:
        self._cluster = handle.cluster
        self._arguments = arguments
        self._readings: BandwidthReadings | None = None
        self._coverage = Coverage(handle.cluster, BANDWIDTH)
        self._changes = NodeChanges(handle.cluster)
        self._limits = _Limits(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        #: By slot: the node's name and its host's, None for one without.
        self._hosts: dict[int, tuple[str, str | None]] = {}
        #: By slot: the measurement, with the sum of requests that it covers.
        self._measured: dict[int, tuple[NodeBandwidth, int]] = {}

    @property
    def known(self) -> bool:
        """Whether there are measurements."""
        return self._readings is not None

    @property
    def measured_nodes(self) -> int:
        """Nodes with a measurement."""
        self.limits()
        return len(self._measured)

    def take(self, readings: BandwidthReadings | None, at: float | None = None) -> None:
        """From now on these count, which were measured then; None: nothing was measured."""
        before, self._readings = self._readings, readings
        self._measured.clear()
        if readings is not None:
            self._coverage.take(readings, at)
        if readings is None or before is None or readings.hosts.keys() != before.hosts.keys():
            self._hosts.clear()
        # All are read again, so earlier changes need no check.
        self._changes.take()
        self._write_all()

    def limits(self) -> _Limits:
        """The limits, up to date."""
        changed = self._changes.take()
        if changed is None or self._cluster.alive.shape[0] != len(self._limits.requested):
            self._hosts.clear()
            self._measured.clear()
            self._write_all()
        elif len(changed):
            slots = np.unique(changed)
            for slot in slots.tolist():
                known = self._hosts.pop(slot, None)
                if known is None or known != self._host_in(slot):
                    self._measured.pop(slot, None)
            self._write(slots)
        return self._limits

    def sigma(self, deviation: float, capacity: int) -> float:
        """The part of the risk that comes from unsteady traffic."""
        return deviation_risk(deviation, capacity, self._arguments.margin, self._arguments.sensitivity)

    def use(self, slot: int, requested: int) -> _Use:
        """What is used on a slot while its pods request so much."""
        self.limits()
        entry = self._measured.get(slot)
        if entry is None:
            return _Use(requested, 0.0, measured=False)
        link, covered = entry
        return _Use(link.average + max(requested - covered, 0), link.deviation, True, link.measured)

    def conditions(self) -> tuple[Condition, ...]:
        """What is odd about the measurements, on the nodes that are there now."""
        if self._readings is None:
            return ()
        nodes = (node for node in self._cluster.nodes if node is not None)
        return self._readings.of_nodes({node.name: _names(node) for node in nodes}).problems

    def _write_all(self) -> None:
        room = self._cluster.alive.shape[0]
        self._limits = _Limits(np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.int64))
        self._write(np.arange(self._cluster.capacity))

    def _write(self, slots: NDArray[np.intp]) -> None:
        """Solves risk <= threshold for what is in use on these slots."""
        self._match(slots)
        average, deviation, covered = (np.zeros(len(slots)) for _ in range(3))
        for place, slot in enumerate(slots.tolist()):
            entry = self._measured.get(slot)
            if entry is not None:
                average[place], deviation[place], covered[place] = (
                    entry[0].average,
                    entry[0].deviation,
                    entry[1],
                )
        row = self._cluster.row_of.get(BANDWIDTH)
        capacity = (
            np.zeros(len(slots)) if row is None else self._cluster.allocatable[row, slots].astype(float)
        )
        sigma = deviation_risks(deviation, capacity, self._arguments.margin, self._arguments.sensitivity)
        share = 2 * (self._arguments.threshold + ROUNDING) - sigma
        most = np.where(share < 0, _NOTHING, share * capacity - average)
        # Traffic alone makes a risk of at most 0.5.
        endless = (capacity <= 0) | (share >= 1)
        requested = np.where(share < 0, _NOTHING, most + covered)
        for limits, amounts in ((self._limits.requested, requested), (self._limits.measured, most)):
            whole = np.maximum(np.floor(np.where(endless, 0.0, amounts)), _NOTHING)
            limits[slots] = np.where(endless, _ENDLESS, whole.astype(np.int64))

    def _host_in(self, slot: int) -> tuple[str, str | None] | None:
        """The node's name and what its host is called; None for a slot without a node."""
        node = self._cluster.nodes[slot]
        if node is None or self._readings is None:
            return None
        return node.name, self._readings.host_of(_names(node))

    def _match(self, slots: NDArray[np.intp]) -> None:
        """Find what was measured on nodes that are new in their slots."""
        if self._readings is None:
            return
        new: dict[int, NodeBandwidth] = {}
        for slot in slots.tolist():
            known = self._hosts.get(slot) or self._host_in(slot)
            if known is None:
                continue
            self._hosts[slot] = known
            if known[1] is not None and slot not in self._measured:
                new[slot] = self._readings.hosts[known[1]]
        covered = self._coverage.of(new)
        self._measured.update({slot: (link, covered[slot]) for slot, link in new.items()})


def _request(spec: PodSpec) -> int:
    return next((amount for resource, amount in spec.requests if resource == BANDWIDTH), 0)


def _names(node: Node) -> tuple[str, ...]:
    """All that a metrics system may call a node, its own name first."""
    provided = node.annotations.get(_NODE_IP, "").split(",")
    others = (node.labels.get(HOSTNAME, ""), *node.addresses, *(address.strip() for address in provided))
    return (node.name, *(name for name in others if name))


def _standing(source: Source, known: Measurements) -> Iterator[Condition]:
    """What is odd about how measurements come, and what is used instead of them."""
    found = [(sentence, "") for sentence in source.warnings]
    if known.reading is None:
        found.append((known.trouble or "nothing was read yet", f"without measurements {source.fallback}"))
    elif known.trouble:
        age = "of unknown age" if known.age is None else f"{known.age:.0f} s old"
        limit = f"from {source.max_age:g} s on {source.fallback}"
        found.append((f"measurements are {age}: {known.trouble}", limit))
    for message, remedy in found:
        yield Condition(
            reason=Reason.INVALID_SPEC,
            object=f"BandwidthMetrics/{source.name}",
            message=message,
            remedy=remedy,
        )


def _clamped(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _bits(amount: float) -> str:
    """Bits/s with four digits and a unit, such as ``700M`` or ``1.5G``."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if amount >= size:
            return f"{amount / size:.4g}{unit}"
    return f"{amount:.4g}"


def _above(risk: float, threshold: float) -> str:
    """Both figures, with as many digits as it takes to tell them apart."""
    shown = f"{risk:.3f}"
    if float(shown) <= threshold:
        shown = f"{risk:.9f}"
    return f"{shown} above {threshold:g}"
