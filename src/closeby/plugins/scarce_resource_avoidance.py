"""ScarceResourceAvoidance: pods that ask for no accelerator stay away from nodes whose accelerators are free.

Koordinator's plugin of that name keeps such pods off nodes that offer a scarce resource. Here a node whose
accelerators are all in use is as good as one that has none: no pod that needs them could use it anyway.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import ClassVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Bools, Scores
from closeby.objects.nodes import is_accelerator
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate, Handle, PartView, PlacementGenerate, Scope, Score
from closeby.scheduling.plugin_view import CycleState, NodeChanges, Nodes


class AvoidanceArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``resources``: those that are kept free; none: all accelerators, as far as names tell."""

    resources: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.resources is not None and not self.resources:
            raise ValueError("resources must name at least one; leave it out for all accelerators")


#: Requests that are remembered.
REMEMBERED = 1 << 14


class ScarceResourceAvoidance(PlacementGenerate, Score):
    """100 for a node without free accelerators, else 15 and less: 0 where all of them are free.

    With its weight of 3 the step between the two outweighs whatever NodeResourcesFit,
    NodeResourcesBalancedAllocation and ImageLocality say together (250 points), and a PreferNoSchedule taint
    still counts as much.
    """

    name: ClassVar[str] = "ScarceResourceAvoidance"
    shares_by_spec = True
    minds_membership = True
    scores_members: ClassVar[bool] = False
    Arguments = AvoidanceArguments
    score_scope: ClassVar[Scope] = Scope.PER_NODE
    scores_by_use: ClassVar[bool] = True
    default_weight: ClassVar[float] = 3.0

    def __init__(self, arguments: AvoidanceArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._named = arguments.resources
        self._changes = NodeChanges(handle.cluster)
        self._rows: tuple[int, ...] = ()
        #: Requests -> whether any of them is for an accelerator.
        self._known: dict[Hashable, bool] = {}

    def class_key(self, pod: Pod) -> Hashable:
        """What the pod asks for."""
        return pod.spec.requests

    @property
    def scores_any(self) -> bool:
        """Only where some node offers accelerators."""
        return bool(self._offered())

    def scores(self, pod: Pod) -> bool:
        """Only for pods that ask for none and are no members of a gang; see ``tried_first``."""
        return pod.group is None and self.scores_any and not self._asks(pod)

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """By the greatest free share of any accelerator of the node; shape (len(nodes),)."""
        cluster, index = self.handle.cluster, nodes.index
        slot = nodes.only
        if slot is not None:
            return np.asarray([self._score_of(slot)])
        most: NDArray[np.float64] = np.zeros(len(nodes))
        for row in self._offered():
            offered = cluster.allocatable[row][index]
            free = np.maximum(offered - nodes.used(row), 0)
            np.maximum(most, free / np.maximum(offered, 1), out=most)
        return np.where(most > 0, 15.0 - 15.0 * most, 100.0)

    def _score_of(self, slot: int) -> float:
        """The score of one node, by the same steps."""
        cluster, most = self.handle.cluster, 0.0
        for row in self._offered():
            offered = cluster.allocatable.item(row, slot)
            free = max(offered - cluster.requested.item(row, slot), 0)
            most = max(most, free / max(offered, 1))
        return 15.0 - 15.0 * most if most > 0 else 100.0

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """Leaves the domains to others."""
        return None

    def tried_first(self, pods: Sequence[Pod]) -> Bools | None:
        """The nodes without free accelerators, where no member asks for any."""
        rows = self._offered()
        if not rows or any(map(self._asks, pods)):
            return None
        cluster = self.handle.cluster
        bare: Bools = np.ones(cluster.capacity, dtype=np.bool_)
        for row in rows:
            bare &= cluster.requested[row, : cluster.capacity] >= cluster.allocatable[row, : cluster.capacity]
        return bare

    def _offered(self) -> tuple[int, ...]:
        """Rows of the accelerators that some node offers."""
        changed = self._changes.take()
        if changed is None or len(changed):
            cluster = self.handle.cluster
            self._rows = tuple(
                row
                for resource, row in cluster.row_of.items()
                if self._is_scarce(resource) and cluster.allocatable[row].any()
            )
        return self._rows

    def _asks(self, pod: Pod) -> bool:
        asked = pod.spec.requests
        known = self._known.get(asked)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = any(amount and self._is_scarce(resource) for resource, amount in asked)
            self._known[asked] = known
        return known

    def _is_scarce(self, resource: str) -> bool:
        return is_accelerator(resource) if self._named is None else resource in self._named
