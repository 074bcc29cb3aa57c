"""Why a gang or pod waits, or why it lies where it lies (kind Explanation)."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from closeby.objects.groups import PodGroup, Strategy
from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.objects.recorded import DecisionStatus, Recorded, ReservationStatus, SchedulerStatus
from closeby.objects.words import path_text
from closeby.report.documents.app_groups import AppGroupEntry, app_group_entries
from closeby.report.documents.conditions import ConditionEntry, condition_entries
from closeby.report.documents.decided import (
    GangView,
    Live,
    decided_sentences,
    reserved_sentences,
    view_gang,
)
from closeby.report.documents.lines import DomainLine, NodeLine, PartLine
from closeby.report.documents.parts import parts_of
from closeby.report.documents.prospects import prospect
from closeby.report.documents.scheduling import (
    API_VERSION,
    GroupEntry,
    PodEntry,
    RejectionEntry,
    pod_entry,
)
from closeby.report.documents.sentences import app_group_sentences, gang_sentences, pod_sentences
from closeby.report.documents.subjects import APP_GROUP, GANG, POD, Subject
from closeby.scheduling.outcomes import APPLICATION, DomainFit, Outcome, PodExplanation
from closeby.simulator.runs import Run
from closeby.topology.tree import Tree
from closeby.whatif.records import Counterfactual


class Explanation(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything about one gang or pod; fields that do not concern it are empty."""

    api_version: str = API_VERSION
    kind: str = "Explanation"
    #: ``pod/namespace/name``, ``podgroup/namespace/name`` or ``appgroup/namespace/name``.
    subject: str
    #: What became of it, and why, in sentences.
    sentences: tuple[str, ...]
    reason: str | None
    gang: GroupEntry | None = None
    app_group: AppGroupEntry | None = None
    pods: tuple[PodEntry, ...]
    subgroups: tuple[PartLine, ...] = ()
    #: Of a gang with task-topology: pods that belong on one node, in the order the buckets were made.
    buckets: tuple[tuple[str, ...], ...] | None = None
    #: Best first; of a placed gang the taken ones and then the runner-up.
    domains: tuple[DomainLine, ...] = ()
    #: Of a single pod: the best first.
    nodes: tuple[NodeLine, ...] = ()
    rejected: Mapping[str, RejectionEntry] = {}
    conditions: tuple[ConditionEntry, ...] = ()
    #: What would have to be different; empty where that was not asked, or where nothing of the kind helps.
    counterfactuals: tuple[Counterfactual, ...] = ()
    #: What schedulers wrote about it in the cluster; only there when they did.
    recorded: tuple[Recorded, ...] | UnsetType = UNSET
    #: Of a gang in a cluster: what its scheduler decided last; only there when that is known.
    last_decision: DecisionStatus | UnsetType = UNSET
    #: Of a gang in a cluster: the nodes that its scheduler keeps free for it; only there when it does.
    reservation: ReservationStatus | UnsetType = UNSET


def explain(
    run: Run,
    subject: Subject,
    live: Live | None = None,
    counterfactuals: Mapping[str, tuple[Counterfactual, ...]] = {},
) -> Explanation:
    """Explain one gang, application or pod of a run that recorded its explanation.

    ``live`` is what its cluster says: a gang is shown as its scheduler decided, where that is known, and the
    run says what would be different. ``counterfactuals`` are by the key of the work item.
    """
    explained = {GANG: _explain_gang, APP_GROUP: _explain_app, POD: _explain_pod}[subject.kind]
    explanation = explained(run, subject.key, live)
    different = counterfactuals.get(_item_key(run, subject), ())
    if different:
        explanation = msgspec.structs.replace(explanation, counterfactuals=different)
    # What plugins decide by besides: a decision is no better than that.
    measured = [one for plugin in run.engine.profile.measured for one in plugin.conditions()]
    if measured:
        conditions = (*explanation.conditions, *condition_entries(measured))
        explanation = msgspec.structs.replace(explanation, conditions=conditions)
    kept = run.engine.reservation
    own = kept if kept is not None and explanation.reason is not None and kept.key == subject.item else None
    status = SchedulerStatus() if live is None else live.status
    waits = explanation.reason is not None
    reserved = reserved_sentences(status.reservation if waits else None, own)
    return msgspec.structs.replace(
        explanation,
        sentences=(*explanation.sentences, *reserved),
        recorded=status.conditions or UNSET,
        last_decision=status.last_decision or UNSET,
        reservation=status.reservation or UNSET,
    )


def _item_key(run: Run, subject: Subject) -> str:
    """The key of the work item with which it is decided."""
    if subject.kind == APP_GROUP:
        return f"{APPLICATION}{subject.item}"
    if subject.kind == GANG:
        return subject.item
    pod = next(one for one in run.pods if one.key == subject.key)
    return run.engine.state.item_key(pod)


def _explain_app(run: Run, key: str, live: Live | None) -> Explanation:
    entry = next(one for one in app_group_entries(run) if f"{one.namespace}/{one.name}" == key)
    pods = []
    for pod in run.pods:
        application = run.engine.applications.of(pod)
        if application is not None and application.key == key:
            pods.append(pod_entry(run, pod))
    reasons = [pod.reason for pod in pods if pod.reason is not None]
    return Explanation(
        subject=f"{APP_GROUP}/{key}",
        sentences=tuple(app_group_sentences(entry, pods)),
        reason=reasons[0] if reasons else None,
        app_group=entry,
        pods=tuple(pods),
        conditions=entry.conditions,
    )


