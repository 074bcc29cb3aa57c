"""What the scheduler of a cluster decided, beside what this command decides now.

A command that looks at a cluster shows the scheduler's own decisions: from its story if it could be asked,
else from the PodGroup's status and the pods' conditions. Nothing is read out of sentences. What the command
decides itself says what a new decision would be: it may differ, because the cluster has changed or the
scheduler knows more.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.volumes_by_class import VolumeFailure
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.recorded import (
    DecisionStatus,
    PodDecision,
    ReservationStatus,
    SchedulerStatus,
    Story,
)
from closeby.objects.words import plural
from closeby.report.documents.app_groups import AppGroupEntry, app_group_entries
from closeby.report.documents.scheduling import GroupEntry, PodEntry, group_entries, pod_entry
from closeby.report.documents.subjects import Subject, belongs_to
from closeby.scheduling.outcomes import ItemKind, Outcome, Reservation
from closeby.simulator.runs import Run

BY_THIS_COMMAND = (
    "No decision of a scheduler is known. What follows was decided now, by this command, with the cluster as "
    "it is."
)
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
    is_gang = subject.item_kind is ItemKind.GANG
    applications = app_group_entries(run) if subject.item_kind is ItemKind.APPLICATION else ()
    return Standing(
        gang=_entry(run, subject.item) if is_gang else None,
        application=next(
            (one for one in applications if f"{one.namespace}/{one.name}" == subject.item), None
        ),
        pods={pod.uid: pod_entry(run, pod) for pod in members},
    )


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

    def in_story(self, pod: Pod) -> PodDecision | None:
        """What the scheduler's story says of this very pod."""
        known = () if self.story is None else self.story.pods
        return next((one for one in known if one.uid == pod.uid), None)

    def decision(self, members: Sequence[Pod]) -> tuple[DecisionStatus, Origin] | None:
        """The scheduler's newest decision about a gang; None without one, or where members came after it."""
        waiting = [pod for pod in members if pod.node_name is None]
        story = self.story
        if story is not None and story.last_decision is not None and self._about(story, members, waiting):
            return story.last_decision, Origin.SCHEDULER
        decision = self.status.last_decision
        if decision is None or (decision.reason is not None) is not bool(waiting):
            return None
        return decision, Origin.STATUS

    def _about(self, story: Story, members: Sequence[Pod], waiting: Sequence[Pod]) -> bool:
        """Whether a story is about these members, and knows all of them that wait."""
        known = {one.uid for one in story.pods}
        return any(pod.uid in known for pod in members) and all(pod.uid in known for pod in waiting)

    def of_pod(self, pod: Pod) -> PodDecidedEntry | None:
        """The last decision about a pod, from its story or from the pod; None where none is known."""
        condition, known = self.status.pods.get(pod.name), self.in_story(pod)
        if pod.node_name is not None:
            since = None if condition is None or not condition.bound else condition.since or None
            if since is None and known is not None and known.node == pod.node_name:
                return _entry_of(pod, Origin.SCHEDULER, node=known.node, time=known.time or None)
            return _entry_of(pod, Origin.POD, node=pod.node_name, time=since)
        if condition is not None and not condition.bound and condition.message.startswith(_NO_VOLUME):
            # Decided, and not bound before its volumes are.
            message = condition.message.removeprefix(_NO_VOLUME)
            reason = Reason.VOLUME_NOT_BINDABLE.value
            return _entry_of(pod, Origin.POD, reason=reason, message=message, time=condition.since or None)
        if known is not None:
            whole = None if self.story is None else self.story.last_decision
            message = known.message or ("" if whole is None or known.node is not None else whole.message)
            return _entry_of(
                pod,
                Origin.SCHEDULER,
                node=known.node,
                reason=known.reason,
                message=message or None,
                time=known.time or None,
            )
        if condition is not None and not condition.bound:
            return _entry_of(
                pod,
                Origin.POD,
                reason=condition.reason or None,
                message=condition.message or None,
                time=condition.since or None,
            )
        return None


def _entry_of(
    pod: Pod,
    source: Origin,
    *,
    node: str | None = None,
    reason: str | None = None,
    message: str | None = None,
    time: str | None = None,
) -> PodDecidedEntry:
    return PodDecidedEntry(
        namespace=pod.namespace,
        name=pod.name,
        node=node,
        reason=reason,
        message=message,
        time=time,
        source=source,
    )


def shown_as_decided(entry: PodEntry, decided: PodDecidedEntry) -> PodEntry:
    """A pod of the cluster as it stands, with what was decided about it."""
    if entry.phase == "Running":
        return entry
    if decided.node is not None:
        return replace(entry, phase="Scheduled", node=decided.node, reason=None, message=None)
    return replace(entry, reason=decided.reason, message=decided.message)


