"""What follows once a gang's minimum is placed: placing more members, and moving those with traffic."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Bools, Ints
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, ReasonToken
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import NodeSet, Part, segments_below
from closeby.scheduling.gangs.segments import SegmentNumbers
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.moving.layout import sites_of
from closeby.scheduling.moving.local_search import improve
from closeby.scheduling.outcomes import Improvement
from closeby.scheduling.placing.fill import Filler
from closeby.scheduling.placing.search import Search
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.tools import Left, Tools, WaitingGang
from closeby.scheduling.reasons.wording import message
from closeby.scheduling.services import Traffic
from closeby.scheduling.steps import Budget
from closeby.topology.tree import Domain


def used_domains(candidate: Candidate | None, scope: NodeSet, slots: Ints, capacity: int) -> Bools | None:
    """Where pods on ``slots`` may be moved: the domains in use inside their candidate; None for anywhere.

    Domains of the level that the candidate asks to use the fewest of, else of the one below its own, so that
    moving pods never spreads them over more of those.
    """
    if candidate is None:
        return scope.allowed(capacity)
    inside = scope.narrowed(candidate, capacity)
    allowed = inside.allowed(capacity)
    tree = inside.tree
    if tree is None or candidate.domain is None:
        return allowed
    finest = max(tree.node_level - 1, candidate.domain.level)
    level = candidate.domain.level + 1 if candidate.fill_level is None else candidate.fill_level
    used = np.zeros(capacity, dtype=np.bool_)
    for position in tree.position_of[slots].tolist():
        used[tree.slots_in(tree.ancestor(Domain(tree.node_level, position), min(level, finest)))] = True
    return used if allowed is None else used & allowed


def move_together(
    tools: Tools,
    statement: Statement,
    traffic: Traffic,
    pods: Sequence[Pod],
    confines: Callable[[Pod], Bools | None],
) -> Improvement:
    """Move the placed ones among ``pods`` to where their traffic costs less; all stay placed.

    ``traffic`` is that of ``pods`` before any was placed. ``confines`` says where each may go, None meaning
    anywhere.
    """
    batches = tuple(statement.since(0))
    home = {pod.uid: slot for pod, slot in statement.state.placed}
    statement.rollback(0)
    flat = tools.topologies.flat()
    sites = sites_of(tools.cluster, tools.table, traffic, pods, home.values(), flat)
    allowed = sites.allowed[sites.class_of]
    for row, pod in enumerate(pods):
        mask = confines(pod)
        if mask is not None:
            allowed[row] &= mask[sites.slots]
    sites = replace(sites, allowed=allowed, class_of=np.arange(len(pods)))
    found = improve(traffic, sites, [home.get(pod.uid) for pod in pods], tools.steps)
    wanted = [(pod, slot) for pod, slot in zip(pods, found.slots, strict=True) if slot is not None]
    final = found.cost
    if found.cost >= found.cost_before or not statement.assume_where_allowed(wanted):
        statement.rollback(0)
        statement.assume_again(batches)
        final = found.cost_before
    return Improvement(greedy=found.cost_before, final=final, evaluated=found.evaluated, spent=found.spent)


class Growth:
    """Grows one gang on the statement that holds its minimum."""

    def __init__(
        self, tools: Tools, gang: WaitingGang, statement: Statement, filler: Filler, budget: Budget
    ) -> None:
        self._tools = tools
        self._gang = gang
        self._state = statement.state
        self._filler = filler
        self._budget = budget
        #: For all segments beyond the minimum that are searched, besides two domains for each.
        self._rest = Budget(tools.steps)
        self._rest.limit_to_segments(0, 2)

    def inside(self, search: Search, minimum: Part) -> tuple[Left, ...]:
        """Each member near its subgroup, in the domains that were chosen for the minimum; those left over."""
        return self._place(search, minimum, {})

    def beyond(self, search: Search, minimum: Part) -> tuple[Left, ...]:
        """The same; a member that finds no room there may go wherever no required level forbids it.

        So may a subgroup that was left out, as a whole, if the gang is near each other without it.
        """
        if minimum.may_leave_out:
            self._more_parts(search, minimum, NodeSet())
        return self._place(search, minimum, self._required(minimum, NodeSet()))

    def _place(self, search: Search, minimum: Part, required: Mapping[str, NodeSet]) -> tuple[Left, ...]:
        placed = {pod.uid: slot for pod, slot in self._state.placed}
        leftover: list[Left] = []
        for leaf in minimum.leaves():
            if leaf.lack is not None:
                absent = self._gang.members.waiting.get(leaf.name, ())
                leftover += [(pod, Reason.GANG_INCOMPLETE, leaf.lack) for pod in absent]
                continue
            short = "its segment lacks members that have not appeared"
            leftover += [(pod, Reason.GANG_INCOMPLETE, short) for pod in leaf.short]
            waiting = [pod for pod in (*leaf.core, *leaf.extra) if pod.uid not in placed]
            if not waiting:
                continue
            chosen = search.chosen.get(leaf.name)
            anchors = [*leaf.anchors, *(placed[pod.uid] for pod in leaf.core if pod.uid in placed)]
            if chosen is None:  # The subgroup was left out as a whole.
                leftover += [
                    (pod, Reason.GANG_DOES_NOT_FIT, "its subgroup found no place") for pod in waiting
                ]
                continue
            if leaf.segments is not None:
                scopes = [chosen[1], *([required[leaf.name]] if leaf.name in required else [])]
                leftover += self._more_segments(search, leaf, leaf.segments, scopes, placed)
                continue
            for share in self._filler.in_turn(waiting):
                left = self._grow(search, leaf, chosen[1], share, anchors)
                if left and leaf.name in required:
                    rest = Share(share.pod_class, tuple(left))
                    left = self._grow(search, leaf, required[leaf.name], rest, anchors)
                if left:
                    why = self._why_left(leaf, share, *chosen)
                    leftover += [(pod, *why) for pod in left]
        return tuple(leftover)

    def _more_parts(self, search: Search, part: Part, scope: NodeSet) -> None:
        """Place what was left out below a part of which something is placed."""
        confined = self._confined(part, scope)
        if confined is None:
            return
        for child in part.children:
            leaves = list(child.leaves())
            left_out = bool(child.fewest) and not any(leaf.name in search.chosen for leaf in leaves)
            if child.children and not left_out:
                self._more_parts(search, child, confined)
            elif left_out and not any(True for _ in search.alternatives(child, confined)):
                for leaf in leaves:  # What was tried last is no place for single members of it.
                    search.chosen.pop(leaf.name, None)

    def _more_segments(
        self,
        search: Search,
        leaf: Part,
        segments: SegmentNumbers,
        scopes: Sequence[NodeSet],
        placed: Mapping[str, int],
    ) -> list[Left]:
        """Segments beyond the minimum, each as a whole or not at all: all together, else one by one."""
        pods = (*leaf.core, *leaf.extra)
        there = [at for at, pod in enumerate(pods) if pod.uid in placed]
        left = np.asarray([at for at, pod in enumerate(pods) if pod.uid not in placed], dtype=np.intp)
        ids = segments.layering.ids(leaf.numbers[left])[0]
        one_by_one = [left[ids == segment] for segment in dict.fromkeys(ids.tolist())]
        unplaced: list[Left] = []
        usual = search.budget
        if segments.layering.uneven or not self._counted(pods):
            search.budget = self._rest
        rounds = [[left]] if len(one_by_one) > 1 else []
        for tried in (*rounds, one_by_one):
            for members in tried:
                part = replace(
                    leaf,
                    core=tuple(pods[at] for at in members.tolist()),
                    extra=(),
                    numbers=leaf.numbers[members],
                    anchors=(*leaf.anchors, *(placed[pods[at].uid] for at in there)),
                    segments=replace(
                        segments, running=np.concatenate([segments.running, leaf.numbers[there]])
                    ),
                )
                if self._placed(search, part, scopes, share=tried is not one_by_one):
                    there += members.tolist()
                    placed = {pod.uid: slot for pod, slot in self._state.placed}
                elif tried is one_by_one:
                    why = _why_no_segment(search.budget)
                    unplaced += [(pod, *why) for pod in part.core]
            if len(there) == len(pods):
                break
        search.budget = usual
        return unplaced

    def _counted(self, pods: Sequence[Pod]) -> bool:
        """Whether segments of these pods are counted, not searched."""
        demand = self._tools.table.shares(pods)
        return len(demand) == 1 and self._filler.counts_exactly(demand)

    def _placed(self, search: Search, part: Part, scopes: Sequence[NodeSet], *, share: bool) -> bool:
        """Place segments; ``share``: with no more than a share of the budget that all of them have."""
        budget = search.budget
        budget.put_back((2 * segments_below(part), 0))
        budget.spent = False
        aside = budget.set_aside() if share else (0, 0)
        found = any(True for scope in scopes for _ in search.alternatives(part, scope))
        budget.put_back(aside)
        return found

    def _grow(
        self, search: Search, leaf: Part, scope: NodeSet, share: Share, anchors: list[int]
    ) -> list[Pod]:
        scope, left = search.off_own(leaf, scope), list(share.pods)
        while left:
            part = Part(
                name=leaf.name,
                levels=leaf.levels,
                core=(left[0],),
                extra=tuple(left[1:]),
                anchors=tuple(anchors),
            )
            candidates = search.candidates(part, scope)
            before = len(self._state.placed)
            for candidate in (None,) if candidates is None else candidates:
                inside = (
                    scope if candidate is None else scope.narrowed(candidate, self._tools.cluster.capacity)
                )
                allowed = inside.allowed(self._tools.cluster.capacity)
                self._tools.table.refresh(share.pod_class)
                fits = share.pod_class.fits
                room = int(fits.sum() if allowed is None else fits[allowed].sum())
                for count in dict.fromkeys((min(room, len(left)), min(room, 1))):
                    if count and self._filler.fill(
                        left[:count], candidate, scope, self._gang.group.strategy, self._budget
                    ):
                        break
                if len(self._state.placed) > before:
                    break
            grown = self._state.placed[before:]
            if not grown:
                break
            anchors.extend(slot for _, slot in grown)
            left = left[len(grown) :]
        return left

    def _why_left(
        self, leaf: Part, share: Share, candidate: Candidate | None, scope: NodeSet
    ) -> tuple[ReasonToken, str]:
        """Why pods beyond the minimum find no node: their own reason, else that of the gang's domain."""
        tools, pod = self._tools, share.pods[0]
        tools.table.refresh(share.pod_class)
        tools.steps.take(100 + tools.cluster.capacity // 50)
        beyond = "beyond the minimum: "
        if share.pod_class.total == 0:
            why = tools.diagnosis.why_no_node(self._state, pod)
            return why.reason, f"{beyond}{message(why)}"
        bound = (leaf.levels is not None and leaf.levels.required is not None) or (
            self._gang.constraints.required
        )
        reason = Reason.TOPOLOGY_PLACEMENT_FAILED if bound else Reason.GANG_DOES_NOT_FIT
        if candidate is None and leaf.anchors:  # The minimum ran already: it holds the others to its domain.
            candidate = _required_of(leaf, leaf.anchors[0])
        inside = scope if candidate is None else scope.narrowed(candidate, tools.cluster.capacity)
        allowed = inside.allowed(tools.cluster.capacity)
        alive = tools.cluster.alive[: tools.cluster.capacity]
        slots = np.flatnonzero(alive if allowed is None else alive & allowed)
        full = share.pod_class.fits[slots] == 0
        where = "the gang's domain" if bound else "the nodes that the gang may use"
        if len(slots) and full.all():
            why = tools.diagnosis.why_no_node(self._state, pod, slots)
            return reason, f"{beyond}{where}: {message(why)}"
        return reason, f"{beyond}{where} has no room for this member"

    def _required(self, part: Part, scope: NodeSet) -> dict[str, NodeSet]:
        """Where each leaf must stay, as far as those above it require a level: what they prefer binds no pod.

        Leaves below a part that requires a level and has no member there are left out: any domain may do.
        """
        if not part.children:
            return {part.name: scope}
        confined = self._confined(part, scope)
        if confined is None:
            return {}
        return {
            name: inner for child in part.children for name, inner in self._required(child, confined).items()
        }

    def _confined(self, part: Part, scope: NodeSet) -> NodeSet | None:
        """A scope as far as the level that a part requires allows; None where it has no member yet."""
        if part.levels is None or part.levels.required is None:
            return scope
        placed = {pod.uid: slot for pod, slot in self._state.placed}
        core = (pod.uid for leaf in part.leaves() for pod in leaf.core)
        taken = (*part.all_anchors(), *(placed[uid] for uid in core if uid in placed))
        held = _required_of(part, taken[0]) if taken else None
        return None if held is None else scope.narrowed(held, self._tools.cluster.capacity)


def _why_no_segment(budget: Budget) -> tuple[ReasonToken, str]:
    if budget.spent:
        why = "beyond the minimum: its segment found no place before the search budget was spent"
        return Reason.SEARCH_BUDGET_EXHAUSTED, why
    return Reason.TOPOLOGY_PLACEMENT_FAILED, "beyond the minimum: no domain has room for its segment"


def _required_of(part: Part, slot: int) -> Candidate | None:
    """The domain of the level that a part requires which holds a slot."""
    if part.levels is None or part.levels.required is None:
        return None
    tree = part.levels.tree
    node = tree.node_domain(slot)
    return None if node is None else Candidate(tree=tree, domain=tree.ancestor(node, part.levels.required))
