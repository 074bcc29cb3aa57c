"""Why a gang or pod waits, or why it is where it is (kind Explanation)."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType

from closeby.objects.labels import API_VERSION
from closeby.objects.pods import Pod, gang_key
from closeby.objects.reasons import Condition
from closeby.objects.recorded import DecisionStatus, Recorded, ReservationStatus, SchedulerStatus, StoryLine
from closeby.objects.words import plural
from closeby.report.documents.decided import (
    DecidedEntry,
    Live,
    NowEntry,
    Origin,
    PodDecidedEntry,
    app_group_entry,
    by_this_command,
    shown_as_decided,
    view_gang,
)
from closeby.report.documents.lines import (
    DomainLine,
    LackEntry,
    MissingLabelEntry,
    NodeLine,
    domain_lines,
    explanation_of,
    lack_entries,
    node_lines,
    node_weights,
    unlabelled_entry,
)
from closeby.report.documents.preemptions import (
    NoPreemptionEntry,
    PreemptionEntry,
    no_preemption_entry,
    preemption_entries,
)
from closeby.report.documents.quality import AppGroupEntry
from closeby.report.documents.scheduling import (
    GroupEntry,
    PartLine,
    PodEntry,
    RejectionEntry,
    part_lines,
    pod_entry,
    rejections,
    segments_in,
)
from closeby.report.documents.sentences import (
    BY_THIS_COMMAND,
    OPT_OUT,
    app_group_sentences,
    decided_sentences,
    gang_sentences,
    pod_sentences_of,
    preemption_sentences,
    reserved_sentences,
    sentences_of_pod,
    who_decided,
)
from closeby.report.documents.subjects import APP_GROUP, GANG, POD, ChosenEntry, Subject
from closeby.scheduling.gangs.places import SegmentPlace
from closeby.scheduling.outcomes import ItemKind, item_key, name_of
from closeby.simulator.runs import Run
from closeby.whatif.prospects import prospect
from closeby.whatif.records import Counterfactual, Kind

#: What was found about one item.
Answers = tuple[Counterfactual, ...]


class NotAsked(Struct, frozen=True, kw_only=True):
    """Why a scheduler could not be asked, and what to do about it."""

    message: str
    #: What to do about it.
    remedy: str


class Explanation(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything about one gang or pod; fields that do not concern it are empty."""

    api_version: str = API_VERSION
    kind: str = "Explanation"
    #: ``pod/namespace/name``, ``podgroup/namespace/name`` or ``appgroup/namespace/name``.
    subject: str
    #: What became of it, and why, in sentences.
    sentences: tuple[str, ...]
    reason: str | None
    #: Of which workload this is one gang or pod of several; only there if the workload was asked for.
    chosen: ChosenEntry | UnsetType = UNSET
    #: The gang, also that of an explained member.
    gang: GroupEntry | None = None
    #: The AppGroup.
    app_group: AppGroupEntry | None = None
    #: All its pods, or the explained one.
    pods: tuple[PodEntry, ...]
    #: The subgroups of the gang that hold pods.
    subgroups: tuple[PartLine, ...] = ()
    #: The segments of a gang with layers, and of its subgroups, of which members hold a node.
    segments: tuple[SegmentPlace, ...] = ()
    #: Of a gang of equal pods that lacks room: whether the cluster could hold it where it wants to be, with
    #: the nodes as they are, if all that may go had gone; only there where that is known.
    ever_fits: bool | UnsetType = UNSET
    #: Of a gang with task-topology: pods that belong on one node, in the order the buckets were made.
    buckets: tuple[tuple[str, ...], ...] | None = None
    #: Best first; of a placed gang the taken ones and then the runner-up.
    domains: tuple[DomainLine, ...] = ()
    #: Of a single pod: the best first.
    nodes: tuple[NodeLine, ...] = ()
    #: By plugin: what its scores count in the totals of ``nodes``.
    weights: Mapping[str, float] = {}
    #: Of a single pod: why nodes were refused, by node.
    rejected: Mapping[str, RejectionEntry] = {}
    #: Of what waits for want of resources: which, the scarcest first.
    lacks: tuple[LackEntry, ...] = ()
    #: Who makes room for it, with the cost of each domain; empty where no pod does.
    preemptions: tuple[PreemptionEntry, ...] = ()
    #: Why no pod makes room for it; only there where that was asked.
    no_preemption: NoPreemptionEntry | UnsetType = UNSET
    #: Of what waits for a label that nodes lack: which label and how many nodes.
    unlabelled: MissingLabelEntry | None = None
    #: What is wrong or noteworthy about it.
    conditions: tuple[Condition, ...] = ()
    #: What would have to be different; empty where that was not asked, or where nothing of the kind helps.
    counterfactuals: tuple[Counterfactual, ...] = ()
    #: What schedulers wrote about it in the cluster; only there when they did.
    recorded: tuple[Recorded, ...] | UnsetType = UNSET
    #: Of a gang in a cluster: what its scheduler decided last; only there when that is known.
    last_decision: DecisionStatus | UnsetType = UNSET
    #: Of a gang in a cluster: the nodes that its scheduler keeps free for it; only there when it does.
    reservation: ReservationStatus | UnsetType = UNSET
    #: In a cluster: where the reason is from.
    decided: DecidedEntry | UnsetType = UNSET
    #: In a cluster: the last decision about each pod.
    decisions: tuple[PodDecidedEntry, ...] | UnsetType = UNSET
    #: In a cluster: what would be decided now.
    now: NowEntry | UnsetType = UNSET
    #: What the scheduler at work tells of it, the oldest first; only there when it was asked.
    story: tuple[StoryLine, ...] | UnsetType = UNSET
    #: Why the scheduler at work could not be asked; only there when it could not.
    not_asked: NotAsked | UnsetType = UNSET

    @property
    def message(self) -> str | None:
        """Why it waits, as the first sentence says."""
        if self.gang is not None:
            return self.gang.message
        return next((pod.message for pod in self.pods if pod.message), None)

    @property
    def rests_on_this_command(self) -> bool:
        """Whether a table of domains or nodes is of another decision than the one that is shown."""
        return isinstance(self.decided, DecidedEntry) and not self.is_by_this_command

    @property
    def is_by_this_command(self) -> bool:
        """Whether no scheduler of the cluster is known to have decided."""
        return isinstance(self.decided, DecidedEntry) and self.decided.source is Origin.COMMAND


