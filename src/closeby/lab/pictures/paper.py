"""What the pictures share: charts as Vega-Lite has them, a sheet measured in pixels, inks and fonts."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Column = Sequence[str] | NDArray[Any]
#: A chart, or a part of one, as Vega-Lite has it; its data are ``Rows`` until it is finished.
Spec = dict[str, Any]


class Rows(Struct, frozen=True, kw_only=True, eq=False):
    """A table as CSV, and which of its columns are numbers."""

    text: str
    kinds: dict[str, str]


def data(**columns: Column) -> Rows:
    """Columns of equal length by name. Numbers are written as short as they read back equal to six digits
    behind the point."""
    written = {name: _texts(column) for name, column in columns.items()}
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(written)
    writer.writerows(zip(*written.values(), strict=True))
    kinds = {
        name: "number" if isinstance(column, np.ndarray) else "string" for name, column in columns.items()
    }
    return Rows(text=file.getvalue(), kinds=kinds)


def _texts(column: Column) -> Iterable[str]:
    if not isinstance(column, np.ndarray):
        return column
    return [f"{value:.6f}".rstrip("0").rstrip(".") for value in column.astype(np.float64).tolist()]


def marks(rows: Rows, kind: str, encoding: Spec, *steps: Spec, **look: object) -> Spec:
    """A mark for each row that the transforms ``steps`` leave; ``kind`` is rect, text, rule, line or area."""
    chart: Spec = {"data": rows, "mark": {"type": kind, **look}, "encoding": encoding}
    return {**chart, "transform": list(steps)} if steps else chart


def words(rows: Rows, encoding: Spec, *steps: Spec, **look: object) -> Spec:
    """A text for each row that begins at its place, at half of its height, unless ``look`` says otherwise."""
    return marks(rows, "text", encoding, *steps, **{"align": "left", "baseline": "middle", **look})


def quantity(field: str, **more: object) -> Spec:
    """A field of numbers."""
    return {"field": field, "type": "quantitative", **more}


def label(field: str, **more: object) -> Spec:
    """A field of texts."""
    return {"field": field, "type": "nominal", **more}


def constant(value: object) -> Spec:
    """The same for all rows."""
    return {"value": value}


def either(condition: str, then: object, otherwise: object) -> Spec:
    """One constant for the rows that meet a condition, another for the rest."""
    return {"condition": {"test": condition, "value": then}, "value": otherwise}


def where(condition: str) -> Spec:
    """A transform that keeps the rows that meet a condition."""
    return {"filter": condition}


def lookup(key: str, rows: Rows, *fields: str) -> Spec:
    """A transform that adds fields of the row of another table that has the same key."""
    return {"lookup": key, "from": {"data": rows, "key": key, "fields": list(fields)}}


def calculated(**expressions: str) -> list[Spec]:
    """Transforms that add fields, one after the other."""
    return [{"calculate": expression, "as": field} for field, expression in expressions.items()]


def layered(*parts: Spec, **look: object) -> Spec:
    """Charts one upon the other."""
    return {"layer": list(parts), **look}


INK = "#1F2937"
PALE_INK = "#4B5563"
RULE = "#D92D20"
#: Ink on the colour of a gang, which is the same on light and on dark paper.
ON_DARK = "#FDFDFD"
ON_LIGHT = "#111827"
#: What a report on dark paper has in place of the colours of paper, ink, frames and scales. A colour that is
#: not named here, such as that of a gang, stays.
DARK = {
    "#FFFFFF": "#12161D",
    INK: "#E5E7EB",
    PALE_INK: "#A7B0BE",
    "#E5E7EB": "#2B3441",
    "#9CA3AF": "#5B6675",
    # Boxes of the map and their frames, what is no gang, and nodes that may not be used or are kept free.
    "#EEF0F3": "#1B212B",
    "#E1E4E9": "#252D39",
    "#D4D8DF": "#303947",
    "#C8CDD6": "#3B4656",
    "#B9BFCA": "#4A5566",
    "#B4B9C2": "#9AA3B1",
    "#6B7280": "#4F5969",
    "#FBD5D1": "#5A1F1B",
    RULE: "#FF6B5E",
    # How busy domains and uplinks are: the more, the lighter.
    "#F3F4F6": "#1B2430",
    "#6BAED6": "#3B7FB0",
    "#08306B": "#B7DDF5",
    "#D9DCE2": "#3A4454",
    "#F5A65B": "#C9772E",
    "#8C2D04": "#FFD9B0",
    # Lines.
    "#2166AC": "#6FB1F0",
    "#B2570C": "#F0A35A",
    "#6B3FA0": "#B79AE6",
    "#0072B2": "#4BA8E0",
}
#: What draws brings the first of them, so that files are the same everywhere; the next two are as wide.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
#: The parameter that holds the chosen moment, in the unit of the scene.
MOMENT = "moment"
#: The parameter that the slider sets.
STOP = "stop"
#: The parameter that holds what is searched for, a regular expression; empty where nothing is.
SOUGHT = "sought"
#: Whether a row's job is searched for.
IS_SOUGHT = f"{SOUGHT} !== '' && test(regexp({SOUGHT}), lower(datum.job))"
#: Keeps the rows that hold at that moment.
THERE = f"datum.since <= {MOMENT} && {MOMENT} < datum.until"


class Sheet(Struct, frozen=True):
    """A rectangle of pixels that marks are put on; y grows downward."""

    width: float
    height: float

    def x(self, field: str) -> Spec:
        """Position from the left."""
        scale = {"domain": [0, self.width], "nice": False, "zero": False}
        return quantity(field, axis=None, scale=scale)

    def y(self, field: str) -> Spec:
        """Position from the top."""
        scale = {"domain": [self.height, 0], "nice": False, "zero": False}
        return quantity(field, axis=None, scale=scale)

    def at(self, x: str, y: str) -> Spec:
        """Where a point is."""
        return {"x": self.x(x), "y": self.y(y)}

    def between(self, left: str, top: str, right: str, bottom: str) -> Spec:
        """Where a rectangle is, or a line."""
        return {"x": self.x(left), "x2": {"field": right}, "y": self.y(top), "y2": {"field": bottom}}

    @property
    def box(self) -> Spec:
        """The rectangle whose edges are in fields of these names."""
        return self.between("left", "top", "right", "bottom")

    def sized(self, *parts: Spec, name: str, **look: object) -> Spec:
        """Charts one upon the other, as large as the sheet."""
        return layered(*parts, width=self.width, height=self.height, name=name, **look)


def colour(field: str) -> Spec:
    """A field that holds the colour itself."""
    return label(field, scale=None, legend=None)


def moment_of(value: float) -> Spec:
    """The chosen moment."""
    return {"name": MOMENT, "value": value}


def nothing_sought() -> Spec:
    """Nothing is searched for yet."""
    return {"name": SOUGHT, "value": ""}


def moment_by_slider(stops: Sequence[float], first: int, name: str) -> tuple[Spec, ...]:
    """The stop that a slider chooses, by its number, and the moment that it is."""
    times = ",".join(f"{stop:g}" if stop == float(f"{stop:g}") else repr(stop) for stop in stops)
    slider = {"input": "range", "min": 0, "max": len(stops) - 1, "step": 1, "name": name}
    return (
        {"name": STOP, "value": first, "bind": slider},
        {"name": MOMENT, "expr": f"[{times}][{STOP}]"},
    )


def finished(chart: Spec, title: str, lines: Sequence[str], *parameters: Spec) -> Spec:
    """A chart as a Vega-Lite document with the look of all pictures; no title is drawn if it is empty."""
    whole = {**chart, "config": LOOK}
    if parameters:
        whole["params"] = list(parameters)
    if title:
        whole["title"] = {**TITLE, "text": title, "subtitle": list(lines)}
    return with_datasets(whole)


def with_datasets(chart: Spec) -> Spec:
    """A chart in which equal tables stand once, and wherever they are drawn by their names."""
    names: dict[str, str] = {}

    def resolved(part: Any) -> Any:
        if isinstance(part, Rows):
            name = names.setdefault(part.text, f"table-{len(names) + 1}")
            return {"name": name, "format": {"type": "csv", "parse": part.kinds}}
        if isinstance(part, dict):
            return {name: resolved(one) for name, one in part.items()}
        return [resolved(one) for one in part] if isinstance(part, list) else part

    found: Spec = resolved(chart)
    return {**found, "datasets": {name: text for text, name in names.items()}}


TITLE = {
    "anchor": "start",
    "fontSize": 15,
    "subtitleFontSize": 11,
    "subtitleColor": PALE_INK,
    "subtitlePadding": 5,
    "offset": 12,
}
LOOK = {
    # A label for each of thousands of marks helps no reader, and makes an SVG half as large again.
    "aria": False,
    "background": "#FFFFFF",
    "font": FONT,
    "padding": 12,
    "view": {"stroke": None},
    "title": {"color": INK},
    "axis": {
        "labelColor": PALE_INK,
        "titleColor": PALE_INK,
        "titleFontWeight": "normal",
        "titleFontSize": 11,
        "labelFontSize": 10,
        "gridColor": "#E5E7EB",
        "domainColor": "#9CA3AF",
        "tickColor": "#9CA3AF",
    },
    "legend": {
        "labelColor": INK,
        "titleColor": PALE_INK,
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "titleFontSize": 11,
    },
}
