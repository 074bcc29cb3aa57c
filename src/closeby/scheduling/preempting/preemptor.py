"""Who preempts whom: plans, made where an item is refused and kept until it is placed or gives up.

While victims leave there is no second plan for the item. Its nodes are kept free from all that goes after it,
and no other plan has its victims.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Bools
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, ReasonToken
from closeby.scheduling.extension import Handle
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import ItemKind, Outcome
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang, waiting_gang
from closeby.scheduling.preempting.circles import Evictions
from closeby.scheduling.preempting.domains import GangQuestion
from closeby.scheduling.preempting.nodes import PodQuestion
from closeby.scheduling.preempting.records import DomainCost, NoPreemption, Preemption
from closeby.scheduling.preempting.rule import Preemptible, Preempts, preempting_plugin
from closeby.scheduling.preempting.trials import PreemptionTrials
from closeby.scheduling.preempting.victims import Victims, in_order, pods_of, victims_of
from closeby.scheduling.preempting.world import World, world_of
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


class _Plan(NamedTuple):
    """A plan in force."""

    said: Preemption
    #: Who gets the room: the item's key, or of an application the pod's uid.
    by: str
    number: int
    slots: tuple[int, ...]
    victims: frozenset[str]


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
        #: By item; those of one application by its pods.
        self._plans: dict[str, _Plan] = {}
        self._number = 0
        #: Numbers of the sets of plans whose nodes an item must keep off.
        self._sets: dict[frozenset[int], int] = {}
        self._world: World | None = None
        #: The lowest priority of a pod that holds a node.
        self._lowest: int | None = None
        self._now: float | None = None
        self._evictions = Evictions(rule.max_evictions)
        #: When an item that waits was refused first.
        self._refused: dict[str, float] = {}

    # What the rounds ask

    def begin(self, now: float | None) -> None:
        """A round of decisions begins; ``now`` by the clock of the pods' times, None where not known."""
        self._world, self._lowest, self._now = None, None, now

    def changed(self) -> None:
        """Something was placed: what was known of possible victims is outdated."""
        self._world = self._lowest = None

    def keep_off(self, key: str, priority: int) -> None:
        """Note which nodes an item must keep off: those cleared for others of at least its priority."""
        reserved = self._tools.reserved
        plans = [
            plan for plan in self._plans.values() if plan.said.item != key and plan.said.priority >= priority
        ]
        reserved.set, reserved.cleared = 0, None
        if plans:
            numbers = frozenset(plan.number for plan in plans)
            reserved.set = self._sets.setdefault(numbers, len(self._sets) + 1)
            reserved.cleared = self._mask(plans)

    def release(self) -> None:
        """No item is decided any more."""
        self._tools.reserved.set, self._tools.reserved.cleared = 0, None

    @property
    def plans(self) -> tuple[Preemption, ...]:
        """The plans in force, oldest first."""
        return tuple(plan.said for plan in self._plans.values())

    def finish(self, key: str) -> bool:
        """An item was placed, or waits no more; True if nodes were kept free for it."""
        self._refused.pop(key, None)
        gone = [by for by, plan in self._plans.items() if plan.said.item == key]
        for by in gone:
            del self._plans[by]
        if gone:
            self._tools.table.forget_barred()
        return bool(gone)

    def decided(self, key: str, outcome: Outcome) -> bool:
        """An item was decided; True if it got what was cleared for it, so that others may have the rest."""
        if not outcome.bindings:
            return False
        if outcome.kind is not ItemKind.APPLICATION:
            return self.finish(key)
        placed = [one.pod.uid for one in outcome.bindings if self._plans.pop(one.pod.uid, None) is not None]
        if placed:
            self._tools.table.forget_barred()
        return bool(placed)

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
        victims = [uid for plan in self._plans.values() for uid in plan.victims]
        assert len(victims) == len(set(victims)), "two plans have a victim in common"
        for plan in self._plans.values():
            assert all(self._state.priorities.of(pod) < plan.said.priority for pod in plan.said.victims), (
                f"{plan.said.preemptor} would evict pods of no lower priority"
            )
            others = (one for one in self._plans.values() if one is not plan)
            assert not any(set(plan.slots) & set(one.slots) for one in others), "two plans share a node"

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
        victims = self._victims(key, priority, worth=len(question.holding()) > 0 or explained)
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
        return self._take(said, key, placed)

    def _for_pod(self, key: str, pod: Pod, by: str) -> Preemption | NoPreemption | None:
        priority = self._state.priorities.of(pod)
        if not self._may(key, (pod,), by, priority):
            return None
        question = PodQuestion(self._tools, self._trials, pod)
        explained = self._tools.explains(pod.key)
        if not question.holding():
            return None
        victims = self._victims(key, priority, worth=True)
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
        return self._take(said, by, placed)

    def _take(self, said: Preemption, by: str, placed: Sequence[Placed]) -> Preemption | None:
        if not said.victims and not any(plan.victims for plan in self._plans.values()):
            return None  # It would fit as things are, but for what no trial knows.
        if self._rule.preemption != "on":
            return replace(said, observed=True)
        self._number += 1
        slots = tuple(sorted({slot for _, slot in placed}))
        uids = frozenset(pod.uid for pod in said.victims)
        # Plans of less priority that had some of these nodes have lost their room.
        for other, plan in list(self._plans.items()):
            if set(plan.slots) & set(slots):
                del self._plans[other]
        self._plans[by] = _Plan(said, by, self._number, slots, uids)
        self._evictions.note(said, self._now)
        return said

    def _with_leaving(
        self, item: WaitingGang | Pod, victims: Victims, gone: Sequence[Pod], placed: Sequence[Placed]
    ) -> tuple[tuple[Pod, ...], Sequence[Placed]]:
        """Pods on the nodes that are being deleted already, and without whose end the item does not fit."""
        slots = {slot for _, slot in placed}
        world = victims.world
        planned = {uid for plan in self._plans.values() for uid in plan.victims}
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

    def _mask(self, plans: Iterable[_Plan]) -> Bools:
        mask = np.zeros(self._tools.cluster.capacity, dtype=np.bool_)
        for plan in plans:
            mask[list(plan.slots)] = True
        return mask

    # Who may, and whom

    def _may(self, key: str, pods: Sequence[Pod], by: str, priority: int) -> bool:
        if not all(map(self._state.priorities.preempts, pods)):
            return False
        plan = self._plans.get(by)
        if plan is not None:
            if any(uid in self._state.pods for uid in plan.victims):
                return False
            # All are gone, and it does not fit: its room is lost.
            del self._plans[by]
            self._tools.table.forget_barred()
        now = self._now
        if now is not None:
            since = self._refused.setdefault(by, now)
            if now - since < self._rule.delay:
                return False
            if self._evictions.just_evicted(pods[0], now):
                return False
        return True

    def _victims(self, key: str, priority: int, *, worth: bool) -> Victims | None:
        if not worth:
            return None
        if not self._anybody_below(priority):
            return None
        world, barred = self._world_now(), self._tools.reserved.barred
        if barred is not None and len(barred) < self._tools.cluster.capacity:
            barred = np.append(barred, np.zeros(self._tools.cluster.capacity - len(barred), dtype=np.bool_))
        evicted = [uid for plan in self._plans.values() for uid in plan.victims]
        victims = victims_of(
            world, priority, key, self._evictions.shielded(world, priority, self._now), evicted, barred
        )
        if not len(victims.pods) and not len(victims.leaving):
            return None
        return victims

    def _world_now(self) -> World:
        if self._world is None:
            cluster, state = self._tools.cluster, self._state
            self._world = world_of(cluster, state, state.budgets, self._rule, self._whose, self._now)
        return self._world

    def _anybody_below(self, priority: int) -> bool:
        """Whether any pod of lower priority holds a node."""
        if self._lowest is None:
            specs = {id(pod.spec): pod for pod, _ in self._tools.cluster.placed_pods()}
            self._lowest = min(map(self._state.priorities.of, specs.values()), default=priority)
        return self._lowest < priority

    # Explanations

    def _no_plan_for_gang(
        self, key: str, priority: int, question: GangQuestion, domains: tuple[DomainCost, ...]
    ) -> NoPreemption | None:
        if not len(question.holding()):
            return None  # What it lacks is said in any case.
        for above in self._higher(priority):
            victims = self._victims(key, above + 1, worth=True)
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
        for above in self._higher(priority):
            victims = self._victims(key, above + 1, worth=True)
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

    def _higher(self, priority: int) -> list[int]:
        """The priorities of running pods that are not below this one, ascending; none if all are equal."""
        known = set(self._world_now().priorities.tolist())
        if known == {priority}:
            return []
        return sorted(one for one in known if one >= priority)


def plans_of(said: Iterable[Preemption | NoPreemption]) -> tuple[Preemption, ...]:
    """The plans among what was said."""
    return tuple(one for one in said if isinstance(one, Preemption))
