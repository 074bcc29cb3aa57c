"""How well each domain is connected upwards, by what its nodes say of their switches, and what that costs.

A cable that is down is in no scan: only the comparison with siblings shows it. Siblings are the domains
of one level under one domain; what most of them have is what all should have.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Costs
from closeby.topology.labels import MISSING, LabelColumn
from closeby.topology.qos import parse_annotation
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

#: The metrics of the annotation that tell of uplinks.
_CABLES, _BANDWIDTH = "uplinks", "bandwidth"


class Uplinks(Struct, frozen=True, kw_only=True):
    """What leads from one domain to the next coarser one; None means unknown."""

    cables: int | None = None
    #: Bits per second of all cables together.
    bandwidth: int | None = None
    #: What most siblings have, the greatest of several; None where no sibling says anything.
    usual_cables: int | None = None
    usual_bandwidth: int | None = None

    @property
    def cost(self) -> float:
        """How many edges the way up counts as: 1, and 2 where it is half as wide as that of the siblings.

        Cables are counted where bandwidths are not known: one cable fewer is not a loss where those that are
        there are faster.
        """
        if self.bandwidth is not None and self.usual_bandwidth is not None:
            return max(1.0, self.usual_bandwidth / self.bandwidth)
        if self.cables is not None and self.usual_cables is not None:
            return max(1.0, self.usual_cables / self.cables)
        return 1.0

    @property
    def degraded(self) -> bool:
        """Whether siblings are connected better."""
        return self.cost > 1


def usual_amount(amounts: Sequence[int]) -> int:
    """The most frequent one, the greatest of several: where as many have one as the other, more should be."""
    counts = Counter(amounts)
    return max(counts, key=lambda amount: (counts[amount], amount))


def read_uplinks(tree: Tree, column: LabelColumn) -> dict[Domain, Uplinks]:
    """The uplinks of every domain that some node describes.

    ``column`` holds the text of each slot's QoS annotation. What two nodes of a domain say differently is
    unknown, and so is what is said of a name that two switches above one node share.
    """
    codes = column.codes[tree.slot_at]
    if not codes.any():
        return {}
    stated: dict[Domain, dict[str, set[int]]] = {}
    texts: dict[int, Mapping[str, Mapping[str, int | float]]] = {}
    for level, owners in enumerate(tree.domain_at):
        pairs = np.unique(owners.astype(np.int64) * len(column.values) + codes)
        for owner, code in zip(*(one.tolist() for one in np.divmod(pairs, len(column.values))), strict=True):
            domain = Domain(level, owner)
            if code == MISSING or not tree.is_labelled(domain):
                continue
            if code not in texts:
                texts[code] = parse_annotation(column.values[code] or "").switches
            path = tree.path(domain)
            metrics = texts[code].get(path[-1] or "", {}) if path.count(path[-1]) == 1 else {}
            for metric in (_CABLES, _BANDWIDTH):
                if metric in metrics:
                    stated.setdefault(domain, {}).setdefault(metric, set()).add(int(metrics[metric]))
    known = {
        domain: {metric: next(iter(values)) for metric, values in metrics.items() if len(values) == 1}
        for domain, metrics in stated.items()
    }
    return _compared(tree, known)


def _compared(tree: Tree, known: Mapping[Domain, Mapping[str, int]]) -> dict[Domain, Uplinks]:
    families: dict[tuple[int, Domain], list[Domain]] = {}
    for domain in sorted(known):
        families.setdefault((domain.level, tree.ancestor(domain, domain.level - 1)), []).append(domain)
    found: dict[Domain, Uplinks] = {}
    for siblings in families.values():
        cables = [known[one][_CABLES] for one in siblings if _CABLES in known[one]]
        rates = [known[one][_BANDWIDTH] for one in siblings if _BANDWIDTH in known[one]]
        for one in siblings:
            found[one] = Uplinks(
                cables=known[one].get(_CABLES),
                bandwidth=known[one].get(_BANDWIDTH),
                usual_cables=usual_amount(cables) if cables else None,
                usual_bandwidth=usual_amount(rates) if rates else None,
            )
    return found


def weigh(tree: Tree, uplinks: Mapping[Domain, Uplinks]) -> tuple[Costs, ...]:
    """Per level and for single nodes, by domain: the edges from the root down to it, each times its cost.

    Empty where no way up is degraded, so that edges can be counted.
    """
    if not any(one.degraded for one in uplinks.values()):
        return ()
    depths: list[Costs] = []
    above: Costs = np.zeros(tree.size)
    for level, owners in enumerate(tree.domain_at):
        costs = np.ones(tree.count(level))
        for domain, one in uplinks.items():
            if domain.level == level:
                costs[domain.index] = one.cost
        above = above + costs[owners]
        depths.append(above[tree.bounds[level][:-1]])
    return (*depths, above + 1)


def way(tree: Tree, positions: NDArray[np.intp], level: int) -> Costs:
    """Edges from single nodes up to their domains of a level, degraded ones by their cost."""
    if not tree.depths:
        return np.full(len(positions), float(tree.node_level - level))
    depth = tree.depths[tree.node_level][positions]
    if level == ROOT_LEVEL:
        return depth
    return depth - tree.depths[level][tree.owners(positions, level)]


def link_distances(tree: Tree, origin: Domain) -> Costs:
    """Edges from one single node to each, by position, with degraded ones by their cost; shape (n,)."""
    if not tree.depths:
        return tree.distances_from(origin).astype(np.float64)
    distances: Costs = np.empty(tree.size)
    everywhere = np.arange(tree.size)
    at = np.asarray([origin.index], dtype=np.intp)
    for level in range(ROOT_LEVEL, tree.node_level + 1):
        first, end = tree.span(tree.ancestor(origin, level))
        distances[first:end] = way(tree, everywhere[first:end], level) + way(tree, at, level)
    return distances


def greatest_distance(tree: Tree) -> float:
    """What ``link_distances`` gives at most between any two nodes of the tree."""
    if not tree.depths or not tree.size:
        return 2.0 * (tree.node_level + 1)
    return 2.0 * float(tree.depths[tree.node_level].max())
