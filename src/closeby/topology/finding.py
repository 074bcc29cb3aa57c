"""Topologies that are found from node labels: which family of labels counts, and what its labels say.

Of the families below those count of which at least half of the nodes carry a level. Nodes are those with
accelerators, if there are any: gangs run there, and other nodes often carry less. A family whose levels are
all another's gives way to it. Of what is left the first in the order below counts: labels that describe the
network go before zones. Levels of two families are never mixed.

Network labels (Topograph label standard) say under which switch of each layer a node is:
``network.topology.kubernetes.io/<type>: <switch>``. Labels of other families are read by the same rules, but
for what a family does not have. A layer is where its switches' distances put it (greater is coarser). A
reserved type without any distance counts as its place in the reserved order: 1 for the closest type, 2 for
the next, and so on. So reserved types alone keep their order, and stated distances override it. Layers that
tie are ordered by reserved place, then key. A custom type has no place: a switch without a distance does not
count, and neither does a type of which no switch has one.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME, is_label_key
from closeby.objects.nodes import Node, is_accelerator
from closeby.objects.reasons import Condition, invalid
from closeby.objects.topologies import Found, Topology, TopologyLevel
from closeby.objects.words import natural_key
from closeby.topology.families import (
    COREWEAVE,
    EKS,
    EKS_CAPACITY_BLOCK,
    EKS_ULTRASERVER,
    GKE,
    GPU_CLIQUE,
    NETWORK_LABELS,
    OKE,
    TOPOGRAPH,
    TOPOGRAPH_NVIDIA,
    ZONES,
    LabelFamily,
    NodeGroup,
    and_more,
    group_nodes,
    label_field,
    listed,
    type_of,
)
from closeby.topology.qos import ANNOTATION_FIELD, UNKNOWN, Quality, read_quality


class NetworkLabels(Struct, frozen=True, kw_only=True):
    """What the labels say. Every part is empty when no node has a label of the family."""

    #: The main topology (named like the family), and ``<family>-accelerator`` where accelerators do not nest.
    topologies: tuple[Topology, ...] = ()
    #: Quality per switch of these topologies, by (node label, switch name); absent if undescribed.
    quality: Mapping[tuple[str, str], Quality] = {}
    #: Per topology and node label the names of the nodes whose value must not count; for Topologies.declare.
    ignored: Mapping[str, Mapping[str, frozenset[str]]] = {}
    #: What is wrong, none of it blocking: a layer or value that can't be trusted is left out alone.
    conditions: tuple[Condition, ...] = ()


def read_network_labels(nodes: Iterable[Node], family: LabelFamily = NETWORK_LABELS) -> NetworkLabels:
    """Read the network labels of all nodes; the result does not depend on the order of the nodes.

    Layers are ordered as ``network_layers`` says. A switch is known by its label and its name, so equal names
    of two types are two switches. A switch found under two switches of the next coarser layer is reported,
    and its layer does not count on its nodes: they are usable at coarser layers, and single at finer ones.
    Accelerators form a topology of their own where one of them is in two domains of the next coarser layer,
    or has several nodes and is in none.
    """
    groups, illegal, problems = group_nodes(nodes, family)
    if not any(group.switches for group in groups):
        return NetworkLabels(conditions=problems)
    quality, qos_problems = read_quality(groups) if family.custom is not None else ({}, ())
    layers = order_layers(groups, quality, family)
    why = _separate_accelerator(groups, layers.labels, family)
    main = tuple(label for label in layers.labels if why is None or label != family.accelerator)
    conflicts = _two_parents(groups, main) if family.unique else ()

    left_out: dict[str, set[str]] = {label: set(nodes) for label, nodes in illegal.items()}
    for label, switches in layers.undistanced.items():
        left_out.setdefault(label, set()).update(_nodes_under(groups, label, switches))
    for conflict in conflicts:
        left_out.setdefault(conflict.label, set()).update(
            _nodes_under(groups, conflict.label, frozenset((conflict.switch,)))
        )
    topologies = [_topology(family.name, main, f"node labels of the family {family.name}")] if main else []
    if why is not None and family.accelerator is not None:
        source = f"node label {family.accelerator}, apart because {why}"
        topologies.append(_topology(f"{family.name}-accelerator", (family.accelerator,), source))
    return NetworkLabels(
        topologies=tuple(topologies),
        quality={key: one for key, one in quality.items() if key[0] in layers.labels},
        ignored={topology.name: _ignored(topology, left_out) for topology in topologies},
        conditions=(*problems, *qos_problems, *layers.conditions, *(one.condition for one in conflicts)),
    )


class _Conflict(NamedTuple):
    label: str
    switch: str
    condition: Condition


def _topology(name: str, labels: Sequence[str], source: str) -> Topology:
    """``labels`` closest to the node first."""
    return Topology(
        name=name, levels=tuple(TopologyLevel(label) for label in reversed(labels)), source=source
    )


def _ignored(topology: Topology, left_out: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    labels = [level.node_label for level in topology.levels]
    return {label: frozenset(left_out[label]) for label in labels if left_out.get(label)}


def _nodes_under(groups: Sequence[NodeGroup], label: str, switches: frozenset[str]) -> set[str]:
    return {node for group in groups if group.switches.get(label) in switches for node in group.nodes}


def _under(groups: Sequence[NodeGroup], label: str) -> dict[str, list[NodeGroup]]:
    """Groups per switch of one layer, by name of the switch."""
    under: dict[str, list[NodeGroup]] = {}
    for group in groups:
        if label in group.switches:
            under.setdefault(group.switches[label], []).append(group)
    return dict(sorted(under.items()))


def _parents(members: Sequence[NodeGroup], label: str) -> dict[str, str]:
    """The switches of a layer that these nodes are under, each with its first node."""
    parents: dict[str, str] = {}
    for group in members:
        if label in group.switches:
            parents.setdefault(group.switches[label], group.nodes[0])
    return parents


def _separate_accelerator(
    groups: Sequence[NodeGroup], labels: Sequence[str], family: LabelFamily
) -> str | None:
    """Why accelerators can't be a layer of the main topology; None when they can, or when there are none.

    Labels count here as they stand, so that a conflict elsewhere does not move the accelerators.
    """
    if family.accelerator is None or family.accelerator not in labels[:-1]:
        return None
    coarser = labels[labels.index(family.accelerator) + 1]
    for accelerator, members in _under(groups, family.accelerator).items():
        parents = _parents(members, coarser)
        if len(parents) > 1:
            shown = " and ".join(sorted(parents)[:2])
            return f"{accelerator} is in {type_of(coarser)} {shown}"
        if not parents and sum(len(group.nodes) for group in members) > 1:
            return f"{accelerator} is in no {type_of(coarser)}"
    return None


def _two_parents(groups: Sequence[NodeGroup], labels: Sequence[str]) -> tuple[_Conflict, ...]:
    """Switches under several switches of the nearest coarser layer that any of their nodes carries."""
    conflicts: list[_Conflict] = []
    for index, label in enumerate(labels):
        for switch, members in _under(groups, label).items():
            for coarser in labels[index + 1 :]:
                parents = _parents(members, coarser)
                if len(parents) > 1:
                    conflicts.append(_Conflict(label, switch, two_parents(label, switch, parents, coarser)))
                if parents:
                    break
    return tuple(conflicts)


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
    return invalid(
        f"Node/{min((first_node[switch] for switch in missing), key=natural_key)}",
        ANNOTATION_FIELD,
        f"missing distance of {listed(missing)} of the custom network type {type_of(label)}, so "
        f"{consequence}",
        "give each of its switches a distance in the annotation, or choose the preset of label "
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
            yield invalid(
                f"Node/{next(iter(first_node[without].values()))}",
                ANNOTATION_FIELD,
                f"the network type {type_of(without)} has no distance and counts as "
                f"{usable[without].place}, which puts {type_of(coarser)} above {type_of(finer)}",
                "give a distance to the switches of both types, or of neither",
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
        yield invalid(
            f"Node/{nodes[0]}",
            ANNOTATION_FIELD,
            f"on {and_more(nodes)} {type_of(finer)} has distance {near} and {type_of(coarser)} "
            f"{far}, but {type_of(coarser)} is taken as the coarser layer",
            "give the types distinct distances, greater for the coarser one, on all nodes",
        )


def two_parents(label: str, switch: str, parents: Mapping[str, str], parent_label: str) -> Condition:
    """A switch found under several switches of the next layer; ``parents`` maps each to its first node."""
    shown = " and ".join(f"{parent} (on {node})" for parent, node in list(parents.items())[:3])
    return invalid(
        f"Node/{next(iter(parents.values()))}",
        label_field(label),
        f"{type_of(label)} {switch} is under {type_of(parent_label)} {shown}, so the nodes there "
        f"have no {type_of(label)}",
        "label each switch's nodes with one switch of the next layer, or give the switches names of "
        "their own",
    )


#: Families that are found, by precedence. ``kep4962`` is not: it shares its labels with the first one and
#: means other things by them.
FOUND: Final = (
    NETWORK_LABELS,
    TOPOGRAPH,
    TOPOGRAPH_NVIDIA,
    GKE,
    EKS,
    EKS_ULTRASERVER,
    EKS_CAPACITY_BLOCK,
    OKE,
    COREWEAVE,
    GPU_CLIQUE,
    ZONES,
)
_KEYS: Final = frozenset(key for family in FOUND for key in family.labels)
_PREFIXES: Final = tuple(
    prefix for family in FOUND for prefix in (family.tiers, family.custom) if prefix is not None
)

#: How the levels of a network are called in labels.
_LEVEL_NAME: Final = re.compile(
    r"rack|block|switch|spine|zone|(?<![a-z])(leaf|row|tor|island|superpod)(?![a-z])"
)


def says_where(key: str) -> bool:
    """Whether a label belongs to a family that is found."""
    return key in _KEYS or key.startswith(_PREFIXES)


def likely_levels(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Labels of no known family that look like levels of a topology, closest first.

    Such a label is called like one, at least half of the nodes carry it, and several nodes share its values.
    The domains of each level nest in those of the next. Labels that say the same as a zone are left out.
    """
    nodes = tuple(nodes)
    keys = {key for node in nodes for key in node.labels}
    named = sorted(key for key in keys if _called_like_a_level(key) and is_label_key(key))
    columns = {key: [node.labels.get(key) or None for node in nodes] for key in named}
    domains = {key: len({*column} - {None}) for key, column in columns.items()}
    shared = [
        key
        for key in named
        if 2 * sum(one is not None for one in columns[key]) >= len(nodes)
        and 1 < domains[key] < sum(one is not None for one in columns[key])
    ]
    known = [[node.labels.get(key) or None for node in nodes] for key in ZONES.labels]
    found: list[str] = []
    for key in sorted(shared, key=lambda key: -domains[key]):
        if any(_nests(column, columns[key]) for column in known):
            continue
        if not found or (domains[key] < domains[found[-1]] and _nests(columns[found[-1]], columns[key])):
            found.append(key)
    return tuple(found)


