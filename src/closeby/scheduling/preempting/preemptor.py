"""Who preempts whom: plans, made where an item is refused and kept until it is placed or gives up.

While victims leave there is no second plan for the item. Its nodes are kept free from all that goes after it,
and no other plan has its victims.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, ReasonToken
from closeby.scheduling.extension import Handle
from closeby.scheduling.gangs.rosters import missing
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import ItemKind, Outcome
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang, waiting_gang
from closeby.scheduling.preempting.circles import Evictions
from closeby.scheduling.preempting.domains import GangQuestion
from closeby.scheduling.preempting.nodes import PodQuestion
from closeby.scheduling.preempting.plans import Plans, PlanState, by_of
from closeby.scheduling.preempting.possible import PossibleVictims
from closeby.scheduling.preempting.records import DomainCost, NoPreemption, Preemption, PreemptionEnded
from closeby.scheduling.preempting.rule import Preemptible, Preempts, preempting_plugin
from closeby.scheduling.preempting.trials import PreemptionTrials
from closeby.scheduling.preempting.victims import Victims, in_order, pods_of
from closeby.topology.tree import ROOT_LEVEL

#: Reasons that no eviction cures.
_UNRESOLVABLE: Final[frozenset[ReasonToken]] = frozenset(
    {
        Reason.TOPOLOGY_NOT_FOUND,
        Reason.TOPOLOGY_LEVEL_NOT_FOUND,
        Reason.GANG_INCOMPLETE,
        Reason.UNSUPPORTED,
        Reason.INVALID_SPEC,
        Reason.SCHEDULING_GATED,
        Reason.NAMESPACE_EXCLUDED,
        Reason.APP_GROUP_NOT_FOUND,
        Reason.SCHEDULER_ERROR,
    }
)
#: Pods that are being deleted, of which it is tried whether their end is needed.
_SPARED: Final = 16


def preemptor_for(
    tools: Tools,
    state: SchedulingState,
    holdings: Holdings,
    handle: Handle,
    whose: Preemptible | None,
) -> "Preemptor | None":
    """One that goes by the rule of the profile's plugin; None where no pod is to be preempted."""
    plugin = preempting_plugin(tools.profile.post_filters)
    if plugin is None or whose is None or plugin.rule.preemption == "off":
        return None
    return Preemptor(tools, state, holdings, handle, plugin, whose)


