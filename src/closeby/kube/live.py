"""The live scheduler: one engine that is fed with what happens in a cluster, and whose decisions are written.

The engine is asked to decide only when everything is known that was there at the start. Between two rounds of
decisions lies a pause, so that what belongs together is heard together: a gang's pods, say.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from closeby.kube.binding import Binder
from closeby.kube.collector import collector_paused, settle
from closeby.kube.errors import ApiError
from closeby.kube.feed import Feed
from closeby.kube.following import Following
from closeby.kube.notices import Manners, Notices
from closeby.kube.saying import Say
from closeby.kube.transport import Transport
from closeby.kube.writer import Writer
from closeby.objects.configuration import Configuration
from closeby.plugins.registry import profile_for
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import BindFailed, PodAdded, PodRemoved, Tick
from closeby.scheduling.outcomes import Bind, Decision, Outcome, Report

#: Who we are in Events.
CONTROLLER: Final = "closeby-scheduler"
DEFAULT_NAME: Final = "closeby"
#: Work items that are decided before others get a turn: bindings are sent, changes are heard.
_AT_ONCE: Final = 64
#: Items of which is remembered what was said last; items that are gone are among them.
_REMEMBERED: Final = 10_000


class Settings(Struct, frozen=True, kw_only=True):
    """How a live scheduler behaves (times in seconds)."""

    #: Pods that name it in ``spec.schedulerName`` are ours.
    scheduler_name: str = DEFAULT_NAME
    #: Unique to this replica.
    instance: str = CONTROLLER
    #: Decide and tell, write nothing.
    dry_run: bool = False
    manners: Manners = Manners()
    #: Between two rounds of decisions. After a round that took longer than ``pause`` it lasts as long as that
    #: round did, up to ``longest_pause``.
    pause: float = 0.05
    longest_pause: float = 1.0
    discover_every: float = 10.0


class LiveScheduler:
    """Schedules one cluster's pods until it is stopped."""

    def __init__(
        self, transport: Transport, configuration: Configuration, settings: Settings, say: Say
    ) -> None:
        """Makes the engine.

        Raises:
            ConfigurationError: the configuration names what no plugin knows.
        """
        self.engine = Engine(lambda handle: profile_for(configuration, handle))
        self._settings = settings
        self._say = say
        self._feed = Feed(settings.scheduler_name)
        self._following = Following(transport, say, discover_every=settings.discover_every)
        self._writer = Writer(transport, CONTROLLER, settings.instance)
        self._failures: list[BindFailed] = []
        #: Set once the first round of decisions was made.
        self.ready = asyncio.Event()
        #: By work item: what was last said about it.
        self._said: dict[str, str] = {}

    async def run(self, stop: asyncio.Event) -> ApiError | None:
        """Schedules until ``stop`` is set, then finishes what was sent.

        Returns an error if the cluster can't be talked to.
        """
        look = asyncio.create_task(self._following.look())
        told = asyncio.create_task(stop.wait())
        await asyncio.wait([look, told], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if not look.done():
            look.cancel()
            return None
        error = look.result()
        if error is not None:
            return error
        async with asyncio.TaskGroup() as tasks:
            notices = Notices(self._writer, self._say, tasks, self._settings.manners)
            binder = Binder(
                self._writer,
                self._say,
                tasks,
                first=notices.quiet,
                bound=notices.bound,
                failed=self._failed,
            )
            work = [tasks.create_task(one) for one in (self._following.run(), self._decide(binder, notices))]
            if not self._settings.dry_run:
                work.append(tasks.create_task(notices.run()))
            await stop.wait()
            self._say("stopping")
            for task in work[1:]:
                task.cancel()
            await binder.finish()
            await notices.finish()
            work[0].cancel()
        self._say("stopped")
        return None

    def _failed(self, failure: BindFailed) -> None:
        self._failures.append(failure)
        self._following.news.set()

    # Rounds

    async def _decide(self, binder: Binder, notices: Notices) -> None:
        while True:
            await self._following.news.wait()
            took = await self._round(binder, notices)
            await asyncio.sleep(min(max(self._settings.pause, took), self._settings.longest_pause))

    async def _round(self, binder: Binder, notices: Notices) -> float:
        """Takes in what came, and decides until nothing can be placed any more; returns its own seconds."""
        began = time.monotonic()
        self._take_in(binder, notices)
        took = time.monotonic() - began
        if not self._following.complete:
            return took
        deciding = True
        while deciding:
            began = time.monotonic()
            # The last tick has no limit, so nothing is left over.
            decisions = self.engine.handle(Tick(limit=_AT_ONCE)) or self.engine.handle(Tick())
            self._carry_out(decisions, binder, notices)
            took += time.monotonic() - began
            deciding = bool(decisions)
            await asyncio.sleep(0)
        if not self.ready.is_set():
            settle()
            self.ready.set()
            self._say("ready", nodes=sum(node is not None for node in self.engine.cluster.nodes))
        return took

    def _take_in(self, binder: Binder, notices: Notices) -> None:
        with collector_paused():
            fed = self._feed.take(self._following.take())
            failures, self._failures = self._failures, []
            self.engine.handle(*fed.events, *failures)
        for event in fed.events:
            match event:
                case PodRemoved(uid):
                    notices.settled(uid)
                    binder.forget(uid)
                case PodAdded(pod) if pod.finished or pod.node_name is not None:
                    notices.settled(pod.uid)
        for problem in fed.problems:
            self._say(
                "problem",
                warning=True,
                object=problem.object,
                field=problem.field,
                reason=problem.reason,
                problem=problem.sentence(),
            )

    # Decisions

    def _carry_out(self, decisions: Iterable[Decision], binder: Binder, notices: Notices) -> None:
        for decision in decisions:
            if isinstance(decision, Report):
                self._report(decision.outcome)
            if self._settings.dry_run:
                continue
            match decision:
                case Bind(binder=None):
                    binder.start(decision)
                case Report(outcome):
                    for assignment in outcome.assigned:
                        notices.settled(assignment.pod.uid)
                    for leftover in outcome.leftover:
                        notices.refused(leftover)

    def _report(self, outcome: Outcome) -> None:
        """One line when pods of an item were placed, and one when it waits for another reason than before."""
        item = f"{outcome.kind.value}/{outcome.key}"
        nodes = {one.node for one in outcome.assigned}
        if nodes:
            self._say(
                "would place" if self._settings.dry_run else "placed",
                item=item,
                pods=len(outcome.assigned),
                nodes=len(nodes),
                node=min(nodes) if len(nodes) == 1 else None,
                domain=outcome.place and "/".join(value or "" for value in outcome.place.path),
            )
        left = outcome.leftover
        text = left[0].message if left else None
        if text is None:
            self._said.pop(item, None)
        elif self._said.get(item) != text:
            if len(self._said) >= _REMEMBERED:
                self._said.clear()
            self._said[item] = text
            self._say("waits", item=item, pods=len(left), reason=left[0].reason, why=text)
