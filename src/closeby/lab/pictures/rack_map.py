"""The rack map: domains as nested boxes, nodes as bars in them, and on each bar who holds what part."""

from collections.abc import Iterator, Sequence
from math import ceil

import altair as alt
import numpy as np

from closeby.lab.pictures.boxes import NAME_LETTER, Boxes
from closeby.lab.pictures.gang_marks import (
    FREE,
    GANGS,
    LETTER,
    SINGLE,
    UNUSABLE,
    Pieces,
    colours_of,
    ink_on,
    largest_first,
    letters,
    pieces_of,
)
from closeby.lab.pictures.paper import INK, IS_SOUGHT, PALE_INK, SOUGHT, THERE, Sheet, colour, data
from closeby.lab.pictures.scene import POD, Scene, amount_text
from closeby.objects.words import path_text

#: Outline and tint.
EDGE = "#D92D20"
TINT = "#FBD5D1"
#: Width of the outline, most of which lies outside of the bar.
STROKE = 1.6
#: Height of the line below the map, and the swatch at its left.
RESERVED_LINE = 20.0
SWATCH = 22.0
SWATCH_HEIGHT = 10.0


def reserved_outlines(sheet: Sheet, boxes: Boxes, scene: Scene) -> alt.Chart:
    """The nodes that are kept free at the moment; the parts of them that are held are drawn over it."""
    tree = scene.tree
    number = np.repeat(np.arange(len(scene.keepings)), [len(one.slots) for one in scene.keepings])
    slots = np.asarray([slot for one in scene.keepings for slot in one.slots], dtype=np.intp)
    known = slots < len(tree.position_of)
    known[known] = tree.position_of[slots[known]] < tree.size
    bars = boxes.bars[tree.position_of[slots[known]]]
    rows = data(
        left=bars[:, 0] - STROKE / 3,
        top=bars[:, 1] - STROKE / 3,
        right=bars[:, 2] + STROKE / 3,
        bottom=bars[:, 3] + STROKE / 3,
        keeping=number[known],
        node=[scene.nodes[slot] for slot in slots[known].tolist()],
    )
    keepings = data(
        keeping=np.arange(len(scene.keepings)),
        gang=[one.name for one in scene.keepings],
        asks=[one.asks for one in scene.keepings],
        since=np.asarray([one.since for one in scene.keepings]),
        until=np.asarray([one.until for one in scene.keepings]),
    )
    chart: alt.Chart = (
        alt.Chart(rows)
        .transform_lookup("keeping", alt.LookupData(keepings, "keeping", ["gang", "asks", "since", "until"]))
        .transform_filter(THERE)
        .mark_rect(fill=TINT, stroke=EDGE, strokeWidth=STROKE)
        .encode(
            x=sheet.x("left"),
            x2="right:Q",
            y=sheet.y("top"),
            y2="bottom:Q",
            tooltip=[
                alt.Tooltip("node:N"),
                alt.Tooltip("gang:N", title="kept free for"),
                alt.Tooltip("asks:N"),
            ],
        )
    )
    return chart


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


#: Colours of the boxes from the outermost inward, and of their frames.
BOXES = ("#EEF0F3", "#E1E4E9", "#D4D8DF", "#C8CDD6")
FRAME = "#B9BFCA"
#: Below the map: the key, then the largest gangs in columns.
KEY_HEIGHT = 30.0
GANG_LINE = 17.0
GANGS_NAMED = 12
GANG_COLUMN = 340.0
#: The least width of a map, so that what is written below it has room.
LEAST_WIDTH = 2 * GANG_COLUMN
#: The gang below the pointer.
HOVER = "gang"


