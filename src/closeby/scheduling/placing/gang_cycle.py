"""One cycle for a gang: its minimum in one go or nothing, then what fits of the rest."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from closeby.cluster.columns import Batch
from closeby.objects.arrays import Bools
from closeby.objects.reasons import Reason
from closeby.scheduling.extension import Candidate, Placement
from closeby.scheduling.gangs.parts import (
    EVERYWHERE,
    Distinctions,
    NodeSet,
    Part,
    entangled,
    preferences_required,
    segments_below,
    with_preferences_required,
    without_layers,
)
from closeby.scheduling.gangs.places import segment_order, split_part
from closeby.scheduling.gangs.rosters import Constraints, parts, tree_of
from closeby.scheduling.judging.needs import Need, need_of
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.outcomes import Improvement
from closeby.scheduling.placing.explaining import Explaining, chosen_first
from closeby.scheduling.placing.growth import Growth, move_together, used_domains
from closeby.scheduling.placing.refusing import Infeasible, Refusing
from closeby.scheduling.placing.search import Search
from closeby.scheduling.placing.segment_refusals import certainly_short
from closeby.scheduling.placing.tools import Attempt, Left, Tools, WaitingGang, gang_refusal
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.reasons.facts import Shortfall
from closeby.scheduling.reasons.wording import message, remedy
from closeby.scheduling.services import Traffic
from closeby.scheduling.steps import BACKTRACKS, Budget
from closeby.topology.constraints import Levels

#: Steps to judge all nodes for one more kind of pods, and for how many nodes one more.
_JUDGING: Final = 100
_NODES: Final = 20


def place_gang(tools: Tools, gang: WaitingGang) -> Attempt:
    """Place a gang whose required members have all appeared."""
    minimum = gang.parts(everyone=False)
    split = split_part(minimum, {})
    if split is not None:  # Whatever was added, what is required would stay broken.
        why = f"it can't be placed beside the members that already run: {split.sentence()}"
        refusal = gang_refusal(gang.group.key, Reason.TOPOLOGY_PLACEMENT_FAILED, why)
        return Attempt(refusal=refusal, tree=tree_of(gang.constraints))
    return _GangCycle(tools, gang).run(minimum)


class _Way(NamedTuple):
    """One of several ways to place a gang."""

    cost: float
    batches: tuple[Batch, ...]
    chosen: dict[str, tuple[Candidate | None, NodeSet]]


class _GangCycle:
    """One attempt at one gang, with what it gathers on the way."""

    def __init__(self, tools: Tools, gang: WaitingGang) -> None:
        self._tools = tools
        self._gang = gang
        self._group = gang.group
        self._members = gang.members
        self._constraints = gang.constraints
        self._state = CycleState(gang.group, tree_of(gang.constraints), gang.members.anchors)
        self._statement = tools.statement(self._state)
        wanted = tools.explains(gang.group.key)
        self._explaining = Explaining(tools, gang, self._statement) if wanted else None
        record = None if self._explaining is None else self._explaining.record
        self._filler = tools.filler(self._statement, record)
        self._budget = Budget(tools.steps)
        #: Members that found a place where the subgroups found theirs but the gang as a whole fell short.
        self._most = 0
        #: Pods of a class that has not enough room in the whole cluster, whatever the topology.
        self._short: Share | None = None

    @cached_property
    def _growth(self) -> Growth:
        return Growth(self._tools, self._gang, self._statement, self._filler, self._budget)

    def run(self, minimum: Part) -> Attempt:
        """``minimum``: the gang as a tree of parts with what must find a place."""
        table, waiting = self._tools.table, self._gang.waiting
        needed = minimum.needed()
        refusal = self._tools.pre_filter(self._state, waiting)
        demand = table.beside_each_other(needed)
        self._tools.steps.take(len(demand[1:]) * (_JUDGING + self._tools.cluster.capacity // _NODES))
        if refusal is not None:
            claims = any(pod.spec.claims for share in demand for pod in share.pods[:1])
            need = self._need(minimum, demand) if claims else None
            return Attempt(refusal=refusal, need=need, tree=self._state.tree)
        traffic = self._tools.traffic(self._state, waiting)
        domains = () if self._explaining is None else self._explaining.survey()
        search = self._find(minimum, demand)
        if search is None:
            need = self._need(minimum, demand)
            refused = self._why(demand, need)
            explanations = () if self._explaining is None else self._explaining.pods()
            self._tools.post_filter(self._state, waiting)
            return Attempt(
                refusal=gang_refusal(self._group.key, refused.reason, message(refused), remedy(refused)),
                shortfall=refused,
                need=need,
                domains=domains,
                explanations=explanations,
                tree=self._state.tree,
            )
        leftover: tuple[Left, ...] = ()
        if len(self._state.placed) < len(waiting):
            leftover = self._growth.beyond(search, minimum)
        improvement = None
        if traffic is not None and self._state.placed and not self._constraints.layerings:
            improvement = self._move_together(traffic, search, minimum)
        placed = tuple(self._state.placed)
        refusal = self._tools.permit(self._state, placed)
        if refusal is not None:
            self._statement.discard()
            return Attempt(refusal=refusal, domains=domains, tree=self._state.tree)
        explanations = () if self._explaining is None else self._explaining.pods()
        slots = self._statement.slots
        self._statement.commit()
        return Attempt(
            placed=placed,
            slots=slots,
            leftover=leftover,
            domains=chosen_first(domains, self._state.tree, placed) if domains else (),
            explanations=explanations,
            tree=self._state.tree,
            segments=segment_order(minimum) if self._constraints.layerings else (),
            improvement=improvement,
        )

    def _need(self, minimum: Part, demand: Sequence[Share]) -> Need | None:
        """What all attempts at this gang need at the least; None where that is not known.

        Nothing is known where parts may be left out, or where placing some pods lets others in.
        """
        if minimum.may_leave_out or any(share.pod_class.widened for share in demand):
            return None
        alone = bool(self._state.anchors)
        return need_of(self._tools.table, demand, self._constraints.levels.get(""), alone=alone)

    def _why(self, demand: Sequence[Share], need: Need | None) -> Shortfall:
        """Why the gang is refused, for which no place was found."""
        search = Infeasible(demand, self._short, self._most, self._budget.spent, self._fits_anywhere)
        return Refusing(self._tools, self._gang, self._statement, self._filler).why(search, need)

    def _move_together(self, traffic: Traffic, search: Search, minimum: Part) -> Improvement:
        """Lower the cost of traffic without leaving the domains that the search chose."""
        slots = {pod.uid: slot for pod, slot in self._state.placed}
        capacity = self._tools.cluster.capacity
        confines: dict[str, Bools | None] = {}
        for leaf in minimum.leaves():
            own = [pod for pod in (*leaf.core, *leaf.extra) if pod.uid in slots]
            chosen = search.chosen.get(leaf.name)
            if own and chosen is not None:
                taken = np.asarray([*leaf.anchors, *(slots[pod.uid] for pod in own)], dtype=np.intp)
                mask = used_domains(*chosen, taken, capacity)
                confines.update({pod.uid: mask for pod in own})
        return move_together(
            self._tools,
            self._statement,
            traffic,
            self._gang.waiting,
            lambda pod: confines.get(pod.uid),
        )

    def _find(self, minimum: Part, demand: Sequence[Share]) -> Search | None:
        """All members if possible, else the minimum: one way per domain, then every way if that matters."""
        self._short = _short_of_room(demand)
        optional = minimum.may_leave_out
        if self._short is not None and not optional:
            return None
        layered = self._searches_segments(demand)
        if layered and not optional and self._certainly_short(minimum, demand):
            return None
        elastic = optional or any(leaf.extra for leaf in minimum.leaves())
        if elastic:
            search = self._everyone()
            if search is not None:
                return search
        self._limit_to_segments(self._budget, minimum, 1)
        # The minimum goes where most of the others can follow, whatever is free there.
        search = self._close_or_any(minimum, self._budget, anywhere=elastic)
        if search is None and not self._budget.spent and (minimum.children or layered):
            apart = entangled(minimum, self._tools.table)
            if apart or layered:
                if self._constraints.layerings:
                    self._budget.limit_to_segments(segments_below(minimum))
                search = self._search(minimum, self._budget, apart, every=layered)
        return search

    def _everyone(self) -> Search | None:
        """All members, if they can be placed."""
        whole = self._gang.parts(everyone=True)
        demand = self._tools.table.beside_each_other(whole.needed())
        if _short_of_room(demand) is not None:
            return None
        fixed = self._searches_segments(demand) and not whole.may_leave_out
        if fixed and self._certainly_short(whole, demand):
            return None
        return self._close_or_any(whole, self._limited(whole, 2))

    def _certainly_short(self, part: Part, demand: Sequence[Share]) -> bool:
        """Whether the segments of a part find no place, as sums show without a search."""
        if len(demand) > 1 and self._filler.fits_nowhere(demand):
            return True
        return certainly_short(self._tools, self._group, part)

    def _searches_segments(self, demand: Sequence[Share]) -> bool:
        """Whether segments are searched one by one, as they can't be counted."""
        layerings = self._constraints.layerings.values()
        return bool(layerings) and (len(demand) > 1 or any(one.uneven for one in layerings))

    def _limited(self, part: Part, share: int = 8) -> Budget:
        """A new budget for a part; where segments are searched one in ``share`` of what that is worth."""
        budget = Budget(self._tools.steps)
        self._limit_to_segments(budget, part, share)
        return budget

    def _limit_to_segments(self, budget: Budget, part: Part, share: int) -> None:
        if not self._constraints.layerings:
            return
        demand = self._tools.table.beside_each_other(part.needed())
        if self._searches_segments(demand) or not self._filler.counts_exactly(demand):
            budget.limit_to_segments(segments_below(part), share)

    def _close_or_any(self, part: Part, budget: Budget, *, anywhere: bool = False) -> Search | None:
        """With all preferences of subgroups met if that can be, else as near to them as it goes.

        Unless ``anywhere``, nodes that plugins want tried first come before all others, but for preferences
        that can be met only there; and the gang as a whole is close, as far as its subgroups let it.
        """
        closeness = None if anywhere else self._constraints.closeness
        first = None if anywhere else self._tools.tried_first(part.needed())
        if first is not None:
            strict = preferences_required(part)
            tries = ((strict, first), (strict, EVERYWHERE), (part, first))
            for wished, scope in tries if strict is not part else tries[:1]:
                search = self._close(wished, self._limited(wished), closeness, scope)
                if search is not None:
                    return search
        strict_part = with_preferences_required(part)
        search = None
        if strict_part is not None:
            search = self._close(strict_part, self._limited(strict_part), closeness)
        return self._close(part, budget, closeness) if search is None else search

    def _close(
        self, part: Part, budget: Budget, closeness: Levels | None, scope: NodeSet = EVERYWHERE
    ) -> Search | None:
        """The part in the tightest domain that holds it so, where the gang wishes that besides."""
        if closeness is not None:
            closest = replace(part, levels=closeness)
            search = self._search(closest, self._limited(closest), scope=scope)
            if search is not None:
                return search
        return self._search(part, budget, scope=scope)

    def _search(
        self,
        part: Part,
        budget: Budget,
        apart: Mapping[str, Distinctions] = {},
        scope: NodeSet = EVERYWHERE,
        *,
        every: bool = False,
    ) -> Search | None:
        """The first way to place the part, or the cheapest of some when a plugin compares placements.

        ``every``: of segments of unequal pods every way is tried.
        """
        search = Search(self._tools, self._group, self._statement, self._filler, budget, apart, every=every)
        judges = self._tools.profile.placement_scores
        compare = max((judge.placements_to_compare for judge in judges), default=1)
        best: _Way | None = None
        ways = (None for _ in search.alternatives(part, scope) if self._grows_enough(search, part, budget))
        for number, _ in enumerate(ways, start=1):
            if not judges:
                return search
            way = self._way(search)
            if best is None or way.cost < best.cost:
                best = way
            if number == compare:
                break
        self._statement.discard()
        if best is None:
            return None
        self._statement.assume_again(best.batches)
        search.chosen = dict(best.chosen)
        return search

    def _grows_enough(self, search: Search, part: Part, budget: Budget) -> bool:
        """Whether the gang reaches its own minimum, which may be more than its subgroups' together."""
        missing = self._group.min_member - self._members.total_running - self._members.total_done
        if len(self._state.placed) >= missing:
            return True
        if not budget.take_growth():
            return False
        mark = self._statement.checkpoint()
        self._growth.inside(search, part)
        reached = len(self._state.placed)
        self._statement.rollback(mark)
        self._most = max(self._most, reached + self._members.total_running)
        return reached >= missing

    def _way(self, search: Search) -> _Way:
        """The placement that is assumed right now, with its cost."""
        batches = tuple(self._statement.since(0))
        pods = tuple(pod for pod, _ in self._state.placed)
        slots = np.asarray([slot for _, slot in self._state.placed], dtype=np.intp)
        placement = Placement(pods=pods, slots=slots, tree=self._state.tree)
        judges = self._tools.profile.placement_scores
        cost = sum(judge.placement_cost(self._state, placement) for judge in judges)
        return _Way(cost, batches, dict(search.chosen))

    def _fits_anywhere(self) -> bool | None:
        """Whether the pods fit beside each other without any topology; None: the search did not tell."""
        budget = Budget(self._tools.steps)
        budget.backtracks = BACKTRACKS // 16
        anywhere = without_layers(parts(self._group, self._members, Constraints(levels={}), everyone=False))
        # Those beyond the minimum of a subgroup may need other nodes than it took first.
        every = Distinctions(demand=self._tools.table.shares(self._gang.waiting))
        exactly = self._group.subgroups and self._filler.counts_exactly(every.demand)
        apart = {leaf.name: every for leaf in anywhere.leaves()} if exactly else {}
        found = self._search(anywhere, budget, apart)
        self._statement.discard()
        return None if found is None and budget.spent else found is not None


def _short_of_room(demand: Sequence[Share]) -> Share | None:
    """The first class with too little room in the whole cluster; the classes are up to date."""
    return next((share for share in demand if share.pod_class.total < len(share.pods)), None)
