"""Where the domains of a fabric are drawn: each above what it holds, from the whole cluster down."""

from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.pictures.boxes import shortened
from closeby.objects.arrays import Floats, Ints
from closeby.objects.words import plural
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain, Tree

WIDTH = 1000.0
#: Room to the left for the names of levels.
MARGIN = 84.0
MOST_MARGIN = 200.0
#: A level with more domains is not drawn, nor are those below it.
MOST_DOMAINS = 800
#: Height of a domain's bar, and of the links between levels.
BAR = 26.0
LINKS = 84.0
#: Gap between domains of different parents, as a share of the width.
GAP = 0.012
#: Width of a letter of a name.
LETTER = 6.2


class DrawnDomains(Struct, frozen=True, kw_only=True, eq=False):
    """The D domains that are drawn, from the root down, with their bars; shapes (D,)."""

    domains: tuple[Domain, ...]
    #: Index of the domain above; the root's is its own.
    above: NDArray[np.intp]
    left: Floats
    right: Floats
    top: Floats
    #: Levels that are drawn, coarse to fine.
    levels: int
    #: What is written at the left of each level, that of the whole cluster first.
    labels: tuple[str, ...]


def drawn_domains(tree: Tree) -> DrawnDomains | None:
    """Where the tree's domains are: each above what it holds. None when there are no levels to draw.

    Nodes without a level's label are no domains of it, and are left out.
    """
    levels = 0
    while levels < tree.node_level and 0 < len(_shown(tree, levels)) <= MOST_DOMAINS:
        levels += 1
    if not levels or not tree.size:
        return None
    labels = level_labels(tree, levels)
    margin = min(max(MARGIN, max(map(len, labels)) * LETTER + 10), MOST_MARGIN)
    middle = (margin + WIDTH) / 2
    left, right = _columns(tree, levels, margin)
    left[ROOT], right[ROOT] = middle - 0.2 * (WIDTH - margin), middle + 0.2 * (WIDTH - margin)
    domains = [
        ROOT,
        *(Domain(level, index) for level in range(levels) for index in _shown(tree, level).tolist()),
    ]
    number = {domain: index for index, domain in enumerate(domains)}
    return DrawnDomains(
        domains=tuple(domains),
        above=np.asarray([number[tree.ancestor(one, max(one.level - 1, ROOT_LEVEL))] for one in domains]),
        left=np.asarray([left[one] for one in domains]),
        right=np.asarray([right[one] for one in domains]),
        top=np.asarray([(one.level + 1) * (BAR + LINKS) for one in domains]),
        levels=levels,
        labels=tuple(shortened(label, margin, LETTER) for label in labels),
    )


def _shown(tree: Tree, level: int) -> Ints:
    """The domains of a level that have its label and are in such domains; ascending."""
    firsts = tree.bounds[level][:-1]
    known = tree.labelled[level].copy()
    for upper in range(level):
        known &= tree.labelled[upper][tree.domain_at[upper][firsts]]
    return np.flatnonzero(known)


def level_labels(tree: Tree, levels: int) -> list[str]:
    """``all``, ``3 pods``, ``119 leaves``: how many domains of a level are drawn."""
    return ["all", *(plural(len(_shown(tree, one)), tree.level_names[one]) for one in range(levels))]


def _columns(tree: Tree, levels: int, margin: float) -> tuple[dict[Domain, float], dict[Domain, float]]:
    """Left and right ends: domains that hold no others are equally wide, apart by parents."""
    drawn = [_shown(tree, level) for level in range(levels)]
    ends: list[Domain] = []
    for level in range(levels):
        for index in drawn[level].tolist():
            domain = Domain(level, index)
            first, end = tree.within(domain, level + 1) if level + 1 < levels else (0, 0)
            if level + 1 == levels or not np.isin(np.arange(first, end), drawn[level + 1]).any():
                ends.append(domain)
    ends.sort(key=tree.span)
    parents = [tree.ancestor(one, one.level - 1) for one in ends]
    gaps = np.cumsum([0, *(one != other for one, other in pairwise(parents))])
    room = WIDTH - margin
    gap = min(GAP * room, 0.25 * room / max(int(gaps[-1]), 1))
    wide = (room - gap * gaps[-1]) / len(ends)
    lefts = margin + np.arange(len(ends)) * wide + gaps * gap
    inner = min(wide * 0.15, 3.0)
    left: dict[Domain, float] = {}
    right: dict[Domain, float] = {}
    for lowest, at in zip(ends, lefts.tolist(), strict=True):
        for level in range(lowest.level, ROOT_LEVEL, -1):
            above = tree.ancestor(lowest, level)
            left.setdefault(above, at)
            right[above] = at + wide - inner
    return left, right
