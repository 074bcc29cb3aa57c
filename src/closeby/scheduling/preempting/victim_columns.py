"""The pods that hold a node in columns, kept as pods come and go: only those that changed are looked at."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools, Ints, Scores, widen
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import is_accelerator
from closeby.objects.pods import DEFAULT_SCHEDULER, Pod, PodSpec, ProtectionRequest, gang_key
from closeby.objects.quantities import parse_duration
from closeby.reading.decoding.preemption_requests import minimum_request
from closeby.scheduling.intake.budgets import NONE
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.preempting.rule import PodTimes, Preemptible, PreemptionRule
from closeby.scheduling.preempting.running_pods import (
    MIN_RUNTIME,
    OTHER_SCHEDULER,
    Holder,
    Protection,
    RunningPods,
    on_request,
    owner_of,
    protection,
)
from closeby.scheduling.preempting.units import MemberLimits

#: Parts of a second in which lost work is counted, so that sums don't depend on their order.
_PARTS: Final = 16


class VictimColumns:
    """Keeps what ``RunningPods`` says of each pod that holds a node."""

    def __init__(
        self, cluster: Cluster, state: SchedulingState, rule: PreemptionRule, whose: Preemptible
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._rule = rule
        self._whose = whose
        state.budgets.overruled = rule.overrule_budgets
        self._restart = parse_duration(rule.restart_cost) or 0.0
        #: Where victims end at once no grace is too long.
        self._longest_grace = (parse_duration(rule.max_grace) or 0.0) if whose.reports else inf
        own = rule.protected_namespaces
        self._trusted = whose.namespaces if own is None else own
        #: Another number whenever anything is other than before; 0 before the first look.
        self._version = 0
        self._clear()
        #: What was given out last, and what it was worked out from.
        self._running: RunningPods | None = None
        self._stamp: tuple[int, float | None] = (0, None)

    def running(self, now: float | None) -> RunningPods:
        """The pods as they are. Without ``now``, by the clock of their times, no work is known to be lost."""
        self._follow()
        if self._running is None or self._stamp != (self._version, now):
            before, same = self._running, self._stamp[0] == self._version
            self._running, self._stamp = self._build(now), (self._version, now)
            if before is not None and same and self._whose.times is None:
                self._running.keep_of(before)
        return self._running

    def lowest(self) -> int | None:
        """The lowest priority of a pod that holds a node; None without any."""
        self._follow()
        priorities = self._specs.priorities[self._spec_of[: len(self._pods)]]
        return int(priorities.min()) if len(priorities) else None

    def protection(self, row: int) -> Protection | None:
        """Why a running pod may not be a victim of any item; None if it may."""
        found = self._protection(self._pods[row], int(self._budget_of[row]))
        holder = self._holders[int(self._holder_of[row])]
        if found is None and holder.never_whole and not holder.divisible:
            found = holder.minimum_kept
        young = self._running is not None and self._running.young[row]
        return MIN_RUNTIME if found is None and young else found

    def may_be_victim(self, pod: Pod, now: float | None) -> bool:
        """Whether an item of higher priority may evict a pod, whatever budgets allow; no row is looked up.

        One of a gang whose minimum stays may be beyond it.
        """
        if self._state.budgets.covering(pod) != NONE or self._protection(pod, NONE) is not None:
            return False
        ask = self._whose.times
        times = PodTimes(_start(pod), pod.checkpointed) if ask is None else ask(pod)
        if times is None:
            return False
        if not self._rule.runtime:
            return True
        return now is not None and times.started is not None and now >= times.started + self._rule.runtime

    def _protection(self, pod: Pod, budget: int) -> Protection | None:
        """Why a pod may not be a victim of any item, however long it has run."""
        found = protection(pod, budget, self._trusted, self._whose.excluded_namespaces)
        if found is not None:
            return found
        group = self._state.group_of(pod)
        request = None if group is None else self._request(group)
        if request is not None and not request.minimum_only:
            return on_request(request, of_group=True)
        return None if self._specs.is_ours(pod.spec) else OTHER_SCHEDULER

    # Following the cluster

    def _clear(self) -> None:
        self._pods: list[Pod] = []
        self._index: dict[str, int] = {}
        self._slots: Ints = np.zeros(0, dtype=np.intp)
        self._spec_of: Ints = np.zeros(0, dtype=np.intp)
        self._holder_of: Ints = np.zeros(0, dtype=np.intp)
        self._budget_of: Ints = np.zeros(0, dtype=np.intp)
        self._started: Scores = np.zeros(0)
        self._since: Scores = np.zeros(0)
        self._grace: Ints = np.zeros(0, dtype=np.intp)
        self._terminating: Bools = np.zeros(0, dtype=np.bool_)
        self._may: Bools = np.zeros(0, dtype=np.bool_)
        self._specs = _Specs(self._cluster, self._state, self._rule, self._whose)
        self._holders: list[Holder] = []
        self._free_holders: list[int] = []
        self._gangs: dict[str, int] = {}
        self._owners: dict[str, set[int]] = {}
        self._limits: dict[int, MemberLimits] = {}
        #: The gangs whose objects name a priority, by holder.
        self._with_priority: dict[int, PodGroup] = {}
        #: The gangs whose objects ask that no member is evicted, and those whose minimum stays, by holder.
        self._protected: set[int] = set()
        self._never_whole: set[int] = set()
        #: Holders whose members changed.
        self._dirty: set[int] = set()
        self._budgets = self._state.budgets.version
        self._classes = self._state.priorities.version

    def _follow(self) -> None:
        """Take in what changed."""
        touched = self._cluster.pod_changes.take()
        if touched is None or not self._version or self._budgets != self._state.budgets.version:
            self._clear()
            self._add(self._cluster.placed_pods())
            changed = True
        else:
            changed = self._take(touched)
        changed = self._specs.follow() or changed
        if self._with_priority and self._classes != self._state.priorities.version:
            changed = True  # A class that only objects of gangs name.
        self._classes = self._state.priorities.version
        groups, holders = self._state.groups, self._holders
        self._dirty.update(
            number for key, number in self._gangs.items() if groups.get(key) is not holders[number].group
        )
        for number in self._dirty:
            self._settle(number)
        self._version += changed or bool(self._dirty)
        self._dirty.clear()

    def _take(self, touched: Iterable[str]) -> bool:
        gone: list[str] = []
        new: list[tuple[Pod, int]] = []
        for uid in touched:
            row, now = self._index.get(uid), self._cluster.placed(uid)
            same = row is not None and now is not None and self._pods[row] is now[0]
            if same and now is not None and self._slots[row] == now[1]:
                continue
            if row is not None:
                gone.append(uid)
            if now is not None:
                new.append(now)
        for uid in gone:
            self._remove(uid)
        self._add(new)
        return bool(gone or new)

    def _add(self, placed: Iterable[tuple[Pod, int]]) -> None:
        first = len(self._pods)
        covering = self._state.budgets.covering
        excluded, trusted, budgeted = (
            self._whose.excluded_namespaces,
            self._trusted,
            bool(self._state.budgets),
        )
        slots, specs, holders, budgets, terminating, may = [], [], [], [], [], []
        graces: list[int] = []
        starts: list[float | None] = []
        saves: list[float | None] = []
        for row, (pod, slot) in enumerate(placed, first):
            budget = covering(pod) if budgeted else -1
            self._pods.append(pod)
            self._index[pod.uid] = row
            slots.append(slot)
            specs.append(self._specs.take(pod.spec))
            holders.append(self._holder(pod, row))
            budgets.append(budget)
            terminating.append(pod.terminating)
            may.append(protection(pod, budget, trusted, excluded) is None)
            graces.append(pod.grace)
            starts.append(_start(pod))
            saves.append(pod.checkpointed)
        end = len(self._pods)
        if end == first:
            return
        if end > len(self._slots):
            self._widen(max(64, 2 * end))
        self._slots[first:end] = slots
        self._spec_of[first:end] = specs
        self._holder_of[first:end] = holders
        self._budget_of[first:end] = budgets
        self._terminating[first:end] = terminating
        self._may[first:end] = may
        self._grace[first:end] = graces
        self._started[first:end], self._since[first:end] = _times(starts, saves)

    def _widen(self, room: int) -> None:
        self._slots, self._spec_of = widen(self._slots, room), widen(self._spec_of, room)
        self._holder_of, self._budget_of = widen(self._holder_of, room), widen(self._budget_of, room)
        self._started, self._since = widen(self._started, room), widen(self._since, room)
        self._terminating, self._may = widen(self._terminating, room), widen(self._may, room)
        self._grace = widen(self._grace, room)

    def _remove(self, uid: str) -> None:
        """The last pod takes the place of the one that is gone."""
        row, last = self._index.pop(uid), len(self._pods) - 1
        moved = self._pods.pop()
        self._specs.drop(int(self._spec_of[row]))
        number = int(self._holder_of[row])
        holder = self._holders[number]
        holder.members.remove(row)
        self._dirty.add(number)
        if not holder.members:
            self._end(number)
        if row == last:
            return
        self._pods[row] = moved
        self._index[moved.uid] = row
        for column in (self._slots, self._spec_of, self._holder_of, self._budget_of, self._grace):
            column[row] = column[last]
        for times in (self._started, self._since):
            times[row] = times[last]
        for flags in (self._terminating, self._may):
            flags[row] = flags[last]
        other = int(self._holder_of[row])
        members = self._holders[other].members
        members[members.index(last)] = row
        self._dirty.add(other)

    # Holders

    def _holder(self, pod: Pod, row: int) -> int:
        """The number of a pod's holder, which has it from now on."""
        key = pod.uid if pod.group is None else gang_key(pod)
        number = self._gangs.get(key) if pod.group is not None else None
        if number is None:
            holder = Holder(key=key, gang=pod.group is not None, owner=owner_of(pod), members=[])
            if self._free_holders:
                number = self._free_holders.pop()
                self._holders[number] = holder
            else:
                number = len(self._holders)
                self._holders.append(holder)
            self._owners.setdefault(holder.owner, set()).add(number)
            if holder.gang:
                self._gangs[key] = number
        self._holders[number].members.append(row)
        self._dirty.add(number)
        return number

    def _end(self, number: int) -> None:
        """A holder lost its last pod."""
        holder = self._holders[number]
        if holder.gang:
            del self._gangs[holder.key]
            self._with_priority.pop(number, None)
            self._protected.discard(number)
            self._never_whole.discard(number)
        owned = self._owners[holder.owner]
        owned.discard(number)
        if not owned:
            del self._owners[holder.owner]
        self._free_holders.append(number)

    def _settle(self, number: int) -> None:
        """Work out what follows from a holder's members."""
        holder = self._holders[number]
        if not holder.members:
            self._limits.pop(number, None)
            return  # It is gone: nothing may be kept for the next one of this number.
        holder.pods = [row for row in holder.members if not self._terminating[row]]
        if holder.gang:
            group = self._state.groups.get(holder.key)
            request = None if group is None else self._request(group)
            holder.minimum_kept = self._minimum_kept(holder, request)
            holder.divide(group, self._pods)
            if group is not None and (group.priority is not None or group.priority_class_name):
                self._with_priority[number] = group
            else:
                self._with_priority.pop(number, None)
            if request is not None and not request.minimum_only:
                self._protected.add(number)
            else:
                self._protected.discard(number)
            if holder.never_whole:
                self._never_whole.add(number)
            else:
                self._never_whole.discard(number)
        self._limits.pop(number, None)
        if holder.limits is not None:
            self._limits[number] = holder.limits

    def _trusts(self, namespace: str) -> bool:
        """Whether users protect their pods there."""
        return self._trusted is None or namespace in self._trusted

    def _request(self, group: PodGroup) -> ProtectionRequest | None:
        """What a gang's object asks about evictions, in a namespace where users may ask that."""
        return group.protected_by if self._trusts(group.namespace) else None

    def _minimum_kept(self, holder: Holder, of_group: ProtectionRequest | None) -> Protection | None:
        """Why the minimum of a gang may not be evicted: its object or one of its pods asks for that."""
        if of_group is not None and of_group.minimum_only:
            return on_request(of_group, of_group=True)
        for pod in (self._pods[row] for row in holder.members):
            request = minimum_request(pod.labels) if self._trusts(pod.namespace) else None
            if request is not None:
                return on_request(request)
        return None

    # What is given out

    def _priorities(self, own: Ints, holder_of: Ints) -> Ints:
        """By pod: its own priority, or that of its gang's trusted object if that is higher."""
        granted = np.full(len(self._holders), np.iinfo(np.intp).min, dtype=np.intp)
        for number, group in self._with_priority.items():
            priority = self._state.priorities.granted(group)
            if priority is not None:
                granted[number] = priority
        return np.maximum(own, granted[holder_of]) if self._with_priority else own

    def _build(self, now: float | None) -> RunningPods:
        count = len(self._pods)
        own = self._spec_of[:count]
        specs = self._specs
        started, since, may = self._started[:count], self._since[:count], self._may[:count]
        if self._whose.times is not None:
            told = [self._whose.times(pod) for pod in self._pods]
            may = may & np.asarray([one is not None for one in told], dtype=np.bool_)
            started, since = _times(
                [None if one is None else one.started for one in told],
                [None if one is None else one.checkpointed for one in told],
            )
        evictable = specs.ours[own] & may
        if self._protected:
            evictable &= ~np.isin(self._holder_of[:count], list(self._protected))
        young = np.zeros(count, dtype=np.bool_)
        # What it takes to get back to where it was is lost in any case.
        lost = specs.weights[own] * (np.floor(self._restart * _PARTS) / _PARTS)
        if now is not None:
            if self._rule.runtime:
                # The sum is what the deadline is: a difference of floats may fall short of it.
                young = evictable & (now < started + self._rule.runtime)
                evictable &= ~young
            known = np.isfinite(since)
            parts = np.floor(np.maximum(now - since[known], 0.0) * _PARTS) / _PARTS
            lost[known] += parts * specs.weights[own][known]
        divisible = np.zeros(len(self._holders), dtype=np.bool_)
        divisible[list(self._limits)] = True
        never_whole = np.zeros(len(self._holders), dtype=np.bool_)
        never_whole[list(self._never_whole)] = True
        return RunningPods(
            cluster=self._cluster,
            pods=self._pods,
            slots=self._slots[:count],
            priorities=self._priorities(specs.priorities[own], self._holder_of[:count]),
            holder_of=self._holder_of[:count],
            holders=self._holders,
            gangs=self._gangs,
            owners=self._owners,
            accelerators=specs.weights[own],
            lost=lost,
            grace=self._grace[:count],
            longest_grace=self._longest_grace,
            last_choice=np.zeros(count, dtype=np.intp),
            started=started,
            evictable=evictable,
            young=young,
            terminating=self._terminating[:count],
            budget_of=self._budget_of[:count],
            spec_of=own,
            specs=specs.specs,
            index_of=self._index,
            divisible=divisible,
            never_whole=never_whole,
            limits=self._limits,
        )


