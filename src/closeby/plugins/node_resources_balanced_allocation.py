"""NodeResourcesBalancedAllocation: prefers nodes on which the pod makes the use of resources more even."""

from collections.abc import Hashable
from math import inf

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Amounts, Scores
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Handle, Scope, Score
from closeby.scheduling.plugin_helpers import (
    Offers,
    ScoredRequest,
    ScoredResource,
    asked_accelerators,
    check_resources,
    scored_requests,
)
from closeby.scheduling.plugin_view import CycleState, Nodes


class BalancedArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Upstream's ``NodeResourcesBalancedAllocationArgs``.

    Without ``resources`` CPU and memory are balanced, as upstream does, but for no pod that asks for
    accelerators: those go to the fullest node.
    """

    resources: tuple[ScoredResource, ...] | None = None

    def __post_init__(self) -> None:
        if self.resources is not None:
            check_resources(self.resources)
            if any(resource.weight != 1 for resource in self.resources):
                raise ValueError("resources: weight must be 1")


#: Requests whose balanced resources are remembered.
REMEMBERED = 1 << 14


class NodeResourcesBalancedAllocation(Score):
    """Upstream's plugin of that name.

    With s the standard deviation of the used parts (0 to 1) of the resources that a node offers, a node has
    75 points, and up to 25 more or less by how much the pod lowers or raises s. Extended resources that the
    pod does not ask for are left out, and a pod that asks for none of the resources is not scored. Unlike
    upstream's, the points are not rounded down.
    """

    name = "NodeResourcesBalancedAllocation"
    shares_by_spec = True
    Arguments = BalancedArguments
    score_scope = Scope.PER_NODE
    scores_by_use = True

    def __init__(self, arguments: BalancedArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._leaves_accelerators = arguments.resources is None
        resources = arguments.resources or (ScoredResource("cpu"), ScoredResource("memory"))
        self._weights = tuple((resource.name, resource.weight) for resource in resources)
        self._offers = Offers(handle)
        #: Requests -> how many resources were known, and those that are balanced.
        self._known: dict[Hashable, tuple[int, tuple[ScoredRequest, ...]]] = {}

    def class_key(self, pod: Pod) -> Hashable:
        return pod.spec.requests

    def scores(self, pod: Pod) -> bool:
        return len(self._balanced(pod)) > 1

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        index = nodes.index
        self._offers.follow()
        slot = nodes.only
        if slot is not None and len(self._balanced(pod)) == 2:
            return np.asarray([self._score_of(pod, slot)])
        rows = [(one.row, one.amount, self._offers.divisors(one.row)[index]) for one in self._balanced(pod)]
        offered = [np.isfinite(divisors) for _, _, divisors in rows]
        before = [_part(nodes.used(row), divisors) for row, _, divisors in rows]
        after = [_part(nodes.used(row) + amount, divisors) for row, amount, divisors in rows]
        change: Scores = _deviation(before, offered) - _deviation(after, offered)
        change *= 50.0
        change += 75.0
        return change

    def _score_of(self, pod: Pod, slot: int) -> float:
        """The score of one node by two resources, by the same steps."""
        requested = self.handle.cluster.requested
        before, after = [], []
        for row, amount, _ in self._balanced(pod):
            divisor, used = self._offers.divisors(row).item(slot), requested.item(row, slot)
            if divisor == inf:
                return 75.0
            before.append(min(used / divisor, 1.0))
            after.append(min((used + amount) / divisor, 1.0))
        change = abs(before[0] - before[1]) * 0.5 - abs(after[0] - after[1]) * 0.5
        return change * 50.0 + 75.0

    def _balanced(self, pod: Pod) -> tuple[ScoredRequest, ...]:
        """The resources that count for this pod; none where it asks for none of them."""
        row_of = self.handle.cluster.row_of
        asked = pod.spec.requests
        known = self._known.get(asked)
        if known is not None and known[0] == len(row_of):
            return known[1]
        balanced: tuple[ScoredRequest, ...] = ()
        if not (self._leaves_accelerators and asked_accelerators(pod)):
            balanced = scored_requests(pod, self._weights, row_of)
        if not any(one.amount for one in balanced):
            balanced = ()
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[asked] = len(row_of), balanced
        return balanced


def _part(used: Amounts, divisors: NDArray[np.float64]) -> Scores:
    """The part in use, at most 1; 0 where the resource is not offered."""
    part: Scores = used / divisors
    return np.minimum(part, 1.0, out=part)


def _deviation(parts: list[Scores], offered: list[NDArray[np.bool_]]) -> Scores:
    """Standard deviation over the resources that each node offers; 0 where it offers fewer than two."""
    if len(parts) == 2:  # The common case: half of the difference.
        apart: Scores = np.subtract(parts[0], parts[1])
        np.abs(apart, out=apart)
        apart *= 0.5
        apart[~(offered[0] & offered[1])] = 0.0
        return apart
    there = np.asarray(offered)
    counts = np.maximum(there.sum(axis=0), 1)
    every = np.asarray(parts)
    mean = every.sum(axis=0) / counts
    squares = np.where(there, (every - mean) ** 2, 0.0)
    deviation: Scores = np.sqrt(squares.sum(axis=0) / counts)
    return deviation
