"""Nodes that fail and come back: of each domain of a level so many are out of order at any time."""

import heapq

import numpy as np
from msgspec import Struct
from numpy.random import PCG64, Generator

from closeby.errors import UnrunnableError
from closeby.lab.replay.clusters import ClusterRoom
from closeby.objects.arrays import Counts, Ints
from closeby.objects.words import plural, suggestion
from closeby.quality.moments import Outages
from closeby.topology.tree import Tree

#: Sets the draws apart from those of the workload of the same seed.
_STREAM = 72
#: Repairs for which jobs that wait are still tried, once none runs and none is to come.
PATIENCE = 10


class FailureRate(Struct, frozen=True, kw_only=True):
    """How many nodes are out of order at any time: so many of each domain of a level."""

    level: str
    nodes: int
    #: Seconds for which a node is out on average (exponential). As it comes back another one fails.
    repair: float


class NodeFailures:
    """When which nodes fail and come back. That does not depend on jobs: all policies get the same."""

    def __init__(self, rate: FailureRate, tree: Tree, seed: int) -> None:
        self._rate = rate
        self._random = Generator(PCG64((seed, _STREAM)))
        self._domains = [slots.tolist() for slots in slots_of_domains(tree, rate.level)]
        #: Heap of (end, slot, domain), and all that has begun: slot and when.
        self._repairs: list[tuple[float, int, int]] = []
        self._since: dict[int, float] = {}
        self._over: list[tuple[int, float, float]] = []
        self.first: list[int] = []
        for domain, slots in enumerate(self._domains):
            for slot in self._random.permutation(slots)[: rate.nodes].tolist():
                self._fails(slot, domain, 0.0)
                self.first.append(slot)

    def next(self) -> float:
        """The next moment at which a node comes back and another fails; infinity if none ever does."""
        return self._repairs[0][0] if self._repairs else np.inf

    def changes(self, now: float) -> list[tuple[int, bool]]:
        """The nodes that have failed (True) and come back since the last call, by slot."""
        found: list[tuple[int, bool]] = []
        while self._repairs and self._repairs[0][0] <= now:
            at, slot, domain = heapq.heappop(self._repairs)
            self._over.append((slot, self._since.pop(slot), at))
            others = [one for one in self._domains[domain] if one not in self._since and one != slot]
            failing = others[self._random.integers(len(others))] if others else slot
            self._fails(failing, domain, at)
            found += [(slot, False), (failing, True)]
        return found

    def outages(self, until: float) -> Outages:
        """All of them until then."""
        rows = [*self._over, *((slot, since, until) for slot, since in self._since.items())]
        slots, begin, end = zip(*rows, strict=True) if rows else ((), (), ())
        return Outages(
            slots=np.asarray(slots, dtype=np.intp),
            begin=np.asarray(begin, dtype=np.float64),
            end=np.asarray(end, dtype=np.float64),
        )

    def _fails(self, slot: int, domain: int, now: float) -> None:
        self._since[slot] = now
        until = now + float(self._random.exponential(self._rate.repair))
        heapq.heappush(self._repairs, (until, slot, domain))


def slots_of_domains(tree: Tree, level: str) -> list[Ints]:
    """The slots of each domain of a level, without nodes that lack its label.

    Raises:
        UnrunnableError: there is no such level.
    """
    at = tree.level_named(level)
    if at is None:
        known = tree.level_names
        raise UnrunnableError(
            f"--failures: topology {tree.name} has no level {level}; there is {', '.join(known)}"
            f"{suggestion(level, known)}"
        )
    if at == tree.node_level:
        return [tree.slot_at[[position]] for position in range(tree.size)]
    bounds = tree.bounds[at]
    return [
        tree.slot_at[first:last]
        for first, last, labelled in zip(bounds[:-1], bounds[1:], tree.labelled[at], strict=True)
        if labelled
    ]


def room_in_order(room: ClusterRoom, tree: Tree, rate: FailureRate | None) -> ClusterRoom:
    """The room without as many nodes as are out of order at any time: of each domain those with the most.

    Raises:
        UnrunnableError: there is no such level, or no node with room is ever in order.
    """
    if rate is None:
        return room
    total: Counts = room.total.copy()
    free: Counts = room.free.copy()
    domains = slots_of_domains(tree, rate.level)
    for slots in domains:
        most = slots[np.argsort(-free[slots], kind="stable")[: rate.nodes]]
        total[most] = free[most] = 0
    if room.free.any() and not free.any():
        largest = max(map(len, domains), default=0)
        raise UnrunnableError(
            f"--failures: no {rate.level} has more than {plural(largest, 'node')}, so that none with room is "
            f"in order if {rate.nodes} of each are not; give fewer nodes, or a coarser level"
        )
    return ClusterRoom(total, free)
