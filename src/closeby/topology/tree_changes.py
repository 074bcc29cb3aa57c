"""A tree after nodes came, left or changed labels: made from the tree before, at the cost of what changed.

Three arrays are copied with the changes spliced in, which costs a few passes of memory; only nodes that
changed are looked at. What comes out equals what ``build_tree`` makes of all nodes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.objects.arrays import Bools, Ints
from closeby.objects.labels import HOSTNAME
from closeby.objects.words import NaturalKey, natural_key
from closeby.topology.labels import MISSING, LabelTable
from closeby.topology.tree import DomainOwners, HostValues, Tree, children_of_domains

#: Where more than one node in so many has changed, it is quicker to build all of the tree again.
WORTHWHILE: Final = 50

#: Up to so many changes are quicker carried out one by one on whole arrays than with a table of moves.
FEW: Final = 3

#: Values by level, coarse to fine; None for a missing label.
_Path = tuple[str | None, ...]
#: How domains of one parent, or nodes of one domain, are ordered: labelled ones first.
_Key = tuple[int, NaturalKey]


class _Arrival(NamedTuple):
    """A node to be put into the tree."""

    path: _Path
    name: str
    slot: int


class _Place(NamedTuple):
    """Where a node goes: before this position of the tree without those that left."""

    position: int
    #: Per level: the domain that it joins, -1 for a new one.
    joins: tuple[int, ...]


def changed_tree(
    tree: Tree,
    labels: LabelTable,
    node_names: Sequence[str | None],
    changed: Mapping[int, bool],
    ignored: Mapping[str, Collection[int]],
) -> Tree:
    """The tree after these slots changed; costs of links (``depths``) are not followed.

    ``changed[slot]`` is True where another node may be in the slot than before. ``ignored`` maps a node label
    to slots whose value must not count.
    """
    keys = [level.node_label for level in tree.levels]
    left: list[int] = []
    arrivals: list[_Arrival] = []
    for slot, other_node in changed.items():
        position = int(tree.position_of[slot]) if slot < len(tree.position_of) else tree.size
        was_there, name = position < tree.size, node_names[slot]
        path: _Path = ()
        if name is not None:
            carried = labels.labels(slot)
            path = tuple(None if slot in ignored.get(key, ()) else carried.get(key) or None for key in keys)
            host = carried.get(HOSTNAME) or None
            same_host = tree.host_level is None or (was_there and tree.values[-1][position] == host)
            if was_there and not other_node and same_host and path == _path_at(tree, position):
                continue
        elif not was_there:
            continue
        if was_there:
            left.append(position)
        if name is not None:
            arrivals.append(_Arrival(path, name, slot))
    if not left and not arrivals and len(tree.position_of) == len(node_names):
        return tree
    return _Splicing(tree, node_names, sorted(left)).with_arrivals(arrivals, labels)


def _path_at(tree: Tree, position: int) -> _Path:
    return tuple(tree.values[level][at.one(position)] for level, at in enumerate(tree.owners_at))


class _Splicing:
    """A tree without the nodes that left, in which places for others are found.

    Its arrays are never made: each array of the new tree is one copy of the old tree's. Positions are those
    without the nodes that left, unless they are called old.
    """

    def __init__(self, tree: Tree, node_names: Sequence[str | None], left: list[int]) -> None:
        self._tree = tree
        self._node_names = node_names
        self._left = left
        self._size = tree.size - len(left)
        #: Positions at which those that left would be.
        self._gaps = [position - before for before, position in enumerate(left)]

    def with_arrivals(self, arrivals: list[_Arrival], labels: LabelTable) -> Tree:
        """The tree with these nodes."""
        tree = self._tree
        ordered = sorted(arrivals, key=_sort_key)
        places = self._places(ordered)
        at = [place.position for place in places]
        before = [self._old(position) for position in at]
        slots = [one.slot for one in ordered]
        slot_at = _spliced(tree.slot_at, self._left, before, slots)
        bounds, labelled, values = [], [], []
        parents = [-1] * len(ordered)
        for level in range(len(tree.levels)):
            domains = self._domains(level, ordered, places, parents)
            bounds.append(domains.bounds)
            labelled.append(domains.labelled)
            values.append(domains.values)
            parents = domains.of_arrivals
        column = labels.names if tree.host_level is None else labels.column(HOSTNAME)
        found = [
            column.code_for(one.name) if tree.host_level is None else _host_code(labels, one.slot)
            for one in ordered
        ]
        codes = _spliced(tree.hosts.codes, self._left, before, found)
        labelled.append(codes != MISSING)
        hosts = HostValues(column.values, codes)
        return replace(
            tree,
            slot_at=slot_at,
            position_of=self._position_of(slot_at, at, before, slots),
            bounds=tuple(bounds),
            owners_at=tuple(map(DomainOwners, bounds)),
            children=children_of_domains(bounds),
            labelled=tuple(labelled),
            values=(*values, hosts),
            hosts=hosts,
            in_slot_order=self._in_slot_order(slot_at, at),
        )

    # Where they go

    def _places(self, ordered: Sequence[_Arrival]) -> list[_Place]:
        known: dict[_Path, tuple[int, int, tuple[int, ...]]] = {}
        places: list[_Place] = []
        for one in ordered:
            if None in one.path:
                first, end, joins = self._range(one)
            else:
                if one.path not in known:
                    known[one.path] = self._range(one)
                first, end, joins = known[one.path]
            if first < end:
                if places and joins == places[-1].joins:  # It goes behind the one that arrived before it.
                    first = max(first, places[-1].position)
                first = self._before(_name_key(one), len(self._tree.levels), first, end)
            places.append(_Place(first, joins))
        return places

    def _range(self, one: _Arrival) -> tuple[int, int, tuple[int, ...]]:
        """Positions of the nodes in all of its domains (where they would be), and these domains."""
        first, end = 0, self._size
        joins: list[int] = []
        for level, value in enumerate(one.path):
            if first == end and joins and joins[-1] < 0:
                joins.append(-1)
                continue
            key = _name_key(one) if value is None else (0, natural_key(value))
            first = self._before(key, level, first, end)
            if value is None or first == end or self._key(level, first) != key:
                joins.append(-1)
                end = first
            else:
                domain = self._domain(level, first)
                joins.append(domain)
                old_end = int(self._tree.bounds[level][domain + 1])
                end = old_end - bisect_left(self._left, old_end)
        return first, end, tuple(joins)

    def _before(self, key: _Key, level: int, first: int, end: int) -> int:
        """The first position from which on keys are no smaller."""
        if first < end and self._key(level, first) >= key:
            return first
        if first < end and self._key(level, end - 1) < key:
            return end
        return bisect_left(range(end), key, first, end, key=lambda at: self._key(level, at))

    def _key(self, level: int, position: int) -> _Key:
        tree = self._tree
        if level < len(tree.levels):
            value = tree.values[level][self._domain(level, position)]
            if value is not None:
                return 0, natural_key(value)
        return 1, natural_key(self._node_names[int(tree.slot_at[self._old(position)])] or "")

    def _old(self, position: int) -> int:
        return position + bisect_right(self._gaps, position)

    def _domain(self, level: int, position: int) -> int:
        return self._tree.owners_at[level].one(self._old(position))

    # What comes out

    def _domains(
        self, level: int, ordered: Sequence[_Arrival], places: Sequence[_Place], parents: Sequence[int]
    ) -> "_Domains":
        """The domains of a level; ``parents``: those of the level above that hold the nodes that arrived."""
        tree = self._tree
        count = tree.count(level)
        sizes = np.diff(tree.bounds[level])
        for position in self._left:
            sizes[tree.owners_at[level].one(position)] -= 1
        #: Domains that come: where they begin, their size and value. They are numbered after the others.
        new: list[tuple[int, int, str | None]] = []
        numbers: list[int] = []
        for index, (one, place) in enumerate(zip(ordered, places, strict=True)):
            number, value = place.joins[level], one.path[level]
            if number >= 0:
                sizes[number] += 1
            elif index and value is not None and self._beside(level, ordered, index, parents, numbers):
                number = numbers[-1]
                position, size, _ = new[number - count]
                new[number - count] = position, size + 1, value
            else:
                number = count + len(new)
                new.append((place.position, 1, value))
            numbers.append(number)
        values: Sequence[str | None] = tree.values[level]
        labelled = tree.labelled[level]
        if new or not sizes.all():
            order = self._order(level, sizes, new)
            values = tuple([values[one] if one < count else new[one - count][2] for one in order.tolist()])
            labelled = np.asarray([value is not None for value in values], dtype=np.bool_)
            sizes = np.concatenate([sizes, [size for _, size, _ in new]]).astype(np.intp)[order]
            renumbered = np.zeros(count + len(new), dtype=np.intp)
            renumbered[order] = np.arange(len(order))
            numbers = renumbered[np.asarray(numbers, dtype=np.intp)].tolist()
        bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        return _Domains(bounds, labelled, values, numbers)

    def _beside(
        self,
        level: int,
        ordered: Sequence[_Arrival],
        index: int,
        parents: Sequence[int],
        numbers: Sequence[int],
    ) -> bool:
        """Whether a node is in the new domain of the node that arrived before it in the order."""
        same_parent = level == 0 or parents[index] == parents[index - 1]
        before = ordered[index - 1].path[level]
        return same_parent and before == ordered[index].path[level] and numbers[-1] >= self._tree.count(level)

    def _order(self, level: int, sizes: Ints, new: Sequence[tuple[int, int, str | None]]) -> Ints:
        """Numbers of the domains that are there now, in order."""
        there = np.flatnonzero(sizes)
        if not new:
            return there
        # A new domain begins where an old one does or did; it goes before the one that begins there now.
        before = [
            self._domain(level, position) if position < self._size else self._tree.count(level)
            for position, _, _ in new
        ]
        places = np.searchsorted(there, before)
        numbers = self._tree.count(level) + np.arange(len(new))
        return np.insert(there, places, numbers)

    def _position_of(
        self, slot_at: Ints, at: Sequence[int], before: Sequence[int], slots: Sequence[int]
    ) -> Ints:
        """Positions by slot: those of before, moved by what came and left before them."""
        old, left = self._tree.position_of, self._left
        positions: Ints = np.empty(max(len(old), len(self._node_names)), dtype=np.intp)
        moved = positions[: len(old)]
        if len(left) == len(before) == 1:
            (gone,), (come,) = left, before
            # Only what was between the two places moves.
            if come <= gone:
                np.add(old, _ones((old >= come) & (old < gone)), out=moved)
            else:
                np.subtract(old, _ones((old > gone) & (old < come)), out=moved)
        elif len(left) + len(before) <= FEW:
            last = old
            for position in before:
                last = np.add(last, _ones(old >= position), out=moved)
            for position in left:
                last = np.subtract(last, _ones(old > position), out=moved)
            if last is old:
                moved[:] = old
        else:
            moves = np.zeros(self._tree.size + 2, dtype=np.intp)
            np.add.at(moves, np.asarray(before, dtype=np.intp), 1)
            np.add.at(moves, np.asarray(left, dtype=np.intp) + 1, -1)
            np.add(old, np.cumsum(moves[:-1]).take(old), out=moved)
        positions[self._tree.slot_at[left]] = len(slot_at)
        positions[len(old) :] = len(slot_at)
        positions[slots] = np.asarray(at, dtype=np.intp) + np.arange(len(at))
        return positions

    def _in_slot_order(self, slot_at: Ints, at: Sequence[int]) -> bool:
        """Whether positions ascend with slots; where they did, only what arrived has to be looked at."""
        own = np.asarray(at, dtype=np.intp) + np.arange(len(at))
        behind, before = own[own + 1 < len(slot_at)], own[own > 0]
        if (slot_at[behind] > slot_at[behind + 1]).any() or (slot_at[before - 1] > slot_at[before]).any():
            return False
        return self._tree.in_slot_order or bool((slot_at[1:] > slot_at[:-1]).all())


class _Domains(NamedTuple):
    """The domains of one level."""

    bounds: Ints
    labelled: NDArray[np.bool_]
    values: Sequence[str | None]
    #: Which of them hold the nodes that arrived.
    of_arrivals: list[int]


def _sort_key(one: _Arrival) -> tuple[_Key, ...]:
    name = _name_key(one)
    return (*(name if value is None else (0, natural_key(value)) for value in one.path), name)


def _name_key(one: _Arrival) -> _Key:
    return 1, natural_key(one.name)


def _host_code(labels: LabelTable, slot: int) -> int:
    """The code of a node's host name label; an empty value is a missing one."""
    value = labels.labels(slot).get(HOSTNAME)
    return labels.column(HOSTNAME).code_for(value) if value else MISSING


def _ones(mask: Bools) -> Ints:
    """1 where the mask is True, else 0: numbers of one type are added at twice the speed."""
    return mask.astype(np.intp)


def _spliced(
    array: NDArray[Any], left: Sequence[int], before: Sequence[int], values: Sequence[Any]
) -> NDArray[Any]:
    """A copy without the entries at ``left`` and with ``values`` before the entries ``before``.

    Both ascend, and no value goes before an entry that is left out.
    """
    if not left and not before:
        return array
    more = np.asarray(values, dtype=array.dtype)
    pieces, begin, number = [], 0, 0
    for skipped in (*left, len(array)):
        while number < len(before) and before[number] <= skipped:
            if before[number] > begin:
                pieces.append(array[begin : before[number]])
                begin = before[number]
            pieces.append(more[number : number + 1])
            number += 1
        pieces.append(array[begin:skipped])
        begin = skipped + 1
    return np.concatenate(pieces)
