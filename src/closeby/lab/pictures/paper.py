"""What the pictures share: a sheet that is measured in pixels, the chosen moment, inks and fonts."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import altair as alt
import numpy as np
from altair.utils.schemapi import debug_mode
from msgspec import Struct
from numpy.typing import NDArray

Column = Sequence[str] | NDArray[Any]


def data(**columns: Column) -> alt.InlineData:
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
    return alt.InlineData(values=file.getvalue(), format=alt.CsvDataFormat(type="csv", parse=kinds))


def _texts(column: Column) -> Iterable[str]:
    if not isinstance(column, np.ndarray):
        return column
    return [f"{value:.6f}".rstrip("0").rstrip(".") for value in column.astype(np.float64).tolist()]


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
FONT = "DejaVu Sans, Verdana, Arial, Helvetica, sans-serif"
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

    def x(self, field: str) -> alt.X:
        """Position from the left."""
        scale = alt.Scale(domain=[0, self.width], nice=False, zero=False)
        return alt.X(field, type="quantitative", axis=None, scale=scale)

    def y(self, field: str) -> alt.Y:
        """Position from the top."""
        scale = alt.Scale(domain=[self.height, 0], nice=False, zero=False)
        return alt.Y(field, type="quantitative", axis=None, scale=scale)


def colour(field: str) -> alt.Color:
    """A field that holds the colour itself."""
    return alt.Color(field, type="nominal", scale=None, legend=None)


def moment_of(value: float) -> alt.Parameter:
    """The chosen moment."""
    return alt.param(name=MOMENT, value=value)


def nothing_sought() -> alt.Parameter:
    """Nothing is searched for yet."""
    return alt.param(name=SOUGHT, value="")


def moment_by_slider(stops: Sequence[float], first: int, slider: alt.BindRange) -> tuple[alt.Parameter, ...]:
    """The stop that the slider chooses, by its number, and the moment that it is."""
    times = ",".join(f"{stop:g}" if stop == float(f"{stop:g}") else repr(stop) for stop in stops)
    return alt.param(STOP, value=first, bind=slider), alt.param(MOMENT, expr=f"[{times}][{STOP}]")


P = ParamSpec("P")
T = TypeVar("T")
Chart = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart


def unchecked(draw: Callable[P, T]) -> Callable[P, T]:
    """Meanwhile Altair does not hold each part of a chart against the schema of Vega-Lite, which takes longer
    than to draw it; tests hold the finished documents against it."""

    @wraps(draw)
    def drawn(*args: P.args, **named: P.kwargs) -> T:
        with debug_mode(False):
            return draw(*args, **named)

    return drawn


@unchecked
def finished(chart: Chart, title: str, lines: Sequence[str], *parameters: alt.Parameter) -> dict[str, Any]:
    """A chart as a Vega-Lite document with the look of all pictures; no title is drawn if it is empty."""
    whole = chart.add_params(*parameters) if parameters else chart
    if title:
        whole = whole.properties(title=_title(title, lines))
    document: dict[str, Any] = whole.properties(config=_look()).to_dict(validate=False)
    return document


def _title(title: str, lines: Sequence[str]) -> alt.TitleParams:
    return alt.TitleParams(
        text=title,
        subtitle=list(lines),
        anchor="start",
        fontSize=15,
        subtitleFontSize=11,
        subtitleColor=PALE_INK,
        subtitlePadding=5,
        offset=12,
    )


def _look() -> alt.Config:
    return alt.Config(
        # A label for each of thousands of marks helps no reader, and makes an SVG half as large again.
        aria=False,
        background="#FFFFFF",
        font=FONT,
        padding=12,
        view=alt.ViewConfig(stroke=None),
        title=alt.TitleConfig(color=INK),
        axis=alt.AxisConfig(
            labelColor=PALE_INK,
            titleColor=PALE_INK,
            titleFontWeight="normal",
            titleFontSize=11,
            labelFontSize=10,
            gridColor="#E5E7EB",
            domainColor="#9CA3AF",
            tickColor="#9CA3AF",
        ),
        legend=alt.LegendConfig(
            labelColor=INK,
            titleColor=PALE_INK,
            titleFontWeight="normal",
            labelFontSize=11,
            titleFontSize=11,
        ),
    )
