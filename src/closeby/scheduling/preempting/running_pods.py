"""All pods that hold a node, as possible victims: what they belong to, what they take and what they cost.

The arrays have one entry per pod, or one per holder: a gang, or a pod by itself.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Bools, Ints, Scores
from closeby.objects.groups import POD_SET, PodGroup
from closeby.objects.pods import Pod, PodSpec, ProtectionRequest, gang_key
from closeby.objects.workloads import is_pinned
from closeby.reading.decoding.keys import QUEUE_NAME
from closeby.reading.decoding.preemption_requests import protection_request
from closeby.scheduling.gangs.rosters import leaf_names
from closeby.scheduling.intake.budgets import NONE, SEVERAL
from closeby.scheduling.preempting.units import MemberLimits

#: What Kueue writes on pods of workloads that it admitted.
_KUEUE_LABELS: Final = frozenset({POD_SET, QUEUE_NAME, "kueue.x-k8s.io/managed"})
_KUEUE_WORKLOAD: Final = "kueue.x-k8s.io/workload"


class Protection(NamedTuple):
    """Why a pod may not be a victim of any item."""

    #: As in the report.
    reason: str
    message: str


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
    #: Why its minimum may not be evicted; None: it may.
    minimum_kept: Protection | None = None

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

    @property
    def limits(self) -> MemberLimits | None:
        """How many of its pods may go without the others; None where none may."""
        return MemberLimits(self.surplus, self.singly, self.surplus_of) if self.divisible else None

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


class Whole(NamedTuple):
    """What all pods of a holder cost together."""

    pods: tuple[int, ...]
    lost: float
    accelerators: int
    budgets: tuple[tuple[int, int], ...]
    name: str


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
    #: By holder: whether some of its pods may go without the others.
    divisible: Bools
    #: By holder: whether it may not go as a whole, for its minimum stays.
    never_whole: Bools
    #: Of each gang that may lose single members: how many.
    limits: Mapping[int, MemberLimits]

    def rows_of(self, uids: Iterable[str]) -> Ints:
        """The indices of pods, of those that hold a node."""
        return np.asarray([self.index_of[uid] for uid in uids if uid in self.index_of], dtype=np.intp)

    def with_leaving(self, rows: Ints) -> "RunningPods":
        """The same where these pods leave too: gangs have so many fewer members beyond their minimum."""
        gangs = {int(one) for one in self.holder_of[rows] if self.holders[one].gang}
        if not gangs:
            return self
        terminating = self.terminating.copy()
        terminating[rows] = True
        holders, limits = list(self.holders), dict(self.limits)
        divisible, never_whole = self.divisible.copy(), self.never_whole.copy()
        for number in gangs:
            holder = holders[number] = replace(self.holders[number])
            holder.pods = [row for row in holder.members if not terminating[row]]
            holder.divide(holder.group, self.pods)
            divisible[number], never_whole[number] = holder.divisible, holder.never_whole
            limits.pop(number, None)
            if holder.limits is not None:
                limits[number] = holder.limits
        return replace(
            self,
            terminating=terminating,
            holders=holders,
            limits=limits,
            divisible=divisible,
            never_whole=never_whole,
        )

    @cached_property
    def holder_lost(self) -> Scores:
        """By holder: what is lost with all of it."""
        return self._of_holders(self.lost)

    @cached_property
    def holder_accelerators(self) -> Ints:
        """By holder: accelerators of all of it."""
        return self._of_holders(self.accelerators).astype(np.intp)

    @cached_property
    def holder_pods(self) -> Ints:
        """By holder: pods that don't leave anyway."""
        return self._of_holders(None).astype(np.intp)

    @cached_property
    def holder_priority(self) -> Ints:
        """By holder: its highest priority."""
        return self._most_of_holders(self.priorities, np.iinfo(np.intp).min)

    @cached_property
    def holder_grace(self) -> Ints:
        """By holder: seconds until all of it is gone."""
        return self._most_of_holders(self.grace, 0)

    @cached_property
    def holder_slow(self) -> Bools:
        """By holder: whether the grace of some of it is too long."""
        return self.holder_grace > self.longest_grace

    @cached_property
    def holder_last_choice(self) -> Ints:
        """By holder: how surely some of it does not end in time."""
        return self._most_of_holders(self.last_choice, 0)

    @cached_property
    def holder_started(self) -> Scores:
        """By holder: when the first of its pods started that don't leave anyway."""
        found = np.full(len(self.holders), np.inf)
        stay = ~self.terminating
        np.minimum.at(found, self.holder_of[stay], self.started[stay])
        return found

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

    def keep_of(self, before: "RunningPods") -> None:
        """Take over what was worked out at another time about the same pods."""
        self.__dict__.update(
            {name: value for name, value in before.__dict__.items() if name != "holder_lost"}
        )

    @cached_property
    def holder_weight(self) -> Scores:
        """By holder: the sum of its pods' priorities, as upstream sums them, so that each counts."""
        return self._of_holders(self.priorities + (1 << 31))

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

    @cached_property
    def holder_gang(self) -> Bools:
        """By holder: whether it is a gang."""
        found = np.zeros(len(self.holders), dtype=np.bool_)
        found[list(self.gangs.values())] = True
        return found

    def _most_of_holders(self, values: Ints, nothing: int) -> Ints:
        found = np.full(len(self.holders), nothing, dtype=np.intp)
        stay = ~self.terminating
        np.maximum.at(found, self.holder_of[stay], values[stay])
        return found

    def _of_holders(self, weights: Scores | Ints | None) -> Scores:
        stay = ~self.terminating
        chosen = None if weights is None else weights[stay]
        found = np.bincount(self.holder_of[stay], weights=chosen, minlength=len(self.holders))
        return found.astype(np.float64)

    def name_of(self, number: int) -> str:
        """The name of a holder: of the gang, or of the pod."""
        holder = self.holders[number]
        return holder.key if holder.gang else self.pods[holder.pods[0]].key

    def whole_of(self, number: int) -> Whole:
        """All pods of a holder that do not leave anyway."""
        pods = tuple(self.holders[number].pods)
        return Whole(
            pods=pods,
            lost=float(self.holder_lost[number]),
            accelerators=int(self.holder_accelerators[number]),
            budgets=self.budgets_of(pods),
            name=self.name_of(number),
        )

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
        taken = [_taken(self.cluster, spec, row) for spec in self.specs]
        return np.asarray(taken, dtype=np.int64)[self.spec_of]