def _called_like_a_level(key: str) -> bool:
    return not says_where(key) and _LEVEL_NAME.search(key.rpartition("/")[2].lower()) is not None


def _nests(finer: Sequence[str | None], coarser: Sequence[str | None]) -> bool:
    """Whether each value of one label goes with one value of another; False where they never meet."""
    pairs = {pair for pair in zip(finer, coarser, strict=True) if None not in pair}
    return 0 < len(pairs) == len({one for one, _ in pairs})


class Carried(Struct):
    """How many nodes carry each label, and how many there are: of all nodes, and of those with accelerators.

    Follows nodes that come and go.
    """

    keys: Counter[str]
    nodes: int
    accelerated_keys: Counter[str]
    accelerated: int

    @staticmethod
    def none() -> "Carried":
        return Carried(Counter(), 0, Counter(), 0)

    def count(self, node: Node, change: int = 1) -> None:
        """A node comes, or goes with -1. An empty value is a missing label."""
        keys = [key for key, value in node.labels.items() if value and (key == HOSTNAME or says_where(key))]
        self.nodes += change
        for key in keys:
            self.keys[key] += change
        if any(amount and is_accelerator(name) for name, amount in node.allocatable.items()):
            self.accelerated += change
            for key in keys:
                self.accelerated_keys[key] += change

    @property
    def usual(self) -> frozenset[str]:
        """Labels that at least half of the nodes that count carry."""
        keys, nodes = (
            (self.accelerated_keys, self.accelerated) if self.accelerated else (self.keys, self.nodes)
        )
        return frozenset(key for key, count in keys.items() if count and 2 * count >= nodes)


