"""What the scheduler of a cluster decided, beside what this command decides now.

A command that looks at a cluster shows the scheduler's own decisions: from its story if it could be asked,
else from the PodGroup's status and the pods' conditions. Nothing is read out of sentences. What the command
decides itself says what a new decision would be: it may differ, because the cluster has changed or the
scheduler knows more.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.volumes_by_class import VolumeFailure
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.recorded import DecisionStatus, PodDecision, SchedulerStatus, Story
from closeby.report.documents.quality import AppGroupEntry, app_group_entries
from closeby.report.documents.scheduling import GroupEntry, PodEntry, group_entries, pod_entry
from closeby.report.documents.subjects import Subject, belongs_to
from closeby.scheduling.outcomes import ItemKind, Outcome
from closeby.simulator.runs import Run

#: How the condition of a pod begins whose volumes can't be had, or not yet.
_NO_VOLUME = f"{Reason.VOLUME_NOT_BINDABLE}: "


class Origin(StrEnum):
    """Where an explanation of a live cluster has a fact from."""

    #: The story of the scheduler at work.
    SCHEDULER = "scheduler"
    #: ``status.lastDecision`` of the PodGroup.
    STATUS = "status"
    #: The pod: its node, and its condition ``PodScheduled``.
    POD = "pod"
    #: Decided now, by this command, with the cluster as it is.
    COMMAND = "command"


class DecidedEntry(Struct, frozen=True, kw_only=True):
    """Where the reason of an explanation is from, and since when it holds; null where that is not known."""

    #: Where this command has it from.
    source: Origin
    #: The name of the scheduler that decided.
    scheduler: str | None = None
    #: RFC 3339.
    time: str | None = None


class PodDecidedEntry(Struct, frozen=True, kw_only=True):
    """The last decision about one pod of a cluster; null where that is not known."""

    namespace: str
    name: str
    #: The node that it got.
    node: str | None = None
    reason: str | None = None
    message: str | None = None
    #: RFC 3339: when it was decided, or since when the pod's condition says so.
    time: str | None = None
    #: Where this command has it from.
    source: Origin


class NowEntry(Struct, frozen=True, kw_only=True):
    """What this command would decide now."""

    #: How many pods would have a node.
    scheduled: int
    reason: str | None
    message: str | None


class Standing(Struct, frozen=True, kw_only=True):
    """A gang, an application and its pods in the cluster as it stands, before this command decides."""

    gang: GroupEntry | None
    application: AppGroupEntry | None
    #: By uid.
    pods: Mapping[str, PodEntry]


def standing_of(run: Run, subject: Subject) -> Standing:
    """The work item with which a subject is decided, in a run that has decided nothing yet."""
    members = [pod for pod in run.pods if belongs_to(run, pod, subject)]
    application = subject.item if subject.item_kind is ItemKind.APPLICATION else None
    return Standing(
        gang=group_entry(run, subject.item) if subject.item_kind is ItemKind.GANG else None,
        application=None if application is None else app_group_entry(run, application),
        pods={pod.uid: pod_entry(run, pod) for pod in members},
    )


def group_entry(run: Run, key: str) -> GroupEntry:
    """What became of one gang."""
    return next(one for one in group_entries(run) if f"{one.namespace}/{one.name}" == key)


def app_group_entry(run: Run, key: str) -> AppGroupEntry:
    """What became of one application."""
    return next(one for one in app_group_entries(run) if f"{one.namespace}/{one.name}" == key)


def refused_volumes(story: Story) -> Iterator[VolumeFailure]:
    """For which nodes the scheduler could not have volumes of late, as it tells."""
    for one in story.refused_volumes:
        yield VolumeFailure(
            claim=one.claim,
            node=one.node,
            why=one.why,
            volume=one.volume,
            near=one.near,
            took=one.seconds,
        )


class Live(Struct, frozen=True, kw_only=True, eq=False):
    """What a cluster says about one gang, application or pod."""

    standing: Standing
    status: SchedulerStatus

    @property
    def story(self) -> Story | None:
        """The scheduler's story of the item; None where it has none."""
        return self.status.story

    @property
    def scheduler(self) -> str | None:
        """The name of the scheduler whose story is known."""
        return None if self.story is None else self.story.scheduler

    def decided(self, source: Origin, time: str | None = None) -> DecidedEntry:
        """With the scheduler's name, where its story is known."""
        scheduler = self.scheduler if source is Origin.SCHEDULER else None
        return DecidedEntry(source=source, scheduler=scheduler, time=time or None)

    def in_story(self, pod: Pod) -> PodDecision | None:
        """What the scheduler's story says of this very pod."""
        known = () if self.story is None else self.story.pods
        return next((one for one in known if one.uid == pod.uid), None)

    def decision(self, members: Sequence[Pod]) -> tuple[DecisionStatus, Origin] | None:
        """The scheduler's newest decision about a gang; None without one, or where members came after it."""
        waiting = [pod for pod in members if pod.node_name is None]
        known = {one.uid for one in self.story.pods} if self.story is not None else set()
        about = any(pod.uid in known for pod in members) and all(pod.uid in known for pod in waiting)
        if about and self.story is not None and self.story.last_decision is not None:
            return self.story.last_decision, Origin.SCHEDULER
        decision = self.status.last_decision
        if decision is None or (decision.reason is not None) is not bool(waiting):
            return None
        return decision, Origin.STATUS

    def of_pod(self, pod: Pod) -> PodDecidedEntry | None:
        """The last decision about a pod, from its story or from the pod; None where none is known."""
        condition, known = self.status.pods.get(pod.name), self.in_story(pod)
        by = partial(PodDecidedEntry, namespace=pod.namespace, name=pod.name)
        since = None if condition is None else condition.since or None
        if pod.node_name is not None:
            since = since if condition is not None and condition.bound else None
            if since is None and known is not None and known.node == pod.node_name:
                return by(source=Origin.SCHEDULER, node=known.node, time=known.time or None)
            return by(source=Origin.POD, node=pod.node_name, time=since)
        refused = None if condition is None or condition.bound else condition
        if refused is not None and refused.message.startswith(_NO_VOLUME):
            # Decided, and not bound before its volumes are.
            reason, message = str(Reason.VOLUME_NOT_BINDABLE), refused.message.removeprefix(_NO_VOLUME)
            return by(source=Origin.POD, reason=reason, message=message, time=since)
        if known is not None:
            whole = None if self.story is None or known.node is not None else self.story.last_decision
            message = known.message or ("" if whole is None else whole.message)
            story = by(source=Origin.SCHEDULER, node=known.node, reason=known.reason)
            return replace(story, message=message or None, time=known.time or None)
        if refused is None:
            return None
        message = refused.message
        return by(source=Origin.POD, reason=refused.reason or None, message=message or None, time=since)


