"""What `closeby demo` shows: the cluster before and after, who got what and why, and who waits and why."""

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase

from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from closeby.cluster.columns import main_resources
from closeby.objects.groups import PodGroup, Strategy
from closeby.objects.pods import gang_key
from closeby.objects.words import path_text, plural, plural_noun, span_text
from closeby.report.documents.explanations import explain
from closeby.report.documents.scheduling import GroupEntry, SchedulingReport
from closeby.report.documents.subjects import GANG, Subject
from closeby.report.views.explanation import domains_table
from closeby.report.views.layout import Indented, plain_table
from closeby.scheduling.outcomes import ItemKind
from closeby.simulator.runs import Run
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

#: Domains shown in the two explanations.
DOMAINS = 5


def demo_views(
    before: Run, after: Run, report: SchedulingReport, why_here: str, why_not: str
) -> Iterator[RenderableType]:
    """The whole demo, from top to bottom."""
    tree = after.engine.topologies.tree("fabric")
    if tree is None:
        return
    submitted = [group for group in after.groups if group.key in after.gang_outcomes]
    submitted.sort(key=lambda group: min(_orders(after, group)))
    marks = letters([group.key for group in submitted if after.places.get(group.key)])
    leaves = tree.count(tree.node_level - 1)
    yield Text.assemble(
        ("closeby demo", "bold cyan"),
        f"  {tree.size} hosts with 8 GPUs each, in {leaves} leaves below {tree.count(0)} aggregation pods.",
    )
    yield Text(
        "Each character is a host, each word a leaf; hosts of a leaf are one switch apart.", style="dim"
    )
    yield from _map("Before", before, tree, {})
    yield legend()
    singles = sum(not outcome.is_gang for outcome in after.pod_outcomes.values())
    yield Text()
    yield Text(f"Now {plural(len(submitted), 'gang')} and {plural(singles, 'single pod')} are submitted.")
    yield from _map("After", after, tree, marks)
    yield Text()
    yield _gangs(report, submitted, marks, after)
    yield from _explanation(after, why_here, "Why here?")
    yield from _explanation(after, why_not, "Why not?")


def _orders(run: Run, group: PodGroup) -> Iterator[float]:
    yield float("inf")
    for binding in run.gang_outcomes[group.key].bindings:
        yield binding.order


def _map(title: str, run: Run, tree: Tree, marks: dict[str, tuple[str, str]]) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, style="bold cyan")
    yield _Map(run, tree, marks)


