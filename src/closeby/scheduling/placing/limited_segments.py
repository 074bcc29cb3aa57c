"""Places equal pods in segments where a hard spread among them limits how many each of its domains takes.

The spread holds for the gang as a whole: segments are shared out over its domains by how many pods these may
hold in the end, as pods without layers are (``limits``). What was placed is judged once more at last.
"""

from collections.abc import Generator
from itertools import accumulate

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.arrays import Counts, Ints
from closeby.objects.groups import Strategy
from closeby.scheduling.by_domain import DomainLimit, DomainMask
from closeby.scheduling.gangs.parts import NodeSet, Part, scoped_fits
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.judging.pod_classes import Share, masks_of
from closeby.scheduling.placing.counted_segments import CountedSegments, Proposes, SegmentRun
from closeby.scheduling.placing.limits import DomainBounds, bounds, capped, finest_first, room_of
from closeby.scheduling.placing.packing import evenly
from closeby.scheduling.placing.segment_room import SegmentRoom
from closeby.scheduling.placing.segment_rules import SegmentAttempt, SegmentRules


class _Caps(Struct, frozen=True, eq=False):
    """What the limits say of pods that are all inside some nodes."""

    #: The most that domains may hold in the end, by the place of the mask; the finest domains first.
    ceilings: tuple[tuple[int, Counts], ...] = ()
    #: The mask of the spread over which segments are shared out, and its domain (a code, -1: none takes a
    #: pod) around each domain of the coarsest layer; None: no segment is whole in a domain of any spread.
    shared_out: tuple[int, Ints] | None = None


class LimitedSegments(CountedSegments):
    """Places a part of equal pods on one statement so that the limits of their own terms hold in the end."""

    def __init__(self, attempt: SegmentAttempt, rules: SegmentRules) -> None:
        super().__init__(attempt, rules)
        self._masks: list[DomainMask] = []
        self._caps = _Caps()
        #: Whether all ways that failed certainly could not do.
        self._exact = True

    def limited_ways(
        self, part: Part, layering: Layering, scope: NodeSet, proposes: Proposes
    ) -> Generator[None, None, bool]:
        """Each step places the part in another way, with all layers followed.

        Returns whether there certainly is no other way; else a search may find one.
        """
        (share,) = self._table.beside_each_other(part.core)
        masks = masks_of(self._table.domain_filters, share.pods[0])
        self._masks = [mask for mask in masks if mask.closes is not False]
        limits = self._limits()
        if len(limits) < len(self._masks) or all(limit.eligible is None for limit in limits):
            return False
        if any(layer.counts for layer in layering.layers) or share.reaches_beyond:
            return False
        if share.pod_class.blind_filters or not all(mask.allowed().any() for mask in masks):
            return False
        wanted = len(part.core)
        fits = scoped_fits(self._table, share.pod_class, scope, self._cluster.capacity)
        if any(bounds(limit, room_of(limit, fits), wanted) is None for limit in limits):
            return True  # Without layers they would not fit either.
        self._caps = self._caps_of(share, layering, scope, wanted)
        self._exact = len(limits) == 1 and not part.anchors and not layering.prefers
        self._exact &= layering.layers[0].max_domains is None and self._caps.shared_out is not None
        for _ in self.ways(part, layering, scope, share, proposes, strict=True):
            if self._hold(part):
                yield
            else:
                self._exact = False
        return self._exact

    def _limits(self) -> list[DomainLimit]:
        return [limit for mask in self._masks if (limit := mask.limit()) is not None]

    def _caps_of(self, share: Share, layering: Layering, inside: NodeSet, wanted: int) -> _Caps:
        fits = scoped_fits(self._table, share.pod_class, inside, self._cluster.capacity)
        limits = self._limits()
        ceilings: list[tuple[int, Counts]] = []
        shared_out: tuple[int, Ints] | None = None
        for limit in finest_first(limits):
            place = limits.index(limit)
            if limit.eligible is None:
                ceiling = np.ones(len(limit.counts), dtype=np.int64)
                ceiling[0] = limit.counts[0] + wanted
                ceilings.append((place, ceiling))
                continue
            around = None if shared_out is not None else _around(limit, layering, fits)
            if around is not None:
                shared_out = place, around
                continue
            between = bounds(limit, room_of(limit, fits), wanted)
            if between is not None:
                ceilings.append((place, between.most + limit.counts))
        return _Caps(tuple(ceilings), shared_out)

    def _place(self, run: SegmentRun, room: SegmentRoom | None, *, strict: bool) -> bool:
        if run.depth or not strict:
            return super()._place(run, room, strict=strict)
        self._caps = self._caps_of(run.share, run.layering, run.inside, len(run.pods))
        if self._caps.shared_out is None:
            self._exact = False
            return super()._place(run, None, strict=strict)
        runs = self._divided(run, *self._caps.shared_out)
        return runs is not None and all(self._share_out(one, self._room(one, strict=True)) for one in runs)

    def _divided(self, run: SegmentRun, place: int, around: Ints) -> list[SegmentRun] | None:
        """The segments that go to each domain of a spread; None if they can't be shared out over these."""
        limit, layer = self._limits()[place], run.layering.layers[0]
        _, sizes = np.unique(run.layering.ids(run.numbers, 1)[0], return_counts=True)
        if not bool((sizes[:-1] == layer.size).all()):
            self._exact = False  # Of the members of several segments some have done their work.
            return None
        found = _bounds_of_segments(limit, self._room(run, strict=True), around, len(run.pods))
        if found is None:
            return None
        between, last = found
        number, rest = divmod(len(run.pods), layer.size)
        shares = self._segments_each(between, number, spread=layer.spread) * layer.size
        shares[last] += rest
        # In the order of the nodes, so that segments which follow one another are near; the smaller one last.
        codes = list(dict.fromkeys(around[around >= 0].tolist()))
        used = sorted([code for code in codes if shares[code]], key=lambda code: bool(rest) and code == last)
        ends = list(accumulate(int(shares[code]) for code in used))
        runs = []
        for code, first, end in zip(used, [0, *ends], ends, strict=False):
            mask = np.zeros(self._cluster.capacity, dtype=np.bool_)
            mask[limit.codes == code] = True
            if run.inside.mask is not None:
                mask &= run.inside.mask
            inside = NodeSet(run.inside.tree, run.inside.domain, mask)
            numbers = run.numbers[first:end]
            runs.append(
                replace(run, pods=run.pods[first:end], numbers=numbers, inside=inside, wanted=end - first)
            )
        return runs

    def _segments_each(self, between: DomainBounds, number: int, *, spread: bool) -> Counts:
        """So many segments between bounds: in few domains, or evenly."""
        more = between.most - between.least
        left = number - int(between.least.sum())
        if spread or self._group.strategy is Strategy.SPREAD:
            return between.least + evenly(more, left)
        order = np.lexsort((-more, between.least == 0))
        before = np.cumsum(more[order]) - more[order]
        chosen = between.least.copy()
        chosen[order] += np.clip(left - before, 0, more[order])
        return chosen

    def _hold(self, part: Part) -> bool:
        """Whether all limits hold with what is placed of a part."""
        where = {pod.uid: slot for pod, slot in self._statement.state.placed}
        slots = np.asarray([where[pod.uid] for pod in part.core if pod.uid in where], dtype=np.intp)
        return all(_keep(limit, limit.counts, limit.codes[slots].astype(np.intp)) for limit in self._limits())

    def _at_once(self, share: Share) -> bool:
        return True  # Scores that depend on what was just placed give way, as among pods without layers.

    def _counts(self, run: SegmentRun) -> DomainCounts:
        fits = scoped_fits(self._table, run.share.pod_class, run.inside, self._cluster.capacity)
        limits = self._limits()
        for place, ceiling in self._caps.ceilings:
            most = np.maximum(ceiling - limits[place].counts, 0)
            fits = capped(limits[place], fits, most, run.layering.tree.slot_at)
        return DomainCounts(run.layering.tree, fits)


