"""Topologies out of the network labels and QoS annotations of nodes (Topograph label standard).

``network.topology.kubernetes.io/<type>: <switch>`` says under which switch of each layer a node is. Labels
of other families are read by the same rules, but for what a family does not have (see ``presets``).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.topology.network_layers import order_layers, two_parents
from closeby.topology.node_groups import NodeGroup, group_nodes, type_of
from closeby.topology.presets import NETWORK_LABELS, LabelFamily
from closeby.topology.qos_annotation import read_quality
from closeby.topology.quality import Quality


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
