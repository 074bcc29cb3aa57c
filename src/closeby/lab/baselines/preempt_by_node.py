"""preempt-by-node: each pod of a gang by itself, as kube-scheduler's DefaultPreemption would (1.37).

A pod that fits goes to a free node. For one that does not, all pods of lower priority go from each node;
those that can stay do, the most important first (priority, then earlier start). Of the nodes the one is taken
with the lowest top priority of a victim, the smallest sum of priorities, the fewest victims, and the latest
start of those of the top priority. The next pod of the gang finds the node taken. Who belongs to which gang
does not matter, nor where the other pods of the preemptor go, unless a level is required: then it is the
domain of the first pod that can hold them all.

In one point it is better than the original: nothing is evicted unless all pods of the gang find a node. All
nodes are looked at (upstream samples large clusters), and PodDisruptionBudgets are left out.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import ClassVar, NamedTuple

import numpy as np

from closeby.objects.arrays import Amounts, Ints
from closeby.scheduling.preemption.domains import DomainChoice, GangQuestion
from closeby.scheduling.preemption.nodes import NodeChoice, PodQuestion
from closeby.scheduling.preemption.room import NodeRoom, PodKind, room_of
from closeby.scheduling.preemption.rule import Preempts
from closeby.scheduling.preemption.running import RunningPods
from closeby.scheduling.preemption.units import Victims, as_unit, cost_of
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain

#: How nodes are compared: the highest priority, the sum of all, how many, and minus the latest start.
_Key = tuple[float, float, int, float]


class _Option(NamedTuple):
    """One node for the next pod, with the pods (by index) that go for that."""

    key: _Key
    slot: int
    gone: tuple[int, ...]


class PreemptByNode(Preempts):
    """Chooses victims node by node and pod by pod."""

    name: ClassVar[str] = "preempt-by-node"

    def domain_for(self, question: GangQuestion, victims: Victims) -> DomainChoice | None:
        tree, level, running = question.tree, question.level, victims.running
        nodes = _Nodes(victims, self._room(question, victims))
        everywhere = np.flatnonzero(tree.position_of < tree.size)
        domains: list[tuple[Domain, Ints]] = [(ROOT, everywhere.astype(np.intp))]
        if level != ROOT_LEVEL:
            owners = tree.owners_of_slots(everywhere, level)
            known = [
                (Domain(level, index), everywhere[owners == index].astype(np.intp))
                for index in range(tree.count(level))
                if tree.labelled[level][index]
            ]
            domains = [
                one for _, one in sorted(enumerate(known), key=lambda at: (nodes.first(at[1][1]), at[0]))
            ]
        for domain, slots in domains:
            gone = nodes.for_all(slots.tolist())
            if not gone:
                continue
            placed = question.places_without(victims, [running.pods[one] for one in gone])
            if placed:
                return DomainChoice(
                    tree=tree,
                    domain=domain,
                    cost=cost_of(running, gone),
                    units=(as_unit(running, gone),),
                    placed=placed,
                    exact=False,
                )
        return None

    def node_for(self, question: PodQuestion, victims: Victims) -> NodeChoice | None:
        running = victims.running
        nodes = _Nodes(victims, self._room(question, victims))
        for option in nodes.options(question.kinds[0], range(self.handle.cluster.capacity)):
            placed = question.places_without(victims, [running.pods[one] for one in option.gone])
            if option.gone and placed:
                return NodeChoice(
                    node=self.handle.cluster.node_at(option.slot).name,
                    cost=cost_of(running, option.gone),
                    units=(as_unit(running, option.gone),),
                    placed=placed,
                )
        return None

    def _room(self, question: GangQuestion | PodQuestion, victims: Victims) -> NodeRoom:
        return room_of(victims.running, question.kinds, victims.leaving, victims.pods)


class _Nodes:
    """What each node has, and the pods on it that may go, the most important first."""

    def __init__(self, victims: Victims, room: NodeRoom) -> None:
        self._running = running = victims.running
        self._room = room
        self._may: dict[int, list[int]] = {}
        for one in sorted(victims.pods.tolist(), key=lambda one: _importance(running, one)):
            self._may.setdefault(int(running.slots[one]), []).append(one)

    def first(self, slots: Ints) -> _Key:
        """How good the best node of some is for the first pod."""
        found = [
            self._option(kind, slot, self._room.free, {}) for kind in self._room.kinds[:1] for slot in slots
        ]
        return min((one.key for one in found if one is not None), default=(np.inf, np.inf, 0, 0.0))

    def options(self, kind: PodKind, slots: Iterable[int]) -> Iterator[_Option]:
        """The nodes that a pod could have, the best first."""
        return iter(sorted(self._each(kind, slots)))

    def _each(self, kind: PodKind, slots: Iterable[int]) -> Iterator[_Option]:
        found = (self._option(kind, slot, self._room.free, {}) for slot in slots)
        return (one for one in found if one is not None)

    def for_all(self, slots: Sequence[int]) -> tuple[int, ...] | None:
        """Who goes so that every pod gets one of these nodes; None where some pod gets none."""
        free, gone = self._room.free.copy(), dict[int, tuple[int, ...]]()
        for kind in self._room.kinds:
            asks = _asks(kind, free)
            heap = [one for slot in slots if (one := self._option(kind, slot, free, gone)) is not None]
            heapify(heap)
            for _ in range(kind.wanted):
                if not heap:
                    return None
                _, slot, more = heappop(heap)
                free[:, slot] += self._taken(more) - asks
                gone[slot] = (*gone.get(slot, ()), *more)
                again = self._option(kind, slot, free, gone)
                if again is not None:
                    heappush(heap, again)
        return tuple(one for pods in gone.values() for one in pods)

    def _option(
        self, kind: PodKind, slot: int, free: Amounts, gone: dict[int, tuple[int, ...]]
    ) -> _Option | None:
        if slot >= len(kind.usable) or not kind.usable[slot]:
            return None
        asks = _asks(kind, free)
        lacks = asks - free[:, slot]
        if (lacks <= 0).all():
            return _Option((-np.inf, 0.0, 0, 0.0), slot, ())
        may = [one for one in self._may.get(slot, ()) if one not in gone.get(slot, ())]
        if not may:
            return None
        # With all of them gone, as much may come back as is not needed.
        spare = self._taken(may) - lacks
        if (spare < 0).any():
            return None
        kept: list[int] = []
        for one in may:
            amounts = self._taken((one,))
            if (amounts <= spare).all():
                spare = spare - amounts
            else:
                kept.append(one)
        return _Option(self._key(kept), slot, tuple(kept))

    def _taken(self, pods: Sequence[int]) -> Ints:
        chosen = list(pods)
        return np.asarray([int(amounts[chosen].sum()) for amounts in self._room.taken], dtype=np.intp)

    def _key(self, gone: Sequence[int]) -> _Key:
        running = self._running
        top = int(running.priorities[list(gone)].max())
        total = sum(int(running.priorities[one]) + (1 << 31) for one in gone)
        started = [float(running.started[one]) for one in gone if running.priorities[one] == top]
        return float(top), float(total), len(gone), -min(started)


def _importance(running: RunningPods, pod: int) -> tuple[float, float, str]:
    return -float(running.priorities[pod]), float(running.started[pod]), running.pods[pod].key


def _asks(kind: PodKind, free: Amounts) -> Amounts:
    """What a pod of a kind asks for, by the rows of what is free."""
    asks = np.zeros(len(free), dtype=np.int64)
    asks[list(kind.asks.rows)] = kind.asks.amounts
    return asks
