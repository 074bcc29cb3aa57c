"""Carries out what the state machine of the starts says: plans, steps before bindings, bindings.

While the server has trouble a binding keeps its place and is tried again on the same node: it may have been
carried out already, and a place given to another pod meanwhile would be taken twice. The state machine is
asked before each attempt, and may want it no more: then the pod is read, without a cache, before the place is
given up.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from closeby.kube.client.errors import FAULT, ApiError
from closeby.kube.client.waiting import Backoff, RequestPace, Stopping
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import (
    BindingTurn,
    BindRefused,
    Bound,
    GiveBack,
    LeadLost,
    Missed,
    NoEffect,
    PlanRefused,
    PlanTurn,
    PlanWritten,
    PreparationFailed,
    Prepare,
    Prepared,
    QueueBinding,
    QueuePlan,
    ReadPod,
    Review,
    SendBinding,
    StartAction,
    StartEvent,
    StepFailed,
    Undo,
    WritePlan,
)
from closeby.kube.gangs.starts import Starts
from closeby.kube.state.gated_pods import GatedPods
from closeby.kube.state.ownership import OwnGangs
from closeby.kube.writing.placements import BindingWrites
from closeby.kube.writing.writer import WriteResult, Written
from closeby.objects.process import Contained, Say, brief, fields_of
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import BindFailed, BindingsWithdrawn
from closeby.scheduling.outcomes import Binding

#: Between attempts while the server has trouble (seconds).
ATTEMPTS: Final = RequestPace(0.2, 10.0)
#: Before a pod is placed again whose binding was refused (seconds).
REFUSALS: Final = RequestPace(1.0, 30.0)
#: Seconds between two log lines about the same kind of failure.
_SAID_EVERY: Final = 10.0
#: An answer of the state machine is as good as new for so long (seconds).
_AT_ONCE: Final = 0.05
#: After an attempt without a clear answer, until a read of the pod tells whether it had an effect (seconds).
_SETTLES: Final = 1.0
#: Bindings in flight: less than the transport sends at once, so that none waits where it is not asked whether
#: it may still be sent. Beyond 16 to 32 only the latency grows.
CONCURRENCY: Final = 32


class PreBindStep(Protocol):
    """Something that must be done for a pod before its binding, such as binding its volumes.

    An earlier process may have run it for the pod, for another node too, and have ended before it could undo
    it: ``run`` takes that over.
    """

    def needed(self, binding: Binding) -> bool:
        """Whether the pod needs it."""

    async def run(self, binding: Binding) -> str | None:
        """Does it; returns why it failed, None when it is done. Cancelled when the process stops."""

    async def undo(self, binding: Binding) -> None:
        """The pod will not be bound to this node: undoes what ``run`` did, if it did anything."""


class BinderContext(Protocol):
    """What a binder needs of its scheduler."""

    @property
    def own(self) -> OwnGangs:
        """The gangs that it schedules."""

    @property
    def gated(self) -> GatedPods | None:
        """The pods that another scheduler binds; None where this one binds."""

    def informed(self) -> bool:
        """Whether the cluster need not be read again first."""

    async def until_informed(self) -> None:
        """Returns when that may be so."""

    def catch_up(self) -> bool:
        """Feeds the engine all that was received; False when it can't be relied upon any more."""

    def may_bind(self) -> bool:
        """Whether this process certainly leads; once it does not it never will again."""

    async def quiet(self, uid: str) -> None:
        """Returns when nothing is being written about the pod."""

    async def write_plan(self, key: str) -> Written:
        """Writes where the gang's members go."""

    def bound(self, binding: Binding) -> None:
        """The pod is bound."""

    def write_refused(self, bindings: Sequence[Binding], error: ApiError | None, times: int = 1) -> None:
        """The server did not do, so many times in a row, what must be written before these take effect."""

    def give_back(self, failure: BindFailed | BindingsWithdrawn) -> None:
        """To be passed on to the engine."""

    def review(self, key: str, *, waits: bool) -> None:
        """The status of the gang may not be true any more."""


