"""Equivalence classes of pods: what is cached of every node for one class of them."""

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Bools, Counts, Ints, Scores
from closeby.objects.pods import Pod
from closeby.scheduling.by_domain import DomainFilter, DomainMask, WatchedMask
from closeby.scheduling.extension import Capacity, Filter, Scope
from closeby.scheduling.judging.figures import DomainCounts, Weighted

#: One slot in so many is spare in arrays that had to grow.
SPARE: Final = 8


class PodClass:
    """One class and its cached figures; the arrays have one entry per slot."""

    __slots__ = (
        "__weakref__",
        "apart",
        "base",
        "base_ranked",
        "blind_filters",
        "capacities",
        "counts",
        "fits",
        "key",
        "masks",
        "node_cursor",
        "node_filters",
        "pod",
        "ranked",
        "spare",
        "stale",
        "static",
        "static_filters",
        "steady",
        "total",
        "usage_cursor",
        "widened",
    )

    def __init__(
        self,
        key: Hashable,
        pod: Pod,
        filters: Sequence[Filter],
        masks: Sequence[DomainMask] = (),
        base: "PodClass | None" = None,
        *,
        widened: bool = False,
    ) -> None:
        """``masks``: those of the filters by domain that are kept; ``widened``: some were left out.

        ``base``: the class of such pods without masks, whose figures this one narrows; None: it has its own.
        """
        self.key = key
        #: Any pod of the class, to ask plugins with.
        self.pod = pod
        self.base = base
        self.widened = widened
        concerned = [
            plugin
            for plugin in filters
            if plugin.minds(pod) and (masks or not isinstance(plugin, DomainFilter)) and plugin.concerns(pod)
        ]
        self.static_filters = [p for p in concerned if p.filter_scope is Scope.STATIC]
        self.capacities = [
            p for p in concerned if isinstance(p, Capacity) and p.filter_scope is Scope.PER_NODE
        ]
        self.node_filters = [
            p for p in concerned if p.filter_scope is Scope.PER_NODE and not isinstance(p, Capacity)
        ]
        if widened or not masks:
            self.node_filters = [p for p in self.node_filters if not isinstance(p, DomainFilter)]
        #: Masks whose answers may change without the node being touched.
        self.masks = [WatchedMask(mask) for mask in masks]
        #: Labels of nodes: of those that have one, each takes one such pod.
        self.apart = tuple(mask.key for mask in masks if mask.apart)
        #: Filters whose answer depends on what was placed elsewhere; not part of ``fits``.
        self.blind_filters = [p for p in concerned if p.filter_scope is Scope.PER_PLACEMENT]
        self.static: Bools = np.zeros(0, dtype=np.bool_)
        #: Pods of this class that fit on each node, all cached filters applied.
        self.fits: Counts = np.zeros(0, dtype=np.int64)
        #: Pods that fit on all nodes together.
        self.total = 0
        #: Total of the cacheable scores where a pod fits, else -inf; None until it is needed.
        self.ranked: Scores | None = None
        #: The totals of the base by which ``ranked`` goes: another array once those were recomputed.
        self.base_ranked: Scores | None = None
        #: The longer arrays in which the three above begin, once slots have been added: beyond the slots that
        #: there are, nothing fits.
        self.spare: dict[str, NDArray[Any]] = {}
        #: Slots touched since, whose totals are computed when they are needed.
        self.stale: list[Ints] = []
        self.counts: dict[str, DomainCounts] = {}
        #: Cursor of the nodes' changes, and the scorers that were active then: those with cacheable scores,
        #: then those whose scores are normalised but do not depend on what is placed.
        self.steady: tuple[int, list[Weighted], list[Weighted]] = (-1, [], [])
        self.usage_cursor = -1
        self.node_cursor = -1

    def grow(self, capacity: int) -> None:
        """Make room for new slots, on which nothing fits yet; trees that are counted end before them."""
        more = capacity - len(self.fits)
        if more:
            if self.base is None:
                self.static = self._lengthened("static", self.static, capacity, False)
            self.fits = self._lengthened("fits", self.fits, capacity, 0)
            if self.ranked is not None:
                self.ranked = self._lengthened("ranked", self.ranked, capacity, -np.inf)
            self.counts.clear()

    def _lengthened(self, name: str, array: NDArray[Any], length: int, fill: float) -> NDArray[Any]:
        """An array with more entries; it is copied only when an eighth more has come."""
        spare = self.spare.get(name)
        if spare is None or array.base is not spare or len(spare) < length:
            spare = self.spare[name] = np.full(length + length // SPARE, fill, dtype=array.dtype)
            spare[: len(array)] = array
        return spare[:length]


class Share(Struct, frozen=True, eq=False):
    """Equal pods, with their class."""

    pod_class: PodClass
    pods: tuple[Pod, ...]

    @property
    def reaches_beyond(self) -> bool:
        """Whether one of the pods that is placed changes where the others may go beyond its own node."""
        filters = (*self.pod_class.capacities, *self.pod_class.node_filters)
        return any(plugin.reaches_beyond(self.pod_class.pod) for plugin in filters)


def masks_of(filters: Sequence[Filter], pod: Pod) -> list[DomainMask]:
    """All masks of the filters by domain for a pod."""
    return [mask for one in filters if isinstance(one, DomainFilter) for mask in one.masks(pod)]
