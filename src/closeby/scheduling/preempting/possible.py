"""Whom an item may preempt: pods of lower priority that hold a node, as they are in this round."""

import numpy as np

from closeby.scheduling.intake.budgets import NONE
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.preempting.circles import Evictions
from closeby.scheduling.preempting.plans import Plans
from closeby.scheduling.preempting.records import Preemption
from closeby.scheduling.preempting.rule import Preemptible, PreemptionRule
from closeby.scheduling.preempting.victims import Victims, victims_of
from closeby.scheduling.preempting.world import World, world_of


class PossibleVictims:
    """Worked out once for all items of a round, until something is placed."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        rule: PreemptionRule,
        whose: Preemptible,
        plans: Plans,
        evictions: Evictions,
    ) -> None:
        self._tools = tools
        self._state = state
        self._rule = rule
        self._whose = whose
        self._plans = plans
        self._evictions = evictions
        #: uids of pods that were to go and did not: no plan counts on them again.
        self.stuck: set[str] = set()
        self._world: World | None = None
        #: The lowest priority of a pod that holds a node.
        self._lowest: int | None = None
        self._now: float | None = None

    def begin(self, now: float | None) -> None:
        """A round of decisions begins; ``now`` by the clock of the pods' times, None where not known."""
        self._world, self._lowest, self._now = None, None, now

    def changed(self) -> None:
        """Something was placed."""
        self._world = self._lowest = None

    def below(self, key: str, priority: int) -> Victims | None:
        """Those that an item of a priority may preempt; None without any."""
        if not self._anybody_below(priority):
            return None
        world, barred = self.world(), self._tools.reserved.barred
        if barred is not None and len(barred) < self._tools.cluster.capacity:
            barred = np.append(barred, np.zeros(self._tools.cluster.capacity - len(barred), dtype=np.bool_))
        victims = victims_of(
            world,
            priority,
            key,
            self._evictions.shielded(world, priority, self._now),
            self._plans.planned(),
            barred,
            self.stuck,
        )
        if not len(victims.pods) and not len(victims.leaving):
            return None
        return victims

    def world(self) -> World:
        """All pods that hold a node, with what their end would give."""
        if self._world is None:
            cluster, state = self._tools.cluster, self._state
            self._world = world_of(cluster, state, state.budgets, self._rule, self._whose, self._now)
            for plan in self._plans:
                self.spend(plan.said)
        return self._world

    def _anybody_below(self, priority: int) -> bool:
        """Whether any pod of lower priority holds a node."""
        if self._lowest is None:
            specs = {id(pod.spec): pod for pod, _ in self._tools.cluster.placed_pods()}
            self._lowest = min(map(self._state.priorities.of, specs.values()), default=priority)
        return self._lowest < priority

    def spend(self, said: Preemption) -> None:
        """Note a plan: what budgets allow was counted before these victims."""
        world = self.world()
        for pod in said.victims:
            budget = world.budget_of[world.index_of[pod.uid]] if pod.uid in world.index_of else NONE
            if budget >= 0 and not pod.terminating:
                world.allowed[budget] = max(world.allowed[budget] - 1, 0)

    def higher(self, priority: int) -> list[int]:
        """The priorities of running pods that are not below this one, ascending; none if all are equal."""
        known = set(self.world().priorities.tolist())
        if known == {priority}:
            return []
        return sorted(one for one in known if one >= priority)
