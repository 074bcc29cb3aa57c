"""Tells users what became of their pods: an Event for each binding, and for each pod that waits its
``PodScheduled`` condition, which autoscalers look for, with an Event.

A refusal is told when it has stood for a moment, so that a pod on its way to a node is never called
unschedulable; and once, as long as it stays the same.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, zip_longest
from typing import Final

from msgspec import Struct

from closeby.kube.writing.events import Events
from closeby.kube.writing.writer import DONE, Note, Reference, StatusCondition, Verdict, Writer
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, ReasonToken
from closeby.objects.saying import Say
from closeby.objects.times import utc
from closeby.objects.unexpected import Contained, fields_of
from closeby.scheduling.outcomes import Binding, Leftover

#: Reason of the condition; upstream's word, whatever ours is. An autoscaler has no cure for a fault of ours.
UNSCHEDULABLE: Final = "Unschedulable"
#: What kube-apiserver itself writes for a pod with scheduling gates.
_TOLD_BY_OTHERS: Final = frozenset({Reason.SCHEDULING_GATED})
#: What is told by an Event alone: an admission policy refuses to have the pod's status written.
_EVENT_ONLY: Final = frozenset({Reason.NAMESPACE_EXCLUDED})


class Manners(Struct, frozen=True, kw_only=True):
    """How users are told (times in seconds)."""

    #: Whether Events are written.
    events: bool = True
    #: A refusal must have stood so long.
    stands: float = 1.0
    #: The same reason in other words is not told again before so long.
    rephrased_after: float = 60.0
    #: How often is looked what is due.
    every: float = 0.25
    #: Requests in flight, and refusals told in a second, so that bindings are not held up.
    concurrency: int = 4
    rate: float = 25.0


class _Refusal(Struct, frozen=True):
    pod: Pod
    reason: ReasonToken
    text: str
    #: When this pod was first refused.
    since: float


class Notices:
    """What was told about each pod, and what is still to be told."""

    def __init__(
        self,
        writer: Writer,
        events: Events,
        say: Say,
        tasks: asyncio.TaskGroup,
        manners: Manners,
        informed: Callable[[], bool],
    ) -> None:
        """``informed``: whether what is known of the cluster may be relied upon."""
        self._informed = informed
        self._writer = writer
        self._events = events
        self._say = say
        self._tasks = tasks
        self._manners = manners
        self._slots = asyncio.Semaphore(manners.concurrency)
        #: By uid: refusals that stand, those of them that are not told yet, and when which was told.
        self._standing: dict[str, _Refusal] = {}
        self._untold: dict[str, None] = {}
        self._told: dict[str, tuple[_Refusal, float]] = {}
        #: Refusals that are being written, by uid, and Events.
        self._writing: dict[str, asyncio.Task[None]] = {}
        self._posting: set[asyncio.Task[None]] = set()

    def refused(self, leftover: Leftover) -> None:
        """The pod waits for this reason now."""
        if leftover.reason in _TOLD_BY_OTHERS:
            return
        uid = leftover.pod.uid
        before = self._standing.get(uid)
        since = time.monotonic() if before is None else before.since
        text = f"{leftover.reason}: {leftover.message}"
        self._standing[uid] = _Refusal(leftover.pod, leftover.reason, text, since)
        told = self._told.get(uid)
        if told is None or told[0].text != text:
            self._untold[uid] = None
        else:
            self._untold.pop(uid, None)

    def settled(self, uid: str) -> None:
        """The pod got a node, or is gone."""
        self._standing.pop(uid, None)
        self._untold.pop(uid, None)
        self._told.pop(uid, None)

    def bound(self, bind: Binding) -> None:
        """The pod is bound."""
        if not self._events.wanted:
            return
        text = f"Successfully assigned {bind.pod.key} to {bind.node}"
        note = Note(reason="Scheduled", action="Binding", text=text)
        task = self._tasks.create_task(self._in_turn(bind.pod, note))
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)

    async def quiet(self, uid: str) -> None:
        """Returns when nothing is being written about the pod, so that no refusal follows its binding."""
        task = self._writing.get(uid)
        if task is not None:
            await asyncio.wait([task])

    async def run(self) -> None:
        """Tells what is due, until it is cancelled."""
        while True:
            await asyncio.sleep(self._manners.every)
            if not self._informed():
                continue
            now = time.monotonic()
            due = [self._standing[uid].pod for uid in self._untold if self._due(uid, now)]
            for uid in tuple(islice(_by_turns(due), max(1, round(self._manners.rate * self._manners.every)))):
                del self._untold[uid]
                task = self._tasks.create_task(self._tell(uid))
                self._writing[uid] = task

    async def finish(self) -> None:
        """Waits for what is being written."""
        while pending := {*self._writing.values(), *self._posting}:
            await asyncio.wait(pending)

    def _due(self, uid: str, now: float) -> bool:
        if uid in self._writing:
            return False
        standing = self._standing[uid]
        told = self._told.get(uid)
        if told is not None and told[0].reason == standing.reason:
            return now - told[1] >= self._manners.rephrased_after
        return now - standing.since >= self._manners.stands

    async def _tell(self, uid: str) -> None:
        try:
            async with self._slots:
                refusal = self._standing.get(uid)
                if refusal is not None:
                    with self._telling(refusal.pod):
                        await self._write(uid, refusal)
        finally:
            del self._writing[uid]

    async def _write(self, uid: str, refusal: _Refusal) -> None:
        now = time.time()
        written = DONE
        if refusal.reason not in _EVENT_ONLY:
            condition = StatusCondition(
                type="PodScheduled",
                status="False",
                reason=refusal.reason if refusal.reason is Reason.SCHEDULER_ERROR else UNSCHEDULABLE,
                message=refusal.text,
                last_transition_time=utc(now),
            )
            written = await self._writer.pod_conditions(refusal.pod, [condition])
        if written.verdict is Verdict.RETRYABLE:
            if uid in self._standing:
                self._untold[uid] = None
            return
        if uid in self._standing:
            self._told[uid] = refusal, time.monotonic()
        if not written.ok:
            # A pod that is gone has nobody to tell.
            if written.verdict is not Verdict.GONE:
                self._say("condition refused", warning=True, pod=refusal.pod.key, error=written.error)
            return
        note = Note(reason="FailedScheduling", action="Scheduling", text=refusal.text, warning=True)
        await self._events.post(_reference(refusal.pod), note, now)

    async def _in_turn(self, pod: Pod, note: Note) -> None:
        now = time.time()
        async with self._slots:
            with self._telling(pod):
                await self._events.post(_reference(pod), note, now)

    @contextmanager
    def _telling(self, pod: Pod) -> Iterator[None]:
        """A fault of ours with one pod does not keep us from all the others."""
        with Contained() as telling:
            yield
        if telling.error is not None:
            self._say("reporting failed", warning=True, pod=pod.key, **fields_of(telling.error))


def _by_turns(pods: Iterable[Pod]) -> Iterator[str]:
    """Uids of pods, of each namespace one after the other, so that none has to wait for all of another's."""
    namespaces: dict[str, list[str]] = {}
    for pod in pods:
        namespaces.setdefault(pod.namespace, []).append(pod.uid)
    for turn in zip_longest(*namespaces.values()):
        yield from (uid for uid in turn if uid is not None)


def _reference(pod: Pod) -> Reference:
    return Reference(api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
