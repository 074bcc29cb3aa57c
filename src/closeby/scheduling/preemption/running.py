"""The pods that hold a node, as possible victims: what they belong to, what they take and what they cost.

The arrays have one entry per pod, or one per holder: a gang, or a pod by itself.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Bools, Ints, Scores
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, PodSpec, gang_key
from closeby.scheduling.gangs.rosters import leaf_names
from closeby.scheduling.intake.budgets import NONE, SEVERAL
from closeby.scheduling.preemption.rule import Protection


class MemberLimits(NamedTuple):
    """How many members of a gang may go one by one."""

    #: More than these break the gang; unless ``singly`` no more may go one by one.
    surplus: int
    singly: bool
    of_leaf: Mapping[str, int]


class Holder(Struct, eq=False):
    """What pods come and go with: a gang, or a pod by itself."""

    #: ``namespace/name`` of the gang, or the uid of the pod.
    key: str
    gang: bool
    #: Who counts evictions: the gang, the controlling owner, or the pod.
    owner: str
    #: Indices of all its pods, and of those that don't leave anyway.
    members: list[int]
    pods: list[int] = []
    #: The object of the gang by which the rest was worked out.
    group: PodGroup | None = None
    #: Members that may go one by one: of each leaf (by name), and in all. With ``singly`` all of them may,
    #: and the gang is broken by more than ``surplus``.
    surplus: int = 0
    surplus_of: Mapping[str, int] = {}
    singly: bool = False
    #: Why its minimum may not be evicted, and why none of its pods may; None: they may.
    minimum_kept: Protection | None = None
    kept: Protection | None = None

    @property
    def divisible(self) -> bool:
        """Whether some of its pods may go without the others."""
        return len(self.pods) > 1 and (self.surplus > 0 or self.singly)

    @property
    def least(self) -> int:
        """How many of its pods stay if all go that may go one by one."""
        return len(self.pods) - self.surplus

    @property
    def never_whole(self) -> bool:
        """Whether it may not go as a whole, for its minimum stays."""
        return self.minimum_kept is not None and self.surplus < len(self.pods)

    def divide(self, group: PodGroup | None, pods: Sequence[Pod]) -> None:
        """Work out which members of a gang are beyond its minimum."""
        kept = self.minimum_kept is not None
        self.group, self.surplus_of, self.singly = group, {}, group is None and not kept
        if group is None:  # Its pods name a gang that is not there: each is alone, and each is a minimum.
            self.surplus = 0 if kept else len(self.pods)
            return
        self.surplus = max(len(self.pods) - max(group.min_member, 0), 0)
        if group.disruption == "all":
            self.surplus = 0
            return
        self.singly = group.disruption == "single" and not kept
        if self.singly or not group.subgroups or not self.surplus:
            return
        least = {one.name: one.min_member for one in group.subgroups}
        leaves = set(leaf_names(group))
        by_leaf = Counter(leaf if (leaf := pods[one].subgroup or "") in leaves else "" for one in self.pods)
        self.surplus_of = {leaf: count - min(least.get(leaf, 0), count) for leaf, count in by_leaf.items()}
        self.surplus = min(self.surplus, sum(self.surplus_of.values()))

    def leaf_of(self, pod: Pod) -> str:
        """The leaf of a member, as in ``surplus_of``."""
        leaf = pod.subgroup or ""
        return leaf if leaf in self.surplus_of else ""


class RunningPods(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The pods that hold a node, and what is known of each. Good until the next one is asked for."""

    cluster: Cluster
    pods: Sequence[Pod]
    slots: Ints
    priorities: Ints
    #: Index of the holder of each pod. A holder that is no more has no pods.
    holder_of: Ints
    holders: Sequence[Holder]
    #: Holders by gang and by who counts evictions.
    gangs: Mapping[str, int]
    owners: Mapping[str, Collection[int]]
    accelerators: Ints
    #: Accelerator-seconds that are lost with each.
    lost: Scores
    #: Seconds that each may take to end, and beyond which they are too long.
    grace: Ints
    longest_grace: float
    #: How surely each does not end in time, as in ``EvictionCost``.
    last_choice: Ints
    #: When each started; infinite where that is not known.
    started: Scores
    #: May be a victim at all, as far as priority does not matter; or will be soon.
    evictable: Bools
    young: Bools
    #: Leaves anyway: it is being deleted.
    terminating: Bools
    #: By pod: the budget that covers it, as ``Budgets.covering`` says.
    budget_of: Ints
    #: Index of each pod's spec, and the specs.
    spec_of: Ints
    specs: Sequence[PodSpec]
    index_of: Mapping[str, int]

    def rows_of(self, uids: Iterable[str]) -> Ints:
        """The indices of pods, of those that hold a node."""
        return np.asarray([self.index_of[uid] for uid in uids if uid in self.index_of], dtype=np.intp)

    def with_leaving(self, rows: Ints) -> "RunningPods":
        """The same where these pods leave too: gangs have so many fewer members beyond their minimum."""
        gangs = {int(one) for one in self.holder_of[rows] if self.holders[one].gang}
        if not gangs:
            return self
        terminating, holders = self.terminating.copy(), list(self.holders)
        terminating[rows] = True
        for number in gangs:
            holder = holders[number] = replace(self.holders[number])
            holder.pods = [row for row in holder.members if not terminating[row]]
            holder.divide(holder.group, self.pods)
        return replace(self, terminating=terminating, holders=holders)

    @cached_property
    def limits(self) -> Mapping[int, MemberLimits]:
        """Of each gang that may lose single members: how many."""
        found = ((number, self.holders[number]) for number in self.gangs.values())
        return {
            number: MemberLimits(one.surplus, one.singly, one.surplus_of)
            for number, one in found
            if one.divisible
        }

    @cached_property
    def divisible(self) -> Bools:
        """By holder: whether some of its pods may go without the others."""
        return self._marked(self.limits)

    @cached_property
    def never_whole(self) -> Bools:
        """By holder: whether it may not go as a whole, for its minimum stays."""
        return self._marked(one for one in self.gangs.values() if self.holders[one].never_whole)

    @cached_property
    def holder_gang(self) -> Bools:
        """By holder: whether it is a gang."""
        return self._marked(self.gangs.values())

    @cached_property
    def holder_lost(self) -> Scores:
        """By holder: what is lost with all of it."""
        return self._sum(self.lost)

    @cached_property
    def holder_accelerators(self) -> Ints:
        """By holder: accelerators of all of it."""
        return self._sum(self.accelerators).astype(np.intp)

    @cached_property
    def holder_pods(self) -> Ints:
        """By holder: pods that don't leave anyway."""
        return self._sum(np.ones(len(self.pods))).astype(np.intp)

    @cached_property
    def holder_weight(self) -> Scores:
        """By holder: the sum of its pods' priorities, as upstream sums them, so that each counts."""
        return self._sum(self.priorities + (1 << 31))

    @cached_property
    def holder_priority(self) -> Ints:
        """By holder: its highest priority."""
        return self._most(self.priorities, np.iinfo(np.intp).min)

    @cached_property
    def holder_grace(self) -> Ints:
        """By holder: seconds until all of it is gone."""
        return self._most(self.grace, 0)

    @cached_property
    def holder_slow(self) -> Bools:
        """By holder: whether the grace of some of it is too long."""
        return self.holder_grace > self.longest_grace

    @cached_property
    def holder_last_choice(self) -> Ints:
        """By holder: how surely some of it does not end in time."""
        return self._most(self.last_choice, 0)

    @cached_property
    def holder_started(self) -> Scores:
        """By holder: when the first of its pods started that don't leave anyway."""
        return -self._most(-self.started, -inf)

    @cached_property
    def holder_importance(self) -> Ints:
        """By holder: its place, the first to stay first: last choice, priority, long grace, gangs, start."""
        first = -self.holder_priority, -self.holder_last_choice
        keys = self.holder_started, ~self.holder_gang, ~self.holder_slow, *first
        order = np.lexsort(keys)
        others = np.zeros(len(order), dtype=np.bool_)
        for key in keys:
            others[1:] |= key[order][1:] != key[order][:-1]
        places = np.empty(len(order), dtype=np.intp)
        places[order] = np.cumsum(others)
        return places

    @cached_property
    def holder_budget(self) -> tuple[Ints, Ints]:
        """By holder: the budget that covers its pods (``NONE``, or ``SEVERAL``), and how many it covers."""
        count = len(self.holders)
        found, least = np.full(count, NONE, dtype=np.intp), np.full(count, np.iinfo(np.intp).max)
        covered = np.flatnonzero((self.budget_of >= 0) & ~self.terminating)
        holders, budgets = self.holder_of[covered], self.budget_of[covered]
        np.maximum.at(found, holders, budgets)
        np.minimum.at(least, holders, budgets)
        found[(found >= 0) & (found != least)] = SEVERAL
        return found, np.bincount(holders, minlength=count)

    def _marked(self, numbers: Iterable[int]) -> Bools:
        found = np.zeros(len(self.holders), dtype=np.bool_)
        found[list(numbers)] = True
        return found

    def _most(self, values: NDArray[Any], nothing: float) -> NDArray[Any]:
        found = np.full(len(self.holders), nothing, dtype=values.dtype)
        stay = ~self.terminating
        np.maximum.at(found, self.holder_of[stay], values[stay])
        return found

    def _sum(self, values: NDArray[Any]) -> Scores:
        stay, count = ~self.terminating, len(self.holders)
        return np.bincount(self.holder_of[stay], values[stay], minlength=count).astype(np.float64)

    def name_of(self, number: int) -> str:
        """The name of a holder: of the gang, or of the pod."""
        holder = self.holders[number]
        return holder.key if holder.gang else self.pods[holder.pods[0]].key

    @cached_property
    def covered(self) -> bool:
        """Whether a budget covers any pod."""
        return bool((self.budget_of >= 0).any())

    def budgets_of(self, pods: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """How many of the pods each budget covers."""
        if not self.covered:
            return ()
        found = Counter(self.budget_of[list(pods)].tolist())
        return tuple((budget, count) for budget, count in sorted(found.items()) if budget >= 0)

    def amounts(self, row: int) -> Amounts:
        """What each pod takes of a resource."""
        demands = map(self.cluster.demand, self.specs)
        taken = [dict(zip(one.rows, one.amounts, strict=True)).get(row, 0) for one in demands]
        return np.asarray(taken, dtype=np.int64)[self.spec_of]


def owner_of(pod: Pod) -> str:
    """Whose evictions are counted together: the gang's, the controlling owner's, or the pod's own."""
    if pod.group is not None:
        return gang_key(pod)
    return f"{pod.namespace}/{pod.owner}" if pod.owner else f"pod {pod.key}"
