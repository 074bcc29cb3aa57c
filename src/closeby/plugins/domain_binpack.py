"""domain-binpack: single pods fill domains that are in use anyway, so that whole racks stay free for gangs.

Of nodes that are about equally full, a single pod goes to the one whose leaf is fullest, then whose block is.
By default that concerns pods that ask for accelerators, and what they ask for.
The score is that of Volcano's plugin network-topology-aware for pods without a topology of their own
(``hypernode.binpack.normal-pod``): with s_t the used part of the node's domain of tier t, this pod included,
and tier 1 the finest, ``sum(fading^(t-1) x s_t) / sum(fading^(t-1))``.
"""

from collections.abc import Hashable, Sequence
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Ints, Scores
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import Handle, Scope, Score
from closeby.scheduling.plugin_helpers import (
    ScoredRequest,
    ScoredResource,
    asked_accelerators,
    check_resources,
    scored_requests,
)
from closeby.scheduling.plugin_view import CycleState, NodeChanges, Nodes
from closeby.topology.tree import Tree


class BinpackArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``topology``: whose domains; none: the only one there is, and no score where there are several.

    ``fading``: how much a coarser tier counts beside the next finer one. ``resources``: what counts; none:
    the accelerators that a pod asks for, and no score for a pod that asks for none.
    """

    topology: str | None = None
    fading: Annotated[float, Meta(gt=0, le=1)] = 0.8
    resources: tuple[ScoredResource, ...] | None = None

    def __post_init__(self) -> None:
        if self.resources is not None:
            check_resources(self.resources)


#: Requests whose scored resources are remembered.
REMEMBERED = 1 << 14


class DomainBinpack(Score):
    """Scores a single pod's nodes by how much of their domains is used.

    A resource that a domain does not offer is left out, and so are extended resources that the pod does not
    ask for. Where a node lacks a level's label it breaks up no domain, which counts as a full one.
    """

    name: ClassVar[str] = "domain-binpack"
    shares_by_spec = True
    Arguments = BinpackArguments
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    scores_members: ClassVar[bool] = False
    # A GPU more in use, of eight, counts for 12.5 points of NodeResourcesFit, and 4.2 where CPU and memory
    # count as much: so much that domains only decide among nodes that are as full.
    default_weight: ClassVar[float] = 0.04

    def __init__(self, arguments: BinpackArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._topology = arguments.topology
        named = arguments.resources
        self._weights = None if named is None else tuple((one.name, one.weight) for one in named)
        self._domains = _Domains(handle.cluster, arguments.fading)
        #: Requests -> how many resources were known, and which of them are scored.
        self._known: dict[Hashable, tuple[int, tuple[ScoredRequest, ...]]] = {}

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
        by_leaf = self._domains.scores(tree, scored)
        by_leaf.take(tree.domain_at[-1].take(positions, mode="clip"), out=scores)
        scores[outside] = 100.0
        # The weights add up to 100, but for rounding.
        return np.minimum(scores, 100.0, out=scores)

    def _tree(self) -> Tree | None:
        topologies = self.handle.topologies
        return topologies.only_tree() if self._topology is None else topologies.tree(self._topology)

    def _scored(self, pod: Pod) -> tuple[ScoredRequest, ...]:
        row_of, asked = self.handle.cluster.row_of, pod.spec.requests
        known = self._known.get(asked)
        if known is not None and known[0] == len(row_of):
            return known[1]
        scored = scored_requests(
            pod, asked_accelerators(pod) if self._weights is None else self._weights, row_of
        )
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[asked] = len(row_of), scored
        return scored


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


class _Used:
    """How much of some resources the domains of a tree use; follows the pods that come and go."""

    def __init__(self, cluster: Cluster, tree: Tree, rows: NDArray[np.intp]) -> None:
        """``rows`` has shape (R, 1)."""
        self._cluster = cluster
        self._tree = tree
        self._rows = rows
        self._cursor = -1
        #: The columns that were read, and what they said; shape (R, slots).
        self._columns: Amounts | None = None
        self._seen: Amounts = np.zeros((len(rows), 0), dtype=np.int64)
        #: Per level, the coarsest first; shape (R, D) each.
        self._levels: list[Amounts] = []

    def by_level(self) -> list[Amounts]:
        """The sums as they are now."""
        cluster = self._cluster
        changed = cluster.usage_changes.since(self._cursor) if self._cursor >= 0 else None
        self._cursor = cluster.usage_changes.cursor
        many = max(64, cluster.capacity // 8)
        if changed is None or cluster.requested is not self._columns or len(changed) > many:
            self._columns = cluster.requested
            self._seen = cluster.requested[self._rows[:, 0]]
            self._levels = self._tree.sums_by_level(self._seen[:, self._tree.slot_at])[:-1]
        elif len(changed):
            self._update(np.unique(changed))
        return self._levels

    def _update(self, slots: Ints) -> None:
        tree = self._tree
        now = self._cluster.requested[self._rows, slots]
        change = now - self._seen[:, slots]
        self._seen[:, slots] = now
        positions = tree.position_of[slots]
        inside = positions < tree.size
        if not inside.all():
            positions, change = positions[inside], change[:, inside]
        for sums, at in zip(self._levels, tree.domain_at, strict=True):
            for of_one, by in zip(sums, change, strict=True):
                np.add.at(of_one, at[positions], by)


class _Kept(Struct, frozen=True, eq=False):
    """What is kept for pods that are scored by the same resources."""

    tiers: list[_Tier]
    used: _Used


class _Domains:
    """How full the domains of a tree are. What they offer follows the nodes' changes."""

    def __init__(self, cluster: Cluster, fading: float) -> None:
        self._cluster = cluster
        self._fading = fading
        self._changes = NodeChanges(cluster)
        self._tree: Tree | None = None
        self._known: dict[tuple[tuple[int, int], ...], _Kept] = {}

    def scores(self, tree: Tree, scored: Sequence[ScoredRequest]) -> Scores:
        """The score in each domain of the finest level, this pod included; shape (D,)."""
        kept = self._follow(tree, scored)
        amounts = np.asarray([[one.amount] for one in scored])
        total: Scores | None = None
        for level, used in enumerate(kept.used.by_level()):
            tier = kept.tiers[level]
            shares = np.minimum((used + amounts) / tier.offered, 1.0)
            parts: Scores = (shares * tier.weights).sum(axis=0) + tier.given
            if total is not None:
                parts += np.repeat(total, np.diff(tree.children[level - 1]))
            total = parts
        if total is None:
            raise ValueError("a tree without levels has no domains")
        return total

    def _follow(self, tree: Tree, scored: Sequence[ScoredRequest]) -> _Kept:
        changed = self._changes.take()
        if tree is not self._tree or changed is None or len(changed):
            self._tree = tree
            self._known.clear()
        key = tuple((one.row, one.weight) for one in scored)
        found = self._known.get(key)
        if found is None:
            rows = np.asarray([[one.row] for one in scored], dtype=np.intp)
            shares = np.asarray([[one.weight] for one in scored], dtype=np.float64)
            found = self._known[key] = _Kept(
                self._tiers(tree, rows, shares), _Used(self._cluster, tree, rows)
            )
        return found

    def _tiers(self, tree: Tree, rows: NDArray[np.intp], shares: Scores) -> list[_Tier]:
        count = len(tree.levels)
        fading = self._fading ** np.arange(count - 1, -1, -1)
        fading *= 100.0 / fading.sum()
        tiers = []
        for level, offered in enumerate(
            tree.sums_by_level(self._cluster.allocatable[rows, tree.slot_at])[:-1]
        ):
            weights = shares * ((offered > 0) & tree.labelled[level])
            whole = weights.sum(axis=0)
            weights *= fading[level] / np.where(whole > 0, whole, 1)
            given = np.where(whole > 0, 0.0, fading[level])
            tiers.append(_Tier(np.maximum(offered, 1), weights, given))
        return tiers
