"""All topologies of a cluster side by side; each one's tree follows the nodes and labels that change.

Topologies with the same levels are one, whatever they are called: they share one tree, which has the name of
the first of them. Declared objects go before topologies that are found from labels (``Topology.found``), and
these before lists of configured keys.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.arrays import Ints
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.topology.labels import LabelTable
from closeby.topology.tree import Domain, Tree, build_tree, short_names
from closeby.topology.tree_changes import WORTHWHILE, changed_tree
from closeby.topology.uplinks import Uplinks, read_uplinks, weigh

#: Source of topologies that come from a plugin's configured label keys rather than from an object.
CONFIGURED_KEYS = "configured label keys"


class _Built(Struct, frozen=True, eq=False):
    """A tree, and up to which version and change of the labels it goes."""

    version: int
    cursor: int
    tree: Tree


class Topologies:
    """Owner of the declared topologies and of their trees."""

    def __init__(self, labels: LabelTable, node_names: Sequence[str | None]) -> None:
        self._labels = labels
        self._node_names = node_names
        #: Grows with each topology that is declared or withdrawn.
        self.version = 0
        self._declared: dict[str, Topology] = {}
        self._ignored: dict[str, Mapping[str, frozenset[str]]] = {}
        self._trees: dict[str, _Built] = {}
        self._flat: _Built | None = None
        #: The name that counts for each usable topology: that of the first one with the same levels.
        self._canonical: dict[str, str] = {}
        #: Levels by these names, with the aliases of all that are the same.
        self._levels: dict[str, tuple[TopologyLevel, ...]] = {}
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
        return tuple(topology.name for topology in self if topology.usable)

    def ignored(self, name: str) -> tuple[int, ...]:
        """For each level of a topology, the nodes whose label does not count; empty where there is none."""
        topology = self._declared.get(name)
        levels = () if topology is None else topology.levels
        return tuple(len(self._ignored[name].get(level.node_label, ())) for level in levels)

    def distinct(self) -> tuple[str, ...]:
        """Names of the usable topologies that differ in their levels, sorted."""
        return tuple(sorted(self._levels))

    def also_called(self, name: str) -> tuple[str, ...]:
        """The other names of a usable topology, sorted."""
        own = self._canonical.get(name)
        return tuple(sorted(other for other, one in self._canonical.items() if one == own and other != name))

    def only_tree(self) -> Tree | None:
        """The tree of the topology that counts where none is named.

        The only declared one; where there is none, the one that the nodes' labels make. None where several
        are declared, and for lists of configured keys.
        """
        return None if self._only is None else self.tree(self._only)

    def main_tree(self) -> Tree | None:
        """The tree in which places are reported where none is named: ``only_tree``, else the only one."""
        names = self.distinct()
        return self.tree(names[0]) if len(names) == 1 else self.only_tree()

    def having_level(self, level: str) -> tuple[str, ...]:
        """Names of the topologies with a level of that label, alias or short name, sorted.

        Of usable ones that differ in their levels, and of declared ones before those found from labels.
        """
        having = {
            name: _rank(self._declared[name])
            for name, levels in sorted(self._levels.items())
            if _has(levels, level)
        }
        first = min(having.values(), default=None)
        return tuple(name for name, rank in having.items() if rank == first)

    def tree(self, name: str) -> Tree | None:
        """The current tree of a usable topology, None if there is no such topology."""
        own = self._canonical.get(name)
        if own is None:
            return None
        built = self._trees.get(own)
        if built is None or built.version != self._labels.version:
            built = self._trees[own] = self._build(own, self._levels[own], built)
        return built.tree

    def uplinks(self, name: str) -> Mapping[Domain, Uplinks]:
        """What is known of the way up from the domains of a usable topology; empty if there is none."""
        tree = self.tree(name)
        return {} if tree is None else read_uplinks(tree, self._labels.quality)

    def flat(self) -> Tree:
        """All nodes in natural order, without any level above them."""
        if self._flat is None or self._flat.version != self._labels.version:
            self._flat = self._build("", (), self._flat)
        return self._flat.tree

    def declare_levels(self, name: str, labels: Sequence[str]) -> None:
        """Declare a topology from label keys, coarse to fine (configured keys rather than an object)."""
        levels = tuple(TopologyLevel(label) for label in labels)
        self.declare(Topology(name=name, levels=levels, source=CONFIGURED_KEYS))

    def _forget(self, name: str) -> None:
        self.version += 1
        before = self._levels
        self._canonical, self._levels = self._by_levels()
        for other in {*before, *self._levels}:
            if other == name or before.get(other) != self._levels.get(other):
                self._trees.pop(other, None)
        self._only = self._one_that_counts()

    def _by_levels(self) -> tuple[dict[str, str], dict[str, tuple[TopologyLevel, ...]]]:
        """The name that counts for each usable topology, and the levels by these names."""
        canonical: dict[str, str] = {}
        levels: dict[str, tuple[TopologyLevel, ...]] = {}
        usable = [one for one in self._declared.values() if one.usable]
        for topology in sorted(usable, key=lambda one: (_rank(one), one.name)):
            for name, known in levels.items():
                same = _merged(known, topology.levels)
                if same is not None and self._ignored[name] == self._ignored[topology.name]:
                    canonical[topology.name], levels[name] = name, same
                    break
            else:
                canonical[topology.name], levels[topology.name] = topology.name, topology.levels
        return canonical, levels

    def _one_that_counts(self) -> str | None:
        counting = [self._declared[name] for name in self.distinct()]
        counting = [one for one in counting if one.source != CONFIGURED_KEYS]
        declared = [one for one in counting if one.found is None]
        if declared:
            return declared[0].name if len(declared) == 1 else None
        if len(counting) == 1:
            return counting[0].name
        return next((one.name for one in counting if one.found is not None and one.found.main), None)

    def _build(self, name: str, levels: tuple[TopologyLevel, ...], before: "_Built | None") -> "_Built":
        """The tree as it is now: that of before with what changed, where that is known."""
        labels, ignored = self._labels, self._slots(name)
        changed = None if before is None else labels.changed_since(before.cursor)
        if (
            before is None
            or changed is None
            or len(changed) * WORTHWHILE > before.tree.size
            or before.tree.depths
            or labels.quality.carried
        ):
            tree = build_tree(name, levels, labels, self._node_names, ignored)
            depths = weigh(tree, read_uplinks(tree, labels.quality))
            if depths:
                tree = replace(tree, depths=depths)
        else:
            kept = {key: set(slots.tolist()) for key, slots in ignored.items()}
            tree = changed_tree(before.tree, labels, self._node_names, changed, kept)
        # Building may create label columns, which does not count as a change.
        return _Built(labels.version, labels.cursor, tree)

    def _slots(self, name: str) -> dict[str, Ints]:
        ignored = self._ignored.get(name)
        if not ignored:
            return {}
        slot_of = {node: slot for slot, node in enumerate(self._node_names) if node is not None}
        return {
            label: np.asarray(sorted(slot_of[node] for node in nodes if node in slot_of), dtype=np.intp)
            for label, nodes in ignored.items()
        }


def _rank(topology: Topology) -> tuple[bool, bool, bool]:
    """What is declared comes first, then what is found from labels, then configured keys."""
    found = topology.found
    return topology.source == CONFIGURED_KEYS, found is not None, found is not None and not found.main


def _merged(one: Sequence[TopologyLevel], other: Sequence[TopologyLevel]) -> tuple[TopologyLevel, ...] | None:
    """Levels with the aliases of both; None where they are not the same, or have different aliases."""
    if [level.node_label for level in one] != [level.node_label for level in other]:
        return None
    pairs = list(zip(one, other, strict=True))
    if any(a.alias and b.alias and a.alias != b.alias for a, b in pairs):
        return None
    return tuple(TopologyLevel(a.node_label, a.alias or b.alias) for a, b in pairs)


def _has(levels: Sequence[TopologyLevel], level: str) -> bool:
    return level in short_names(levels) or any(level in (one.node_label, one.alias) for one in levels)
