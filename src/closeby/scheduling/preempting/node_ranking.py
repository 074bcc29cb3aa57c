"""The order of the nodes that a plain pod may clear, for all nodes at once.

On each node all that may go is gone, and then comes back what is not needed, as ``nodes`` says; here one step
is made on all nodes together. What the order leaves open is compared by its exact cost.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from closeby.objects.arrays import Bools, Ints, Scores
from closeby.scheduling.intake.budgets import SEVERAL
from closeby.scheduling.preempting.node_room import NodeRoom
from closeby.scheduling.preempting.victims import Units, Victims, rank_in, sum_before


class _Kept(NamedTuple):
    """The units that must go: slot, holder and index of the entry of each."""

    slots: Ints
    holders: Ints
    entries: Ints


class NodeRanking:
    """Which of some nodes are the best to clear."""

    def __init__(self, victims: Victims, room: NodeRoom, units: Units, *, soft: bool) -> None:
        self._victims = victims
        self._running = running = victims.running
        self._room = room
        self._entries = entries = units.entries
        self._soft = soft
        candidates = room.could[0] > 0
        left = np.zeros(len(candidates), dtype=np.bool_)
        # Members that may go one by one give a node several ways; so do gangs under several budgets.
        left[running.slots[victims.pods[victims.single[victims.pods]]]] = True
        if running.covered:
            left[entries.slots[running.holder_budget[0][entries.holders] == SEVERAL]] = True
        #: Slots that are compared one by one, and those that are compared here.
        self.others: Ints = np.flatnonzero(candidates & left)
        self._simple: Bools = candidates & ~left

    def groups(self) -> Iterator[tuple[Ints, bool]]:
        """Slots, the best first, in groups; those of a group are in order unless the flag says otherwise."""
        kept, enough = self._kept()
        slots = np.flatnonzero(self._simple & enough)
        if not len(slots):
            return
        columns, rough = self._columns(kept, slots)
        order = np.lexsort(tuple(reversed(columns)))
        # All but the nodes that are left partly free, which is not known for several units together.
        exact = np.stack([column[order] for column in columns[:-1]])
        starts = np.flatnonzero(np.concatenate(([True], (exact[:, 1:] != exact[:, :-1]).any(axis=0))))
        ends = np.append(starts[1:], len(order))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            group = order[start:end]
            if end - start > 1:
                ranks = self._victims.name_ranks()[slots[group]]
                group = group[np.lexsort((ranks, columns[-1][group]))]
            yield slots[group], bool(end - start > 1 and rough[group].any())

    def _kept(self) -> tuple[_Kept, Bools]:
        """Who must go on each node, and where all that may go is enough."""
        entries, room = self._entries, self._room
        asks = np.asarray(room.kinds[0].asks, dtype=np.int64)[:, None]
        # Of what is enough on every node nothing has to come free.
        short = np.flatnonzero(((room.free < asks) & (asks > 0) & self._simple).any(axis=1))
        asks = asks[short]
        chosen = np.flatnonzero(self._simple[entries.slots] & self._victims.whole[entries.holders])
        chosen = chosen[self._by_importance(chosen)]
        slots, holders = entries.slots[chosen], entries.holders[chosen]
        violating = self._violating(slots, holders)
        if not self._soft:
            chosen, slots, holders = chosen[~violating], slots[~violating], holders[~violating]
        elif violating.any():
            last_choice = self._running.holder_last_choice[holders]
            order = np.lexsort((np.arange(len(slots)), ~violating, -last_choice, slots))
            chosen, slots, holders = chosen[order], slots[order], holders[order]
        free, freed = room.free[short], entries.freed[short][:, chosen]
        for row, amounts in enumerate(freed):
            np.add.at(free[row], slots, amounts)
        enough: Bools = np.all(free >= asks, axis=0)
        inside = enough[slots]
        if not inside.all():
            chosen, slots, holders, freed = chosen[inside], slots[inside], holders[inside], freed[:, inside]
        goes = np.zeros(len(chosen), dtype=np.bool_)
        step = rank_in(slots)
        by_step = np.argsort(step, kind="stable")
        bounds = np.searchsorted(step[by_step], range(int(step.max(initial=-1)) + 2)).tolist()
        for first, end in pairwise(bounds):
            here = by_step[first:end]
            at = slots[here]
            after = free[:, at] - freed[:, here]
            stays: Bools = np.all(after >= asks, axis=0)
            free[:, at[stays]] = after[:, stays]
            goes[here[~stays]] = True
        return _Kept(slots[goes], holders[goes], chosen[goes]), enough

    def _by_importance(self, chosen: Ints) -> Ints:
        """The order of some entries by node, the most important first."""
        running, entries = self._running, self._entries
        slots, holders = entries.slots[chosen], entries.holders[chosen]
        ranks = running.holder_importance
        keys = slots * (int(ranks.max(initial=0)) + 1) + ranks[holders]
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        if not same.any() or self._alike(chosen[order], same):
            return order
        return np.lexsort((self._names(holders), keys))

    def _alike(self, chosen: Ints, same: Bools) -> bool:
        """Whether it makes no difference which of two neighbours that are as important comes first."""
        running, entries = self._running, self._entries
        holders = entries.holders[chosen]
        columns: list[Ints | Scores] = [*entries.freed[:, chosen]]
        columns.append(running.holder_lost[holders])
        columns += [running.holder_accelerators[holders], running.holder_pods[holders]]
        columns += [running.holder_budget[0][holders], running.holder_weight[holders]]
        columns += [running.holder_grace[holders], running.holder_last_choice[holders]]
        if running.holder_gang[holders].any():
            return False
        return all(bool((column[1:] == column[:-1])[same].all()) for column in columns)

    def _names(self, holders: Ints) -> Ints:
        """The place of each holder in the order of names."""
        numbers, of = np.unique(holders, return_inverse=True)
        names = [self._running.name_of(number) for number in numbers.tolist()]
        ranks = np.empty(len(names), dtype=np.intp)
        ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return ranks[of]

    def _violating(self, slots: Ints, holders: Ints) -> Bools:
        """Which of the entries, in order of importance, a budget forbids to go with those before them."""
        found = np.zeros(len(slots), dtype=np.bool_)
        if not self._running.covered or not len(slots):
            return found
        budgets, pods = self._running.holder_budget
        covered = np.flatnonzero(budgets[holders] >= 0)
        which, count = budgets[holders[covered]], pods[holders[covered]]
        order = np.lexsort((covered, which, slots[covered]))
        keys = slots[covered][order] * (int(which.max(initial=0)) + 1) + which[order]
        groups = np.unique(keys, return_inverse=True)[1]
        before = sum_before(groups, count[order], int(groups.max(initial=-1)) + 1)
        allowed = np.asarray(self._victims.allowed, dtype=np.intp)
        found[covered[order]] = before + count[order] > allowed[which[order]]
        return found

    def _violations(self, kept: _Kept, capacity: int) -> Ints:
        """By slot: victims whose eviction budgets do not allow."""
        found = np.zeros(capacity, dtype=np.intp)
        if not self._running.covered or not len(kept.slots):
            return found
        budgets, pods = self._running.holder_budget
        covered = budgets[kept.holders] >= 0
        slots, which = kept.slots[covered], budgets[kept.holders[covered]]
        allowed = np.asarray(self._victims.allowed, dtype=np.intp)
        keys, of = np.unique(slots * len(allowed) + which, return_inverse=True)
        gone = np.bincount(of, weights=pods[kept.holders[covered]], minlength=len(keys)).astype(np.intp)
        over = np.maximum(gone - allowed[keys % len(allowed)], 0)
        np.add.at(found, keys // len(allowed), over)
        return found

    def _columns(self, kept: _Kept, slots: Ints) -> tuple[list[Scores | Ints], Bools]:
        """By what the nodes are compared, in order, and where the last of it is not known."""
        running, entries, capacity = self._running, self._entries, len(self._simple)
        at, holders = kept.slots, kept.holders

        def total(values: Ints | Scores) -> Scores:
            summed = np.bincount(at, weights=values.astype(np.float64), minlength=capacity)[slots]
            return summed.astype(np.float64)

        def most(values: Ints | Bools, nothing: float) -> Scores:
            found = np.full(capacity, nothing)
            np.maximum.at(found, at, values)
            return found

        highest = most(running.holder_priority[holders], -np.inf)
        first = np.full(capacity, np.inf)
        top = running.holder_priority[holders] == highest[at]
        np.minimum.at(first, at[top], running.holder_started[holders[top]])
        latest = np.where(np.isfinite(first), -first, 0.0)[slots]
        broken = total(running.holder_gang[holders].astype(np.intp))
        heavy, pods = running.holder_accelerators[holders], total(running.holder_pods[holders])
        inside = entries.accelerators[kept.entries]
        gang = broken > 0
        columns: list[Scores | Ints] = [
            most(running.holder_last_choice[holders], 0)[slots],
            self._violations(kept, capacity)[slots],
            highest[slots],
            most(running.holder_slow[holders], 0)[slots],
            broken,
            np.where(gang, total(running.holder_lost[holders]), total(running.holder_weight[holders])),
            np.where(gang, total(heavy), pods),
            np.where(gang, total(heavy - inside), latest),
            np.where(gang, most(running.holder_grace[holders], 0)[slots], 0),
            np.where(gang, pods, 0),
            np.where(gang, total(self._partly_free()[holders]), 0),
        ]
        return columns, gang & (np.bincount(at, minlength=capacity)[slots] > 1)

    def _partly_free(self) -> Ints:
        """By holder: nodes that would lose all of its pods and keep another one."""
        running, entries, capacity = self._running, self._entries, len(self._simple)
        held = np.bincount(running.slots, minlength=capacity)
        held -= np.bincount(running.slots[self._victims.leaving], minlength=capacity)
        keeps = held[entries.slots] > entries.pods
        return np.bincount(entries.holders[keeps], minlength=len(running.holders))
