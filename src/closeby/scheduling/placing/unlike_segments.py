"""Places unequal pods in segments: the largest segments first, into the fewest domains that hold them.

Domain after domain is filled: each time the one that takes the most of what is left, and of equal ones the
tightest. Where segments are alike, as a leader with its workers each time, no other choice needs fewer
domains or finds room for more. What unlike segments leave over is tried once more, each in the domain where
it leaves least.
"""

from collections.abc import Generator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Bools, Counts, Floats, Ints
from closeby.objects.groups import Exclusive, Strategy
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import NodeSet, Part, SearchedPart
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.counted_segments import Proposes, SegmentedPart
from closeby.scheduling.placing.domain_fits import DomainFits, SegmentCounts, classes_of, least_kind
from closeby.scheduling.placing.segment_room import SegmentRoom
from closeby.scheduling.placing.segment_rules import SegmentAttempt, SegmentRules
from closeby.scheduling.solving.program import Verdict
from closeby.topology.tree import Domain, Tree

#: Domains that are filled with unlike segments to compare how many they take.
TRIED: Final = 4
#: Kinds of segments for which a domain has no room until no others are tried there.
REFUSED: Final = 8
#: By how much sums of amounts in floating point may be wrong.
_ROUNDING: Final = 1e-9


class _Segment(Struct, frozen=True, eq=False):
    """A segment of one layer, with those of the next layer in it."""

    #: Pods of each class, (K,), and their places in the part, in the order of their numbers.
    counts: Counts
    pods: Ints
    inner: "tuple[_Segment, ...]"
    #: What it is called where equal ones are tried once.
    kind: tuple[bytes, ...]


