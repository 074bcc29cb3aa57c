"""All objects of manifests but gangs and pods, as events in an order that no file can change."""

from msgspec import Struct

from closeby.objects.natural import natural_key
from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition
from closeby.reading.manifests import Manifests
from closeby.scheduling.events import (
    AppGroupChanged,
    Event,
    NetworkTopologyChanged,
    PriorityClassChanged,
    TopologyChanged,
)
from closeby.topology.network_labels import read_network_labels


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
    network = read_network_labels(nodes)
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
