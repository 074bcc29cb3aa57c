"""A scheduling report as a person likes to read it: gangs, pods, what waits and why, what is odd."""

from collections.abc import Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from closeby.report.documents import ConditionEntry, ExplainEntry, GroupEntry, PodEntry, SchedulingReport
from closeby.report.words import counts_text, names_text, path_text, plural, runs_of, span_text

#: Lines that one gang or owner may take in the table of pods.
LINES_PER_GANG = 8
#: Nodes and candidates shown per pod or gang with ``--explain``.
EXPLAINED = 10


def scheduling_views(report: SchedulingReport) -> Iterator[RenderableType]:
    """All sections that have something to say."""
    yield _summary(report)
    if report.groups:
        yield _section("Gangs", _groups_table(report))
    placed = [pod for pod in report.pods if pod.phase == "Scheduled"]
    if placed:
        yield _section("Pods placed", _pods_table(placed))
    waiting = list(_waiting(report))
    if waiting:
        yield _section("Waiting", Group(*waiting))
    explained = list(_explained(report))
    if explained:
        yield _section("How it was decided", Group(*explained))
    notes = [*(entry for group in report.groups for entry in group.conditions), *report.conditions]
    lines = [condition_line(entry) for entry in dict.fromkeys(notes)]
    if lines:
        yield _section("Worth knowing", Group(*lines))


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table without lines, for terminals and pipes alike; nothing is ever cut off."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table


def condition_line(entry: ConditionEntry) -> Text:
    """``! Node/n-1 status.allocatable: what is wrong; what to do (InvalidSpec)``."""
    field = f" {entry.field}" if entry.field else ""
    remedy = f"; {entry.remedy}" if entry.remedy else ""
    return Text.assemble(
        ("! ", "red" if entry.blocking else "yellow"),
        (entry.object, "bold"),
        f"{field}: {entry.message}{remedy} ",
        (f"({entry.reason})", "dim"),
    )


def _section(title: str, body: RenderableType) -> RenderableType:
    return Group(Text(""), Text(title, style="bold cyan"), Padding(body, (0, 0, 0, 2)))


def _summary(report: SchedulingReport) -> Text:
    by_phase = {
        phase: [pod for pod in report.pods if pod.phase == phase] for phase in ("Scheduled", "Running")
    }
    scheduled, running = by_phase["Scheduled"], by_phase["Running"]
    wanted = len(report.pods) - len(running)
    text = Text()
    if not report.pods:
        text.append("There are no pods to schedule.")
        return text
    if wanted:
        nodes = {pod.node for pod in scheduled}
        style = "green" if len(scheduled) == wanted else "yellow"
        text.append(f"Placed {len(scheduled):,} of {plural(wanted, 'pod')}", style=f"bold {style}")
        text.append(f" on {plural(len(nodes), 'node')}." if scheduled else ".")
    if running:
        nodes = {pod.node for pod in running}
        were = "was" if len(running) == 1 else "were"
        text.append(" " if wanted else "")
        text.append(f"{plural(len(running), 'pod')} on {plural(len(nodes), 'node')} {were} running already.")
    return text


def _groups_table(report: SchedulingReport) -> Table:
    members: dict[tuple[str, str], int] = {}
    for pod in report.pods:
        if pod.group is not None:
            key = (pod.namespace, pod.group)
            members[key] = members.get(key, 0) + 1
    table = plain_table("gang", "placed", "where", "over", right=("placed",))
    several = len({group.topology for group in report.groups if group.topology}) > 1
    for group in report.groups:
        total = members.get((group.namespace, group.name), 0)
        where = _where(group, several)
        table.add_row(f"{group.namespace}/{group.name}", _placed(group, total), where, _over(group))
    return table


def _placed(group: GroupEntry, total: int) -> Text:
    least = group.min_member
    short = least is not None and group.scheduled < least
    style = "red" if short or group.reason else "green" if group.scheduled >= total else "yellow"
    text = Text(f"{group.scheduled}/{total}", style=style)
    if least is not None and least != total:
        text.append(f" (min {least})", style="dim")
    return text


def _where(group: GroupEntry, name_topology: bool) -> Text:
    if not group.scheduled:
        return Text("waits" if group.reason else "–", style="red" if group.reason else "dim")
    if group.topology is None:
        return Text("no topology", style="dim")
    topology = (f"  of {group.topology}" if name_topology else "", "dim")
    if not group.domain:
        return Text.assemble(("the whole cluster", "yellow"), topology)
    return Text.assemble(path_text(group.domain), (f"  {group.level}", "dim"), topology)


def _over(group: GroupEntry) -> str:
    return span_text(group.span, len(group.domain)) or span_text(group.span, len(group.span) - 1)


def _pods_table(pods: list[PodEntry]) -> Table:
    table = plain_table("gang", "pods", "node")
    by_owner: dict[str, list[PodEntry]] = {}
    for pod in pods:
        by_owner.setdefault(f"{pod.namespace}/{pod.group}" if pod.group else f"{pod.namespace}/", []).append(
            pod
        )
    for owner, members in sorted(by_owner.items(), key=lambda entry: entry[0].endswith("/")):
        rows = _rows(members)
        for number, (names, node) in enumerate(rows[:LINES_PER_GANG]):
            gang = "" if number else owner.rstrip("/") + (" (single pods)" if owner.endswith("/") else "")
            times = f" ×{len(names)}" if len(names) > 1 else ""
            table.add_row(gang, names_text(names), Text.assemble(node, (times, "dim")))
        left = rows[LINES_PER_GANG:]
        if left:
            more = plural(sum(len(names) for names, _ in left), "more pod")
            table.add_row(
                "", Text(f"{more} on {plural(len(left), 'node')} (-o json lists all)", style="dim"), ""
            )
    return table


