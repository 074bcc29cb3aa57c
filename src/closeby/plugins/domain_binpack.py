"""domain-binpack: single pods fill domains that are in use anyway, so that whole racks stay free for gangs.

Of nodes that are about equally full, a single pod goes to the one whose leaf is fullest, then whose block is.
The score is that of Volcano's plugin network-topology-aware for pods without a topology of their own
(``hypernode.binpack.normal-pod``): with s_t the used part of the node's domain of tier t, this pod included,
and tier 1 the finest, ``sum(fading^(t-1) x s_t) / sum(fading^(t-1))``.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.plugins.node_resources_fit import ScoredRequest, ScoredResource, check_resources, scored_requests
from closeby.scheduling.extension import Handle, Scope, Score, Scores
from closeby.scheduling.node_columns import NodeChanges
from closeby.scheduling.nodes_view import Nodes
from closeby.scheduling.state import CycleState
from closeby.topology.tree import Tree

Amounts = NDArray[np.int64]


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
    Arguments = BinpackArguments
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    # A GPU more in use, of eight, counts for 4.2 points of NodeResourcesFit with three resources: so much
    # that domains only decide among nodes that are as full.
    default_weight: ClassVar[float] = 0.04

    def __init__(self, arguments: BinpackArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._topology = arguments.topology
        self._fading = arguments.fading
        self._weights = tuple((one.name, one.weight) for one in arguments.resources)
        self._offers = _Offers(handle)

    def conditions(self) -> tuple[Condition, ...]:
        """Tells of a topology that is not there."""
        if self._topology is None or self._topology in self.handle.topologies.usable():
            return ()
        return (_unknown(self._topology),)

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
        if tree is None or not tree.levels or not scored:
            return np.zeros(len(nodes))
        self._offers.follow(tree)
        requested = self.handle.cluster.requested
        used = [_by_domain(tree, requested[one.row][tree.slot_at]) for one in scored]
        fading = self._fading ** np.arange(len(tree.levels))[::-1]
        fading /= fading.sum()
        total: Scores = np.zeros(1)
        inside = np.asarray([tree.count(0)])
        for level, weight in enumerate(fading.tolist()):
            shares = self._offers.shares(level, scored, [sums[level] for sums in used])
            shares[~tree.labelled[level]] = 1.0
            total = np.repeat(total, inside) + weight * shares
            inside = np.diff(tree.children[level])
        # The last entry is for nodes that are not in the tree.
        by_position = 100.0 * np.append(np.repeat(total, inside), 1.0)
        # Weights add up to 1 but for rounding.
        scores: Scores = np.minimum(by_position, 100.0)[tree.position_of[nodes.slots]]
        return scores

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


class _Offers:
    """What the domains of a tree offer; follows the nodes' changes, not their use."""

    def __init__(self, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._changes = NodeChanges(handle.cluster)
        self._tree: Tree | None = None
        self._known: dict[int, list[Amounts]] = {}

    def follow(self, tree: Tree) -> None:
        """Forget what is no longer true."""
        changed = self._changes.take()
        if tree is not self._tree or changed is None or len(changed):
            self._tree = tree
            self._known = {}

    def shares(self, level: int, scored: Sequence[ScoredRequest], used: Sequence[Amounts]) -> Scores:
        """Mean used part of each domain of a level, with the pod; 1 where it offers nothing of these."""
        parts, weights = np.zeros(len(used[0])), np.zeros(len(used[0]))
        for one, amounts in zip(scored, used, strict=True):
            offered = self._offered(one.row)[level]
            weight = one.weight * (offered > 0)
            parts += weight * np.minimum((amounts + one.amount) / np.maximum(offered, 1), 1.0)
            weights += weight
        return np.divide(parts, weights, out=np.ones(len(parts)), where=weights > 0)

    def _offered(self, row: int) -> list[Amounts]:
        """Allocatable amounts by level and domain."""
        tree = self._tree
        if tree is None:
            raise ValueError("no tree is followed")
        if row not in self._known:
            self._known[row] = _by_domain(tree, self._cluster.allocatable[row][tree.slot_at])
        return self._known[row]


def _by_domain(tree: Tree, amounts: Amounts) -> list[Amounts]:
    """Sums over the nodes, given by position, of each domain; per level, coarse to fine."""
    found = [amounts]
    for children in reversed(tree.children):
        found.append(np.add.reduceat(found[-1], children[:-1]))
    return found[:0:-1]