class FoundFamily(Struct, frozen=True):
    """The family by which a cluster's topology is known, and whether its nodes carry their names."""

    family: LabelFamily | None = None
    hosts: bool = False
    #: Whether any node carries a network label: these make a topology whatever else there is.
    network: bool = False


def choose(carried: Carried) -> FoundFamily:
    """The family that counts by the rule above.

    Network labels that fewer nodes carry count where no other family does.
    """
    usual = carried.usual
    levels = {family.name: {key for key in usual if family.place(key) is not None} for family in FOUND}
    network = any(count > 0 and NETWORK_LABELS.covers(key) for key, count in carried.keys.items())
    for family in FOUND:
        own = levels[family.name]
        if own and not any(own < other for other in levels.values()):
            return FoundFamily(family, HOSTNAME in usual, network)
    return FoundFamily(NETWORK_LABELS if network else None, HOSTNAME in usual, network)


def beside(carried: Carried, preset: str) -> Iterator[tuple[str, int]]:
    """Families of the network that nodes carry beside the one that counts, and how many nodes at most.

    Labels that belong to it too are not those of another; zones are beside every network.
    """
    chosen = next(family for family in FOUND if family.name == preset)
    for family in FOUND:
        keys = [key for key in carried.keys if family.place(key) is not None and not chosen.covers(key)]
        number = max((carried.keys[key] for key in keys), default=0)
        if number and family not in (chosen, ZONES):
            yield family.name, number


