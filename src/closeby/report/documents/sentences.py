"""Explanations in words: why a gang or pod waits, or why it is where it is."""

from collections.abc import Iterable, Mapping, Sequence

from closeby.objects.groups import PodGroup, Strategy
from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.words import all_pods, begun, path_text, plural, plural_noun
from closeby.report.documents.app_groups import AppGroupEntry
from closeby.report.documents.lines import DomainLine, NodeLine
from closeby.report.documents.scheduling import GroupEntry, PodEntry, TrafficEntry
from closeby.scheduling.outcomes import Outcome

#: How a workload whose kind makes it a gang is taken out.
OPT_OUT = 'the annotation closeby.dev/gang: "false" on the workload (or a pod template) opts out'


def by_nature_sentences(entry: GroupEntry | None) -> Iterable[str]:
    """That only its workload's kind makes a gang one, and how to opt out."""
    if entry is not None and isinstance(entry.by_nature, str):
        yield f"It is a gang by nature ({entry.by_nature}), without being asked; {OPT_OUT}."


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
        required = group is not None and group.constraint is not None and group.constraint.required
        if best.fits >= best.wanted or (
            required and not short and entry.reason == Reason.TOPOLOGY_PLACEMENT_FAILED
        ):
            why = _why_not(best, len(domains), group)
            yield f"As the cluster is now: {why}" if known else why
        return
    if not entry.scheduled:
        yield f"{key} has no pods to schedule."
        return
    nodes = plural(entry.span.get("hostname", 0), "node")
    where = f"in {path_text(entry.domain)} ({entry.level})" if entry.domain else "across the cluster"
    count = f"all {entry.scheduled}" if entry.scheduled == len(pods) else f"{entry.scheduled} of {len(pods)}"
    yield (
        begun(f"{count} pods of {key} are {where}, on {nodes}.")
        if count[0] == "a"
        else (f"{count} pods of {key} are {where}, on {nodes}.")
    )
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
        yield _why_here(domains, group, held=_held(group, pods))
    elif entry.topology is None:
        yield "No topology applies to it, so each pod went to the best node."


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


def _held(group: PodGroup | None, pods: Sequence[Pod]) -> bool:
    """Whether members that ran already hold the others to the domain that they are in."""
    required = group is not None and group.constraint is not None and group.constraint.required is not None
    return required and any(pod.node_name is not None and not pod.terminating for pod in pods)


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
        more = f" and {len(taken) - 4} more" if len(taken) > 4 else ""
        if any(line.fits >= wanted for line in domains):
            return f"It uses {plural(len(taken), level)}: {shares}{more}."
        return f"No {level} holds {all_pods(wanted)}, so the gang uses {len(taken)} of them: {shares}{more}."
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


def _volume_sentences(entry: PodEntry) -> Iterable[str]:
    """What the claims of a pod get with its node."""
    for one in entry.volumes or ():
        if one.volume is None:
            yield f"For its claim {one.claim} a volume of class {one.storage_class} is made for that node."
        elif not one.bound:
            yield f"Its claim {one.claim} gets volume {one.volume}."


def pod_sentences(entry: PodEntry, nodes: Sequence[NodeLine], weights: Mapping[str, float]) -> Iterable[str]:
    """What became of a pod that belongs to no gang, and why; ``nodes`` with the best first.

    ``weights``: what the scores of each plugin count in totals.
    """
    key = f"{entry.namespace}/{entry.name}"
    if entry.phase == "Running":
        yield f"{key} is on {entry.node} already; nothing had to be decided."
        return
    if entry.node is None:
        reason = f" ({entry.reason})" if entry.reason else ""
        yield f"{key} waits{reason}: {entry.message}."
        return
    yield f"{key} went to {entry.node}."
    yield from _volume_sentences(entry)
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
    """What this run decided about a pod without a gang."""
    improved = outcome is not None and outcome.improvement is not None
    sentences = tuple(pod_sentences(entry, nodes, weights))
    yield from sentences[:1] if improved else sentences
    if entry.application is not None and outcome is not None:
        then = ", and then where the network cost of all its pods is lowest" if improved else ""
        yield (f"It was placed together with AppGroup {entry.application}, in the order of its graph{then}.")
