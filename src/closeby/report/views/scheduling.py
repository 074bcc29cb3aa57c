"""A scheduling report as a person likes to read it: gangs, pods, what waits and why, what is odd."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from closeby.objects.bounds import clipped
from closeby.objects.reasons import Condition
from closeby.objects.words import (
    Names,
    counts_text,
    names_text,
    natural_key,
    path_text,
    plural,
    runs_of,
    span_text,
)
from closeby.plugins.configurations import DEFAULT
from closeby.quality.placements import NODE_LEVEL
from closeby.reading.registry import NOT_YET, NOTED
from closeby.report.documents.common import FoundTopologyEntry
from closeby.report.documents.scheduling import GroupEntry, PodEntry, SchedulingReport
from closeby.report.documents.sentences import OPT_OUT
from closeby.report.views.decisions import decision_views, preemptions_table
from closeby.report.views.layout import Indented, and_more, found_text, plain_table, section, worth_knowing
from closeby.report.views.pod_lines import Row, joined, line_text, segment_lines
from closeby.report.views.quality import app_groups_table, edges_tables, quality_sections

#: Lines of claims.
VOLUME_LINES = 16
#: Lines that one gang or owner may take in the table of pods.
LINES_PER_GANG = 8


def scheduling_views(report: SchedulingReport, *, quality: bool = False) -> Iterator[RenderableType]:
    """All sections that have something to say; ``quality`` adds how close what was placed is."""
    names = Names(
        {pod.namespace for pod in report.pods}
        | {group.namespace for group in report.groups}
        | {app_group.namespace for app_group in report.app_groups}
    )
    yield _summary(report)
    if report.groups:
        yield section("Gangs", _groups_table(report, names))
        yield from _by_nature(report, names)
    if report.app_groups:
        yield section("Applications", app_groups_table(report.app_groups, names))
    if quality:
        yield from quality_sections(report, names)
    placed = [pod for pod in report.pods if pod.phase == "Scheduled"]
    if placed:
        yield section("Pods placed", _pods_table(placed, names))
    volumes = _volumes_table(placed, names)
    if volumes is not None:
        yield section("Volumes", volumes)
    if report.preemptions:
        yield section("Preemptions", preemptions_table(report.preemptions, names))
    waiting = list(_waiting(report, names))
    if waiting:
        yield section("Waiting", Group(*waiting))
    if isinstance(report.explain, tuple):
        yield from edges_tables(report.app_groups, names)
    decisions = list(decision_views(report, names))
    if decisions:
        yield section("How it was decided", Group(*decisions))
    yield from _found_topology(report)
    yield from worth_knowing(_untold(report))
    later = {kind: count for kind, count in report.unused.items() if kind in NOT_YET}
    # A notice above has said of these that they are ignored.
    noted = {kind for _, kind in NOTED}
    never = {
        kind: count for kind, count in report.unused.items() if kind not in NOT_YET and kind not in noted
    }
    if never:
        yield Text(f"\nNot needed for scheduling and left aside: {counts_text(never)}.", style="dim")
    if later:
        waits = "not used yet; pods that depend on them wait with Unsupported"
        yield Text(f"\nLeft aside: {counts_text(later)} ({waits}).", style="dim")


def _by_nature(report: SchedulingReport, names: Names) -> Iterator[RenderableType]:
    """Which gangs are gangs only because of their workloads' kinds, in one line for all of them."""
    kinds: dict[str, list[str]] = {}
    for group in report.groups:
        if isinstance(group.by_nature, str):
            kinds.setdefault(group.by_nature, []).append(names.of(group.namespace, group.name))
    if kinds:
        found = ", ".join(f"{kind} {names_text(gangs)}" for kind, gangs in sorted(kinds.items()))
        text = f"Gangs by nature, without being asked: {found}; {OPT_OUT}."
        yield Indented(Text(text, style="dim"), (1, 0, 0, 2))


def _found_topology(report: SchedulingReport) -> Iterator[RenderableType]:
    """By which labels gangs are close, where no Topology object says so."""
    found = report.found_topology
    if isinstance(found, FoundTopologyEntry) and any(one.topology == found.name for one in report.groups):
        yield Text(f"\n{found_text(found)}", style="dim")


