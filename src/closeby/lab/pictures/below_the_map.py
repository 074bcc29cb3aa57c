"""What stands below the rack map: what colours mean, for whom nodes are kept free, and gangs by number."""

from collections.abc import Iterator, Sequence
from math import ceil

import altair as alt
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
    largest_first,
)
from closeby.lab.pictures.paper import INK, PALE_INK, THERE, Sheet, colour, data
from closeby.lab.pictures.scene import POD, Scene

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


def key(sheet: Sheet, boxes: Boxes, scene: Scene, pieces: Pieces) -> Iterator[alt.Chart]:
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
    yield (
        alt.Chart(rows)
        .mark_rect(stroke=FRAME, strokeWidth=0.5)
        .encode(x=sheet.x("left"), x2="right:Q", y=sheet.y("top"), y2="bottom:Q", color=colour("fill"))
    )
    written = data(
        left=np.asarray([left for left, _ in texts]),
        middle=np.full(len(texts), top + 5),
        text=[text for _, text in texts],
    )
    yield (
        alt.Chart(written)
        .mark_text(align="left", baseline="middle", fontSize=10, color=INK)
        .encode(x=sheet.x("left"), y=sheet.y("middle"), text="text:N")
    )


def ellipsis(sheet: Sheet, boxes: Boxes) -> alt.Chart:
    """What is left out of shortened names."""
    rows = data(text=[f"… stands for what names begin with, such as {boxes.ellipsis}"])
    chart: alt.Chart = (
        alt.Chart(rows)
        .mark_text(align="left", baseline="middle", fontSize=10, color=PALE_INK)
        .encode(x=alt.value(0), y=alt.value(boxes.height + KEY_HEIGHT), text="text:N")
    )
    return chart


def gangs_by_number(sheet: Sheet, top: float, scene: Scene, columns: int, named: int) -> Iterator[alt.Chart]:
    """The largest gangs of the moment by name and number, and how many there are besides."""
    colours = colours_of(scene)
    gangs = [index for index, tenant in enumerate(scene.tenants) if tenant.has_colour]
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
    there = (
        alt.Chart(rows).transform_filter(THERE).transform_window(sort=largest_first(), rank="row_number()")
    )
    base = there.transform_filter(f"datum.rank <= {named}").transform_calculate(
        left=f"floor((datum.rank - 1) / {lines}) * {wide}",
        top=f"{top} + ((datum.rank - 1) % {lines}) * {GANG_LINE}",
        right=f"datum.left + {NUMBER}",
        bottom="datum.top + 12",
        start=f"datum.left + {NUMBER + 5}",
        middle="datum.top + 6",
        legend_of="datum.rank",
    )
    yield base.mark_rect().encode(
        x=sheet.x("left"), x2="right:Q", y=sheet.y("top"), y2="bottom:Q", color=colour("fill")
    )
    yield base.mark_text(align="center", baseline="middle", fontSize=9, xOffset=NUMBER / 2).encode(
        x=sheet.x("left"), y=sheet.y("middle"), text="rank:Q", color=colour("ink")
    )
    yield base.mark_text(
        align="left", baseline="middle", fontSize=10, color=INK, limit=wide - NUMBER - 12
    ).encode(x=sheet.x("start"), y=sheet.y("middle"), text="text:N")
    yield (
        there.transform_joinaggregate(all="count()")
        .transform_filter(f"datum.all > {named} && datum.rank === 1")
        .transform_calculate(text=f"'and ' + format(datum.all - {named}, ',') + ' smaller {scene.coloured}'")
        .mark_text(align="left", baseline="middle", fontSize=10, color=PALE_INK)
        .encode(x=alt.value(0), y=alt.value(top + lines * GANG_LINE + 6), text="text:N")
    )


def reserved_line(sheet: Sheet, top: float, scene: Scene) -> Iterator[alt.Chart]:
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
    base = alt.Chart(rows).transform_filter(THERE)
    yield base.mark_rect(fill=TINT, stroke=EDGE, strokeWidth=STROKE).encode(
        x=sheet.x("left"), x2="right:Q", y=sheet.y("top"), y2="bottom:Q"
    )
    yield base.mark_text(align="left", baseline="middle", fontSize=10, color=INK).encode(
        x=sheet.x("text_left"), y=sheet.y("middle"), text="text:N"
    )
