"""A map of clusters that are too large for a bar for each node: a tile for each domain, darker where busy."""

from collections.abc import Iterator
from math import ceil

import numpy as np
from msgspec import Struct

from closeby.lab.pictures.boxes import (
    BOX_GAP,
    LEAF_LETTER,
    PADDING,
    UPPER_LINE,
    WIDTH,
    Box,
    shared_beginning,
    told_apart,
)
from closeby.lab.pictures.fabric import Domains, busy_colour, summed
from closeby.lab.pictures.gang_marks import UNUSABLE
from closeby.lab.pictures.paper import (
    INK,
    IS_SOUGHT,
    PALE_INK,
    RULE,
    THERE,
    Rows,
    Sheet,
    Spec,
    calculated,
    colour,
    data,
    either,
    label,
    lookup,
    marks,
    quantity,
    where,
    words,
)
from closeby.lab.pictures.rack_map import frames, titles
from closeby.lab.pictures.scene import Scene
from closeby.objects.arrays import Floats, Ints
from closeby.objects.words import path_text, plural
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain, Tree

#: Clusters of more nodes are drawn by domains.
MOST_BARS = 1_500
#: The finest level of so many domains is drawn.
MOST_TILES = 4_000
#: Sizes of a tile, the first that keeps the map below the height, and from which width on it has its name.
TILES = ((72.0, 40.0), (52.0, 34.0), (36.0, 28.0), (26.0, 20.0), (20.0, 14.0), (12.0, 10.0), (8.0, 8.0))
HEIGHT = 900.0
NAMED_WIDTH = 36.0
#: From which width on a tile says how many segments it has.
COUNTED_WIDTH = 52.0
GAP = 2.0
#: Room for the lines below the map, each of them, and where the first is.
KEY_HEIGHT = 46.0
KEY_LINE = 14.0
KEY_TOP = 12.0
_NONE: Ints = np.zeros(0, dtype=np.intp)


class Tiles(Struct, frozen=True, kw_only=True, eq=False):
    """T tiles: labelled domains of one level, and after those of each parent its nodes without that label."""

    level: int
    width: float
    height: float
    boxes: tuple[Box, ...]
    #: Left, top, right and bottom; shape (T, 4).
    corners: Floats
    #: What the pointer shows, and what is written on the tile.
    names: tuple[str, ...]
    labels: tuple[str, ...]
    #: Whether it is a domain, and not a group of nodes without a label.
    labelled: tuple[bool, ...]
    #: Tile of each position in the tree; shape (n,).
    tile_at: Ints
    ellipsis: str


def tiles_of(tree: Tree) -> Tiles | None:
    """Lay a large topology out; None where bars for nodes do, or where no level has few enough domains."""
    if tree.size <= MOST_BARS:
        return None
    fitting = [
        level
        for level in range(tree.node_level)
        if np.count_nonzero(tree.labelled[level]) and np.count_nonzero(tree.labelled[level]) <= MOST_TILES
    ]
    if not fitting:
        return None
    for size in TILES:
        drawn = _Layout(tree, fitting[-1], size).drawn()
        if drawn.height <= HEIGHT:
            break
    return drawn


