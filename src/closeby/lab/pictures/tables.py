"""Columns as data of a chart: inline CSV, a third of the size of inline JSON and read by Vega itself."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt
import numpy as np
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
