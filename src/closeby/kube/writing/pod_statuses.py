"""What the scheduler says on pods: conditions, and Events.

A pod that waits has its ``PodScheduled`` condition, which autoscalers look for, with an Event: once, as long
as it stays the same, and when the refusal has stood for a moment, so that a pod on its way to a node is never
called unschedulable. A pod that was decided without the AppGroup that it names gets a condition before the
binding, for a pod that runs is its kubelet's. Each binding has an Event.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.registry import app_group_key
from closeby.kube.writing.events import Events
from closeby.kube.writing.statuses import Desired, ReportingSettings, StatusReconciler
from closeby.kube.writing.work_queue import Places, WorkQueue
from closeby.kube.writing.workers import Workers
from closeby.kube.writing.writer import DONE, Note, Reference, StatusCondition, Writer, Written
from closeby.objects.bounds import quoted
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, ReasonToken
from closeby.objects.saying import Say
from closeby.objects.times import utc
from closeby.scheduling.outcomes import Binding, Leftover

#: Reason of the condition; upstream's word, whatever ours is. An autoscaler has no cure for a fault of ours.
UNSCHEDULABLE: Final = "Unschedulable"
#: Type of the condition; there only on pods that were decided without their AppGroup at least once.
APP_GROUP_FOUND: Final = "closeby.dev/AppGroupFound"
#: What kube-apiserver itself writes for a pod with scheduling gates.
_WRITTEN_BY_OTHERS: Final = frozenset({Reason.SCHEDULING_GATED})
#: What an Event alone reports: an admission policy refuses to have the pod's status written.
_EVENT_ONLY: Final = frozenset({Reason.NAMESPACE_EXCLUDED})
#: Statuses that are written at the same time.
_AT_ONCE: Final = 8


class _Pod(Struct, frozen=True):
    """What is to be said of a pod."""

    pod: Pod
    #: Why it waits.
    reason: ReasonToken | None = None
    message: str = ""
    #: Whether it was decided with its AppGroup; None: it names none, or was never decided without it.
    grouped: bool | None = None

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
        self._stands = settings.stands
        self._pods: dict[str, _Pod] = {}
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

    def refused(self, leftover: Leftover) -> None:
        """The pod waits for this reason now."""
        if leftover.reason in _WRITTEN_BY_OTHERS:
            return
        pod = leftover.pod
        before = self._pods.get(pod.uid)
        grouped = None if before is None else before.grouped
        now = self._pods[pod.uid] = _Pod(pod, leftover.reason, leftover.message, grouped)
        if before is None or before.refusal != now.refusal:
            self._statuses.work.add(pod.uid, after=self._stands)

    def decided(self, pod: Pod, *, with_group: bool | None) -> None:
        """The pod is about to be bound, and was placed with the AppGroup that it names, or without."""
        before = self._pods.get(pod.uid)
        if with_group is None or (with_group and (before is None or before.grouped is None)):
            self.settled(pod.uid)
            return
        self._pods[pod.uid] = _Pod(pod, grouped=with_group)
        self._statuses.work.forget(pod.uid)

    def settled(self, uid: str) -> None:
        """The pod has a node, or is gone."""
        if self._pods.pop(uid, None) is not None:
            self._statuses.forget(uid)

    async def before_binding(self, uid: str) -> None:
        """Returns when nothing is being written about the pod, so that no refusal follows its binding."""
        if uid in self._pods:
            await self._statuses.write_now(uid, again=False)
        else:
            await self._statuses.quiet(uid)

    def bound(self, bind: Binding) -> None:
        """The pod is bound."""
        self.settled(bind.pod.uid)
        text = f"Successfully assigned {bind.pod.key} to {bind.node}"
        self._events.post(_reference(bind.pod), Note(reason="Scheduled", action="Binding", text=text))

    # What is to be said

    def regarding(self, key: str) -> Reference | None:
        """The pod."""
        found = self._pods.get(key)
        return None if found is None else _reference(found.pod)

    def desired(self, key: str) -> Desired | None:
        """Its conditions."""
        found = self._pods.get(key)
        if found is None:
            return None
        conditions: list[StatusCondition] = []
        events: dict[Hashable, Note] = {}
        if found.reason is not None:
            if found.reason not in _EVENT_ONLY:
                conditions.append(_unschedulable(found))
            events[found.refusal] = Note(
                reason="FailedScheduling", action="Scheduling", text=found.refusal, warning=True
            )
        if found.grouped is not None:
            condition = _app_group_found(found)
            conditions.append(condition)
            if not found.grouped:
                events[condition.reason] = Note(
                    reason=condition.reason, action="Scheduling", text=condition.message, warning=True
                )
        return Desired(
            about=_reference(found.pod),
            content=(found.reason, found.message, found.grouped),
            gist=(found.reason, found.grouped),
            write=lambda: self._write(found.pod, conditions),
            events=events,
        )

    async def _write(self, pod: Pod, conditions: list[StatusCondition]) -> Written:
        if not conditions:
            return DONE
        now = utc(time.time())
        timed = [replace(one, last_transition_time=now) for one in conditions]
        return await self._writer.pod_conditions(pod, timed)

    def _namespace(self, key: str) -> str:
        found = self._pods.get(key)
        return "" if found is None else found.pod.namespace


def _unschedulable(found: _Pod) -> StatusCondition:
    reason = found.reason if found.reason is Reason.SCHEDULER_ERROR else UNSCHEDULABLE
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


def _reference(pod: Pod) -> Reference:
    return Reference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
