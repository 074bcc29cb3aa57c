"""Who preempts whom: plans, made where an item is refused and kept until it is placed or gives up.

While victims leave there is no second plan for the item. Its nodes are kept free from all that goes after it,
and no other plan has its victims.
"""

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Final

from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.quantities import utc
from closeby.objects.reasons import Reason, ReasonToken
from closeby.reading.decoding.preemption_requests import preemption_delay
from closeby.scheduling.extension import Handle
from closeby.scheduling.gangs.rosters import missing
from closeby.scheduling.intake.cluster_events import PreemptionHint
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.holds import Comer, Hold, HoldKind
from closeby.scheduling.outcomes import (
    Eviction,
    ItemKind,
    NoPreemption,
    Outcome,
    Preemption,
    PreemptionEnded,
)
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import Tools, WaitingGang, waiting_gang
from closeby.scheduling.preemption.limits import Deadlines, Evictions
from closeby.scheduling.preemption.plans import Plans, PlanState, by_of
from closeby.scheduling.preemption.possible import PossibleVictims
from closeby.scheduling.preemption.proposals import Proposals
from closeby.scheduling.preemption.rule import Preemptible, Preempts, preempting_plugin
from closeby.scheduling.preemption.trials import PreemptionTrials

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

_NOT_LOWER: Final = "its victims are not of lower priority any more"
#: Seconds until an item is tried again at the soonest since time made pods possible victims.
_SOONEST: Final = 1.0


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
        self._rule = rule = plugin.rule
        self._whose = whose
        self._trials = PreemptionTrials(tools, state, holdings, handle)
        self._plans = Plans(tools, state.pods)
        self._now: float | None = None
        #: The highest priority of an item that could not have evicted a pod which left since the last hint.
        self._kept_from = -inf
        self._evictions = Evictions(rule.max_evictions)
        self._deadlines = Deadlines(rule.delay, state.waits)
        #: Preemptors that violate no budget any more.
        self._strict: set[str] = set()
        self._possible = PossibleVictims(tools, state, rule, whose, self._plans, self._evictions)
        self._proposals = Proposals(tools, self._trials, plugin, self._possible, self._plans)

    # What the rounds ask

    def begin(self, now: float | None) -> None:
        """A round of decisions begins; ``now`` by the clock of the pods' times, None where not known."""
        self._now = now
        self._possible.begin(now)

    def take_due(self) -> list[str]:
        """The items that may preempt from now on: their delay, backoff or cooldown is over."""
        return [] if self._now is None else self._deadlines.take_due(self._now)

    @property
    def next_deadline(self) -> float | None:
        """When the next item that waits may preempt, by the clock of ``begin``."""
        return self._deadlines.next

    @property
    def steps(self) -> int:
        """What the search for victims has cost so far, for all items, in steps of a decision."""
        return self._trials.all_steps

    def note_room(self, pods: Iterable[Pod] | None) -> None:
        """Pods left their nodes, or take less there; None: a node came, or takes other pods than before."""
        found = (inf,) if pods is None else map(self._possible.kept_from, pods)
        self._kept_from = max(self._kept_from, *found)

    def take_hint(self) -> PreemptionHint | None:
        """Which items may clear more than when they were refused; None: none of them."""
        up_to, self._kept_from = self._kept_from, -inf
        above = None if up_to == -inf else self._possible.lowest()
        return None if above is None else PreemptionHint(above, up_to)

    def off(self, comer: Comer) -> Hold | None:
        """The nodes that an item must keep off: those cleared for others of at least its priority."""
        return self._plans.off(comer)

    def _keep_off(self, by: str, priority: int) -> None:
        """What one pod of an application keeps off, in place of the whole, or who has a plan."""
        self._tools.holds.put(HoldKind.PLAN, self._plans.off(Comer(by, priority)))

    @property
    def plans(self) -> tuple[Preemption, ...]:
        """The plans in force, oldest first."""
        return tuple(plan.said for plan in self._plans)

    def take_ended(self) -> list[PreemptionEnded]:
        """The plans that ended since the last call."""
        ended = self._plans.take_ended()
        for one in ended:
            self._evictions.ended(one.plan, by_of(one.plan))
        return ended

    def finish(self, key: str, why: str = "") -> bool:
        """An item was placed, or (``why``) waits no more; True if nodes were kept free for it."""
        gone = [plan.by for plan in self._plans if plan.said.item == key]
        for by in (key, *gone):
            self._plans.end(by, why, None)
            self._forget(by)
        return bool(gone)

    def _forget(self, by: str) -> None:
        self._plans.forget(by)
        self._deadlines.forget(by)
        self._strict.discard(by)

    def decided(self, key: str, outcome: Outcome) -> bool:
        """An item was decided; True if it got what was cleared for it, so that others may have the rest."""
        if not outcome.bindings:
            return False
        if outcome.kind is not ItemKind.APPLICATION:
            return self.finish(key)
        ended = [self._plans.end(one.pod.uid, "", None) for one in outcome.bindings]
        for one in outcome.bindings:
            self._forget(one.pod.uid)
        return any(ended)

    def backoff(self, key: str) -> float:
        """Seconds for which a new item waits before it is tried: it was evicted a moment ago. Else 0."""
        if self._now is None or not self._evictions:
            return 0.0
        pods = self._state.waiting(key)
        return self._evictions.backoff(pods[0], self._now) if pods else 0.0

    # What the caller says of plans

    def gone(self, uid: str) -> str | None:
        """A pod is gone; the item whose plan waited for it alone, None if there is none."""
        self._possible.stuck.pop(uid, None)
        self._plans.end(uid, "the pod is gone", None)
        self._forget(uid)
        return self._plans.last_victim_of(uid)

    def restore(self, said: Preemption, counted: Iterable[str]) -> None:
        """Carry on a plan that an earlier process made; it ends at once where it does not hold any more.

        What is evicted for it of these gangs and owners is counted already.
        """
        self._plans.take(said, None)
        for owner in counted:
            self._evictions.count(owner, by_of(said))
        pods = self._state.pods
        taken = [plan for plan in self._plans if plan.said is not said]
        victims = {uid for plan in taken for uid in plan.victims}
        if not self._state.waits(said.item):
            why = "nothing of it waits any more"
        elif any(self._tools.cluster.slot(node) is None for node in said.nodes):
            why = "a node of it is gone"
        elif any(self._state.priorities.of(pod) >= said.priority for pod in said.victims):
            why = _NOT_LOWER
        elif any(pod.uid in victims for pod in said.victims):
            why = "another plan has its victims"
        elif any(pod.uid not in pods for pod in said.victims):
            why = "a victim is gone"
        else:
            return
        self._plans.end(by_of(said), why, self._now)

    def priorities_changed(self) -> list[str]:
        """Ends the plans that would evict pods of no lower priority any more; returns their items."""
        ended = []
        for plan in self._plans:
            staying = [pod for pod in self._plans.left(plan) if not pod.terminating]
            lowest = min(plan.said.priority, self._priority(plan.said))
            if any(self._possible.priority(pod) >= lowest for pod in staying):
                self._plans.end(plan.by, _NOT_LOWER, None)
                ended.append(plan.said.item)
        return ended

    def _priority(self, said: Preemption) -> int:
        """The priority of a preemptor as it is now."""
        if not self._state.waits(said.item):
            return said.priority
        if said.is_gang:
            return self._state.turn(said.item).priority
        pod = self._state.pods.get(said.places[0][0])
        return said.priority if pod is None else self._state.priorities.of(pod)

    def give_up(self, said: Preemption, why: str, blocked: Iterable[str], *, strict: bool) -> str | None:
        """A plan can't be carried out; these pods (by uid) did not go. Returns the item that may be tried.

        ``strict``: its next plans violate no budget.
        """
        there = map(self._state.pods.get, blocked)
        self._possible.did_not_go((pod for pod in there if pod is not None), self._now)
        plan = self._plans.find(said)
        if plan is None:
            return None
        if strict:
            self._strict.add(plan.by)
        self._plans.end(plan.by, why, self._now)
        return said.item

    def evicted(self, said: Preemption, uid: str, now: float) -> None:
        """A victim was evicted by a caller who reports evictions."""
        pod = next((one for one in said.victims if one.uid == uid), None)
        if pod is not None:
            self._evictions.note_once(pod, by_of(said), said.priority, now)

    def restore_evictions(self, owner: str, evictions: Iterable[Eviction]) -> None:
        """What earlier processes evicted of a gang or owner."""
        self._evictions.restore(owner, evictions)

    def evictions_of(self, owner: str) -> tuple[Eviction, ...]:
        """What was evicted of a gang or owner in the last day, oldest first."""
        return self._evictions.of(owner)

    def needs(self, said: Preemption, spared: Iterable[str]) -> PlanState:
        """Whether a plan is in force and its item needs the end of ``spared`` victims (uids) too."""
        plan = self._plans.find(said)
        if plan is None or not self._state.waits(said.item):
            return PlanState.ENDED
        kept = set(spared)
        others = [pod for one in self._plans if one is not plan for pod in self._plans.left(one)]
        left = self._plans.left(plan)
        self._keep_off(plan.by, said.priority)
        try:
            item = self._waiting(said)
            if item is None:
                return PlanState.LOST
            gone = [*others, *(pod for pod in left if pod.uid not in kept)]
            if self._trials.place_without(item, gone) is not None:
                return PlanState.ENOUGH
            whole = self._trials.place_without(item, [*others, *left])
            return PlanState.LOST if whole is None else PlanState.NEEDED
        finally:
            self._tools.holds.off = ()

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
            curable = (one.pod for one in outcome.leftover if one.reason not in _UNRESOLVABLE)
            found = [self._for_pod_of_application(key, pod) for pod in curable]
            return tuple(one for one in found if isinstance(one, Preemption))
        if not outcome.refused or outcome.reason in _UNRESOLVABLE:
            return ()
        pod = outcome.refused[0]
        one = self._for_gang(key, outcome) if outcome.is_gang else self._for_pod(key, pod, key)
        return () if one is None else (one,)

    def refuses_alike(self, before: Pod, pod: Pod) -> bool:
        """Whether no pod makes room for one if none did for an equal one that was refused before."""
        if self._plans or self._plans.any_failed or self._rule.delay or self._evictions:
            return False
        if any(one.annotations and preemption_delay(one.annotations) for one in (before, pod)):
            return False
        priorities = self._state.priorities
        fewer = priorities.preempts(before) or not priorities.preempts(pod)
        return fewer and priorities.of(pod) <= priorities.of(before)

    def validate(self) -> None:
        """Assert that plans share neither victims nor nodes."""
        self._plans.validate()
        for plan in self._plans:
            staying = [pod for pod in self._plans.left(plan) if not pod.terminating]
            assert all(self._possible.priority(pod) < plan.said.priority for pod in staying), (
                f"{plan.said.preemptor} would evict pods of no lower priority"
            )

    # Plans

    def _for_gang(self, key: str, outcome: Outcome) -> Preemption | NoPreemption | None:
        priority = self._state.turn(key).priority
        forbidden = self._forbidden(outcome.refused, key, self._state.groups[key])
        if forbidden is None:
            return None
        until = None if forbidden else self._until(key, outcome.refused[0], key)
        if until is not None:
            return self._later(key, until)
        gang = waiting_gang(self._tools, self._state, self._state.groups[key], outcome.refused)
        said = self._proposals.for_gang(key, gang, priority, soft=self._soft(key, gang=True))
        if forbidden:
            return _but_for_policy(said, forbidden)
        return self._settled(key, said, priority)

    def _for_pod_of_application(self, key: str, pod: Pod) -> Preemption | NoPreemption | None:
        """A pod of an application preempts like a plain pod: the others of it count as others."""
        self._keep_off(pod.uid, self._state.priorities.of(pod))
        return self._for_pod(key, pod, pod.uid)

    def _for_pod(self, key: str, pod: Pod, by: str) -> Preemption | NoPreemption | None:
        priority = self._state.priorities.of(pod)
        forbidden = self._forbidden((pod,), pod.key)
        if forbidden is None:
            return None
        until = None if forbidden else self._until(key, pod, by)
        if until is not None:
            return self._later(pod.key, until)
        said = self._proposals.for_pod(key, pod, priority, soft=self._soft(by, gang=False))
        if forbidden:
            return _but_for_policy(said, forbidden)
        return self._settled(key, said, priority)

    def _settled(
        self, key: str, said: Preemption | NoPreemption | None, priority: int
    ) -> Preemption | NoPreemption | None:
        if isinstance(said, Preemption):
            return self._take(said)
        when = self._possible.next_by_time(priority)
        if when is not None and self._now is not None:
            self._deadlines.wake(key, max(when, self._now + _SOONEST))
        return said

    def _take(self, said: Preemption) -> Preemption | None:
        if not said.victims and not any(plan.victims for plan in self._plans):
            return None  # It would fit as things are, but for what no trial knows.
        if self._rule.preemption != "on" or self._whose.observe:
            return replace(said, observed=True)
        self._plans.take(said, self._now)
        if not self._whose.reports:
            self._evictions.note(said, self._now)
        return said

    def _soft(self, by: str, *, gang: bool) -> bool:
        """Whether victims of a preemptor may violate budgets."""
        return by not in self._strict and self._rule.soft(gang=gang)

    def _forbidden(self, pods: Sequence[Pod], name: str, group: PodGroup | None = None) -> str | None:
        """Whose policy forbids these pods to preempt; empty if none does, None if it need not be said.

        That of their PodGroup counts instead of theirs where it has one.
        """
        if group is not None and group.preemption_policy:
            found = f"PodGroup/{group.name}" if group.preemption_policy == "Never" else ""
        else:
            found = next(filter(None, map(self._state.priorities.forbids, pods)), "")
        return found if not found or self._tools.explains(name) else None

    def _later(self, name: str, until: float) -> NoPreemption | None:
        """What is said of an item that waits before it preempts."""
        if not isfinite(until) or not self._tools.explains(name):
            return None
        return NoPreemption(why=f"it may preempt from {utc(until)} on")

    def _until(self, key: str, pod: Pod, by: str) -> float | None:
        """Until when an item, of which this is a pod, waits before it preempts; None if it may at once.

        Infinite while victims of its plan leave.
        """
        now, plan = self._now, self._plans.of(by)
        if plan is not None:
            if self._plans.any_left(plan):
                return inf
            self._plans.end(by, "all victims are gone, and its room was taken by others", now)
        if now is None:
            return None
        group = None if pod.group is None or by != key else self._state.groups.get(key)
        own, created = preemption_delay(pod.annotations), pod.created
        if group is not None:
            own, created = group.preemption_delay or own, group.created or created
        delay = self._deadlines.delay(by, now, own, created)
        waits = delay, self._plans.backoff(by, now), self._evictions.cooldown(pod, now)
        until = max((one for one in waits if one is not None), default=None)
        if until is not None:
            self._deadlines.wake(key, until)
        return until


def _but_for_policy(
    said: Preemption | NoPreemption | None, policy_of: str
) -> Preemption | NoPreemption | None:
    """What would be cleared if no policy forbade it."""
    if not isinstance(said, Preemption):
        return None
    path = said.path if said.is_gang else (said.node,)
    why = "its preemptionPolicy is Never"
    return NoPreemption(why=why, domains=said.domains, path=path, policy_of=policy_of)


def plans_of(said: Iterable[Preemption | NoPreemption]) -> tuple[Preemption, ...]:
    """The plans among what was said."""
    return tuple(one for one in said if isinstance(one, Preemption))
