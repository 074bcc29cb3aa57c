"""What is kept free for a gang on the rack map: its nodes, outlined and tinted, and for whom."""

from collections.abc import Iterator

import altair as alt
import numpy as np

from closeby.lab.pictures.boxes import Boxes
from closeby.lab.pictures.paper import INK, THERE, Sheet
from closeby.lab.pictures.scene import Scene
from closeby.lab.pictures.tables import data

#: Outline and tint.
EDGE = "#D92D20"
TINT = "#FBD5D1"
#: Width of the outline, most of which lies outside of the bar.
STROKE = 1.6
#: Height of the line below the map, and the swatch at its left.
LINE = 20.0
SWATCH = 22.0
SWATCH_HEIGHT = 10.0


def outlines(sheet: Sheet, boxes: Boxes, scene: Scene) -> alt.Chart:
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


def line(sheet: Sheet, top: float, scene: Scene) -> Iterator[alt.Chart]:
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
