"""Exhaustive placing of pods on the nodes of one set, within a budget of backtracks.

For pods that change where others may go by more than amounts, as volumes and terms about pods do, and for
those of which it matters to other parts of the gang which nodes they take.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Ints
from closeby.scheduling.gangs.parts import Distinctions
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import Share, masks_of
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.steps import Budget

#: Steps to look for a node, and for how many nodes one more; and to see whether pods of a kind fit yet.
_LOOK, _NODES, _JUDGING = 100, 10, 3


class _Options:
    """Where one step of a search stands: the class that is offered, and the kinds of nodes that were.

    The nodes are worked out again where a step is taken back, so that little is kept for each pod.
    """

    __slots__ = ("kind", "last", "tried")

    def __init__(self) -> None:
        self.kind = 0
        #: The node that was offered last, None where none was, and the kinds of those before it.
        self.last: int | None = None
        self.tried: set[bytes] = set()


class Trial:
    """Depth first, the tightest nodes first, each kind of node once; no set of placements is tried twice."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        table: ClassTable,
        statement: Statement,
        demand: Sequence[Share],
        slots: Ints,
        budget: Budget,
    ) -> None:
        """``demand``: the pods by class, the hardest first; ``slots``: the nodes."""
        self._cluster = cluster
        self._table = table
        self._statement = statement
        self._demand = demand
        self._slots = slots
        self._budget = budget
        self._any_order = False
        self._placed = [0] * len(demand)
        self._classes = [share.pod_class for share in demand]
        keys = {mask.key: None for share in demand for mask in masks_of(table.domain_filters, share.pods[0])}
        #: Rows of figures that tell nodes apart whatever is placed on them.
        self._owners = [cluster.labels.column(key).codes[slots].astype(np.int64) for key in keys]
        self._places = {slot: place for place, slot in enumerate(slots.tolist())}
        #: Fingerprints of the sets that were tried, and of the one in hand: a sum, so that order is nothing.
        self._seen: set[int] = set()
        self._fingerprint = 0

    def ways(
        self, *, any_order: bool = False, each_node: bool = False, apart: Distinctions | None = None
    ) -> Iterator[None]:
        """Each step places all pods in another way; the way before is undone, and at last the last one.

        ``any_order``: pods of a later class may come first, as they may let those of an earlier one in.
        Nodes that differ as ``apart`` says are never of one kind; with ``each_node`` no two nodes are.
        """
        self._any_order = any_order
        if each_node:
            self._owners.append(np.arange(len(self._slots)))
        if apart is not None:
            self._distinguish(apart)
        statement, wanted = self._statement, sum(len(share.pods) for share in self._demand)
        start = statement.checkpoint()
        path: list[tuple[int, int]] = []
        way = [self._options()]
        while way:
            options = way[-1]
            step = None if options is None else self._next(options)
            if step is not None:
                kind, slot = step
                statement.assume_one(self._demand[kind].pods[self._placed[kind]], slot)
                self._placed[kind] += 1
                self._fingerprint += _fingerprint(kind, slot)
                path.append(step)
                if len(path) < wanted:
                    way.append(self._options())
                    continue
                yield
                way.append(None)
            way.pop()
            if path:
                kind, slot = path.pop()
                self._placed[kind] -= 1
                self._fingerprint -= _fingerprint(kind, slot)
                statement.rollback(statement.checkpoint() - 1)
                if not self._budget.take_backtrack():
                    break
        statement.rollback(start)

    def _distinguish(self, apart: Distinctions) -> None:
        for tree in apart.trees:
            self._owners += [tree.owners_of_slots(self._slots, level) for level in range(tree.node_level)]
        self._owners.append(np.where(np.isin(self._slots, apart.held), self._slots, -1))
        self._classes += [share.pod_class for share in apart.demand]

    def _options(self) -> _Options | None:
        """What can be done next; None where it was tried before, or is in vain."""
        if self._fingerprint in self._seen or not self._enough():
            return None
        self._seen.add(self._fingerprint)
        return _Options()

    def _next(self, options: _Options) -> tuple[int, int] | None:
        """The next class and slot that are offered; None where all were."""
        while options.kind < len(self._demand):
            kind = options.kind
            if self._placed[kind] < len(self._demand[kind].pods):
                options.last = self._node(kind, options)
                if options.last is not None:
                    return kind, options.last
                if not self._any_order:
                    return None
            options.kind, options.last, options.tried = kind + 1, None, set()
        return None

    def _node(self, kind: int, options: _Options) -> int | None:
        """A node for the next pod of a class, the tightest first, one of each kind; None at the end."""
        self._statement.state.steps.take(_LOOK + len(self._slots) // _NODES)
        share = self._demand[kind]
        pod_class = share.pod_class
        if self._any_order:  # What others of them widen is not in the class of their demand.
            pod_class = self._table.of(share.pods[self._placed[kind]])
        self._table.refresh(pod_class)
        fits = pod_class.fits[self._slots]
        usable = np.flatnonzero(fits)
        if not len(usable):
            return None
        if options.last is None:
            return int(self._slots[usable[np.argmin(fits[usable])]])
        options.tried.add(self._kinds(np.asarray([self._places[options.last]])).tobytes())
        usable = usable[np.argsort(fits[usable], kind="stable")]
        kinds = self._kinds(usable)
        _, distinct = np.unique(kinds, axis=1, return_index=True)
        for index in np.sort(distinct).tolist():
            if kinds[:, index].tobytes() not in options.tried:
                return int(self._slots[usable[index]])
        return None

    def _kinds(self, places: Ints) -> Ints:
        """Rows of figures in which nodes differ, one column for each of some places."""
        cluster, slots = self._cluster, self._slots[places]
        rows = [row[places] for row in self._owners]
        rows += [cluster.free(row, slots) for row in range(len(cluster.row_of))]
        for pod_class in self._classes:
            self._table.refresh(pod_class)
            rows.append(pod_class.fits[slots])
        return np.stack(rows)

    def _enough(self) -> bool:
        """Whether what is left could still fit, each class by itself."""
        self._statement.state.steps.take(_JUDGING * len(self._demand))
        for share, placed in zip(self._demand, self._placed, strict=True):
            if placed < len(share.pods):
                self._table.refresh(share.pod_class)
                if int(share.pod_class.fits[self._slots].sum()) < len(share.pods) - placed:
                    return False
        return True


@lru_cache(maxsize=1 << 16)
def _fingerprint(kind: int, slot: int) -> int:
    """A number of 128 bits for a pod of a class on a node; sums of such hardly ever meet by chance."""
    return int.from_bytes(blake2b(f"{kind} {slot}".encode(), digest_size=16).digest())
