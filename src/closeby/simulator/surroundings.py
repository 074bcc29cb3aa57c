"""All objects of manifests but gangs and pods: as events in a fixed order, and what is wrong with them."""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct

from closeby.objects.natural import natural_key
from closeby.objects.nodes import Node
from closeby.objects.quantities import format_amount
from closeby.objects.reasons import Condition, Reason
from closeby.reading.manifests import Manifests
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    Event,
    NetworkTopologyChanged,
    PriorityClassChanged,
    TopologyChanged,
)
from closeby.topology.finding import found_topologies


class Surroundings(Struct, frozen=True, kw_only=True, eq=False):
    """What there is for gangs and pods to come to."""

    #: By natural name; an engine takes them before the events.
    nodes: tuple[Node, ...]
    #: Topologies, networks, applications and priority classes.
    events: tuple[Event, ...]
    #: What was left aside in the manifests, and what is wrong with networks and the nodes' network labels.
    conditions: tuple[Condition, ...]


def surroundings_of(manifests: Manifests) -> Surroundings:
    """The surroundings that manifests tell of, whatever the order of their objects."""
    nodes = tuple(sorted(manifests.nodes, key=lambda node: natural_key(node.name)))
    network = found_topologies(nodes, declared=any(one.usable for one in manifests.topologies))
    events: tuple[Event, ...] = (
        *(TopologyChanged(one, network.ignored.get(one.name, {})) for one in network.topologies),
        # An object of the same name is explicit, so it replaces the one read from labels.
        *(TopologyChanged(one) for one in sorted(manifests.topologies, key=lambda one: one.name)),
        *(
            NetworkTopologyChanged(one)
            for one in sorted(manifests.network_topologies, key=lambda one: one.key)
        ),
        *(AppGroupChanged(one) for one in sorted(manifests.app_groups, key=lambda one: one.key)),
        *(PriorityClassChanged(one) for one in sorted(manifests.priority_classes, key=lambda one: one.name)),
    )
    conditions = (
        *manifests.notices,
        *network.conditions,
        *(condition for one in manifests.network_topologies for condition in one.conditions),
    )
    return Surroundings(nodes=nodes, events=events, conditions=conditions)


def conditions_of(engine: Engine, noted: Iterable[Condition] = ()) -> tuple[Condition, ...]:
    """What is wrong with topologies, measurements and nodes, and what was ``noted`` before, in order.

    To be asked before anything is decided: overcommitment is that of the pods that came with their nodes.
    """
    found = (
        *noted,
        *(condition for topology in engine.topologies for condition in topology.conditions),
        *(condition for plugin in engine.profile.plugins for condition in plugin.conditions()),
        *_on_unknown_nodes(engine),
        *_overcommitted(engine),
    )
    return tuple(sorted(found, key=_condition_order))


def _condition_order(condition: Condition) -> tuple[object, ...]:
    return natural_key(condition.object), condition.field, condition.reason, condition.message


def _on_unknown_nodes(engine: Engine) -> Iterator[Condition]:
    """One condition per unknown node that pods are bound to."""
    for node, pods in engine.state.on_unknown_nodes.items():
        names = sorted((pod.key for pod in pods.values()), key=natural_key)
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        bound = f"{len(names)} pods are bound" if len(names) > 1 else "a pod is bound"
        yield Condition(
            reason=Reason.INVALID_SPEC,
            object=f"Node/{node}",
            message=f"{bound} to this node, which is not there: {shown}",
            remedy="add the node, or leave these pods out",
        )


def _overcommitted(engine: Engine) -> Iterator[Condition]:
    """One condition per node on which more is used than there is."""
    cluster = engine.cluster
    over = cluster.requested > cluster.allocatable
    for slot in np.flatnonzero(over.any(axis=0) & cluster.alive).tolist():
        lacks = [
            f"{format_amount(resource, int(cluster.requested[row, slot]))} {resource} of "
            f"{format_amount(resource, int(cluster.allocatable[row, slot]))}"
            for resource, row in cluster.row_of.items()
            if over[row, slot]
        ]
        yield Condition(
            reason=Reason.INSUFFICIENT_RESOURCES,
            object=f"Node/{cluster.node_at(slot).name}",
            field="status.allocatable",
            message=f"its pods take more than it has: {', '.join(sorted(lacks))}",
            remedy="it counts as having nothing of that left",
        )