class UnlikeSegments:
    """Places a part of unequal pods on one statement, with all its layers followed."""

    def __init__(
        self,
        attempt: SegmentAttempt,
        rules: SegmentRules,
        part: Part,
        layering: Layering,
        scope: NodeSet,
        demand: Sequence[Share],
    ) -> None:
        self._attempt = attempt
        self._tools = attempt.tools
        self._rules = rules
        self._part = part
        self._layering = layering
        self._scope = scope
        self._demand = demand
        self._classes = classes_of(part.core, demand)
        self._segments = self._made(0, np.argsort(part.numbers[: len(part.core)], kind="stable"))

    def ways(self, proposes: Proposes) -> Generator[None, None, bool]:
        """Each step places the part in another way; returns whether there certainly is no other."""
        part, tree, certain = self._part, self._layering.tree, True
        first, statement = self._layering.layers[0], self._attempt.statement
        if first.exclusive is not Exclusive.NONE and len(part.core) % max(first.size, 1):
            return False  # A smaller segment may need room for members that come later.
        fits: DomainFits | None = None
        candidates = proposes(self._view())
        for candidate in (None,) if candidates is None else candidates:
            capacity = self._tools.cluster.capacity
            inside = self._scope if candidate is None else self._scope.narrowed(candidate, capacity)
            same = inside.mask is self._scope.mask and inside.tree in (None, tree)
            if fits is None or not same:
                level = self._layering.layers[-1].level
                fits = DomainFits(self._tools, self._demand, tree, level, inside)
            mark = statement.checkpoint()
            verdict = self._place(fits, inside)
            if verdict is Verdict.FEASIBLE:
                self._attempt.chosen[part.name] = (candidate, self._scope)
                yield
            certain &= verdict is Verdict.INFEASIBLE
            statement.rollback(mark)
            fits = fits if same else None
        return certain

    def _view(self) -> SearchedPart:
        """What plugins see of the part: how many segments fit at the most, by what all have in common."""
        part, layering, attempt = self._part, self._layering, self._attempt
        kind = least_kind(part, layering, self._demand)
        table, state = self._tools.table, attempt.statement.state
        if kind is None or not kind.shares:
            sums, wanted = attempt.filler.sums, len(part.core)

            def most(tree: Tree, level: int) -> Counts:
                return np.minimum(sums.times(self._demand, tree, level, self._scope), 1) * wanted

            return SearchedPart(attempt.group, part, self._scope, self._demand, table, state, most)
        view = SegmentedPart(attempt.group, part, self._scope, self._demand, table, state)
        counts = SegmentCounts(self._tools, kind, layering.tree, layering.layers[-1].level, self._scope)
        used, barred = self._rules.used(part, layering), self._rules.barred(layering)
        room = SegmentRoom(layering, counts, barred, strict=True, used=used)
        view.follow(room, len(part.core) // kind.size * kind.size)
        return view

    def _place(self, fits: DomainFits, inside: NodeSet) -> Verdict:
        """Place all segments inside some nodes."""
        attempt, tree = self._attempt, self._layering.tree
        domain, layers = inside.domain_in(tree), self._layering.layers
        barred, used = self._rules.barred(self._layering), self._rules.used(self._part, self._layering)
        segments, depth = self._segments, 0
        while depth < len(layers) and layers[depth].level <= domain.level:
            # All are in the one domain of this layer around the nodes.
            around = tree.ancestor(domain, layers[depth].level)
            closed = barred[depth]
            if not tree.is_labelled(around) or (closed is not None and closed[around.index]):
                return Verdict.INFEASIBLE
            if layers[depth].exclusive is Exclusive.KIND and len(segments) > 1:
                return Verdict.INFEASIBLE
            segments, depth = tuple(inner for one in segments for inner in one.inner), depth + 1
        if depth == len(layers):
            fill = attempt.filler.fill
            done = fill(self._part.core, None, inside, attempt.group.strategy, attempt.budget)
            return Verdict.FEASIBLE if done else Verdict.UNDECIDED
        for program in (False, True):
            packing = _Packing(fits, self._layering, barred, used, attempt.group.strategy, program)
            left = packing.put(segments, depth, domain)
            if not left:
                break
        else:
            return Verdict.INFEASIBLE if self._refuted(packing, left, domain) else Verdict.UNDECIDED
        pods: dict[int, list[int]] = {}
        for index, segment in packing.placed:
            pods.setdefault(index, []).extend(segment.pods.tolist())
        for index, places in sorted(pods.items(), key=lambda one: min(self._part.numbers[one[1]])):
            if not attempt.budget.take_candidate():
                return Verdict.UNDECIDED
            members = [self._part.core[at] for at in places]
            home = Candidate(tree=tree, domain=Domain(layers[-1].level, index))
            if not attempt.filler.fill(members, home, inside, attempt.group.strategy, attempt.budget):
                return Verdict.UNDECIDED
        return Verdict.FEASIBLE

    def _refuted(self, packing: "_Packing", left: Sequence[_Segment], inside: Domain) -> bool:
        """Whether there is certainly no room for what is left: all are alike, or one has no domain at all."""
        alike = len({one.kind for one in self._segments}) == 1
        inner = {one.kind for segment in self._segments for one in _finest(segment)}
        if alike and len(inner) == 1 and not packing.doubtful:
            return True
        return any(packing.fits_nowhere(one, inside) for one in left)

    def _made(self, depth: int, own: Ints) -> tuple[_Segment, ...]:
        """The segments of a layer among some pods, the largest first."""
        ids = self._layering.ids(self._part.numbers[own], depth + 1)[-1]
        found = []
        for segment in dict.fromkeys(ids.tolist()):
            pods = own[ids == segment]
            counts = np.bincount(self._classes[pods], minlength=len(self._demand))
            inner = self._made(depth + 1, pods) if depth + 1 < len(self._layering.layers) else ()
            kind = (counts.tobytes(), *(name for one in inner for name in one.kind))
            found.append(_Segment(counts, pods, inner, kind))
        return tuple(found)


def _finest(segment: _Segment) -> list[_Segment]:
    return [one for inner in segment.inner for one in _finest(inner)] if segment.inner else [segment]


class _Packing:
    """Segments by domain, before any pod is placed."""

    def __init__(
        self,
        fits: DomainFits,
        layering: Layering,
        barred: Sequence[Bools | None],
        used: Ints | None,
        strategy: Strategy,
        program: bool,
    ) -> None:
        """``used``: domains of the coarsest layer that hold segments, where it limits how many may.

        Without a ``program`` only best fit is asked.
        """
        self._fits = fits
        self._tree = layering.tree
        self._layers = layering.layers
        self._barred = barred
        self._used: list[int] = [] if used is None else used.tolist()
        self._program = program
        self._roomiest = strategy is Strategy.SPREAD
        #: Pods of each kind in each domain of the finest layer, and the segments there.
        self._taken: dict[int, Counts] = {}
        self.placed: list[tuple[int, _Segment]] = []
        #: What is left of the sums of each domain of the finest layer.
        self._left = fits.held.copy()
        total = self._left.sum(axis=1)
        #: What an amount of each resource, or a pod of each kind, counts for: the scarcer it is, the more.
        self._weights = np.where(np.isfinite(total) & (total > 0), 1.0 / np.maximum(total, 1.0), 0.0)
        self._asked: dict[tuple[bytes, ...], Floats] = {}
        #: Whether it is not certain that a segment does not fit where it found no room.
        self.doubtful = False

    def put(self, segments: Sequence[_Segment], depth: int, inside: Domain) -> list[_Segment]:
        """Put segments of a layer into domains inside another one; returns those that find none."""
        largest_first = sorted(segments, key=lambda one: -self._size(one))
        mark, used, spread = len(self.placed), list(self._used), self._layers[depth].spread
        best: tuple[list[_Segment], list[tuple[int, _Segment]], list[int]] | None = None
        for one_by_one in (spread, not spread):
            if one_by_one and not spread and len({one.kind for one in segments}) == 1:
                break
            open_ = self._open(depth, inside)
            if one_by_one:
                left = self._one_by_one(largest_first, depth, open_, spread=spread)
            else:
                left = self._together(largest_first, depth, open_)
            if not left:
                return left
            if best is None or len(left) < len(best[0]):
                best = left, self.placed[mark:], self._used
            self._take_back(mark)
            self._used = list(used)
        assert best is not None
        for domain, segment in best[1]:
            self._add(domain, segment)
        self._used = best[2]
        return best[0]

    def _together(self, left: list[_Segment], depth: int, open_: Ints) -> list[_Segment]:
        """Fill one domain after another; returns the segments that find no room."""
        seen = np.full(self._tree.count(self._layers[depth].level), np.inf)
        while left and (found := self._best(left, depth, open_, seen)) is not None:
            domain, left = found
            seen[domain] = 0.0
            open_ = self._without(open_, domain, depth)
        return left

    def fits_nowhere(self, segment: _Segment, inside: Domain) -> bool:
        """Whether a domain certainly holds some finest segment of it in no domain at all."""
        level = self._layers[-1].level
        first, end = self._tree.within(inside, level)
        for one in _finest(segment):
            enough = (self._fits.held[:, first:end] + _ROUNDING >= self._fits.asks(one.counts)[:, None]).all(
                axis=0
            )
            if all(
                self._fits.fit(domain, one.counts, program=self._program) is Verdict.INFEASIBLE
                for domain in (np.flatnonzero(enough) + first).tolist()
            ):
                return True
        return False

    # One domain after another

    def _best(
        self, left: Sequence[_Segment], depth: int, open_: Ints, seen: Floats
    ) -> tuple[int, list[_Segment]] | None:
        """Fill the domain that takes the most of what is left; returns it, and what is left then.

        ``seen``: what each domain took when it was tried last, which is not exceeded by what is left later.
        """
        most, tight = self._most(left, depth, open_)
        far = self._far(depth, open_)
        np.minimum(most, seen[open_], out=most)
        best: tuple[float, int, list[tuple[int, _Segment]], list[_Segment]] | None = None
        mark, tried, unlike = len(self.placed), 0, len({one.kind for one in left}) > 1
        while len(most) and not (unlike and best is not None and tried >= TRIED):
            highest = most.max()
            if highest <= 0 or (best is not None and highest <= best[0] * (1 + _ROUNDING)):
                break
            equal = np.flatnonzero(most >= highest * (1 - _ROUNDING))
            at = equal[np.lexsort((tight[equal], far[equal]))[0]]
            domain = int(open_[at])
            alike, tried = self._like(depth, domain, open_), tried + 1
            rest = self._fill(left, depth, domain)
            held = sum(self._size(segment) for _, segment in self.placed[mark:])
            if held > 0 and (best is None or held > best[0] * (1 + _ROUNDING)):
                best = held, domain, self.placed[mark:], rest
            self._take_back(mark)
            most[alike] = np.minimum(most[alike], held)
            seen[open_[alike]] = np.minimum(seen[open_[alike]], held)
        if best is None:
            return None
        for place, segment in best[2]:
            self._add(place, segment)
        return best[1], best[3]

    def _far(self, depth: int, open_: Ints) -> Ints:
        """At how many levels above its own each domain has no segment beside it yet."""
        level, tree = self._layers[depth].level, self._tree
        first = open_ if level == tree.node_level else tree.bounds[level][open_]
        finest, used = self._layers[-1].level, np.asarray([*self._taken], dtype=np.intp)
        held = used if finest == tree.node_level else tree.bounds[finest][used]
        far = np.zeros(len(open_), dtype=np.intp)
        for above in range(level) if len(used) else ():
            far += ~np.isin(tree.owners(first, above), tree.owners(held, above))
        return far

    def _like(self, depth: int, domain: int, open_: Ints) -> Bools:
        """Which domains take as much as one of them: it alone, or those of its kind that took nothing yet."""
        same: Bools = open_ == domain
        if depth + 1 < len(self._layers) or domain in self._taken:
            return same
        kinds = self._fits.kinds[1]
        untouched = ~np.isin(open_, np.asarray([*self._taken], dtype=np.intp))
        alike: Bools = same | ((kinds[open_] == kinds[domain]) & untouched)
        return alike

    def _one_by_one(
        self, left: Sequence[_Segment], depth: int, open_: Ints, *, spread: bool
    ) -> list[_Segment]:
        """Each segment to the domain where it leaves least, or, to ``spread``, to one with few of them."""
        rest: list[_Segment] = []
        held = dict.fromkeys(open_.tolist(), 0)
        for segment in left:
            most, tight = self._most([segment], depth, open_)
            number = np.array([held[one] for one in open_.tolist()])
            for at in np.lexsort((-np.abs(tight), number) if spread else (tight,)).tolist():
                domain = int(open_[at])
                if most[at] > 0 and not self._fill([segment], depth, domain):
                    held[domain] += 1
                    open_ = self._without(open_, domain, depth)
                    break
            else:
                rest.append(segment)
        return rest

    def _fill(self, segments: Sequence[_Segment], depth: int, domain: int) -> list[_Segment]:
        """Put segments into one domain as long as they fit; returns the others."""
        layer, finest = self._layers[depth], depth + 1 == len(self._layers)
        rest: list[_Segment] = []
        refused: set[tuple[bytes, ...]] = set()
        kinds = len({one.kind for one in segments})
        for at, segment in enumerate(segments):
            if len(refused) == min(kinds, REFUSED) or (layer.exclusive is Exclusive.KIND and len(rest) < at):
                return [*rest, *segments[at:]]
            if segment.kind in refused:
                rest.append(segment)
                continue
            if finest:
                done = self._fits_beside(domain, segment)
                if done:
                    self._add(domain, segment)
            else:
                mark = len(self.placed)
                done = not self.put(segment.inner, depth + 1, Domain(layer.level, domain))
                if not done:
                    self._take_back(mark)
            if not done:
                refused.add(segment.kind)
                rest.append(segment)
        return rest

    def _fits_beside(self, domain: int, segment: _Segment) -> bool:
        if (self._left[:, domain] * (1 + _ROUNDING) + _ROUNDING < self._asks(segment)).any():
            return False
        taken = self._taken.get(domain)
        counts = segment.counts if taken is None else taken + segment.counts
        verdict = self._fits.fit(domain, counts, program=self._program)
        self.doubtful |= verdict is Verdict.UNDECIDED
        return verdict is Verdict.FEASIBLE

    # Figures

    def _add(self, domain: int, segment: _Segment) -> None:
        self.placed.append((domain, segment))
        self._taken[domain] = self._taken.get(domain, 0) + segment.counts
        self._left[:, domain] -= self._asks(segment)

    def _take_back(self, mark: int) -> None:
        for domain, segment in self.placed[mark:]:
            rest = self._taken.pop(domain) - segment.counts
            if rest.any():
                self._taken[domain] = rest
            self._left[:, domain] += self._asks(segment)
        del self.placed[mark:]

    def _asks(self, segment: _Segment) -> Floats:
        known = self._asked.get(segment.kind)
        if known is None:
            known = self._asked[segment.kind] = self._fits.asks(segment.counts)
        return known

    def _size(self, segment: _Segment) -> float:
        return float(self._weights @ self._asks(segment))

    def _open(self, depth: int, inside: Domain) -> Ints:
        """The domains of a layer's level inside another one that take a segment."""
        layer, barred = self._layers[depth], self._barred[depth]
        found = np.arange(*self._tree.within(inside, layer.level))
        found = found[self._tree.labelled[layer.level][found]]
        if barred is not None:
            found = found[~barred[found]]
        if layer.exclusive is Exclusive.KIND and self._taken:
            held = np.asarray([*self._taken], dtype=np.intp)
            starts = self._tree.first_inside(layer.level, self._layers[-1].level)
            found = found[~np.isin(found, starts.searchsorted(held, side="right") - 1)]
        return self._within_limit(found, depth)

    def _without(self, open_: Ints, domain: int, depth: int) -> Ints:
        """The domains that take more segments once one took some."""
        if depth == 0 and domain not in self._used:
            self._used.append(domain)
        if self._layers[depth].exclusive is Exclusive.KIND:
            open_ = open_[open_ != domain]
        return self._within_limit(open_, depth)

    def _within_limit(self, open_: Ints, depth: int) -> Ints:
        most = self._layers[0].max_domains
        if depth or most is None or len(self._used) < most:
            return open_
        return open_[np.isin(open_, self._used)]

    def _most(self, segments: Sequence[_Segment], depth: int, open_: Ints) -> tuple[Floats, Floats]:
        """How much of some segments each domain takes at the most, by sums, and how tight it is."""
        level, finest = self._layers[depth].level, self._layers[-1].level
        left = self._left
        if level != finest:
            left = np.add.reduceat(left, self._tree.first_inside(level, finest), axis=1)
        left = left[:, open_] * (1 + _ROUNDING) + _ROUNDING
        asked = np.sort(np.stack([self._asks(one) for one in segments], axis=1), axis=1).cumsum(axis=1)
        number = np.full(len(open_), len(segments))
        for row in np.flatnonzero(asked[:, -1]).tolist():
            np.minimum(number, asked[row].searchsorted(left[row], side="right"), out=number)
        sizes = np.sort([self._size(one) for one in segments])[::-1].cumsum()
        room = self._weights @ np.where(self._weights[:, None] > 0, left, 0.0)
        return np.append(0.0, sizes)[number], -room if self._roomiest else room
