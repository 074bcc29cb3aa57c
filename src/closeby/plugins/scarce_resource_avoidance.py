"""ScarceResourceAvoidance: pods that ask for no accelerator stay away from nodes whose accelerators are free.

Koordinator's plugin of that name keeps such pods off nodes that offer a scarce resource. Here a node whose
accelerators are all in use is as good as one that has none: no pod that needs them could use it anyway.
"""

from collections.abc import Hashable
from typing import ClassVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Scores
from closeby.objects.nodes import is_accelerator
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Handle, Scope, Score
from closeby.scheduling.plugin_view import CycleState, NodeChanges, Nodes


class AvoidanceArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``resources``: those that are kept free; none: all accelerators, as far as names tell."""

    resources: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.resources is not None and not self.resources:
            raise ValueError("resources must name at least one; leave it out for all accelerators")


class ScarceResourceAvoidance(Score):
    """100 for a node without free accelerators, else 50 and less: 0 where all of them are free.

    With its weight of 2 the step between the two outweighs whatever NodeResourcesFit says, and a preferred
    node affinity or a PreferNoSchedule taint still counts as much.
    """

    name: ClassVar[str] = "ScarceResourceAvoidance"
    shares_by_spec = True
    minds_membership = True
    scores_members: ClassVar[bool] = False
    Arguments = AvoidanceArguments
    score_scope: ClassVar[Scope] = Scope.PER_NODE
    default_weight: ClassVar[float] = 2.0

    def __init__(self, arguments: AvoidanceArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._named = arguments.resources
        self._changes = NodeChanges(handle.cluster)
        self._rows: tuple[int, ...] = ()

    def class_key(self, pod: Pod) -> Hashable:
        """Whether the pod asks for any of them."""
        return self._asks(pod)

    @property
    def scores_any(self) -> bool:
        """Only where some node offers accelerators."""
        return bool(self._offered())

    def scores(self, pod: Pod) -> bool:
        """Only for pods that ask for none and are no members of a gang, which goes where it fits closely."""
        return pod.group is None and self.scores_any and not self._asks(pod)

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """By the greatest free share of any accelerator of the node; shape (len(nodes),)."""
        cluster, index = self.handle.cluster, nodes.index
        most: NDArray[np.float64] = np.zeros(len(nodes))
        for row in self._offered():
            offered = cluster.allocatable[row][index]
            free = np.maximum(offered - cluster.requested[row][index], 0)
            np.maximum(most, free / np.maximum(offered, 1), out=most)
        return np.where(most > 0, 50.0 - 50.0 * most, 100.0)

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
        return any(amount and self._is_scarce(resource) for resource, amount in pod.spec.requests)

    def _is_scarce(self, resource: str) -> bool:
        return is_accelerator(resource) if self._named is None else resource in self._named
