"""least-allocated and most-allocated: what kube-scheduler does without knowing any topology.

The scoring of upstream's NodeResourcesFit (pkg/scheduler/framework/plugins/noderesources, LeastAllocated and
MostAllocated), pod by pod: the mean over CPU and memory of the free (used) part of the node in percent, this
pod included, in whole numbers. Of the nodes with the greatest score one is drawn, as upstream's selectHost
does; else the order of names would stand in for a topology.
"""

from collections.abc import Hashable, Iterable
from typing import ClassVar

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Scores
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate, Handle, PartView, PlacementGenerate, Scope, Score
from closeby.scheduling.plugin_helpers import lots, wherever_allowed
from closeby.scheduling.plugin_view import CycleState, Nodes


class AllocatedArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``resources``: those that count, all alike; upstream's are CPU and memory. ``seed``: of the draws."""

    resources: tuple[str, ...] = ("cpu", "memory")
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.resources:
            raise ValueError("resources must name at least one")


class _Allocated(PlacementGenerate, Score):
    """What the two have in common."""

    Arguments = AllocatedArguments
    # A gang is to be placed pod by pod, as kube-scheduler does.
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    #: 100, and what is drawn.
    max_score: ClassVar[float] = 101.0
    #: Whether free nodes are better than used ones.
    prefers_free: ClassVar[bool]

    def __init__(self, arguments: AllocatedArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._resources = arguments.resources
        self._seed = arguments.seed

    def class_key(self, pod: Pod) -> Hashable:
        return pod.spec.requests

    @property
    def shares_by_spec(self) -> bool:
        return True

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """Whole numbers of 0 to 100, and less than 1 more that is drawn."""
        requests = dict(pod.spec.requests)
        total = np.zeros(len(nodes), dtype=np.int64)
        offered_any = np.zeros(len(nodes), dtype=np.int64)
        for resource in self._resources:
            offered = nodes.allocatable(resource)
            used = nodes.requested(resource) + requests.get(resource, 0)
            part = np.maximum(offered - used, 0) if self.prefers_free else np.minimum(used, offered)
            offers = offered > 0
            total += np.where(offers, 100 * part // np.maximum(offered, 1), 0)
            offered_any += offers
        scores: Scores = total // np.maximum(offered_any, 1) + 0.999 * lots(self._seed, pod, nodes)
        return scores

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """Anywhere; the domains of a level that is required, the tightest first."""
        return wherever_allowed(part)


class LeastAllocated(_Allocated):
    """Prefers the emptiest nodes: kube-scheduler's default."""

    name: ClassVar[str] = "least-allocated"
    prefers_free: ClassVar[bool] = True


class MostAllocated(_Allocated):
    """Prefers the fullest nodes, so that others stay empty for pods that need a whole one."""

    name: ClassVar[str] = "most-allocated"
    prefers_free: ClassVar[bool] = False