def _untold(report: SchedulingReport) -> Iterator[Condition]:
    """Conditions that do not merely repeat why a gang waits."""
    for group in report.groups:
        yield from (one for one in group.conditions if one.message not in (group.message or ""))
    yield from (one for group in report.app_groups for one in group.conditions)
    yield from report.conditions


def _summary(report: SchedulingReport) -> Text:
    pods = report.pods
    if not pods:
        return Text("There are no pods to schedule.")
    scheduled = [pod for pod in pods if pod.phase == "Scheduled"]
    running = [pod for pod in pods if pod.phase == "Running"]
    ended = [pod for pod in pods if pod.phase == "Preempted"]
    wanted = len(pods) - len(running) - len(ended)
    text = Text()
    if wanted:
        style = "green" if len(scheduled) == wanted else "yellow"
        text.append(f"Placed {len(scheduled):,} of {plural(wanted, 'pod')}", style=f"bold {style}")
        text.append(f" on {plural(len({pod.node for pod in scheduled}), 'node')}." if scheduled else ".")
    if running:
        were = "was" if len(running) == 1 else "were"
        nodes = plural(len({pod.node for pod in running}), "node")
        text.append(" " if wanted else "")
        text.append(f"{plural(len(running), 'pod')} on {nodes} {were} running already.")
    if ended:
        text.append(f" {plural(len(ended), 'pod')} ended to make room.", style="yellow")
    if wanted and report.configuration != DEFAULT:
        text.append(f" Configuration: {report.configuration}.", style="dim")
    return text


def _groups_table(report: SchedulingReport, names: Names) -> Table:
    members = Counter((pod.namespace, pod.group) for pod in report.pods)
    table = plain_table("gang", "placed", "where", "over", right=("placed",))
    several = len({group.topology for group in report.groups if group.topology}) > 1
    for group in report.groups:
        tops = group.sub_groups if isinstance(group.sub_groups, tuple) else ()
        below = [part for top in tops for part in top.leaves()]
        table.add_row(
            names.of(group.namespace, group.name),
            _placed(group, members[group.namespace, group.name]),
            _where(group, several, bool(below)),
            _over(group) if group.scheduled else "",
        )
        for what, domains in segment_lines(group.segments or ()):
            table.add_row(Text(f"  {what}", style="dim"), "", domains)
        for part in below if group.scheduled else ():
            of = f"  of {part.topology}" if group.topology is None and part.topology else ""
            where = Text.assemble(path_text(part.domain) if part.scheduled else "–", (of, "dim"))
            table.add_row(Text(f"  {part.name}", style="dim"), f"{part.scheduled}/{part.pods}", where)
            for what, domains in segment_lines(part.segments or ()):
                table.add_row(Text(f"    {what}", style="dim"), "", domains)
    return table


def _placed(group: GroupEntry, total: int) -> Text:
    least, done = group.min_member, group.finished or 0
    short = least is not None and group.scheduled + done < least
    style = "red" if short or group.reason else "green" if group.scheduled >= total else "yellow"
    text = Text(f"{group.scheduled:,}/{total:,}", style=style)
    if done:
        text.append(f" + {done:,} finished", style="dim")
    if least is not None and least != total + done:
        text.append(f" (min {least:,})", style="dim")
    return text


def _where(group: GroupEntry, name_topology: bool, has_parts: bool) -> Text:
    if not group.scheduled and group.message and not group.reason:
        return Text("made room for others", style="yellow")
    if not group.scheduled:
        return Text("waits" if group.reason else "–", style="red" if group.reason else "dim")
    if group.topology is None:
        return Text("by subgroup" if has_parts else "no topology", style="dim")
    topology = (f"  of {group.topology}" if name_topology else "", "dim")
    if not group.domain:
        return Text.assemble(("the whole cluster", "yellow"), topology)
    return Text.assemble(path_text(group.domain), (f"  {group.level}", "dim"), topology)


def _over(group: GroupEntry) -> str:
    """The domains used below the one that holds it: at least the nodes."""
    nodes = {NODE_LEVEL: group.span[NODE_LEVEL]} if group.span else {}
    outside = group.outside if isinstance(group.outside, int) else 0
    return span_text(group.span, group.level, outside) or span_text(nodes, None, outside)


