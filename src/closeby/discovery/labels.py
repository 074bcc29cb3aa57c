"""Findings out of the labels that nodes already carry, of one family that the user names, never by guess."""

from collections.abc import Sequence
from typing import NamedTuple

from closeby.discovery.assembling import warning, with_accelerator
from closeby.discovery.findings import FoundNode, LinkQuality, ScanFindings
from closeby.discovery.labelling import label_value, level_names
from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition
from closeby.objects.words import guess, natural_key
from closeby.topology.families import NETWORK_LABELS, PRESETS, LabelFamily
from closeby.topology.finding import NetworkLabels, read_network_labels


class Labelled(NamedTuple):
    """Findings, and the label keys of their levels."""

    findings: ScanFindings
    keys: tuple[str, ...]


def family_of(labels: Sequence[str]) -> LabelFamily:
    """A family of any labels, closest first, whose values need not be unique."""
    return LabelFamily(name="labels", labels=tuple(labels), unique=False)


def read_labels(
    nodes: Sequence[Node], family: LabelFamily = NETWORK_LABELS, keys: Sequence[str] | None = None
) -> Labelled:
    """What the labels of one family say about all nodes, in natural order of their names.

    Levels are ordered, and values that can't be trusted are left out, as the scheduler does it (see
    ``network_labels``). Labels keep their keys unless ``keys`` names others, closest first.
    """
    read = read_network_labels(nodes, family)
    own = [level.node_label for topology in read.topologies for level in reversed(topology.levels)]
    if family.accelerator in own:
        own.remove(family.accelerator)
        own.insert(0, family.accelerator)
    ignored = {
        label: names
        for topology in read.topologies
        for label, names in read.ignored.get(topology.name, {}).items()
    }
    used = tuple(own if keys is None else with_accelerator(keys, family.accelerator in own))[: len(own)]
    own = own[: len(used)]
    found = {}
    for node in sorted(nodes, key=lambda one: natural_key(one.name)):
        path = tuple(
            None if node.name in ignored.get(label, ()) else node.labels.get(label) or None for label in own
        )
        found[node.name] = _node(path, own, used, read)
    findings = ScanFindings(
        levels=level_names(used),
        nodes=found,
        warnings=(*read.conditions, *_unlabelled(nodes, family, own)),
    )
    return Labelled(findings, used)


def _node(
    path: tuple[str | None, ...], own: Sequence[str], keys: Sequence[str], read: NetworkLabels
) -> FoundNode:
    quality = {}
    for label, switch in zip(own, path, strict=True):
        one = None if switch is None else read.quality.get((label, switch))
        if (
            switch is not None
            and one is not None
            and (one.latency, one.bandwidth, one.uplinks) != (None, None, None)
        ):
            quality[switch] = LinkQuality(latency=one.latency, bandwidth=one.bandwidth, uplinks=one.uplinks)
    while path and path[-1] is None:
        path = path[:-1]
    labels = {key: label_value(name) for key, name in zip(keys, path, strict=False) if name is not None}
    return FoundNode(path=path, labels=labels, qos=quality)


def _unlabelled(nodes: Sequence[Node], family: LabelFamily, own: Sequence[str]) -> Sequence[Condition]:
    """Says so when no node has a label of the family, and which families there are instead."""
    if not nodes:
        return ()
    named = family.name not in PRESETS
    lost = [label for label in family.labels if named and not any(label in node.labels for node in nodes)]
    if own or lost:
        carried = {label for node in nodes for label in node.labels}
        return tuple(
            warning(
                "Network",
                f"no node carries the label {label}, so it is no level",
                f"{guess(label, carried)}label the nodes, or leave it out",
            )
            for label in lost
        )
    others = [
        other.name
        for other in PRESETS.values()
        if other is not family and any(other.place(key) is not None for node in nodes for key in node.labels)
    ]
    remedy = (
        f"there are labels of {', '.join(others)}: name one with --preset, or your own labels with --key"
        if others
        else "label the nodes first, or name their own labels with --key LABEL,LABEL, closest first"
    )
    which = f"value of {', '.join(family.labels)}" if named else f"label of {family.name}"
    return (warning("Network", f"no node has a usable {which}", remedy),)