class _Layout:
    """Tiles in rows, in a box for each domain of the level above."""

    def __init__(self, tree: Tree, level: int, size: tuple[float, float]) -> None:
        self._tree, self._level = tree, level
        self._wide, self._high = size
        self._boxes: list[Box] = []
        self._corners: list[tuple[float, float, float, float]] = []
        self._names: list[str] = []
        self._labels: list[str] = []
        self._labelled: list[bool] = []
        self._tile_at = np.zeros(tree.size, dtype=np.intp)
        self._ellipsis = ""

    def drawn(self) -> Tiles:
        """The finished map."""
        tree, above = self._tree, self._level - 1
        parents = [ROOT] if above == ROOT_LEVEL else [Domain(above, one) for one in range(tree.count(above))]
        whole = [one for one in parents if tree.is_labelled(one)]
        left = top = row = right = 0.0
        for parent in whole:
            count = self._count(parent)
            room = int((WIDTH - 2 * PADDING + GAP) / (self._wide + GAP))
            # Boxes of up to half of the width stand beside each other.
            columns = min(count, room)
            width = max(columns * (self._wide + GAP) - GAP, 60.0) + 2 * PADDING
            if left and left + width > WIDTH:
                left, top = 0.0, top + row + BOX_GAP
                row = 0.0
            height = self._box(parent, left, top, width, columns, ceil(count / columns))
            left, row, right = left + width + BOX_GAP, max(row, height), max(right, left + width)
        bottom = top + row
        lost = [one for one in parents if not tree.is_labelled(one)]
        if lost:
            bottom = self._lost(lost, bottom + BOX_GAP)
        return Tiles(
            level=self._level,
            width=max(right, 2 * 340.0),
            height=bottom,
            boxes=tuple(self._boxes),
            corners=np.asarray(self._corners),
            names=tuple(self._names),
            labels=tuple(self._labels),
            labelled=tuple(self._labelled),
            tile_at=self._tile_at,
            ellipsis=self._ellipsis,
        )

    def _within(self, parent: Domain) -> tuple[list[Domain], int]:
        """The labelled domains of a parent, and how many nodes lack the label."""
        first, end = self._tree.within(parent, self._level)
        known = int(np.count_nonzero(self._tree.labelled[self._level][first:end]))
        return [Domain(self._level, one) for one in range(first, first + known)], end - first - known

    def _count(self, parent: Domain) -> int:
        domains, lacking = self._within(parent)
        return len(domains) + (lacking > 0)

    def _box(self, parent: Domain, left: float, top: float, width: float, columns: int, rows: int) -> float:
        domains, lacking = self._within(parent)
        line = 0.0 if parent == ROOT else UPPER_LINE
        height = rows * (self._high + GAP) - GAP + 2 * PADDING + line
        first, end = self._tree.span(parent)
        if parent != ROOT:
            value = self._tree.path(parent)[-1] or "–"
            (label,) = told_apart([f"{value}, {plural(end - first, 'node')}"], width, 6.6)
            self._boxes.append(
                Box(
                    domain=parent,
                    left=left,
                    top=top,
                    right=left + width,
                    bottom=top + height,
                    label=label,
                    name=path_text(self._tree.path(parent)),
                    is_leaf=False,
                )
            )
        names = [self._tree.path(one)[-1] or "" for one in domains]
        shown = (
            told_apart(names, self._wide - 4, LEAF_LETTER) if self._wide >= NAMED_WIDTH else [""] * len(names)
        )
        if shown and shown[0].startswith("…"):
            self._ellipsis = shared_beginning(names)
        spans = [(*self._tree.span(one), path_text(self._tree.path(one)), True) for one in domains]
        if lacking:
            level = self._tree.level_names[self._level]
            spans.append((end - lacking, end, f"no {level} label", False))
            shown = [*shown, "no label" if self._wide >= 44 else ""]
        for number, ((begin, stop, name, labelled), label) in enumerate(zip(spans, shown, strict=True)):
            x = left + PADDING + number % columns * (self._wide + GAP)
            y = top + line + PADDING + number // columns * (self._high + GAP)
            self._tile(begin, stop, (x, y, x + self._wide, y + self._high), name, label, labelled)
        return height

    def _tile(
        self,
        begin: int,
        stop: int,
        corners: tuple[float, float, float, float],
        name: str,
        label: str,
        labelled: bool,
    ) -> None:
        self._tile_at[begin:stop] = len(self._corners)
        self._corners.append(corners)
        self._names.append(f"{name}, {plural(stop - begin, 'node')}")
        self._labels.append(label)
        self._labelled.append(labelled)

    def _lost(self, lost: list[Domain], top: float) -> float:
        """One wide tile of the nodes that lack the label of the level above."""
        first, _ = self._tree.span(lost[0])
        _, end = self._tree.span(lost[-1])
        level = self._tree.level_names[lost[0].level]
        name = f"no {level} label"
        corners = (PADDING, top, PADDING + 340.0, top + self._high)
        self._tile(first, end, corners, name, f"{name}, {plural(end - first, 'node')}", False)
        return top + self._high


