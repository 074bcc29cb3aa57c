"""Tells of pods that were decided without the AppGroup that they name: a condition on the pod, and an Event.

Written before the binding, for a pod that runs is its kubelet's. Should the binding fail and the AppGroup
come, the condition is put right before the next one.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from closeby.applications.registry import app_group_key
from closeby.kube.writing.events import Events
from closeby.kube.writing.writer import Note, Reference, StatusCondition, Verdict, Writer
from closeby.objects.bounds import quoted
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.saying import Say
from closeby.objects.times import utc
from closeby.objects.unexpected import Contained, fields_of

#: Type of the condition; there only on pods that were decided without their AppGroup at least once.
APP_GROUP_FOUND: Final = "closeby.dev/AppGroupFound"
#: Requests in flight.
_CONCURRENCY: Final = 8


class WithoutGroup:
    """What was told of which pods."""

    def __init__(self, writer: Writer, events: Events, say: Say, tasks: asyncio.TaskGroup) -> None:
        self._writer = writer
        self._events = events
        self._say = say
        self._tasks = tasks
        self._slots = asyncio.Semaphore(_CONCURRENCY)
        #: uids of waiting pods that have the condition.
        self._told: set[str] = set()
        self._writing: dict[str, asyncio.Task[None]] = {}

    def decided(self, pod: Pod, *, known: bool) -> None:
        """A pod that names an AppGroup is about to be bound; ``known`` says whether it was placed with it."""
        if known and pod.uid not in self._told:
            return
        self._told.add(pod.uid)
        before = self._writing.get(pod.uid)
        self._writing[pod.uid] = self._tasks.create_task(self._tell(pod, known, before))

    def forget(self, uid: str) -> None:
        """The pod is bound, or gone."""
        self._told.discard(uid)

    async def quiet(self, uid: str) -> None:
        """Returns when nothing is being written about the pod."""
        task = self._writing.get(uid)
        if task is not None:
            await asyncio.wait([task])

    async def finish(self) -> None:
        """Waits for what is being written."""
        while self._writing:
            await asyncio.wait(self._writing.values())

    async def _tell(self, pod: Pod, known: bool, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            async with self._slots:
                with self._contained(pod):
                    await self._write(pod, known)
        finally:
            if self._writing.get(pod.uid) is asyncio.current_task():
                del self._writing[pod.uid]

    async def _write(self, pod: Pod, known: bool) -> None:
        now, name = time.time(), quoted(app_group_key(pod))
        if known:
            reason, text = "AppGroupFound", ""
        else:
            reason = Reason.APP_GROUP_NOT_FOUND.value
            text = f"the pod was placed on its own, because there is no usable AppGroup {name}"
        condition = StatusCondition(
            type=APP_GROUP_FOUND,
            status="True" if known else "False",
            reason=reason,
            message=text,
            last_transition_time=utc(now),
        )
        written = await self._writer.pod_conditions(pod, [condition])
        if not written.ok and written.verdict is not Verdict.GONE:
            self._say("condition refused", warning=True, pod=pod.key, error=written.error)
        if not known and written.verdict is not Verdict.GONE:
            about = Reference(
                api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
            )
            note = Note(reason=reason, action="Scheduling", text=text, warning=True)
            await self._events.post(about, note, now)

    @contextmanager
    def _contained(self, pod: Pod) -> Iterator[None]:
        """A fault of ours with one pod does not keep it, or another one, from being bound."""
        with Contained() as telling:
            yield
        if telling.error is not None:
            self._say("reporting failed", warning=True, pod=pod.key, **fields_of(telling.error))
