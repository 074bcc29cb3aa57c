"""Starts of gangs: the plan is written down, then the bindings are sent, then it is seen what became of them.

A binding can't be undone. Should closeby end at any moment after the plan stands, whoever comes next finds in
it where every member was to go, and carries the start on.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from closeby.kube.client.backoff import Backoff, RequestPace
from closeby.kube.client.stopping import Stopping
from closeby.kube.gangs.progress import GangProgress
from closeby.kube.gangs.reporter import GangReporter
from closeby.kube.writing.binding import Binder
from closeby.kube.writing.under_way import UnderWay
from closeby.kube.writing.writer import Verdict
from closeby.scheduling.outcomes import Binding

#: Between attempts to write a plan (seconds).
_PACE: Final = RequestPace(0.2, 10.0)


class Starts:
    """Sends the bindings of gangs."""

    def __init__(
        self,
        progress: GangProgress,
        binder: Binder,
        reporter: GangReporter,
        tasks: asyncio.TaskGroup,
        under_way: UnderWay,
    ) -> None:
        """Bindings are under way before a start is begun."""
        self._progress = progress
        self._binder = binder
        self._reporter = reporter
        self._tasks = tasks
        self._under_way = under_way
        self._planning: set[asyncio.Task[None]] = set()
        self._stopping = Stopping()

    def resume(self) -> None:
        """Takes up what was begun earlier: it has come to its end, or the next decision carries it on."""
        for key in self._progress.resume():
            self._reporter.review(key, within=1.0)
        for key in self._progress.gangs():
            self._reporter.resume(key)

    def begin(self, key: str, binds: Sequence[Binding]) -> None:
        """Binds members of a gang, after its plan is written down where it needs one."""
        needs_plan = self._progress.needs_plan(key, binds)
        self._progress.sent(key, binds)
        if not needs_plan:
            self._send(binds)
            return
        if self._progress.begin(key):
            self._reporter.anew(key)
        task = self._tasks.create_task(self._plan(key, tuple(binds)))
        self._planning.add(task)
        task.add_done_callback(self._planning.discard)

    def ended(self, uid: str) -> None:
        """A binding came to its end, one way or the other; pods of no gang are passed over."""
        key = self._progress.ended(uid)
        if key is not None:
            self._progress.settle(key)
            self._reporter.review(key)

    def withdrawn(self, key: str, uids: Iterable[str]) -> None:
        """Members of a gang wait again, as their bindings were given up before they took effect."""
        for uid in uids:
            self._progress.ended(uid)
        self._progress.settle(key)
        self._reporter.refused(key)

    async def finish(self) -> None:
        """Gives up starts that wait for their plan; nothing of those is bound."""
        self._stopping.set()
        while self._planning:
            await asyncio.wait(self._planning)

    def _send(self, binds: Sequence[Binding]) -> None:
        for bind in binds:
            self._binder.start(bind)

    async def _plan(self, key: str, binds: tuple[Binding, ...]) -> None:
        """Writes the plan until it stands, or until what was decided does not hold any more."""
        attempts = Backoff(_PACE)
        while True:
            await self._stopping.unless(self._binder.until_informed)
            if self._stopping.is_set or not self._under_way.hold(binds):
                return
            written = await self._reporter.write_plan(key)
            if written.ok:
                # Whether it still holds is asked again before each binding is sent.
                self._send(binds)
                return
            wait = attempts.next(None if written.error is None else written.error.retry_after)
            refused = written.verdict in (Verdict.GONE, Verdict.FATAL)
            if refused:
                # Nothing is bound yet: the room is better given to others until this can be written.
                wait = _PACE.longest
            if not await self._stopping.rest(wait):
                return
            if refused:
                why = f"the plan of its gang could not be written: {written.error or 'the PodGroup is gone'}"
                self._under_way.give_up(binds, why)
                return
