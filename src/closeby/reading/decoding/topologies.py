"""Reads ``Topology`` of three groups, which all say the same thing: node labels from coarse to fine."""

from typing import Final

from closeby.objects.bounds import quoted
from closeby.objects.labels import HOSTNAME, is_label_key
from closeby.objects.reasons import invalid
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec, object_id

_MOST_LEVELS: Final = 16


class LevelWire(Wire):
    """``spec.levels[]``."""

    node_label: str = ""
    alias: str | None = None


class TopologySpecWire(Wire):
    """``spec``."""

    levels: list[LevelWire] | None = None


class OwnLevelWire(LevelWire, forbid_unknown_fields=True):
    """A level of closeby's own topology."""


class OwnSpecWire(Wire, forbid_unknown_fields=True):
    """``spec`` of closeby's own topology."""

    levels: list[OwnLevelWire] | None = None


class OwnTopologyWire(ObjectWire, forbid_unknown_fields=True):
    """closeby's own topology; unknown fields are errors."""

    api_version: str = ""
    kind: str = ""
    spec: OwnSpecWire | None = None
    status: dict[str, object] | None = None


_KNOWN: Final = {
    "": OwnTopologyWire.__struct_encode_fields__,
    "spec": OwnSpecWire.__struct_encode_fields__,
    "spec.levels": OwnLevelWire.__struct_encode_fields__,
}


def read_topology(document: Document, reading: DocumentReading) -> Topology:
    """A peer's topology; one that makes no sense comes with blocking conditions.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[TopologySpecWire])
    levels = (wire.spec.levels if wire.spec else None) or []
    return topology_of(document, reading.name(document, wire.meta), levels)


def read_own_topology(document: Document, reading: DocumentReading) -> Topology:
    """closeby's own topology.

    Raises:
        FieldError: as ``read_topology``, and for fields that do not exist.
    """
    wire = document.decode(OwnTopologyWire, _KNOWN)
    levels = (wire.spec.levels if wire.spec else None) or []
    return topology_of(document, reading.name(document, wire.meta), levels)


def topology_of(document: Document, name: str, wires: list[LevelWire] | list[OwnLevelWire]) -> Topology:
    """A topology with these levels, from coarse to fine."""
    levels = tuple(TopologyLevel(wire.node_label, wire.alias or None) for wire in wires)
    problems = [
        invalid(object_id("Topology", "", name), field, message, remedy, blocking=True)
        for field, message, remedy in _problems(levels)
    ]
    return Topology(name=name, levels=levels, source=document.api_version, conditions=tuple(problems))


def _problems(levels: tuple[TopologyLevel, ...]) -> list[tuple[str, str, str]]:
    """Field, message and remedy of everything that is wrong with the levels."""
    if not levels:
        return [("spec.levels", "no levels are given", "list node labels from coarse to fine")]
    found = []
    if len(levels) > _MOST_LEVELS:
        message = f"{len(levels)} levels are more than {_MOST_LEVELS}"
        found.append(("spec.levels", message, "drop levels that no constraint uses"))
    labels: dict[str, int] = {}
    aliases: dict[str, int] = {}
    known_labels = {level.node_label for level in levels}
    for i, level in enumerate(levels):
        field = f"spec.levels[{i}].nodeLabel"
        if not is_label_key(level.node_label):
            message = f"{quoted(level.node_label)} is not a label key"
            found.append((field, message, "write it like example.com/rack"))
        elif level.node_label in labels:
            message = f"{level.node_label} is already level {labels[level.node_label]}"
            found.append((field, message, "name each label once"))
        elif level.node_label == HOSTNAME and i != len(levels) - 1:
            found.append((field, f"{HOSTNAME} is not the last level", "move it to the end"))
        labels.setdefault(level.node_label, i)
        if level.alias is None:
            continue
        field = f"spec.levels[{i}].alias"
        if level.alias in aliases:
            message = f"{level.alias} is already the alias of level {aliases[level.alias]}"
            found.append((field, message, "give each level an alias of its own"))
        elif level.alias in known_labels:
            found.append((field, f"{level.alias} is also a nodeLabel", "choose another alias"))
        aliases.setdefault(level.alias, i)
    return found
