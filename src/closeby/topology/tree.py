"""A topology's tree over node slots: every domain is a contiguous run of positions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeVar, overload

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Bools, Ints
from closeby.objects.labels import HOSTNAME
from closeby.objects.topologies import TopologyLevel
from closeby.topology.labels import MISSING, LabelTable

ROOT_LEVEL = -1

Number = TypeVar("Number", np.int64, np.float64)

#: A tree with no more nodes has them worked out at the first look-up; a larger one after so many look-ups, or
#: at one of a large part of its nodes.
SMALL: Final = 1 << 14
PATIENCE: Final = 64
LARGE_PART: Final = 64


class Domain(Struct, frozen=True, order=True, gc=False):
    """A place in one tree.

    ``level`` -1 is the root, 0 the coarsest level, ``len(tree.levels)`` a single node; ``index`` counts the
    domains of that level in natural order of their paths (for a single node it is the node's position).
    """

    level: int
    index: int


ROOT = Domain(ROOT_LEVEL, 0)


class HostValues(Sequence[str | None]):
    """The values of single nodes, by position; kept as codes, so that a copy costs little."""

    __slots__ = ("codes", "known")

    def __init__(self, known: Sequence[str | None], codes: NDArray[np.int32]) -> None:
        #: Value by code; more may be appended.
        self.known = known
        #: (n,) int32
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    @overload
    def __getitem__(self, index: int) -> str | None: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str | None, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str | None, ...] | None:
        if isinstance(index, slice):
            return tuple([self.known[code] for code in self.codes[index].tolist()])
        return self.known[self.codes.item(index)]

    def __iter__(self) -> Iterator[str | None]:
        return (self.known[code] for code in self.codes.tolist())


class DomainOwners:
    """Which domain of one level holds each position: looked up, or worked out for all once that pays.

    A tree that follows a node copies nothing for it.
    """

    __slots__ = ("_asked", "_bounds", "_whole")

    def __init__(self, bounds: Ints) -> None:
        """``bounds``: the first position of each domain, plus the end."""
        self._bounds = bounds
        self._whole: Ints | None = None
        self._asked = 0

    @property
    def whole(self) -> Ints:
        """position -> domain, shape (n,)."""
        if self._whole is None:
            self._whole = np.repeat(np.arange(len(self._bounds) - 1), np.diff(self._bounds))
        return self._whole

    def one(self, position: int) -> int:
        """The domain that holds a position."""
        whole = self._whole if self._whole is not None else self._once_it_pays(1)
        if whole is not None:
            return whole.item(position)
        return int(self._bounds.searchsorted(position, side="right")) - 1

    def of(self, positions: Ints) -> Ints:
        """The domain that holds each position."""
        whole = self._whole if self._whole is not None else self._once_it_pays(len(positions))
        if whole is not None:
            return whole[positions]
        return self._bounds.searchsorted(positions, side="right") - 1

    def _once_it_pays(self, count: int) -> Ints | None:
        self._asked += 1
        size = self._bounds.item(-1)
        if size <= SMALL or self._asked > PATIENCE or count > size // LARGE_PART:
            return self.whole
        return None


class Tree(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Domains of one topology, coarse to fine. Positions 0..n-1 list the nodes so that domains are slices.

    A node that lacks a level's label is there in a private domain: it counts for distances, is usable at
    coarser levels, and never satisfies a constraint required at that level (see ``labelled``).
    """

    name: str
    #: Levels above the single node, coarse to fine.
    levels: tuple[TopologyLevel, ...]
    #: The declared level of single nodes; None when the topology does not name one.
    host_level: TopologyLevel | None
    #: position -> slot, shape (n,)
    slot_at: Ints
    #: slot -> position, shape (slots,); n for a slot that is not in the tree
    position_of: Ints
    #: per level: first position of each domain, plus n at the end; shape (domains + 1,)
    bounds: tuple[Ints, ...]
    #: per level: position -> domain
    owners_at: tuple[DomainOwners, ...]
    #: per level: first child (at the next level) of each domain, plus the end; the children of the finest
    #: level are positions, so its entry equals its bounds
    children: tuple[Ints, ...]
    #: per level, and at last for single nodes: False for the private domain of a node without the label
    labelled: tuple[Bools, ...]
    #: per level, and at last for single nodes: the domain's own label value (None if private)
    values: tuple[Sequence[str | None], ...]
    #: the last of these
    hosts: HostValues
    #: True when positions ascend with slots
    in_slot_order: bool
    #: per level, and at last for single nodes: edges from the root to each domain, those of degraded links
    #: by their cost (see ``uplinks``); empty when no link is degraded
    depths: tuple[NDArray[np.float64], ...] = ()

    @property
    def size(self) -> int:
        return len(self.slot_at)

    @property
    def domain_at(self) -> tuple[Ints, ...]:
        """Per level: position -> domain, shape (n,). Of few positions ``owners`` costs less."""
        return tuple(level.whole for level in self.owners_at)

    @property
    def node_level(self) -> int:
        """The level index of single nodes."""
        return len(self.levels)

    @property
    def carried(self) -> tuple[bool, ...]:
        """Per level, and at last for single nodes: whether there are nodes with its label, so that it counts.

        Single nodes always count.
        """
        return (*(bool(level.any()) for level in self.labelled[: self.node_level]), True)

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        """Short names of all levels, coarse to fine, ending with the one of single nodes."""
        host = self.host_level or TopologyLevel(HOSTNAME)
        return short_names((*self.levels, host))

    def level_named(self, name: str) -> int | None:
        """Index of a level given its node label, alias or short name; None if there is none."""
        declared = self.levels if self.host_level is None else (*self.levels, self.host_level)
        for index, level in enumerate(declared):
            if name in (level.node_label, level.alias):
                return index
        names = short_names(declared)
        return names.index(name) if name in names else None

    def count(self, level: int) -> int:
        """Number of domains at a level."""
        if level == ROOT_LEVEL:
            return 1
        return self.size if level == self.node_level else len(self.bounds[level]) - 1

    def span(self, domain: Domain) -> tuple[int, int]:
        """Positions [first, end) of a domain."""
        if domain.level == ROOT_LEVEL:
            return 0, self.size
        if domain.level == self.node_level:
            return domain.index, domain.index + 1
        bounds = self.bounds[domain.level]
        return int(bounds[domain.index]), int(bounds[domain.index + 1])

    def slots_in(self, domain: Domain) -> Ints:
        """The slots of a domain's nodes, by position."""
        first, end = self.span(domain)
        return self.slot_at[first:end]

    def slots_of(self, level: int, domains: Ints) -> tuple[Ints, Ints]:
        """The slots in several domains of a level, and where those of each domain begin among them."""
        positions, starts = self.positions_of(level, domains)
        return self.slot_at[positions], starts

    def positions_of(self, level: int, domains: Ints) -> tuple[Ints, Ints]:
        """The same as positions."""
        if level == self.node_level:
            return domains, np.arange(len(domains))
        first, end = self.bounds[level][domains], self.bounds[level][domains + 1]
        starts = np.cumsum(end - first) - (end - first)
        return np.repeat(first - starts, end - first) + np.arange(int((end - first).sum())), starts

    def owners(self, positions: Ints, level: int) -> Ints:
        """Which domain of a level holds each node, given by its position: the domains' indices."""
        if level == ROOT_LEVEL:
            return np.zeros(len(positions), dtype=np.intp)
        return positions if level == self.node_level else self.owners_at[level].of(positions)

    def owners_of_slots(self, slots: Sequence[int] | Ints, level: int) -> Ints:
        """The same for slots; -1 for those without a node of this tree."""
        positions = self.position_of[np.asarray(slots, dtype=np.intp)]
        inside = positions < self.size
        owners = np.full(len(positions), -1, dtype=np.intp)
        owners[inside] = self.owners(positions[inside], level)
        return owners

    def within(self, domain: Domain, level: int) -> tuple[int, int]:
        """Domains [first, end) of a level at or below ``domain``'s that are inside it."""
        if domain.level == ROOT_LEVEL:
            return 0, self.count(level)
        if domain.level == level:
            return domain.index, domain.index + 1
        first, end = self.span(domain)
        if level == self.node_level:
            return first, end
        if first == end:
            return 0, 0
        at = self.owners_at[level]
        return at.one(first), at.one(end - 1) + 1

    def first_inside(self, level: int, finer: int) -> Ints:
        """The first domain of a finer level in each domain of a level."""
        if level == ROOT_LEVEL:
            return np.zeros(min(1, self.count(finer)), dtype=np.intp)
        if level == finer:
            return np.arange(self.count(level))
        if finer == self.node_level:
            return self.bounds[level][:-1]
        starts = self.children[level][:-1]
        for between in range(level + 1, finer):
            starts = self.children[between][starts]
        return starts

    def sums(self, level: int, each: NDArray[Number], of: int | None = None) -> NDArray[Number]:
        """Sums by domain of a level; ``each`` is given for single nodes, by position, in its last axis.

        With ``of`` it is given for the domains of that level instead, which is no coarser.
        """
        finer = self.node_level if of is None else of
        if level == finer:
            return each
        if level == ROOT_LEVEL:
            total: NDArray[Number] = each.sum(axis=-1, keepdims=True)
            return total
        if not each.shape[-1]:
            return each
        return np.add.reduceat(each, self.first_inside(level, finer), axis=-1)

    def sums_by_level(self, each: NDArray[Number]) -> list[NDArray[Number]]:
        """Sums by domain of all levels, coarse to fine; single nodes come last, as they are given."""
        found = [each]
        for level in range(self.node_level - 1, ROOT_LEVEL, -1):
            found.append(self.sums(level, found[-1], of=level + 1))
        return found[::-1]

    def ancestor(self, domain: Domain, level: int) -> Domain:
        """The domain of a level at or above ``domain``'s that holds it."""
        if level == ROOT_LEVEL:
            return ROOT
        if level == domain.level:
            return domain
        return Domain(level, self.owners_at[level].one(self.span(domain)[0]))

    def path(self, domain: Domain) -> tuple[str | None, ...]:
        """Label values from the coarsest level down to ``domain``; None where a label is missing."""
        return tuple(
            self.values[level][self.ancestor(domain, level).index] for level in range(domain.level + 1)
        )

    def is_labelled(self, domain: Domain) -> bool:
        """Whether the domain carries its own level's label (the root does)."""
        return domain.level == ROOT_LEVEL or bool(self.labelled[domain.level][domain.index])

    def node_domain(self, slot: int) -> Domain | None:
        """The domain of a single node, None if the slot is not in this tree."""
        position = int(self.position_of[slot]) if slot < len(self.position_of) else self.size
        return None if position == self.size else Domain(self.node_level, position)

    def tightest(self, positions: Ints) -> Domain:
        """The finest labelled domain that holds all positions (at least one); the root if there is none.

        A single node counts as a domain only where the topology declares that level.
        """
        finest = self.node_level if self.host_level is not None else self.node_level - 1
        for level in range(finest, ROOT_LEVEL, -1):
            owners = self.owners(positions, level)
            candidate = Domain(level, int(owners[0]))
            if bool((owners == owners[0]).all()) and self.is_labelled(candidate):
                return candidate
        return ROOT

    def distance(self, one: Domain, other: Domain) -> int:
        """Number of edges between two domains in the tree (KAI topology-aware scheduling design)."""
        shared = min(one.level, other.level)
        while self.ancestor(one, shared) != self.ancestor(other, shared):
            shared -= 1
        return (one.level - shared) + (other.level - shared)

    def distances_from(self, domain: Domain) -> NDArray[np.int64]:
        """Edges from ``domain`` to each single node, by position; shape (n,)."""
        shared = np.full(self.size, ROOT_LEVEL, dtype=np.int64)
        for level in range(domain.level + 1):
            first, end = self.span(self.ancestor(domain, level))
            shared[first:end] = level
        return (domain.level - shared) + (self.node_level - shared)


def short_names(levels: Sequence[TopologyLevel]) -> tuple[str, ...]:
    """Alias, else the last part of the label; the whole label where two levels would share a name."""
    short = [level.alias or level.node_label.rsplit("/", 1)[-1] for level in levels]
    return tuple(
        name if short.count(name) == 1 else level.node_label
        for name, level in zip(short, levels, strict=True)
    )


def level_meant(levels: Iterable[TopologyLevel], word: str) -> str:
    """The label of the only level whose label ends with a word: ``rack`` for ``example.com/topology-rack``.

    The word itself if none does. Raises ValueError, for people, where several do.
    """
    ends = tuple(f"{mark}{word}" for mark in "-_./")
    meant = sorted({level.node_label for level in levels if level.node_label.endswith(ends)})
    if len(meant) > 1:
        raise ValueError(f"level {word!r} may mean {' or '.join(meant)}; give one of them")
    return meant[0] if meant else word


def build_tree(
    name: str,
    levels: Sequence[TopologyLevel],
    labels: LabelTable,
    node_names: Sequence[str | None],
    ignored: Mapping[str, Ints] | None = None,
) -> Tree:
    """Build the tree of the given levels (coarse to fine) over all slots that hold a node.

    ``node_names[slot]`` is None for an empty slot. ``ignored`` maps a node label to slots whose value must
    not count (conflicting switches). An empty label value is a missing one.
    """
    host_level = levels[-1] if levels and levels[-1].node_label == HOSTNAME else None
    upper = tuple(levels[:-1] if host_level else levels)
    slots = np.asarray([slot for slot, node in enumerate(node_names) if node is not None], dtype=np.intp)
    codes = [
        _codes(level.node_label, labels, slots, (ignored or {}).get(level.node_label)) for level in upper
    ]
    name_codes = labels.name_codes([node_names[slot] or "" for slot in slots.tolist()])
    order = labels.names.ranks()[name_codes]
    keys = [order]
    for level, column in zip(reversed(upper), reversed(codes), strict=True):
        ranks = labels.column(level.node_label).ranks()
        keys.append(np.where(column == MISSING, len(ranks) + order, ranks[column]))
    permutation = np.lexsort(keys) if len(slots) else np.zeros(0, dtype=np.intp)
    slot_at = slots[permutation]
    position_of = np.full(len(node_names), len(slots), dtype=np.intp)
    position_of[slot_at] = np.arange(len(slots))

    bounds: list[Ints] = []
    labelled: list[Bools] = []
    values: list[Sequence[str | None]] = []
    starts = np.zeros(len(slots), dtype=np.bool_)
    starts[:1] = True
    for level, column in zip(upper, codes, strict=True):
        ordered = column[permutation]
        starts = starts.copy()
        starts[1:] |= (ordered[1:] != ordered[:-1]) | (ordered[1:] == MISSING)
        first = np.flatnonzero(starts)
        bounds.append(np.append(first, len(slots)))
        labelled.append(ordered[first] != MISSING)
        known = labels.column(level.node_label).values
        values.append(tuple(known[code] for code in ordered[first].tolist()))

    host = _codes(HOSTNAME, labels, slot_at, None) if host_level else name_codes[permutation]
    labelled.append(host != MISSING)
    hosts = HostValues((labels.column(HOSTNAME) if host_level else labels.names).values, host)
    return Tree(
        name=name,
        levels=upper,
        host_level=host_level,
        slot_at=slot_at,
        position_of=position_of,
        bounds=tuple(bounds),
        owners_at=tuple(map(DomainOwners, bounds)),
        children=children_of_domains(bounds),
        labelled=tuple(labelled),
        values=(*values, hosts),
        hosts=hosts,
        in_slot_order=bool((slot_at[1:] > slot_at[:-1]).all()),
    )


def children_of_domains(bounds: Sequence[Ints]) -> tuple[Ints, ...]:
    """First child of each domain, per level, as in ``Tree.children``."""
    # Where a domain begins, one of its children does.
    below = [np.searchsorted(finer, upper) for upper, finer in pairwise(bounds)]
    return (*below, bounds[-1]) if bounds else ()


def _codes(key: str, labels: LabelTable, slots: Ints, ignored: Ints | None) -> NDArray[np.int32]:
    column = labels.column(key)
    codes = column.codes[slots]
    empty = column.code("")
    if empty is not None:
        codes = np.where(codes == empty, MISSING, codes)
    if ignored is not None and len(ignored):
        codes = np.where(np.isin(slots, ignored), MISSING, codes)
    return codes.astype(np.int32)