def _pods_table(pods: Sequence[PodEntry], names: Names) -> Table:
    """Gangs first, then applications, then the pods that belong to none."""
    by_owner: dict[tuple[int, str], list[PodEntry]] = {}
    for pod in pods:
        owner = names.of(pod.namespace, pod.group or pod.application or "single pods")
        kind = 0 if pod.group is not None else 1 if pod.application is not None else 2
        by_owner.setdefault((kind, owner), []).append(pod)
    applications = any(kind == 1 for kind, _ in by_owner)
    table = plain_table("gang or application" if applications else "gang", "pods", "node")
    for (_, owner), members in sorted(by_owner.items(), key=lambda entry: entry[0][0]):
        rows = _rows(members)
        lines = [[row] for row in rows] if len(rows) <= LINES_PER_GANG else joined(rows)
        for number, line in enumerate(lines[:LINES_PER_GANG]):
            pods_text, nodes_text, times = line_text(line)
            table.add_row("" if number else owner, pods_text, Text.assemble(nodes_text, (times, "dim")))
        left = [row for line in lines[LINES_PER_GANG:] for row in line]
        if left:
            more = plural(sum(len(together) for together, _ in left), "more pod")
            nodes = plural(len({node for _, node in left}), "node")
            table.add_row("", Text(f"{more} on {nodes} (-o json lists all)", style="dim"))
    return table


def _volumes_table(pods: Sequence[PodEntry], names: Names) -> Table | None:
    """What claims get that had no volume; None where there are none."""
    table = plain_table("claim", "class", "volume", "node")
    found = [(pod, one) for pod in pods for one in pod.volumes or () if not one.bound]
    for pod, one in found[:VOLUME_LINES]:
        volume = Text("is made", style="dim") if one.volume is None else Text(one.volume)
        table.add_row(names.of(pod.namespace, one.claim), one.storage_class, volume, pod.node or "")
    and_more(table, len(found) - VOLUME_LINES, "claim")
    return table if found else None


def _rows(members: Sequence[PodEntry]) -> list[Row]:
    """Names per node: a gang's in the order of ranks, so that neighbours stay neighbours; else by node."""
    ordered = sorted(members, key=_row_order)
    return [(together, node) for node, together in runs_of((pod.node or "", pod.name) for pod in ordered)]


def _row_order(pod: PodEntry) -> tuple[object, ...]:
    if pod.application is not None and pod.group is None:
        return (natural_key(pod.node or ""), pod.order or 0)
    return (pod.rank is None, pod.rank or 0, pod.order or 0)


def _waiting(report: SchedulingReport, names: Names) -> Iterator[RenderableType]:
    """Gangs with their sentence; then pods whose own reason says more."""
    shown: set[tuple[str, str | None, str | None]] = set()
    gangs: dict[tuple[str, str, str | None, str | None], list[str]] = {}
    for group in report.groups:
        if group.reason is not None:
            least = "no PodGroup" if group.min_member is None else f"min {group.min_member}"
            gangs.setdefault((group.namespace, least, group.reason, group.message), []).append(group.name)
            shown.add((group.namespace, group.name, group.reason))
    for (namespace, least, reason, message), alike_gangs in gangs.items():
        many = f"{plural(len(alike_gangs), 'gang')}, {least} each" if len(alike_gangs) > 1 else least
        yield _waits(names.of(namespace, names_text(alike_gangs)), many, reason, message)
    alike: dict[tuple[str, str | None, str | None, str | None], list[str]] = {}
    for pod in report.pods:
        if pod.phase == "Pending" and (pod.namespace, pod.group, pod.reason) not in shown:
            alike.setdefault((pod.namespace, pod.group, pod.reason, pod.message), []).append(pod.name)
    for (namespace, gang, reason, message), pods in alike.items():
        count = plural(len(pods), "pod") if len(pods) > 1 else ""
        detail = ", ".join(filter(None, (count, f"of gang {gang}" if gang else "")))
        yield _waits(names.of(namespace, names_text(pods)), detail, reason, message)


def _waits(what: str, detail: str, reason: str | None, message: str | None) -> RenderableType:
    head = Text.assemble(
        ("✗ " if reason else "· ", "red" if reason else "dim"),
        (clipped(what), "bold"),
        f"  {clipped(detail)}  " if detail else "  ",
        (reason or "", "red"),
    )
    return Group(head, Indented(Text(message or ""), (0, 0, 0, 4)))
