"""Preemption as data: who made room for whom, what each domain would have cost, and why no pod did."""

from collections.abc import Iterable

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from closeby.objects.pods import Pod
from closeby.objects.recorded import PreemptionCost
from closeby.scheduling.outcomes import DomainCost, EvictionCost, NoPreemption, Preemption
from closeby.whatif.records import DomainPath


class CostEntry(PreemptionCost, frozen=True, kw_only=True, omit_defaults=False):
    """What some victims cost; lost work is compared before broken gangs, and the end before pods."""

    #: True where pods of a victim's owner or namespace did not end in time of late, which comes before all
    #: else; only there then.
    last_choice: bool | UnsetType = UNSET


class KeptPodsEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """Pods of one gang, or a pod by itself, in a domain, that can't be evicted for what waits."""

    #: `namespace/name` of the gang or the pod.
    name: str
    #: `gang` or `pod`.
    kind: str
    #: How many pods of it are in the domain.
    pods: int
    #: `Priority`, `PodDisruptionBudget`, `SeveralBudgets`, `Annotation` (`closeby.dev/preemptible`, or what
    #: KAI and Volcano have for that, of the pod or its PodGroup),
    #: `MinRuntime`, `MaxEvictions`, `OtherScheduler`, `Kueue`, `Pinned` (a DaemonSet's, or a static pod),
    #: `NamespaceExcluded`, `DidNotEnd`, `Planned` (for another item) or `OwnGang`.
    reason: str
    #: For people.
    message: str


class DomainCostEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What clearing one domain, or for a plain pod one node, would cost."""

    #: Its path of label values, or the name of the node.
    domain: DomainPath
    #: Null where clearing it does not help, or was not worked out.
    cost: CostEntry | None
    #: `namespace/name` of the pods that would have to go.
    victims: tuple[str, ...]
    #: Why clearing it does not help; null where there is a cost.
    why_not: str | None
    #: Pods that hold room there and can't be evicted; only there where there are some.
    kept_pods: int | UnsetType = UNSET
    #: Up to 8 gangs and pods of them, those with the most pods first.
    kept: tuple[KeptPodsEntry, ...] | UnsetType = UNSET


class PreemptionEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One gang or pod that others made room for."""

    #: `namespace/name` of the gang or the pod.
    preemptor: str
    #: `gang` or `pod`.
    kind: str
    #: Of a pod: its node.
    node: str | None
    #: Of a gang: the domain that was cleared, as a path of label values; empty for the whole cluster.
    domain: DomainPath
    #: `namespace/name` of the pods that were evicted.
    victims: tuple[str, ...]
    #: What they cost.
    cost: CostEntry
    #: False where the search for the cheapest victims had to take short cuts; only there then.
    exact: bool | UnsetType = UNSET
    #: All domains that were looked at, the cheapest first; only there with an explanation.
    domains: tuple[DomainCostEntry, ...] | UnsetType = UNSET


class NoPreemptionEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why no pod makes room for what waits."""

    #: For people.
    why: str
    #: With a priority above this one that domain, or node, would be cleared; null where no priority helps.
    above_priority: int | None
    #: Path of label values of the domain, or the name of the node; empty without one.
    domain: DomainPath
    #: What clearing each would cost, the cheapest first, or why that does not help.
    domains: tuple[DomainCostEntry, ...]
    #: Whose `preemptionPolicy: Never` forbids that the domain is cleared: `pod`, `PriorityClass/<name>` or
    #: `PodGroup/<name>`.
    policy_of: str | UnsetType = UNSET


def preemption_entries(plans: Iterable[Preemption]) -> tuple[PreemptionEntry, ...]:
    """The plans, in the order in which they were made."""
    return tuple(
        PreemptionEntry(
            preemptor=plan.preemptor,
            kind="gang" if plan.is_gang else "pod",
            node=plan.node,
            domain=plan.path,
            victims=tuple(pod.key for pod in plan.victims),
            cost=_cost(plan.cost),
            exact=UNSET if plan.exact else False,
            domains=_domains(plan.domains) or UNSET,
        )
        for plan in plans
    )


def no_preemption_entry(found: NoPreemption | None) -> NoPreemptionEntry | None:
    """Why there is no plan."""
    if found is None:
        return None
    return NoPreemptionEntry(
        why=found.why,
        above_priority=found.above,
        domain=found.path,
        domains=_domains(found.domains),
        policy_of=found.policy_of or UNSET,
    )


def _cost(cost: EvictionCost) -> CostEntry:
    return CostEntry(**asdict(cost.status), last_choice=bool(cost.last_choice) or UNSET)


def _domains(found: Iterable[DomainCost]) -> tuple[DomainCostEntry, ...]:
    return tuple(
        DomainCostEntry(
            domain=one.path,
            cost=None if one.cost is None else _cost(one.cost),
            victims=tuple(pod.key for pod in one.victims),
            why_not=one.why_not or None,
            kept_pods=one.kept_pods or UNSET,
            kept=tuple(
                KeptPodsEntry(
                    name=kept.name,
                    kind="gang" if kept.is_gang else "pod",
                    pods=kept.pods,
                    reason=kept.reason,
                    message=kept.message,
                )
                for kept in one.kept
            )
            or UNSET,
        )
        for one in found
    )


#: Controllers that make a pod again which was evicted. A Job does so within its backoffLimit.
_MAKES_AGAIN = frozenset({"Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"})


def victim_message(plan: Preemption, pod: Pod) -> str:
    """What became of a victim, and whether its controller makes it again."""
    kind, _, name = pod.owner.partition("/")
    follows = "makes it again" if kind in _MAKES_AGAIN else "decides what follows"
    again = f"{kind} {name} {follows}" if kind else "no controller makes it again"
    whom = f"{'gang' if plan.is_gang else 'pod'} {plan.preemptor}"
    return f"it made room for {whom} of priority {plan.priority}; {again}"
