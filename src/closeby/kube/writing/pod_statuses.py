"""What the scheduler says on pods: conditions, and Events.

A pod that waits has its ``PodScheduled`` condition, which autoscalers look for, with an Event: once, as long
as it stays the same, and when the refusal has stood for a moment, so that a pod on its way to a node is never
called unschedulable. A pod that was decided without the AppGroup that it names gets a condition before the
binding, for a pod that runs is its kubelet's. Pods for which others are evicted have a nominated node, and
where the plan is theirs alone a condition with it. Each binding has an Event.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from closeby.applications.registry import app_group_key
from closeby.kube.writing.events import Events
from closeby.kube.writing.statuses import Desired, ReportingSettings, StatusReconciler
from closeby.kube.writing.work_queue import Places, WorkQueue
from closeby.kube.writing.workers import Workers
from closeby.kube.writing.writer import DONE, Note, Reference, StatusCondition, Writer, Written, pod_reference
from closeby.objects.bounds import quoted
from closeby.objects.pods import Pod
from closeby.objects.process import Say
from closeby.objects.quantities import utc
from closeby.objects.reasons import Reason, ReasonToken
from closeby.reading.decoding.keys import PLACED_ON
from closeby.reading.dialects.grouping import awaits_the_grouper
from closeby.scheduling.outcomes import Binding, Leftover

#: Reason of the condition; upstream's word, whatever ours is, but where an autoscaler has no cure.
UNSCHEDULABLE: Final = "Unschedulable"
_NO_CURE_BY_NODES: Final = frozenset({Reason.SCHEDULER_ERROR, Reason.BINDING_REFUSED})
#: Type of the condition; there only on pods that were decided without their AppGroup at least once.
APP_GROUP_FOUND: Final = "closeby.dev/AppGroupFound"
#: What kube-apiserver itself writes for a pod with scheduling gates.
_WRITTEN_BY_OTHERS: Final = frozenset({Reason.SCHEDULING_GATED})
#: What an Event alone reports: an admission policy refuses to have the pod's status written.
_EVENT_ONLY: Final = frozenset({Reason.NAMESPACE_EXCLUDED})
#: Statuses that are written at the same time.
_AT_ONCE: Final = 8


class Nomination(Struct, frozen=True, kw_only=True):
    """The nominated node of a pod, and its condition about the plan, if it has one (without its time)."""

    #: None: it is nominated no more.
    node: str | None
    condition: StatusCondition | None = None


class _Pod(Struct, frozen=True):
    """What is to be said of a pod."""

    pod: Pod
    #: Why it waits.
    reason: ReasonToken | None = None
    message: str = ""
    #: Whether that was found after it was placed: it is placed again, and that is so until it is bound.
    placed: bool = False
    #: Whether it was decided with its AppGroup; None: it names none, or was never decided without it.
    grouped: bool | None = None
    #: None: it never had a nominated node that we know of.
    nominated: Nomination | None = None

    @property
    def refusal(self) -> str:
        return f"{self.reason}: {self.message}"


class PodStatuses:
    """Pods of which something is to be said, or was said last."""

    name: Final = "pod-statuses"

    def __init__(
        self,
        writer: Writer,
        events: Events,
        say: Say,
        settings: ReportingSettings,
        informed: Callable[[], bool],
    ) -> None:
        """``informed``: whether what is known of the cluster may be relied upon."""
        self._writer = writer
        self._events = events
        self._settings = settings
        #: By uid: what the last Event of a refusal says, and since when.
        self._told: dict[str, tuple[ReasonToken, str, float]] = {}
        self._pods: dict[str, _Pod] = {}
        #: By pod and type of condition: the status that was written last, and since when it is that.
        self._since: dict[str, dict[str, tuple[str, str]]] = {}
        work = WorkQueue(time.monotonic, self._namespace, places=Places(all=_AT_ONCE, rate=settings.rate))
        self._statuses = StatusReconciler(
            self,
            work,
            events,
            say,
            informed=informed,
            insistence=settings.insistence,
            rephrased_after=settings.rephrased_after,
        )
        self._workers = Workers(self._statuses, say)

    async def run(self, stopping: asyncio.Event) -> None:
        """Writes what is due until ``stopping`` is set, and ends what is under way."""
        await self._workers.run(stopping)

    def refused(self, leftover: Leftover, *, placed: bool = False) -> None:
        """The pod waits for this reason now; ``placed``: it has a node, and can't be bound there."""
        if leftover.reason in _WRITTEN_BY_OTHERS:
            return
        pod = leftover.pod
        before = self._pods.get(pod.uid)
        known = before or _Pod(pod)
        now = self._pods[pod.uid] = replace(
            known, pod=pod, reason=leftover.reason, message=leftover.message, placed=placed
        )
        if before is None or before.refusal != now.refusal:
            soon = leftover.reason is Reason.GANG_INCOMPLETE or awaits_the_grouper(pod)
            self._statuses.work.add(pod.uid, after=self._settings.settles if soon else self._settings.stands)

    def decided(self, pod: Pod, *, with_group: bool | None) -> None:
        """The pod is about to be bound, and was placed with the AppGroup that it names, or without."""
        before = self._pods.get(pod.uid)
        grouped = None if with_group and (before is None or before.grouped is None) else with_group
        nominated = None if before is None else before.nominated
        if nominated is not None and nominated.condition is None:
            nominated = None  # The binding says more than it.
        refused = before is not None and before.placed
        if grouped is None and nominated is None and not refused:
            self.settled(pod.uid)
            return
        if not refused:
            self._statuses.work.forget(pod.uid)
        now = _Pod(pod, grouped=grouped, nominated=nominated)
        if before is not None and refused:
            now = replace(now, reason=before.reason, message=before.message, placed=True)
        self._pods[pod.uid] = now

    async def nominate(self, pod: Pod, nomination: Nomination) -> Written:
        """Writes the nominated node of a pod that waits, or that it has none any more."""
        self._pods[pod.uid] = replace(self._pods.get(pod.uid) or _Pod(pod), nominated=nomination)
        return await self._statuses.write_now(pod.uid, if_changed=True)

    def nominated(self, uid: str, nomination: Nomination) -> None:
        """What is to stand there of a pod's nomination from its next write on, before its binding."""
        before = self._pods.get(uid)
        if before is not None:
            self._pods[uid] = replace(before, nominated=nomination)

    def settled(self, uid: str) -> None:
        """The pod has a node, or is gone."""
        if self._pods.pop(uid, None) is not None:
            self._since.pop(uid, None)
            self._told.pop(uid, None)
            self._statuses.forget(uid)

    async def before_binding(self, uid: str) -> None:
        """Returns when nothing is being written about the pod, so that no refusal follows its binding."""
        if uid in self._pods:
            self._statuses.work.forget(uid)
            await self._statuses.write_now(uid, again=False, if_changed=True)
        else:
            await self._statuses.quiet(uid)

    def bound(self, bind: Binding) -> None:
        """The pod is bound."""
        self.settled(bind.pod.uid)
        text = f"Successfully assigned {bind.pod.key} to {bind.node}"
        self._events.post(pod_reference(bind.pod), Note(reason="Scheduled", action="Binding", text=text))

    # What is to be said

    def regarding(self, key: str) -> Reference | None:
        """The pod."""
        found = self._pods.get(key)
        return None if found is None else pod_reference(found.pod)

    def desired(self, key: str) -> Desired | None:
        """Its conditions."""
        found = self._pods.get(key)
        if found is None:
            return None
        conditions: list[StatusCondition] = []
        events: dict[Hashable, Note] = {}
        if found.reason is not None:
            # Once it was placed for another scheduler the condition is that one's.
            if found.reason not in _EVENT_ONLY and PLACED_ON not in found.pod.annotations:
                conditions.append(_unschedulable(found))
            text = self._retold(key, found.reason, found.refusal)
            events[text] = Note(reason="FailedScheduling", action="Scheduling", text=text, warning=True)
        if found.grouped is not None:
            condition = _app_group_found(found)
            conditions.append(condition)
            if not found.grouped:
                events[condition.reason] = Note(
                    reason=condition.reason, action="Scheduling", text=condition.message, warning=True
                )
        if found.nominated is not None and found.nominated.condition is not None:
            conditions.append(found.nominated.condition)
        return Desired(
            about=pod_reference(found.pod),
            content=(found.reason, found.message, found.grouped, found.nominated),
            gist=(found.reason, found.grouped, found.nominated),
            write=lambda: self._write(found, conditions),
            events=events,
        )

    def _retold(self, uid: str, reason: ReasonToken, refusal: str) -> str:
        """What an Event says: for a while the same about the same reason, though the details change."""
        now = time.monotonic()
        told = self._told.get(uid)
        if told is None or told[0] != reason or now >= told[2] + self._settings.retold_after:
            told = self._told[uid] = reason, refusal, now
        return told[1]

    async def _write(self, found: _Pod, conditions: list[StatusCondition]) -> Written:
        nominated = found.nominated
        if not conditions and nominated is None:
            return DONE
        timed = [self._timed(found.pod.uid, one) for one in conditions]
        node = UNSET if nominated is None else nominated.node
        return await self._writer.pod_conditions(found.pod, timed, node)

    def _timed(self, uid: str, condition: StatusCondition) -> StatusCondition:
        """The condition with the time since which its status is that, whatever its message was before."""
        if condition.last_transition_time:
            return condition
        since = self._since.setdefault(uid, {}) if uid in self._pods else {}
        status, time_ = since.get(condition.type, ("", ""))
        if status != condition.status:
            time_ = utc(time.time())
            since[condition.type] = condition.status, time_
        return replace(condition, last_transition_time=time_)

    def _namespace(self, key: str) -> str:
        found = self._pods.get(key)
        return "" if found is None else found.pod.namespace


def _unschedulable(found: _Pod) -> StatusCondition:
    reason = found.reason if found.reason in _NO_CURE_BY_NODES else UNSCHEDULABLE
    return StatusCondition(type="PodScheduled", status="False", reason=reason, message=found.refusal)


def _app_group_found(found: _Pod) -> StatusCondition:
    if found.grouped:
        return StatusCondition(type=APP_GROUP_FOUND, status="True", reason="AppGroupFound")
    name = quoted(app_group_key(found.pod))
    return StatusCondition(
        type=APP_GROUP_FOUND,
        status="False",
        reason=Reason.APP_GROUP_NOT_FOUND.value,
        message=f"the pod was placed on its own, because there is no usable AppGroup {name}",
    )
