"""Keeps the topologies that are read from the network labels of all nodes up to date as nodes change."""

from collections.abc import Iterable
from typing import Final

from closeby.objects.natural import natural_key
from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition
from closeby.scheduling.events import TopologyChanged
from closeby.topology.network_labels import read_network_labels
from closeby.topology.node_groups import QOS_ANNOTATION
from closeby.topology.presets import NETWORK_LABELS

#: What a node says about the network: its labels of the family, and the quality of its switches.
_Mark = tuple[frozenset[tuple[str, str]], str | None]
_NO_MARK: Final[_Mark] = (frozenset(), None)


class LabelTopologies:
    """Knows which nodes say something about the network, and whether that changed."""

    def __init__(self) -> None:
        self._marks: dict[str, _Mark] = {}
        self._stale = False
        self.conditions: tuple[Condition, ...] = ()

    def see(self, name: str, node: Node | None) -> None:
        """The node as it is now; None when it is gone."""
        mark = _NO_MARK if node is None else _mark(node)
        before = self._marks.get(name, _NO_MARK)
        if mark == _NO_MARK:
            self._marks.pop(name, None)
        else:
            self._marks[name] = mark
        self._stale = self._stale or mark != before

    def news(self, nodes: Iterable[Node]) -> tuple[TopologyChanged, ...] | None:
        """The topologies that all nodes' labels make, None if nothing changed; sets ``conditions``."""
        if not self._stale:
            return None
        self._stale = False
        if not self._marks:
            self.conditions = ()
            return ()
        found = read_network_labels(sorted(nodes, key=lambda node: natural_key(node.name)))
        self.conditions = found.conditions
        return tuple(TopologyChanged(one, found.ignored.get(one.name, {})) for one in found.topologies)


def _mark(node: Node) -> _Mark:
    labels = frozenset((key, value) for key, value in node.labels.items() if NETWORK_LABELS.covers(key))
    return labels, node.annotations.get(QOS_ANNOTATION)
