"""What the pictures share: a sheet that is measured in pixels, the chosen moment, inks and fonts."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np
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
FONT = "DejaVu Sans, Verdana, Arial, Helvetica, sans-serif"
#: The parameter that holds the chosen moment, in the unit of the scene.
MOMENT = "moment"
#: The parameter that the slider sets.
STOP = "stop"
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


def moment_by_slider(stops: Sequence[float], first: int, slider: alt.BindRange) -> tuple[alt.Parameter, ...]:
    """The stop that the slider chooses, by its number, and the moment that it is."""
    times = ",".join(f"{stop:g}" if stop == float(f"{stop:g}") else repr(stop) for stop in stops)
    return alt.param(STOP, value=first, bind=slider), alt.param(MOMENT, expr=f"[{times}][{STOP}]")


Chart = alt.LayerChart | alt.HConcatChart | alt.VConcatChart


def finished(chart: Chart, title: str, lines: Sequence[str], *parameters: alt.Parameter) -> dict[str, Any]:
    """A chart as a Vega-Lite document with the look of all pictures; no title is drawn if it is empty."""
    whole = chart.add_params(*parameters) if parameters else chart
    if title:
        whole = whole.properties(title=_title(title, lines))
    document: dict[str, Any] = whole.properties(config=_look()).to_dict()
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