def _rows(members: list[PodEntry]) -> list[tuple[list[str], str]]:
    """Names per node, in the order of ranks: neighbours stay neighbours."""
    ordered = sorted(members, key=lambda pod: (pod.rank is None, pod.rank or 0, pod.order or 0))
    return [(names, node) for node, names in runs_of((pod.node or "", pod.name) for pod in ordered)]


def _waiting(report: SchedulingReport) -> Iterator[RenderableType]:
    """Gangs with their sentence; then pods whose own reason says more."""
    told: set[tuple[str, str | None, str | None]] = set()
    for group in report.groups:
        if group.reason is not None:
            least = f"min {group.min_member}" if group.min_member is not None else "no PodGroup"
            yield _waits(f"{group.namespace}/{group.name}", least, group.reason, group.message)
            told.add((group.namespace, group.name, group.message))
    alike: dict[tuple[str, str | None, str | None, str | None], list[str]] = {}
    for pod in report.pods:
        if pod.phase == "Pending" and (pod.namespace, pod.group, pod.message) not in told:
            alike.setdefault((pod.namespace, pod.group, pod.reason, pod.message), []).append(pod.name)
    for (namespace, group_name, reason, message), names in alike.items():
        of = f"of gang {group_name}" if group_name else ""
        count = plural(len(names), "pod") if len(names) > 1 else ""
        yield _waits(
            f"{namespace}/{names_text(names)}", ", ".join(filter(None, (count, of))), reason, message
        )


def _waits(what: str, detail: str, reason: str | None, message: str | None) -> RenderableType:
    head = Text.assemble(
        ("✗ " if reason else "· ", "red" if reason else "dim"),
        (what, "bold"),
        f"  {detail}  " if detail else "  ",
        (reason or "", "red"),
    )
    return Group(head, Padding(Text(message or ""), (0, 0, 0, 4)))


def _explained(report: SchedulingReport) -> Iterator[RenderableType]:
    """One entry per gang and per single pod; the first member of a gang stands for all."""
    if not isinstance(report.explain, tuple):
        return
    group_of = {f"{pod.namespace}/{pod.name}": pod.group for pod in report.pods}
    chosen = {f"{pod.namespace}/{pod.name}": pod.node for pod in report.pods}
    seen: set[str] = set()
    for entry in report.explain:
        namespace = entry.pod.split("/", 1)[0]
        gang = group_of.get(entry.pod)
        title = f"{namespace}/{gang}" if gang else entry.pod
        if gang and title in seen:
            continue
        seen.add(title)
        yield explained_view(entry, title, chosen.get(entry.pod))


def explained_view(entry: ExplainEntry, title: str, node: str | None) -> RenderableType:
    """Candidates, scores and refusals of one gang (told by its first pod) or pod."""
    first = f" (by {entry.pod})" if title != entry.pod else ""
    parts: list[RenderableType] = [Text.assemble((title, "bold"), (first, "dim"))]
    if entry.candidates:
        parts.append(Padding(_candidates_table(entry), (0, 0, 1, 2)))
    if entry.scores:
        parts.append(Padding(_scores_table(entry, node), (0, 0, 1, 2)))
    refused = entry.rejected_by if isinstance(entry.rejected_by, dict) else _tally(entry)
    if refused:
        parts.append(Padding(Text(f"refused nodes: {counts_text(refused)}", style="dim"), (0, 0, 1, 2)))
    return Group(*parts)


def _candidates_table(entry: ExplainEntry) -> Table:
    table = plain_table("domain", "fits", "nodes that take none", right=("fits",))
    for candidate in entry.candidates[:EXPLAINED]:
        holds = candidate.fits >= candidate.wanted
        table.add_row(
            path_text(candidate.domain),
            Text(f"{candidate.fits}/{candidate.wanted}", style="green" if holds else "red"),
            Text(counts_text(candidate.blocked_by), style="dim"),
        )
    return table


def _scores_table(entry: ExplainEntry, node: str | None) -> Table:
    plugins = [name for name in next(iter(entry.scores.values())) if name != "total"]
    table = plain_table("node", *plugins, "total", right=(*plugins, "total"))
    best = sorted(entry.scores.items(), key=lambda item: -item[1]["total"])[:EXPLAINED]
    for name, scores in best:
        style = "green" if name == node else ""
        table.add_row(Text(name, style=style), *(f"{scores[plugin]:.1f}" for plugin in (*plugins, "total")))
    left = len(entry.scores) - len(best)
    if left:
        table.add_row(Text(f"{left} more", style="dim"))
    return table


def _tally(entry: ExplainEntry) -> dict[str, int]:
    tally: dict[str, int] = {}
    for rejection in entry.rejected.values():
        tally[rejection.reason] = tally.get(rejection.reason, 0) + 1
    return dict(sorted(tally.items(), key=lambda item: (-item[1], item[0])))