def find(nodes: Iterable[Node], choice: FoundFamily, *, declared: bool) -> NetworkLabels:
    """The topologies of the labels: that of the family that counts, and that of the network labels.

    ``declared``: there is a usable Topology object, before which other labels than these do not count.
    """
    nodes = tuple(nodes)
    main = choice.family
    families = [NETWORK_LABELS] if choice.network else []
    if main is not None and main is not NETWORK_LABELS and not declared:
        families.append(main)
    read = [(family, read_network_labels(nodes, family)) for family in families]
    topologies: list[Topology] = []
    quality: dict[tuple[str, str], Quality] = {}
    ignored: dict[str, Mapping[str, frozenset[str]]] = {}
    for family, one in read:
        quality.update(one.quality)
        ignored.update(one.ignored)
        topologies += _marked(family, one.topologies, main=family is main, hosts=choice.hosts)
    return NetworkLabels(
        topologies=tuple(topologies),
        quality=quality,
        ignored=ignored,
        conditions=tuple(dict.fromkeys(condition for _, one in read for condition in one.conditions)),
    )


def found_topologies(nodes: Sequence[Node], *, declared: bool) -> NetworkLabels:
    """What the labels of all nodes say; ``declared`` as for ``find``."""
    carried = Carried.none()
    for node in nodes:
        carried.count(node)
    return find(nodes, choose(carried), declared=declared)


def _marked(
    family: LabelFamily, topologies: Iterable[Topology], *, main: bool, hosts: bool
) -> Iterable[Topology]:
    for one in topologies:
        own = one.name == family.name
        levels = (*one.levels, TopologyLevel(HOSTNAME)) if own and hosts else one.levels
        yield replace(one, levels=levels, found=Found(family.name, main=main and own))
