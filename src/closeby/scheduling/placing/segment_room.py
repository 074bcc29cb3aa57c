"""How many segments of equal pods fit in the domains of a tree, and which domains they go to.

Of each layer, bottom-up, how many whole segments every domain holds. Such numbers add up, so that the largest
give the fewest domains; and as one pod takes room for one, what is counted can also be placed.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Protocol

import numpy as np

from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.groups import Exclusive, Strategy
from closeby.scheduling.gangs.segments import Layering, TreeLayer
from closeby.scheduling.judging.figures import MeanScores
from closeby.scheduling.placing.descent import LevelCounts, fewest
from closeby.scheduling.placing.packing import cut, evenly, first_of, for_the_smaller, pack
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree

#: More than any number of segments.
_NEVER = np.int64(1) << 40
#: Of so many candidates it is worked out exactly how many domains a gang with a smaller last segment needs.
FEW: Final = 256


class PodCounts(LevelCounts, Protocol):
    """How many pods fit in the domains of a tree."""

    def inside(self, domain: Domain) -> int:
        """In one domain."""
        ...


class SegmentRoom:
    """The room for segments of one class of pods, or for like segments, as things are."""

    def __init__(
        self,
        layering: Layering,
        counts: PodCounts,
        barred: Sequence[Bools | None],
        *,
        strict: bool,
        used: Ints | None = None,
    ) -> None:
        """``barred``: per layer, the domains of its level that take no segment of it; None: none is.

        Unless ``strict``, only the layers that are required are followed. ``used``: domains of the coarsest
        layer that hold segments already, where it limits how many may.
        """
        self.tree = layering.tree
        self._counts = counts
        chosen = [i for i, layer in enumerate(layering.layers) if strict or layer.required]
        #: Of all layers those that are followed, by number.
        self.followed = chosen
        self.layers: list[TreeLayer] = [layering.layers[i] for i in chosen]
        self.barred = [barred[i] for i in chosen]
        self._limit = self.layers[0].max_domains if self.layers else None
        self._used = np.zeros(0, dtype=np.intp) if used is None else used
        self._whole: list[Counts] = [np.zeros(0, dtype=np.int64)] * len(chosen)
        for depth in range(len(chosen) - 1, -1, -1):
            self._whole[depth] = self._open(depth, self._units(depth) // self._each(depth))

    def of(self, level: int) -> Counts:
        """Whole segments of the layer of a level that fit in each domain, as ``DomainCounts.of``."""
        return self._whole[next(i for i, layer in enumerate(self.layers) if layer.level == level)]

    def cost_of(self, rest: int) -> Counts:
        """How many whole segments fewer each domain of the coarsest layer holds beside a smaller one."""
        beside = self._beside(0, rest)
        return np.where(beside < 0, _NEVER, self._whole[0] - beside)

    def depth_of(self, number: int) -> int:
        """The place among those that are followed of a layer, or of the next one that is."""
        return next((i for i, one in enumerate(self.followed) if one >= number), len(self.followed))

    # What fits

    def room(self, level: int, pods: int) -> Counts:
        """By domain of a level: pods that fit in whole segments; at least ``pods`` exactly where those do."""
        depth = self._below(level)
        if depth is None:
            room = self._counts.of(level)
        else:
            size = self._unit(depth)
            sums = self._together(level, depth)
            rest = pods % size if not self.layers[depth].counts else 0
            fits = sums * size >= pods - rest
            if rest:
                beside = self._beside(depth, rest)
                cost = np.where(beside < 0, _NEVER, self._whole[depth] - beside)
                fits = sums - self._least(cost, level, depth) >= pods // size
            room = np.where(fits, np.maximum(sums * size, pods), np.minimum(sums * size, pods - 1))
        if level == ROOT_LEVEL:
            return room
        for depth, layer in enumerate(self.layers):
            if layer.level > level:
                break
            opened = self._open(depth, np.ones(self.tree.count(layer.level), dtype=np.int64))
            if not opened.all():
                room = np.where(opened[self.tree.owners(self._first_positions(level), layer.level)], room, 0)
            if layer.exclusive is Exclusive.KIND and pods > (layer.size or max(layer.counts)):
                room = np.minimum(room, pods - 1)
        return room

    def pieces(self, level: int, pods: int) -> Counts:
        """By domain of a level that holds the pods: how many domains of the coarsest layer they need."""
        depth = self._below(level)
        if depth != 0 or self.layers[0].counts or self.layers[0].spread:
            return np.ones(self.tree.count(level), dtype=np.int64)
        whole = self._whole[0]
        starts = self.tree.first_inside(level, self.layers[0].level)
        if not len(starts):
            return np.zeros(0, dtype=np.int64)
        sizes = np.diff(np.append(starts, len(whole)))
        owner = np.repeat(np.arange(len(starts)), sizes)
        ordered = whole[np.lexsort((-whole, owner))]
        reach = np.cumsum(ordered)
        before = np.append(0, reach)[starts]
        number, rest = divmod(pods, self._unit(0))
        if rest and len(starts) <= FEW:
            return self._pieces_with_rest(starts, number, rest)
        needed = number + bool(rest)
        pieces: Counts = np.add.reduceat(reach - before[owner] < needed, starts, dtype=np.int64) + 1
        return pieces

    def _pieces_with_rest(self, starts: Ints, number: int, rest: int) -> Counts:
        """The same with a smaller last segment, domain by domain."""
        beside, free = self._beside(0, rest), self._units(0)
        pieces = np.ones(len(starts), dtype=np.int64)
        for at, (first, end) in enumerate(pairwise([*starts.tolist(), len(free)])):
            last = for_the_smaller(
                self._whole[0][first:end], beside[first:end], free[first:end], number, spread=False
            )
            pieces[at] = 1 if last is None else last.domains
        return pieces

    def most(self, inside: Domain, depth: int) -> int:
        """Whole segments of a layer that fit in a domain together."""
        each = 1
        while depth < len(self.layers) and self.layers[depth].level <= inside.level:
            each, depth = each * self._each(depth), depth + 1
        return self._total(inside, depth) // each

    # Which domains

    def share_out(
        self, inside: Domain, depth: int, pods: int, strategy: Strategy, means: MeanScores | None
    ) -> list[tuple[Domain, int]] | None:
        """Domains of the finest layer with the pods of each, in the order of their segments; None: no room.

        ``pods`` are those of whole segments of a layer, and perhaps of a smaller last one.
        """
        while depth < len(self.layers) and self.layers[depth].level <= inside.level:
            layer = self.layers[depth]
            if not self._takes(inside, depth) or (layer.exclusive is Exclusive.KIND and pods > layer.size):
                return None
            depth += 1
        if depth == len(self.layers):
            return [(inside, pods)] if self._counts.inside(inside) >= pods else None
        layer = self.layers[depth]
        number, rest = divmod(pods, layer.size)
        chosen = self._domains(inside, depth, number, rest, strategy, means)
        if chosen is None:
            return None
        if depth + 1 == len(self.layers):
            room = self._counts.of(layer.level)[[domain.index for domain, _ in chosen]]
            return chosen if bool((room >= [count for _, count in chosen]).all()) else None
        found = []
        for domain, count in chosen:
            own = self.share_out(domain, depth + 1, count, strategy, means)
            if own is None:
                return None
            found += own
        return found

    def share_out_sizes(
        self,
        inside: Domain,
        depth: int,
        sizes: Sequence[int],
        strategy: Strategy,
        means: MeanScores | None,
    ) -> tuple[list[tuple[Domain, int]] | None, bool]:
        """The same for unequal segments of a layer, and whether that is exact."""
        layer = self.layers[depth]
        inner = depth + 1 < len(self.layers)
        unit = self._unit(depth + 1) if inner else 1
        if layer.level <= inside.level:
            free = self._total(inside, depth + 1) if self._takes(inside, depth) else 0
            order, rooms = np.zeros(1, dtype=np.intp), np.asarray([free])
        else:
            order = _best_first(layer.level, *self.tree.within(inside, layer.level), means)
            rooms = self._open(depth, self._units(depth))[order]
        items = [-(-size // unit) for size in sizes]
        packed = pack(items, rooms, spread=layer.spread, alone=layer.exclusive is Exclusive.KIND)
        exact = packed.exact and all(size % unit == 0 for size in sizes)
        if packed.bins is None:
            return None, exact
        shares: list[list[tuple[Domain, int]]] = [[] for _ in sizes]
        for index in dict.fromkeys(packed.bins):
            numbers = [number for number, one in enumerate(packed.bins) if one == index]
            domain = inside if layer.level <= inside.level else Domain(layer.level, int(order[index]))
            # Whole units follow one another, so that segments of one domain share its inner domains out.
            units = [items[number] * unit for number in numbers]
            whole = self.share_out(domain, depth + 1, sum(units), strategy, means)
            if whole is None:
                return None, False
            for number, own in zip(numbers, cut(whole, units), strict=True):
                shares[number] = first_of(own, sizes[number])
        return [one for own in shares for one in own], exact

    # Arithmetic

    def _each(self, depth: int) -> int:
        """How many segments of the next layer make one; pods in the finest."""
        layer = self.layers[depth]
        if layer.counts:
            return 1
        return layer.size if depth + 1 == len(self.layers) else layer.size // self._unit(depth + 1)

    def _unit(self, depth: int) -> int:
        """Pods of what is counted at a layer: of its segments, or of the next where these are unequal."""
        layer = self.layers[depth]
        if not layer.counts:
            return layer.size
        return 1 if depth + 1 == len(self.layers) else self._unit(depth + 1)

    def _units(self, depth: int) -> Counts:
        """By domain of a layer's level: segments of the next layer that fit, or pods."""
        level = self.layers[depth].level
        if depth + 1 == len(self.layers):
            return self._counts.of(level)
        return self._sum(self._whole[depth + 1], level, depth + 1)

    def _open(self, depth: int, whole: Counts) -> Counts:
        layer, barred = self.layers[depth], self.barred[depth]
        labelled = self.tree.labelled[layer.level]
        if not labelled.all():
            whole = np.where(labelled, whole, 0)
        if barred is not None:
            whole = np.where(barred, 0, whole)
        if depth == 0 and self._limit is not None and len(self._used) >= self._limit:
            limited = np.zeros_like(whole)
            limited[self._used] = whole[self._used]
            whole = limited
        if layer.exclusive is Exclusive.KIND and not layer.counts:
            whole = np.minimum(whole, 1)
        return whole

    def _takes(self, inside: Domain, depth: int) -> bool:
        """Whether the domain of a layer's level around a domain takes a segment of it."""
        layer, barred = self.layers[depth], self.barred[depth]
        around = self.tree.ancestor(inside, layer.level).index
        return bool(self.tree.labelled[layer.level][around]) and not (barred is not None and barred[around])

    def _total(self, inside: Domain, depth: int) -> int:
        if depth == len(self.layers):
            return self._counts.inside(inside)
        first, end = self.tree.within(inside, self.layers[depth].level)
        return int(self._whole[depth][first:end].sum())

    def _beside(self, depth: int, rest: int) -> Counts:
        """Whole segments that fit in each domain beside a smaller one; -1 where even that does not."""
        layer = self.layers[depth]
        if depth + 1 == len(self.layers):
            free = self._counts.of(layer.level) - rest
            found = free // layer.size
        else:
            number, inner = divmod(rest, self._unit(depth + 1))
            units = self._units(depth) - number
            if inner:
                beside = self._beside(depth + 1, inner)
                cost = np.where(beside < 0, _NEVER, self._whole[depth + 1] - beside)
                units = units - self._least(cost, layer.level, depth + 1)
            found, free = units // self._each(depth), units
        found = np.where(free < 0, -1, found)
        opened = self._open(depth, np.ones(len(found), dtype=np.int64)) > 0
        if layer.exclusive is Exclusive.KIND:
            found = np.minimum(found, 0)
        return np.where(opened, found, -1)

    def _domains(
        self, inside: Domain, depth: int, number: int, rest: int, strategy: Strategy, means: MeanScores | None
    ) -> list[tuple[Domain, int]] | None:
        """The domains of a layer for so many segments and a smaller one, with their pods; that one last."""
        layer, tree = self.layers[depth], self.tree
        first, end = tree.within(inside, layer.level)
        order = np.arange(first, end)
        if rest or layer.spread:
            order = _best_first(layer.level, first, end, means)
        whole = self._whole[depth][order]
        if not rest:
            limited = depth == 0 and self._limit is not None
            most = self._together(inside.level, depth)[inside.index] if limited else whole.sum()
            if int(most) < number:
                return None
            if layer.spread:
                return _in_order(evenly(whole, number), layer, order)
            shares = self._beside_used(inside, number) if depth == 0 else {}
            left = number - sum(shares.values())
            rest_of = _Only(tree, self._whole[depth], self._used) if shares else self
            for domain, count in fewest(rest_of, inside, layer.level, left, strategy, means) if left else ():
                shares[domain] = count
            return sorted((domain, count * layer.size) for domain, count in shares.items())
        beside = self._beside(depth, rest)[order]
        free = self._units(depth)[order]
        last = for_the_smaller(whole, beside, free, number, spread=layer.spread)
        if last is None:
            return None
        index, own = last.index, last.whole
        others = whole.copy()
        others[index] = 0
        left = number - own
        if layer.spread:
            chosen = _in_order(evenly(others, left), layer, order)
        else:
            rest_of = _Only(tree, self._whole[depth], order[[index]])
            found = fewest(rest_of, inside, layer.level, left, strategy, means) if left else []
            chosen = sorted((domain, count * layer.size) for domain, count in found)
        return [*chosen, (Domain(layer.level, int(order[index])), own * layer.size + rest)]

    def _beside_used(self, inside: Domain, number: int) -> dict[Domain, int]:
        """Where domains are limited, what goes to those that are in use before any other is."""
        layer, shares = self.layers[0], dict[Domain, int]()
        if self._limit is None:
            return shares
        first, end = self.tree.within(inside, layer.level)
        for index in self._used[(self._used >= first) & (self._used < end)].tolist():
            count = min(int(self._whole[0][index]), number - sum(shares.values()))
            if count:
                shares[Domain(layer.level, index)] = count
        return shares

    def _below(self, level: int) -> int | None:
        """The coarsest layer of a finer level than this one."""
        return next((i for i, layer in enumerate(self.layers) if layer.level > level), None)

    def _first_positions(self, level: int) -> Ints:
        if level == self.tree.node_level:
            return np.arange(self.tree.size)
        return self.tree.bounds[level][:-1]

    def _together(self, level: int, depth: int) -> Counts:
        """By domain of a level: segments of a layer that it holds, in so many domains as there may be."""
        whole = self._whole[depth]
        if depth or self._limit is None:
            return self._sum(whole, level, depth)
        starts = self.tree.first_inside(level, self.layers[0].level)
        if not len(starts):
            return np.zeros(0, dtype=np.int64)
        others = whole.copy()
        others[self._used] = 0
        owner = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(whole))))
        ordered = others[np.lexsort((-others, owner))]
        place = np.arange(len(whole)) - starts[owner]
        ordered[place >= max(self._limit - len(self._used), 0)] = 0
        sums: Counts = np.add.reduceat(ordered, starts) + np.add.reduceat(whole - others, starts)
        return sums

    def _sum(self, figures: Counts, level: int, depth: int) -> Counts:
        starts = self.tree.first_inside(level, self.layers[depth].level)
        sums: Counts = np.add.reduceat(figures, starts) if len(starts) else np.zeros(0, dtype=np.int64)
        return sums

    def _least(self, figures: Counts, level: int, depth: int) -> Counts:
        starts = self.tree.first_inside(level, self.layers[depth].level)
        least: Counts = np.minimum.reduceat(figures, starts) if len(starts) else np.zeros(0, dtype=np.int64)
        return least


class _Only:
    """Figures of one level without some of its domains."""

    def __init__(self, tree: Tree, figures: Counts, left_out: Ints) -> None:
        self.tree = tree
        self._figures = figures.copy()
        self._figures[left_out] = 0

    def of(self, level: int) -> Counts:
        """Those figures."""
        return self._figures


def _best_first(level: int, first: int, end: int, means: MeanScores | None) -> Ints:
    """Some domains of a level by their mean scores, so that of equal ones the best is taken."""
    domains = np.arange(first, end)
    scores = None if means is None else means(level, domains)
    return domains if scores is None else domains[np.argsort(-scores, kind="stable")]


def _in_order(shares: Counts, layer: TreeLayer, domains: Ints) -> list[tuple[Domain, int]]:
    """The domains that take a share, in the order of the tree."""
    used = np.flatnonzero(shares)
    taken = zip(domains[used].tolist(), shares[used].tolist(), strict=True)
    return [(Domain(layer.level, index), count * layer.size) for index, count in sorted(taken)]
