"""Where each domain and node of a topology is on paper: nested boxes, packed into rows.

Nodes are bars that stand above one another, as hosts do in a rack; domains are boxes around them. Lengths are
pixels, with y growing downward.
"""

from collections.abc import Sequence
from math import ceil

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Floats
from closeby.objects.words import path_text, plural
from closeby.topology.tree import ROOT, Domain, Tree

#: The widest a map may get.
WIDTH = 1060.0
#: Sizes of a node's bar, largest first; the first that keeps the map below ``HEIGHT`` is taken.
BARS = (
    (150.0, 20.0),
    (112.0, 18.0),
    (88.0, 15.0),
    (64.0, 12.0),
    (48.0, 9.0),
    (40.0, 8.0),
    (32.0, 6.0),
    (24.0, 5.0),
    (16.0, 4.0),
)
#: For clusters that none of these suits, however high the map gets.
LEAST_BAR = (8.0, 3.0)
HEIGHT = 760.0
#: Bars at least this high have the node's name beside them.
NAMED_HEIGHT = 15.0
#: Leaves whose bars are at least this high, or that have so many nodes on average, have their name above.
NAMED_LEAF_HEIGHT = 5.0
NODES_OF_LARGE_LEAF = 16
#: Nodes above one another before a second column is begun.
STACK = 8
#: Between bars, between boxes, and between a box and what is in it.
BAR_GAP = 1.0
BOX_GAP = 4.0
PADDING = 3.0
#: Height of the line with a domain's name: of domains that hold nodes, and of those that hold domains.
LEAF_LINE = 11.0
UPPER_LINE = 18.0
#: Width of a character of such a name.
LEAF_LETTER = 4.9
UPPER_LETTER = 6.6
NAME_LETTER = 5.4
#: Below this width a leaf's name says nothing any more.
FEWEST_LETTERS = 3


class Box(Struct, frozen=True, kw_only=True):
    """One domain, or all nodes of a domain that lack the label of its children: its frame, and its title."""

    #: The first of those nodes is a domain of its own in the tree.
    domain: Domain
    left: float
    top: float
    right: float
    bottom: float
    label: str
    #: What the pointer shows.
    name: str
    #: Whether it holds nodes and no other domains.
    is_leaf: bool


class Boxes(Struct, frozen=True, kw_only=True, eq=False):
    """A map of n nodes."""

    width: float
    height: float
    #: All domains, outer ones before those inside them.
    boxes: tuple[Box, ...]
    #: Left, top, right and bottom of each node's bar by position in the tree; shape (n, 4).
    bars: Floats
    #: What is written to the left of the bars; empty where there is no room for it.
    names: tuple[str, ...]
    #: What "…" stands for in one of the names of domains, such as ``block-1-rack-``; empty where all fit.
    ellipsis: str = ""


def boxes_of(tree: Tree) -> Boxes:
    """Lay a topology out, with bars as large as its size allows."""
    for bar in BARS:
        drawn = _Packing(tree, bar).drawn()
        if drawn.height <= HEIGHT:
            return drawn
    return _Packing(tree, LEAST_BAR).drawn()


def shortened(text: str, width: float, letter: float) -> str:
    """As much of a text as fits, with an ellipsis for the rest; nothing if next to nothing would be left."""
    most = int(width / letter)
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…" if most >= FEWEST_LETTERS else ""


_SEPARATORS = "-_./: "


def shared_beginning(names: Sequence[str]) -> str:
    """What several names begin with, up to a separator."""
    first, last = (min(names), max(names)) if len(names) > 1 else ("", "")
    alike = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), 0)
    beginning = first[:alike]
    return beginning[: max(beginning.rfind(one) for one in _SEPARATORS) + 1]


def shared_ending(names: Sequence[str]) -> str:
    """What several names end with, from a separator on, as hosts with their network's name do."""
    return shared_beginning([name[::-1] for name in names])[::-1]