def by_this_command(entry: PodEntry) -> PodDecidedEntry:
    """A pod about which no decision of a scheduler is known."""
    return PodDecidedEntry(
        namespace=entry.namespace,
        name=entry.name,
        node=entry.node,
        reason=entry.reason,
        message=entry.message,
        source=Origin.COMMAND if entry.node or entry.reason else Origin.POD,
    )


def shown_as_decided(
    live: Live, members: Sequence[Pod], decisions: Sequence[PodDecidedEntry]
) -> tuple[PodEntry, ...]:
    """Pods of the cluster as it stands, with what was decided about them."""
    shown = []
    for pod, one in zip(members, decisions, strict=True):
        entry = live.standing.pods[pod.uid]
        if entry.phase != "Running" and one.node is not None:
            entry = replace(entry, phase="Scheduled", node=one.node, reason=None, message=None)
        elif entry.phase != "Running":
            entry = replace(entry, reason=one.reason, message=one.message)
        shown.append(entry)
    return tuple(shown)


class GangView(Struct, frozen=True, kw_only=True, eq=False):
    """A gang and its pods as they are shown."""

    #: The cluster as it stands, or what was decided now.
    entry: GroupEntry
    pods: tuple[PodEntry, ...]
    #: The newest decision of this command; None where the scheduler's is shown.
    outcome: Outcome | None
    #: What would be decided now.
    now: GroupEntry
    #: In a cluster: where the gang's reason is from, and the last decision about each pod.
    decided: DecidedEntry | None = None
    decisions: tuple[PodDecidedEntry, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether what would be decided now ends as what was decided."""
        return self.entry.reason == self.now.reason


def view_gang(run: Run, key: str, members: Sequence[Pod], live: Live | None) -> GangView:
    """A gang as the scheduler decided about it, where that is known; else as ``run`` did."""
    outcome = run.gang_outcomes.get(key)
    now = group_entry(run, key)
    if outcome is not None and now.reason is not None:
        now = replace(now, message=outcome.message)
    found = None if live is None else live.decision(members)
    standing = None if live is None else live.standing.gang
    if live is None or found is None or standing is None:
        pods = tuple(_original_message(pod_entry(run, pod), outcome) for pod in members)
        view = GangView(entry=now, pods=pods, outcome=outcome, now=now)
        if live is None:
            return view
        # Members that are bound are as the cluster says.
        bound = bool(members) and all(pod.node_name is not None for pod in members)
        known = zip(members, pods, strict=True)
        decisions = tuple(live.of_pod(pod) or by_this_command(entry) for pod, entry in known)
        decided = DecidedEntry(source=Origin.POD if bound else Origin.COMMAND)
        return replace(view, decided=decided, decisions=decisions)
    decision, source = found
    entry = replace(standing, conditions=now.conditions)
    if entry.scheduled < (entry.min_member or 1):
        entry = replace(entry, reason=decision.reason, message=decision.message or None)
    decided = live.decided(source, decision.time)
    decisions = tuple(_member(run, pod, outcome, decision, source, live) for pod in members)
    shown = shown_as_decided(live, members, decisions)
    return GangView(entry=entry, pods=shown, outcome=None, now=now, decided=decided, decisions=decisions)


def _member(
    run: Run, pod: Pod, outcome: Outcome | None, decision: DecisionStatus, source: Origin, live: Live
) -> PodDecidedEntry:
    """The decision about a member: its own, else its gang's, unless no scheduler has to decide about it."""
    own = live.of_pod(pod)
    if own is not None and (pod.node_name is not None or own.source is Origin.SCHEDULER):
        return own
    now = by_this_command(pod_entry(run, pod))
    alone = outcome is not None and any(one.pod.uid == pod.uid for one in outcome.left)
    if alone or (now.reason is None and now.node is None):
        return now
    message, time = decision.message or None, decision.time or None
    return replace(now, source=source, node=None, reason=decision.reason, message=message, time=time)


def _original_message(entry: PodEntry, outcome: Outcome | None) -> PodEntry:
    """Without the nodes that this command would reserve: the scheduler keeps none of them."""
    if outcome is None or entry.message is None or entry.message != outcome.full_message:
        return entry
    return replace(entry, message=outcome.message)
