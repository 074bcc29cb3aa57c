"""All pods that hold a node, as possible victims: what they belong to, what they take and what they cost.

Built once for the decisions of a tick. The arrays have one entry per pod.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Bools, Ints, Scores
from closeby.objects.nodes import is_accelerator
from closeby.objects.ownership import is_pinned
from closeby.objects.pods import Pod, PodSpec
from closeby.reading.decoding.keys import PREEMPTIBLE
from closeby.reading.dialects.kueue import QUEUE_NAME
from closeby.scheduling.gangs.rosters import leaf_names
from closeby.scheduling.intake.budgets import NONE, SEVERAL, Budgets
from closeby.scheduling.intake.scheduling_state import SchedulingState, gang_key
from closeby.scheduling.preempting.rule import Preemptible, PreemptionRule

#: What Kueue writes on pods of workloads that it admitted.
_KUEUE_LABELS: Final = frozenset({"kueue.x-k8s.io/podset", QUEUE_NAME, "kueue.x-k8s.io/managed"})
_KUEUE_WORKLOAD: Final = "kueue.x-k8s.io/workload"
#: Whose pods those are that name no scheduler.
_DEFAULT_SCHEDULER: Final = "default-scheduler"


class Holder(Struct, eq=False):
    """What pods come and go with: a gang, or a pod by itself."""

    #: ``namespace/name`` of the gang, or the uid of the pod.
    key: str
    gang: bool
    #: Indices of its pods, without those that leave anyway.
    pods: list[int]
    #: Members that may go one by one: of each leaf (by name), and in all. With ``singly`` all of them may,
    #: and the gang is broken by more than ``surplus``.
    surplus: int = 0
    surplus_of: Mapping[str, int] = {}
    singly: bool = False
    #: Who counts evictions: the gang, the controlling owner, or the pod.
    owner: str = ""
    priority: int = 0

    @property
    def divisible(self) -> bool:
        """Whether some of its pods may go without the others."""
        return len(self.pods) > 1 and (self.surplus > 0 or self.singly)


class Whole(NamedTuple):
    """What all pods of a holder cost together."""

    pods: tuple[int, ...]
    lost: float
    accelerators: int
    budgets: tuple[tuple[int, int], ...]
    name: str


class World(Struct, frozen=True, kw_only=True, eq=False):
    """The pods that hold a node, and what is known of each."""

    pods: list[Pod]
    slots: Ints
    priorities: Ints
    #: Index of the holder of each pod.
    holder_of: Ints
    holders: list[Holder]
    accelerators: Ints
    #: Accelerator-seconds that are lost with each.
    lost: Scores
    #: When each started; infinite where that is not known.
    started: Scores
    #: May be a victim at all, as far as priority does not matter.
    evictable: Bools
    #: Leaves anyway: it is being deleted.
    terminating: Bools
    #: By pod, as in ``Budgets.of``; and what each budget allows.
    budget_of: list[int]
    allowed: list[int]
    why_protected: Mapping[int, str]
    #: Index of each pod's spec, and the specs.
    spec_of: Ints
    specs: list[PodSpec]
    index_of: Mapping[str, int]

    #: What was worked out of whole holders.
    wholes: dict[int, "Whole"]

    def whole_of(self, number: int) -> "Whole":
        """All pods of a holder that do not leave anyway."""
        known = self.wholes.get(number)
        if known is None:
            holder = self.holders[number]
            pods = tuple(holder.pods)
            known = self.wholes[number] = Whole(
                pods=pods,
                lost=float(self.lost[holder.pods].sum()),
                accelerators=int(self.accelerators[holder.pods].sum()),
                budgets=self.budgets_of(pods),
                name=holder.key if holder.gang else self.pods[pods[0]].key,
            )
        return known

    def budgets_of(self, pods: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """How many of the pods each budget covers."""
        if not self.allowed:
            return ()
        found = Counter(self.budget_of[one] for one in pods)
        return tuple((budget, count) for budget, count in sorted(found.items()) if budget >= 0)

    def amounts(self, cluster: Cluster, row: int) -> Amounts:
        """What each pod takes of a resource."""
        taken = [_taken(cluster, spec, row) for spec in self.specs]
        return np.asarray(taken, dtype=np.int64)[self.spec_of]


def _taken(cluster: Cluster, spec: PodSpec, row: int) -> int:
    demand = cluster.demand(spec)
    return sum(amount for at, amount in zip(demand.rows, demand.amounts, strict=True) if at == row)


def world_of(
    cluster: Cluster,
    state: SchedulingState,
    budgets: Budgets,
    rule: PreemptionRule,
    whose: Preemptible,
    now: float | None,
) -> World:
    """The pods as they are. ``now`` in seconds since the epoch; without it no work is known to be lost."""
    pods: list[Pod] = []
    slots: list[int] = []
    specs: list[PodSpec] = []
    spec_of: list[int] = []
    spec_index: dict[int, int] = {}
    for pod, slot in cluster.placed_pods():
        pods.append(pod)
        slots.append(slot)
        at = spec_index.get(id(pod.spec))
        if at is None:
            at = spec_index[id(pod.spec)] = len(specs)
            specs.append(pod.spec)
        spec_of.append(at)
    own = np.asarray(spec_of, dtype=np.intp)
    # A priority is the spec's alone, so equal specs share it.
    priorities = np.asarray([_priority(state, spec) for spec in specs], dtype=np.intp)[own]
    heavy = np.asarray([_weight(cluster, spec) for spec in specs], dtype=np.intp)[own]
    ours = np.asarray([_is_ours(spec, rule, whose) for spec in specs], dtype=np.bool_)[own]
    terminating = np.asarray([pod.terminating for pod in pods], dtype=np.bool_)
    started, since, may = _times(pods, whose)
    budget_of, allowed = budgets.of(pods, _waiting(state))
    protected = _protected(pods, rule, whose, budget_of)
    evictable = ours & may
    evictable[list(protected)] = False
    if rule.runtime and now is not None:
        evictable &= ~(now - started < rule.runtime)
    lost = np.zeros(len(pods))
    if now is not None:
        known = np.isfinite(since)
        lost[known] = np.maximum(now - since[known], 0.0) * heavy[known]
    holders, holder_of = _holders(pods, terminating, state, priorities)
    return World(
        pods=pods,
        slots=np.asarray(slots, dtype=np.intp),
        priorities=priorities,
        holder_of=holder_of,
        holders=holders,
        accelerators=heavy,
        lost=lost,
        started=started,
        evictable=evictable,
        terminating=terminating,
        budget_of=budget_of,
        allowed=allowed,
        why_protected=protected,
        spec_of=own,
        specs=specs,
        wholes={},
        index_of={pod.uid: number for number, pod in enumerate(pods)},
    )


def owner_of(pod: Pod) -> str:
    """Whose evictions are counted together: the gang's, the controlling owner's, or the pod's own."""
    if pod.group is not None:
        return gang_key(pod)
    return f"{pod.namespace}/{pod.owner}" if pod.owner else f"pod {pod.key}"


