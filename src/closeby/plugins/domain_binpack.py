"""domain-binpack: single pods fill domains that are in use anyway, so that whole racks stay free for gangs.

Of nodes that are about equally full, a single pod goes to the one whose leaf is fullest, then whose block is.
The score is that of Volcano's plugin network-topology-aware for pods without a topology of their own
(``hypernode.binpack.normal-pod``): with s_t the used part of the node's domain of tier t, this pod included,
and tier 1 the finest, ``sum(fading^(t-1) x s_t) / sum(fading^(t-1))``.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Scores
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import Handle, Scope, Score
from closeby.scheduling.plugin_helpers import (
    ScoredRequest,
    ScoredResource,
    check_resources,
    scored_requests,
)
from closeby.scheduling.plugin_view import CycleState, NodeChanges, Nodes
from closeby.topology.tree import Tree


class BinpackArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``topology``: whose domains; none: the only one there is, and no score where there are several.

    ``fading``: how much a coarser tier counts beside the next finer one.
    """

    topology: str | None = None
    fading: Annotated[float, Meta(gt=0, le=1)] = 0.8
    resources: tuple[ScoredResource, ...] = (
        ScoredResource("nvidia.com/gpu"),
        ScoredResource("cpu"),
        ScoredResource("memory"),
    )

    def __post_init__(self) -> None:
        check_resources(self.resources)


class DomainBinpack(Score):
    """Scores a single pod's nodes by how much of their domains is used.

    A resource that a domain does not offer is left out, and so are extended resources that the pod does not
    ask for. Where a node lacks a level's label it breaks up no domain, which counts as a full one.
    """

    name: ClassVar[str] = "domain-binpack"
    shares_by_spec = True
    Arguments = BinpackArguments
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    # A GPU more in use, of eight, counts for 4.2 points of NodeResourcesFit with three resources: so much
    # that domains only decide among nodes that are as full.
    default_weight: ClassVar[float] = 0.04

    def __init__(self, arguments: BinpackArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._topology = arguments.topology
        self._weights = tuple((one.name, one.weight) for one in arguments.resources)
        self._offers = _Offers(handle.cluster, arguments.fading)

    def conditions(self) -> tuple[Condition, ...]:
        """Tells of a topology that is not there."""
        if self._topology is None or self._topology in self.handle.topologies.usable():
            return ()
        return (_unknown(self._topology),)

    def class_key(self, pod: Pod) -> Hashable:
        return pod.spec.requests

    @property
    def scores_any(self) -> bool:
        """Only where there are levels above the node."""
        tree = self._tree()
        return tree is not None and bool(tree.levels)

    def scores(self, pod: Pod) -> bool:
        """Only for pods that belong to no gang and to no application, and only where domains can differ."""
        alone = pod.group is None and self.handle.applications.of(pod) is None
        return alone and self.scores_any and bool(self._scored(pod))

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """100 where all domains of a node are full; shape (len(nodes),)."""
        tree = self._tree()
        scored = self._scored(pod)
        scores = np.zeros(len(nodes))
        if tree is None or not tree.levels or not scored:
            return scores
        positions = tree.position_of[nodes.slots]
        outside = positions == tree.size
        if outside.all():
            return scores + 100.0
        rows, tiers = self._offers.follow(tree, scored)
        amounts = np.asarray([[one.amount] for one in scored])
        requested = self.handle.cluster.requested[rows, tree.slot_at]
        for level, used in _by_domain(tree, requested):
            tier = tiers[level]
            shares = np.minimum((used + amounts) / tier.offered, 1.0)
            parts = (shares * tier.weights).sum(axis=0) + tier.given
            scores += parts.take(tree.domain_at[level].take(positions, mode="clip"))
        scores[outside] = 100.0
        # The weights add up to 100, but for rounding.
        return np.minimum(scores, 100.0, out=scores)

    def _tree(self) -> Tree | None:
        topologies = self.handle.topologies
        return topologies.only_tree() if self._topology is None else topologies.tree(self._topology)

    def _scored(self, pod: Pod) -> tuple[ScoredRequest, ...]:
        return scored_requests(pod, self._weights, self.handle.cluster.row_of)


def _unknown(topology: str) -> Condition:
    return Condition(
        reason=Reason.TOPOLOGY_NOT_FOUND,
        object="Plugin/domain-binpack",
        field="arguments.topology",
        message=f"there is no usable topology {topology!r}",
        remedy="name a declared one, or none if there is only one; until then no domain is filled first",
    )


class _Tier(Struct, frozen=True, eq=False):
    """What counts at one level, of D domains and R resources."""

    #: Allocatable amounts, at least 1; shape (R, D).
    offered: Amounts
    #: What a resource that is all in use adds to the score; shape (R, D).
    weights: Scores
    #: What a domain that offers nothing, or lacks its label, adds; shape (D,).
    given: Scores


class _Offers:
    """What the domains of a tree offer; follows the nodes' changes, not their use."""

    def __init__(self, cluster: Cluster, fading: float) -> None:
        self._cluster = cluster
        self._fading = fading
        self._changes = NodeChanges(cluster)
        self._tree: Tree | None = None
        self._known: dict[tuple[tuple[int, int], ...], tuple[NDArray[np.intp], list[_Tier]]] = {}

    def follow(self, tree: Tree, scored: Sequence[ScoredRequest]) -> tuple[NDArray[np.intp], list[_Tier]]:
        """Rows of the resources, shape (R, 1), and what counts at each level of the tree."""
        changed = self._changes.take()
        if tree is not self._tree or changed is None or len(changed):
            self._tree = tree
            self._known.clear()
        key = tuple((one.row, one.weight) for one in scored)
        found = self._known.get(key)
        if found is None:
            rows = np.asarray([[one.row] for one in scored], dtype=np.intp)
            shares = np.asarray([[one.weight] for one in scored], dtype=np.float64)
            found = self._known[key] = rows, self._tiers(tree, rows, shares)
        return found

    def _tiers(self, tree: Tree, rows: NDArray[np.intp], shares: Scores) -> list[_Tier]:
        count = len(tree.levels)
        fading = self._fading ** np.arange(count - 1, -1, -1)
        fading *= 100.0 / fading.sum()
        tiers = {}
        for level, offered in _by_domain(tree, self._cluster.allocatable[rows, tree.slot_at]):
            weights = shares * ((offered > 0) & tree.labelled[level])
            whole = weights.sum(axis=0)
            weights *= fading[level] / np.where(whole > 0, whole, 1)
            given = np.where(whole > 0, 0.0, fading[level])
            tiers[level] = _Tier(np.maximum(offered, 1), weights, given)
        return [tiers[level] for level in range(count)]


def _by_domain(tree: Tree, amounts: Amounts) -> Iterator[tuple[int, Amounts]]:
    """Sums over nodes, given by position in the last axis, of the domains of each level; the finest first."""
    for level in range(len(tree.levels) - 1, -1, -1):
        amounts = np.add.reduceat(amounts, tree.children[level][:-1], axis=-1)
        yield level, amounts