class Preemptor:
    """The owner of all plans, and of who was evicted how often."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        holdings: Holdings,
        handle: Handle,
        plugin: Preempts,
        whose: Preemptible,
    ) -> None:
        self._tools = tools
        self._state = state
        self._plugin = plugin
        self._rule = rule = plugin.rule
        self._whose = whose
        self._trials = PreemptionTrials(tools, state, holdings, handle)
        self._plans = Plans(tools, state.pods)
        self._now: float | None = None
        self._evictions = Evictions(rule.max_evictions)
        self._possible = PossibleVictims(tools, state, rule, whose, self._plans, self._evictions)
        #: When an item that waits was refused first.
        self._refused: dict[str, float] = {}

    # What the rounds ask

    def begin(self, now: float | None) -> None:
        """A round of decisions begins; ``now`` by the clock of the pods' times, None where not known."""
        self._now = now
        self._possible.begin(now)

    def changed(self) -> None:
        """Something was placed: what was known of possible victims is outdated."""
        self._possible.changed()

    def keep_off(self, key: str, priority: int) -> None:
        """Note which nodes an item must keep off: those cleared for others of at least its priority."""
        self._plans.keep_off(key, priority)

    def release(self) -> None:
        """No item is decided any more."""
        self._plans.release()

    @property
    def plans(self) -> tuple[Preemption, ...]:
        """The plans in force, oldest first."""
        return tuple(plan.said for plan in self._plans)

    def take_ended(self) -> list[PreemptionEnded]:
        """The plans that ended since the last call."""
        return self._plans.take_ended()

    def finish(self, key: str, why: str = "") -> bool:
        """An item was placed, or (``why``) waits no more; True if nodes were kept free for it."""
        self._refused.pop(key, None)
        gone = [plan.by for plan in self._plans if plan.said.item == key]
        for by in (key, *gone):
            self._plans.end(by, why, None)
            self._plans.forget(by)
        return bool(gone)

    def decided(self, key: str, outcome: Outcome) -> bool:
        """An item was decided; True if it got what was cleared for it, so that others may have the rest."""
        if not outcome.bindings:
            return False
        if outcome.kind is not ItemKind.APPLICATION:
            return self.finish(key)
        ended = [self._plans.end(one.pod.uid, "", None) for one in outcome.bindings]
        return any(ended)

    # What the caller says of plans

    def gone(self, uid: str) -> str | None:
        """A pod is gone; the item whose plan waited for it alone, None if there is none."""
        self._possible.stuck.discard(uid)
        self._plans.end(uid, "the pod is gone", None)
        return self._plans.last_victim_of(uid)

    def restore(self, said: Preemption) -> None:
        """Carry on a plan that an earlier process made; it ends at once where it does not hold any more."""
        self._plans.take(said, None)
        pods = self._state.pods
        taken = [plan for plan in self._plans if plan.said is not said]
        victims = {uid for plan in taken for uid in plan.victims}
        if not self._state.waits(said.item):
            why = "nothing of it waits any more"
        elif any(self._tools.cluster.slot(node) is None for node in said.nodes):
            why = "a node of it is gone"
        elif any(self._state.priorities.of(pod) >= said.priority for pod in said.victims):
            why = "its victims are not of lower priority any more"
        elif any(pod.uid in victims for pod in said.victims):
            why = "another plan has its victims"
        elif any(pod.uid not in pods for pod in said.victims):
            why = "a victim is gone"
        else:
            return
        self._plans.end(by_of(said), why, self._now)

    def give_up(self, said: Preemption, why: str, blocked: Iterable[str]) -> str | None:
        """A plan can't be carried out; these pods (by uid) did not go. Returns the item that may be tried."""
        self._possible.stuck.update(uid for uid in blocked if uid in self._state.pods)
        plan = self._plans.find(said)
        if plan is None:
            return None
        self._plans.end(plan.by, why, self._now)
        return said.item

    def evicted(self, said: Preemption, uid: str, now: float) -> None:
        """A victim was evicted by a caller who reports evictions."""
        pod = next((one for one in said.victims if one.uid == uid), None)
        if pod is not None:
            self._evictions.note_once(pod, said, now)

    def needs(self, said: Preemption, spared: Iterable[str]) -> PlanState:
        """Whether a plan is in force and its item needs the end of ``spared`` victims (uids) too."""
        plan = self._plans.find(said)
        if plan is None or not self._state.waits(said.item):
            return PlanState.ENDED
        kept = set(spared)
        others = [pod for one in self._plans if one is not plan for pod in self._plans.left(one)]
        left = self._plans.left(plan)
        self.keep_off(said.item, said.priority)
        try:
            item = self._waiting(said)
            if item is None:
                return PlanState.LOST
            gone = [*others, *(pod for pod in left if pod.uid not in kept)]
            if self._trials.place(item, gone) is not None:
                return PlanState.ENOUGH
            whole = self._trials.place(item, [*others, *left])
            return PlanState.LOST if whole is None else PlanState.NEEDED
        finally:
            self.release()

    def _waiting(self, said: Preemption) -> WaitingGang | Pod | None:
        """The item of a plan as it waits now; None where it can't be placed as it is."""
        if not said.is_gang:
            return self._state.pods.get(said.places[0][0])
        group = self._state.groups.get(said.item)
        if group is None:
            return None
        gated = self._state.gated
        pods = tuple(pod for pod in self._state.waiting(said.item) if pod.uid not in gated)
        gang = waiting_gang(self._tools, self._state, group, pods)
        return None if missing(group, gang.members) is not None else gang

    def attempt(self, key: str, outcome: Outcome) -> tuple[Preemption | NoPreemption, ...]:
        """Plans for what was refused of an item; why there is none where it is explained."""
        if outcome.kind is ItemKind.APPLICATION:
            curable = [one.pod for one in outcome.leftover if one.reason not in _UNRESOLVABLE]
            found = [self._for_pod(key, pod, pod.uid) for pod in curable]
            return tuple(one for one in found if isinstance(one, Preemption))
        if not outcome.refused or outcome.reason in _UNRESOLVABLE:
            return ()
        pod = outcome.refused[0]
        one = self._for_gang(key, outcome) if outcome.is_gang else self._for_pod(key, pod, key)
        return () if one is None else (one,)

    def refuses_alike(self, before: Pod, pod: Pod) -> bool:
        """Whether no pod makes room for one if none did for an equal one that was refused before."""
        if self._plans or self._rule.delay or self._evictions:
            return False
        priorities = self._state.priorities
        fewer = priorities.preempts(before) or not priorities.preempts(pod)
        return fewer and priorities.of(pod) <= priorities.of(before)

    def validate(self) -> None:
        """Assert that plans share neither victims nor nodes."""
        self._plans.validate()
        for plan in self._plans:
            assert all(self._state.priorities.of(pod) < plan.said.priority for pod in plan.said.victims), (
                f"{plan.said.preemptor} would evict pods of no lower priority"
            )

    # Plans

    def _for_gang(self, key: str, outcome: Outcome) -> Preemption | NoPreemption | None:
        priority = self._state.turn(key).priority
        if not self._may(key, outcome.refused, key, priority):
            return None
        gang = waiting_gang(self._tools, self._state, self._state.groups[key], outcome.refused)
        question = GangQuestion(self._tools, self._trials, gang)
        explained = self._tools.explains(key)
        if not explained and not len(question.holding()):
            return None
        worth = len(question.holding()) > 0 or explained
        victims = self._possible.below(key, priority) if worth else None
        choice = None if victims is None else self._plugin.domain_for(question, victims)
        domains: tuple[DomainCost, ...] = ()
        if explained and victims is not None:
            domains = question.table(victims, soft=self._rule.soft(gang=True))
        if choice is None or victims is None:
            return self._no_plan_for_gang(key, priority, question, domains) if explained else None
        gone, tree = pods_of(victims.world, choice.units), choice.tree
        needed, placed = self._with_leaving(gang, victims, gone, choice.placed)
        root = choice.domain.level == ROOT_LEVEL
        said = Preemption(
            item=key,
            preemptor=key,
            is_gang=True,
            priority=priority,
            topology=tree.name,
            level=None if root else tree.level_names[choice.domain.level],
            path=tree.path(choice.domain),
            places=self._places(placed),
            victims=in_order((*gone, *needed)),
            cost=choice.cost,
            exact=choice.exact,
            domains=domains,
        )
        return self._take(said)

    def _for_pod(self, key: str, pod: Pod, by: str) -> Preemption | NoPreemption | None:
        priority = self._state.priorities.of(pod)
        if not self._may(key, (pod,), by, priority):
            return None
        question = PodQuestion(self._tools, self._trials, pod)
        explained = self._tools.explains(pod.key)
        if not question.holding():
            return None
        victims = self._possible.below(key, priority)
        choice = None if victims is None else self._plugin.node_for(question, victims)
        domains: tuple[DomainCost, ...] = ()
        if explained and victims is not None:
            domains = question.table(victims, soft=self._rule.soft(gang=False))
        if choice is None or victims is None:
            return self._no_plan_for_pod(key, priority, question, domains) if explained else None
        gone = pods_of(victims.world, choice.units)
        needed, placed = self._with_leaving(pod, victims, gone, choice.placed)
        said = Preemption(
            item=key,
            preemptor=pod.key,
            is_gang=False,
            priority=priority,
            node=choice.node,
            places=self._places(placed),
            victims=in_order((*gone, *needed)),
            cost=choice.cost,
            domains=domains,
        )
        return self._take(said)

    def _take(self, said: Preemption) -> Preemption | None:
        if not said.victims and not any(plan.victims for plan in self._plans):
            return None  # It would fit as things are, but for what no trial knows.
        if self._rule.preemption != "on" or self._whose.observe:
            return replace(said, observed=True)
        self._plans.take(said, self._now)
        if not self._whose.reports:
            self._evictions.note(said, self._now)
        self._possible.spend(said)
        return said

    def _with_leaving(
        self, item: WaitingGang | Pod, victims: Victims, gone: Sequence[Pod], placed: Sequence[Placed]
    ) -> tuple[tuple[Pod, ...], Sequence[Placed]]:
        """Pods on the nodes that are being deleted already, and without whose end the item does not fit."""
        slots = {slot for _, slot in placed}
        world = victims.world
        planned = self._plans.planned()
        on_them = [
            world.pods[one]
            for one in victims.leaving.tolist()
            if int(world.slots[one]) in slots and world.pods[one].uid not in planned
        ]
        rest = [world.pods[one] for one in victims.leaving.tolist() if world.pods[one] not in on_them]
        needed = list(on_them)
        for pod in on_them[:_SPARED]:
            left = [one for one in needed if one is not pod]
            found = self._trials.place(item, (*rest, *left, *gone))
            if found is not None:
                needed, placed = left, found
        return in_order(needed), placed

    def _places(self, placed: Sequence[Placed]) -> tuple[tuple[str, str], ...]:
        return tuple((pod.uid, self._tools.cluster.node_at(slot).name) for pod, slot in placed)

    # Who may, and whom

    def _may(self, key: str, pods: Sequence[Pod], by: str, priority: int) -> bool:
        if not all(map(self._state.priorities.preempts, pods)):
            return False
        now, plan = self._now, self._plans.of(by)
        if plan is not None:
            if self._plans.left(plan):
                return False
            self._plans.end(by, "all victims are gone, and its room was taken by others", now)
        if now is not None:
            if self._plans.rests(by, now):
                return False
            since = self._refused.setdefault(by, now)
            if now - since < self._rule.delay:
                return False
            if self._evictions.just_evicted(pods[0], now):
                return False
        return True

    # Explanations

    def _no_plan_for_gang(
        self, key: str, priority: int, question: GangQuestion, domains: tuple[DomainCost, ...]
    ) -> NoPreemption | None:
        if not len(question.holding()):
            return None  # What it lacks is said in any case.
        for above in self._possible.higher(priority):
            victims = self._possible.below(key, above + 1)
            choice = None if victims is None else self._plugin.domain_for(question, victims)
            if choice is not None:
                path = choice.tree.path(choice.domain)
                return NoPreemption(
                    why="pods of lower priority do not hold enough", domains=domains, above=above, path=path
                )
        if not domains:
            return None  # There are no pods whose priority matters.
        return NoPreemption(why="no victims of any priority make room", domains=domains)

    def _no_plan_for_pod(
        self, key: str, priority: int, question: PodQuestion, domains: tuple[DomainCost, ...]
    ) -> NoPreemption | None:
        for above in self._possible.higher(priority):
            victims = self._possible.below(key, above + 1)
            choice = None if victims is None else self._plugin.node_for(question, victims)
            if choice is not None:
                return NoPreemption(
                    why="pods of lower priority do not hold enough",
                    domains=domains,
                    above=above,
                    path=(choice.node,),
                )
        if not domains:
            return None  # There are no pods whose priority matters.
        return NoPreemption(why="no victims of any priority make room", domains=domains)


def plans_of(said: Iterable[Preemption | NoPreemption]) -> tuple[Preemption, ...]:
    """The plans among what was said."""
    return tuple(one for one in said if isinstance(one, Preemption))
