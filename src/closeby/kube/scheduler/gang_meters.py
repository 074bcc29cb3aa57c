"""How good the places of gangs are, as numbers for Prometheus: measured when all that was placed is bound."""

from collections.abc import Callable
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Histogram

from closeby.kube.scheduler.queue_meters import PodWait
from closeby.objects.pods import Pod
from closeby.objects.words import natural_key
from closeby.quality.delays import SIZE_BUCKETS, size_bucket
from closeby.quality.gangs import GangGauge, GangMeasures, Members
from closeby.scheduling.engine import Engine
from closeby.scheduling.outcomes import Outcome
from closeby.topology.tree import Tree

_EXCESS_BUCKETS: Final = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0)
_SLOWDOWN_BUCKETS: Final = (1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0)
#: Seconds, from a tenth of one to a week.
_WAIT_BUCKETS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0)

#: Gangs after which they are measured without a scrape.
_AT_ONCE: Final = 256


class _Underway:
    """A gang of which pods are being bound."""

    __slots__ = ("arrived", "left", "topology")

    def __init__(self, arrived: float, topology: str) -> None:
        #: When the first of its pods came, in seconds of the meters' clock.
        self.arrived = arrived
        #: Name of the topology in which its place is; empty without one.
        self.topology = topology
        #: Uids of the pods whose bindings do not stand yet.
        self.left: set[str] = set()


class _Bound(NamedTuple):
    """A gang whose last binding stands; ``waited`` in seconds."""

    tree: Tree
    members: Members
    waited: float


class GangMeters:
    """Measures gangs whose last binding stands; the same measures as the report of a simulation.

    Many at once cost little more than one, so they are measured for a scrape, or when there are many.
    Gangs that a scheduler before this one began to bind are left out: it is not known when they came.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._underway: dict[str, _Underway] = {}
        #: uid -> gang
        self._gang_of: dict[str, str] = {}
        self._bound: list[_Bound] = []
        self._engine: Engine | None = None
        self._gauge: GangGauge | None = None
        self._excess = Histogram(
            "closeby_gang_excess_span",
            "Domains of a level that a bound gang touches, over the fewest that could hold it on an empty "
            "cluster: 1 is ideal.",
            ("level",),
            buckets=_EXCESS_BUCKETS,
            registry=registry,
        )
        self._slowdown = Histogram(
            "closeby_gang_slowdown",
            "Times that a modelled all-reduce of a bound gang takes longer than on an ideal placement on an "
            "empty cluster.",
            buckets=_SLOWDOWN_BUCKETS,
            registry=registry,
        )
        waits = Histogram(
            "closeby_gang_wait_seconds",
            "From the arrival of a gang's first pod until its last binding stood, by GPUs of the gang.",
            ("size",),
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._waits = {name: waits.labels(name) for name, _ in SIZE_BUCKETS}

    def shows(self, engine: Engine) -> None:
        """Of this engine the gangs are measured, which knows of none yet."""
        self._underway.clear()
        self._gang_of.clear()
        self._engine = engine
        self._gauge = GangGauge(engine.cluster)

    def decided(self, outcome: Outcome, wait_of: Callable[[str], PodWait | None]) -> None:
        """A gang was placed, or more of it; its pods are bound next."""
        waits = {one.pod.uid: wait_of(one.pod.uid) for one in outcome.bindings}
        known = {uid: wait.arrived for uid, wait in waits.items() if wait is not None}
        if not known or outcome.place is None:
            return
        arrived = min(known.values())
        underway = self._underway.setdefault(outcome.key, _Underway(arrived, outcome.place.topology))
        underway.arrived = min(underway.arrived, arrived)
        underway.topology = outcome.place.topology
        underway.left.update(known)
        self._gang_of.update(dict.fromkeys(known, outcome.key))

    def bound(self, uid: str, now: float) -> None:
        """The binding of a pod stands; ``now`` in seconds of the meters' clock."""
        key = self._gang_of.pop(uid, None)
        if key is None:
            return
        underway = self._underway[key]
        underway.left.discard(uid)
        if not underway.left:
            del self._underway[key]
            self._complete(key, underway, now)

    def gone(self, uid: str) -> None:
        """A pod is not to be bound any more: its gang is not measured before it is placed again."""
        key = self._gang_of.pop(uid, None)
        underway = None if key is None else self._underway.pop(key, None)
        for other in () if underway is None else underway.left:
            self._gang_of.pop(other, None)

    def measure(self) -> None:
        """Measure what is bound by now; to be called before the numbers are read."""
        bound, self._bound = self._bound, []
        if self._gauge is None:
            return
        by_tree: dict[int, list[_Bound]] = {}
        for one in bound:
            by_tree.setdefault(id(one.tree), []).append(one)
        for gangs in by_tree.values():
            found = self._gauge.measure(gangs[0].tree, [one.members for one in gangs])
            for one, measures in zip(gangs, found, strict=True):
                if measures is not None:
                    self._observe(one.waited, measures)

    def _complete(self, key: str, underway: _Underway, now: float) -> None:
        engine = self._engine
        if engine is None:
            return
        topologies = engine.topologies
        tree = topologies.tree(underway.topology) if underway.topology else topologies.flat()
        if tree is not None:
            self._bound.append(_Bound(tree, _members(engine, key), now - underway.arrived))
        if len(self._bound) >= _AT_ONCE:
            self.measure()

    def _observe(self, waited: float, found: GangMeasures) -> None:
        self._waits[size_bucket(found.ranks)].observe(waited)
        for level, excess in zip(found.levels, found.excess_span, strict=True):
            if excess is not None:
                self._excess.labels(level).observe(excess)
        if found.slowdown is not None:
            self._slowdown.observe(found.slowdown)


def _members(engine: Engine, key: str) -> Members:
    """The members of a gang that hold a node, by rank, with their slots; those without a rank last."""
    ranks = engine.state.ranks(key)
    placed = [(pod, engine.cluster.placement(pod.uid)) for pod in engine.state.placed(key)]
    known: list[tuple[Pod, int]] = [(pod, slot) for pod, slot in placed if slot is not None]
    return sorted(known, key=lambda one: (ranks.get(one[0].uid, len(known)), natural_key(one[0].name)))
