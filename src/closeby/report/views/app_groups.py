"""Applications as tables: one line each, and the edges of one."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from closeby.objects.words import Names
from closeby.report.documents.app_groups import TREE, AppGroupEntry
from closeby.report.views.layout import Indented, plain_table, section

#: Workloads of an order, and edges, that are shown.
NAMES = 6
EDGES = 24


def app_groups_table(app_groups: Sequence[AppGroupEntry], names: Names) -> Table:
    """Pods placed, their network cost, what moving them together saved, and the order."""
    shown = ("placed", "cost", "one by one")
    table = plain_table("application", *shown, "order", right=shown)
    for entry in app_groups:
        style = "green" if entry.scheduled == entry.pods else "yellow"
        figures = ["–" if one is None else f"{one:,}" for one in (entry.cost, entry.one_by_one)]
        if entry.cost_source == TREE:
            figures[0] += " (distance)"
        table.add_row(
            names.of(entry.namespace, entry.name),
            Text(f"{entry.scheduled}/{entry.pods}", style=style),
            *figures,
            _order(entry),
        )
    return table


def edges_tables(app_groups: Sequence[AppGroupEntry], names: Names) -> Iterator[RenderableType]:
    """The edges of every application."""
    bodies = [
        Group(
            Text(names.of(entry.namespace, entry.name), style="bold"),
            Indented(edges_table(entry), (0, 0, 1, 2)),
        )
        for entry in app_groups
        if entry.edges
    ]
    if bodies:
        yield section("Dependencies", Group(*bodies))


def edges_table(entry: AppGroupEntry) -> Table:
    """The dearest edges first; broken limits stand out."""
    weighted = any(edge.weight != 1 for edge in entry.edges)
    limited = any(edge.max_network_cost is not None for edge in entry.edges)
    figures = (*(("weight",) if weighted else ()), "pairs", "cost", *(("limit",) if limited else ()))
    table = plain_table("from", "to", *figures, "", right=figures)
    ordered = sorted(entry.edges, key=lambda edge: -edge.cost)
    for edge in ordered[:EDGES]:
        notes = []
        if edge.over:
            notes.append(f"{edge.over} beyond the limit")
        if edge.unknown and entry.cost_source != TREE:
            notes.append(f"{edge.unknown} of unknown cost")
        limit = "" if edge.max_network_cost is None else f"{edge.max_network_cost:,}"
        table.add_row(
            edge.caller,
            edge.callee,
            *((f"{edge.weight:,}",) if weighted else ()),
            f"{edge.pairs:,}",
            f"{edge.cost:,}",
            *((limit,) if limited else ()),
            Text(", ".join(notes), style="red" if edge.over else "yellow"),
        )
    if len(ordered) > EDGES:
        table.add_row(Text(f"{len(ordered) - EDGES} more (-o json)", style="dim"))
    return table


def _order(entry: AppGroupEntry) -> str:
    found = [str(one["podName"]) for one in entry.topology_order]
    return " → ".join(found[:NAMES]) + (f" → … ({len(found)} in all)" if len(found) > NAMES else "")
