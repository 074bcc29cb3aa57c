"""Distances between all nodes of a tree, stored by groups of nodes that are equally far from all others."""

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Costs, Ints
from closeby.topology.tree import ROOT_LEVEL, Tree
from closeby.topology.uplinks import way


class EdgeCosts(Struct, frozen=True, eq=False):
    """Number of tree edges between nodes, degraded ones by their cost. With L groups of nodes.

    ``group_of`` has shape (slots,); slots that are not in the tree are in group 0, which means nothing.
    ``between`` has shape (L, L); its diagonal holds the edges between different nodes of one group.
    """

    group_of: Ints
    between: Costs


def edge_costs(tree: Tree | None, capacity: int) -> EdgeCosts:
    """Edges between nodes; without a tree different nodes are 1 apart. ``capacity`` is the number of slots.

    Nodes of one finest domain make a group. So do nodes that lack the same labels inside one domain: each
    is in a private domain there, so that they are as far from each other as any two of that kind.
    """
    group_of = np.zeros(capacity, dtype=np.intp)
    if tree is None or not tree.size:
        return EdgeCosts(group_of, np.ones((1, 1)))
    #: Level and index of the domain inside which each node lacks no label.
    meet = np.full(tree.size, ROOT_LEVEL, dtype=np.intp)
    owner = np.zeros(tree.size, dtype=np.intp)
    whole = np.ones(tree.size, dtype=np.bool_)
    for level, domain_at in enumerate(tree.domain_at):
        whole = whole & tree.labelled[level][domain_at]
        meet[whole] = level
        owner[whole] = domain_at[whole]
    _, first, groups = np.unique((meet + 1) * tree.size + owner, return_index=True, return_inverse=True)
    group_of[tree.slot_at] = groups
    shared = np.full((len(first), len(first)), ROOT_LEVEL, dtype=np.intp)
    for level, domain_at in enumerate(tree.domain_at):
        owners = domain_at[first]
        shared[owners[:, None] == owners[None, :]] = level
    np.fill_diagonal(shared, meet[first])
    ways = _ways(tree, first, shared)
    return EdgeCosts(group_of, ways + ways.T)


def _ways(tree: Tree, first: Ints, shared: Ints) -> Costs:
    """Edges from the first node of each group up to where it meets each other group; shape (L, L)."""
    if not tree.depths:
        return (tree.node_level - shared).astype(np.float64)
    ways: Costs = np.empty(shared.shape)
    for level in range(ROOT_LEVEL, tree.node_level + 1):
        meet = shared == level
        ways[meet] = np.broadcast_to(way(tree, first, level)[:, None], shared.shape)[meet]
    return ways
