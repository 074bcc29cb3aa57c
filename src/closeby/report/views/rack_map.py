"""The cluster as a map: one character per node, one word per leaf, one paragraph per domain above."""

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase

from rich.text import Text

from closeby.cluster.columns import main_resources
from closeby.objects.pods import gang_key
from closeby.objects.words import path_text, plural
from closeby.simulator.runs import Run
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

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
