"""Carries out bindings, many at once, and tries each until it is known what became of it.

While the server has trouble a binding keeps its place and is tried again on the same node: it may have been
carried out already, and a place given to somebody else meanwhile would be taken twice. Its owner is asked
before each attempt, and may want it no more: then the pod is read, without a cache, before the place is given
up.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from closeby.kube.client.backoff import Backoff, RequestPace
from closeby.kube.client.errors import FAULT, ApiError
from closeby.kube.client.stopping import Stopping
from closeby.kube.writing.under_way import Ask
from closeby.kube.writing.writer import Verdict, Writer, Written
from closeby.objects.saying import Say
from closeby.objects.unexpected import Contained, brief, fields_of
from closeby.scheduling.events import BindFailed
from closeby.scheduling.outcomes import Binding

#: Between attempts while the server has trouble (seconds).
ATTEMPTS: Final = RequestPace(0.2, 10.0)
#: Before a pod is placed anew whose binding was refused (seconds).
REFUSALS: Final = RequestPace(1.0, 10.0)
#: An answer of the owner is as good as new for so long (seconds).
_AT_ONCE: Final = 0.05
#: After an attempt without a clear answer, until a read of the pod tells whether it had an effect (seconds).
_SETTLES: Final = 1.0
#: Bindings in flight: less than the transport sends at once, so that none waits where nobody asks whether it
#: may still be sent. Beyond 16 to 32 only the latency grows.
CONCURRENCY: Final = 32


class BindingOwner(Protocol):
    """Whose bindings these are: asked before each attempt, and told what became of it."""

    def asks(self, bind: Binding) -> Ask:
        """What to do about it now."""

    def may_bind(self) -> bool:
        """Whether anything may be sent at all; once it may not it never may again."""

    def informed(self) -> bool:
        """Whether enough is known of the cluster to ask."""

    async def until_informed(self) -> None:
        """Returns when that may be so."""

    async def quiet(self, uid: str) -> None:
        """Returns when nothing is being written about the pod."""

    def missed(self, bind: Binding, *, in_doubt: bool) -> None:
        """An attempt had no effect, or (``in_doubt``) nobody knows."""

    def settled(self, bind: Binding) -> None:
        """The pod was read: no attempt has taken effect, and none will."""

    def bound(self, bind: Binding) -> None:
        """The pod is bound."""

    def failed(self, bind: Binding, failure: BindFailed) -> None:
        """The pod is not bound."""


class Binder:
    """All bindings that are on the way."""

    def __init__(self, writer: Writer, say: Say, tasks: asyncio.TaskGroup, owner: BindingOwner) -> None:
        self._writer = writer
        self._say = say
        self._tasks = tasks
        self._owner = owner
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self._on_the_way: set[asyncio.Task[None]] = set()
        #: By uid: refusals in a row.
        self._refusals: dict[str, Backoff] = {}
        self._stopping = Stopping()

    def start(self, bind: Binding) -> None:
        """Binds in the background."""
        task = self._tasks.create_task(self._bind(bind))
        self._on_the_way.add(task)
        task.add_done_callback(self._on_the_way.discard)

    async def until_informed(self) -> None:
        """Returns when enough is known of the cluster to send anything."""
        while not self._owner.informed():
            await self._owner.until_informed()

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._refusals.pop(uid, None)

    async def finish(self) -> None:
        """Waits for the bindings that were sent; those that wait for their turn are given up."""
        self._stopping.set()
        while self._on_the_way:
            await asyncio.wait(self._on_the_way)

    async def _bind(self, bind: Binding) -> None:
        """A fault of ours with one pod does not keep us from all the others: it is placed anew."""
        with Contained() as binding:
            await self._carry_out(bind)
        if binding.error is not None:
            self._say(
                "binding failed", warning=True, pod=bind.pod.key, node=bind.node, **fields_of(binding.error)
            )
            await self._refused(bind, Written(Verdict.FATAL, ApiError(None, FAULT, brief(binding.error))))

    async def _carry_out(self, bind: Binding) -> None:
        await self._owner.quiet(bind.pod.uid)
        attempts = Backoff(ATTEMPTS)
        settles_at = 0.0
        while True:
            tried = await self._try(bind, settles_at)
            if tried is None:
                return
            ask, written = tried
            if written.verdict is not Verdict.RETRYABLE:
                break
            if ask is Ask.LOOK and not written.in_doubt:
                self._owner.settled(bind)
                continue
            if ask is Ask.SEND:
                self._missed(bind, written)
                if written.in_doubt:
                    settles_at = time.monotonic() + _SETTLES
            after = written.error.retry_after if written.error else None
            if not await self._stopping.rest(attempts.next(after)):
                return
        if written.ok:
            self._refusals.pop(bind.pod.uid, None)
            self._owner.bound(bind)
            return
        self._owner.missed(bind, in_doubt=False)
        self._say("binding failed", warning=True, pod=bind.pod.key, node=bind.node, error=written.error)
        await self._refused(bind, written)

    async def _try(self, bind: Binding, settles_at: float) -> tuple[Ask, Written] | None:
        """Makes an attempt, or looks what became of earlier ones; None when nothing is left to be done."""
        while True:
            if not self._owner.informed():
                await self._stopping.unless(self.until_informed)
            async with self._slots:
                # Asked now and not before: many may have waited for their turn, and the world went on.
                if self._stopping.is_set or not self._owner.may_bind():
                    return None
                if not self._owner.informed():
                    continue
                ask = self._owner.asks(bind)
                if ask is Ask.LET_GO:
                    return None
                if ask is Ask.SEND:
                    return ask, await self._writer.bind(bind, self._still_wanted(bind))
                early = settles_at - time.monotonic()
                if early <= 0:
                    return ask, await self._writer.look(bind)
            if not await self._stopping.rest(early):
                return None

    def _still_wanted(self, bind: Binding) -> Callable[[], bool]:
        """Asked at the moment of sending; of the owner only where it took a while until then."""
        asked = time.monotonic()

        def wanted() -> bool:
            if not self._owner.informed():
                return False
            return time.monotonic() < asked + _AT_ONCE or self._owner.asks(bind) is Ask.SEND

        return wanted

    def _missed(self, bind: Binding, written: Written) -> None:
        self._say("retrying the binding", warning=True, pod=bind.pod.key, node=bind.node, error=written.error)
        self._owner.missed(bind, in_doubt=written.in_doubt)

    async def _refused(self, bind: Binding, written: Written) -> None:
        uid, gone = bind.pod.uid, written.verdict is Verdict.GONE
        if gone:
            self._refusals.pop(uid, None)
        else:
            # Somebody else may have bound it, of which the watch tells. Else it is placed anew, ever later.
            refusals = self._refusals.setdefault(uid, Backoff(REFUSALS))
            if not await self._stopping.rest(refusals.next()):
                return
        self._owner.failed(bind, BindFailed(uid, str(written.error), final=gone))
