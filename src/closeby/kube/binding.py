"""Carries out bindings, many at once, and tries each until it is known what became of it.

While the server has trouble a binding keeps its place and is tried again on the same node: it may have been
carried out already, and a place given to somebody else meanwhile would be taken twice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from closeby.kube.backoff import Backoff, Pace
from closeby.kube.saying import Say
from closeby.kube.writer import Verdict, Writer, Written
from closeby.scheduling.events import BindFailed
from closeby.scheduling.outcomes import Bind

#: Between attempts, and before a pod is placed anew whose binding was refused (seconds).
PACE: Final = Pace(1.0, 10.0)


class Binder:
    """All bindings that are on the way."""

    def __init__(
        self,
        writer: Writer,
        say: Say,
        tasks: asyncio.TaskGroup,
        *,
        allowed: Callable[[], bool],
        first: Callable[[str], Awaitable[None]],
        bound: Callable[[Bind], None],
        failed: Callable[[BindFailed], None],
    ) -> None:
        """``first`` is awaited with the pod's uid before it is bound; one of the others is told the end.

        ``allowed`` is asked before each attempt: nothing is sent any more once it says no.
        """
        self._writer = writer
        self._say = say
        self._tasks = tasks
        self._allowed = allowed
        self._first = first
        self._bound = bound
        self._failed = failed
        self._on_the_way: set[asyncio.Task[None]] = set()
        #: By uid: refusals in a row.
        self._refusals: dict[str, Backoff] = {}
        self._stopping = asyncio.Event()

    def start(self, bind: Bind) -> None:
        """Binds in the background."""
        task = self._tasks.create_task(self._bind(bind))
        self._on_the_way.add(task)
        task.add_done_callback(self._on_the_way.discard)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._refusals.pop(uid, None)

    async def finish(self) -> None:
        """Waits for the bindings that were sent; those that wait for another attempt are given up."""
        self._stopping.set()
        while self._on_the_way:
            await asyncio.wait(self._on_the_way)

    async def _bind(self, bind: Bind) -> None:
        uid = bind.pod.uid
        await self._first(uid)
        attempts = Backoff(PACE)
        while True:
            if not self._allowed():
                return
            written = await self._writer.bind(bind)
            if written.verdict is not Verdict.RETRYABLE:
                break
            self._say(
                "binding is tried again", warning=True, pod=bind.pod.key, node=bind.node, error=written.error
            )
            if not await self._rest(attempts.next(written.error.retry_after if written.error else None)):
                return
        if written.ok:
            self._refusals.pop(uid, None)
            self._bound(bind)
            return
        self._say("binding failed", warning=True, pod=bind.pod.key, node=bind.node, error=written.error)
        await self._refused(bind, written)

    async def _refused(self, bind: Bind, written: Written) -> None:
        uid, gone = bind.pod.uid, written.verdict is Verdict.GONE
        if gone:
            self._refusals.pop(uid, None)
        else:
            # Somebody else may have bound it, of which the watch tells. Else it is placed anew, ever later.
            refusals = self._refusals.setdefault(uid, Backoff(PACE))
            if not await self._rest(refusals.next()):
                return
        self._failed(BindFailed(uid, str(written.error), final=gone))

    async def _rest(self, seconds: float) -> bool:
        """Waits; False when closeby stops."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return True
        return False
