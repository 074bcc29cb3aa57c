"""The search for a gang's place: candidates one after another, siblings with bounded backtracking.

Every part is placed on a statement that can be undone exactly. A part's alternatives are produced lazily, so
that a sibling that finds no room sends the search back to the next alternative of the one before it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final

import numpy as np

from closeby.objects.arrays import Counts
from closeby.objects.groups import PodGroup, Strategy
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import (
    Distinctions,
    NodeSet,
    Part,
    SearchedPart,
    entangled,
    hardest_first,
    scoped_counts,
    scoped_fits,
)
from closeby.scheduling.judging.pod_classes import Share, masks_of
from closeby.scheduling.placing.fill import Filler
from closeby.scheduling.placing.limits import most_apart, most_inside
from closeby.scheduling.placing.segment_rules import SegmentAttempt
from closeby.scheduling.placing.segment_search import SegmentSearch
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.steps import Budget
from closeby.topology.tree import Tree

#: More groups than this are not judged exactly: the check goes one call deeper per group.
MANY_GROUPS = 128
#: Steps to look ahead of the groups of one kind.
_LOOK_AHEAD: Final = 40


class Feasibility(Enum):
    """What is known about a set of groups and the room of the domains."""

    #: The largest group first, each into the tightest domain that holds it, does it.
    EASY = "easy"
    FITS = "fits"
    HOPELESS = "hopeless"
    #: Too many combinations to tell.
    OPEN = "open"


def outlook(sizes: Sequence[int], rooms: Sequence[int] | Counts, budget: Budget) -> Feasibility:
    """Whether every group (``sizes``) can go whole into one domain (``rooms``); domains may be shared."""
    wanted = sorted(sizes, reverse=True)
    total = sum(wanted)
    values = np.asarray(rooms, dtype=np.int64)
    # More room than for all of them helps no more.
    enough = np.sort(np.minimum(values[values >= wanted[-1]], total))
    room: list[int] = enough.tolist()
    if total > sum(room):
        return Feasibility.HOPELESS
    for count, size in enumerate(wanted, start=1):
        if wanted[count : count + 1] != [size] and int((enough // size).sum()) < count:
            return Feasibility.HOPELESS  # Even if the larger groups were only this large.
    if _each_into_the_tightest(wanted, room):
        return Feasibility.EASY
    if len(wanted) > MANY_GROUPS:
        return Feasibility.OPEN
    return _Exact(wanted, budget).solve(room)


def _each_into_the_tightest(wanted: Sequence[int], room: Sequence[int]) -> bool:
    left = list(room)
    for size in wanted:
        at = bisect_left(left, size)
        if at == len(left):
            return False
        insort(left, left.pop(at) - size)
    return True


class _Exact:
    """Depth-first search over the domains of one group after another; equal states are judged once."""

    def __init__(self, wanted: Sequence[int], budget: Budget) -> None:
        self._wanted = wanted
        self._hopeless: set[tuple[int, tuple[int, ...]]] = set()
        self._budget = budget
        self._gave_up = False

    def solve(self, room: Sequence[int]) -> Feasibility:
        if self._place(0, tuple(room)):
            return Feasibility.FITS
        return Feasibility.OPEN if self._gave_up else Feasibility.HOPELESS

    def _place(self, index: int, room: tuple[int, ...]) -> bool:
        if index == len(self._wanted):
            return True
        if (index, room) in self._hopeless or self._gave_up:
            return False
        if not self._budget.take_step():
            self._gave_up = True
            return False
        size = self._wanted[index]
        if size in room:
            # Filling a domain exactly is never worse than any other place.
            return self._remember(index, room, (size,))
        return self._remember(index, room, sorted({value for value in room if value > size}))

    def _remember(self, index: int, room: tuple[int, ...], choices: Sequence[int]) -> bool:
        smallest = self._wanted[-1]
        for choice in choices:
            at = room.index(choice)
            left = choice - self._wanted[index]
            rest = room[:at] + room[at + 1 :]
            after = tuple(sorted((*rest, left))) if left >= smallest else rest
            if self._place(index + 1, after):
                return True
        self._hopeless.add((index, room))
        return False


class Search:
    """One attempt at one gang."""

    def __init__(
        self,
        tools: Tools,
        group: PodGroup,
        statement: Statement,
        filler: Filler,
        budget: Budget,
        apart: Mapping[str, Distinctions],
        *,
        every: bool,
    ) -> None:
        """``apart``: leaves of which every way to place them is tried (see ``parts.entangled``).

        ``every``: so are the segments of leaves with layers.
        """
        self._tools = tools
        self._cluster = tools.cluster
        self._table = tools.table
        self._generators = tools.profile.generators
        self._group = group
        self._statement = statement
        self._state = statement.state
        self._filler = filler
        self._apart = dict(apart)
        self._every = every
        self._shared: dict[str, tuple[Share, ...]] = {}
        self.budget = budget
        #: The candidate that holds each placed leaf, by name, with the scope it was found in.
        self.chosen: dict[str, tuple[Candidate | None, NodeSet]] = {}

    def alternatives(self, part: Part, scope: NodeSet) -> Iterator[None]:
        """Each step places the part in another way; the placement of the step before is undone first."""
        if not part.children:
            yield from self._leaf(part, scope)
            return
        candidates = self.candidates(part, scope)
        if candidates is None:
            yield from self._siblings(part, scope)
            return
        following = next(candidates, None)
        while (candidate := following) is not None and self.budget.take_candidate():
            following = next(candidates, None)
            # Half of the budget is left for the next one: one in which many ways fail is not the last.
            aside = (0, 0) if following is None else self.budget.set_aside()
            for _ in self._siblings(part, scope.narrowed(candidate, self._cluster.capacity)):
                self.budget.put_back(aside)
                yield
                aside = (0, 0) if following is None else self.budget.set_aside()
            self.budget.put_back(aside)

    def _leaf(self, part: Part, scope: NodeSet) -> Iterator[None]:
        if not part.core:
            self.chosen[part.name] = (None, scope)
            yield
            return
        scope = self.off_own(part, scope)
        apart = self._apart.get(part.name)
        if part.segments is not None:
            attempt = SegmentAttempt(
                tools=self._tools,
                group=self._group,
                leaf=part.name,
                statement=self._statement,
                filler=self._filler,
                budget=self.budget,
                chosen=self.chosen,
            )
            yield from SegmentSearch(attempt).ways(
                part, scope, self._proposed, partial(self._segments, apart), every=apart is not None
            )
            return
        candidates = self.candidates(part, scope)
        for candidate in (None,) if candidates is None else candidates:
            if not self.budget.take_candidate():
                return
            self.chosen[part.name] = (candidate, scope)
            mark = self._statement.checkpoint()
            if self._filler.fill(part.core, candidate, scope, self._group.strategy, self.budget):
                yield
            self._statement.rollback(mark)
            if apart is not None:
                yield from self._filler.ways(part.core, candidate, scope, self.budget, apart)

    def off_own(self, part: Part, scope: NodeSet) -> NodeSet:
        """The scope without domains that other jobs of the gang have for themselves.

        That of a segment (``name#…``) is already the scope of its leaf.
        """
        if not part.name or "#" in part.name or self._tools.exclusives is None:
            return scope
        kept = self._tools.exclusives.kept_by_own(self._group, part.name, self._state.placed)
        if not len(kept):
            return scope
        others = np.setdiff1d(np.arange(self._cluster.capacity), kept)
        return scope.narrowed(Candidate(slots=others), self._cluster.capacity)

    def _segments(self, apart: Distinctions | None, tree: Part, scope: NodeSet) -> Iterator[None]:
        """The same for the segments of a leaf, which were made parts; ``apart``: the leaf's own."""
        if apart is not None:
            self._apart.update({leaf.name: apart for leaf in tree.leaves()})
        elif self._every:
            self._apart.update(entangled(tree, self._table))
        yield from self.alternatives(tree, scope)

    def _siblings(self, part: Part, scope: NodeSet) -> Iterator[None]:
        children = hardest_first(part)
        may_skip = len(children) - part.min_children
        first = Feasibility.EASY if may_skip else self._outlook(children, scope)
        if first is Feasibility.HOPELESS:
            return
        # As long as each sibling finds its place at once, looking ahead would only cost time.
        careful = first is not Feasibility.EASY or self._group.strategy is Strategy.SPREAD
        #: Per sibling on the way: its alternatives, and whether it is skipped now.
        way: list[Iterator[bool]] = [self._try(children[0], scope, may_skip)]
        skipped: list[bool] = []
        while way:
            del skipped[len(way) - 1 :]
            step = next(way[-1], None)
            if step is None:
                way.pop()
                careful = True
                continue
            skipped.append(step)
            if len(way) == len(children):
                yield
                continue
            skips = may_skip - sum(skipped)
            if careful and not skips and self._outlook(children[len(way) :], scope) is Feasibility.HOPELESS:
                continue
            way.append(self._try(children[len(way)], scope, skips))

    def _try(self, part: Part, scope: NodeSet, may_skip: int) -> Iterator[bool]:
        """Alternatives of one sibling; True stands for leaving it out."""
        for _ in self.alternatives(part, scope):
            yield False
        if may_skip > 0:
            for leaf in part.leaves():
                self.chosen.pop(leaf.name, None)
            yield True

    def _outlook(self, siblings: Sequence[Part], scope: NodeSet) -> Feasibility:
        """Whether the siblings can fit beside each other, judged for each class of pods on its own."""
        judged: dict[tuple[int, str, int], list[int]] = {}
        rooms: dict[tuple[int, str, int], Counts] = {}
        for part in siblings:
            levels = part.levels
            if part.children or levels is None or levels.required is None or not part.core or part.anchors:
                continue
            for share in self._shares(part):
                key = (id(share.pod_class), levels.tree.name, levels.required)
                judged.setdefault(key, []).append(len(share.pods))
                if key not in rooms:
                    rooms[key] = self._rooms(share, levels.tree, levels.required, scope)
        self._state.steps.take(_LOOK_AHEAD * len(rooms))
        outlooks = {outlook(sizes, rooms[key], self.budget) for key, sizes in judged.items()}
        if len(outlooks) == 1:
            return outlooks.pop()
        if Feasibility.HOPELESS in outlooks:
            return Feasibility.HOPELESS
        return Feasibility.OPEN if outlooks else Feasibility.EASY

    def _rooms(self, share: Share, tree: Tree, level: int, scope: NodeSet) -> Counts:
        counts = scoped_counts(self._table, share.pod_class, tree, scope, self._cluster.capacity)
        first, end = tree.within(scope.domain_in(tree), level)
        rooms: Counts = counts.of(level)[first:end] * tree.labelled[level][first:end]
        return rooms

    def _shares(self, part: Part) -> tuple[Share, ...]:
        """A leaf's pods by class."""
        found = self._shared.get(part.name)
        if found is None:
            found = self._shared[part.name] = self._table.beside_each_other(part.core)
        return found

    def _most(self, demand: Sequence[Share], scope: NodeSet, tree: Tree, level: int) -> Counts | None:
        """How many of some pods each domain of a level takes beside each other; None where that is not known.

        What is known of equal pods are the limits of their own terms; of others whether they ask for more
        than is free, and how many keep off each other.
        """
        capacity = self._cluster.capacity
        if len(demand) == 1:
            share = demand[0]
            masks = masks_of(self._table.domain_filters, share.pods[0])
            limits = [limit for mask in masks if (limit := mask.limit()) is not None]
            if not limits:
                return None
            room = scoped_fits(self._table, share.pod_class, scope, capacity)
            owners = tree.owners_of_slots(np.arange(capacity), level)
            found: Counts = np.minimum.reduce(
                [most_inside(limit, room, owners, tree.count(level)) for limit in limits]
            )
            return found
        number = sum(len(share.pods) for share in demand)
        times = self._filler.sums.times(demand, tree, level, scope)
        most = np.minimum(times, 1) * number
        among = self._table.interactions(demand)
        for apart in () if among is None else among.apart:
            owners = tree.owners_of_slots(np.arange(capacity), level)
            classes = [demand[place].pod_class for place in apart.pods]
            usable = np.logical_or.reduce(
                [scoped_fits(self._table, one, scope, capacity) > 0 for one in classes]
            )
            codes = np.where(usable, self._cluster.labels.column(apart.key).codes[:capacity], -1)
            free = number - sum(apart.pods.values())
            np.minimum(most, free + most_apart(codes, owners, tree.count(level), number), out=most)
        return most

    def candidates(self, part: Part, scope: NodeSet) -> Iterator[Candidate] | None:
        """What the plugins propose for a part inside a scope; None when none has anything to say."""
        core = part.needed()
        extra = [pod for leaf in part.leaves() for pod in leaf.extra]
        # Where nothing is needed, the room for those that would like to come orders the domains.
        demand = self._table.beside_each_other(core or extra)
        # Where parts of it may stay out, not all of these pods need to fit beside each other.
        most = partial(self._most, demand, scope) if core and not part.may_leave_out else None
        view = SearchedPart(self._group, part, scope, demand, self._table, self._state, most)
        proposed = self._proposed(view)
        return self._not_taken(part, proposed) if part.alone and proposed is not None else proposed

    def _not_taken(self, part: Part, candidates: Iterator[Candidate]) -> Iterator[Candidate]:
        """Those of the candidates for a segment with a domain for itself in which no other is by now.

        Where other leaves are is not in its scope.
        """
        levels = part.levels
        if levels is None or levels.required is None:
            return candidates
        tree, level, own = levels.tree, levels.required, set(part.all_anchors())
        leaf = part.needed()[0].subgroup if self._group.subgroups else None
        slots = [slot for slot in part.beside if slot not in own]
        slots += [slot for pod, slot in self._state.placed if leaf is None or pod.subgroup == leaf]
        taken = frozenset(tree.owners_of_slots(np.asarray(slots, dtype=np.intp), level).tolist())

        def free(candidate: Candidate) -> bool:
            domain = candidate.domain
            if candidate.tree is not tree or domain is None or domain.level < level:
                return True
            return tree.ancestor(domain, level).index not in taken

        return filter(free, candidates)

    def _proposed(self, view: SearchedPart) -> Iterator[Candidate] | None:
        """What the first plugin with anything to say proposes."""
        for generator in self._generators:
            proposed = generator.placement_generate(self._state, view)
            if proposed is not None:
                return _each_once(proposed)
        return None


def _each_once(candidates: Iterable[Candidate]) -> Iterator[Candidate]:
    """The candidates without those that have the same nodes as one before: a zone that has one block, say."""
    seen: set[tuple[str, int, int]] = set()
    for candidate in candidates:
        if candidate.tree is not None and candidate.domain is not None:
            nodes = (candidate.tree.name, *candidate.tree.span(candidate.domain))
            if nodes in seen:
                continue
            seen.add(nodes)
        yield candidate
