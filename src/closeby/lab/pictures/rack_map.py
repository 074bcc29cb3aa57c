"""The rack map: domains as nested boxes, nodes as bars in them, and on each bar who holds what part."""

from collections.abc import Sequence
from math import ceil

import altair as alt
import numpy as np

from closeby.lab.pictures.below_the_map import (
    ELLIPSIS_LINE,
    GANG_LINE,
    GANGS_NAMED,
    KEY_HEIGHT,
    LEAST_WIDTH,
    RESERVED_LINE,
    columns_of_gangs,
    ellipsis,
    gangs_by_number,
    key,
    most_at_once,
    reserved_line,
)
from closeby.lab.pictures.boxes import Box, Boxes
from closeby.lab.pictures.gang_marks import (
    BARE,
    EDGE,
    FRAME,
    FREE,
    STROKE,
    TINT,
    UNUSABLE,
    Pieces,
    colours_of,
    numbers,
    pieces_of,
)
from closeby.lab.pictures.paper import INK, IS_SOUGHT, PALE_INK, SOUGHT, THERE, Sheet, colour, data
from closeby.lab.pictures.scene import Scene, amount_text


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


#: Colours of the boxes from the outermost inward, and of their frames.
BOXES = ("#EEF0F3", "#E1E4E9", "#D4D8DF", "#C8CDD6")
#: A bar that stands for nothing that is shared loses so much of its height above and below.
BARE_PART = 0.35
#: The gang below the pointer.
HOVER = "gang"


def rack_map(scene: Scene, boxes: Boxes) -> alt.LayerChart:
    """The map at the moment that the parameter ``moment`` holds; a gang below the pointer stands out."""
    width = max(boxes.width, LEAST_WIDTH)
    columns = columns_of_gangs(scene, width)
    most = most_at_once(scene)
    named = min(most, GANGS_NAMED)
    lines = ceil(named / columns) + (most > GANGS_NAMED)
    below = boxes.height + KEY_HEIGHT + (ELLIPSIS_LINE if boxes.ellipsis else 0.0)
    gangs_top = below + (RESERVED_LINE if scene.keepings else 0.0)
    sheet = Sheet(width, gangs_top + lines * GANG_LINE)
    layers = [frames(sheet, boxes.boxes), titles(sheet, boxes.boxes), _bars(sheet, boxes, scene)]
    if scene.keepings:
        layers += [reserved_outlines(sheet, boxes, scene), *reserved_line(sheet, below, scene)]
    if boxes.names:
        layers.append(_names(sheet, boxes))
    colours = colours_of(scene)
    pieces = pieces_of(scene)
    layers += [_held(sheet, boxes, scene, pieces, colours), *key(sheet, boxes, scene, pieces)]
    if boxes.ellipsis:
        layers.append(ellipsis(sheet, boxes))
    if lines:
        layers += [
            *numbers(sheet, boxes, scene, pieces, colours, GANGS_NAMED),
            *gangs_by_number(sheet, gangs_top, scene, columns, named),
        ]
    return alt.LayerChart(layer=layers).properties(width=sheet.width, height=sheet.height, name="rack_map")


def frames(sheet: Sheet, boxes: Sequence[Box]) -> alt.Chart:
    corners = np.asarray([(box.left, box.top, box.right, box.bottom) for box in boxes]).reshape(-1, 4)
    fills = [BOXES[min(box.domain.level, len(BOXES) - 1)] for box in boxes]
    rows = data(
        left=corners[:, 0],
        top=corners[:, 1],
        right=corners[:, 2],
        bottom=corners[:, 3],
        fill=fills,
        domain=[box.name for box in boxes],
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


def titles(sheet: Sheet, boxes: Sequence[Box]) -> alt.Chart:
    """Names of domains at the top of their boxes."""
    labelled = [box for box in boxes if box.label]
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
    """All nodes as if they were free, dark where they may not be used, low and grey where they have nothing
    of what is shared."""
    slots = scene.tree.slot_at
    bare = scene.capacity[slots] == 0
    looks = [
        (UNUSABLE, "not usable") if not usable else (BARE, f"no {scene.unit}") if none else (FREE, "free")
        for usable, none in zip(scene.usable[slots].tolist(), bare.tolist(), strict=True)
    ]
    lower = np.where(bare, BARE_PART * (boxes.bars[:, 3] - boxes.bars[:, 1]), 0.0)
    rows = data(
        left=boxes.bars[:, 0],
        top=boxes.bars[:, 1] + lower,
        right=boxes.bars[:, 2],
        bottom=boxes.bars[:, 3] - lower,
        node=[scene.nodes[slot] for slot in slots.tolist()],
        fill=[fill for fill, _ in looks],
        state=[state for _, state in looks],
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
        **({"services": _services(scene, pieces)} if scene.services else {}),
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
            tooltip=[
                alt.Tooltip(f"{field}:N") for field in (*fields, *(["services"] if scene.services else []))
            ],
        )
        .add_params(hover)
    )
    return chart


def _services(scene: Scene, pieces: Pieces) -> list[str]:
    """``web ×2, db``: which services of its tenant are on the node of each piece."""
    lying: dict[tuple[int, int], dict[str, int]] = {}
    for tenant, slot, name in zip(
        scene.tenant_of.tolist(), scene.slots.tolist(), scene.services, strict=True
    ):
        here = lying.setdefault((tenant, slot), {})
        here[name] = here.get(name, 0) + 1
    texts = {
        key: ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in here.items())
        for key, here in lying.items()
    }
    return [texts[key] for key in zip(pieces.tenants.tolist(), pieces.slots.tolist(), strict=True)]


def _opacity() -> alt.OpacityValue:
    """A gang that is pointed at or searched for stands out."""
    there = {"and": [{"param": HOVER}, f"{SOUGHT} === '' || {IS_SOUGHT}"]}
    return alt.OpacityValue(0.2, condition={"test": there, "value": 1.0})
