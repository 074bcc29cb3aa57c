"""Choosing nodes inside a domain for equal pods, by descent through the tree.

At each level the gang goes to one child if one holds it, else to the fewest children; every child but the
last is then used whole, so that a single path leads down to a partly used node. Where that takes more domains
of the level below than these children together need, these are chosen as if the children were one domain.
Binpack prefers the tightest child, spread the emptiest; equal ones are ordered by how well they are
connected, by mean score, then by their place in natural order.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import neg
from typing import Protocol

import numpy as np

from closeby.objects.arrays import Counts, Ints, Scores
from closeby.objects.groups import Strategy
from closeby.scheduling.judging.figures import DomainCounts, MeanScores
from closeby.topology.tree import Domain, Tree

#: Of many domains only so many are compared by how much of their nodes is used.
COMPARED_TIES = 64


class LevelCounts(Protocol):
    """What fits in each domain of a level: pods, or whole segments of them."""

    tree: Tree

    def of(self, level: int) -> Counts:
        """By domain of a level."""
        ...


class Fill:
    """Positions of a tree and how many pods each takes; positions come in the order of filling."""

    __slots__ = ("positions", "takes")

    def __init__(self) -> None:
        self.positions: list[Ints] = []
        self.takes: list[Counts] = []

    def add(self, positions: Ints, takes: Counts) -> None:
        """Use these positions."""
        self.positions.append(positions)
        self.takes.append(takes)

    def in_topology_order(self) -> tuple[Ints, Counts]:
        """All positions ascending, each once, with what they take."""
        if len(self.positions) == 1 and len(self.positions[0]) == 1:
            return self.positions[0], self.takes[0]
        positions = np.concatenate(self.positions)
        takes = np.concatenate(self.takes)
        order = np.argsort(positions, kind="stable")
        return positions[order], takes[order]


def descend(
    counts: DomainCounts,
    domain: Domain,
    wanted: int,
    strategy: Strategy,
    mean_scores: MeanScores | None,
    fill_level: int | None = None,
) -> Fill:
    """Choose nodes inside ``domain``, which must hold ``wanted`` pods.

    ``fill_level`` asks for the fewest domains of that level, of which all but the last are used whole unless
    fewer nodes are enough; without it every level uses its fewest.
    """
    fill, choice, tree = Fill(), _Choice(counts, strategy, mean_scores), counts.tree
    #: Domains of one level inside ``domain``, all of which are needed for what is wanted.
    inside = [domain]
    level = domain.level + 1 if fill_level is None else max(fill_level, domain.level + 1)
    while inside[0].level < tree.node_level:
        if sum(map(counts.inside, inside)) == wanted:
            _use_whole(fill, counts, inside)
            return fill
        chosen = choice.fewest(domain, level, wanted, inside if len(inside) > 1 else None)
        *whole, (last, share) = chosen
        united = level < tree.node_level and (level != fill_level or level + 1 == tree.node_level)
        if whole and united and _fewer_below(counts, chosen):
            inside = [one for one, _ in chosen]
        else:
            if whole:
                _use_whole(fill, counts, [one for one, _ in whole])
            domain, inside, wanted = last, [last], share
        level += 1
    fill.add(np.asarray([domain.index], dtype=np.intp), np.asarray([wanted], dtype=np.int64))
    return fill


def fewest(
    counts: LevelCounts,
    domain: Domain,
    level: int,
    wanted: int,
    strategy: Strategy,
    mean_scores: MeanScores | None,
) -> list[tuple[Domain, int]]:
    """The fewest domains of a level inside ``domain`` that hold what is wanted, with the share of each."""
    return _Choice(counts, strategy, mean_scores).fewest(domain, level, wanted)


def _fewer_below(counts: DomainCounts, chosen: Sequence[tuple[Domain, int]]) -> bool:
    """Whether all pods need fewer domains of the next level than with all chosen ones but the last whole."""
    level = chosen[0][0].level + 1
    rooms = [counts.of(level)[slice(*counts.tree.within(one, level))] for one, _ in chosen]
    whole = sum(int(np.count_nonzero(room)) for room in rooms[:-1])
    together = _number(np.concatenate(rooms), sum(share for _, share in chosen))
    return together < whole + _number(rooms[-1], chosen[-1][1])


def _number(room: Counts, wanted: int) -> int:
    """How many of some domains are needed at the least."""
    return int((-np.sort(-room)).cumsum().searchsorted(wanted)) + 1


def _use_whole(fill: Fill, counts: DomainCounts, domains: Sequence[Domain]) -> None:
    """All nodes of some domains of one level."""
    tree = counts.tree
    room = counts.of(tree.node_level)
    if len(domains) == 1:
        first, end = tree.span(domains[0])
        used = room[first:end].nonzero()[0] + first
    else:
        inside = tree.positions_of(domains[0].level, np.asarray([one.index for one in domains]))[0]
        used = inside[room[inside] > 0]
    fill.add(used, room[used])


class _Choice:
    """The order among the children of a domain."""

    __slots__ = ("counts", "mean_scores", "spread")

    def __init__(self, counts: LevelCounts, strategy: Strategy, mean_scores: MeanScores | None) -> None:
        self.counts = counts
        self.spread = strategy is Strategy.SPREAD
        self.mean_scores = mean_scores

    def fewest(
        self, domain: Domain, level: int, wanted: int, among: Sequence[Domain] | None = None
    ) -> list[tuple[Domain, int]]:
        """The fewest domains of a level that together hold all pods, with the share of each.

        The first is the one that can hold the most, the last as tight as possible, the others as near to the
        first as the fewest allow. All but the last are used whole. ``among``: they are inside one of these.
        """
        first, end = self.counts.tree.within(domain, level)
        room = self.counts.of(level)[first:end]
        if among is not None:
            every, room = room, np.zeros_like(room)
            for one in among:
                start, stop = self.counts.tree.within(one, level)
                room[start - first : stop - first] = every[start - first : stop - first]
        single = self._pick(room, level, first, wanted)
        if single is not None:
            return [(Domain(level, first + single), wanted)]
        depth = self._depths(level, first, end)
        order = (-room).argsort(kind="stable") if depth is None else np.lexsort((depth, -room))
        reach = room[order].cumsum()
        needed = int(reach.searchsorted(wanted)) + 1
        last, *beyond = room[order[needed - 2 : needed]].tolist()
        if self.mean_scores is not None and beyond == [last]:  # Of equal ones not all are used whole.
            ties = (room == last).nonzero()[0]
            means = self.mean_scores(level, ties + first)
            if means is not None:
                worse = np.zeros(len(room))
                worse[ties] = -means
                order = np.lexsort((worse, -room) if depth is None else (worse, depth, -room))
        if needed > 2 and level - domain.level > 1:
            chosen = self._near(room, order, needed, wanted, level, first)
        else:
            chosen = order[: needed - 1].tolist()
        sizes = room[chosen].tolist()
        left = wanted - sum(sizes)
        rest = room.copy()
        rest[chosen] = 0
        # All children of one domain are equally far from each other.
        near = chosen[0] if level - domain.level > 1 else None
        last = self._pick(rest, level, first, left, near=near)
        if last is None:
            raise ValueError(f"{domain} does not hold {wanted} pods")
        shares = [(Domain(level, first + index), size) for index, size in zip(chosen, sizes, strict=True)]
        return [*shares, (Domain(level, first + last), left)]

    def _near(
        self, room: Counts, order: Ints, needed: int, wanted: int, level: int, offset: int
    ) -> list[int]:
        """All chosen domains but the last: the largest, then the nearest that still allow ``needed``."""
        chosen = [int(order[0])]
        #: Sizes of the largest others that a choice may displace, the smallest last.
        largest = room[order[1:needed]].tolist()
        spare = int(room[order[:needed]].sum()) - wanted
        distance = self._distances(level, offset, len(room), chosen[0])
        waiting = order[1:]
        nearest_first = waiting[np.argsort(distance[waiting], kind="stable")]
        for index, size in zip(nearest_first.tolist(), room[nearest_first].tolist(), strict=True):
            if len(chosen) == needed - 1:
                break
            at = bisect_left(largest, -size, key=neg)
            if at < len(largest) and largest[at] == size:
                del largest[at]
            elif largest[-1] - size <= spare:
                spare -= largest.pop() - size
            else:
                continue
            chosen.append(index)
        return chosen

    def _pick(
        self, room: Counts, level: int, offset: int, wanted: int, near: int | None = None
    ) -> int | None:
        """Index of the preferred domain with room for ``wanted``: by fit, distance, links, score, order."""
        holds = (room >= wanted).nonzero()[0]
        if not len(holds):
            return None
        sizes = room[holds]
        best = sizes.max() if self.spread else sizes.min()
        ties = holds[sizes == best]
        if len(ties) > 1 and near is not None:
            distance = self._distances(level, offset, len(room), near)[ties]
            ties = ties[distance == distance.min()]
        depth = self._depths(level, offset, offset + len(room))
        if len(ties) > 1 and depth is not None:
            ties = ties[depth[ties] == depth[ties].min()]
        if len(ties) > 1 and self.mean_scores is not None:
            means = self.mean_scores(level, ties + offset)
            if means is None:
                ties = ties[:COMPARED_TIES]
                means = self.mean_scores(level, ties + offset, by_use=True)
            return int(ties[0 if means is None else means.argmax()])
        return int(ties[0])

    def _depths(self, level: int, first: int, end: int) -> Scores | None:
        """How degraded the way down to domains of a level is; None where no link is."""
        depths = self.counts.tree.depths
        return depths[level][first:end] if depths else None

    def _distances(self, level: int, offset: int, length: int, near: int) -> Ints:
        """Edges from one domain of a level to others of the same level; shape (length,)."""
        tree = self.counts.tree
        shared = np.full(length, -1, dtype=np.intp)
        for coarser in range(level + 1):
            first, end = tree.within(tree.ancestor(Domain(level, offset + near), coarser), level)
            shared[max(first - offset, 0) : max(end - offset, 0)] = coarser
        distances: Ints = 2 * (level - shared)
        return distances
