"""What stands below the rack map: what colours mean, for whom nodes are kept free, and gangs by number."""

from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np

from closeby.lab.pictures.boxes import NAME_LETTER, Boxes
from closeby.lab.pictures.gang_marks import (
    BARE,
    EDGE,
    FRAME,
    FREE,
    GANGS,
    SINGLE,
    STROKE,
    TINT,
    UNUSABLE,
    Pieces,
    colours_of,
    ink_on,
)
from closeby.lab.pictures.gang_numbers import ranked
from closeby.lab.pictures.paper import (
    INK,
    PALE_INK,
    THERE,
    Sheet,
    Spec,
    calculated,
    colour,
    constant,
    data,
    label,
    marks,
    quantity,
    where,
    words,
)
from closeby.lab.pictures.scene import POD, Scene
from closeby.lab.pictures.segment_shades import second_shade

#: Below the map: the key, then the largest gangs in columns.
KEY_HEIGHT = 30.0
GANG_LINE = 17.0
GANGS_NAMED = 60
GANG_COLUMN = 340.0
#: Width of a letter there, and of the swatch with the number.
LETTER_WIDTH = 5.6
NUMBER = 16.0
#: Height of the line that says what "…" stands for.
ELLIPSIS_LINE = 16.0
#: Height of the line that explains segments.
SEGMENTS_LINE = 20.0
#: The least width of a map, so that what is written below it has room.
LEAST_WIDTH = 2 * GANG_COLUMN
#: Height of the line below the map, and the swatch at its left.
RESERVED_LINE = 20.0
SWATCH = 22.0
SWATCH_HEIGHT = 10.0


def most_at_once(scene: Scene) -> int:
    """How many gangs hold nodes at the moment at which most do."""
    gangs = np.asarray([tenant.has_colour for tenant in scene.tenants], dtype=np.bool_)
    begun, ended = (
        np.searchsorted(np.sort(times[gangs]), scene.moments.stops, side="right")
        for times in (scene.since, scene.until)
    )
    return int((begun - ended).max(initial=0))


