"""Counterfactuals as lines."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from closeby.report.counterfactuals.records import Counterfactual, Kind


def different_lines(counterfactuals: Sequence[Counterfactual]) -> Table:
    """One line for each thing that might be different, marked by whether that would help."""
    table = Table.grid(padding=(0, 1))
    for one in counterfactuals:
        mark = Text("✓", style="green") if one.fits else Text("✗", style="red")
        if one.kind in (Kind.SHORT, Kind.RUNNER_UP):
            mark = Text("·", style="dim")
        table.add_row(mark, Text(one.sentence))
    return table