class _Map(Struct, frozen=True):
    """A rack map that is no wider than the terminal."""

    run: Run
    tree: Tree
    marks: dict[str, tuple[str, str]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from rack_map(self.run, self.tree, self.marks, min(WIDTH, options.max_width))


def _gangs(
    report: SchedulingReport, submitted: list[PodGroup], marks: dict[str, tuple[str, str]], run: Run
) -> Table:
    entries = {f"{entry.namespace}/{entry.name}": entry for entry in report.groups}
    table = plain_table("", "gang", "asks for", "placed", "where", right=("placed",))
    for group in submitted:
        entry = entries[group.key]
        letter, colour = marks.get(group.key, ("✗", "red"))
        members = sum(pod.group == group.name and pod.namespace == group.namespace for pod in run.pods)
        got = Text(f"{entry.scheduled}/{members}", style="green" if entry.scheduled == members else "red")
        table.add_row(Text(letter, style=f"bold {colour}"), group.name, _asks(run, group), got, _where(entry))
    return table


def _asks(run: Run, group: PodGroup) -> str:
    members = [pod for pod in run.pods if pod.group == group.name and pod.namespace == group.namespace]
    gpus = dict(members[0].spec.requests).get("nvidia.com/gpu", 0) if members else 0
    wishes = [f"{len(members)} pods × {plural(gpus, 'GPU')}"]
    constraint = group.constraint
    if constraint is not None and constraint.required is not None:
        which = "the emptiest" if group.strategy is Strategy.SPREAD else "one"
        wishes.append(f"{which} {constraint.required}")
    if constraint is not None and constraint.preferred is not None:
        wishes.append(f"few {plural_noun(constraint.preferred)}")
    wishes += [
        f"{part.name} in one {part.constraint.required}"
        for part in group.subgroups
        if part.constraint is not None and part.constraint.required is not None
    ]
    return ", ".join(wishes)


def _where(entry: GroupEntry) -> Text:
    if not entry.scheduled:
        return Text(f"waits: {entry.reason}", style="red")
    below = span_text(entry.span, entry.level)
    return Text.assemble(path_text(entry.domain), (f"  {below}", "dim"))


def _explanation(run: Run, key: str, title: str) -> Iterator[RenderableType]:
    explanation = explain(run, Subject(GANG, key, key, ItemKind.GANG))
    yield Text()
    yield Text.assemble((title, "bold cyan"), ("  as `closeby explain` shows it", "dim"))
    for sentence in explanation.sentences:
        yield Indented(Text(sentence), (0, 0, 0, 2))
    yield Indented(domains_table(explanation.domains[:DOMAINS]), (1, 0, 0, 2))


#: How full a node is, from a little to all.
SHADES = "▂▃▅█"
FREE = "·"
UNUSABLE = "x"
#: Styles of gangs, in turn.
COLOURS = ("green", "magenta", "cyan", "yellow", "blue", "red")
INDENT = 2
#: Columns that a map fills where there are more.
WIDTH = 80


def letters(gangs: Sequence[str]) -> dict[str, tuple[str, str]]:
    """A letter and a colour for each gang, in their order."""
    return {
        gang: (ascii_uppercase[number % len(ascii_uppercase)], COLOURS[number % len(COLOURS)])
        for number, gang in enumerate(gangs)
    }


def rack_map(
    run: Run, tree: Tree, marks: Mapping[str, tuple[str, str]], width: int = WIDTH
) -> Iterator[Text]:
    """Lines of the map. ``marks`` gives letter and colour to the gangs that were placed in this run."""
    resource = main_resources(run.engine.cluster)[:1]
    row = run.engine.cluster.row_of[resource[0]] if resource else 0
    cells = _marked(run, marks)
    leaf_level = tree.node_level - 1
    top = 0 if leaf_level > 0 else ROOT_LEVEL
    for domain in (Domain(top, index) for index in range(tree.count(top))):
        yield _heading(run, tree, domain, row)
        first, end = tree.within(domain, leaf_level)
        leaves = [tree.span(Domain(leaf_level, index)) for index in range(first, end)]
        widest = max((last - start for start, last in leaves), default=0)
        per_line = max((width - INDENT) // (widest + 1), 1)
        for start in range(0, len(leaves), per_line):
            line = Text(" " * INDENT)
            for number, (left, right) in enumerate(leaves[start : start + per_line]):
                line.append(" " if number else "")
                for slot in tree.slot_at[left:right].tolist():
                    line.append(*(cells.get(slot) or _shade(run, slot, row)))
                line.append(" " * (widest - right + left))
            line.rstrip()
            yield line


def legend() -> Text:
    """What the characters mean."""
    return Text.assemble(
        (FREE, "green"), " free  ", (SHADES, "bright_black"), " in use, a little to all", style="dim"
    )


def _marked(run: Run, marks: Mapping[str, tuple[str, str]]) -> dict[int, tuple[str, str]]:
    """The letter of the gang that was placed on a slot in this run."""
    cells: dict[int, tuple[str, str]] = {}
    for uid, binding in run.bindings.items():
        pod = binding.pod
        mark = marks.get(gang_key(pod) if pod.group is not None else "")
        slot = run.engine.cluster.placement(uid)
        if mark is not None and slot is not None:
            cells[slot] = (mark[0], f"bold {mark[1]}")
    return cells


def _heading(run: Run, tree: Tree, domain: Domain, row: int) -> Text:
    first, end = tree.span(domain)
    slots = tree.slot_at[first:end]
    cluster = run.engine.cluster
    capacity, used = int(cluster.allocatable[row, slots].sum()), int(cluster.requested[row, slots].sum())
    share = f"{100 * used / capacity:.0f} % in use" if capacity else "nothing to use"
    return Text.assemble((path_text(tree.path(domain)), "bold"), f"  {plural(len(slots), 'node')}, {share}")


def _shade(run: Run, slot: int, row: int) -> tuple[str, str]:
    cluster = run.engine.cluster
    node = cluster.node_at(slot)
    if node.unschedulable or not node.ready:
        return UNUSABLE, "red"
    capacity, used = int(cluster.allocatable[row, slot]), int(cluster.requested[row, slot])
    if not used:
        return FREE, "green"
    step = -1 if used >= capacity else used * (len(SHADES) - 1) // capacity
    return SHADES[step], "bright_black"
