"""The numbers on the bars of gangs, which lead to their names below the map, and those of their segments."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np
from msgspec import Struct

from closeby.lab.pictures.boxes import Boxes
from closeby.lab.pictures.gang_marks import Pieces, ink_on, leaves_of
from closeby.lab.pictures.paper import (
    THERE,
    Sheet,
    Spec,
    calculated,
    colour,
    data,
    label,
    where,
    words,
)
from closeby.lab.pictures.scene import Scene
from closeby.lab.pictures.segment_shades import in_second_shade, second_shade
from closeby.objects.arrays import Floats

#: Size of a number, and the least area of one colour that it is written on; what each further letter needs.
SIZE = 8.0
LEAST_WIDTH = 11.0
LEAST_HEIGHT = 7.0
LETTER = 4.5


class NumberPlace(Struct, frozen=True):
    """Where the number of a tenant is written, and which segment is there (-1: none is named)."""

    tenant: int
    x: float
    y: float
    segment: int = -1
    second_shade: bool = False


def ranked(operation: str) -> Spec:
    """A transform that adds the rank of each gang of a moment in the order in which they are named."""
    order = [{"field": "size", "order": "descending"}, {"field": "number", "order": "ascending"}]
    return {"window": [{"op": operation, "as": "rank"}], "sort": order}


def numbers(
    sheet: Sheet, boxes: Boxes, scene: Scene, pieces: Pieces, colours: tuple[str, ...], most: int
) -> Iterator[Spec]:
    """The number of each of the ``most`` largest gangs of the moment, once in each leaf that has room; with
    segments once for each of those."""
    places = _places(boxes, scene, pieces)
    tenants = [one.tenant for one in places]
    fills = [second_shade(colours[one.tenant]) if one.second_shade else colours[one.tenant] for one in places]
    rows = data(
        number=np.asarray(tenants, dtype=np.intp),
        size=np.asarray([scene.tenants[tenant].size for tenant in tenants]),
        x=np.asarray([one.x for one in places]),
        y=np.asarray([one.y for one in places]),
        fill=fills,
        ink=[ink_on(fill) for fill in fills],
        since=scene.since[tenants],
        until=scene.until[tenants],
        there=np.asarray([one.x >= 0 for one in places], dtype=np.intp),
        segment=np.asarray([one.segment for one in places], dtype=np.intp),
    )
    steps = (
        where(THERE),
        ranked("dense_rank"),
        where(f"datum.rank <= {most} && datum.there"),
        *calculated(text="datum.rank + (datum.segment < 0 ? '' : '·' + datum.segment)"),
    )
    place = {**sheet.at("x", "y"), "text": label("text")}
    # The colour fills the gaps between bars behind the number.
    behind = {**place, "color": colour("fill"), "stroke": colour("fill")}
    look = {"align": "center", "fontSize": SIZE}
    yield words(rows, behind, *steps, strokeWidth=4, strokeJoin="round", **look)
    yield words(rows, {**place, "color": colour("ink")}, *steps, **look)


def _places(boxes: Boxes, scene: Scene, pieces: Pieces) -> list[NumberPlace]:
    """The middle of the bars that each tenant, or each segment of it, has in a leaf.

    Each tenant with a colour has a row of -1 besides, so that it has its rank also where no number fits.
    """
    drawn = [
        one and tenant.has_colour for one, tenant in zip(scene.drawn.tolist(), scene.tenants, strict=True)
    ]
    found = [NumberPlace(index, -1.0, -1.0) for index, one in enumerate(drawn) if one]
    segments = (
        np.full(len(pieces.pods), -1) if scene.segments is None else scene.segments.numbers[pieces.pods]
    )
    indices = segments if scene.segments is None else scene.segments.indices[pieces.pods]
    second = in_second_shade(scene)[pieces.pods]
    bars = boxes.bars[scene.tree.position_of[pieces.slots]]
    leaves = leaves_of(scene, pieces.slots)
    order = np.lexsort((bars[:, 1], bars[:, 0], indices, leaves, pieces.tenants))
    rows = [row for row in order.tolist() if drawn[int(pieces.tenants[row])]]
    for (tenant, _), group in groupby(rows, key=lambda row: (int(pieces.tenants[row]), int(leaves[row]))):
        whole = list(group)
        named = []
        for _, part in groupby(whole, key=lambda row: int(indices[row])):
            own = list(part)
            number = int(segments[own[0]])
            letters = 0 if number < 0 else len(f"·{number}")
            at = _middle(own, bars, pieces, LEAST_WIDTH + letters * LETTER)
            if at is not None:
                named.append(NumberPlace(tenant, *at, number, bool(second[own[0]])))
        if not named and (at := _middle(whole, bars, pieces, LEAST_WIDTH)) is not None:
            named.append(NumberPlace(tenant, *at, -1, bool(second[whole[0]])))
        found += named
    return found


def _middle(rows: list[int], bars: Floats, pieces: Pieces, least: float) -> tuple[float, float] | None:
    """The middle of the bars of some pieces, most of them in one column; None: the number has no room."""
    rows = sorted(rows, key=lambda row: (float(bars[row, 0]), float(bars[row, 1])))

    def across(row: int, share: Floats) -> float:
        return float(bars[row, 0] + (bars[row, 2] - bars[row, 0]) * share[row])

    columns = [list(column) for _, column in groupby(rows, key=lambda row: float(bars[row, 0]))]
    longest = [column for column in columns if len(column) == max(map(len, columns))]
    column = longest[len(longest) // 2]
    middle = column[len(column) // 2]
    # Parts of one gang above and beside one another read as one area.
    height = sum(float(bars[row, 3] - bars[row, 1]) for row in column)
    width = sum(across(one[0], pieces.high) - across(one[0], pieces.low) for one in longest)
    if width < least or height < LEAST_HEIGHT:
        return None
    x = (across(middle, pieces.low) + across(middle, pieces.high)) / 2
    # Where its part of this bar is narrower than the number, that stays on the bar and off names beside it.
    left, right = float(bars[middle, 0]) + least / 2, float(bars[middle, 2]) - least / 2
    if left <= right:
        x = min(max(x, left), right)
    return x, float(bars[middle, 1] + bars[middle, 3]) / 2