def heat_map(scene: Scene, tiles: Tiles) -> Spec:
    """The map at the moment that the parameter ``moment`` holds; where what is sought is has an outline."""
    lines = _key_lines(scene, tiles)
    sheet = Sheet(tiles.width, tiles.height + max(KEY_HEIGHT, KEY_TOP + len(lines) * KEY_LINE))
    base = _at_moment(scene, tiles)
    layers = [
        frames(sheet, tiles.boxes),
        titles(sheet, tiles.boxes),
        *_tiles(sheet, base, scene),
        *_words(sheet, base, tiles, scene),
        _kept(sheet, scene, tiles),
        _found(sheet, scene, tiles),
        _key(sheet, lines, tiles.height),
    ]
    return sheet.sized(*layers, name="rack_map", resolve={"scale": {"color": "independent"}})


def _held(scene: Scene, tiles: Tiles) -> tuple[Ints, Ints, Floats]:
    """Tenants, the tiles that they use, and how much they hold there."""
    known, tile = _tile_of_pods(scene, tiles)
    count = len(tiles.names)
    keys, row = np.unique(scene.tenant_of[known] * np.intp(count) + tile, return_inverse=True)
    held = np.bincount(row.reshape(-1), weights=scene.amounts[known], minlength=len(keys))
    return keys // count, keys % count, held.astype(np.float64)


def _tile_of_pods(scene: Scene, tiles: Tiles) -> tuple[Ints, Ints]:
    """The pods that are drawn, ascending, and the tile of each."""
    tree = scene.tree
    inside = scene.slots < len(tree.position_of)
    positions = np.full(len(scene.slots), tree.size, dtype=np.intp)
    positions[inside] = tree.position_of[scene.slots[inside]]
    known = np.flatnonzero((positions < tree.size) & np.repeat(scene.drawn, np.diff(scene.offsets)))
    return known, tiles.tile_at[positions[known]]


def segments_on(scene: Scene, tiles: Tiles) -> tuple[Ints, Ints, Ints]:
    """For each segment and each tile on which it has pods: its tenant, the tile, and whether it is split.

    Shape (n,) each; empty where no gang has segments.
    """
    if scene.segments is None:
        return _NONE, _NONE, _NONE
    known, tile = _tile_of_pods(scene, tiles)
    index = scene.segments.indices[known]
    own = index >= 0
    each = np.stack([scene.tenant_of[known][own], index[own], tile[own]])
    (tenant, index, tile), count = np.unique(each, axis=1), int(index.max(initial=0)) + 1
    _, segment, pieces = np.unique(tenant * count + index, return_inverse=True, return_counts=True)
    return tenant, tile, (pieces[segment.reshape(-1)] > 1).astype(np.intp)


def _places(scene: Scene, tiles: Tiles) -> Rows:
    count = len(tiles.names)
    capacity = np.bincount(tiles.tile_at, weights=scene.capacity[scene.tree.slot_at], minlength=count)
    return data(
        tile=np.arange(count),
        left=tiles.corners[:, 0],
        top=tiles.corners[:, 1],
        right=tiles.corners[:, 2],
        bottom=tiles.corners[:, 3],
        middle=(tiles.corners[:, 0] + tiles.corners[:, 2]) / 2,
        capacity=capacity,
        nodes=np.bincount(tiles.tile_at, minlength=count),
        name=tiles.names,
    )