class Binder:
    """Drives the starts and bindings of one scheduler."""

    def __init__(
        self,
        engine: Engine,
        objects: GangObjects,
        writes: BindingWrites,
        say: Say,
        tasks: asyncio.TaskGroup,
        context: BinderContext,
        steps: Sequence[PreBindStep] = (),
    ) -> None:
        """``steps`` run before a binding, in this order; ``tasks`` is entered before an event is handled."""
        needs_steps = self._needs_steps if steps else None
        self.starts = Starts(engine, objects, context.own, needs_steps, context.gated)
        self._pods = engine.state.pods
        self._writes = writes
        self._say = say
        self._tasks = tasks
        self._context = context
        self._steps = steps
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._running: set[asyncio.Task[None]] = set()
        #: By uid: steps that are being undone.
        self._undoing: dict[str, asyncio.Task[None]] = {}
        #: By uid: refusals in a row.
        self._refusals: dict[str, Backoff] = {}
        self._stopping = Stopping()
        #: By kind of failure: when it may be logged again, and how many were not since it was.
        self._failures: dict[tuple[str, object, object], tuple[float, int]] = {}

    def handle(self, event: StartEvent) -> StartAction | None:
        """Begins what follows from an event; returns the action that is the caller's, if there is one."""
        answer: StartAction | None = None
        undone: list[asyncio.Task[None]] = []
        for action in self.starts.handle(event):
            match action:
                case SendBinding() | ReadPod() | WritePlan():
                    answer = action
                case QueueBinding(binding):
                    self._start(self._bind(binding))
                case QueuePlan(key, bindings):
                    self._start(self._plan(key, bindings))
                case GiveBack(failure):
                    if undone:
                        self._start(self._give_back_after(undone, failure))
                    else:
                        self._context.give_back(failure)
                case Review(key, waits):
                    self._context.review(key, waits=waits)
                case Prepare(binding):
                    self._start(self._prepare(binding))
                case Undo(binding):
                    before = self._undoing.get(binding.pod.uid)
                    undoing = self._undoing[binding.pod.uid] = self._start(self._undo(binding, before))
                    undone.append(undoing)
        return answer

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._refusals.pop(uid, None)

    async def finish(self, within: float) -> None:
        """Waits for what was sent, at most so many seconds; all else is left to the next leader."""
        self._stopping.set()
        self.handle(LeadLost())
        ends = time.monotonic() + within
        while self._running and (left := ends - time.monotonic()) > 0:
            await asyncio.wait(self._running, timeout=left)
        if unfinished := tuple(self._running):
            if within:
                self._say("bindings not finished", warning=True, after=f"{within:g}s", tasks=len(unfinished))
            for task in unfinished:
                task.cancel()
            await asyncio.wait(unfinished)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _until_informed(self) -> None:
        while not self._context.informed():
            await self._context.until_informed()

    def _may_bind(self) -> bool:
        if not self._context.may_bind():
            self.handle(LeadLost())
            return False
        return not self._stopping.is_set

    # Plans

    async def _plan(self, key: str, bindings: tuple[Binding, ...]) -> None:
        """A fault of ours with one gang does not stop the others: it is placed again."""
        with Contained() as planning:
            await self._write_plan(key, bindings)
        if planning.error is not None:
            self._say("planning failed", warning=True, gang=key, **fields_of(planning.error))
            self.handle(PlanRefused(bindings, brief(planning.error)))

    async def _write_plan(self, key: str, bindings: tuple[Binding, ...]) -> None:
        """Writes the plan until it stands, or until what was decided does not hold any more."""
        attempts = Backoff(ATTEMPTS)
        while True:
            await self._stopping.unless(self._until_informed)
            if not self._may_bind() or self.handle(PlanTurn(bindings)) is None:
                return
            written = await self._context.write_plan(key)
            if written.ok:
                # Whether it still holds is asked again before each binding is sent.
                self.handle(PlanWritten(bindings))
                return
            wait = attempts.next(None if written.error is None else written.error.retry_after)
            self._context.write_refused(bindings, written.error, attempts.failures)
            refused = written.verdict in (WriteResult.GONE, WriteResult.FATAL)
            if refused:
                # Nothing is bound yet: others can use the room until this can be written.
                wait = ATTEMPTS.longest
            if not await self._stopping.rest(wait):
                return
            if refused:
                why = f"the plan of its gang could not be written: {written.error or 'the PodGroup is gone'}"
                self.handle(PlanRefused(bindings, why))
                return

    # Steps before bindings

    def _needs_steps(self, binding: Binding) -> bool:
        return any(step.needed(binding) for step in self._steps)

    async def _prepare(self, binding: Binding) -> None:
        """A process that stops leaves the steps to the next leader, which runs them again."""
        failures: list[str | None] = []

        async def run() -> None:
            failures.append(await self._run_steps(binding))

        if self._may_bind():
            await self._stopping.unless(run)
        if not failures:
            return
        if failures[0] is None:
            self.handle(Prepared(binding))
            return
        why, pod, node = failures[0], binding.pod.key, binding.node
        if self.starts.wanted(binding):
            self._say("preparing the binding failed", warning=True, pod=pod, node=node, error=why)
            # The other members need not be waited for.
            self.handle(StepFailed(binding, why))
            if not await self._rest(binding.pod.uid):
                return
        self.handle(PreparationFailed(binding, why))

    async def _run_steps(self, binding: Binding) -> str | None:
        undoing = self._undoing.get(binding.pod.uid)
        if undoing is not None:
            await asyncio.wait([undoing])
        for step in self._steps:
            why: str | None = None
            with Contained() as preparing:
                if step.needed(binding):
                    why = await step.run(binding)
            if preparing.error is not None:
                why = brief(preparing.error)
            if why is not None:
                return why
        return None

    async def _undo(self, binding: Binding, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        for step in reversed(self._steps):
            with Contained() as undoing:
                if step.needed(binding):
                    await step.undo(binding)
            if undoing.error is not None:
                self._say("step not undone", warning=True, pod=binding.pod.key, **fields_of(undoing.error))
        if self._undoing.get(binding.pod.uid) is asyncio.current_task():
            del self._undoing[binding.pod.uid]

    async def _give_back_after(
        self, undone: Sequence[asyncio.Task[None]], failure: BindFailed | BindingsWithdrawn
    ) -> None:
        """What is decided next must not go by what is about to be undone."""
        await asyncio.wait(undone)
        self._context.give_back(failure)

    # Bindings

    async def _bind(self, binding: Binding) -> None:
        """A fault of ours with one pod does not keep us from all the others: it is placed again."""
        with Contained() as working:
            await self._carry_out(binding)
        if working.error is not None:
            pod, node = binding.pod.key, binding.node
            self._say("binding failed", warning=True, pod=pod, node=node, **fields_of(working.error))
            fault = ApiError(None, FAULT, brief(working.error))
            await self._refused(binding, Written(WriteResult.FATAL, fault))

    async def _carry_out(self, binding: Binding) -> None:
        attempts = Backoff(ATTEMPTS)
        settles_at = 0.0
        while True:
            # What is written about the pod may be that the server refused the attempt before.
            await self._context.quiet(binding.pod.uid)
            tried = await self._try(binding, settles_at)
            if tried is None:
                return
            sent, written = tried
            if written.verdict is not WriteResult.RETRYABLE:
                break
            if not sent and not written.in_doubt:
                self.handle(NoEffect(binding))
                continue
            if sent:
                self._complain("retrying the binding", binding, written.error)
                self._context.write_refused((binding,), written.error, attempts.failures + 1)
                self.handle(Missed(binding, written.in_doubt))
                if written.in_doubt:
                    settles_at = time.monotonic() + _SETTLES
            after = written.error.retry_after if written.error else None
            if not await self._stopping.rest(attempts.next(after)):
                return
        if written.ok:
            self._refusals.pop(binding.pod.uid, None)
            self._context.bound(binding)
            self.handle(Bound(binding))
            return
        self.handle(Missed(binding, in_doubt=False))
        self._complain("binding failed", binding, written.error)
        await self._refused(binding, written)

    def _complain(self, message: str, binding: Binding, error: ApiError | None) -> None:
        """A line in the log: where the server refuses everything, one now and then for all pods."""
        kind, now = (message, error and error.code, error and error.reason), time.monotonic()
        until, more = self._failures.get(kind, (0.0, 0))
        if now < until:
            self._failures[kind] = until, more + 1
            return
        self._failures[kind] = now + _SAID_EVERY, 0
        pod, node = binding.pod.key, binding.node
        self._say(message, warning=True, pod=pod, node=node, error=error, more=more or None)

    async def _try(self, binding: Binding, settles_at: float) -> tuple[bool, Written] | None:
        """Makes an attempt (True), or looks what became of earlier ones; None when nothing is to be done."""
        while True:
            if not self._context.informed():
                await self._stopping.unless(self._until_informed)
            async with self._slots:
                # Asked now and not before: many may have waited for their turn, and the world went on.
                if not self._may_bind():
                    return None
                if not self._context.informed():
                    continue
                action = self.handle(BindingTurn(binding)) if self._context.catch_up() else None
                if action is None:
                    return None
                if isinstance(action, SendBinding):
                    return True, await self._writes.bind(binding, self._still_wanted(binding))
                early = settles_at - time.monotonic()
                if early <= 0:
                    return False, await self._writes.look(binding)
            if not await self._stopping.rest(early):
                return None

    def _still_wanted(self, binding: Binding) -> Callable[[], bool]:
        """Asked at the moment of sending; of the state machine only where it took a while until then."""
        asked = time.monotonic()

        def wanted() -> bool:
            # A pod may have been read in between, which took long.
            if not self._context.may_bind() or not self._context.informed():
                return False
            if time.monotonic() < asked + _AT_ONCE:
                return True
            return self._context.catch_up() and isinstance(self.handle(BindingTurn(binding)), SendBinding)

        return wanted

    async def _refused(self, binding: Binding, written: Written) -> None:
        uid, gone = binding.pod.uid, written.verdict is WriteResult.GONE
        if gone:
            self._refusals.pop(uid, None)
        else:
            before = self._refusals.get(uid)
            times = 1 if before is None else before.failures + 1
            self._context.write_refused((binding,), written.error, times)
            if not await self._rest(uid):
                return
        # Where another writer has bound it, the watch reports that. Else it is placed again.
        self.handle(BindRefused(binding, BindFailed(uid, str(written.error), final=gone)))

    async def _rest(self, uid: str) -> bool:
        """Waits, longer after each refusal; False when the process stops meanwhile."""
        refusals = self._refusals.get(uid)
        if refusals is None:
            refusals = Backoff(REFUSALS)
            if uid in self._pods:  # It is forgotten when that pod is gone.
                self._refusals[uid] = refusals
        return await self._stopping.rest(refusals.next())
