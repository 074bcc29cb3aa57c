"""Explanations in words: why a gang or pod waits, or why it is where it is, and who decided so."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from closeby.objects.groups import PodGroup, Strategy
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.recorded import ReservationStatus
from closeby.objects.words import all_pods, names_text, natural_key, path_text, plural, plural_noun, time_text
from closeby.report.documents.decided import DecidedEntry, GangView, Live, Origin, PodDecidedEntry
from closeby.report.documents.lines import DomainLine, NodeLine
from closeby.report.documents.preemptions import (
    CostEntry,
    DomainCostEntry,
    NoPreemptionEntry,
    preemption_entries,
)
from closeby.report.documents.quality import AppGroupEntry
from closeby.report.documents.scheduling import GroupEntry, PodEntry, TrafficEntry
from closeby.scheduling.outcomes import Outcome, Preemption, Reservation
from closeby.simulator.runs import Run

BY_THIS_COMMAND: Final = (
    "No decision of a scheduler is known. What follows was decided now, by this command, with the cluster as "
    "it is."
)
#: How a workload whose kind makes it a gang is taken out.
OPT_OUT = 'the annotation closeby.dev/gang: "false" on the workload (or a pod template) opts out'


#: Domains of which the text says who can't be evicted, and how many gangs and pods of each.
_KEPT_DOMAINS: Final = 3
_KEPT_NAMED: Final = 3
#: Of a `preemptionPolicy: Never`, by whose it is.
_CURES: Final = {
    "PriorityClass": "use another class, since a class can't be changed",
    "PodGroup": "use another PodGroup, since its policy can't be changed",
    "pod": "leave it out",
}


def gang_sentences(
    entry: GroupEntry,
    group: PodGroup | None,
    outcome: Outcome | None,
    domains: Sequence[DomainLine],
    pods: Sequence[Pod],
    decided: Iterable[str] = (),
    *,
    short: bool = False,
) -> Iterable[str]:
    """What became of a gang, and why; ``domains`` with the taken ones first, then the runner-up.

    ``decided`` says when the scheduler decided so, where it did and not this run.
    ``short``: how much it lacks where it comes closest is said besides.
    """
    key = f"{entry.namespace}/{entry.name}"
    if entry.reason is not None:
        yield f"{key} waits ({entry.reason}): {entry.message}."
        known = tuple(decided)
        yield from known
        best = max(domains, key=lambda line: line.fits, default=None)
        if best is None or entry.scheduled or path_text(best.domain) in (entry.message or ""):
            return
        failed = entry.reason == Reason.TOPOLOGY_PLACEMENT_FAILED
        if best.fits >= best.wanted or (_requires(group) and not short and failed):
            why = _why_not(best, len(domains), group)
            yield f"As the cluster is now: {why}" if known else why
        return
    if not entry.scheduled:
        yield f"{key} has no pods to schedule."
        return
    nodes = plural(entry.span.get("hostname", 0), "node")
    where = f"in {path_text(entry.domain)} ({entry.level})" if entry.domain else "across the cluster"
    count = f"All {entry.scheduled}" if entry.scheduled == len(pods) else f"{entry.scheduled} of {len(pods)}"
    yield f"{count} pods of {key} are {where}, on {nodes}."
    if isinstance(entry.traffic, TrafficEntry):
        moved = entry.traffic.together < entry.traffic.one_by_one
        yield f"The traffic of the pods placed now costs {entry.traffic.together}" + (
            f"; placed pod by pod it would cost {entry.traffic.one_by_one}." if moved else "."
        )
    known = tuple(decided)
    if known:
        yield from known
    elif outcome is None:
        yield "They have their nodes already; nothing had to be decided."
    elif entry.scheduled == sum(pod.node_name is not None for pod in pods):
        yield "They have their nodes already; no other member found one."
    elif domains:
        # Members that ran already hold the others to the domain that they are in.
        runs = any(pod.node_name is not None and not pod.terminating for pod in pods)
        yield _why_here(domains, group, held=_requires(group) and runs)
    elif entry.topology is None:
        yield "No topology applies to it, so each pod went to the best node."


def _requires(group: PodGroup | None) -> bool:
    """Whether a gang requires one domain of a level for all."""
    return group is not None and group.constraint is not None and group.constraint.required is not None


def _why_not(best: DomainLine, looked_at: int, group: PodGroup | None) -> str:
    level = best.level or "part of the cluster"
    lack = f" ({best.lack})" if best.lack else ""
    if best.fits >= best.wanted:
        where = path_text(best.domain)
        how = "as the subgroups require" if group is not None and group.subgroups else "beside each other"
        return f"{where} alone would hold {all_pods(best.wanted)}, but not {how}."
    which = f"Of {plural(looked_at, level)} the roomiest" if looked_at > 1 else f"The only {level}"
    who = "The cluster" if best.level is None else f"{which}, {path_text(best.domain)},"
    return f"{who} holds {best.fits} of {best.wanted} pods{lack}."


def _why_here(domains: Sequence[DomainLine], group: PodGroup | None, *, held: bool) -> str:
    taken = [line for line in domains if line.taken]
    others = [line for line in domains if not line.taken]
    if not taken:
        return "It is the best place for the gang as a whole."
    level = taken[0].level or "part of the cluster"
    wanted = taken[0].wanted
    holding = [line for line in others if line.fits >= wanted]
    if len(taken) > 1:
        shares = ", ".join(f"{path_text(line.domain)} takes {line.taken}" for line in taken[:4])
        shares += f" and {len(taken) - 4} more" if len(taken) > 4 else ""
        if any(line.fits >= wanted for line in domains):
            return f"It uses {plural(len(taken), level)}: {shares}."
        return f"No {level} holds {all_pods(wanted)}, so the gang uses {len(taken)} of them: {shares}."
    here = taken[0]
    if group is not None and here.taken < wanted:
        return f"{path_text(here.domain)} takes {here.taken} of the {wanted} pods that looked for a place."
    if held:
        return (
            f"Members that already run are in {path_text(here.domain)}, and it requires one {level} for all."
        )
    if not holding:
        return _only_one(here, others, level)
    runner_up = holding[0]
    rule = _rule(here, runner_up, group)
    return (
        f"{len(holding) + 1} {plural_noun(level)} hold {all_pods(wanted)}. {rule}: {path_text(here.domain)} "
        f"had room for {here.fits}, the runner-up {path_text(runner_up.domain)} for {runner_up.fits}."
    )


def _only_one(here: DomainLine, others: Sequence[DomainLine], level: str) -> str:
    if not others:
        return f"{path_text(here.domain)} is the only {level} there is."
    second = max(others, key=lambda line: line.fits)
    lack = f" ({second.lack})" if second.lack else ""
    return (
        f"{path_text(here.domain)} is the only {level} that holds {all_pods(here.wanted)}; "
        f"the next, {path_text(second.domain)}, holds {second.fits}{lack}."
    )


def _rule(here: DomainLine, runner_up: DomainLine, group: PodGroup | None) -> str:
    strategy = Strategy.BINPACK if group is None else group.strategy
    if here.fits == runner_up.fits:
        if natural_key(path_text(here.domain)) < natural_key(path_text(runner_up.domain)):
            return "Of equally full ones the first by name is taken"
        return "Members that already run, or the room for pods that differ, decided"
    tighter = here.fits < runner_up.fits
    if strategy is Strategy.BINPACK and tighter:
        return "Strategy binpack takes the tightest"
    if strategy is Strategy.SPREAD and not tighter:
        return "Strategy spread takes the emptiest"
    return "Members that already run, nodes that come first, or a tighter fit below, decided"


def app_group_sentences(entry: AppGroupEntry, pods: Sequence[PodEntry]) -> Iterable[str]:
    """What became of an application, and how near to each other its pods are."""
    key = f"{entry.namespace}/{entry.name}"
    if not pods:
        yield f"{key} has no pods: none carries its name in the label appgroup.diktyo.x-k8s.io."
        return
    nodes = plural(len({pod.node for pod in pods if pod.node is not None}), "node")
    count = f"{entry.scheduled} of {plural(len(pods), 'pod')}"
    yield f"{count} of {key} {'is' if len(pods) == 1 else 'are'} on {nodes}."
    if entry.cost is None:
        yield "No NetworkTopology gives network costs, so each pod went to the best node for it alone."
        return
    yield f"Traffic over its {plural(len(entry.edges), 'dependency')} costs {entry.cost}."
    if entry.one_by_one and entry.together is not None:
        saved = "no better place was found" if entry.one_by_one == entry.together else "moved together"
        yield (
            f"One after another the pods placed now would have cost {entry.one_by_one}; {saved}, they "
            f"cost {entry.together}."
        )


def _pod_sentences(entry: PodEntry, nodes: Sequence[NodeLine], weights: Mapping[str, float]) -> Iterable[str]:
    key = f"{entry.namespace}/{entry.name}"
    if entry.phase == "Running":
        yield f"{key} is on {entry.node} already; nothing had to be decided."
        return
    if entry.node is None:
        reason = f" ({entry.reason})" if entry.reason else ""
        yield f"{key} waits{reason}: {entry.message}."
        return
    yield f"{key} went to {entry.node}."
    for one in entry.volumes or ():
        if one.volume is None:
            yield f"For its claim {one.claim} a volume of class {one.storage_class} is made for that node."
        elif not one.bound:
            yield f"Its claim {one.claim} gets volume {one.volume}."
    here = next((line for line in nodes if line.node == entry.node), None)
    others = [line for line in nodes if line.node != entry.node]
    if here is None:
        return
    if not others:
        yield "It is the only node that takes this pod."
        return
    second = others[0]
    if second.total == here.total:
        equal = sum(line.total == here.total for line in others)
        yield f"It scores {here.total:.1f}, as {plural(equal, 'other node')} did; the first by name is taken."
        return
    gaps = {
        name: weights.get(name, 1.0) * (score - second.scores.get(name, 0.0))
        for name, score in here.scores.items()
    }
    by = ", ".join(
        f"{name} {gap:+.1f}" for name, gap in sorted(gaps.items(), key=lambda one: -abs(one[1])) if gap
    )
    yield f"It scores {here.total:.1f}; the runner-up {second.node} scores {second.total:.1f} ({by})."


def sentences_of_pod(
    entry: PodEntry, nodes: Sequence[NodeLine], outcome: Outcome | None, weights: Mapping[str, float]
) -> Iterable[str]:
    """What this run decided about a pod without a gang; ``nodes`` with the best first.

    ``weights``: what the scores of each plugin count in totals.
    """
    improved = outcome is not None and outcome.improvement is not None
    sentences = tuple(_pod_sentences(entry, nodes, weights))
    yield from sentences[:1] if improved else sentences
    if entry.application is not None and outcome is not None:
        then = ", and then where the network cost of all its pods is lowest" if improved else ""
        yield (f"It was placed together with AppGroup {entry.application}, in the order of its graph{then}.")


# Who decided so, and what would be decided now


def who_decided(decided: DecidedEntry) -> str:
    """Such as ``Scheduler closeby decided so at 2026-11-21T20:10:00Z.``; not for this command."""
    at = f" at {decided.time}" if decided.time else ""
    if decided.source is Origin.SCHEDULER:
        return f"Scheduler {decided.scheduler} decided so{at}."
    if decided.source is Origin.STATUS:
        return f"The scheduler decided so{at}, as the PodGroup's status says."
    return "The pod's condition PodScheduled says so" + (f" since {decided.time}." if at else ".")


def decided_sentences(view: GangView) -> Iterator[str]:
    """When the scheduler decided, and what would be decided now where that differs."""
    now, decided = view.now, view.decided
    if decided is None or decided.source not in (Origin.SCHEDULER, Origin.STATUS):
        return
    yield who_decided(decided)
    if view.agrees:
        return
    if now.reason is not None:
        yield f"A new decision would give another reason ({now.reason}): {now.message}."
    elif now.scheduled > view.entry.scheduled:
        where = f" in {'/'.join(one or '-' for one in now.domain)}" if now.domain else ""
        yield f"A new decision would place {plural(now.scheduled, 'pod')} of it{where}."


def reserved_sentences(kept: ReservationStatus | None, own: Reservation | None) -> Iterator[str]:
    """Which nodes the scheduler keeps free for a gang, and which it would choose now: ``own``."""
    now = None if own is None else own.status
    if kept is not None:
        same = now is None or (now.nodes, now.topology, now.domain) == (
            kept.nodes,
            kept.topology,
            kept.domain,
        )
        choice = "" if now is None or same else f"; a new decision would choose {now.where}"
        yield f"The scheduler says that {kept.sentence()}{choice}."
    elif now is not None:
        yield f"A new decision would reserve {now.where} for it."


def pod_sentences_of(decided: PodDecidedEntry, live: Live, pod: Pod, now: PodEntry) -> Iterator[str]:
    """What was decided about a single pod of a cluster, by whom, and what would be decided now."""
    key = pod.key
    at = f" at {decided.time}" if decided.time else ""
    if pod.node_name is not None:
        yield f"{key} is on {pod.node_name}" + (f" since {decided.time}." if decided.time else ".")
        known = live.in_story(pod)
        if known is not None and known.node == pod.node_name:
            when = f" at {known.time}" if known.time else ""
            yield f"Scheduler {live.scheduler} chose that node{when}."
        return
    if decided.node is not None:
        yield f"{key} waits for its binding: scheduler {live.scheduler} chose {decided.node}{at}."
        return
    reason = f" ({decided.reason})" if decided.reason else ""
    yield f"{key} waits{reason}: {decided.message}."
    if decided.source is Origin.SCHEDULER or decided.reason:
        yield who_decided(live.decided(decided.source, decided.time))
    if now.node is not None:
        yield f"A new decision would place it on {now.node}."
    elif now.reason is not None and now.reason != decided.reason:
        yield f"A new decision would have the reason {now.reason}."


# Preemption


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


def preemption_sentences(
    run: Run, key: str, in_force: Iterable[Preemption], found: NoPreemptionEntry | None
) -> Iterator[str]:
    """Who makes room for a gang or pod, which domain is next, or what priority would do.

    ``in_force``: plans that its scheduler carries out.
    """
    for plan in in_force:
        verb = "is" if len(plan.victims) == 1 else "are"
        yield f"By the scheduler's plan {_victims(plan)} {verb} evicted so that it fits in {_cleared(plan)}."
    ended: dict[str, list[str]] = {}
    for pod in run.pods:
        by = run.victims.get(pod.uid)
        if by is not None and key in (pod.key, run.engine.state.item_key(pod)):
            ended.setdefault(f"{by.preemptor} (priority {by.priority})", []).append(pod.name)
    for whom, gone in ended.items():
        yield f"{names_text(gone)} made room for {whom}."
    own = [plan for plan in run.preemptions if plan.preemptor == key]
    for plan, entry in zip(own, preemption_entries(own), strict=True):
        yield f"It clears {_cleared(plan)}: {_victims(plan)} must go ({cost_text(entry.cost)})."
        domains = entry.domains or ()
        others = (one for one in domains if one.domain not in (plan.path, (plan.node,)))
        second = next(((one.domain, one.cost) for one in others if one.cost is not None), None)
        if second is not None:
            yield f"The next would be {path_text(second[0])} ({cost_text(second[1])})."
        yield from _kept_sentences(domains)
    if found is None:
        return
    where = path_text(found.domain)
    if isinstance(found.policy_of, str):
        kind, _, name = found.policy_of.partition("/")
        whose = f"of its {kind} {name}" if name else "of the pod"
        room = where if found.domain else "room"
        yield (
            f"It preempts no pod, as preemptionPolicy {whose} is Never; {_CURES[kind]}, and {room} would be "
            "cleared for it."
        )
    elif found.above_priority is None:
        yield f"No pod makes room for it: {found.why}."
    else:
        yield f"With priority above {found.above_priority}, {where} would be cleared."
    yield from _kept_sentences(found.domains)


def _victims(plan: Preemption) -> str:
    return names_text([pod.name for pod in plan.victims])


def _cleared(plan: Preemption) -> str:
    return plan.node or path_text(plan.path)


def _kept_sentences(domains: Iterable[DomainCostEntry]) -> Iterator[str]:
    """Who can't be evicted, of the first domains that are not to be had for that."""
    those = [one for one in domains if one.cost is None and one.kept and one.kept_pods]
    for one in those[:_KEPT_DOMAINS]:
        named = (one.kept or ())[:_KEPT_NAMED]
        counts = [f"{plural(kept.pods, 'pod')}, " if kept.kind == "gang" else "" for kept in named]
        said = [
            f"{kept.kind} {kept.name} ({count}{kept.message})"
            for kept, count in zip(named, counts, strict=True)
        ]
        others = (one.kept_pods or 0) - sum(kept.pods for kept in named)
        said += [plural(others, "more pod")] if others else []
        yield f"In {path_text(one.domain)} these can't be evicted: {'; '.join(said)}."