def _at_moment(scene: Scene, tiles: Tiles) -> Domains:
    """One row a tile: what is held there, and by how many gangs; those without any have a row of nothing."""
    tenants, used, held = _held(scene, tiles)
    owner, at, split = segments_on(scene, tiles)
    count, out = len(tiles.names), scene.outages
    failed, parts = len(out.slots), np.zeros(len(at))
    gangs = np.asarray([tenant.has_colour for tenant in scene.tenants], dtype=np.intp)
    none = np.zeros(count + failed)
    rows = data(
        tile=np.concatenate(
            [used, np.arange(count), tiles.tile_at[scene.tree.position_of[out.slots]].astype(np.intp), at]
        ),
        held=np.concatenate([held, none, parts]),
        gang=np.concatenate([gangs[tenants], none, parts]),
        lost=np.concatenate([np.zeros(len(used) + count), scene.capacity[out.slots], parts]),
        out=np.concatenate([np.zeros(len(used) + count), np.ones(failed), parts]),
        segment=np.concatenate([np.zeros(len(used)), none, parts + 1]),
        split=np.concatenate([np.zeros(len(used)), none, split]),
        since=np.concatenate([scene.since[tenants], np.full(count, -1.0), out.begin, scene.since[owner]]),
        until=np.concatenate([scene.until[tenants], np.full(count, 1e12), out.end, scene.until[owner]]),
    )
    fields = ("left", "top", "right", "bottom", "middle", "capacity", "nodes", "name")
    steps = (
        where(THERE),
        summed(
            "tile", held="held", gangs="gang", lost="lost", failed="out", segments="segment", split="split"
        ),
        lookup("tile", _places(scene, tiles), *fields),
        *calculated(
            usable="datum.capacity - datum.lost",
            busy="datum.usable > 0 ? datum.held / datum.usable : 0",
        ),
    )
    return Domains(rows, steps)


def _tiles(sheet: Sheet, base: Domains, scene: Scene) -> Iterator[Spec]:
    """Each tile; the part of its nodes that are out of order is dark, at the right."""
    tooltip = [
        label("name", title="domain"),
        quantity("busy", title="busy", format=".0%"),
        quantity("held", title="held", format=",.0f"),
        quantity("usable", title="of", format=",.0f"),
        quantity("gangs", title=scene.coloured, format="d"),
        *([quantity("segments", title="segments", format="d")] if scene.has_segments else []),
        *([quantity("split", title="of these split", format="d")] if scene.has_segments else []),
        *([quantity("failed", title="nodes failed", format="d")] if len(scene.outages.slots) else []),
    ]
    encoding = {**sheet.box, "color": busy_colour(scene), "tooltip": tooltip}
    yield marks(base.rows, "rect", encoding, *base.steps, stroke="#9CA3AF", strokeWidth=0.4)
    if len(scene.outages.slots):
        begin = calculated(dark="datum.right - (datum.right - datum.left) * datum.failed / datum.nodes")
        part = {**sheet.between("dark", "top", "right", "bottom"), "tooltip": tooltip}
        yield marks(base.rows, "rect", part, *base.steps, where("datum.failed > 0"), *begin, fill=UNUSABLE)


