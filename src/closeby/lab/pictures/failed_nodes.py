"""Nodes that are out of order at a moment: dark and crossed on the rack map, dark parts of tiles."""

from collections.abc import Iterator

import numpy as np

from closeby.lab.pictures.boxes import Boxes
from closeby.lab.pictures.gang_marks import FRAME, UNUSABLE
from closeby.lab.pictures.paper import ON_DARK, THERE, Sheet, Spec, data, label, marks, where, words
from closeby.lab.pictures.scene import Scene, amount_text
from closeby.objects.words import time_text

#: Bars of this height have room for a cross, which is so much higher than its letter, and at most so large.
CROSSED = 5.0
CROSS = 1.2
MOST_CROSS = 14.0


def failed_bars(sheet: Sheet, boxes: Boxes, scene: Scene) -> Iterator[Spec]:
    """The nodes that are out of order at the moment."""
    slots = scene.outages.slots
    bars = boxes.bars[scene.tree.position_of[slots]]
    seconds = scene.moments.seconds
    rows = data(
        left=bars[:, 0],
        top=bars[:, 1],
        right=bars[:, 2],
        bottom=bars[:, 3],
        x=(bars[:, 0] + bars[:, 2]) / 2,
        y=(bars[:, 1] + bars[:, 3]) / 2,
        node=[scene.nodes[slot] for slot in slots.tolist()],
        state=[f"failed at {time_text(begin * seconds)}" for begin in scene.outages.begin.tolist()],
        has=[amount_text(float(amount), scene.resource) for amount in scene.capacity[slots]],
        since=scene.outages.begin,
        until=scene.outages.end,
    )
    here = where(THERE)
    tooltip = [label("node"), label("has"), label("state")]
    look = {"fill": UNUSABLE, "stroke": FRAME, "strokeWidth": 0.4}
    yield marks(rows, "rect", {**sheet.box, "tooltip": tooltip}, here, **look)
    height = float((bars[:, 3] - bars[:, 1]).min(initial=np.inf))
    if CROSSED <= height < np.inf:
        size = min(CROSS * height, MOST_CROSS)
        cross = {**sheet.at("x", "y"), "text": {"value": "×"}}
        yield words(rows, cross, here, align="center", fontSize=size, color=ON_DARK)
