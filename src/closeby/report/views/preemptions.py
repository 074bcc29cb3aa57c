"""Preemptions as tables: who made room for whom, and what each domain would have cost."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from closeby.objects.words import Names, names_text, path_text, plural, time_text
from closeby.report.documents.preemptions import CostEntry, DomainCostEntry, PreemptionEntry
from closeby.report.views.layout import plain_table

#: Lines of a table before it says how many more there are.
LINES = 12


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
    for number, line in enumerate(domains[:LINES]):
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
    if len(domains) > LINES:
        table.add_row(Text(f"{plural(len(domains) - LINES, 'more domain')} (-o json)", style="dim"))
    return table


def _named(key: str, names: Names) -> str:
    namespace, _, name = key.partition("/")
    return names.of(namespace, name)


def _lost(cost: CostEntry) -> str:
    """The work that is lost, of one accelerator on average and of all."""
    if not cost.accelerators:
        return ""
    return f"{time_text(cost.lost_accelerator_seconds / cost.accelerators)} × {cost.accelerators:,}"
