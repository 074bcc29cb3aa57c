"""Filters by what pods do to each other in domains of a topology key: affinity, anti-affinity, spread.

Such a filter says for each value of a node label whether nodes with it take a pod. A pod that comes to one
node may change that for all nodes of its domain; the class table then judges those nodes again and no others.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools, Counts
from closeby.objects.pods import Pod
from closeby.objects.selectors import PodAffinityTerm
from closeby.scheduling.extension import Filter, Scope
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.labels import LabelColumn


class DomainLimit(Struct, frozen=True, kw_only=True, eq=False):
    """What a term allows in each domain to the pods that carry it and that it selects, all of them alike.

    Domains are codes of the values of the topology key; 0 stands for nodes without it.
    """

    #: (slots,) the domain of each node.
    codes: NDArray[np.int32]
    #: (domains,) the placed pods that the term counts.
    counts: Counts
    #: Of a spread constraint the domains of which the least counts, (domains,). None of anti-affinity, which
    #: allows one pod in a domain and any number on nodes without the key.
    eligible: Bools | None = None
    #: How far a domain may be above the least.
    max_skew: int = 1
    #: With fewer eligible domains than this, the least counts as 0.
    min_domains: int = 1


class CountedPods(Struct, frozen=True):
    """Pods that a constraint of another pod counts: those that all its terms, for that pod, select."""

    terms: tuple[PodAffinityTerm, ...]
    #: Of anti-affinity the topology key of which no domain may hold both pods, whichever comes first. Empty:
    #: placing such pods may also let the other one go where it could not before.
    apart: str = ""


class DomainMask:
    """Which domains of one topology key take a pod."""

    #: The label of nodes whose values are the domains.
    key: str

    def grows_with(self, pod: Pod) -> bool:
        """Whether more domains may be open once a pod like this one is placed in one of them."""
        return False

    @property
    def gathers(self) -> bool:
        """Whether several pods like the one that is judged must share one domain, which is still open."""
        return False

    @property
    def apart(self) -> bool:
        """Whether two pods like the one that is judged can't be in one domain, hence on one node."""
        return False

    @property
    def closes(self) -> bool | None:
        """What a pod like the one that is judged changes for the next ones once it is in an open domain.

        True: it closes that domain; False: nothing; None: that is not known, or more than that.
        """
        return None

    def limit(self) -> DomainLimit | None:
        """How many pods like the one that is judged each domain takes; None where they don't count."""
        return None

    @property
    def asks(self) -> str:
        """What it asks for, for people."""
        raise NotImplementedError

    def stamp(self) -> Hashable:
        """Another value whenever ``allowed`` may be another."""
        raise NotImplementedError

    def allowed(self) -> Bools:
        """By code of the label's value; the first entry is for nodes without it. Never changed in place."""
        raise NotImplementedError


class DomainFilter(Filter):
    """A filter whose answer is that of all its masks for a pod."""

    filter_scope: ClassVar[Scope] = Scope.PER_NODE

    def masks(self, pod: Pod) -> Sequence[DomainMask]:
        """The masks for pods of this one's class, the same objects as long as its key is the same."""
        raise NotImplementedError

    def concerns(self, pod: Pod) -> bool:
        return bool(self.masks(pod))

    def counts(self, pod: Pod) -> Sequence[CountedPods]:
        """For each constraint of a pod the pods whose placement may change where this one may go."""
        raise NotImplementedError

    def constrained(self, pod: Pod) -> bool:
        """Whether a pod may have constraints, by its spec alone."""
        return True

    def helped_by_pods(self, pod: Pod) -> bool:
        """Whether a pod that is placed may let this one go where it could not before; by its spec alone."""
        raise NotImplementedError

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        answer: Bools | None = None
        for mask in self.masks(pod):
            hit = mask.allowed().take(nodes.label_codes(mask.key), mode="clip")
            answer = hit if answer is None else np.logical_and(answer, hit, out=answer)
        return nodes.all(True) if answer is None else answer

    def refusing(self, pod: Pod, slot: int) -> int | None:
        """Place of the first mask that keeps a pod from a node; None if none does."""
        for place, mask in enumerate(self.masks(pod)):
            code = self.handle.cluster.labels.column(mask.key).codes[slot]
            if not mask.allowed()[code]:
                return place
        return None


class WatchedMask:
    """A mask as it was when a class was judged by it."""

    __slots__ = ("_column", "_mask", "_stamp", "allowed", "key")

    def __init__(self, mask: DomainMask) -> None:
        self._mask = mask
        self.key = mask.key
        self._stamp: Hashable = None
        #: By code of the label's value, as of the last question.
        self.allowed: Bools = np.zeros(0, dtype=np.bool_)
        self._column: LabelColumn | None = None

    def follow(self, cluster: Cluster) -> Bools | None:
        """By code, which values are judged otherwise than when last asked; None: all nodes may be.

        Nodes with values that are new came or changed since, which the cluster says itself.
        """
        stamp = self._mask.stamp()
        column = cluster.labels.column(self.key)
        if stamp == self._stamp and column is self._column:
            return _NONE
        before, same = self.allowed, column is self._column
        self._stamp, self.allowed, self._column = stamp, self._mask.allowed(), column
        if not same:
            return None
        common = min(len(before), len(self.allowed))
        changed = before[:common] != self.allowed[:common]
        if not changed.any():
            return _NONE
        flips = np.zeros(max(len(column.values), common), dtype=np.bool_)
        flips[:common] = changed
        return flips


_NONE: Bools = np.zeros(0, dtype=np.bool_)