def _words(sheet: Sheet, base: Domains, tiles: Tiles, scene: Scene) -> Iterator[Spec]:
    """The number of gangs on each tile, above it the tile's name and below it the segments, where there is
    room.
    """
    wide = float(tiles.corners[0, 2] - tiles.corners[0, 0])
    high = float(tiles.corners[0, 3] - tiles.corners[0, 1])
    counted = scene.has_segments and wide >= COUNTED_WIDTH
    ink = either("datum.busy > 0.4 || datum.failed > 0.5 * datum.nodes", "#FFFFFF", INK)
    named = any(tiles.labels)
    if high >= 10:
        yield words(
            base.rows,
            {**sheet.at("middle", "top"), "text": quantity("gangs", format="d"), "color": ink},
            *base.steps,
            where("datum.gangs > 0"),
            align="center",
            fontSize=11 if named else min(high - 3, 11),
            yOffset=high * (0.55 if counted else 0.66 if named else 0.5),
        )
    if counted:
        yield words(
            base.rows,
            {**sheet.at("left", "bottom"), "text": label("parts"), "color": ink},
            *base.steps,
            where("datum.segments > 0"),
            *calculated(
                parts="datum.segments + (datum.split > 0 ? ', ' + datum.split + ' split'"
                " : datum.segments > 1 ? ' segments' : ' segment')"
            ),
            align="left",
            fontSize=8,
            baseline="bottom",
            xOffset=2,
            yOffset=-3,
        )
    if named:
        labels = data(tile=np.arange(len(tiles.labels)), label=tiles.labels)
        yield words(
            base.rows,
            {**sheet.at("left", "top"), "text": label("label"), "color": ink},
            *base.steps,
            lookup("tile", labels, "label"),
            fontSize=8,
            baseline="top",
            xOffset=2,
            yOffset=3,
        )


def _found(sheet: Sheet, scene: Scene, tiles: Tiles) -> Spec:
    """Tiles on which something is that is sought."""
    tenants, used, _ = _held(scene, tiles)
    rows = data(tile=used, tenant=tenants, since=scene.since[tenants], until=scene.until[tenants])
    jobs = data(tenant=np.arange(len(scene.tenants)), job=[one.name for one in scene.tenants])
    steps = (where(THERE), lookup("tenant", jobs, "job"), where(IS_SOUGHT))
    return _outlines(sheet, Domains(rows, steps), _places(scene, tiles), INK)


def _kept(sheet: Sheet, scene: Scene, tiles: Tiles) -> Spec:
    """Tiles with nodes that are kept free for a gang."""
    tree = scene.tree
    found = sorted(
        {
            (int(tiles.tile_at[tree.position_of[slot]]), one.since, one.until)
            for one in scene.keepings
            for slot in one.slots
            if slot < len(tree.position_of) and tree.position_of[slot] < tree.size
        }
    )
    rows = data(
        tile=np.asarray([tile for tile, _, _ in found], dtype=np.intp),
        since=np.asarray([since for _, since, _ in found]),
        until=np.asarray([until for _, _, until in found]),
    )
    return _outlines(sheet, Domains(rows, (where(THERE),)), _places(scene, tiles), RULE)


def _outlines(sheet: Sheet, chosen: Domains, places: Rows, ink: str) -> Spec:
    place = lookup("tile", places, "left", "top", "right", "bottom")
    look = {"filled": False, "stroke": ink, "strokeWidth": 2.5}
    return marks(chosen.rows, "rect", sheet.box, *chosen.steps, place, **look)


def _key_lines(scene: Scene, tiles: Tiles) -> list[str]:
    """What a tile and its number mean."""
    level = scene.tree.level_names[tiles.level]
    lines = [f"A tile is a {level}; its number says how many {scene.coloured} have pods there."]
    if tiles.ellipsis:
        lines.append(f"… stands for what names begin with, such as {tiles.ellipsis}")
    if len(scene.outages.slots):
        lines.append("The dark part at the right of a tile: those of its nodes that have failed.")
    if scene.has_segments:
        lines.append(
            "Below that number: segments that have pods there; those that are split have some elsewhere too."
        )
    if scene.keepings:
        lines.append("A red outline: nodes are kept free there for a gang that waits.")
    return lines


def _key(sheet: Sheet, lines: list[str], top: float) -> Spec:
    rows = data(
        left=np.zeros(len(lines)),
        middle=top + KEY_TOP + KEY_LINE * np.arange(len(lines)),
        text=lines,
        fill=[PALE_INK] * len(lines),
    )
    place = {**sheet.at("left", "middle"), "text": label("text"), "color": colour("fill")}
    return words(rows, place, fontSize=10)