def has_accelerators(cluster: Cluster) -> bool:
    """Whether any node offers an accelerator."""
    return any(
        is_accelerator(name) and cluster.allocatable[row].any() for name, row in cluster.row_of.items()
    )


def _weight(cluster: Cluster, spec: PodSpec) -> int:
    """Accelerators, or thousandths of a CPU where no node has any."""
    if has_accelerators(cluster):
        return sum(amount for name, amount in spec.requests if is_accelerator(name))
    return sum(amount for name, amount in spec.requests if name == "cpu")


def _priority(state: SchedulingState, spec: PodSpec) -> int:
    return state.priorities.of(Pod(namespace="", name="", uid="", spec=spec))


def _is_ours(spec: PodSpec, rule: PreemptionRule, whose: Preemptible) -> bool:
    if rule.victims == "all" or whose.scheduler_name is None:
        return True
    return (spec.scheduler_name or _DEFAULT_SCHEDULER) == whose.scheduler_name


def _times(pods: Sequence[Pod], whose: Preemptible) -> tuple[Scores, Scores, Bools]:
    """When each pod started, since when its work would be lost (both infinite where that is not known:
    nothing is lost then), and whether it may be evicted as far as the caller knows."""
    may = np.ones(len(pods), dtype=np.bool_)
    if whose.times is None:
        starts = [pod.created if pod.started is None else pod.started for pod in pods]
        saves = [pod.checkpointed for pod in pods]
    else:
        told = [whose.times(pod) for pod in pods]
        may = np.asarray([one is not None for one in told], dtype=np.bool_)
        starts = [None if one is None else one.started for one in told]
        saves = [None if one is None else one.checkpointed for one in told]
    # None becomes nan.
    started, saved = np.asarray(starts, dtype=np.float64), np.asarray(saves, dtype=np.float64)
    since = np.fmax(started, saved)
    return np.where(np.isnan(started), np.inf, started), np.where(np.isnan(since), np.inf, since), may