def _taken(cluster: Cluster, spec: PodSpec, row: int) -> int:
    demand = cluster.demand(spec)
    return sum(amount for at, amount in zip(demand.rows, demand.amounts, strict=True) if at == row)


def owner_of(pod: Pod) -> str:
    """Whose evictions are counted together: the gang's, the controlling owner's, or the pod's own."""
    if pod.group is not None:
        return gang_key(pod)
    return f"{pod.namespace}/{pod.owner}" if pod.owner else f"pod {pod.key}"


NAMESPACE_EXCLUDED: Final = Protection("NamespaceExcluded", "its namespace is excluded")
PINNED: Final = Protection("Pinned", "it comes back to its node at once")
SEVERAL_BUDGETS: Final = Protection("SeveralBudgets", "several PodDisruptionBudgets cover it")
KUEUE: Final = Protection("Kueue", "Kueue admitted it")
OTHER_SCHEDULER: Final = Protection("OtherScheduler", "another scheduler has placed it")
MIN_RUNTIME: Final = Protection("MinRuntime", "it has not run for as long as a victim must")


def on_request(request: ProtectionRequest, *, of_group: bool = False) -> Protection:
    """Of a pod that says, or whose PodGroup says, that it is not to be evicted."""
    whose = "its PodGroup" if of_group else "it"
    return Protection("Annotation", f"{whose} says {request.text}")


def protection(
    pod: Pod, budget: int, namespaces: Collection[str] | None, excluded: Collection[str]
) -> Protection | None:
    """Why a pod may not be a victim at all, by what it says itself; None if it may.

    ``budget`` covers it; pods of ``namespaces`` (None: all) may protect themselves.
    """
    if pod.namespace in excluded:
        return NAMESPACE_EXCLUDED
    if budget == NONE and not (pod.owner or pod.labels or pod.annotations):
        return None
    if is_pinned(pod):
        return PINNED
    if budget == SEVERAL and pod.phase != "Pending":
        return SEVERAL_BUDGETS
    if namespaces is None or pod.namespace in namespaces:
        request = protection_request(pod.annotations, pod.labels)
        if request is not None and not (request.minimum_only and pod.group is not None):
            return on_request(request)
    if _KUEUE_WORKLOAD in pod.annotations:
        return KUEUE
    return None if _KUEUE_LABELS.isdisjoint(pod.labels) else KUEUE
