"""Which network types become layers, and in which order, judged by reserved places and stated distances.

A layer is where its switches' distances put it (greater is coarser). A reserved type without any distance
counts as its place in the reserved order: 1 for the closest type, 2 for the next, and so on. So reserved
types alone keep their order, and stated distances override it. Layers that tie are ordered by reserved place,
then key. A custom type has no place: a switch without a distance does not count, and neither does a type of
which no switch has one.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from closeby.objects.natural import natural_key
from closeby.objects.reasons import Condition, Reason
from closeby.topology.node_groups import NodeGroup, and_more, label_field, listed, type_of
from closeby.topology.presets import LabelFamily
from closeby.topology.qos_annotation import ANNOTATION_FIELD
from closeby.topology.quality import UNKNOWN, Quality


class Layers(NamedTuple):
    """The usable layers, closest to the node first."""

    labels: tuple[str, ...]
    #: Switches of a usable custom layer that have no distance and must not count.
    undistanced: Mapping[str, frozenset[str]]
    conditions: tuple[Condition, ...]


class _Distances(NamedTuple):
    """What is known of one type's distances."""

    #: Distance per switch; None when unknown.
    stated: Mapping[str, int | float | None]
    #: Place in the reserved order; None for a custom type.
    place: int | None

    @property
    def known(self) -> list[int | float]:
        return [distance for distance in self.stated.values() if distance is not None]

    def of(self, switch: str) -> int | float | None:
        """Distance by which a switch's layer is ordered."""
        return self.stated[switch] if self.known else self.place


def order_layers(
    groups: Sequence[NodeGroup], quality: Mapping[tuple[str, str], Quality], family: LabelFamily
) -> Layers:
    """Order the network types in use by the rule above, and report what stands against it."""
    first_node: dict[str, dict[str, str]] = {}
    for group in groups:
        for label, switch in group.switches.items():
            first_node.setdefault(label, {}).setdefault(switch, group.nodes[0])
    types = {
        label: _Distances(
            {switch: quality.get((label, switch), UNKNOWN).distance for switch in sorted(first_node[label])},
            family.place(label),
        )
        for label in sorted(first_node)
    }
    conditions = [
        _missing(label, distances, first_node[label])
        for label, distances in types.items()
        if distances.place is None and len(distances.known) < len(distances.stated)
    ]
    usable = {label: one for label, one in types.items() if one.known or one.place is not None}
    order = tuple(sorted(usable, key=lambda label: _sort_key(label, usable[label])))
    undistanced = {
        label: frozenset(switch for switch, distance in one.stated.items() if distance is None)
        for label, one in usable.items()
        if one.place is None and len(one.known) < len(one.stated)
    }
    conditions += [*_against_places(order, usable, first_node), *_against_distances(order, usable, groups)]
    return Layers(order, undistanced, tuple(conditions))


def _sort_key(label: str, distances: _Distances) -> tuple[float, float, float, str]:
    # A usable type without a stated distance has a place.
    span = distances.known or [distances.place or 0]
    return min(span), max(span), float("inf") if distances.place is None else distances.place, label


def _missing(label: str, distances: _Distances, first_node: Mapping[str, str]) -> Condition:
    missing = [switch for switch, distance in distances.stated.items() if distance is None]
    consequence = "the nodes there have no such layer" if distances.known else "the type is not used"
    return Condition(
        reason=Reason.INVALID_SPEC,
        object=f"Node/{min((first_node[switch] for switch in missing), key=natural_key)}",
        field=ANNOTATION_FIELD,
        message=f"missing distance of {listed(missing)} of the custom network type {type_of(label)}, so "
        f"{consequence}",
        remedy="give each of its switches a distance in the annotation, or choose the preset of label "
        "families that knows this type",
    )


def _against_places(
    order: Sequence[str], usable: Mapping[str, _Distances], first_node: Mapping[str, Mapping[str, str]]
) -> Iterable[Condition]:
    """Reserved types whose order was turned round because only one of them has distances."""
    for index, finer in enumerate(order):
        for coarser in order[index + 1 :]:
            one, other = usable[finer], usable[coarser]
            if one.place is None or other.place is None or one.place < other.place:
                continue
            if bool(one.known) == bool(other.known):
                continue
            without = finer if other.known else coarser
            yield Condition(
                reason=Reason.INVALID_SPEC,
                object=f"Node/{next(iter(first_node[without].values()))}",
                field=ANNOTATION_FIELD,
                message=f"the network type {type_of(without)} has no distance and counts as "
                f"{usable[without].place}, which puts {type_of(coarser)} above {type_of(finer)}",
                remedy="give a distance to the switches of both types, or of neither",
            )


def _against_distances(
    order: Sequence[str], usable: Mapping[str, _Distances], groups: Sequence[NodeGroup]
) -> Iterable[Condition]:
    """Neighbouring layers of one node whose distances are equal or the wrong way round."""
    found: dict[tuple[str, str], tuple[int | float, int | float, list[NodeGroup]]] = {}
    for group in groups:
        carried = [label for label in order if label in group.switches]
        measured = [(label, usable[label].of(group.switches[label])) for label in carried]
        ordered = [(label, distance) for label, distance in measured if distance is not None]
        for (finer, near), (coarser, far) in pairwise(ordered):
            if near >= far:
                found.setdefault((finer, coarser), (near, far, []))[2].append(group)
    for finer, coarser in sorted(found):
        near, far, holders = found[finer, coarser]
        nodes = [node for group in holders for node in group.nodes]
        yield Condition(
            reason=Reason.INVALID_SPEC,
            object=f"Node/{nodes[0]}",
            field=ANNOTATION_FIELD,
            message=f"on {and_more(nodes)} {type_of(finer)} has distance {near} and {type_of(coarser)} "
            f"{far}, but {type_of(coarser)} is taken as the coarser layer",
            remedy="give the types distinct distances, greater for the coarser one, on all nodes",
        )


def two_parents(label: str, switch: str, parents: Mapping[str, str], parent_label: str) -> Condition:
    """A switch found under several switches of the next layer; ``parents`` maps each to its first node."""
    shown = " and ".join(f"{parent} (on {node})" for parent, node in list(parents.items())[:3])
    return Condition(
        reason=Reason.INVALID_SPEC,
        object=f"Node/{next(iter(parents.values()))}",
        field=label_field(label),
        message=f"{type_of(label)} {switch} is under {type_of(parent_label)} {shown}, so the nodes there "
        f"have no {type_of(label)}",
        remedy="label each switch's nodes with one switch of the next layer, or give the switches names of "
        "their own",
    )