def explain(
    run: Run,
    subject: Subject,
    live: Live | None = None,
    counterfactuals: Mapping[str, tuple[Counterfactual, ...]] = {},
    notices: Iterable[Condition] = (),
    chosen: ChosenEntry | None = None,
) -> Explanation:
    """Explain one gang, application or pod of a run that recorded its explanation.

    ``live`` is what its cluster says: it is shown as its scheduler decided, where that is known, and the run
    says what would be different. ``counterfactuals`` are by the key of the work item. ``notices`` are about
    the objects that it is about; ``chosen`` says of which workload it was chosen.
    """
    found = counterfactuals.get(item_key(subject.item_kind, subject.item), ())
    if subject.kind == POD and subject.item_kind is ItemKind.GANG:  # Not what concerns other members.
        found = tuple(one for one in found if not one.pods or subject.key in one.pods)
    explained = {GANG: _explain_gang, APP_GROUP: _explain_app, POD: _explain_pod}[subject.kind]
    explanation = explained(run, subject.key, live, found)
    # What plugins decide by besides: a decision is no better than that.
    measured = [one for plugin in run.engine.profile.measured for one in plugin.conditions()]
    conditions = (*explanation.conditions, *notices, *measured)
    waits = explanation.reason is not None
    kept = run.engine.reservation
    own = kept if kept is not None and waits and kept.key == subject.item else None
    status = SchedulerStatus() if live is None else live.status
    reserves = status.reservation if status.story is None else status.story.reservation or status.reservation
    outcome = next((one for one in run.outcomes() if one.key == subject.item), None)
    missing = None if outcome is None else no_preemption_entry(outcome.no_preemption)
    plans = [one for one in run.engine.preemptions if name_of(one.item) == subject.item]
    new_plans = [one for one in run.preemptions if one.preemptor == subject.item and one not in plans]
    sentences = [*([BY_THIS_COMMAND] if explanation.is_by_this_command else []), *explanation.sentences]
    sentences += preemption_sentences(run, subject.item, plans, missing)
    sentences += [] if chosen is None else [chosen.sentence()]
    if explanation.gang is not None and isinstance(explanation.gang.by_nature, str):
        kind = explanation.gang.by_nature
        sentences.append(f"It is a gang by nature ({kind}), without being asked; {OPT_OUT}.")
    sentences += reserved_sentences(reserves if waits else None, own)
    if outcome is not None and outcome.refused and outcome.relaxation is not None:
        sentences.append(outcome.relaxation.from_now())
    unasked = status.unasked
    return msgspec.structs.replace(
        explanation,
        sentences=tuple(sentences),
        conditions=tuple(dict.fromkeys(conditions)),
        chosen=UNSET if chosen is None else chosen,
        counterfactuals=found,
        preemptions=preemption_entries((*plans, *new_plans)),
        no_preemption=UNSET if missing is None else missing,
        recorded=status.conditions or UNSET,
        last_decision=status.last_decision or UNSET,
        reservation=reserves or UNSET,
        story=UNSET if status.story is None else status.story.entries,
        not_asked=UNSET if unasked is None else NotAsked(message=unasked.message, remedy=unasked.remedy),
    )


