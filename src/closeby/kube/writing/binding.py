"""Carries out bindings, many at once, and tries each until it is known what became of it.

While the server has trouble a binding keeps its place and is tried again on the same node: it may have been
carried out already, and a place given to somebody else meanwhile would be taken twice.
"""

import asyncio
from typing import Final, Protocol

from closeby.kube.client.backoff import Backoff, Pace
from closeby.kube.client.errors import FAULT, ApiError
from closeby.kube.client.saying import Say
from closeby.kube.client.stopping import Stopping
from closeby.kube.writing.writer import Verdict, Writer, Written
from closeby.objects.unexpected import Contained, brief, fields_of
from closeby.scheduling.events import BindFailed
from closeby.scheduling.outcomes import Bind

#: Between attempts while the server has trouble (seconds).
ATTEMPTS: Final = Pace(0.2, 10.0)
#: Before a pod is placed anew whose binding was refused (seconds).
REFUSALS: Final = Pace(1.0, 10.0)
#: Bindings in flight: less than the transport sends at once, so that none waits where nobody asks whether it
#: may still be sent. Beyond 16 to 32 only the latency grows.
CONCURRENCY: Final = 32


class Owner(Protocol):
    """Whose bindings these are: asked before each is sent, and told what became of it."""

    def wants(self, bind: Bind) -> bool:
        """Whether the pod is still to go to this node."""

    def may_bind(self) -> bool:
        """Whether anything may be sent at all; once it may not it never may again."""

    async def quiet(self, uid: str) -> None:
        """Returns when nothing is being written about the pod."""

    def bound(self, bind: Bind) -> None:
        """The pod is bound."""

    def failed(self, failure: BindFailed) -> None:
        """The pod is not bound."""


class Binder:
    """All bindings that are on the way."""

    def __init__(self, writer: Writer, say: Say, tasks: asyncio.TaskGroup, owner: Owner) -> None:
        self._writer = writer
        self._say = say
        self._tasks = tasks
        self._owner = owner
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._on_the_way: set[asyncio.Task[None]] = set()
        #: By uid: refusals in a row.
        self._refusals: dict[str, Backoff] = {}
        self._stopping = Stopping()

    def start(self, bind: Bind) -> None:
        """Binds in the background."""
        task = self._tasks.create_task(self._bind(bind))
        self._on_the_way.add(task)
        task.add_done_callback(self._on_the_way.discard)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._refusals.pop(uid, None)

    async def finish(self) -> None:
        """Waits for the bindings that were sent; those that wait for their turn are given up."""
        self._stopping.set()
        while self._on_the_way:
            await asyncio.wait(self._on_the_way)

    async def _bind(self, bind: Bind) -> None:
        """A fault of ours with one pod does not keep us from all the others: it is placed anew."""
        with Contained() as binding:
            await self._carry_out(bind)
        if binding.error is not None:
            self._say(
                "binding failed", warning=True, pod=bind.pod.key, node=bind.node, **fields_of(binding.error)
            )
            await self._refused(bind, Written(Verdict.FATAL, ApiError(None, FAULT, brief(binding.error))))

    async def _carry_out(self, bind: Bind) -> None:
        uid = bind.pod.uid
        await self._owner.quiet(uid)
        attempts = Backoff(ATTEMPTS)
        while True:
            async with self._slots:
                # Asked now and not before: many may have waited for their turn, and the world went on.
                if self._stopping.is_set or not self._owner.may_bind():
                    return
                if not self._owner.wants(bind):
                    why = f"{bind.node} is not there for it any more"
                    self._owner.failed(BindFailed(uid, why, unsent=True))
                    return
                written = await self._writer.bind(bind)
            if written.verdict is not Verdict.RETRYABLE:
                break
            self._say(
                "binding is tried again", warning=True, pod=bind.pod.key, node=bind.node, error=written.error
            )
            if not await self._stopping.rest(
                attempts.next(written.error.retry_after if written.error else None)
            ):
                return
        if written.ok:
            self._refusals.pop(uid, None)
            self._owner.bound(bind)
            return
        self._say("binding failed", warning=True, pod=bind.pod.key, node=bind.node, error=written.error)
        await self._refused(bind, written)

    async def _refused(self, bind: Bind, written: Written) -> None:
        uid, gone = bind.pod.uid, written.verdict is Verdict.GONE
        if gone:
            self._refusals.pop(uid, None)
        else:
            # Somebody else may have bound it, of which the watch tells. Else it is placed anew, ever later.
            refusals = self._refusals.setdefault(uid, Backoff(REFUSALS))
            if not await self._stopping.rest(refusals.next()):
                return
        self._owner.failed(BindFailed(uid, str(written.error), final=gone))