def columns_of_gangs(scene: Scene, width: float) -> int:
    """As many columns of gangs as there is room for, and none so narrow that most texts are cut off."""
    texts = [len(tenant.in_short) for tenant in scene.tenants if tenant.has_colour]
    needed = float(np.percentile(texts, 90)) * LETTER_WIDTH + NUMBER + 12 if texts else GANG_COLUMN
    return max(int(width // min(max(needed, GANG_COLUMN), width)), 1)


def key(sheet: Sheet, boxes: Boxes, scene: Scene, pieces: Pieces) -> Iterator[Spec]:
    """What the colours mean, below the map: of those that are on it at some moment."""
    gangs = sum(tenant.has_colour for tenant in scene.tenants)
    text = f"{scene.coloured}, each in its own colour"
    if gangs > len(GANGS):
        text = f"{scene.coloured}, numbered by size; adjacent ones have different colours"
    entries: list[tuple[Sequence[str], str]] = [(GANGS[: min(gangs, 3)], text)] if gangs else []
    if not all(scene.tenants[tenant].has_colour for tenant in np.unique(pieces.tenants).tolist()):
        entries.append(((SINGLE,), "single pods"))
    slots = scene.tree.slot_at
    usable, bare = scene.usable[slots], scene.capacity[slots] == 0
    held = np.bincount(pieces.slots, weights=pieces.high - pieces.low, minlength=len(scene.nodes))[slots]
    # Over time what is held adds up to more than a node has; at some moment some of it is free.
    if (usable & ~bare & ((held < 1 - 1e-9) | (scene.moments.count > 1))).any():
        entries.append(((FREE,), "free" if scene.resource != POD else "fewer pods than the fullest node has"))
    if not usable.all():
        entries.append(((UNUSABLE,), "not usable"))
    elif len(scene.outages.slots):
        entries.append(((UNUSABLE,), "failed"))
    if (usable & bare).any():
        entries.append(((BARE,), f"no {scene.unit}"))
    swatches: list[tuple[float, str]] = []
    texts: list[tuple[float, str]] = []
    left = 0.0
    for fills, text in entries:
        for fill in fills:
            swatches.append((left, fill))
            left += 12
        texts.append((left + 3, text))
        left += 12 + len(text) * (NAME_LETTER)
    top = boxes.height + 9.0
    lefts = np.asarray([left for left, _ in swatches])
    rows = data(
        left=lefts,
        right=lefts + 10,
        top=np.full(len(lefts), top),
        bottom=np.full(len(lefts), top + 10),
        fill=[fill for _, fill in swatches],
    )
    yield marks(rows, "rect", {**sheet.box, "color": colour("fill")}, stroke=FRAME, strokeWidth=0.5)
    written = data(
        left=np.asarray([left for left, _ in texts]),
        middle=np.full(len(texts), top + 5),
        text=[text for _, text in texts],
    )
    yield words(written, {**sheet.at("left", "middle"), "text": label("text")}, fontSize=10, color=INK)


def segments_line(sheet: Sheet, top: float) -> Iterator[Spec]:
    """What the two shades of a gang and the second number on its bars mean."""
    fills = (GANGS[0], second_shade(GANGS[0]))
    left = np.asarray([0.0, 10.0])
    rows = data(
        left=left,
        right=left + 10,
        top=np.full(2, top),
        bottom=np.full(2, top + 10),
        fill=fills,
    )
    yield marks(rows, "rect", {**sheet.box, "color": colour("fill")}, stroke=FRAME, strokeWidth=0.5)
    text = data(text=["segments of one gang, in two shades; 1·2 is segment 2 of gang 1 (they count from 0)"])
    place = {"x": constant(27), "y": constant(top + 5), "text": label("text")}
    yield words(text, place, fontSize=10, color=INK)


def ellipsis(boxes: Boxes, top: float) -> Spec:
    """What is left out of shortened names."""
    rows = data(text=[f"… stands for what names begin with, such as {boxes.ellipsis}"])
    place = {"x": constant(0), "y": constant(top), "text": label("text")}
    return words(rows, place, fontSize=10, color=PALE_INK)


def gangs_by_number(sheet: Sheet, top: float, scene: Scene, columns: int, named: int) -> Iterator[Spec]:
    """The largest gangs of the moment by name and number, and how many there are besides."""
    colours = colours_of(scene)
    gangs = [index for index in np.flatnonzero(scene.drawn).tolist() if scene.tenants[index].has_colour]
    chosen = [scene.tenants[index] for index in gangs]
    rows = data(
        size=np.asarray([tenant.size for tenant in chosen]),
        number=np.asarray(gangs),
        text=[tenant.in_short for tenant in chosen],
        fill=[colours[index] for index in gangs],
        ink=[ink_on(colours[index]) for index in gangs],
        since=scene.since[gangs],
        until=scene.until[gangs],
    )
    lines, wide = ceil(named / columns), sheet.width / columns
    there = (where(THERE), ranked("row_number"))
    steps = (
        *there,
        where(f"datum.rank <= {named}"),
        *calculated(
            left=f"floor((datum.rank - 1) / {lines}) * {wide}",
            top=f"{top} + ((datum.rank - 1) % {lines}) * {GANG_LINE}",
            right=f"datum.left + {NUMBER}",
            bottom="datum.top + 12",
            start=f"datum.left + {NUMBER + 5}",
            middle="datum.top + 6",
            legend_of="datum.rank",
        ),
    )
    yield marks(rows, "rect", {**sheet.box, "color": colour("fill")}, *steps)
    number = {**sheet.at("left", "middle"), "text": quantity("rank"), "color": colour("ink")}
    yield words(rows, number, *steps, align="center", fontSize=9, xOffset=NUMBER / 2)
    text = {**sheet.at("start", "middle"), "text": label("text")}
    yield words(rows, text, *steps, fontSize=10, color=INK, limit=wide - NUMBER - 12)
    yield words(
        rows,
        {"x": constant(0), "y": constant(top + lines * GANG_LINE + 6), "text": label("text")},
        *there,
        {"joinaggregate": [{"op": "count", "as": "all"}]},
        where(f"datum.all > {named} && datum.rank === 1"),
        *calculated(text=f"'and ' + format(datum.all - {named}, ',') + ' smaller {scene.coloured}'"),
        fontSize=10,
        color=PALE_INK,
    )


def reserved_line(sheet: Sheet, top: float, scene: Scene) -> Iterator[Spec]:
    """For whom nodes are kept free at the moment, below the map; nothing when none are."""
    count = len(scene.keepings)
    rows = data(
        left=np.full(count, 1.0),
        right=np.full(count, SWATCH),
        text_left=np.full(count, SWATCH + 5),
        top=np.full(count, top),
        middle=np.full(count, top + SWATCH_HEIGHT / 2),
        bottom=np.full(count, top + SWATCH_HEIGHT),
        text=[one.in_short for one in scene.keepings],
        since=np.asarray([one.since for one in scene.keepings]),
        until=np.asarray([one.until for one in scene.keepings]),
    )
    here = where(THERE)
    yield marks(rows, "rect", sheet.box, here, fill=TINT, stroke=EDGE, strokeWidth=STROKE)
    text = {**sheet.at("text_left", "middle"), "text": label("text")}
    yield words(rows, text, here, fontSize=10, color=INK)
