"""Topology trees as indented tables: how full each domain is, and who runs there."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from closeby.objects.quantities import format_amount
from closeby.objects.topologies import tier_of
from closeby.objects.words import joined, path_text, plural
from closeby.quality.placements import NODE_LEVEL
from closeby.report.documents.topologies import (
    DomainEntry,
    FitEntry,
    LevelFitEntry,
    TenantEntry,
    TopologyEntry,
    TopologyFitEntry,
    TopologyReport,
    UplinksEntry,
)
from closeby.report.views.layout import Indented, plain_table, worth_knowing
from closeby.whatif.records import DomainPath

#: Single nodes are listed when there are at most this many, unless the user asks for them.
NODES_SHOWN = 40
#: Gangs named per domain.
GANGS_SHOWN = 3
#: Causes named for which nodes are left out.
CAUSES_SHOWN = 4
BAR_WIDTH = 8
_GIGABIT = 10**9


def topology_views(report: TopologyReport, *, with_nodes: bool | None = None) -> Iterator[RenderableType]:
    """One table per topology. ``with_nodes`` None lists single nodes when there are few."""
    if isinstance(report.fits, tuple):
        for number, fit in enumerate(report.fits):
            if number:
                yield Text("")
            yield from _fit_views(fit)
        yield from worth_knowing(report.conditions)
        return
    if not report.topologies:
        yield Text("There is no usable topology.", style="yellow")
    for number, topology in enumerate(report.topologies):
        if number:
            yield Text("")
        yield _title(topology)
        yield Indented(_table(topology, report.main_resources, with_nodes), (0, 0, 0, 2))
        said = {one.field for one in report.conditions if one.object == f"Topology/{topology.name}"}
        yield from _flags(topology, said)
        if isinstance(topology.command, str):
            how = f"No object declares it. `{topology.command}` prints one (add -f PATH for nodes of files)."
            yield Indented(Text(how, style="dim"), (0, 0, 0, 2))
    yield from worth_knowing(report.conditions)


def _title(topology: TopologyEntry) -> Text:
    if not topology.name:
        return Text("No topology is declared; all nodes are side by side.", style="yellow")
    levels = " > ".join(level.name for level in topology.levels)
    also = f", also called {', '.join(topology.also_called)}" if topology.also_called else ""
    return Text.assemble((topology.name, "bold cyan"), also, f"  {levels}", (f"  {topology.source}", "dim"))


def _table(topology: TopologyEntry, resources: Sequence[str], with_nodes: bool | None) -> Table:
    table = plain_table(
        "domain",
        "nodes",
        *(column for resource in resources for column in (_short(resource), "free")),
        "who",
        right=("nodes", "free"),
    )
    if with_nodes is None:
        with_nodes = topology.levels[-1].domains <= NODES_SHOWN
    nodes = topology.levels[-1].domains
    # Levels of which each domain is one node share a line with it.
    twice = [one.name for one in topology.levels[:-1] if with_nodes and 0 < one.domains == nodes]
    nested = len({entry.level for entry in topology.domains}) > 1
    nameless: dict[DomainPath, list[DomainEntry]] = {}
    for entry in topology.domains:
        if entry.level in twice:
            continue
        single = entry.level == NODE_LEVEL
        alone = None in (entry.path[:-1] if single else entry.path)
        # A node that lacks a label is always shown by its name, never the domain it would be alone in. Where
        # nodes have no lines, those that lack the same labels share one.
        if alone and single:
            table.add_row(*_row(entry, resources, nested, style="yellow"))
        elif alone and not nested:
            nameless.setdefault(entry.path, []).append(entry)
        elif not alone and (with_nodes or not single or not nested):
            table.add_row(*_row(entry, resources, nested, above=len(twice) if single else 0))
    for entries in nameless.values():
        table.add_row(*_row(_together(entries), resources, nested, style="yellow"))
    return table


def _together(entries: Sequence[DomainEntry]) -> DomainEntry:
    """Several nodes that lie alone at a level as one entry."""
    gangs: Counter[str] = Counter()
    for entry in entries:
        gangs.update({one.gang: one.pods for one in entry.gangs})
    return replace(
        entries[0],
        nodes=sum(one.nodes for one in entries),
        unavailable=sum(one.unavailable for one in entries),
        capacity=_sums(one.capacity for one in entries),
        used=_sums(one.used for one in entries),
        free=_sums(one.free for one in entries),
        gangs=tuple(TenantEntry(gang=gang, pods=pods) for gang, pods in gangs.items()),
        single_pods=sum(one.single_pods for one in entries),
    )


def _sums(amounts: Iterable[Mapping[str, float]]) -> Mapping[str, float]:
    total: dict[str, float] = {}
    for one in amounts:
        for resource, amount in one.items():
            total[resource] = total.get(resource, 0) + amount
    return total


def _row(
    entry: DomainEntry, resources: Sequence[str], nested: bool, style: str = "", above: int = 0
) -> list[RenderableType]:
    """``above``: so many levels are named in the same line."""
    indent = "  " * (sum(value is not None for value in entry.path) - above) if nested else ""
    name = path_text(entry.path[-1 - above :] if nested and entry.path else entry.path)
    nodes = Text(f"{entry.nodes:,}")
    if entry.unavailable:
        nodes.append(f" ({entry.unavailable} off)", style="yellow")
    cells: list[RenderableType] = [Text(indent + name, style=style or ("" if entry.path else "bold")), nodes]
    for resource in resources:
        free = entry.free.get(resource, 0)
        cells += [_use(resource, entry), Text(_amount(resource, free), style="green" if free else "dim")]
    return [*cells, Text(_who(entry))]


def _degraded(up: UplinksEntry) -> str:
    """What is wrong with the way up, and how many edges it counts as."""
    parts = []
    if up.cables is not None and up.usual_cables is not None and up.cables < up.usual_cables:
        parts.append(f"{up.cables} of {plural(up.usual_cables, 'uplink')}")
    if up.bandwidth is not None and up.usual_bandwidth is not None and up.bandwidth < up.usual_bandwidth:
        parts.append(f"{up.bandwidth / _GIGABIT:,g} of {up.usual_bandwidth / _GIGABIT:,g} Gbps")
    return f"{', '.join(parts)}; counts as {up.cost:g} edges"


def _use(resource: str, entry: DomainEntry) -> Text:
    """A bar and the numbers behind it."""
    capacity, used = entry.capacity.get(resource, 0), entry.used.get(resource, 0)
    if not capacity:
        return Text("none", style="dim")
    return Text.assemble(bar(used / capacity), f" {_amount(resource, used)}/{_amount(resource, capacity)}")


def bar(share: float, width: int = BAR_WIDTH) -> Text:
    """How much of something is used, 0 to 1; full only when all is used, empty only when nothing is."""
    filled = min(max(round(share * width), 1 if share > 0 else 0), width if share >= 1 else width - 1)
    style = "red" if share > 1 else "yellow" if share >= 1 else "blue"
    return Text.assemble(("█" * filled, style), ("░" * (width - filled), "dim"))


def _amount(resource: str, value: float) -> str:
    return format_amount(resource, round(value * 1000) if resource == "cpu" else int(value))


def _short(resource: str) -> str:
    return resource.rsplit("/", 1)[-1]


def _who(entry: DomainEntry) -> str:
    named = [f"{one.gang.removeprefix('default/')} ({one.pods})" for one in entry.gangs[:GANGS_SHOWN]]
    left = len(entry.gangs) - len(named)
    if left:
        named.append(f"{left} more")
    if entry.single_pods:
        named.append(plural(entry.single_pods, "single pod"))
    return ", ".join(named)


def _flags(topology: TopologyEntry, said: Collection[str]) -> Iterator[RenderableType]:
    """Degraded uplinks, and nodes without a label, by the labels they lack.

    ``said``: fields of the topology of which conditions say what is wrong.
    """
    known = {
        level.node_label
        for number, level in enumerate(topology.levels)
        if not level.domains and f"spec.levels[{number}].nodeLabel" in said
    }
    for domain in topology.domains:
        if domain.uplinks is not None and domain.uplinks.cost > 1:
            yield _flag(f"{domain.level} {path_text(domain.path)}: {_degraded(domain.uplinks)}")
    by_missing: dict[tuple[str, ...], list[str]] = {}
    for entry in topology.unlabelled:
        missing = tuple(label for label in entry.missing if label not in known)
        if missing:
            by_missing.setdefault(missing, []).append(entry.node)
    for missing, nodes in by_missing.items():
        shown = ", ".join(nodes[:5]) + (", …" if len(nodes) > 5 else "")
        levels = "that level is" if len(missing) == 1 else "one of these levels is"
        yield _flag(
            f"{plural(len(nodes), 'node')} without {_all_of(missing)} ({shown}): usable, but never where "
            f"{levels} required"
        )


def _flag(said: str) -> RenderableType:
    return Indented(Text.assemble(("! ", "yellow"), said), (0, 0, 0, 2))


def _all_of(labels: Sequence[str]) -> str:
    """Labels in a sentence; those that stand for a tier of HyperNodes are called so."""
    tiers = [tier_of(label) for label in labels]
    named = [
        label if tier is None else f"a HyperNode of tier {tier}"
        for label, tier in zip(labels, tiers, strict=True)
    ]
    return joined(named)


def _fit_views(fit: FitEntry) -> Iterator[RenderableType]:
    """Room for gangs of one size: a line per level, or per domain where one level is asked for."""
    needs = ", ".join(
        f"{_amount(resource, amount)} {_short(resource)}" for resource, amount in fit.needs.items()
    )
    yield Text.assemble((f"Gangs of {plural(fit.pods, 'pod')}", "bold"), f" with {needs} each")
    for topology in fit.topologies:
        single = len(topology.levels) == 1 and topology.levels[0].level is not None
        table = _places_table(topology.levels[0]) if single else _levels_table(topology)
        yield Text("")
        yield Text(topology.name or "all nodes", style="bold cyan")
        yield Indented(table, (0, 0, 0, 2))
    if fit.tolerated:
        are = "counts" if fit.tolerated == 1 else "count"
        why = "the admission plugin ExtendedResourceToleration lets these pods tolerate the taint"
        text = f"{plural(fit.tolerated, 'tainted node')} {are}: {why}."
        yield Text("")
        yield Indented(Text(text), (0, 0, 0, 2))
    if fit.too_little is not None:
        yield Text("")
        yield Indented(Text(_too_little(fit, fit.too_little), style="yellow"), (0, 0, 0, 2))
    if fit.left_out:
        yield Text("")
        yield Indented(Text(_left_out(fit), style="yellow"), (0, 0, 0, 2))


def _too_little(fit: FitEntry, largest: Mapping[str, float]) -> str:
    """Why no node takes such a pod even if nothing runs there."""
    others = " of the others" if fit.left_out else ""
    lacks = [
        f"{_amount(name, fit.needs[name])} {name}, and "
        + (f"the node with the most has {_amount(name, most)}" if most else f"none{others} has any")
        for name, most in largest.items()
    ]
    if not lacks:
        return f"No node{others} has all that a pod asks for at once, even if nothing runs there."
    return f"No node{others} is large enough: a pod asks for {'; '.join(lacks)}."


def _left_out(fit: FitEntry) -> str:
    """Which nodes are not counted, and what would let pods use them."""
    causes = list(fit.left_out_by.items())
    shown = [f"{number:,} {cause}" for cause, number in causes[:CAUSES_SHOWN]]
    if len(causes) > CAUSES_SHOWN:
        shown.append(f"{sum(number for _, number in causes[CAUSES_SHOWN:]):,} for other causes")
    ways = ["`kubectl uncordon NODE`"] if "cordoned" in fit.left_out_by else []
    ways += ["tolerate the taint in the pods"] if any(one.startswith("taint ") for one, _ in causes) else []
    how = f" To use them: {', or '.join(ways)}." if ways else ""
    are = "is" if fit.left_out == 1 else "are"
    return f"{plural(fit.left_out, 'node')} {are} left out, now and if empty: {', '.join(shown)}.{how}"


def _levels_table(topology: TopologyFitEntry) -> Table:
    table = plain_table(
        "each in one", "domains", "now", "if empty", "the roomiest now", right=("domains", "now", "if empty")
    )
    for level in topology.levels:
        best = max(level.places, key=lambda place: place.pods, default=None)
        room = (
            ""
            if best is None or level.level is None
            else f"{path_text(best.path)}: {plural(best.pods, 'pod')}"
        )
        name = "the cluster" if level.level is None else level.level
        table.add_row(name, f"{level.domains:,}", _count(level.gangs), f"{level.gangs_if_empty:,}", room)
    return table


def _places_table(level: LevelFitEntry) -> Table:
    table = plain_table(
        str(level.level), "pods now", "gangs now", "if empty", right=("pods now", "gangs now", "if empty")
    )
    for place in level.places:
        table.add_row(
            path_text(place.path), f"{place.pods:,}", _count(place.gangs), f"{place.gangs_if_empty:,}"
        )
    table.add_row("all", "", _count(level.gangs), f"{level.gangs_if_empty:,}", style="bold")
    return table


def _count(gangs: int) -> Text:
    return Text(f"{gangs:,}", style="green" if gangs else "dim")
