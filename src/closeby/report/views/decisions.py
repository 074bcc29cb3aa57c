"""What `--explain` adds to the tables: candidates, scores and refusals, and what preemption costs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from closeby.objects.bounds import clipped
from closeby.objects.words import Names, counts_text, names_text, path_text, plural, time_text
from closeby.report.documents.preemptions import CostEntry, DomainCostEntry, PreemptionEntry
from closeby.report.documents.scheduling import ExplainEntry, SchedulingReport
from closeby.report.views.layout import Indented, and_more, plain_table
from closeby.whatif.records import Counterfactual, Kind

#: Nodes and candidates shown per pod or gang.
LINES = 10
#: Buckets shown, and nodes of one bucket.
BUCKETS = 12
NODES = 4


def decision_views(report: SchedulingReport, names: Names) -> Iterator[RenderableType]:
    """One entry per gang, with its first pod as the example, and per single pod."""
    if not isinstance(report.explain, tuple):
        return
    pods = {f"{pod.namespace}/{pod.name}": pod for pod in report.pods}
    seen: set[tuple[str, str]] = set()
    for entry in report.explain:
        pod = pods[entry.pod]
        if pod.group is not None:
            if (pod.namespace, pod.group) in seen:
                continue
            seen.add((pod.namespace, pod.group))
            title = Text.assemble(
                (names.of(pod.namespace, pod.group), "bold"), (f"  for example {clipped(pod.name)}", "dim")
            )
        else:
            together = f"  placed together with {pod.application}" if pod.application is not None else ""
            title = Text.assemble((names.of(pod.namespace, pod.name), "bold"), (together, "dim"))
        buckets = []
        if entry.buckets:
            nodes = {one.name: one.node for one in report.pods if one.namespace == pod.namespace}
            buckets = [Indented(buckets_table(entry.buckets, nodes), (0, 0, 1, 2))]
        different: list[RenderableType] = []
        if isinstance(entry.counterfactuals, tuple) and entry.counterfactuals:
            different = [Indented(different_lines(entry.counterfactuals), (0, 0, 1, 2))]
        yield Group(title, *different, *buckets, *_tables(entry, pod.node))


def _tables(entry: ExplainEntry, node: str | None) -> Iterator[RenderableType]:
    refused = entry.rejected_by if isinstance(entry.rejected_by, Mapping) else _tally(entry)
    bodies: list[RenderableType] = []
    if entry.candidates:
        bodies.append(_candidates_table(entry))
    if entry.scores:
        bodies.append(_scores_table(entry, node))
    if refused:
        bodies.append(_refusals(entry, refused))
    yield from (Indented(body, (0, 0, 1, 2)) for body in bodies or [Text("it was not looked at any closer")])


def _candidates_table(entry: ExplainEntry) -> Table:
    table = plain_table("domain", "fits", "nodes that take none", right=("fits",))
    for candidate in entry.candidates[:LINES]:
        holds = candidate.fits >= candidate.wanted
        table.add_row(
            path_text(candidate.domain),
            Text(f"{candidate.fits:,}/{candidate.wanted:,}", style="green" if holds else "red"),
            Text(counts_text(candidate.blocked_by), style="dim"),
        )
    and_more(table, len(entry.candidates) - LINES, "domain")
    return table


def _scores_table(entry: ExplainEntry, node: str | None) -> Table:
    plugins = [name for name in next(iter(entry.scores.values())) if name != "total"]
    columns = (*plugins, "total")
    table = plain_table("node", *columns, right=columns)
    best = sorted(entry.scores.items(), key=lambda item: -item[1]["total"])[:LINES]
    for name, scores in best:
        figures = (f"{scores[column]:.1f}" for column in columns)
        table.add_row(Text(name, style="bold green" if name == node else ""), *figures)
    and_more(table, len(entry.scores) - len(best), "node")
    return table


def _refusals(entry: ExplainEntry, refused: Mapping[str, int]) -> Text:
    """How many nodes were refused, and one of them with its sentence for each reason of each plugin."""
    examples: dict[tuple[str, str], str] = {}
    for node, one in entry.rejected.items():
        examples.setdefault((one.reason, one.plugin), f"  {node}: {one.message} ({one.plugin})")
    lines = [f"nodes refused: {counts_text(refused)}", *list(examples.values())[:LINES]]
    return Text("\n".join(lines), style="dim")


def _tally(entry: ExplainEntry) -> dict[str, int]:
    return dict(Counter(one.reason for one in entry.rejected.values()).most_common())


def buckets_table(buckets: Sequence[Sequence[str]], nodes: Mapping[str, str | None]) -> Table:
    """One line per bucket, in the order in which they were made; ``nodes`` has the node of each pod."""
    table = plain_table("bucket", "pods that belong on one node", "nodes", right=("bucket",))
    for number, bucket in enumerate(buckets[:BUCKETS], start=1):
        table.add_row(f"{number}", names_text(bucket), _nodes_of(bucket, nodes))
    and_more(table, len(buckets) - BUCKETS, "bucket")
    return table


def _nodes_of(bucket: Sequence[str], nodes: Mapping[str, str | None]) -> Text:
    """Nodes with most of the bucket first; green where it is together."""
    counts = Counter(nodes.get(name) or "–" for name in bucket)
    shown = [f"{node} ×{count}" if len(counts) > 1 else node for node, count in counts.most_common(NODES)]
    more = f" and {plural(len(counts) - NODES, 'more node')}" if len(counts) > NODES else ""
    return Text(", ".join(shown) + more, style="green" if len(counts) == 1 and "–" not in counts else "")


def different_lines(counterfactuals: Sequence[Counterfactual]) -> Table:
    """One line for each thing that might be different, marked by whether that would help."""
    table = Table.grid(padding=(0, 1))
    for one in counterfactuals:
        mark = Text("✓", style="green") if one.fits else Text("✗", style="red")
        if one.kind in (Kind.SHORT, Kind.BEHIND):
            mark = Text("·", style="dim")
        elif not one.fits and one.pods:
            mark = Text("~", style="yellow")
        table.add_row(mark, Text(one.sentence))
    return table


#: Lines of a table before it says how many more there are.
DOMAINS = 12


def preemptions_table(entries: Sequence[PreemptionEntry], names: Names) -> Table:
    """One line for each preemptor."""
    table = plain_table("preemptor", "cleared", "victims", "lost", "broken", right=("lost", "broken"))
    for entry in entries:
        namespace, _, name = entry.preemptor.partition("/")
        victims = names_text([_named(one, names) for one in entry.victims])
        table.add_row(
            names.of(namespace, name),
            entry.node or path_text(entry.domain),
            victims or Text("pods that end anyway", style="dim"),
            _lost(entry.cost),
            plural(entry.cost.gangs_broken, "gang") if entry.cost.gangs_broken else "",
        )
    return table


def clearing_table(domains: Sequence[DomainCostEntry], node: str | None = None) -> Table:
    """What clearing each domain would cost, the cheapest first, or why that does not help, and what stays."""
    right = ("priority", "lost", "broken", "outside", "to end", "pods", "kept")
    titles = "priority", "lost", "broken", "outside", "to end", "pods", "kept", "why not"
    table = plain_table("to clear", *titles, right=right)
    for number, line in enumerate(domains[:DOMAINS]):
        cost = line.cost
        taken = cost is not None and (number == 0 if node is None else line.domain == (node,))
        place = Text(path_text(line.domain), style="green bold" if taken else "")
        kept = f"{line.kept_pods:,}" if isinstance(line.kept_pods, int) else ""
        if cost is None:
            table.add_row(place, "", "", "", "", "", "", kept, Text(line.why_not or "", style="dim"))
            continue
        forbidden = plural(cost.pdb_violations, "disruption") + " too many" if cost.pdb_violations else ""
        priority = "" if cost.highest_priority is None else f"{cost.highest_priority}"
        broken, outside = f"{cost.gangs_broken or ''}", f"{cost.outside or ''}"
        ends = time_text(cost.seconds_to_end)
        table.add_row(place, priority, _lost(cost), broken, outside, ends, f"{cost.pods}", kept, forbidden)
    and_more(table, len(domains) - DOMAINS, "domain")
    return table


def _named(key: str, names: Names) -> str:
    namespace, _, name = key.partition("/")
    return names.of(namespace, name)


def _lost(cost: CostEntry) -> str:
    """The work that is lost, of one accelerator on average and of all."""
    if not cost.accelerators:
        return ""
    return f"{time_text(cost.lost_accelerator_seconds / cost.accelerators)} × {cost.accelerators:,}"
