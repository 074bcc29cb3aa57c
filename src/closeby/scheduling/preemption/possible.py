"""Whom an item may preempt: pods of lower priority that hold a node, as they are now."""

from collections.abc import Iterable
from math import inf, isfinite
from typing import Final

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Ints
from closeby.objects.pods import Pod
from closeby.objects.words import natural_key
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.preemption.columns import RunningColumns
from closeby.scheduling.preemption.limits import Evictions
from closeby.scheduling.preemption.plans import Plans
from closeby.scheduling.preemption.protected import ProtectedPods, WhoAsks
from closeby.scheduling.preemption.rule import Preemptible, PreemptionRule
from closeby.scheduling.preemption.running import RunningPods, owner_of
from closeby.scheduling.preemption.units import Victims

#: Seconds for which no plan counts on a pod that could not be evicted.
_STUCK: Final = 600.0
#: The same of one that was and did not end; the others of its owner and namespace are the last choice then.
_UNENDING: Final = 3600.0


class PossibleVictims:
    """Answers for all items, from columns that are kept."""

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
        self._runtime = rule.runtime
        self._plans = plans
        self._evictions = evictions
        self._columns = RunningColumns(tools.cluster, state, rule, whose)
        #: uids of pods that were to go and did not, and until when no plan counts on them again.
        self.stuck: dict[str, float] = {}
        #: Owners and namespaces of pods that were evicted and did not end, and until when that counts.
        self._unending: dict[str, float] = {}
        self._now: float | None = None
        #: What the ranks of nodes were worked out from.
        self._ranked: tuple[int, int, int] | None = None
        self._ranks: Ints = np.zeros(0, dtype=np.intp)

    def begin(self, now: float | None) -> None:
        """A round of decisions begins; ``now`` by the clock of the pods' times, None where not known."""
        self._now = now
        if now is not None and self._unending:
            self._unending = {key: until for key, until in self._unending.items() if now < until}

    def did_not_go(self, pods: Iterable[Pod], now: float | None) -> None:
        """Pods were to go and did not: they were not evicted, or they did not end in time."""
        clock = inf if now is None else now
        for pod in pods:
            self.stuck[pod.uid] = clock + (_UNENDING if pod.terminating else _STUCK)
            if pod.terminating:
                self._unending.update(dict.fromkeys((owner_of(pod), pod.namespace), clock + _UNENDING))

    def _with_last_choices(self, running: RunningPods) -> RunningPods:
        """The same, with the pods that go last, as others of their owner or namespace did not end of late."""
        unending, pods = self._unending, running.pods
        if not unending:
            return running
        found = (
            2 if one.owner in unending else bool(one.members) and pods[one.members[0]].namespace in unending
            for one in running.holders
        )
        of_holder = np.fromiter(found, dtype=np.intp, count=len(running.holders))
        return replace(running, last_choice=np.maximum(running.last_choice, of_holder[running.holder_of]))

    def below(self, key: str, priority: int) -> Victims | None:
        """Those that an item of a priority may preempt; None without any."""
        lowest = self.lowest()
        if lowest is None or lowest >= priority:
            return None
        planned, everyone = self._plans.planned(priority), self.running()
        running = self._with_last_choices(everyone.with_leaving(everyone.rows_of(planned)))
        count, holder_of = len(running.pods), running.holder_of
        gone, stay = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        gone[running.rows_of(planned)] = True
        stay[running.rows_of(self._stuck())] = True
        below = running.priorities < priority
        leaving = gone | (running.terminating & below & ~stay)
        may = running.evictable & below & ~leaving & ~running.terminating & ~stay
        held = np.zeros(len(running.holders), dtype=np.bool_)
        held[list(self._evictions.shielded(running, priority, self._now))] = True
        if key in running.gangs:  # Members of the gang itself never go.
            held[running.gangs[key]] = True
        may &= ~held[holder_of]
        # A gang goes as a whole only if each of its pods may go, and none of them is to stay as its minimum.
        kept = np.bincount(holder_of[~may & ~leaving & ~running.terminating], minlength=len(running.holders))
        whole = (kept == 0) & ~held & ~running.never_whole
        barred = self._tools.holds.until_placed
        if barred is not None:  # What goes anyway on nodes that the item must keep off does not matter.
            there = running.slots < len(barred)
            leaving[there] &= ~barred[running.slots[there]]
        single = may & running.divisible[holder_of]
        victims = Victims(
            running=running,
            pods=np.flatnonzero(may & (whole[holder_of] | single)),
            leaving=np.flatnonzero(leaving),
            single=single,
            whole=whole,
            allowed=self._allowed(running, priority),
            name_ranks=self.name_ranks,
        )
        return victims if len(victims.pods) or len(victims.leaving) else None

    def lowest(self) -> int | None:
        """The lowest priority of a pod that holds a node; None without any."""
        return self._columns.lowest()

    def kept_from(self, pod: Pod) -> float:
        """The highest priority of an item that may not evict a pod, by what the pod and its gang say."""
        if pod.uid in self.stuck or not self._columns.may_be_victim(pod, self._now):
            return inf
        group = self._state.group_of(pod)
        granted = None if group is None else self._state.priorities.granted(group)
        own = self._state.priorities.of(pod)
        return own if granted is None else max(own, granted)

    def protected(self, who: WhoAsks, victims: Victims | None) -> ProtectedPods:
        """The pods that an item may not have besides these victims, and why."""
        running = self.running()
        shielded = set(self._evictions.shielded(running, who.priority, self._now))
        return ProtectedPods(
            running, who, victims, self._columns.protection, shielded, self._stuck(), self.budgets
        )

    @property
    def budgets(self) -> tuple[str, ...]:
        """The names of all budgets."""
        return self._state.budgets.names

    def _stuck(self) -> list[str]:
        return [uid for uid, until in self.stuck.items() if self._now is None or self._now < until]

    def running(self) -> RunningPods:
        """All pods that hold a node, with what their end would give."""
        return self._columns.running(self._now)

    def priority(self, pod: Pod) -> int:
        """The priority of a pod as a victim: its own, or that of its gang if that is higher."""
        running = self.running()
        row = running.index_of.get(pod.uid)
        return self._state.priorities.of(pod) if row is None else int(running.priorities[row])

    def name_ranks(self) -> Ints:
        """By slot: the place of its node in the natural order of names."""
        cluster = self._tools.cluster
        names = cluster.structure[1], cluster.node_count, cluster.capacity
        if names != self._ranked:
            keys = [natural_key(name or "") for name in cluster.names]
            self._ranked, self._ranks = names, np.empty(len(keys), dtype=np.intp)
            self._ranks[sorted(range(len(keys)), key=keys.__getitem__)] = np.arange(len(keys))
        return self._ranks

    def next_by_time(self, priority: int) -> float | None:
        """When time alone makes the next pod of lower priority a possible victim; None without any.

        It has run for long enough then, its evictions of a day are too few to protect it, or it is long ago
        that it was to go and did not.
        """
        if self._now is None or not (self._runtime or self._evictions or self.stuck):
            return None
        running = self.running()
        unshielded = self._evictions.next_unshielded(running, priority, self._now)
        found = [] if unshielded is None else [unshielded]
        if self._runtime:
            young = running.young & (running.priorities < priority)
            found += [float(running.started[young].min()) + self._runtime] if young.any() else []
        stuck = running.rows_of(self._stuck())
        found += [
            self.stuck[running.pods[row].uid] for row in stuck.tolist() if running.priorities[row] < priority
        ]
        return min((one for one in found if isfinite(one)), default=None)

    def _allowed(self, running: RunningPods, priority: int) -> list[int]:
        """What budgets allow besides the victims of the plans in force of at least this priority."""
        budgets = self._state.budgets
        if not budgets:
            return []
        waiting = (pod for pod in self._state.pods.values() if pod.node_name is None)
        allowed = budgets.allowed(running.pods, waiting)
        for uid in self._plans.planned(priority):
            row = running.index_of.get(uid)
            if row is not None and not running.terminating[row] and (budget := running.budget_of[row]) >= 0:
                allowed[budget] = max(allowed[budget] - 1, 0)
        return allowed

    def higher(self, priority: int) -> list[int]:
        """The priorities of running pods that are not below this one, ascending; none if all are equal."""
        known = set(np.unique(self.running().priorities).tolist())
        if known == {priority}:
            return []
        return sorted(one for one in known if one >= priority)
