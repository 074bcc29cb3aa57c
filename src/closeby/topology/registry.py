"""All topologies of a cluster side by side; each one's tree is rebuilt only when nodes or labels changed."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Ints
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.topology.labels import LabelTable
from closeby.topology.tree import Domain, Tree, build_tree, short_names
from closeby.topology.uplinks import Uplinks, read_uplinks, weigh

#: Source of topologies that come from a plugin's configured label keys rather than from an object.
CONFIGURED_KEYS = "configured label keys"


class Topologies:
    """Owner of the declared topologies and of their trees."""

    def __init__(self, labels: LabelTable, node_names: Sequence[str | None]) -> None:
        self._labels = labels
        self._node_names = node_names
        self._declared: dict[str, Topology] = {}
        self._ignored: dict[str, Mapping[str, frozenset[str]]] = {}
        self._trees: dict[str, tuple[int, Tree]] = {}
        self._flat: tuple[int, Tree] | None = None
        #: The one usable topology that is not a list of configured keys, if there is just one.
        self._only: str | None = None

    def declare(self, topology: Topology, ignored: Mapping[str, frozenset[str]] | None = None) -> None:
        """Add or replace a topology.

        ``ignored`` maps a node label to the names of nodes whose value must not count. A topology with a
        blocking condition is kept (so that it can be reported) but has no tree.
        """
        self._declared[topology.name] = topology
        self._ignored[topology.name] = ignored or {}
        self._forget(topology.name)

    def withdraw(self, name: str) -> None:
        """Remove a topology; unknown names are fine."""
        self._declared.pop(name, None)
        self._ignored.pop(name, None)
        self._forget(name)

    def declared(self, name: str) -> Topology | None:
        """The topology of that name, usable or not."""
        return self._declared.get(name)

    def __iter__(self) -> Iterator[Topology]:
        return iter(sorted(self._declared.values(), key=lambda topology: topology.name))

    def usable(self) -> tuple[str, ...]:
        """Names of the topologies that have a tree, sorted."""
        return tuple(topology.name for topology in self if not _disabled(topology))

    def only_tree(self) -> Tree | None:
        """The tree of the one usable topology that is not a list of configured keys, if there is just one."""
        return None if self._only is None else self.tree(self._only)

    def having_level(self, level: str) -> tuple[str, ...]:
        """Names of the usable topologies with a level of that label, alias or short name, sorted."""
        found = []
        for name in self.usable():
            levels = self._declared[name].levels
            if level in short_names(levels) or any(level in (one.node_label, one.alias) for one in levels):
                found.append(name)
        return tuple(found)

    def tree(self, name: str) -> Tree | None:
        """The current tree of a usable topology, None if there is no such topology."""
        topology = self._declared.get(name)
        if topology is None or _disabled(topology):
            return None
        built = self._trees.get(name)
        if built is None or built[0] != self._labels.version:
            tree = build_tree(name, topology.levels, self._labels, self._node_names, self._slots(name))
            depths = weigh(tree, read_uplinks(tree, self._labels.quality))
            if depths:
                tree = replace(tree, depths=depths)
            # Building may create label columns, which does not count as a change.
            built = (self._labels.version, tree)
            self._trees[name] = built
        return built[1]

    def uplinks(self, name: str) -> Mapping[Domain, Uplinks]:
        """What is known of the way up from the domains of a usable topology; empty if there is none."""
        tree = self.tree(name)
        return {} if tree is None else read_uplinks(tree, self._labels.quality)

    def flat(self) -> Tree:
        """All nodes in natural order, without any level above them."""
        if self._flat is None or self._flat[0] != self._labels.version:
            self._flat = (self._labels.version, build_tree("", (), self._labels, self._node_names))
        return self._flat[1]

    def declare_levels(self, name: str, labels: Sequence[str]) -> None:
        """Declare a topology from label keys, coarse to fine (configured keys rather than an object)."""
        levels = tuple(TopologyLevel(label) for label in labels)
        self.declare(Topology(name=name, levels=levels, source=CONFIGURED_KEYS))

    def _forget(self, name: str) -> None:
        self._trees.pop(name, None)
        names = [one for one in self.usable() if self._declared[one].source != CONFIGURED_KEYS]
        self._only = names[0] if len(names) == 1 else None

    def _slots(self, name: str) -> dict[str, Ints]:
        ignored = self._ignored.get(name)
        if not ignored:
            return {}
        slot_of = {node: slot for slot, node in enumerate(self._node_names) if node is not None}
        return {
            label: np.asarray(sorted(slot_of[node] for node in nodes if node in slot_of), dtype=np.intp)
            for label, nodes in ignored.items()
        }


def _disabled(topology: Topology) -> bool:
    return any(condition.blocking for condition in topology.conditions)
