"""What differs between two descriptions of a network, as tables."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.text import Text

from closeby.discovery.diff import CapacityDiff, Difference, LinkChange, Seen
from closeby.discovery.labelling import Place
from closeby.objects.words import names_text, path_text, plural
from closeby.report.views.layout import plain_table, section
from closeby.topology.qos import format_bandwidth


def difference_views(difference: Difference) -> Iterator[RenderableType]:
    """A section per kind of difference, nodes with the same way in one line."""
    if not difference.any:
        yield Text("no difference")
        return
    if difference.levels is not None:
        before, after = (
            " > ".join(reversed(one)) or "no levels"
            for one in (difference.levels.before, difference.levels.after)
        )
        yield Text.assemble(("levels", "bold cyan"), f"  {before}  ->  {after}")
    ways: dict[tuple[Place, Place], list[str]] = {}
    for one in difference.moved:
        ways.setdefault((one.before, one.after), []).append(one.node)
    if ways:
        table = plain_table("from", "to", "nodes", "names", right=("nodes",))
        for (before_path, after_path), names in ways.items():
            table.add_row(_shown(before_path), _shown(after_path), f"{len(names):,}", names_text(names))
        yield section(f"Moved ({plural(len(difference.moved), 'node')})", table)
    yield from _seen("Appeared", difference.appeared)
    yield from _seen("Vanished", difference.vanished)
    if difference.renamed:
        table = plain_table("switch", "was called")
        for change in difference.renamed:
            table.add_row(change.after, change.before)
        yield section("Switches with the nodes of another one", table)
    for title, changes in (
        ("Links lost", difference.lost),
        ("Links slower", difference.slower),
        ("Links gained", difference.gained),
        ("Links faster", difference.faster),
    ):
        yield from _links(title, changes)


def _seen(title: str, nodes: Iterable[Seen]) -> Iterator[RenderableType]:
    places: dict[Place, list[str]] = {}
    for one in nodes:
        places.setdefault(one.path, []).append(one.node)
    if places:
        table = plain_table("domain", "nodes", "names", right=("nodes",))
        for path, names in places.items():
            table.add_row(_shown(path), f"{len(names):,}", names_text(names))
        yield section(f"{title} ({plural(sum(map(len, places.values())), 'node')})", table)


def _links(title: str, changes: tuple[LinkChange, ...]) -> Iterator[RenderableType]:
    if changes:
        table = plain_table("between", "and", "before", "after")
        for one in changes:
            table.add_row(one.a, one.b, _capacity(one.before), _capacity(one.after))
        yield section(f"{title} ({len(changes):,})", table)


def _capacity(capacity: CapacityDiff | None) -> str:
    if capacity is None:
        return "–"
    cables = plural(capacity.cables, "cable")
    return cables if capacity.bandwidth is None else f"{cables}, {_speed(capacity.bandwidth)}"


def _speed(bandwidth: int) -> str:
    return format_bandwidth(bandwidth) if bandwidth > 0 else "0"


def _shown(path: Place) -> str:
    """Coarsest first, as everywhere; a node of which nothing is known is nowhere."""
    return path_text(reversed(path)) if path else "–"
