"""How many pods domains could hold at most: what is less than enough needs no trial.

Resources count, and filters that look at nodes alone. What else a plugin knows can only lower these numbers,
so they tell what is in vain, never what fits.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.ownership import is_pinned
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Scope
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.tree import ROOT_LEVEL
from closeby.whatif.domains import Domains, slots_of
from closeby.whatif.questions import Question

Counts = NDArray[np.int64]
Ints = NDArray[np.intp]


class Rooms:
    """Upper bounds for one item that waits, in the state that its trials begin with."""

    def __init__(self, question: Question) -> None:
        self._cluster = question.trials.engine.cluster
        self.needed = question.needed
        levels = question.levels
        self.level = ROOT_LEVEL if levels is None or levels.required is None else levels.required
        self.tree = question.trials.engine.topologies.flat() if levels is None else levels.tree
        own = question.trials.engine.state.placed(question.key)
        anchors = slots_of(self._cluster.placement(pod.uid) for pod in own)
        self.domains = Domains(self.tree, self.level, anchors)
        #: By slot: labels, taints and the like let one of the pods go there.
        self._open = np.zeros(self._cluster.capacity, dtype=np.bool_)
        for pod in {pod.spec: pod for pod in question.waiting}.values():
            self._open |= lasting(question, pod)
        #: What every pod of the item needs, whatever they need besides.
        self.least = _least(self._cluster, question.waiting)
        #: What pods hold that would not go, in rows and slots: those of DaemonSets, and the item's own.
        self.stays = np.zeros_like(self._cluster.requested)
        for pod in {one.uid: one for one in (*own, *filter(is_pinned, question.trials.pods))}.values():
            slot = self._cluster.placement(pod.uid)
            if slot is not None:
                demand = self._cluster.demand(pod.spec)
                self.stays[list(demand.rows), slot] += np.asarray(demand.amounts)
        #: Per slot, then per domain.
        self.at = self._at(np.arange(self._cluster.capacity), 0)
        self.of = self.domains.sums(self.at)
        everything = np.arange(self._cluster.capacity)
        #: By slot, as lists, which are faster to ask one by one: its domain, and what it wins when empty.
        self._owner = self.domains.owners(everything).tolist()
        self._spare = (self.emptied_slots() - self.at).tolist()
        self._now = self.domains.labelled(self.of).tolist()

    def without(self, pods: Iterable[Pod]) -> tuple[Ints, Counts]:
        """The slots that these pods hold, and how many pods each could hold at most without them."""
        freed: dict[int, Counts] = {}
        for pod in pods:
            slot = self._cluster.placement(pod.uid)
            if slot is None:
                continue
            amounts = freed.setdefault(slot, np.zeros(len(self._cluster.row_of), dtype=np.int64))
            demand = self._cluster.demand(pod.spec)
            for row, amount in zip(demand.rows, demand.amounts, strict=True):
                amounts[row] += amount
        slots = np.asarray(sorted(freed), dtype=np.intp)
        if not len(slots):
            return slots, np.zeros(0, dtype=np.int64)
        return slots, self._at(slots, np.stack([freed[slot] for slot in slots.tolist()], axis=1))

    def may_hold(self, pods: Iterable[Pod]) -> bool:
        """Whether some domain might hold what is needed without these pods."""
        gone = tuple(pods)
        if max(self._now, default=-1) >= self.needed:
            return True
        if not self._enough_if_emptied(gone):
            return False
        slots, room = self.without(gone)
        sums = self.of.copy()
        owners = self.domains.owners(slots)
        inside = owners >= 0
        np.add.at(sums, owners[inside], (room - self.at[slots])[inside])
        return bool((self.domains.labelled(sums) >= self.needed).any())

    def lie_in(self, pods: Iterable[Pod], domain: int) -> bool:
        """Whether one of these pods holds a node of a domain."""
        slots = (self._cluster.placement(pod.uid) for pod in pods)
        return any(slot is not None and self._owner[slot] == domain for slot in slots)

    def _enough_if_emptied(self, pods: Iterable[Pod]) -> bool:
        """The same if their nodes were empty: a quick look that spares the exact one for most."""
        slots = {self._cluster.placement(pod.uid) for pod in pods}
        wins: dict[int, int] = {}
        for slot in slots:
            if slot is not None and (owner := self._owner[slot]) >= 0:
                wins[owner] = wins.get(owner, 0) + self._spare[slot]
        return any(self._now[one] >= 0 and self._now[one] + won >= self.needed for one, won in wins.items())

    def emptied_slots(self) -> Counts:
        """How many pods each slot could hold at most if all that may go had gone."""
        everything = np.arange(self._cluster.capacity)
        return self._at(everything, self._cluster.requested[:, everything] - self.stays[:, everything])

    def best(self) -> Ints:
        """Domains that carry their level's label, those with the most room first."""
        room = self.domains.labelled(self.of)
        order = np.argsort(-room, kind="stable")
        return order[room[order] >= 0]

    def _at(self, slots: Ints, freed: Counts | int) -> Counts:
        cluster = self._cluster
        left = cluster.allocatable[:, slots] - cluster.requested[:, slots] + freed
        most: Counts = np.full(len(slots), self.needed, dtype=np.int64)
        for row, amount in self.least.items():
            most = np.minimum(most, np.maximum(left[row], 0) // amount)
        return most * (cluster.alive[slots] & self._open[slots])


def lasting(question: Question, pod: Pod) -> NDArray[np.bool_]:
    """By slot: what does not depend on what runs there lets a pod go there."""
    engine = question.trials.engine
    nodes = Nodes(engine.cluster, np.arange(engine.cluster.capacity))
    here = engine.cluster.alive[: engine.cluster.capacity].copy()
    for plugin in engine.profile.filters:
        if plugin.filter_scope is Scope.STATIC and plugin.concerns(pod):
            here &= plugin.filter(CycleState(), pod, nodes)
    return here


def _least(cluster: Cluster, pods: Iterable[Pod]) -> dict[int, int]:
    """The least that any of the pods asks for, by row; without rows of which one of them asks nothing."""
    least: dict[int, int] | None = None
    for spec in {id(pod.spec): pod.spec for pod in pods}.values():
        demand = cluster.demand(spec)
        asked = {row: amount for row, amount in zip(demand.rows, demand.amounts, strict=True) if amount > 0}
        least = asked if least is None else {row: min(asked[row], least[row]) for row in asked.keys() & least}
    return dict(sorted((least or {}).items()))
