"""An explanation as sentences and one table: by domain for gangs, by node for single pods."""

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from closeby.objects.bounds import clipped
from closeby.objects.reasons import Reason
from closeby.objects.recorded import Recorded
from closeby.objects.words import counts_text, names_text, natural_key, path_text, runs_of
from closeby.report.documents.decided import Origin, PodDecidedEntry
from closeby.report.documents.explanations import Explanation, NotAsked
from closeby.report.documents.lines import DomainLine
from closeby.report.documents.preemptions import NoPreemptionEntry
from closeby.report.documents.scheduling import PodEntry
from closeby.report.views.decisions import buckets_table, clearing_table, different_lines
from closeby.report.views.layout import CELL, Indented, and_more, condition_line, plain_table
from closeby.report.views.pod_lines import joined, line_text, segments_table
from closeby.report.views.quality import edges_table
from closeby.whatif.records import Counterfactual, Kind, ShortEntry

#: Lines of a table before it says how many more there are.
LINES = 12
#: Stands above tables of a decision that is not the scheduler's.
NOW = "Decided now, by this command, with the cluster as it is:"
#: Where an entry of the table of pods is from.
FROM = {
    Origin.SCHEDULER: "scheduler",
    Origin.STATUS: "PodGroup",
    Origin.POD: "pod",
    Origin.COMMAND: "this command, now",
}


def explanation_views(explanation: Explanation, *, wanted: bool = False) -> Iterator[RenderableType]:
    """The sentences, then what they are based on.

    ``wanted``: the user said where to ask the scheduler, so it is always shown why that could not be done.
    """
    style = "red" if explanation.reason else "green"
    yield Text.assemble((explanation.subject, "bold cyan"))
    first = 1 if explanation.is_by_this_command else 0
    for number, sentence in enumerate(explanation.sentences):
        text = Text(clipped(sentence, CELL), style=style if number == first else "")
        yield Indented(text, (0, 0, 0, 2))
    different = _different(explanation)
    if different:
        yield Text("")
        yield Indented(different_lines(different), (0, 0, 0, 2))
    if explanation.subgroups:
        yield from _block(_subgroups_table(explanation))
    segments = segments_table(explanation.segments)
    if segments.row_count:
        yield from _block(segments)
    if explanation.buckets:
        yield from _block(
            buckets_table(explanation.buckets, {pod.name: pod.node for pod in explanation.pods})
        )
    if explanation.app_group is not None and explanation.app_group.edges:
        yield from _block(edges_table(explanation.app_group))
    tables = list(_tables_of_the_decision(explanation))
    if tables and explanation.rests_on_this_command:
        yield Text("")
        yield Indented(Text(NOW, style="dim"), (0, 0, 0, 2))
    yield from tables
    if _pods_differ(explanation):
        yield from _block(_pods_table(explanation))
    head = explanation.message or ""
    for condition in explanation.conditions:
        if condition.blocking and condition.message in head and condition.remedy in head:
            continue  # It is the reason.
        yield Indented(condition_line(condition), (0, 0, 0, 2))
    yield from _facts_of_the_cluster(explanation, wanted)


def _pods_differ(explanation: Explanation) -> bool:
    """Whether the pods of a gang, or of an application, say more than their gang does."""
    gang, pods = explanation.gang, explanation.pods
    if len(pods) < 2 or gang is None:
        return len(pods) > 1
    alike = len({pod.message for pod in pods}) == 1 and pods[0].reason == gang.reason
    return any(pod.node for pod in pods) or not alike


def _different(explanation: Explanation) -> list[Counterfactual]:
    """What would have to be different, without what is said above already."""
    found = explanation.counterfactuals
    ever = explanation.ever_fits if isinstance(explanation.ever_fits, bool) else None
    reason = None if explanation.gang is None else explanation.gang.reason
    return [one for one in found if not _goes_without_saying(one, found, reason, ever)]


def _goes_without_saying(
    one: Counterfactual, found: Sequence[Counterfactual], reason: str | None, ever_fits: bool | None
) -> bool:
    """Whether an answer repeats what the sentences of an explanation, or other answers, say.

    ``reason`` is that of the gang, None for what is no gang; ``ever_fits`` as its outlook says.
    """
    if one.fits:
        return False
    if one.kind is Kind.RELAXED:  # Without the level it would still be too large for the cluster.
        return reason == Reason.GANG_DOES_NOT_FIT and not one.pods
    if one.kind is not Kind.SHORT or not isinstance(one.short, ShortEntry) or one.short.could_hold is None:
        return False
    if one.short.could_hold == 0:
        return ever_fits is False or any(
            other.fits and other.kind is Kind.RELAXED and not other.pods for other in found
        )
    return one.short.level is None and reason == Reason.GANG_DOES_NOT_FIT and not one.jobs


def _tables_of_the_decision(explanation: Explanation) -> Iterator[RenderableType]:
    if explanation.domains:
        yield from _block(domains_table(explanation.domains))
    for entry in explanation.preemptions:
        if isinstance(entry.domains, tuple):
            yield from _block(clearing_table(entry.domains, entry.node))
    if isinstance(explanation.no_preemption, NoPreemptionEntry) and explanation.no_preemption.domains:
        yield from _block(clearing_table(explanation.no_preemption.domains))
    if explanation.nodes:
        yield from _block(_nodes_table(explanation))
    if explanation.rejected:
        yield from _block(_rejected_table(explanation))