class _Specs:
    """The specs of the pods, with what follows from each of them alone."""

    def __init__(
        self, cluster: Cluster, state: SchedulingState, rule: PreemptionRule, whose: Preemptible
    ) -> None:
        self._cluster = cluster
        self._priorities_of = state.priorities
        self._rule = rule
        self._whose = whose
        self.specs: list[PodSpec] = []
        self._used: list[int] = []
        self._free: list[int] = []
        self._index: dict[int, int] = {}
        self._known = (-1, -1)
        self._new = True
        self.priorities: Ints = np.zeros(0, dtype=np.intp)
        #: Accelerators, or thousandths of a CPU where no node has any.
        self.weights: Ints = np.zeros(0, dtype=np.intp)
        #: Whether such pods are of the scheduler whose pods may be victims.
        self.ours: Bools = np.zeros(0, dtype=np.bool_)

    def take(self, spec: PodSpec) -> int:
        """The number of a spec, which one more pod has."""
        number = self._index.get(id(spec))
        if number is None:
            self._new = True
            if self._free:
                number = self._free.pop()
                self.specs[number] = spec
                self._used[number] = 0
            else:
                number = len(self.specs)
                self.specs.append(spec)
                self._used.append(0)
            self._index[id(spec)] = number
        self._used[number] += 1
        return number

    def drop(self, number: int) -> None:
        """One pod less has a spec."""
        self._used[number] -= 1
        if not self._used[number]:
            del self._index[id(self.specs[number])]
            self._free.append(number)

    def follow(self) -> bool:
        """Work out what follows from specs, if that is not known; True if it is other than before."""
        stamp = self._priorities_of.version, self._cluster.node_changes.cursor
        if not self._new and stamp == self._known:
            return False
        before = self._new, self.priorities, self.weights
        self._new, self._known = False, stamp
        kind = is_accelerator if has_accelerators(self._cluster) else _is_cpu
        specs = self.specs
        self.priorities = np.asarray([self._priorities_of.of_spec(spec) for spec in specs], dtype=np.intp)
        weights = [sum(amount for name, amount in spec.requests if kind(name)) for spec in specs]
        self.weights = np.asarray(weights, dtype=np.intp)
        self.ours = np.asarray([self.is_ours(spec) for spec in specs], dtype=np.bool_)
        same = np.array_equal(before[1], self.priorities) and np.array_equal(before[2], self.weights)
        return before[0] or not same

    def is_ours(self, spec: PodSpec) -> bool:
        """Whether such pods are of the scheduler whose pods may be victims."""
        if self._rule.victims == "all" or self._whose.scheduler_name is None:
            return True
        return (spec.scheduler_name or DEFAULT_SCHEDULER) == self._whose.scheduler_name


def has_accelerators(cluster: Cluster) -> bool:
    """Whether any node offers an accelerator."""
    return any(
        is_accelerator(name) and cluster.allocatable[row].any() for name, row in cluster.row_of.items()
    )


def _start(pod: Pod) -> float | None:
    """When a pod started, as far as it says, else when it was created."""
    return pod.created if pod.started is None else pod.started


def _is_cpu(resource: str) -> bool:
    return resource == "cpu"


def _times(starts: Sequence[float | None], saves: Sequence[float | None]) -> tuple[Scores, Scores]:
    """When each pod started, and since when its work would be lost; infinite where that is not known, and
    nothing is lost then."""
    # None becomes nan.
    started, saved = np.asarray(starts, dtype=np.float64), np.asarray(saves, dtype=np.float64)
    since = np.fmax(started, saved)
    return np.where(np.isnan(started), np.inf, started), np.where(np.isnan(since), np.inf, since)
