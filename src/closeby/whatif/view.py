"""Counterfactuals as lines."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from closeby.whatif.records import Counterfactual, Kind, TalkEntry


def different_lines(counterfactuals: Sequence[Counterfactual]) -> Table:
    """One line for each thing that might be different, marked by whether that would help."""
    table = Table.grid(padding=(0, 1))
    for one in counterfactuals:
        mark = Text("✓", style="green") if one.fits else Text("✗", style="red")
        if one.kind in (Kind.SHORT, Kind.RUNNER_UP) or _no_gain(one):
            mark = Text("·", style="dim")
        elif not one.fits and one.pods:
            mark = Text("~", style="yellow")
        table.add_row(mark, Text(one.sentence))
    return table


def _no_gain(one: Counterfactual) -> bool:
    """Of an application that would lie no better."""
    talk = one.talk
    return (
        isinstance(talk, TalkEntry)
        and one.kind is Kind.ANEW
        and not one.pods
        and ((talk.over_there, talk.there) >= (talk.over_here, talk.here))
    )
