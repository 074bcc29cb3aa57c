"""Nodes drawn in a test, in slots as a cluster would hold them."""

from collections.abc import Iterable, Mapping, Sequence

from closeby.objects.nodes import Node
from closeby.objects.topologies import TopologyLevel
from closeby.topology.finding import NetworkLabels
from closeby.topology.labels import LabelTable
from closeby.topology.registry import Topologies
from closeby.topology.tree import Domain, Tree, build_tree


class Slots:
    """Node names and labels by slot; a freed slot is taken by the next node."""

    def __init__(self, nodes: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.labels = LabelTable()
        self.names: list[str | None] = []
        for name, labels in (nodes or {}).items():
            self.add(name, labels)

    def add(self, name: str, labels: Mapping[str, str], qos: str | None = None) -> int:
        """A node in the first free slot, with the text of its QoS annotation."""
        if None not in self.names:
            self.names.append(None)
        slot = self.names.index(None)
        self.names[slot] = name
        self.labels.set(slot, labels, qos)
        return slot

    def remove(self, name: str) -> int:
        """Take a node out."""
        slot = self.names.index(name)
        self.names[slot] = None
        self.labels.clear(slot)
        return slot

    def tree(self, *labels: str) -> Tree:
        """The tree of these labels, coarse to fine."""
        return build_tree("drawn", [TopologyLevel(label) for label in labels], self.labels, self.names)


def node(name: str, labels: Mapping[str, str], qos: str | None = None) -> Node:
    """A node with labels and, if given, the text of its QoS annotation."""
    annotations = {} if qos is None else {"network.qos.kubernetes.io/switches": qos}
    return Node(name=name, labels=labels, annotations=annotations)


def domain(tree: Tree, *path: str) -> Domain:
    """The domain with this path of label values, which must exist."""
    level = len(path) - 1
    return next(one for i in range(tree.count(level)) if tree.path(one := Domain(level, i)) == path)


def host(tree: Tree, slots: Slots, name: str) -> Domain:
    """The domain of a single node, which must exist."""
    found = tree.node_domain(slots.names.index(name))
    assert found is not None, f"no node {name}"
    return found


def members(tree: Tree, slots: Slots, at: Domain) -> list[str | None]:
    """Names of the nodes in a domain, in topology order."""
    first, end = tree.span(at)
    return [slots.names[slot] for slot in tree.slot_at[first:end].tolist()]


def declared(result: NetworkLabels, nodes: Iterable[Node]) -> tuple[Topologies, Slots]:
    """The topologies that were read, over the nodes they were read from."""
    slots = Slots({one.name: one.labels for one in nodes})
    topologies = Topologies(slots.labels, slots.names)
    for topology in result.topologies:
        topologies.declare(topology, result.ignored[topology.name])
    return topologies, slots


def drawn(result: NetworkLabels, nodes: Sequence[Node], name: str = "network-labels") -> tuple[Tree, Slots]:
    """The tree of one topology that was read."""
    topologies, slots = declared(result, nodes)
    tree = topologies.tree(name)
    assert tree is not None, f"no topology {name}"
    return tree, slots