def _in_cluster(
    explanation: Explanation,
    decided: DecidedEntry | None,
    decisions: tuple[PodDecidedEntry, ...],
    now: NowEntry,
) -> Explanation:
    """With the fields that only an explanation of a live cluster has; ``decided`` is None in files."""
    if decided is None:
        return explanation
    return msgspec.structs.replace(explanation, decided=decided, decisions=decisions, now=now)


def _now(entries: Sequence[PodEntry]) -> NowEntry:
    reason, message = next(((one.reason, one.message) for one in entries if one.reason), (None, None))
    return NowEntry(scheduled=sum(one.node is not None for one in entries), reason=reason, message=message)


def _explain_app(run: Run, key: str, live: Live | None, found: Answers) -> Explanation:
    of = run.engine.applications.of
    members = [pod for pod in run.pods if (application := of(pod)) is not None and application.key == key]
    pods = now = tuple(pod_entry(run, pod) for pod in members)
    decided, standing = None, None
    decisions: tuple[PodDecidedEntry, ...] = ()
    if live is not None:
        known = zip(members, now, strict=True)
        decisions = tuple(live.of_pod(pod) or by_this_command(one) for pod, one in known)
        decided = _of_application(decisions, live)
        if decided.source is not Origin.COMMAND:
            standing = live.standing.application
            pods = shown_as_decided(live, members, decisions)
    entry = standing or app_group_entry(run, key)
    sentences = list(app_group_sentences(entry, pods))
    if decided is not None and decided.source is Origin.SCHEDULER:
        sentences.append(who_decided(decided))
    holding = sum(one.node is not None for one in now)
    if standing is not None and holding > sum(one.node is not None for one in pods):
        sentences.append(f"A new decision would place {plural(holding, 'pod')} of it.")
    explanation = Explanation(
        subject=f"{APP_GROUP}/{key}",
        sentences=tuple(sentences),
        reason=next((pod.reason for pod in pods if pod.reason is not None), None),
        app_group=entry,
        pods=pods,
        conditions=entry.conditions,
    )
    return _in_cluster(explanation, decided, decisions, _now(now))


def _of_application(decisions: Sequence[PodDecidedEntry], live: Live) -> DecidedEntry:
    """Where it is known from how an application stands: the least certain source of its pods counts."""
    if any(one.source is Origin.COMMAND for one in decisions):
        return DecidedEntry(source=Origin.COMMAND)
    newest = None if live.story is None else live.story.last_decision
    if newest is not None and not any(one.reason and one.source is Origin.POD for one in decisions):
        return live.decided(Origin.SCHEDULER, newest.time)
    return DecidedEntry(source=Origin.POD)


