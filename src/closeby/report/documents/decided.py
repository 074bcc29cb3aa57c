"""What the scheduler of a cluster decided about a gang, as its status tells, beside what is decided now.

A command that looks at a cluster shows the scheduler's own decision. What the command decides itself says
what a new decision would be: it may differ, because the cluster has changed or the scheduler knows more.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.objects.recorded import DecisionStatus, ReservationStatus, SchedulerStatus
from closeby.objects.words import plural
from closeby.report.documents.scheduling import GroupEntry, PodEntry, group_entries, pod_entry
from closeby.scheduling.outcomes import Outcome, Reservation
from closeby.simulator.runs import Run


class Live(Struct, frozen=True, kw_only=True, eq=False):
    """What a cluster says about one gang or pod."""

    #: The cluster as it stands, without a decision of this command.
    standing: Run
    status: SchedulerStatus

    def decision(self, members: Sequence[Pod]) -> DecisionStatus | None:
        """The scheduler's decision about a gang; None where there is none, or members came after it."""
        decision = self.status.last_decision
        waits = any(pod.node_name is None for pod in members)
        if decision is None or (decision.reason is not None) is not waits:
            return None
        return decision


class GangView(Struct, frozen=True, kw_only=True, eq=False):
    """A gang and its pods as they are shown."""

    #: Where they lie: the cluster as it stands, or what was decided now.
    run: Run
    entry: GroupEntry
    pods: tuple[PodEntry, ...]
    #: The newest decision of this command; None where the scheduler's is shown.
    outcome: Outcome | None
    #: The scheduler's decision; None where this command decided.
    decision: DecisionStatus | None = None
    #: What would be decided now.
    now: GroupEntry

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
    decision = None if live is None else live.decision(members)
    if live is None or decision is None:
        pods = tuple(_own_words(pod_entry(run, pod), outcome) for pod in members)
        return GangView(run=run, entry=now, pods=pods, outcome=outcome, now=now)
    entry = _entry(live.standing, key)
    if entry.scheduled < (entry.min_member or 1):
        entry = replace(entry, reason=decision.reason, message=decision.message or None)
    entry = replace(entry, conditions=now.conditions)
    return GangView(
        run=live.standing,
        entry=entry,
        pods=tuple(_as_decided(run, live.standing, pod, outcome, decision) for pod in members),
        outcome=None,
        decision=decision,
        now=now,
    )


def decided_sentences(view: GangView) -> Iterator[str]:
    """When the scheduler decided, and what would be decided now where that differs."""
    decision, now = view.decision, view.now
    if decision is None:
        return
    yield f"The scheduler decided so at {decision.time}."
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


def _entry(run: Run, key: str) -> GroupEntry:
    return next(one for one in group_entries(run) if f"{one.namespace}/{one.name}" == key)


def _own_words(entry: PodEntry, outcome: Outcome | None) -> PodEntry:
    """Without the nodes that this command would reserve: the scheduler keeps none of them."""
    if outcome is None or entry.message is None or entry.message != outcome.full_message:
        return entry
    return replace(entry, message=outcome.message)


def _as_decided(
    run: Run, standing: Run, pod: Pod, outcome: Outcome | None, decision: DecisionStatus
) -> PodEntry:
    """A member with the scheduler's reason, unless it waits for a reason of its own or for nobody."""
    now = pod_entry(run, pod)
    alone = outcome is not None and any(one.pod.uid == pod.uid for one in outcome.left)
    if pod.node_name is not None or alone or (now.reason is None and now.node is None):
        return now
    return replace(pod_entry(standing, pod), reason=decision.reason, message=decision.message)
