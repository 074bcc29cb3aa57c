"""The rack map: domains as nested boxes, nodes as bars in them, and on each bar who holds what part."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from closeby.lab.pictures.below_the_map import (
    ELLIPSIS_LINE,
    GANG_LINE,
    GANGS_NAMED,
    KEY_HEIGHT,
    LEAST_WIDTH,
    RESERVED_LINE,
    SEGMENTS_LINE,
    columns_of_gangs,
    ellipsis,
    gangs_by_number,
    key,
    most_at_once,
    reserved_line,
    segments_line,
)
from closeby.lab.pictures.boxes import Box, Boxes
from closeby.lab.pictures.failed_nodes import failed_bars
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
    pieces_of,
)
from closeby.lab.pictures.gang_numbers import numbers
from closeby.lab.pictures.paper import (
    INK,
    IS_SOUGHT,
    PALE_INK,
    SOUGHT,
    THERE,
    Column,
    Sheet,
    Spec,
    calculated,
    colour,
    data,
    label,
    lookup,
    marks,
    quantity,
    where,
    words,
)
from closeby.lab.pictures.scene import Scene, amount_text
from closeby.lab.pictures.segment_shades import in_second_shade, second_shade
from closeby.objects.arrays import Ints


def reserved_outlines(sheet: Sheet, boxes: Boxes, scene: Scene) -> Spec:
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
    return marks(
        rows,
        "rect",
        {
            **sheet.box,
            "tooltip": [label("node"), label("gang", title="kept free for"), label("asks")],
        },
        lookup("keeping", keepings, "gang", "asks", "since", "until"),
        where(THERE),
        fill=TINT,
        stroke=EDGE,
        strokeWidth=STROKE,
    )


#: Colours of the boxes from the outermost inward, and of their frames.
BOXES = ("#EEF0F3", "#E1E4E9", "#D4D8DF", "#C8CDD6")
#: A bar that stands for nothing that is shared loses so much of its height above and below.
BARE_PART = 0.35
#: The gang below the pointer.
HOVER = "gang"
#: A gang that is pointed at or searched for stands out.
OPACITY = {
    "condition": {
        "test": {"and": [{"param": HOVER}, f"{SOUGHT} === '' || {IS_SOUGHT}"]},
        "value": 1.0,
    },
    "value": 0.2,
}


def rack_map(scene: Scene, boxes: Boxes) -> Spec:
    """The map at the moment that the parameter ``moment`` holds; a gang below the pointer stands out."""
    width = max(boxes.width, LEAST_WIDTH)
    columns = columns_of_gangs(scene, width)
    most = most_at_once(scene)
    named = min(most, GANGS_NAMED)
    lines = ceil(named / columns) + (most > GANGS_NAMED)
    first = boxes.height + KEY_HEIGHT + (SEGMENTS_LINE if scene.has_segments else 0.0)
    below = first + (ELLIPSIS_LINE if boxes.ellipsis else 0.0)
    gangs_top = below + (RESERVED_LINE if scene.keepings else 0.0)
    sheet = Sheet(width, gangs_top + lines * GANG_LINE)
    layers = [frames(sheet, boxes.boxes), titles(sheet, boxes.boxes), _bars(sheet, boxes, scene)]
    if len(scene.outages.slots):
        layers += failed_bars(sheet, boxes, scene)
    if scene.keepings:
        layers += [reserved_outlines(sheet, boxes, scene), *reserved_line(sheet, below, scene)]
    if boxes.names:
        layers.append(_names(sheet, boxes))
    colours = colours_of(scene)
    pieces = pieces_of(scene)
    layers += [_held(sheet, boxes, scene, pieces, colours), *key(sheet, boxes, scene, pieces)]
    if scene.has_segments:
        layers += segments_line(sheet, first - SEGMENTS_LINE)
    if boxes.ellipsis:
        layers.append(ellipsis(boxes, first))
    if lines:
        layers += [
            *numbers(sheet, boxes, scene, pieces, colours, GANGS_NAMED),
            *gangs_by_number(sheet, gangs_top, scene, columns, named),
        ]
    return sheet.sized(*layers, name="rack_map")


def frames(sheet: Sheet, boxes: Sequence[Box]) -> Spec:
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
    encoding = {**sheet.box, "color": colour("fill"), "tooltip": [label("domain")]}
    return marks(rows, "rect", encoding, stroke=FRAME, strokeWidth=0.5, cornerRadius=2)


def titles(sheet: Sheet, boxes: Sequence[Box]) -> Spec:
    """Names of domains at the top of their boxes."""
    labelled = [box for box in boxes if box.label]
    rows = data(
        left=np.asarray([box.left + 3.5 for box in labelled]),
        top=np.asarray([box.top + (2.5 if box.is_leaf else 4.0) for box in labelled]),
        label=[box.label for box in labelled],
        size=np.asarray([8.0 if box.is_leaf else 11.0 for box in labelled]),
    )
    encoding = {
        **sheet.at("left", "top"),
        "text": label("label"),
        "size": quantity("size", scale=None, legend=None),
    }
    return words(rows, encoding, baseline="top", color=INK)


def _bars(sheet: Sheet, boxes: Boxes, scene: Scene) -> Spec:
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
    tooltip = [label("node"), label("has"), label("state")]
    encoding = {**sheet.box, "color": colour("fill"), "tooltip": tooltip}
    return marks(rows, "rect", encoding, stroke=FRAME, strokeWidth=0.4)


def _names(sheet: Sheet, boxes: Boxes) -> Spec:
    rows = data(
        left=boxes.bars[:, 0] - 4.0, middle=(boxes.bars[:, 1] + boxes.bars[:, 3]) / 2, name=boxes.names
    )
    encoding = {**sheet.at("left", "middle"), "text": label("name")}
    return words(rows, encoding, align="right", fontSize=9, color=PALE_INK)


def _held(sheet: Sheet, boxes: Boxes, scene: Scene, pieces: Pieces, colours: tuple[str, ...]) -> Spec:
    """The parts of nodes that tenants hold at the moment."""
    here = scene.drawn[pieces.tenants]
    slots, holders = pieces.slots[here], pieces.tenants[here]
    bars = boxes.bars[scene.tree.position_of[slots]]
    wide = bars[:, 2] - bars[:, 0]
    services = _services(scene, slots, holders) if scene.services else {}
    segments = _segments(scene, pieces.pods[here])
    rows = data(
        left=bars[:, 0] + wide * pieces.low[here],
        top=bars[:, 1],
        right=bars[:, 0] + wide * pieces.high[here],
        bottom=bars[:, 3],
        slot=slots,
        tenant=holders,
        **services,
        **segments,
    )
    chosen = np.flatnonzero(scene.drawn)
    named = [scene.tenants[index] for index in chosen.tolist()]
    tenants = data(
        tenant=chosen,
        job=[tenant.name for tenant in named],
        asks=[tenant.asks for tenant in named],
        waited=[tenant.waited for tenant in named],
        evicted=[tenant.evicted for tenant in named],
        span=[tenant.lies_in for tenant in named],
        fill=[colours[index] for index in chosen.tolist()],
        **_second_shades(scene, colours, chosen),
        since=scene.since[chosen],
        until=scene.until[chosen],
    )
    nodes = data(slot=np.arange(len(scene.nodes)), node=scene.nodes)
    fields = [
        "job",
        "asks",
        *(["waited"] if any(one.waited for one in scene.tenants) else []),
        *(["evicted"] if any(one.evicted for one in scene.tenants) else []),
        "span",
        "node",
    ]
    told, other = (["segment"], ["other"]) if segments else ([], [])
    tooltip = [label(field) for field in (*fields, *services, *told)]
    shades = calculated(fill="datum.second > 0 ? datum.other : datum.fill") if segments else []
    chart = marks(
        rows,
        "rect",
        {**sheet.box, "color": colour("fill"), "opacity": OPACITY, "tooltip": tooltip},
        lookup("tenant", tenants, *fields[:-1], "fill", *other, "since", "until"),
        lookup("slot", nodes, "node"),
        where(THERE),
        *shades,
        stroke="#FFFFFF",
        strokeWidth=0.35,
    )
    pointed = {"type": "point", "fields": ["tenant"], "on": "pointerover", "clear": "pointerout"}
    return {**chart, "name": "held", "params": [{"name": HOVER, "select": pointed}]}


def _second_shades(scene: Scene, colours: tuple[str, ...], tenants: Ints) -> dict[str, Column]:
    """The second shade of each tenant's colour, where some have segments."""
    if scene.segments is None:
        return {}
    segments = scene.segments.told
    return {
        "other": [second_shade(colours[one]) if segments[one] else colours[one] for one in tenants.tolist()]
    }


def _segments(scene: Scene, pods: Ints) -> dict[str, Column]:
    """Of each piece, by one of its pods, in which segments it is and whether it has the second shade."""
    if scene.segments is None:
        return {}
    names = [scene.segments.names[pod] for pod in pods.tolist()]
    return {"segment": names, "second": in_second_shade(scene)[pods].astype(np.intp)}


def _services(scene: Scene, slots: Ints, tenants: Ints) -> dict[str, list[str]]:
    """``web ×2, db``: which services of its tenant are on the node of each piece, as a column."""
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
    return {"services": [texts[key] for key in zip(tenants.tolist(), slots.tolist(), strict=True)]}