def _explain_gang(run: Run, key: str, live: Live | None) -> Explanation:
    pods = [pod for pod in run.pods if pod.group is not None and f"{pod.namespace}/{pod.group}" == key]
    outcome = run.gang_outcomes.get(key)
    group = next((one for one in run.groups if one.key == key), None)
    domains = _domains(run, group, outcome, pods)
    view = view_gang(run, key, pods, live)
    entry = view.entry
    sentences = gang_sentences(
        entry, group, view.outcome, domains if view.agrees else (), pods, decided_sentences(view)
    )
    return Explanation(
        subject=f"{GANG}/{key}",
        sentences=(*sentences, *_outlook(run, view, group, pods)),
        reason=entry.reason,
        gang=entry,
        pods=view.pods,
        subgroups=() if group is None else parts_of(view.run, group, pods),
        buckets=None if outcome is None else outcome.buckets,
        domains=domains,
        conditions=entry.conditions,
    )


def _explain_pod(run: Run, key: str, live: Live | None) -> Explanation:
    pod = next(one for one in run.pods if one.key == key)
    entry = pod_entry(run, pod)
    gang = None
    outcome = run.pod_outcomes.get(key)
    domains: tuple[DomainLine, ...] = ()
    sentences: list[str] = []
    if pod.group is not None:
        whole = _explain_gang(run, f"{pod.namespace}/{pod.group}", live)
        gang, domains = whole.gang, whole.domains
        entry = next(one for one in whole.pods if one.name == pod.name)
        outcome = run.gang_outcomes.get(f"{pod.namespace}/{pod.group}")
        rank = "" if entry.rank is None else f", as rank {entry.rank}"
        said = entry.message or ""
        shared = any(said and said in one for one in whole.sentences)
        state = f"lies on {entry.node}{rank}" if entry.node else "waits" if shared else f"waits: {said}"
        sentences = [f"{key} is a member of gang {pod.namespace}/{pod.group} and {state}."]
        sentences += [one for one in whole.sentences if shared or one.rstrip(".") not in said]
    application = run.engine.applications.of(pod)
    if pod.group is None and application is not None:
        outcome = run.app_outcomes.get(application.key)
    shown = next((one for one in outcome.explanations if one.pod == key), None) if outcome else None
    nodes = _nodes(shown)
    if pod.group is None:
        sentences = list(pod_sentences(entry, nodes))
        if entry.application is not None and outcome is not None:
            sentences = sentences[:1] if outcome.improvement is not None else sentences
            sentences.append(
                f"It was placed together with AppGroup {entry.application}, in the order of its graph"
                + (
                    ", and then where the network cost of all its pods is lowest."
                    if outcome.improvement is not None
                    else "."
                )
            )
    return Explanation(
        subject=f"{POD}/{key}",
        sentences=tuple(sentences),
        reason=entry.reason,
        gang=gang,
        pods=(entry,),
        domains=domains,
        nodes=nodes,
        rejected={}
        if shown is None
        else {
            node: RejectionEntry(plugin=one.plugin, reason=str(one.reason), message=one.message)
            for node, one in shown.rejected.items()
        },
        conditions=() if gang is None else gang.conditions,
    )


def _domains(
    run: Run, group: PodGroup | None, outcome: Outcome | None, pods: Sequence[Pod]
) -> tuple[DomainLine, ...]:
    if outcome is None or not outcome.domains:
        return ()
    tree = run.engine.topologies.tree(outcome.domains[0].topology)
    lines = [_domain_line(fit, _taken(run, tree, fit, pods)) for fit in outcome.domains]
    tight = group is None or group.strategy is Strategy.BINPACK

    def order(line: DomainLine) -> tuple[object, ...]:
        holds = line.fits >= line.wanted
        return (
            -line.taken,
            not holds,
            line.fits if holds and tight else -line.fits,
            natural_key(path_text(line.domain)),
        )

    return tuple(sorted(lines, key=order))


def _domain_line(fit: DomainFit, taken: int) -> DomainLine:
    blocked = {str(reason): count for reason, count in fit.blocked_by.items()}
    return DomainLine(
        domain=fit.path,
        level=fit.level,
        fits=fit.fits,
        wanted=fit.wanted,
        taken=taken,
        nodes=fit.nodes,
        blocked_by=dict(sorted(blocked.items(), key=lambda item: (-item[1], item[0]))),
        lack=fit.lack,
    )


def _taken(run: Run, tree: Tree | None, fit: DomainFit, pods: Iterable[Pod]) -> int:
    """Members of a gang that were placed in a domain in this run."""
    taken = 0
    for pod in pods:
        slot = run.engine.cluster.placement(pod.uid) if pod.uid in run.bindings else None
        domain = None if tree is None or slot is None else tree.node_domain(slot)
        if tree is not None and domain is not None:
            taken += tree.path(domain)[: len(fit.path)] == fit.path
    return taken


def _nodes(shown: PodExplanation | None) -> tuple[NodeLine, ...]:
    if shown is None:
        return ()
    lines = [
        NodeLine(
            node=node,
            total=scores["total"],
            scores={name: value for name, value in scores.items() if name != "total"},
        )
        for node, scores in shown.scores.items()
    ]
    return tuple(sorted(lines, key=lambda line: (-line.total, natural_key(line.node))))


def _outlook(run: Run, view: GangView, group: PodGroup | None, pods: Sequence[Pod]) -> Iterable[str]:
    if group is None or view.now.scheduled or not view.agrees:
        return ()
    return prospect(run, group, view.now.reason, pods)
