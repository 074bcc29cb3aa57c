"""Volcano's HyperNodes on a cluster: what they say of each node, and the topology that they make."""

from collections.abc import Iterable

from closeby.objects.nodes import Node
from closeby.objects.topologies import HyperNode, Topology
from closeby.reading.dialects.hypernodes import HyperTree


class HyperNodeLabels:
    """Follows the HyperNodes. Nodes get the labels of the tiers above them."""

    def __init__(self) -> None:
        self._known: dict[str, HyperNode] = {}
        self._tree = HyperTree(())
        self._changed = False

    def put(self, hypernode: HyperNode) -> None:
        """A HyperNode as it is now."""
        if self._known.get(hypernode.name) != hypernode:
            self._known[hypernode.name] = hypernode
            self._changed = True

    def drop(self, name: str) -> None:
        """It is gone, or can't be read; unknown names are fine."""
        self._changed |= self._known.pop(name, None) is not None

    def labelled(self, node: Node) -> Node:
        """The node with the labels of before the last batch's changes."""
        return self._tree.labelled(node)

    def news(self, nodes: Iterable[Node]) -> tuple[Topology | None, list[Node]] | None:
        """The topology, and of the ``nodes`` (as the server has them) those whose labels are different now.

        None if no HyperNode changed.
        """
        if not self._changed:
            return None
        self._changed = False
        before, self._tree = self._tree, HyperTree(self._known.values())
        relabelled = [node for node in nodes if before.labels_of(node) != self._tree.labels_of(node)]
        return self._tree.topology, [self._tree.labelled(node) for node in relabelled]