def _explain_gang(run: Run, key: str, live: Live | None, found: Answers) -> Explanation:
    pods = [pod for pod in run.pods if pod.group is not None and gang_key(pod) == key]
    outcome = run.gang_outcomes.get(key)
    group = next((one for one in run.groups if one.key == key), None)
    domains = domain_lines(run, group, outcome, pods)
    view = view_gang(run, key, pods, live)
    entry, outlook = view.entry, None
    if group is not None and not view.now.scheduled and view.agrees:
        outlook = prospect(run, group, view.now.reason, pods, found)
    short = outlook is not None or any(one.kind is Kind.SHORT for one in found)
    looked_at = domains if view.agrees else ()
    sentences = gang_sentences(
        entry, group, view.outcome, looked_at, pods, decided_sentences(view), short=short
    )
    explanation = Explanation(
        subject=f"{GANG}/{key}",
        sentences=(*sentences, *(() if outlook is None else outlook.sentences)),
        reason=entry.reason,
        gang=entry,
        pods=view.pods,
        subgroups=() if entry.sub_groups is UNSET else part_lines(entry.sub_groups),
        segments=segments_in(entry),
        ever_fits=UNSET if outlook is None else outlook.ever_fits,
        buckets=None if outcome is None else outcome.buckets,
        domains=domains,
        lacks=lack_entries(outcome),
        unlabelled=unlabelled_entry(outcome),
        conditions=entry.conditions,
    )
    now = NowEntry(scheduled=view.now.scheduled, reason=view.now.reason, message=view.now.message)
    return _in_cluster(explanation, view.decided, view.decisions, now)


def _explain_pod(run: Run, key: str, live: Live | None, found: Answers) -> Explanation:
    pod = next(one for one in run.pods if one.key == key)
    if pod.group is not None:
        return _explain_member(run, pod, live, found)
    now = entry = pod_entry(run, pod)
    application = run.engine.applications.of(pod)
    outcome = run.pod_outcomes.get(key) if application is None else run.app_outcomes.get(application.key)
    own = outcome if application is None else None
    shown = explanation_of(outcome, key)
    nodes = node_lines(shown)
    weights = node_weights(run, nodes)
    known = None if live is None else live.of_pod(pod)
    decided = None
    if live is None or known is None:
        sentences = tuple(sentences_of_pod(entry, nodes, outcome, weights))
        if live is not None:
            known = by_this_command(entry)
            decided = DecidedEntry(source=known.source)
    else:
        (entry,) = shown_as_decided(live, [pod], [known])
        sentences = tuple(pod_sentences_of(known, live, pod, now))
        decided = live.decided(known.source, known.time)
    explanation = Explanation(
        subject=f"{POD}/{key}",
        sentences=sentences,
        reason=entry.reason,
        pods=(entry,),
        nodes=nodes,
        weights=weights,
        rejected={} if shown is None else rejections(shown),
        lacks=lack_entries(own),
        unlabelled=unlabelled_entry(own),
    )
    return _in_cluster(explanation, decided, () if known is None else (known,), _now((now,)))


def _explain_member(run: Run, pod: Pod, live: Live | None, found: Answers) -> Explanation:
    """A member of a gang is decided with its gang."""
    gang = gang_key(pod)
    whole = _explain_gang(run, gang, live, found)
    entry = next(one for one in whole.pods if one.name == pod.name)
    shown = explanation_of(run.gang_outcomes.get(gang), pod.key)
    own = tuple(one for one in whole.decisions or () if one.name == pod.name)
    rank = "" if entry.rank is None else f", as rank {entry.rank}"
    since = f", since {own[0].time}" if pod.node_name is not None and own and own[0].time else ""
    said = entry.message or ""
    shared = any(said and said in one for one in whole.sentences)
    waits = "ended" if entry.phase == "Preempted" else "waits"
    state = f"is on {entry.node}{rank}{since}" if entry.node else waits if shared else f"{waits}: {said}"
    nodes = node_lines(shown)
    explanation = Explanation(
        subject=f"{POD}/{pod.key}",
        sentences=(
            f"{pod.key} is a member of gang {gang} and {state}.",
            *(one for one in whole.sentences if shared or one.rstrip(".") not in said),
        ),
        reason=entry.reason,
        gang=whole.gang,
        pods=(entry,),
        domains=whole.domains,
        nodes=nodes,
        weights=node_weights(run, nodes),
        rejected={} if shown is None else rejections(shown),
        conditions=() if whole.gang is None else whole.gang.conditions,
    )
    return _in_cluster(explanation, whole.decided or None, own, _now((pod_entry(run, pod),)))
