"""Keeps the topologies that are known from the nodes' labels, without an object, up to date."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition
from closeby.objects.words import natural_key
from closeby.scheduling.events import TopologyChanged
from closeby.topology.families import QOS_ANNOTATION
from closeby.topology.finding import Carried, FoundFamily, choose, find, says_where

#: What a node says about where it is: its labels of all families, and the quality of its switches.
_Mark = tuple[frozenset[tuple[str, str]], str | None]
_NO_MARK: Final[_Mark] = (frozenset(), None)


class _Basis(Struct, frozen=True):
    """What the topologies depend on, apart from what each node says."""

    choice: FoundFamily
    #: There is a usable Topology object.
    declared: bool


class LabelTopologies:
    """Knows what the nodes say about where they are, and whether that changed."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        #: How many nodes say the same.
        self._marks: Counter[_Mark] = Counter()
        self._carried = Carried.none()
        self._basis: _Basis | None = None
        #: A mark is new or gone, or came to or left a node while some nodes' values do not count.
        self._stale = False
        self._touched = False
        #: Some nodes' values do not count, so that each node's name matters.
        self._by_name = False
        self.conditions: tuple[Condition, ...] = ()

    def see(self, name: str, node: Node | None) -> None:
        """The node as it is now; None when it is gone."""
        before = self._nodes.get(name)
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        for one, change in ((before, -1), (node, 1)):
            if one is not None:
                self._carried.count(one, change)
        old, new = _mark(before), _mark(node)
        self._touched = True
        if old != new:
            self._note(old, -1)
            self._note(new, 1)

    def news(self, nodes: Iterable[Node], *, declared: bool) -> tuple[TopologyChanged, ...] | None:
        """The topologies that all nodes' labels make, None if nothing changed; sets ``conditions``.

        ``declared``: there is a usable Topology object, before which only network labels count.
        """
        if not self._touched and self._basis is not None and self._basis.declared == declared:
            return None
        self._touched = False
        basis = _Basis(choose(self._carried), declared)
        if not self._stale and basis == self._basis:
            return None
        self._stale, self._basis = False, basis
        found = find(sorted(nodes, key=lambda node: natural_key(node.name)), basis.choice, declared=declared)
        self.conditions = found.conditions
        self._by_name = bool(found.conditions) or any(found.ignored.values())
        return tuple(TopologyChanged(one, found.ignored.get(one.name, {})) for one in found.topologies)

    def _note(self, mark: _Mark, change: int) -> None:
        if mark == _NO_MARK:
            return
        self._marks[mark] += change
        if not self._marks[mark]:
            del self._marks[mark]
        # What three nodes say changes no topology; two may be those of an accelerator.
        self._stale = self._stale or self._by_name or self._marks[mark] <= 2


def _mark(node: Node | None) -> _Mark:
    if node is None:
        return _NO_MARK
    labels = frozenset((key, value) for key, value in node.labels.items() if says_where(key))
    return labels, node.annotations.get(QOS_ANNOTATION)