def rack_map(scene: Scene, boxes: Boxes) -> alt.LayerChart:
    """The map at the moment that the parameter ``moment`` holds; a gang below the pointer stands out."""
    width = max(boxes.width, LEAST_WIDTH)
    columns = int(width // GANG_COLUMN)
    gangs = sum(tenant.has_colour for tenant in scene.tenants)
    lines = ceil(min(gangs, GANGS_NAMED) / columns)
    below = boxes.height + KEY_HEIGHT
    gangs_top = below + (RESERVED_LINE if scene.keepings else 0.0)
    sheet = Sheet(width, gangs_top + lines * GANG_LINE)
    layers = [_frames(sheet, boxes, scene), _titles(sheet, boxes), _bars(sheet, boxes, scene)]
    if scene.keepings:
        layers += [reserved_outlines(sheet, boxes, scene), *reserved_line(sheet, below, scene)]
    if boxes.names:
        layers.append(_names(sheet, boxes))
    colours = colours_of(scene)
    pieces = pieces_of(scene)
    layers += [_held(sheet, boxes, scene, pieces, colours), *_key(sheet, boxes, scene)]
    if lines:
        most = GANGS_NAMED // columns * columns
        layers += [
            *letters(sheet, boxes, scene, pieces, colours, most),
            *_gangs(sheet, gangs_top, scene, columns),
        ]
    return alt.LayerChart(layer=layers).properties(width=sheet.width, height=sheet.height, name="rack_map")


def _frames(sheet: Sheet, boxes: Boxes, scene: Scene) -> alt.Chart:
    corners = np.asarray([(box.left, box.top, box.right, box.bottom) for box in boxes.boxes]).reshape(-1, 4)
    fills = [BOXES[min(box.domain.level, len(BOXES) - 1)] for box in boxes.boxes]
    rows = data(
        left=corners[:, 0],
        top=corners[:, 1],
        right=corners[:, 2],
        bottom=corners[:, 3],
        fill=fills,
        domain=[path_text(scene.tree.path(box.domain)) for box in boxes.boxes],
    )
    chart: alt.Chart = (
        alt.Chart(rows)
        .mark_rect(stroke=FRAME, strokeWidth=0.5, cornerRadius=2)
        .encode(
            x=sheet.x("left"),
            x2="right:Q",
            y=sheet.y("top"),
            y2="bottom:Q",
            color=colour("fill"),
            tooltip=[alt.Tooltip("domain:N")],
        )
    )
    return chart


def _titles(sheet: Sheet, boxes: Boxes) -> alt.Chart:
    """Names of domains at the top of their boxes."""
    labelled = [box for box in boxes.boxes if box.label]
    rows = data(
        left=np.asarray([box.left + 3.5 for box in labelled]),
        top=np.asarray([box.top + (2.5 if box.is_leaf else 4.0) for box in labelled]),
        label=[box.label for box in labelled],
        size=np.asarray([8.0 if box.is_leaf else 11.0 for box in labelled]),
    )
    chart: alt.Chart = (
        alt.Chart(rows)
        .mark_text(align="left", baseline="top", color=INK)
        .encode(
            x=sheet.x("left"),
            y=sheet.y("top"),
            text="label:N",
            size=alt.Size("size:Q", scale=None, legend=None),
        )
    )
    return chart


def _bars(sheet: Sheet, boxes: Boxes, scene: Scene) -> alt.Chart:
    """All nodes as if they were free, or dark where they may not be used."""
    slots = scene.tree.slot_at
    usable = scene.usable[slots].tolist()
    rows = data(
        left=boxes.bars[:, 0],
        top=boxes.bars[:, 1],
        right=boxes.bars[:, 2],
        bottom=boxes.bars[:, 3],
        node=[scene.nodes[slot] for slot in slots.tolist()],
        fill=[FREE if one else UNUSABLE for one in usable],
        state=["free" if one else "not usable" for one in usable],
        has=[amount_text(float(amount), scene.resource) for amount in scene.capacity[slots]],
    )
    chart: alt.Chart = (
        alt.Chart(rows)
        .mark_rect(stroke=FRAME, strokeWidth=0.4)
        .encode(
            x=sheet.x("left"),
            x2="right:Q",
            y=sheet.y("top"),
            y2="bottom:Q",
            color=colour("fill"),
            tooltip=[alt.Tooltip(f"{field}:N") for field in ("node", "has", "state")],
        )
    )
    return chart


def _names(sheet: Sheet, boxes: Boxes) -> alt.Chart:
    rows = data(
        left=boxes.bars[:, 0] - 4.0, middle=(boxes.bars[:, 1] + boxes.bars[:, 3]) / 2, name=boxes.names
    )
    chart: alt.Chart = (
        alt.Chart(rows)
        .mark_text(align="right", baseline="middle", fontSize=9, color=PALE_INK)
        .encode(x=sheet.x("left"), y=sheet.y("middle"), text="name:N")
    )
    return chart


def _held(sheet: Sheet, boxes: Boxes, scene: Scene, pieces: Pieces, colours: tuple[str, ...]) -> alt.Chart:
    """The parts of nodes that tenants hold at the moment."""
    bars = boxes.bars[scene.tree.position_of[pieces.slots]]
    wide = bars[:, 2] - bars[:, 0]
    rows = data(
        left=bars[:, 0] + wide * pieces.low,
        top=bars[:, 1],
        right=bars[:, 0] + wide * pieces.high,
        bottom=bars[:, 3],
        slot=pieces.slots,
        tenant=pieces.tenants,
    )
    tenants = data(
        tenant=np.arange(len(scene.tenants)),
        job=[tenant.name for tenant in scene.tenants],
        asks=[tenant.asks for tenant in scene.tenants],
        waited=[tenant.waited for tenant in scene.tenants],
        span=[tenant.lies_in for tenant in scene.tenants],
        fill=colours,
        since=scene.since,
        until=scene.until,
    )
    nodes = data(slot=np.arange(len(scene.nodes)), node=scene.nodes)
    fields = [
        "job",
        "asks",
        *(["waited"] if any(one.waited for one in scene.tenants) else []),
        "span",
        "node",
    ]
    hover = alt.selection_point(
        name=HOVER, fields=["tenant"], on="pointerover", clear="pointerout", empty=True
    )
    chart: alt.Chart = (
        alt.Chart(rows, name="held")
        .transform_lookup(
            "tenant", alt.LookupData(tenants, "tenant", [*fields[:-1], "fill", "since", "until"])
        )
        .transform_lookup("slot", alt.LookupData(nodes, "slot", ["node"]))
        .transform_filter(THERE)
        .mark_rect(stroke="#FFFFFF", strokeWidth=0.35)
        .encode(
            x=sheet.x("left"),
            x2="right:Q",
            y=sheet.y("top"),
            y2="bottom:Q",
            color=colour("fill"),
            opacity=_opacity(),
            tooltip=[alt.Tooltip(f"{field}:N") for field in fields],
        )
        .add_params(hover)
    )
    return chart


def _opacity() -> alt.OpacityValue:
    """A gang that is pointed at or searched for stands out."""
    there = {"and": [{"param": HOVER}, f"{SOUGHT} === '' || {IS_SOUGHT}"]}
    return alt.OpacityValue(0.2, condition={"test": there, "value": 1.0})


def _key(sheet: Sheet, boxes: Boxes, scene: Scene) -> Iterator[alt.Chart]:
    """What the colours mean, below the map."""
    gangs = sum(tenant.has_colour for tenant in scene.tenants)
    text = f"{scene.coloured}, each in its own colour"
    if gangs > len(GANGS):
        text = f"{scene.coloured}; adjacent gangs have different ones of {len(GANGS)} colours"
    entries: list[tuple[Sequence[str], str]] = [(GANGS[: min(gangs, 3)], text)] if gangs else []
    if not all(tenant.has_colour for tenant in scene.tenants):
        entries.append(((SINGLE,), "single pods"))
    entries.append(((FREE,), "free" if scene.resource != POD else "fewer pods than the fullest node has"))
    if not scene.usable.all():
        entries.append(((UNUSABLE,), "not usable"))
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


def _gangs(sheet: Sheet, top: float, scene: Scene, columns: int) -> Iterator[alt.Chart]:
    """The largest gangs of the moment by name."""
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
    lines = GANGS_NAMED // columns
    base = (
        alt.Chart(rows)
        .transform_filter(THERE)
        .transform_window(sort=largest_first(), rank="row_number()")
        .transform_filter(f"datum.rank <= {lines * columns}")
        .transform_calculate(
            left=f"floor((datum.rank - 1) / {lines}) * {GANG_COLUMN}",
            top=f"{top} + ((datum.rank - 1) % {lines}) * {GANG_LINE}",
            right=f"floor((datum.rank - 1) / {lines}) * {GANG_COLUMN} + 10",
            bottom=f"{top} + ((datum.rank - 1) % {lines}) * {GANG_LINE} + 10",
            start=f"floor((datum.rank - 1) / {lines}) * {GANG_COLUMN} + 15",
            middle=f"{top} + ((datum.rank - 1) % {lines}) * {GANG_LINE} + 5",
            letter=LETTER,
        )
    )
    yield base.mark_rect().encode(
        x=sheet.x("left"), x2="right:Q", y=sheet.y("top"), y2="bottom:Q", color=colour("fill")
    )
    yield base.mark_text(align="center", baseline="middle", fontSize=8, xOffset=5).encode(
        x=sheet.x("left"), y=sheet.y("middle"), text="letter:N", color=colour("ink")
    )
    yield (
        base.mark_text(
            align="left", baseline="middle", fontSize=10, color=INK, limit=GANG_COLUMN - 22
        ).encode(x=sheet.x("start"), y=sheet.y("middle"), text="text:N")
    )