def _facts_of_the_cluster(explanation: Explanation, wanted: bool) -> Iterator[RenderableType]:
    """What stands in conditions, and why the scheduler could not be asked where it would have known more."""
    recorded = explanation.recorded if isinstance(explanation.recorded, tuple) else ()
    # What the first sentence says is not said again.
    more = [one for one in recorded if one.message != explanation.message]
    if more:
        yield Text("")
    for one in more:
        yield Indented(_recorded_line(one), (0, 0, 0, 2))
    waits = any(pod.node is None for pod in explanation.pods)
    if isinstance(explanation.not_asked, NotAsked) and (waits or wanted):
        problem = explanation.not_asked
        remedy = f"; {problem.remedy}" if problem.remedy else ""
        yield Text("")
        line = Text(f"The running scheduler was not asked: {problem.message}{remedy}.", style="yellow")
        yield Indented(line, (0, 0, 0, 2))


def domains_table(domains: Sequence[DomainLine]) -> Table:
    """How each domain looked: what fits, what it got, what blocks and by how much."""
    table = plain_table("domain", "fits", "placed", "nodes", "why not", right=("fits", "placed", "nodes"))
    for line in domains[:LINES]:
        holds = line.fits >= line.wanted
        against = Text(line.lack)
        blocked = counts_text(line.blocked_by)
        if blocked and blocked not in line.lack:
            against.append(f"{'; ' if line.lack else ''}nodes that take none: ", style="dim")
            against.append(blocked, style="dim")
        table.add_row(
            Text(path_text(line.domain), style="green bold" if line.taken else ""),
            Text(f"{line.fits:,}/{line.wanted:,}", style="green" if holds else "red"),
            Text(f"{line.taken:,}" if line.taken else "", style="green bold"),
            f"{line.nodes:,}",
            against,
        )
    and_more(table, len(domains) - LINES, "domain")
    return table


def _recorded_line(one: Recorded) -> Text:
    """``recorded since …: Pod/default/solo PodScheduled=False (Unschedulable): message``."""
    since = f" since {one.since}" if one.since else ""
    reason = f" ({one.reason})" if one.reason else ""
    return Text.assemble(
        (f"recorded{since}: {one.object} {one.type}={one.status}{reason}", "dim"),
        f": {one.message}" if one.message else "",
    )


def _block(table: Table) -> Iterator[RenderableType]:
    yield Text("")
    yield Indented(table, (0, 0, 0, 2))


def _subgroups_table(explanation: Explanation) -> Table:
    table = plain_table("subgroup", "placed", "topology", "where", right=("placed",))
    for part in explanation.subgroups:
        where = path_text(part.domain) if part.placed else "–"
        table.add_row(part.name, f"{part.placed}/{part.pods}", part.topology or "–", where)
    return table


def _nodes_table(explanation: Explanation) -> Table:
    """The scores with their weights, so that lines add up to the total."""
    nodes, chosen = explanation.nodes, {pod.node for pod in explanation.pods}
    plugins = list(nodes[0].scores)
    weights = (explanation.weights.get(name, 1.0) for name in plugins)
    heads = [
        name if weight == 1 else f"{name} ×{weight:g}" for name, weight in zip(plugins, weights, strict=True)
    ]
    table = plain_table("node", *heads, "total", right=(*heads, "total"))
    for line in nodes[:LINES]:
        values = (f"{line.scores[plugin]:.1f}" for plugin in plugins)
        style = "green bold" if line.node in chosen else ""
        table.add_row(Text(line.node, style=style), *values, f"{line.total:.1f}")
    and_more(table, len(nodes) - LINES, "node")
    return table


def _rejected_table(explanation: Explanation) -> Table:
    """Nodes with the same objection share a line."""
    table = plain_table("refused", "by", "reason", "why not")
    alike: dict[tuple[str, str, str], list[str]] = {}
    for node, one in explanation.rejected.items():
        alike.setdefault((one.plugin, one.reason, one.message), []).append(node)
    ordered = sorted(alike.items(), key=lambda item: -len(item[1]))
    for (plugin, reason, message), names in ordered[:LINES]:
        table.add_row(names_text(names), plugin, reason, message)
    and_more(table, len(ordered) - LINES, "objection")
    return table


def _pods_table(explanation: Explanation) -> Table:
    """In a cluster with the source and the time of each decision; pods with the same share a line."""
    some_wait = any(pod.message for pod in explanation.pods)
    decided: dict[str, PodDecidedEntry] = {}
    if isinstance(explanation.decisions, tuple):
        decided = {one.name: one for one in explanation.decisions}
    timed = any(one.time for one in decided.values())
    columns = {"known from": bool(decided), "since": timed, "waits because": some_wait}
    table = plain_table("pods", "node", *(name for name, there in columns.items() if there))
    by_node = explanation.app_group is not None
    ordered = sorted(
        explanation.pods,
        key=lambda pod: (
            (natural_key(pod.node or ""),) if by_node else (pod.node is None, pod.rank or 0, pod.order or 0)
        ),
    )
    rows = runs_of(("\0".join(_pod_cells(pod, decided, timed)), pod.name) for pod in ordered)
    placed = [(names, key.partition("\0")[0]) for key, names in rows]
    besides = [key.partition("\0")[2] for key, _ in rows]
    lines = [[row] for row in placed] if len(rows) <= LINES else joined(placed, besides)
    at = 0
    for line in lines[:LINES]:
        pods, nodes, times = line_text(line)
        cells = [pods, nodes + times, *besides[at].split("\0")]
        table.add_row(*cells[: len(table.columns)])
        at += len(line)
    and_more(table, len(lines) - LINES, "line")
    return table


def _pod_cells(pod: PodEntry, decided: Mapping[str, PodDecidedEntry], timed: bool) -> Iterator[str]:
    """Node, in a cluster source and time, and why it waits."""
    yield pod.node or "–"
    if decided:
        one = decided.get(pod.name)
        yield "" if one is None else FROM[one.source]
        if timed:
            yield "" if one is None else one.time or ""
    yield pod.message or ""
