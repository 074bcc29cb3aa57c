"""Places equal pods in segments, by counting how many segments domains hold.

Hard limits among the pods (a spread, one to a node) hold for the gang as a whole: they are ceilings of what
is counted (``limits``), or segments are shared out over their domains first. What was placed is judged by
them once more at last.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import accumulate
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.arrays import Counts, Ints
from closeby.objects.groups import Exclusive, Strategy
from closeby.objects.pods import Pod
from closeby.scheduling.by_domain import DomainMask
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import (
    NodeSet,
    Part,
    SearchedPart,
    mean_scores,
    scoped_counts,
    scoped_fits,
)
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.descent import descend
from closeby.scheduling.placing.limits import (
    Ceilings,
    DomainBounds,
    bounds,
    bounds_of_segments,
    ceilings_of,
    keeps,
    limit_of,
    room_of,
)
from closeby.scheduling.placing.packing import evenly, first_of
from closeby.scheduling.placing.segment_room import SegmentRoom
from closeby.scheduling.placing.segment_rules import SegmentAttempt, SegmentRules, running
from closeby.scheduling.solving.program import Verdict
from closeby.topology.tree import ROOT, Domain, Tree

#: Proposes candidates for a part inside a scope, by what the part sees of its room.
Proposes = Callable[[SearchedPart], Iterable[Candidate] | None]

_NO_CEILINGS: Final = Ceilings()


class SegmentedPart(SearchedPart):
    """What plugins see of a part with layers: room counts only as far as segments are whole."""

    _room: SegmentRoom | None = None

    def follow(self, room: SegmentRoom, wanted: int) -> None:
        """Count by segments; ``wanted``: pods for which there is to be room."""
        self._room = room
        self.needed = self.wanted = wanted

    def room(self, tree: Tree, level: int) -> Counts:
        if self._room is None or tree is not self._room.tree:
            return super().room(tree, level)
        return self._room.room(level, self.needed)

    def pieces(self, tree: Tree, level: int) -> Counts | None:
        if self._room is None or tree is not self._room.tree:
            return None
        return self._room.pieces(level, self.needed)


class _Pinned(Struct, frozen=True, eq=False):
    """Members that wait, of which others in their domain run already, or whose segments have none yet.

    ``bound``: the domain that they may not leave, where those of layers are only preferred.
    """

    depth: int
    domain: Domain
    bound: Domain
    members: Ints


class _Run(Struct, frozen=True, eq=False):
    """Pods, in the order of their numbers, that go to segments of one layer inside some nodes."""

    pods: tuple[Pod, ...]
    numbers: Ints
    inside: NodeSet
    depth: int
    #: Pods for which there is to be room: more than there are where members come later.
    wanted: int
    ceilings: Ceilings


class CountedSegments:
    """Places a part of equal pods on one statement; it finds a way wherever there is one."""

    def __init__(
        self,
        attempt: SegmentAttempt,
        rules: SegmentRules,
        part: Part,
        layering: Layering,
        scope: NodeSet,
        share: Share,
        masks: Sequence[DomainMask],
    ) -> None:
        """``masks``: those by which the pods limit each other."""
        self._attempt = attempt
        self._capacity = attempt.tools.cluster.capacity
        self._table = attempt.tools.table
        self._strategy = attempt.group.strategy
        self._statement = attempt.statement
        self._rules = rules
        self._part = part
        self._layering = layering
        self._tree = layering.tree
        self._scope = scope
        self._share = share
        self._masks = masks
        self._ceilings = _NO_CEILINGS

    def ways(self, proposes: Proposes, *, strict: bool) -> Generator[None, None, bool]:
        """Each step places the part in another way; unless ``strict``, preferred layers as far as can be.

        Returns whether there certainly is no other way.
        """
        part, layering, first = self._part, self._layering, self._layering.layers[0]
        certain = True
        if self._masks:
            wanted = len(part.core)
            fits = scoped_fits(self._table, self._share.pod_class, self._scope, self._capacity)
            limits = map(limit_of, self._masks)
            if any(bounds(limit, room_of(limit, fits), wanted) is None for limit in limits):
                return True  # Without layers they would not fit either.
            self._ceilings = self._ceilings_of(self._scope, wanted)
            certain = self._ceilings.exact and first.max_domains is None
            certain &= not (len(part.anchors) or layering.prefers)
        mark = self._statement.checkpoint()
        free = np.arange(len(part.core), dtype=np.intp)
        if len(part.anchors):
            left = self._beside_those_that_run(strict=strict)
            if left is None:
                self._statement.rollback(mark)
                return certain
            free = left
        if len(free):
            run = self._run(free, self._scope)
            # A segment with a domain for itself has room there for members that come later, if that can be.
            wanted = -(-run.wanted // max(first.size, 1)) * first.size
            if first.remainder and first.exclusive is not Exclusive.NONE and strict and wanted > run.wanted:
                ample = replace(run, wanted=wanted)
                certain &= yield from self._in_candidates(ample, proposes, strict=strict)
            certain &= yield from self._in_candidates(run, proposes, strict=strict)
        elif self._hold():
            self._attempt.chosen[part.name] = (None, self._scope)
            yield
        self._statement.rollback(mark)
        return certain

    def _in_candidates(self, run: _Run, proposes: Proposes, *, strict: bool) -> Generator[None, None, bool]:
        part, layering, scope, certain = self._part, self._layering, self._scope, True
        rest = replace(part, core=run.pods, extra=())
        demand = (Share(self._share.pod_class, run.pods),)
        view = SegmentedPart(self._attempt.group, rest, scope, demand, self._table, self._statement.state)
        used = self._rules.used(part, layering)
        room = self._room(run, strict=strict, used=used)
        view.follow(room, run.wanted)
        candidates = proposes(view)
        for candidate in (None,) if candidates is None else candidates:
            if not self._attempt.budget.take_candidate():
                return False
            self._attempt.chosen[part.name] = (candidate, scope)
            inside = scope if candidate is None else scope.narrowed(candidate, self._capacity)
            before = self._statement.checkpoint()
            narrowed = replace(run, inside=inside)
            same = inside.mask is scope.mask and inside.tree in (None, self._tree)
            known = room if same else None
            if used is not None and known is None:
                known = self._room(narrowed, strict=strict, used=used)
            verdict = self._place(narrowed, known, strict=strict)
            if verdict is Verdict.FEASIBLE:
                if self._rules.in_few(part, layering) and self._hold():
                    yield
                else:  # Only a smaller last segment, or a preferred layer, is not counted exactly.
                    verdict = Verdict.UNDECIDED
            certain &= verdict is not Verdict.UNDECIDED
            self._statement.rollback(before)
        return certain

    # Beside members that run

    def _beside_those_that_run(self, *, strict: bool) -> Ints | None:
        """Places what belongs to segments of which some run; the members of all others, None: no room."""
        part, layering, tree = self._part, self._layering, self._tree
        numbers = np.concatenate([part.numbers[: len(part.core)], running(part)])
        ids = layering.ids(numbers)
        members, slots = len(part.core), np.asarray(part.anchors, dtype=np.intp)
        pinned: list[_Pinned] = []
        free: list[_Pinned] = []

        def sort_out(depth: int, domain: Domain, bound: Domain, own: Ints) -> None:
            """``own``: members and those that run (from ``members`` on) of one segment of the layer above."""
            waiting = own[own < members]
            if not len(waiting):
                return
            if depth == len(layering.layers):
                pinned.append(_Pinned(depth, domain, bound, waiting))
                return
            layer = layering.layers[depth]
            without = []
            for segment in np.unique(ids[depth][waiting]).tolist():
                inside = own[ids[depth][own] == segment]
                runs = inside[inside >= members] - members
                if not len(runs):
                    without.append(inside)
                    continue
                owners = np.unique(tree.owners_of_slots(slots[runs], layer.level))
                if len(owners) == 1 and owners[0] >= 0:
                    own_domain = Domain(layer.level, int(owners[0]))
                    sort_out(depth + 1, own_domain, own_domain if strict or layer.required else bound, inside)
                else:  # Only a preferred layer comes here.
                    sort_out(depth + 1, domain, bound, inside)
            if without:
                free.append(_Pinned(depth, domain, bound, np.concatenate(without)))

        sort_out(0, ROOT, ROOT, np.arange(len(numbers), dtype=np.intp))
        top = np.zeros(0, dtype=np.intp)
        if not self._back(pinned):
            return None
        for one in sorted(free, key=lambda one: -one.depth):
            if one.depth == 0:
                top = one.members
            elif not self._near(one, strict=strict):
                return None
        return top

    def _near(self, one: _Pinned, *, strict: bool) -> bool:
        """Place segments of which no member runs, inside one of which some do, or as near as they may be."""
        mark = self._statement.checkpoint()
        for level in range(one.domain.level, one.bound.level - 1, -1):
            around = Candidate(tree=self._tree, domain=self._tree.ancestor(one.domain, level))
            run = self._run(one.members, self._scope.narrowed(around, self._capacity), one.depth)
            if self._place(run, None, strict=strict) is Verdict.FEASIBLE:
                return True
            self._statement.rollback(mark)
        return False

    def _back(self, lost: Sequence[_Pinned]) -> bool:
        """Place members of segments of which others run: there, or near where that is only preferred."""
        outward: list[_Pinned] = []
        for one in lost:
            inside = self._scope.narrowed(Candidate(tree=self._tree, domain=one.domain), self._capacity)
            run = self._run(one.members, inside)
            if one.bound != one.domain:
                fitting = min(len(one.members), self._counts(run).inside(inside.domain))
                outward.append(replace(one, members=one.members[fitting:]))
                run = self._run(one.members[:fitting], inside)
            if run.pods and not self._into(run, [(inside.domain, len(run.pods))]):
                return False
        # Others go as near as can be, once all that have room are back in their segments.
        for one in outward:
            inside = self._scope.narrowed(Candidate(tree=self._tree, domain=one.bound), self._capacity)
            run = self._run(one.members, inside)
            beside = Candidate(tree=self._tree, domain=one.bound, outward_from=one.domain)
            if run.pods and not self._fill(run.pods, beside, inside):
                return False
        return True

    # Whole segments

    def _place(self, run: _Run, room: SegmentRoom | None, *, strict: bool) -> Verdict:
        """Place whole segments (and perhaps a smaller last one) of a layer."""
        if strict and self._masks and not run.depth:
            return self._within_limits(run)
        if strict:
            return self._share_out(run, self._room(run, strict=True) if room is None else room)
        # As many segments as can be follow all layers, the others those that are required.
        layer = self._layering.layers[run.depth]
        if layer.size and layer.exclusive is not Exclusive.KIND:
            wished = self._room(run, strict=True)
            most = wished.most(run.inside.domain_in(self._tree), run.depth)
            count = min(most, len(run.pods) // layer.size) * layer.size
            first = _part_of(run, 0, count)
            if count and self._share_out(first, wished) is Verdict.FEASIBLE:
                run = _part_of(run, count, len(run.pods))
        return self._share_out(run, self._room(run, strict=False)) if run.pods else Verdict.FEASIBLE

    def _within_limits(self, run: _Run) -> Verdict:
        """The same where the pods limit each other: first the segments for each domain of a spread."""
        # Coarser domains than the one that holds the nodes hold no more than it does.
        inside = NodeSet(run.inside.tree, run.inside.domain, run.inside.allowed(self._capacity))
        run = replace(run, inside=inside, ceilings=self._ceilings_of(inside, len(run.pods)))
        room, shared_out = self._room(run, strict=True), run.ceilings.shared_out
        if shared_out is None:
            done = self._share_out(run, room)
            return done if done is Verdict.FEASIBLE or run.ceilings.exact else Verdict.UNDECIDED
        layer, (mask, around) = self._layering.layers[0], shared_out
        _, sizes = np.unique(self._layering.ids(run.numbers, 1)[0], return_counts=True)
        if not bool((sizes[:-1] == layer.size).all()):
            return Verdict.UNDECIDED  # Of the members of several segments some have done their work.
        limit, (number, rest) = limit_of(mask), divmod(len(run.pods), layer.size)
        whole, cost = room.of(layer.level), room.cost_of(rest) if rest else None
        found = bounds_of_segments(limit, around, whole, cost, layer.size, len(run.pods))
        if found is None:
            return Verdict.INFEASIBLE
        shares = self._segments_each(found[0], number, spread=layer.spread) * layer.size
        shares[found[1]] += rest
        # In the order of the nodes, so that segments which follow one another are near; the smaller one last.
        codes = list(dict.fromkeys(around[around >= 0].tolist()))
        used = sorted(
            [code for code in codes if shares[code]], key=lambda code: bool(rest) and code == found[1]
        )
        ends = list(accumulate(int(shares[code]) for code in used))
        for code, first, end in zip(used, [0, *ends], ends, strict=False):
            allowed = np.zeros(self._capacity, dtype=np.bool_)
            allowed[limit.codes == code] = True
            if inside.mask is not None:
                allowed &= inside.mask
            own = replace(_part_of(run, first, end), inside=NodeSet(inside.tree, inside.domain, allowed))
            done = self._share_out(own, self._room(own, strict=True))
            if done is not Verdict.FEASIBLE:
                return done
        return Verdict.FEASIBLE

    def _segments_each(self, between: DomainBounds, number: int, *, spread: bool) -> Counts:
        """So many segments between bounds: in few domains, or evenly."""
        more = between.most - between.least
        left = number - int(between.least.sum())
        if spread or self._strategy is Strategy.SPREAD:
            return between.least + evenly(more, left)
        order = np.lexsort((-more, between.least == 0))
        before = np.cumsum(more[order]) - more[order]
        chosen = between.least.copy()
        chosen[order] += np.clip(left - before, 0, more[order])
        return chosen

    def _share_out(self, run: _Run, room: SegmentRoom) -> Verdict:
        domain, depth = run.inside.domain_in(self._tree), room.depth_of(run.depth)
        exact = True
        if depth == len(room.layers):
            shares: Sequence[tuple[Domain, int]] | None = [(domain, len(run.pods))]
        else:
            means = mean_scores(self._table, self._statement.state, ((self._share, self._counts(run)),))
            layer = room.layers[depth]
            ids = self._layering.ids(run.numbers, room.followed[depth] + 1)[-1]
            _, sizes = np.unique(ids, return_counts=True)
            if not layer.counts and bool((sizes[:-1] == layer.size).all()) and sizes[-1] <= layer.size:
                shares = room.share_out(domain, depth, run.wanted, self._strategy, means)
                shares = None if shares is None else first_of(shares, len(run.pods))
            else:
                shares, exact = room.share_out_sizes(domain, depth, sizes.tolist(), self._strategy, means)
        if shares is not None and self._into(run, shares):
            return Verdict.FEASIBLE
        return Verdict.INFEASIBLE if exact else Verdict.UNDECIDED

    def _into(self, run: _Run, shares: Sequence[tuple[Domain, int]]) -> bool:
        """Place pods into domains that have room for them, in the order of both."""
        tree, strategy, pods = self._tree, self._strategy, run.pods
        # Within limits, scores that depend on what was just placed give way, as among pods without layers.
        if not self._masks and not self._attempt.filler.at_once(self._share):
            ends = list(accumulate(count for _, count in shares))
            return all(
                self._fill(pods[first:end], Candidate(tree=tree, domain=domain), run.inside)
                for (domain, _), first, end in zip(shares, [0, *ends], ends, strict=False)
            )
        counts = self._counts(run)
        wanted: dict[Domain, int] = {}
        for domain, count in shares:
            wanted[domain] = wanted.get(domain, 0) + count
        if len(wanted) == len(shares) and all(domain.level == tree.node_level for domain in wanted):
            nodes, takes = np.asarray([domain.index for domain in wanted]), np.asarray(list(wanted.values()))
            if bool((counts.of(tree.node_level)[nodes] < takes).any()):
                return False
            self._statement.assume(pods, np.repeat(tree.slot_at[nodes], takes))
            return True
        # Few nodes at a time are compared in each of many domains.
        asked = np.concatenate([tree.slots_in(domain) for domain in wanted]) if len(wanted) > 2 else None
        means = mean_scores(self._table, self._statement.state, ((self._share, counts),), asked)
        slots: dict[Domain, Ints] = {}
        for domain, count in wanted.items():
            if counts.inside(domain) < count:
                return False
            positions, takes = descend(counts, domain, count, strategy, means).in_topology_order()
            slots[domain] = np.repeat(tree.slot_at[positions], takes)
        used = dict.fromkeys(wanted, 0)
        found = []
        for domain, count in shares:
            found.append(slots[domain][used[domain] : used[domain] + count])
            used[domain] += count
        self._statement.assume(pods, np.concatenate(found))
        return True

    def _fill(self, pods: Sequence[Pod], candidate: Candidate, inside: NodeSet) -> bool:
        fill = self._attempt.filler.fill
        return fill(pods, candidate, inside, self._strategy, self._attempt.budget)

    # Figures

    def _hold(self) -> bool:
        """Whether all limits hold with what is placed of the part."""
        if not self._masks:
            return True
        where = {pod.uid: slot for pod, slot in self._statement.state.placed}
        slots = np.asarray([where[pod.uid] for pod in self._part.core if pod.uid in where], dtype=np.intp)
        return all(keeps(one, one.codes[slots].astype(np.intp)) for one in map(limit_of, self._masks))

    def _ceilings_of(self, inside: NodeSet, wanted: int) -> Ceilings:
        fits = scoped_fits(self._table, self._share.pod_class, inside, self._capacity)
        layers = self._layering.layers
        return ceilings_of(self._masks, fits, self._tree, layers[0].level, layers[-1].level, wanted)

    def _counts(self, run: _Run) -> DomainCounts:
        pod_class, capacity = self._share.pod_class, self._capacity
        if not run.ceilings.most:
            return scoped_counts(self._table, pod_class, self._tree, run.inside, capacity)
        fits = scoped_fits(self._table, pod_class, run.inside, capacity)
        return DomainCounts(self._tree, run.ceilings.applied(fits, self._tree.slot_at))

    def _room(self, run: _Run, *, strict: bool, used: Ints | None = None) -> SegmentRoom:
        barred = self._rules.barred(self._layering)
        return SegmentRoom(self._layering, self._counts(run), barred, strict=strict, used=used)

    def _run(self, members: Ints, inside: NodeSet, depth: int = 0) -> _Run:
        """Some members of the part, in the order of their numbers."""
        part = self._part
        order = members[np.argsort(part.numbers[members], kind="stable")]
        whole = len(order) == len(part.core) and bool((np.diff(order) == 1).all())
        pods = part.core if whole else tuple([part.core[at] for at in order.tolist()])
        return _Run(pods, part.numbers[order], inside, depth, len(pods), self._ceilings)


def _part_of(run: _Run, first: int, end: int) -> _Run:
    """Some of the pods of a run, one after another."""
    return replace(run, pods=run.pods[first:end], numbers=run.numbers[first:end], wanted=end - first)
