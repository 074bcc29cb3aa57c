"""Applications, and how close they and gangs are, as tables; with the constants of what is modelled."""

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from closeby.objects.words import Names
from closeby.quality.model import Model
from closeby.report.documents.quality import TREE, AppGroupEntry, QualityEntry
from closeby.report.documents.scheduling import GroupEntry, SchedulingReport
from closeby.report.views.layout import Indented, and_more, plain_table, section

#: What data meets under, nearest first; the model's tiers.
_TIERS: Final = ("one node", "one finest domain", "one level up", "any farther level")


def quality_sections(report: SchedulingReport, names: Names) -> Iterator[RenderableType]:
    """A section on gangs, one on applications; nothing where none is placed."""
    gangs = [(group, group.quality) for group in report.groups if isinstance(group.quality, QualityEntry)]
    if gangs and isinstance(report.model, Model):
        yield section(
            "How close gangs are",
            Group(_gangs(gangs, names), Text(), _words(report.model), constants(report.model)),
        )
    talking = [entry for entry in report.app_groups if entry.pairs]
    if talking:
        yield section("How close applications are", _applications(talking, names))


def _gangs(gangs: Sequence[tuple[GroupEntry, QualityEntry]], names: Names) -> Table:
    figures = ("distance", "ring hops", "all-reduce", "slowdown")
    table = plain_table("gang", "excess span", *figures, right=figures)
    for group, found in gangs:
        distance = "–" if found.mean_distance is None else f"{found.mean_distance:.3g}"
        hops = f"{found.ring_hops:,}"
        if found.ring_hops > found.least_ring_hops:
            hops += f" (least {found.least_ring_hops:,})"
        table.add_row(
            names.of(group.namespace, group.name),
            _excess(found),
            distance,
            hops,
            seconds_text(found.all_reduce_seconds),
            _times(found.slowdown),
        )
    return table


def _excess(found: QualityEntry) -> Text:
    """The levels on which the gang is in more domains than it would have to."""
    if None in found.excess_span.values():
        return Text("larger than any node", style="dim")
    above = [f"{level} ×{excess:.3g}" for level, excess in found.excess_span.items() if excess and excess > 1]
    return Text(", ".join(above), style="yellow") if above else Text("none", style="green")


def _times(slowdown: float | None) -> Text:
    if slowdown is None:
        return Text("–", style="dim")
    return Text(f"×{slowdown:.3g}", style="yellow" if slowdown >= 1.005 else "green")


def _applications(entries: Sequence[AppGroupEntry], names: Names) -> Table:
    figures = ("pairs", "same node", "same zone", "same region", "beyond limits")
    table = plain_table("application", *figures, right=figures)
    for entry in entries:
        shares = (entry.same_node, entry.same_zone, entry.same_region)
        table.add_row(
            names.of(entry.namespace, entry.name),
            f"{entry.pairs:,}",
            *("–" if share is None else f"{100 * share:.0f} %" for share in shares),
            Text(f"{entry.over:,}", style="red" if entry.over else ""),
        )
    return table


def _words(model: Model) -> RenderableType:
    """What the columns mean."""
    return Text(
        "Excess span: domains that a gang is in, over the fewest that could hold it on an empty\n"
        "cluster, where that is above 1. Distance: tree edges between two pods, mean. Ring hops: tree\n"
        "edges of the ring of ranks. (Least: the best that was possible.)\n"
        f"Modelled: a ring all-reduce of {_message(model)} over all GPUs of a gang, and how many times\n"
        "longer it takes than on an ideal placement on an empty cluster.",
        style="dim",
    )


def constants(model: Model) -> RenderableType:
    """All that the modelled figures rest on, and where it comes from."""
    figures = ("a step", "a link", "oversubscription")
    table = plain_table("climbing to", *figures, right=figures)
    for name, tier in zip(_TIERS, model.tiers, strict=False):
        speed = f"{tier.bytes_per_second / 1e9:g} GB/s"
        table.add_row(name, seconds_text(tier.latency_seconds), speed, f"{tier.oversubscription:g}")
    sources = [
        f"{name.capitalize()}: {tier.source}." for name, tier in zip(_TIERS, model.tiers, strict=False)
    ]
    share = f"{100 * model.communication_share:g} %"
    return Group(
        Indented(table, (0, 0, 0, 2), style="dim"),
        Text(
            f"An all-reduce is of {_message(model)}; communication is {share} of a step on an ideal "
            f"placement: {model.communication_source}.",
            style="dim",
        ),
        *(Text(source, style="dim") for source in sources),
    )


def _message(model: Model) -> str:
    return f"{model.message_bytes / 2**30:g} GiB"


def seconds_text(seconds: float) -> str:
    """A short time in the unit that suits it: ``0``, ``12 µs``, ``4.12 ms``, ``1.5 s``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0" if not seconds else f"{seconds * 1e6:.2g} µs"


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
    and_more(table, len(ordered) - EDGES, "dependency")
    return table


def _order(entry: AppGroupEntry) -> str:
    found = [str(one["podName"]) for one in entry.topology_order]
    return " → ".join(found[:NAMES]) + (f" → … ({len(found)} in all)" if len(found) > NAMES else "")
