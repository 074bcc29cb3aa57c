"""Letters of the gangs that are named below the rack map: they distinguish two of one colour."""

from collections.abc import Iterator
from itertools import groupby

import altair as alt
import numpy as np

from closeby.lab.pictures.boxes import Boxes
from closeby.lab.pictures.colours import ink_on
from closeby.lab.pictures.lanes import Pieces
from closeby.lab.pictures.paper import THERE, Sheet, colour
from closeby.lab.pictures.scene import Scene
from closeby.lab.pictures.tables import data
from closeby.topology.tree import ROOT_LEVEL

#: The letter of the gang of a rank, in the expressions of a chart.
LETTER = "slice('ABCDEFGHIJKLMNOPQRSTUVWXYZ', datum.rank - 1, datum.rank)"
#: Size of a letter, and the least area of one colour that it is written on.
SIZE = 8.0
LEAST_WIDTH = 9.0
LEAST_HEIGHT = 7.0


def largest_first() -> list[alt.SortField | dict[str, str]]:
    """The order in which gangs of a moment are named."""
    return [alt.SortField("size", order="descending"), alt.SortField("number", order="ascending")]


def letters(
    sheet: Sheet, boxes: Boxes, scene: Scene, pieces: Pieces, colours: tuple[str, ...], most: int
) -> Iterator[alt.Chart]:
    """The letter of each of the ``most`` largest gangs of the moment, once in each leaf that has room."""
    places = _places(boxes, scene, pieces)
    tenants = [tenant for tenant, _, _ in places]
    rows = data(
        number=np.asarray(tenants, dtype=np.intp),
        size=np.asarray([scene.tenants[tenant].size for tenant in tenants]),
        x=np.asarray([x for _, x, _ in places]),
        y=np.asarray([y for _, _, y in places]),
        fill=[colours[tenant] for tenant in tenants],
        ink=[ink_on(colours[tenant]) for tenant in tenants],
        since=scene.since[tenants],
        until=scene.until[tenants],
        there=np.asarray([x >= 0 for _, x, _ in places], dtype=np.intp),
    )
    base = (
        alt.Chart(rows)
        .transform_filter(THERE)
        .transform_window(sort=largest_first(), rank="dense_rank()")
        .transform_filter(f"datum.rank <= {most} && datum.there")
        .transform_calculate(letter=LETTER)
        .encode(x=sheet.x("x"), y=sheet.y("y"), text="letter:N")
    )
    # The colour fills the gaps between bars behind the letter.
    edge = alt.Stroke("fill", type="nominal", scale=None, legend=None)
    yield base.mark_text(align="center", baseline="middle", fontSize=SIZE, strokeWidth=4).encode(
        color=colour("fill"), stroke=edge
    )
    yield base.mark_text(align="center", baseline="middle", fontSize=SIZE).encode(color=colour("ink"))


def _places(boxes: Boxes, scene: Scene, pieces: Pieces) -> list[tuple[int, float, float]]:
    """Tenant, and the middle of the bars that it has in a leaf, most of them in one column.

    Each tenant with a colour has a row of -1 besides, so that it has its rank also where no letter fits.
    """
    tree = scene.tree
    positions = tree.position_of[pieces.slots]
    level = tree.node_level - 1
    leaves = (
        tree.domain_at[level][positions] if level > ROOT_LEVEL else np.zeros(len(positions), dtype=np.intp)
    )
    bars = boxes.bars[positions]
    wide = bars[:, 2] - bars[:, 0]
    left, right = bars[:, 0] + wide * pieces.low, bars[:, 0] + wide * pieces.high
    found = [(index, -1.0, -1.0) for index, tenant in enumerate(scene.tenants) if tenant.has_colour]
    order = np.lexsort((bars[:, 1], bars[:, 0], leaves, pieces.tenants))
    rows = [row for row in order.tolist() if scene.tenants[int(pieces.tenants[row])].has_colour]
    for (tenant, _), group in groupby(rows, key=lambda row: (int(pieces.tenants[row]), int(leaves[row]))):
        columns = [list(column) for _, column in groupby(group, key=lambda row: float(bars[row, 0]))]
        longest = [column for column in columns if len(column) == max(map(len, columns))]
        column = longest[len(longest) // 2]
        middle = column[len(column) // 2]
        # Parts of one gang above and beside one another read as one area.
        height = sum(float(bars[row, 3] - bars[row, 1]) for row in column)
        width = sum(float(right[one[0]] - left[one[0]]) for one in longest)
        if width >= LEAST_WIDTH and height >= LEAST_HEIGHT:
            x, y = (left[middle] + right[middle]) / 2, (bars[middle, 1] + bars[middle, 3]) / 2
            found.append((tenant, float(x), float(y)))
    return found