def told_apart(names: Sequence[str], width: float, letter: float) -> tuple[str, ...]:
    """Names that stand beside each other, each in so much room: where one of them does not fit, all lose what
    they end with, and then what they begin with, so that what is left tells them apart."""
    shown = list(names)
    if max(map(len, shown), default=0) * letter > width and (ending := shared_ending(shown)):
        shown = [f"{name.removesuffix(ending)}…" for name in shown]
    if max(map(len, shown), default=0) * letter > width and (beginning := shared_beginning(shown)):
        shown = [f"…{name.removeprefix(beginning)}" for name in shown]
    return tuple(shortened(name, width, letter) for name in shown)


class _Inside(Struct, frozen=True):
    """What a domain needs: the size of its contents, and where the domains in it are from their corner."""

    width: float
    height: float
    children: tuple[tuple[Domain, float, float], ...]
    columns: int


class _Packing:
    """Sizes from the nodes upward, then corners from the root downward."""

    def __init__(self, tree: Tree, bar: tuple[float, float]) -> None:
        self._tree = tree
        self._bar_width, self._bar_height = bar
        self._named = self._bar_height >= NAMED_HEIGHT
        names = tree.values[-1] if self._named else ()
        longest = min(max((len(name or "–") for name in names), default=0), 18)
        # All lengths are whole pixels, so that sums of them are exact.
        self._name_width = float(ceil(longest * NAME_LETTER) + 4) if self._named else 0.0
        #: Where nodes without a label that stand in one box end: the index after the last of them.
        self._ends: dict[Domain, int] = {}
        self._labels: dict[Domain, str] = {}
        self._ellipsis = ""
        leaves = tree.count(tree.node_level - 1) if tree.node_level > 0 else 1
        tells = self._bar_height >= NAMED_LEAF_HEIGHT or tree.size >= NODES_OF_LARGE_LEAF * leaves
        self._leaf_line = LEAF_LINE if tells else 0.0
        self._inside: dict[Domain, _Inside] = {}
        self._boxes: list[Box] = []
        self._bars = np.zeros((tree.size, 4))

    def drawn(self) -> Boxes:
        """The finished map."""
        whole = self._measure(ROOT, WIDTH)
        self._place(ROOT, 0.0, 0.0)
        hosts = self._tree.values[-1] if self._named else ()
        return Boxes(
            width=whole.width,
            height=whole.height,
            boxes=tuple(self._boxes),
            bars=self._bars,
            names=told_apart([host or "–" for host in hosts], self._name_width, NAME_LETTER),
            ellipsis=self._ellipsis,
        )

    def _frame(self, domain: Domain) -> tuple[float, float]:
        """Width and height that a domain's own frame and name add to its contents."""
        if domain == ROOT:
            return 0.0, 0.0
        line = self._leaf_line if self._is_leaf(domain) else UPPER_LINE
        return 2 * PADDING, 2 * PADDING + line

    def _is_leaf(self, domain: Domain) -> bool:
        return domain.level == self._tree.node_level - 1 or domain in self._ends

    def _span(self, domain: Domain) -> tuple[int, int]:
        """Positions of a domain, or of nodes without a label."""
        first, end = self._tree.span(domain)
        if domain in self._ends:
            _, end = self._tree.span(Domain(domain.level, self._ends[domain] - 1))
        return first, end

    def _below(self, domain: Domain) -> list[Domain]:
        """What a domain holds; its nodes without the label of the next level come last, as one."""
        level = domain.level + 1
        first, end = self._tree.within(domain, level)
        known = first + int(np.count_nonzero(self._tree.labelled[level][first:end]))
        found = [Domain(level, index) for index in range(first, known)]
        if known < end:
            found.append(Domain(level, known))
            self._ends[found[-1]] = end
        return found

    def _measure(self, domain: Domain, room: float) -> _Inside:
        """The size of a domain's contents, at most ``room`` wide where that is possible."""
        if self._is_leaf(domain):
            found = self._stack(domain, room)
        else:
            below = self._below(domain)
            found = self._shelves(below, room)
            self._name(below)
        self._inside[domain] = found
        return found

    def _stack(self, domain: Domain, room: float) -> _Inside:
        first, end = self._span(domain)
        wide = self._name_width + self._bar_width
        most = max(int((room + BAR_GAP) / (wide + BAR_GAP)), 1)
        columns = max(min(most, ceil((end - first) / STACK)), 1)
        rows = ceil((end - first) / columns)
        return _Inside(
            columns * (wide + BAR_GAP) - BAR_GAP,
            max(rows * (self._bar_height + BAR_GAP) - BAR_GAP, 0.0),
            (),
            columns,
        )

    def _name(self, domains: Sequence[Domain]) -> None:
        """What is written above the boxes of one domain."""
        named = [one for one in domains if one not in self._ends]
        for one in domains:
            if one in self._ends:
                self._labels[one] = shortened(self._full_name(one), self._inside[one].width, LEAF_LETTER)
        if named and self._is_leaf(named[0]):
            room = min(self._inside[one].width for one in named)
            names = [self._tree.path(one)[-1] or "" for one in named]
            shown = told_apart(names, room, LEAF_LETTER) if self._leaf_line else [""] * len(named)
            self._labels.update(zip(named, shown, strict=True))
            if shown and shown[0].startswith("…"):
                self._ellipsis = shared_beginning(names)
            return
        for one in named:
            self._labels[one] = self._upper_label(one, self._inside[one].width)

    def _full_name(self, domain: Domain) -> str:
        if domain not in self._ends:
            return path_text(self._tree.path(domain))
        first, end = self._span(domain)
        return f"no {self._tree.level_names[domain.level]} label, {plural(end - first, 'node')}"

    def _shelves(self, domains: Sequence[Domain], room: float) -> _Inside:
        """Boxes side by side, and a new row where the next would not fit."""
        left = top = row = widest = 0.0
        placed = []
        for domain in domains:
            extra_width, extra_height = self._frame(domain)
            inside = self._measure(domain, room - extra_width)
            width, height = inside.width + extra_width, inside.height + extra_height
            if left and left + width > room:
                left, top, row = 0.0, top + row + BOX_GAP, 0.0
            placed.append((domain, left, top))
            left, row = left + width + BOX_GAP, max(row, height)
            widest = max(widest, left - BOX_GAP)
        return _Inside(widest, top + row, tuple(placed), 0)

    def _place(self, domain: Domain, left: float, top: float) -> None:
        """Put a domain's frame at a corner, and what is in it inside."""
        inside = self._inside[domain]
        if domain != ROOT:
            extra_width, extra_height = self._frame(domain)
            self._boxes.append(
                Box(
                    domain=domain,
                    left=left,
                    top=top,
                    right=left + inside.width + extra_width,
                    bottom=top + inside.height + extra_height,
                    label=self._labels[domain],
                    name=self._full_name(domain),
                    is_leaf=self._is_leaf(domain),
                )
            )
            left, top = left + PADDING, top + extra_height - PADDING
        if self._is_leaf(domain):
            self._place_bars(domain, left, top, inside.columns)
        for child, right, down in inside.children:
            self._place(child, left + right, top + down)

    def _place_bars(self, domain: Domain, left: float, top: float, columns: int) -> None:
        first, end = self._span(domain)
        rows = ceil((end - first) / columns)
        index = np.arange(end - first)
        wide = self._name_width + self._bar_width
        x = left + index // max(rows, 1) * (wide + BAR_GAP) + self._name_width
        y = top + index % max(rows, 1) * (self._bar_height + BAR_GAP)
        self._bars[first:end] = np.stack([x, y, x + self._bar_width, y + self._bar_height], axis=1)

    def _upper_label(self, domain: Domain, width: float) -> str:
        value = self._tree.path(domain)[-1] or "–"
        first, end = self._tree.span(domain)
        full = f"{value}, {plural(end - first, 'node')}"
        return full if len(full) * UPPER_LETTER <= width else shortened(value, width, UPPER_LETTER)