def _keep(limit: DomainLimit, counts: Counts, used: Ints) -> bool:
    """Whether domains that took pods keep a limit while all domains hold so many."""
    if limit.eligible is None:
        return bool((counts[used[used > 0]] <= 1).all())
    enough = int(limit.eligible.sum()) >= max(limit.min_domains, 1)
    least = int(counts[limit.eligible].min()) if enough else 0
    return bool(((used > 0) & (counts[used] - least <= limit.max_skew)).all())


def _around(limit: DomainLimit, layering: Layering, fits: Counts) -> Ints | None:
    """The domain of a limit around each domain of the coarsest layer; None where some are not inside one."""
    tree, level = layering.tree, layering.layers[0].level
    positions = np.flatnonzero(fits[tree.slot_at] > 0)
    owners, codes = tree.owners(positions, level), limit.codes[tree.slot_at[positions]]
    around = np.full(tree.count(level), -1, dtype=np.intp)
    around[owners] = codes
    return around if bool((around[owners] == codes).all()) else None


def _bounds_of_segments(
    limit: DomainLimit, room: SegmentRoom, around: Ints, pods: int
) -> tuple[DomainBounds, int] | None:
    """Bounds of whole segments for each domain of a limit, and the domain of a smaller one (0: for none).

    ``around``: the domain around each domain of the coarsest layer. None: they can't be shared out.
    """
    layer, known = room.layers[0], around >= 0
    segments = np.zeros(len(limit.counts), dtype=np.int64)
    np.add.at(segments, around[known], room.of(layer.level)[known])
    number, rest = divmod(pods, layer.size)
    if not rest:
        found = bounds(limit, segments, number, layer.size)
        return None if found is None else (found, 0)
    cost = room.cost_of(rest)
    cheapest = np.full(len(segments), cost.max(initial=0))
    np.minimum.at(cheapest, around[known], cost[known])
    beside = segments - cheapest
    # Of domains that are alike one is tried, the emptiest first.
    eligible = np.zeros(len(segments)) if limit.eligible is None else limit.eligible
    _, kinds = np.unique(np.stack([limit.counts, segments, beside, eligible]), axis=1, return_index=True)
    for code in kinds[np.argsort(limit.counts[kinds], kind="stable")].tolist():
        if not code or beside[code] < 0:
            continue
        counts, left = limit.counts.copy(), segments.copy()
        counts[code] += rest
        left[code] = beside[code]
        lowest = int(counts[code]) - limit.max_skew
        found = bounds(replace(limit, counts=counts), left, number, layer.size, lowest)
        if found is not None:
            return found, code
    return None
