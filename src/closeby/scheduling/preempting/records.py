"""A plan of preemption as data: who gets which nodes, who must go for that, and what it costs."""

from math import inf, isfinite
from typing import NamedTuple

from msgspec import Struct

from closeby.objects.pods import Pod
from closeby.objects.recorded import PreemptionCost


class EvictionCost(NamedTuple):
    """What a set of victims costs. Compared in the order of the fields; the least is the best."""

    #: 2 where another pod of a victim's owner did not end in time of late, 1 where one of its namespace
    #: did not.
    last_choice: int = 0
    #: Victims whose eviction a PodDisruptionBudget does not allow.
    pdb_violations: int = 0
    #: The highest priority of a victim; -inf without victims.
    highest: float = -inf
    #: Whether a victim's grace is too long.
    slow: bool = False
    #: Accelerator-seconds since each victim's start or its last checkpoint, and until it is back there.
    lost: float = 0.0
    #: Gangs that are left with fewer members than their minimum.
    gangs_broken: int = 0
    #: Accelerators of the victims, and of those of them that are outside the domain. Thousandths of a CPU
    #: where no node has an accelerator.
    accelerators: int = 0
    outside: int = 0
    #: Until the last victim is gone: the longest grace.
    seconds: int = 0
    pods: int = 0
    #: Nodes that lose a victim and keep another pod.
    partly_free: int = 0

    @property
    def highest_priority(self) -> int | None:
        """The highest priority of a victim; None without victims."""
        return int(self.highest) if isfinite(self.highest) else None

    @property
    def status(self) -> PreemptionCost:
        """As it stands in the plan of a gang's status."""
        return PreemptionCost(
            pdb_violations=self.pdb_violations,
            highest_priority=self.highest_priority,
            gangs_broken=self.gangs_broken,
            lost_accelerator_seconds=self.lost,
            accelerators=self.accelerators,
            outside=self.outside,
            pods=self.pods,
            seconds_to_end=self.seconds,
        )


class Eviction(NamedTuple):
    """When pods of one gang or owner were evicted, and for which priority."""

    #: Seconds since the epoch.
    when: float
    priority: int


class KeptPods(Struct, frozen=True, kw_only=True):
    """Pods of one gang, or a pod by itself, that can't be evicted for an item."""

    #: ``namespace/name`` of the gang or the pod.
    name: str
    is_gang: bool
    #: How many pods there are of it in the domain.
    pods: int
    #: A token, and the same for people.
    reason: str
    message: str


class DomainCost(Struct, frozen=True, kw_only=True):
    """What clearing one domain (of a plain pod: one node) would cost, or why that does not help."""

    path: tuple[str | None, ...]
    #: None where it was not worked out, or does not help.
    cost: EvictionCost | None = None
    victims: tuple[Pod, ...] = ()
    #: Why not, for people; empty where there is a cost.
    why_not: str = ""
    #: Pods that hold room there and can't be evicted, and the first of them by gang or pod.
    kept_pods: int = 0
    kept: tuple[KeptPods, ...] = ()


class Preemption(Struct, frozen=True, kw_only=True):
    """The plan of one preemptor."""

    #: Key of its work item, and ``namespace/name`` of the gang or the pod that gets the room.
    item: str
    preemptor: str
    is_gang: bool
    priority: int
    #: Of a plain pod: its node. Of a gang: topology, level and path of the domain that is cleared; level None
    #: and path empty for the whole cluster.
    node: str | None = None
    topology: str | None = None
    level: str | None = None
    path: tuple[str | None, ...] = ()
    #: Where the pods are to go: uid and node. The nodes are kept free for them.
    places: tuple[tuple[str, str], ...] = ()
    #: By namespace and name. Some may be terminating already: they are not evicted again.
    victims: tuple[Pod, ...] = ()
    cost: EvictionCost = EvictionCost()
    #: Whether no cheaper set of victims exists in any domain, or the search had to take short cuts.
    exact: bool = True
    #: All domains that were looked at, the cheapest first; only where the item is explained.
    domains: tuple[DomainCost, ...] = ()
    #: Whether this is only said, and no pod is evicted.
    observed: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that are kept free for the preemptor."""
        return tuple(dict.fromkeys(node for _, node in self.places))


class PreemptionEnded(Struct, frozen=True, kw_only=True):
    """A plan is in force no more."""

    plan: Preemption
    #: Why it was given up; empty where the preemptor got its place.
    why: str = ""


class NoPreemption(Struct, frozen=True, kw_only=True):
    """Why an item that may preempt has no plan; all but ``budgets`` only where the item is explained."""

    why: str = ""
    domains: tuple[DomainCost, ...] = ()
    #: The PodDisruptionBudgets without which pods would make room, for people; said in any case.
    budgets: str = ""
    #: Above this priority that domain would be cleared; None where no priority helps.
    above: int | None = None
    path: tuple[str | None, ...] = ()
    #: Whose ``preemptionPolicy: Never`` forbids that the domain is cleared: ``PriorityClass/…``,
    #: ``PodGroup/…`` or ``pod``.
    policy_of: str = ""
