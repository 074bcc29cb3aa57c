"""The search for a gang's place: candidates one after another, siblings with bounded backtracking.

Every part is placed on a statement that can be undone exactly. A part's alternatives are produced lazily, so
that a sibling that finds no room sends the search back to the next alternative of the one before it.
"""

from collections.abc import Iterator, Sequence

from closeby.objects.groups import PodGroup
from closeby.scheduling.assignment import Outlook, outlook
from closeby.scheduling.extension import Candidate
from closeby.scheduling.fill import Filler
from closeby.scheduling.parts import Part, Scope, SearchedPart, scoped_counts, shares
from closeby.scheduling.state import CycleState
from closeby.scheduling.statement import Statement
from closeby.scheduling.tools import Tools

#: Candidates tried for one gang before the search gives up; a count, so that results repeat.
SEARCH_BUDGET = 4096


class Budget:
    """Counts what was tried. ``spent`` becomes True when something was left untried."""

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.spent = False

    def take(self) -> bool:
        """One more try; False when the budget is used up."""
        if self.left <= 0:
            self.spent = True
            return False
        self.left -= 1
        return True


class Search:
    """One attempt at one gang."""

    def __init__(
        self,
        tools: Tools,
        group: PodGroup,
        statement: Statement,
        state: CycleState,
        filler: Filler,
        budget: Budget,
    ) -> None:
        self._cluster = tools.cluster
        self._table = tools.table
        self._generators = tools.profile.generators
        self._group = group
        self._statement = statement
        self._state = state
        self._filler = filler
        self.budget = budget
        #: The candidate that holds each placed leaf, by name, with the scope it was found in.
        self.chosen: dict[str, tuple[Candidate | None, Scope]] = {}

    def alternatives(self, part: Part, scope: Scope) -> Iterator[None]:
        """Each step places the part in another way; the placement of the step before is undone first."""
        if not part.children:
            yield from self._leaf(part, scope)
            return
        candidates = self.candidates(part, scope)
        if candidates is None:
            yield from self._siblings(part, scope)
            return
        for candidate in candidates:
            if not self.budget.take():
                return
            yield from self._siblings(part, scope.narrowed(candidate, self._cluster.capacity))

    def _leaf(self, part: Part, scope: Scope) -> Iterator[None]:
        if not part.core:
            self.chosen[part.name] = (None, scope)
            yield
            return
        candidates = self.candidates(part, scope)
        for candidate in (None,) if candidates is None else candidates:
            if not self.budget.take():
                return
            mark = self._statement.checkpoint()
            placed_before = len(self._state.placed)
            if self._filler.fill(part.core, candidate, scope, self._group.strategy, self.budget):
                self.chosen[part.name] = (candidate, scope)
                yield
            self._statement.rollback(mark)
            del self._state.placed[placed_before:]

    def _siblings(self, part: Part, scope: Scope) -> Iterator[None]:
        children = sorted(part.children, key=_hardest_first)
        may_skip = len(children) - part.min_children
        #: Per sibling on the way: its alternatives, and whether it is skipped now.
        way: list[Iterator[bool]] = [self._try(children, 0, scope, may_skip)]
        skipped: list[bool] = []
        while way:
            del skipped[len(way) - 1 :]
            step = next(way[-1], None)
            if step is None:
                way.pop()
                continue
            skipped.append(step)
            if len(way) == len(children):
                yield
            else:
                way.append(self._try(children, len(way), scope, may_skip - sum(skipped)))

    def _try(self, children: Sequence[Part], index: int, scope: Scope, may_skip: int) -> Iterator[bool]:
        """Alternatives of one sibling; True stands for leaving it out."""
        if may_skip or self._hopeful(children[index:], scope):
            for _ in self.alternatives(children[index], scope):
                yield False
        if may_skip > 0:
            for leaf in children[index].leaves():
                self.chosen.pop(leaf.name, None)
            yield True

    def _hopeful(self, siblings: Sequence[Part], scope: Scope) -> bool:
        """False when the remaining siblings can be shown not to fit beside each other."""
        judged: dict[tuple[object, str, int], list[int]] = {}
        rooms = {}
        for part in siblings:
            levels = part.levels
            if part.children or levels is None or levels.required is None or not part.core:
                continue
            equal = shares(part.core, self._table)
            if len(equal) > 1 or part.anchors:
                continue
            key = (equal[0].pod_class.key, levels.tree.name, levels.required)
            judged.setdefault(key, []).append(len(part.core))
            if key not in rooms:
                counts = scoped_counts(
                    self._table, equal[0].pod_class, levels.tree, scope, self._cluster.capacity
                )
                first, end = levels.tree.within(scope.domain_in(levels.tree), levels.required)
                labelled = levels.tree.labelled[levels.required][first:end]
                rooms[key] = (counts.of(levels.required)[first:end] * labelled).tolist()
        return all(outlook(sizes, rooms[key]) is not Outlook.HOPELESS for key, sizes in judged.items())

    def candidates(self, part: Part, scope: Scope) -> Iterator[Candidate] | None:
        """What the plugins propose for a part inside a scope; None when none has anything to say."""
        core = [pod for leaf in part.leaves() for pod in leaf.core]
        wanted = sum(len(leaf.core) + len(leaf.extra) for leaf in part.leaves())
        view = SearchedPart(
            self._group, part, scope, shares(core, self._table), self._table, self._cluster.capacity, wanted
        )
        for generator in self._generators:
            proposed = generator.placement_generate(self._state, view)
            if proposed is not None:
                return iter(proposed)
        return None


def _hardest_first(part: Part) -> tuple[int, int, str]:
    """Finer requirements before coarser, then more pods: what is placed later only needs sums of room."""
    level = -1 if part.levels is None or part.levels.required is None else part.levels.required
    return -level, -sum(len(leaf.core) for leaf in part.leaves()), part.name
