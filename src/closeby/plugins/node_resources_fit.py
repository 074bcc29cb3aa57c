"""NodeResourcesFit: counts the pods that fit, and prefers emptier (or fuller) nodes."""

from collections.abc import Hashable
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Counts, Scores
from closeby.objects.bounds import sentences
from closeby.objects.pods import Pod
from closeby.objects.quantities import format_amount
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Capacity, Handle, Scope, Score
from closeby.scheduling.plugin_helpers import (
    Offers,
    ScoredRequest,
    ScoredResource,
    asked_accelerators,
    check_resources,
    scored_requests,
)
from closeby.scheduling.plugin_view import CycleState, Nodes


class ScoringStrategy(Struct, frozen=True, forbid_unknown_fields=True):
    """LeastAllocated prefers emptier nodes, MostAllocated fuller ones."""

    type: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    resources: tuple[ScoredResource, ...] = (ScoredResource("cpu"), ScoredResource("memory"))

    def __post_init__(self) -> None:
        check_resources(self.resources)


class FitArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Upstream's ``NodeResourcesFitArgs``, as far as they are known here.

    Without a ``scoringStrategy`` pods that ask for accelerators are scored by ``MostAllocated`` over these,
    all others by ``LeastAllocated`` over CPU and memory, which is upstream's default.
    """

    scoring_strategy: ScoringStrategy | None = msgspec.field(name="scoringStrategy", default=None)


#: Requests whose scored resources are remembered.
REMEMBERED = 1 << 14

#: Points of a full node for members of gangs that ask for accelerators, unless a strategy is given: so few
#: that closeness comes first, whichever plugin scores it.
MOST_FOR_MEMBERS = 5.0


class _Rule(NamedTuple):
    """How a pod's nodes are scored."""

    prefers_free: bool
    #: Whether these are accelerators that the default rule packs.
    packs: bool
    scored: tuple[ScoredRequest, ...]


class NodeResourcesFit(Capacity, Score):
    """Upstream's plugin of that name.

    A node's score is the weighted mean over the scored resources of the free (LeastAllocated) or used
    (MostAllocated) part in percent, this pod included. Resources that the node does not offer are left out,
    and so are extended resources that the pod does not ask for. Unlike upstream, a pod without requests
    counts as asking for nothing rather than for 100m CPU and 200 MB.

    Unlike upstream, too, pods that ask for accelerators go to the fullest node unless a strategy is given, so
    that whole nodes stay free for gangs. Members of gangs are scored by at most ``MOST_FOR_MEMBERS`` points.
    """

    name = "NodeResourcesFit"
    shares_by_spec = True
    minds_membership = True
    reason = Reason.INSUFFICIENT_RESOURCES
    Arguments = FitArguments
    score_scope = Scope.PER_NODE
    scores_by_use = True

    def __init__(self, arguments: FitArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        strategy = arguments.scoring_strategy or ScoringStrategy()
        self._packs_accelerators = arguments.scoring_strategy is None
        self._prefers_free = strategy.type == "LeastAllocated"
        self._weights = tuple((resource.name, resource.weight) for resource in strategy.resources)
        self._offers = Offers(handle)
        #: Requests -> how many resources were known, and how the pod's nodes are scored.
        self._known: dict[Hashable, tuple[int, _Rule]] = {}

    def class_key(self, pod: Pod) -> Hashable:
        return pod.spec.requests

    def capacity(self, state: CycleState, pod: Pod, nodes: Nodes) -> Counts:
        cluster = self.handle.cluster
        demand = cluster.demand(pod.spec)
        if nodes.only is not None:
            return np.asarray([cluster.room_at(demand, nodes.only)], dtype=np.int64)
        return cluster.room(demand, nodes.index)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        cluster = self.handle.cluster
        lacking = []
        for resource, amount in (("pods", 1), *pod.spec.requests):
            row = cluster.row_of.get(resource)
            left = 0 if row is None else int(cluster.allocatable[row, slot] - cluster.requested[row, slot])
            if amount > max(left, 0):
                lacking.append(_shortage(resource, amount, max(left, 0)))
        return Rejection(Reason.INSUFFICIENT_RESOURCES, sentences(lacking))

    def scores(self, pod: Pod) -> bool:
        return bool(self._rule(pod).scored)

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        allocatable, index = self.handle.cluster.allocatable, nodes.index
        prefers_free, packs, scored = self._rule(pod)
        self._offers.follow()
        slot = nodes.only
        if slot is not None and scored:
            return np.asarray([self._score_of(pod, slot)])
        total: Scores | None = None
        for row, amount, weight in scored:
            offered, used = allocatable[row][index], nodes.used(row) + amount
            part = np.subtract(offered, used, out=used) if prefers_free else used
            part = np.maximum(part, 0, out=part) if prefers_free else np.minimum(part, offered, out=part)
            share: Scores = part / self._offers.divisors(row)[index]
            if weight != 1:
                share *= weight
            total = share if total is None else np.add(total, share, out=total)
        if total is None:
            return np.zeros(len(nodes))
        total *= MOST_FOR_MEMBERS if packs and pod.group is not None else 100.0
        total /= self._offers.weights(scored)[index]
        return total

    def _score_of(self, pod: Pod, slot: int) -> float:
        """The score of one node, by the same steps."""
        allocatable, requested = self.handle.cluster.allocatable, self.handle.cluster.requested
        prefers_free, packs, scored = self._rule(pod)
        total = 0.0
        for row, amount, weight in scored:
            offered, used = allocatable.item(row, slot), requested.item(row, slot) + amount
            part = max(offered - used, 0) if prefers_free else min(used, offered)
            total += part / self._offers.divisors(row).item(slot) * weight
        total *= MOST_FOR_MEMBERS if packs and pod.group is not None else 100.0
        return float(total / self._offers.weights(scored).item(slot))

    def _rule(self, pod: Pod) -> _Rule:
        """What counts for this pod: resources that some node may offer."""
        row_of = self.handle.cluster.row_of
        asked = pod.spec.requests
        known = self._known.get(asked)
        if known is not None and known[0] == len(row_of):
            return known[1]
        devices = asked_accelerators(pod) if self._packs_accelerators else ()
        if devices:
            rule = _Rule(False, True, scored_requests(pod, devices, row_of))
        else:
            rule = _Rule(self._prefers_free, False, scored_requests(pod, self._weights, row_of))
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[asked] = len(row_of), rule
        return rule


def _shortage(resource: str, amount: int, free: int) -> str:
    wanted, left = format_amount(resource, amount), format_amount(resource, free)
    if wanted == left:  # rounded for reading, they would hide what is lacking
        wanted, left = str(amount), str(free)
    return f"{resource}: requested {wanted}, free {left}"