def _waiting(state: SchedulingState) -> Iterable[Pod]:
    return (pod for pod in state.pods.values() if pod.node_name is None)


def _protected(
    pods: Sequence[Pod], rule: PreemptionRule, whose: Preemptible, budget_of: Sequence[int]
) -> dict[int, str]:
    """Why pods may not be victims at all, by index."""
    found: dict[int, str] = {}
    namespaces = whose.namespaces if rule.protected_namespaces is None else rule.protected_namespaces
    for number, pod in enumerate(pods):
        if budget_of[number] == NONE and not (pod.owner or pod.labels or pod.annotations):
            continue
        if is_pinned(pod):
            found[number] = "it comes back to its node at once"
        elif budget_of[number] == SEVERAL and pod.phase != "Pending":
            found[number] = "several PodDisruptionBudgets cover it"
        elif pod.annotations and _says_no(pod, namespaces):
            found[number] = f"it says {PREEMPTIBLE}=false"
        elif _KUEUE_WORKLOAD in pod.annotations or not _KUEUE_LABELS.isdisjoint(pod.labels):
            found[number] = "Kueue admitted it"
    return found


def _says_no(pod: Pod, namespaces: Collection[str] | None) -> bool:
    if namespaces is not None and pod.namespace not in namespaces:
        return False
    return pod.annotations.get(PREEMPTIBLE) == "false"


def _holders(
    pods: Sequence[Pod], terminating: Bools, state: SchedulingState, priorities: Ints
) -> tuple[list[Holder], Ints]:
    holders: list[Holder] = []
    index: dict[tuple[str, str], int] = {}
    holder_of: list[int] = []
    leaving = terminating.tolist()
    ranks = priorities.tolist()
    for number, pod in enumerate(pods):
        gang = None if pod.group is None else (pod.namespace, pod.group)
        at = None if gang is None else index.get(gang)
        if at is None:
            at = len(holders)
            key = pod.uid if gang is None else "/".join(gang)
            holders.append(Holder(key, gang is not None, [], owner=owner_of(pod)))
            holders[at].priority = ranks[number]
            if gang is not None:
                index[gang] = at
        holder_of.append(at)
        holder = holders[at]
        if not leaving[number]:
            holder.pods.append(number)
            holder.priority = max(holder.priority, ranks[number])
    for at in index.values():
        _divide(holders[at], state, holders[at].key, pods)
    return holders, np.asarray(holder_of, dtype=np.intp)


def _divide(holder: Holder, state: SchedulingState, key: str, pods: Sequence[Pod]) -> None:
    """Which members of a gang are beyond its minimum."""
    group = state.groups.get(key)
    if group is None:  # Its pods name a gang that is not there: each is alone.
        holder.singly, holder.surplus = True, len(holder.pods)
        return
    holder.surplus = max(len(holder.pods) - max(group.min_member, 0), 0)
    if group.disruption == "all":
        holder.surplus = 0
        return
    holder.singly = group.disruption == "single"
    if holder.singly or not group.subgroups or not holder.surplus:
        return
    least = {one.name: one.min_member for one in group.subgroups}
    leaves = set(leaf_names(group))
    running = Counter(leaf if (leaf := pods[one].subgroup or "") in leaves else "" for one in holder.pods)
    holder.surplus_of = {leaf: count - min(least.get(leaf, 0), count) for leaf, count in running.items()}
    holder.surplus = min(holder.surplus, sum(holder.surplus_of.values()))


def leaf_of(holder: Holder, pod: Pod) -> str:
    """The leaf of a member, as in ``Holder.surplus_of``."""
    leaf = pod.subgroup or ""
    return leaf if leaf in holder.surplus_of else ""