class GangView(Struct, frozen=True, kw_only=True, eq=False):
    """A gang and its pods as they are shown."""

    #: The cluster as it stands, or what was decided now.
    entry: GroupEntry
    pods: tuple[PodEntry, ...]
    #: The newest decision of this command; None where the scheduler's is shown.
    outcome: Outcome | None
    #: The scheduler's decision; None where this command decided.
    decision: DecisionStatus | None = None
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
    now = _entry(run, key)
    if outcome is not None and now.reason is not None:
        now = replace(now, message=outcome.message)
    found = None if live is None else live.decision(members)
    standing = None if live is None else live.standing.gang
    if live is None or found is None or standing is None:
        pods = tuple(_own_words(pod_entry(run, pod), outcome) for pod in members)
        view = GangView(entry=now, pods=pods, outcome=outcome, now=now)
        return view if live is None else _decided_now(view, members, live)
    decision, source = found
    entry = standing
    if entry.scheduled < (entry.min_member or 1):
        entry = replace(entry, reason=decision.reason, message=decision.message or None)
    entry = replace(entry, conditions=now.conditions)
    decisions = tuple(_member(run, pod, outcome, decision, source, live) for pod in members)
    return GangView(
        entry=entry,
        pods=tuple(
            shown_as_decided(live.standing.pods[pod.uid], one)
            for pod, one in zip(members, decisions, strict=True)
        ),
        outcome=None,
        decision=decision,
        now=now,
        decided=DecidedEntry(
            source=source,
            scheduler=live.scheduler if source is Origin.SCHEDULER else None,
            time=decision.time or None,
        ),
        decisions=decisions,
    )


def _decided_now(view: GangView, members: Sequence[Pod], live: Live) -> GangView:
    """Where only this command has decided; members that are bound are as the cluster says."""
    decisions = tuple(
        live.of_pod(pod) or by_this_command(entry) for pod, entry in zip(members, view.pods, strict=True)
    )
    bound = bool(members) and all(pod.node_name is not None for pod in members)
    source = Origin.POD if bound else Origin.COMMAND
    return replace(view, decided=DecidedEntry(source=source), decisions=decisions)


def _member(
    run: Run, pod: Pod, outcome: Outcome | None, decision: DecisionStatus, source: Origin, live: Live
) -> PodDecidedEntry:
    """The decision about a member: its own, else its gang's, unless no scheduler has to decide about it."""
    own = live.of_pod(pod)
    if own is not None and (pod.node_name is not None or own.source is Origin.SCHEDULER):
        return own
    now = pod_entry(run, pod)
    alone = outcome is not None and any(one.pod.uid == pod.uid for one in outcome.left)
    if alone or (now.reason is None and now.node is None):
        return by_this_command(now)
    return _entry_of(
        pod, source, reason=decision.reason, message=decision.message or None, time=decision.time or None
    )


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
    if view.decision is None or decided is None:
        return
    yield who_decided(decided)
    if view.agrees:
        return
    if now.reason is not None:
        yield f"A new decision would give another reason ({now.reason}): {now.message}."
    elif now.scheduled > view.entry.scheduled:
        where = f" in {'/'.join(one or '-' for one in now.domain)}" if now.domain else ""
        count = plural(now.scheduled, "pod")
        yield f"A new decision would place {count} of it{where}."


def reserved_sentences(kept: ReservationStatus | None, own: Reservation | None) -> Iterator[str]:
    """Which nodes the scheduler keeps free for a gang, and which it would choose now: ``own``."""
    now = None if own is None else own.status
    if kept is None:
        if now is not None:
            yield f"A new decision would reserve {now.where} for it."
        return
    other = now is not None and (now.nodes, now.topology, now.domain) != (
        kept.nodes,
        kept.topology,
        kept.domain,
    )
    choice = f"; a new decision would choose {now.where}" if now is not None and other else ""
    yield f"The scheduler says that {kept.sentence()}{choice}."


def relaxing_sentences(outcome: Outcome | None) -> Iterator[str]:
    """Which requirement of a gang falls next, and in how long."""
    if outcome is not None and outcome.refused and outcome.relaxation is not None:
        yield outcome.relaxation.from_now()


def pod_sentences_of(decided: PodDecidedEntry, live: Live, pod: Pod, now: PodEntry) -> Iterator[str]:
    """What was decided about a single pod of a cluster, by whom, and what would be decided now."""
    key = pod.key
    at = f" at {decided.time}" if decided.time else ""
    if pod.node_name is not None:
        yield f"{key} is on {pod.node_name}" + (f" since {decided.time}." if decided.time else ".")
        known = live.in_story(pod)
        if known is not None and known.node == pod.node_name:
            yield f"Scheduler {live.scheduler} chose that node" + (
                f" at {known.time}." if known.time else "."
            )
        return
    if decided.node is not None:
        yield f"{key} waits for its binding: scheduler {live.scheduler} chose {decided.node}{at}."
        return
    reason = f" ({decided.reason})" if decided.reason else ""
    yield f"{key} waits{reason}: {decided.message}."
    if decided.source is Origin.SCHEDULER or decided.reason:
        yield who_decided(DecidedEntry(source=decided.source, scheduler=live.scheduler, time=decided.time))
    if now.node is not None:
        yield f"A new decision would place it on {now.node}."
    elif now.reason is not None and now.reason != decided.reason:
        yield f"A new decision would have the reason {now.reason}."


def _entry(run: Run, key: str) -> GroupEntry:
    return next(one for one in group_entries(run) if f"{one.namespace}/{one.name}" == key)


def _own_words(entry: PodEntry, outcome: Outcome | None) -> PodEntry:
    """Without the nodes that this command would reserve: the scheduler keeps none of them."""
    if outcome is None or entry.message is None or entry.message != outcome.full_message:
        return entry
    return replace(entry, message=outcome.message)
