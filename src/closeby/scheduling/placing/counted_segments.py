"""Places equal pods in segments, by counting how many segments domains hold."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.arrays import Counts, Ints
from closeby.objects.groups import Exclusive
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import NodeSet, Part, SearchedPart, mean_scores, scoped_counts
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.descent import descend
from closeby.scheduling.placing.packing import first_of
from closeby.scheduling.placing.segment_room import SegmentRoom
from closeby.scheduling.placing.segment_rules import SegmentPlacer, running
from closeby.topology.tree import ROOT, Domain, Tree

#: Proposes candidates for a part inside a scope, by what the part sees of its room.
Proposes = Callable[[SearchedPart], Iterable[Candidate] | None]


class SegmentedPart(SearchedPart):
    """What plugins see of a part with layers: room counts only as far as segments are whole."""

    _room: SegmentRoom | None = None

    def follow(self, room: SegmentRoom) -> None:
        """Count by segments."""
        self._room = room

    def room(self, tree: Tree, level: int) -> Counts:
        if self._room is None or tree is not self._room.tree:
            return super().room(tree, level)
        return self._room.room(level, self.needed)

    def pieces(self, tree: Tree, level: int) -> Counts | None:
        if self._room is None or tree is not self._room.tree:
            return None
        return self._room.pieces(level, self.needed)


class _Free(Struct, frozen=True, eq=False):
    """Members of segments that have no domain yet, inside the domain of the layer above.

    ``bound``: the domain that they may not leave, where those of layers are only preferred.
    """

    depth: int
    domain: Domain
    bound: Domain
    members: Ints


class SegmentRun(Struct, frozen=True, eq=False):
    """Equal pods, in the order of their numbers, that go to segments of one layer inside some nodes."""

    layering: Layering
    share: Share
    pods: tuple[Pod, ...]
    numbers: Ints
    inside: NodeSet
    depth: int
    #: Pods for which there is to be room: more than there are where members come later.
    wanted: int


class CountedSegments(SegmentPlacer):
    """Places parts of equal pods on one statement; it finds a way wherever there is one."""

    def ways(
        self, part: Part, layering: Layering, scope: NodeSet, share: Share, proposes: Proposes, strict: bool
    ) -> Iterator[None]:
        """Each step places the part in another way; unless ``strict``, preferred layers as far as can be."""
        mark = self._statement.checkpoint()
        free = np.arange(len(part.core), dtype=np.intp)
        if len(part.anchors):
            left = self._beside_those_that_run(part, layering, scope, share, strict=strict)
            if left is None:
                self._statement.rollback(mark)
                return
            free = left
        if not len(free):
            self._chosen[part.name] = (None, scope)
            yield
            self._statement.rollback(mark)
            return
        run = self._run(part, layering, share, free, scope)
        # A segment with a domain for itself has room there for members that come later, if that can be.
        first = layering.layers[0]
        wanted = -(-run.wanted // max(first.size, 1)) * first.size
        if first.remainder and first.exclusive is not Exclusive.NONE and strict and wanted > run.wanted:
            yield from self._in_candidates(replace(run, wanted=wanted), part, proposes, strict=strict)
        yield from self._in_candidates(run, part, proposes, strict=strict)
        self._statement.rollback(mark)

    def _in_candidates(
        self, run: SegmentRun, part: Part, proposes: Proposes, *, strict: bool
    ) -> Iterator[None]:
        scope, layering, share = run.inside, run.layering, run.share
        rest = replace(part, core=run.pods, extra=())
        demand = (Share(share.pod_class, run.pods),)
        view = SegmentedPart(self._group, rest, scope, demand, self._table, self._statement.state)
        used = self._rules.used(part, layering)
        room = self._room(run, strict=strict, used=used)
        view.follow(room)
        view.needed = view.wanted = run.wanted
        candidates = proposes(view)
        for candidate in (None,) if candidates is None else candidates:
            if not self._budget.take_candidate():
                break
            self._chosen[part.name] = (candidate, scope)
            inside, same = self._within(scope, candidate, layering)
            before = self._statement.checkpoint()
            narrowed = replace(run, inside=inside)
            # What was counted before a suspension may have been taken since.
            same = same and not self._pace.disturbed
            known = room if same else None
            if used is not None and not same:
                known = self._room(narrowed, strict=strict, used=used)
            if self._place(narrowed, known, strict=strict):
                if self._rules.in_few(part, layering):
                    yield
                else:  # Only a smaller last segment, or a preferred layer, is not counted exactly.
                    self._budget.spent = True
            self._statement.rollback(before)

    def _beside_those_that_run(
        self, part: Part, layering: Layering, scope: NodeSet, share: Share, *, strict: bool
    ) -> Ints | None:
        """Places what belongs to segments of which some run; the members of all others, None: no room."""
        tree = layering.tree
        numbers = np.concatenate([part.numbers[: len(part.core)], running(part)])
        ids = layering.ids(numbers)
        members, slots = len(part.core), np.asarray(part.anchors, dtype=np.intp)
        pinned: list[_Free] = []
        free: list[_Free] = []

        def sort_out(depth: int, domain: Domain, bound: Domain, own: Ints) -> None:
            """``own``: members and those that run (from ``members`` on) of one segment of the layer above."""
            waiting = own[own < members]
            if not len(waiting):
                return
            if depth == len(layering.layers):
                pinned.append(_Free(depth, domain, bound, waiting))
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
                free.append(_Free(depth, domain, bound, np.concatenate(without)))

        sort_out(0, ROOT, ROOT, np.arange(len(numbers), dtype=np.intp))
        top = np.zeros(0, dtype=np.intp)
        capacity = self._cluster.capacity
        if not self._back(part, layering, scope, share, pinned):
            return None
        for one in sorted(free, key=lambda one: -one.depth):
            if one.depth == 0:
                top = one.members
                continue
            for level in range(one.domain.level, one.bound.level - 1, -1):
                around = Candidate(tree=tree, domain=tree.ancestor(one.domain, level))
                run = self._run(
                    part, layering, share, one.members, scope.narrowed(around, capacity), one.depth
                )
                mark = self._statement.checkpoint()
                if self._place(run, None, strict=strict):
                    break
                self._statement.rollback(mark)
            else:
                return None
        return top

    def _back(
        self, part: Part, layering: Layering, scope: NodeSet, share: Share, lost: Sequence[_Free]
    ) -> bool:
        """Place members of segments of which others run: there, or near where that is only preferred."""
        tree, capacity = layering.tree, self._cluster.capacity
        outward: list[_Free] = []
        for one in lost:
            inside = scope.narrowed(Candidate(tree=tree, domain=one.domain), capacity)
            run = self._run(part, layering, share, one.members, inside)
            if one.bound != one.domain:
                fitting = min(len(one.members), self._counts(run).inside(inside.domain))
                outward.append(replace(one, members=one.members[fitting:]))
                run = self._run(part, layering, share, one.members[:fitting], inside)
            if run.pods and not self._into(run, [(inside.domain, len(run.pods))]):
                return False
        # Others go as near as can be, once all that have room are back in their segments.
        for one in outward:
            inside = scope.narrowed(Candidate(tree=tree, domain=one.bound), capacity)
            run = self._run(part, layering, share, one.members, inside)
            beside = Candidate(tree=tree, domain=one.bound, outward_from=one.domain)
            fill = self._filler.fill
            if run.pods and not fill(run.pods, beside, inside, self._group.strategy, self._budget):
                return False
        return True

    def _place(self, run: SegmentRun, room: SegmentRoom | None, *, strict: bool) -> bool:
        """Place whole segments (and perhaps a smaller last one) of a layer."""
        if strict:
            return self._share_out(run, self._room(run, strict=True) if room is None else room)
        # As many segments as can be follow all layers, the others those that are required.
        layer = run.layering.layers[run.depth]
        if layer.size and layer.exclusive is not Exclusive.KIND:
            wished = self._room(run, strict=True)
            most = wished.most(run.inside.domain_in(run.layering.tree), run.depth)
            count = min(most, len(run.pods) // layer.size) * layer.size
            first = replace(run, pods=run.pods[:count], numbers=run.numbers[:count], wanted=count)
            if count and self._share_out(first, wished):
                left = len(run.pods) - count
                run = replace(run, pods=run.pods[count:], numbers=run.numbers[count:], wanted=left)
        return not run.pods or self._share_out(run, self._room(run, strict=False))

    def _share_out(self, run: SegmentRun, room: SegmentRoom) -> bool:
        tree, strategy = run.layering.tree, self._group.strategy
        domain = run.inside.domain_in(tree)
        means = mean_scores(self._table, self._statement.state, ((run.share, self._counts(run)),))
        depth = room.depth_of(run.depth)
        if depth == len(room.layers):
            return self._into(run, [(domain, len(run.pods))])
        layer = room.layers[depth]
        _, sizes = np.unique(run.layering.ids(run.numbers, room.followed[depth] + 1)[-1], return_counts=True)
        if not layer.counts and bool((sizes[:-1] == layer.size).all()) and sizes[-1] <= layer.size:
            shares = room.share_out(domain, depth, run.wanted, strategy, means)
            if shares is not None and run.wanted > len(run.pods):
                shares = first_of(shares, len(run.pods))
        else:
            pace = self._statement.state.pace
            shares, exact = room.share_out_sizes(domain, depth, sizes.tolist(), strategy, means, pace)
            if shares is None and not exact:
                self._budget.spent = True
        return shares is not None and self._into(run, shares)

    def _at_once(self, share: Share) -> bool:
        """Whether pods need not be placed one by one."""
        return self._filler.at_once(share)

    def _into(self, run: SegmentRun, shares: Sequence[tuple[Domain, int]]) -> bool:
        """Place pods into domains that have room for them, in the order of both."""
        tree, strategy, pods = run.layering.tree, self._group.strategy, run.pods
        if not self._at_once(run.share):
            at = 0
            for domain, count in shares:
                candidate = Candidate(tree=tree, domain=domain)
                if not self._filler.fill(
                    pods[at : at + count], candidate, run.inside, strategy, self._budget
                ):
                    return False
                at += count
            return True
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
        means = mean_scores(self._table, self._statement.state, ((run.share, counts),), asked)
        slots: dict[Domain, Ints] = {}
        for domain, count in wanted.items():
            if counts.inside(domain) < count:
                return False
            positions, takes = descend(counts, domain, count, strategy, means).in_topology_order()
            slots[domain] = np.repeat(tree.slot_at[positions], takes)
        if len(wanted) == len(shares):
            self._statement.assume(pods, np.concatenate(list(slots.values())))
            return True
        used = dict.fromkeys(wanted, 0)
        found = []
        for domain, count in shares:
            found.append(slots[domain][used[domain] : used[domain] + count])
            used[domain] += count
        self._statement.assume(pods, np.concatenate(found))
        return True

    def _counts(self, run: SegmentRun) -> DomainCounts:
        capacity = self._cluster.capacity
        return scoped_counts(self._table, run.share.pod_class, run.layering.tree, run.inside, capacity)

    def _room(self, run: SegmentRun, *, strict: bool, used: Ints | None = None) -> SegmentRoom:
        barred = self._rules.barred(run.layering)
        return SegmentRoom(run.layering, self._counts(run), barred, strict=strict, used=used)

    def _run(
        self, part: Part, layering: Layering, share: Share, members: Ints, inside: NodeSet, depth: int = 0
    ) -> SegmentRun:
        """Some members of a part, in the order of their numbers."""
        order = members[np.argsort(part.numbers[members], kind="stable")]
        whole = len(order) == len(part.core) and bool((np.diff(order) == 1).all())
        pods = part.core if whole else tuple([part.core[at] for at in order.tolist()])
        return SegmentRun(layering, share, pods, part.numbers[order], inside, depth, len(pods))
