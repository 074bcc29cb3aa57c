"""Preemption as data: who made room for whom, what each domain would have cost, and why no pod did."""

from collections.abc import Iterable
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from closeby.objects.pods import Pod
from closeby.objects.words import names_text, path_text, plural, time_text
from closeby.scheduling.preempting.records import DomainCost, EvictionCost, NoPreemption, Preemption
from closeby.simulator.runs import Run
from closeby.whatif.records import DomainPath

#: Domains of which the text says who can't be evicted, and how many gangs and pods of each.
_KEPT_DOMAINS: Final = 3
_KEPT_NAMED: Final = 3
#: Of a `preemptionPolicy: Never`, by whose it is.
_CURES: Final = {
    "PriorityClass": "use another class, since a class can't be changed",
    "PodGroup": "use another PodGroup, since its policy can't be changed",
    "pod": "leave it out",
}


class CostEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What some victims cost; lost work is compared before broken gangs, and the end before pods."""

    #: Victims whose eviction a PodDisruptionBudget does not allow.
    pdb_violations: int
    #: The highest priority of a victim; null without victims.
    highest_priority: int | None
    #: Gangs that are left with fewer members than their minimum.
    gangs_broken: int
    #: Accelerators times the seconds since each victim's start or last checkpoint, and `restartCost`.
    lost_accelerator_seconds: float
    #: Accelerators of the victims; thousandths of a CPU where no node has an accelerator.
    accelerators: int
    #: Those of them on nodes outside of the domain.
    outside: int
    #: How many victims there are.
    pods: int
    #: Seconds until the last of them is gone: the longest grace to terminate.
    seconds_to_end: int
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
    return CostEntry(
        pdb_violations=cost.pdb_violations,
        highest_priority=cost.highest_priority,
        gangs_broken=cost.gangs_broken,
        lost_accelerator_seconds=cost.lost,
        accelerators=cost.accelerators,
        outside=cost.outside,
        pods=cost.pods,
        seconds_to_end=cost.seconds,
        last_choice=bool(cost.last_choice) or UNSET,
    )


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
    whom = f"{'gang' if plan.is_gang else 'pod'} {plan.preemptor}"
    kind, _, name = pod.owner.partition("/")
    again = "no controller makes it again"
    if kind:
        again = (
            f"{kind} {name} makes it again" if kind in _MAKES_AGAIN else f"{kind} {name} decides what follows"
        )
    return f"it made room for {whom} of priority {plan.priority}; {again}"


def cost_text(cost: CostEntry) -> str:
    """``priority 10, 1 gang, 16 accelerators (4 outside), 2 h lost, 8 pods``."""
    said = []
    if cost.pdb_violations:
        said.append(f"{plural(cost.pdb_violations, 'disruption')} that a budget forbids")
    if cost.highest_priority is not None:
        said.append(f"priority {cost.highest_priority}")
    said += [plural(cost.pods, "pod")] if cost.pods else ["nothing"]
    if cost.gangs_broken:
        said.append(f"{plural(cost.gangs_broken, 'gang')} broken")
    if cost.accelerators and cost.lost_accelerator_seconds:
        each = cost.lost_accelerator_seconds / cost.accelerators
        said.append(f"{time_text(each)} of work lost on average")
    if cost.outside:
        said.append(f"{cost.outside:,} of {cost.accelerators:,} accelerators outside")
    if cost.last_choice is True:
        said.append("the last choice, as pods there do not end in time")
    return ", ".join(said)


def in_force_sentence(plan: Preemption) -> str:
    """Of a plan that its scheduler carries out."""
    whom = names_text([pod.name for pod in plan.victims])
    where = plan.node or path_text(plan.path)
    verb = "is" if len(plan.victims) == 1 else "are"
    return f"By the scheduler's plan {whom} {verb} evicted so that it fits in {where}."


def preemption_sentences(run: Run, key: str, found: NoPreemptionEntry | None) -> tuple[str, ...]:
    """Who makes room for a gang or pod, which domain is next, or what priority would do."""
    sentences = []
    ended: dict[str, list[str]] = {}
    for pod in run.pods:
        plan = run.victims.get(pod.uid)
        if plan is not None and key in (pod.key, run.engine.state.item_key(pod)):
            ended.setdefault(f"{plan.preemptor} (priority {plan.priority})", []).append(pod.name)
    sentences += [f"{names_text(gone)} made room for {whom}." for whom, gone in ended.items()]
    for plan, entry in zip(run.preemptions, preemption_entries(run.preemptions), strict=True):
        if plan.preemptor != key:
            continue
        where = plan.node or path_text(plan.path)
        whom = names_text([pod.name for pod in plan.victims])
        sentences.append(f"It clears {where}: {whom} must go ({cost_text(entry.cost)}).")
        others = [one for one in plan.domains if one.cost is not None and one.path != plan.path]
        others = [one for one in others if one.path != (plan.node,)]
        if others:
            second = _domains(others[:1])[0]
            assert second.cost is not None
            sentences.append(f"The next would be {path_text(second.domain)} ({cost_text(second.cost)}).")
        sentences += _kept_sentences(_domains(plan.domains))
    if found is not None and isinstance(found.policy_of, str):
        sentences.append(_but_for_policy(found, found.policy_of))
    elif found is not None and found.above_priority is None:
        sentences.append(f"No pod makes room for it: {found.why}.")
    elif found is not None:
        where = path_text(found.domain)
        sentences.append(f"With priority above {found.above_priority}, {where} would be cleared.")
    if found is not None:
        sentences += _kept_sentences(found.domains)
    return tuple(sentences)


def _kept_sentences(domains: Iterable[DomainCostEntry]) -> list[str]:
    """Who can't be evicted, of the first domains that are not to be had for that."""
    sentences = []
    for one in domains:
        if one.cost is None and isinstance(one.kept, tuple) and isinstance(one.kept_pods, int):
            named = one.kept[:_KEPT_NAMED]
            said = [f"{kept.kind} {kept.name} ({_count(kept)}{kept.message})" for kept in named]
            others = one.kept_pods - sum(kept.pods for kept in named)
            if others:
                said.append(plural(others, "more pod"))
            sentences.append(f"In {path_text(one.domain)} these can't be evicted: {'; '.join(said)}.")
    return sentences[:_KEPT_DOMAINS]


def _count(kept: KeptPodsEntry) -> str:
    return f"{plural(kept.pods, 'pod')}, " if kept.kind == "gang" else ""


def _but_for_policy(found: NoPreemptionEntry, policy_of: str) -> str:
    kind, _, name = policy_of.partition("/")
    whose = f"of its {kind} {name}" if name else "of the pod"
    return (
        f"It preempts no pod, as preemptionPolicy {whose} is Never; {_CURES[kind]}, "
        f"and {path_text(found.domain) if found.domain else 'room'} would be cleared for it."
    )
