"""What was found of a network, as a tree of switches with their nodes, and as manifests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from rich.console import RenderableType
from rich.text import Text

from closeby.discovery.findings import ScanFindings
from closeby.objects.words import names_text, natural_key, path_text, plural
from closeby.report.views.layout import plain_table, worth_knowing
from closeby.topology.qos import format_bandwidth


def manifests_text(manifests: Iterable[Mapping[str, object]]) -> str:
    """Manifests as a stream of YAML documents."""
    return "---\n".join(msgspec.yaml.encode(one).decode() for one in manifests)


def discovery_views(findings: ScanFindings) -> Iterator[RenderableType]:
    """The domains with their nodes, coarsest first, and what was noticed."""
    levels = " > ".join(reversed(findings.levels)) or "no levels"
    yield Text.assemble(
        ("network", "bold cyan"), f"  {levels}  ", (f"{plural(len(findings.nodes), 'node')}", "dim")
    )
    places: dict[tuple[str | None, ...], list[str]] = {}
    for name, node in findings.nodes.items():
        full = (*node.path, *(None for _ in range(len(findings.levels) - len(node.path))))
        places.setdefault(full[::-1], []).append(name)
    table = plain_table("domain", "nodes", "uplinks", "names", right=("nodes", "uplinks"))
    for place in sorted(places, key=_order):
        names = places[place]
        table.add_row(path_text(place), f"{len(names):,}", _uplinks(findings, names), names_text(names))
    yield table
    yield from worth_knowing(findings.warnings)


def _order(place: Sequence[str | None]) -> list[tuple[bool, object]]:
    return [(name is None, natural_key(name or "")) for name in place]


def _uplinks(findings: ScanFindings, names: Sequence[str]) -> str:
    """How fast the nearest switch of these nodes is reached."""
    node = findings.nodes[names[0]]
    quality = node.qos.get(node.path[0] or "") if node.path else None
    return "" if quality is None or quality.bandwidth is None else format_bandwidth(quality.bandwidth)
