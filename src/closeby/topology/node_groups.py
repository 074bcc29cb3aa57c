"""Nodes with equal network labels and annotation as one group: each fact is read and reported once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from closeby.objects.labels import is_label_name
from closeby.objects.natural import natural_key
from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import plural
from closeby.topology.presets import LabelFamily

#: Annotation that holds the quality of a node's switches as JSON (Topograph label standard).
QOS_ANNOTATION = "network.qos.kubernetes.io/switches"


class NodeGroup(NamedTuple):
    """Nodes that carry the same switches and the same annotation."""

    #: Switch name per label key, with legal values only.
    switches: Mapping[str, str]
    annotation: str | None
    #: Names in natural order, at least one.
    nodes: tuple[str, ...]


class GroupedNodes(NamedTuple):
    """All groups, in the natural order of their first nodes, and what had to be left out."""

    groups: tuple[NodeGroup, ...]
    #: Nodes per label key whose value is not a legal one and must not count.
    illegal: Mapping[str, frozenset[str]]
    conditions: tuple[Condition, ...]


def group_nodes(nodes: Iterable[Node], family: LabelFamily) -> GroupedNodes:
    """Group nodes by their labels of the family and their annotation. An empty value is a missing label."""
    names: dict[tuple[tuple[tuple[str, str], ...], str | None], list[str]] = {}
    for node in nodes:
        labels = tuple(
            sorted((key, value) for key, value in node.labels.items() if value and family.covers(key))
        )
        annotation = node.annotations.get(QOS_ANNOTATION) if family.custom is not None else None
        names.setdefault((labels, annotation), []).append(node.name)
    groups: list[NodeGroup] = []
    illegal: dict[tuple[str, str], list[str]] = {}
    for (labels, annotation), members in names.items():
        legal = {key: value for key, value in labels if _is_legal(key, value)}
        groups.append(NodeGroup(legal, annotation, tuple(sorted(members, key=natural_key))))
        for key, value in labels:
            if key not in legal:
                illegal.setdefault((key, value), []).extend(members)
    left_out: dict[str, frozenset[str]] = {}
    for (key, _), members in illegal.items():
        left_out[key] = left_out.get(key, frozenset()).union(members)
    return GroupedNodes(
        tuple(sorted(groups, key=lambda group: natural_key(group.nodes[0]))),
        left_out,
        tuple(_illegal_label(key, value, illegal[key, value]) for key, value in sorted(illegal)),
    )


def and_more(nodes: Sequence[str]) -> str:
    """The first name, and how many there are besides."""
    more = len(nodes) - 1
    return nodes[0] if not more else f"{nodes[0]} and {plural(more, 'more node')}"


def listed(names: Iterable[str], most: int = 3) -> str:
    """The first few of the names in natural order, and how many there are besides."""
    ordered = sorted(names, key=natural_key)
    shown = ", ".join(ordered[:most])
    return shown if len(ordered) <= most else f"{shown} and {len(ordered) - most} more"


def label_field(label: str) -> str:
    """The field of a node that holds a label."""
    return f"metadata.labels[{label}]"


def type_of(label: str) -> str:
    """The network type that a label key names."""
    return label.rsplit("/", 1)[-1]


def _is_legal(key: str, value: str) -> bool:
    prefix, slash, name = key.partition("/")
    return is_label_name(value) and is_label_name(name if slash else prefix)


def _illegal_label(key: str, value: str, nodes: Sequence[str]) -> Condition:
    ordered = sorted(nodes, key=natural_key)
    return Condition(
        reason=Reason.INVALID_SPEC,
        object=f"Node/{ordered[0]}",
        field=label_field(key),
        message=f'"{value[:80]}" is not a legal label, so it does not count on {and_more(ordered)}',
        remedy="use at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    )
