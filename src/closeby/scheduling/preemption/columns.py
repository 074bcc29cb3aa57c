"""The columns behind ``RunningPods``, kept as pods come and go: only those that changed are looked at."""

from collections.abc import Iterable
from math import inf
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Ints, widen
from closeby.objects.nodes import is_accelerator
from closeby.objects.pods import Pod, PodSpec, gang_key
from closeby.objects.quantities import parse_duration
from closeby.scheduling.intake.budgets import NONE
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.preemption.rule import (
    MIN_RUNTIME,
    PodTimes,
    Preemptible,
    PreemptionRule,
    Protection,
    Protections,
)
from closeby.scheduling.preemption.running import Holder, RunningPods, owner_of

#: Parts of a second in which lost work is counted, so that sums don't depend on their order.
_PARTS: Final = 16
#: What is kept of each pod; ``since`` is from when on its work would be lost.
_ROW: Final = np.dtype(
    [
        ("slot", np.intp),
        ("spec", np.intp),
        ("holder", np.intp),
        ("budget", np.intp),
        ("grace", np.intp),
        ("started", np.float64),
        ("since", np.float64),
        ("terminating", np.bool_),
        ("may", np.bool_),
    ]
)


class RunningColumns:
    """Keeps what ``RunningPods`` says: only pods that changed are looked at."""

    def __init__(
        self, cluster: Cluster, state: SchedulingState, rule: PreemptionRule, whose: Preemptible
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._runtime = rule.runtime
        self._times = whose.times
        state.budgets.overruled = rule.overrule_budgets
        self._protections = Protections(state, rule, whose)
        self._restart = parse_duration(rule.restart_cost) or 0.0
        #: Where victims end at once no grace is too long.
        self._longest_grace = (parse_duration(rule.max_grace) or 0.0) if whose.reports else inf
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
            self._running, self._stamp = self._build(now), (self._version, now)
        return self._running

    def lowest(self) -> int | None:
        """The lowest priority of a pod that holds a node; None without any."""
        self._follow()
        priorities = self._priorities[self._table["spec"][: len(self._pods)]]
        return int(priorities.min()) if len(priorities) else None

    def protection(self, row: int) -> Protection | None:
        """Why a running pod may not be a victim of any item; None if it may."""
        found = self._protections.of(self._pods[row], int(self._table["budget"][row]))
        holder = self._holders[int(self._table["holder"][row])]
        if found is None and holder.never_whole and not holder.divisible:
            found = holder.minimum_kept
        young = self._running is not None and self._running.young[row]
        return MIN_RUNTIME if found is None and young else found

    def may_be_victim(self, pod: Pod, now: float | None) -> bool:
        """Whether an item of higher priority may evict a pod, whatever budgets allow; no row is looked up.

        One of a gang whose minimum stays may be beyond it.
        """
        budget = self._state.budgets.covering(pod)
        if budget != NONE or self._protections.of(pod, NONE) is not None:
            return False
        times = PodTimes(_start(pod), pod.checkpointed) if self._times is None else self._times(pod)
        if times is None:
            return False
        if not self._runtime:
            return True
        return now is not None and times.started is not None and now >= times.started + self._runtime

    # Following the cluster

    def _clear(self) -> None:
        self._pods: list[Pod] = []
        self._index: dict[str, int] = {}
        self._table: NDArray[Any] = np.zeros(0, dtype=_ROW)
        #: The specs of the pods, also of some that are gone, and what follows from each of them alone.
        self._specs: list[PodSpec] = []
        self._spec_index: dict[int, int] = {}
        self._specs_known: tuple[int, ...] = ()
        self._priorities: Ints = np.zeros(0, dtype=np.intp)
        #: Accelerators, or thousandths of a CPU where no node has any.
        self._weights: Ints = np.zeros(0, dtype=np.intp)
        self._holders: list[Holder] = []
        self._free_holders: list[int] = []
        self._gangs: dict[str, int] = {}
        self._owners: dict[str, set[int]] = {}
        #: Holders whose members changed.
        self._dirty: set[int] = set()
        self._budgets = self._state.budgets.version

    def _follow(self) -> None:
        """Take in what changed."""
        touched = self._cluster.pod_changes.take()
        many = len(self._specs) > 2 * len(self._pods) + 1024
        if touched is None or not self._version or many or self._budgets != self._state.budgets.version:
            self._clear()
            self._add(self._cluster.placed_pods())
            changed = True
        else:
            changed = self._take(touched)
        changed = self._follow_specs() or changed
        groups, holders = self._state.groups, self._holders
        self._dirty.update(
            number for key, number in self._gangs.items() if groups.get(key) is not holders[number].group
        )
        for number in self._dirty:
            self._settle(holders[number])
        self._version += changed or bool(self._dirty)
        self._dirty.clear()

    def _follow_specs(self) -> bool:
        """Work out what follows from specs; True if that may be other than before."""
        priorities, specs = self._state.priorities, self._specs
        known = priorities.version, self._cluster.node_changes.cursor, len(specs)
        if known == self._specs_known:
            return False
        self._specs_known = known
        cluster = self._cluster
        offered = (name for name, row in cluster.row_of.items() if cluster.allocatable[row].any())
        kind = is_accelerator if any(map(is_accelerator, offered)) else "cpu".__eq__
        weights = [sum(amount for name, amount in spec.requests if kind(name)) for spec in specs]
        self._priorities = np.asarray([priorities.of_spec(spec) for spec in specs], dtype=np.intp)
        self._weights = np.asarray(weights, dtype=np.intp)
        return True

    def _take(self, touched: Iterable[str]) -> bool:
        gone: list[str] = []
        new: list[tuple[Pod, int]] = []
        for uid in touched:
            row, now = self._index.get(uid), self._cluster.placed(uid)
            same = row is not None and now is not None and self._pods[row] is now[0]
            if same and now is not None and self._table["slot"][row] == now[1]:
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
        first, rows = len(self._pods), []
        budgets, protects = self._state.budgets, self._protections.by_itself
        for row, (pod, slot) in enumerate(placed, first):
            budget = budgets.covering(pod) if budgets else NONE
            self._pods.append(pod)
            self._index[pod.uid] = row
            may = self._protections.is_ours(pod.spec) and protects(pod, budget) is None
            times = _times(_start(pod), pod.checkpointed)
            spec, holder = self._spec(pod.spec), self._holder(pod, row)
            rows.append((slot, spec, holder, budget, pod.grace, *times, pod.terminating, may))
        end = len(self._pods)
        if end > len(self._table):
            self._table = widen(self._table, max(64, 2 * end))
        self._table[first:end] = rows

    def _remove(self, uid: str) -> None:
        """The last pod takes the place of the one that is gone."""
        row, last, table = self._index.pop(uid), len(self._pods) - 1, self._table
        moved = self._pods.pop()
        number = int(table["holder"][row])
        holder = self._holders[number]
        holder.members.remove(row)
        self._dirty.add(number)
        if not holder.members:
            self._end(number)
        if row == last:
            return
        self._pods[row] = moved
        self._index[moved.uid] = row
        table[row] = table[last]
        other = int(table["holder"][row])
        members = self._holders[other].members
        members[members.index(last)] = row
        self._dirty.add(other)

    def _spec(self, spec: PodSpec) -> int:
        number = self._spec_index.setdefault(id(spec), len(self._specs))
        if number == len(self._specs):
            self._specs.append(spec)
        return number

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
        owned = self._owners[holder.owner]
        owned.discard(number)
        if not owned:
            del self._owners[holder.owner]
        self._free_holders.append(number)

    def _settle(self, holder: Holder) -> None:
        """Work out what follows from a holder's members."""
        terminating = self._table["terminating"]
        holder.pods = [row for row in holder.members if not terminating[row]]
        if holder.gang:
            group = self._state.groups.get(holder.key)
            members = [self._pods[row] for row in holder.members]
            holder.kept, holder.minimum_kept = self._protections.of_gang(group, members)
            holder.divide(group, self._pods)

    # What is given out

    def _build(self, now: float | None) -> RunningPods:
        count = len(self._pods)
        table, holders = self._table[:count], self._holders
        own, of, evictable = table["spec"], table["holder"], table["may"].copy()
        started, since = table["started"], table["since"]
        if self._times is not None:
            known = [self._times(pod) for pod in self._pods]
            evictable &= np.asarray([one is not None for one in known], dtype=np.bool_)
            pairs = [(inf, inf) if one is None else _times(*one) for one in known]
            started, since = np.asarray(pairs, dtype=np.float64).reshape(count, 2).T
        protected = [number for number in self._gangs.values() if holders[number].kept is not None]
        if protected:
            evictable &= ~np.isin(of, protected)
        young, weights = np.zeros(count, dtype=np.bool_), self._weights[own]
        # What it takes to get back to where it was is lost in any case.
        lost = weights * (np.floor(self._restart * _PARTS) / _PARTS)
        if now is not None:
            if self._runtime:
                # The sum is what the deadline is: a difference of floats may fall short of it.
                young = evictable & (now < started + self._runtime)
                evictable &= ~young
            has_worked = np.isfinite(since)
            parts = np.floor(np.maximum(now - since[has_worked], 0.0) * _PARTS) / _PARTS
            lost[has_worked] += parts * weights[has_worked]
        return RunningPods(
            cluster=self._cluster,
            pods=self._pods,
            slots=table["slot"],
            priorities=self._with_granted(self._priorities[own], of),
            holder_of=of,
            holders=holders,
            gangs=self._gangs,
            owners=self._owners,
            accelerators=weights,
            lost=lost,
            grace=table["grace"],
            longest_grace=self._longest_grace,
            last_choice=np.zeros(count, dtype=np.intp),
            started=started,
            evictable=evictable,
            young=young,
            terminating=table["terminating"],
            budget_of=table["budget"],
            spec_of=own,
            specs=self._specs,
            index_of=self._index,
        )

    def _with_granted(self, own: Ints, holder_of: Ints) -> Ints:
        """By pod: its own priority, or that of its gang's trusted object if that is higher."""
        granted = np.full(len(self._holders), np.iinfo(np.intp).min, dtype=np.intp)
        for number in self._gangs.values():
            group = self._holders[number].group
            if group is not None and (group.priority is not None or group.priority_class_name):
                priority = self._state.priorities.granted(group)
                granted[number] = granted[number] if priority is None else priority
        return np.maximum(own, granted[holder_of])


def _start(pod: Pod) -> float | None:
    """When a pod started, as far as it says, else when it was created."""
    return pod.created if pod.started is None else pod.started


def _times(started: float | None, saved: float | None) -> tuple[float, float]:
    """When a pod started, and since when its work would be lost; infinite where that is not known, and
    nothing is lost then."""
    known = [one for one in (started, saved) if one is not None]
    return inf if started is None else started, max(known, default=inf)
