"""What all documents share: how conditions and places are shown, and how a record is written.

JSON and YAML have the same keys in the same order, byte for byte the same every time.
"""

import msgspec
import numpy as np
from msgspec import Struct

from closeby.objects.words import harmless_json, steers
from closeby.quality.placements import NODE_LEVEL
from closeby.scheduling.outcomes import Place
from closeby.topology.constraints import write_command
from closeby.topology.registry import Topologies


def span_of(place: Place) -> dict[str, int]:
    """Distinct domains used, by short level name."""
    return dict(zip((*tuple(place.span)[:-1], NODE_LEVEL), place.span.values(), strict=True))


def level_of(place: Place) -> str | None:
    """Short name of the level of its domain."""
    return None if place.level is None else dict(zip(place.span, span_of(place), strict=True))[place.level]


class FoundTopologyEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """The topology that counts because of the nodes' labels: no Topology object is there."""

    name: str
    #: Labels of its levels, coarse to fine.
    labels: tuple[str, ...]
    #: Nodes that carry a label of one of its levels; the single node is none of them.
    nodes: int
    #: All nodes.
    of: int
    #: Prints it as a Topology object; for files add `-f` with what holds the nodes.
    command: str


def found_topology(topologies: Topologies) -> FoundTopologyEntry | None:
    """The topology that counts without an object; None where one is declared, or no labels make one."""
    tree = topologies.only_tree()
    declared = None if tree is None else topologies.declared(tree.name)
    if tree is None or declared is None or declared.found is None:
        return None
    carrying = np.zeros(tree.size, dtype=np.bool_)
    for level in range(len(tree.levels)):
        carrying |= tree.labelled[level][tree.domain_at[level]]
    return FoundTopologyEntry(
        name=tree.name,
        labels=tuple(level.node_label for level in declared.levels),
        nodes=int(carrying.sum()),
        of=tree.size,
        command=write_command(declared.found.preset),
    )


def to_json(document: Struct) -> str:
    """Indented JSON, ending with a newline."""
    return harmless_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")


def to_yaml(document: Struct) -> str:
    """YAML in block style; keys keep the order of the record."""
    text = msgspec.yaml.encode(document).decode()
    if not steers(text):
        return text
    import yaml

    # In strings of ASCII alone all other characters are escaped.
    plain: str = yaml.safe_dump(msgspec.to_builtins(document), sort_keys=False, allow_unicode=False)
    return plain
