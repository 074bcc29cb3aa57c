"""The live scheduler: one engine that is fed with what happens in a cluster, and whose decisions are written.

The engine is asked to decide only when everything is known that was there at the start. Between two rounds of
decisions lies a pause, so that what belongs together is heard together: a gang's pods, say.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec import Struct

from closeby.kube.binding import Binder
from closeby.kube.collector import collector_paused, settle
from closeby.kube.errors import ApiError
from closeby.kube.evicting import Evictor
from closeby.kube.feed import Feed
from closeby.kube.following import Following
from closeby.kube.gang_objects import GangObjects
from closeby.kube.gang_progress import GangProgress
from closeby.kube.gang_reporter import GangReporter
from closeby.kube.leading import Lead
from closeby.kube.lease import LeaseSettings
from closeby.kube.notices import Manners, Notices
from closeby.kube.saying import Say
from closeby.kube.scheduler_meters import SchedulerMeters
from closeby.kube.starts import Starts
from closeby.kube.transport import Transport
from closeby.kube.writer import Writer
from closeby.objects.configuration import Configuration
from closeby.plugins.registry import profile_for
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import BindFailed, Event, GroupRemoved, PodAdded, PodRemoved, Tick
from closeby.scheduling.intake.books import gang_key
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
    #: Whether pods that somebody owns wait until the pod-grouper has said to which gang they belong.
    pod_grouper: bool = False
    #: Decide and tell, write nothing.
    dry_run: bool = False
    manners: Manners = Manners()
    #: Between two rounds of decisions. After a round that took longer than ``pause`` it lasts as long as that
    #: round did, up to ``longest_pause``.
    pause: float = 0.05
    longest_pause: float = 1.0
    discover_every: float = 10.0
    #: None: there is one replica only, and it leads.
    lease: LeaseSettings | None = None


class _Hands(NamedTuple):
    """What carries decisions out."""

    binder: Binder
    notices: Notices
    reporter: GangReporter
    starts: Starts
    evictor: Evictor

    def carry_out(self, outcome: Outcome, binds: list[Bind]) -> None:
        """Begins what was decided about one work item, and notes what is to be told of it."""
        for assignment in outcome.assigned:
            self.notices.settled(assignment.pod.uid)
        leftover = outcome.leftover
        for one in leftover:
            self.notices.refused(one)
        if not outcome.is_gang:
            for bind in binds:
                self.binder.start(bind)
            return
        if binds:
            self.starts.begin(outcome.key, binds)
        if leftover or outcome.conditions:
            self.reporter.refused(outcome.key)

    async def finish(self, leading: bool) -> None:
        """Waits for what was sent; what is not known to be ours to write is not written."""
        await self.starts.finish()
        await self.binder.finish()
        await self.notices.finish()
        if leading:
            await self.reporter.finish()


class LiveScheduler:
    """Schedules one cluster's pods until it is stopped."""

    def __init__(
        self,
        transport: Transport,
        configuration: Configuration,
        settings: Settings,
        say: Say,
        meters: SchedulerMeters | None = None,
    ) -> None:
        """Makes the engine; ``meters`` are told what it does.

        Raises:
            ConfigurationError: the configuration names what no plugin knows.
        """
        self.engine = Engine(lambda handle: profile_for(configuration, handle))
        self._meters = meters or SchedulerMeters(settings.scheduler_name)
        self._meters.shows(self.engine)
        self._transport = transport
        self._settings = settings
        self._say = say
        self._feed = Feed(settings.scheduler_name, pod_grouper=settings.pod_grouper)
        self._following = Following(
            transport, say, discover_every=settings.discover_every, meters=self._meters
        )
        self._writer = Writer(transport, CONTROLLER, settings.instance)
        self._objects = GangObjects()
        self._progress = GangProgress(self.engine)
        self._lead = Lead(transport, settings.lease, say)
        if settings.lease is not None:
            self._meters.leads(settings.lease.name, lambda: self._lead.certain)
        self._failures: list[BindFailed] = []
        #: Set once everything was heard that was there at the start.
        self.heard = asyncio.Event()
        #: Set once the first round of decisions was made.
        self.ready = asyncio.Event()
        #: By work item: what was last said about it.
        self._said: dict[str, str] = {}

    @property
    def leading(self) -> bool:
        """Whether this replica decides."""
        return self._lead.certain

    async def run(self, stop: asyncio.Event) -> ApiError | None:
        """Schedules until ``stop`` is set, then finishes what was sent.

        Returns an error if the cluster can't be talked to, or (``LEASE_LOST``) if another replica may lead:
        the process should end then, and be started anew.
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
        lost: ApiError | None = None
        async with asyncio.TaskGroup() as tasks:
            hands = self._hands(tasks)
            campaign = tasks.create_task(self._lead.campaign())
            waking = tasks.create_task(self._wake_to_lead())
            following = tasks.create_task(self._following.run())
            work = [tasks.create_task(self._decide(hands))]
            if not self._settings.dry_run:
                others = (hands.notices.run(), hands.reporter.run(), hands.evictor.run())
                work += [tasks.create_task(one) for one in others]
            stopped = tasks.create_task(stop.wait())
            await asyncio.wait([stopped, campaign], return_when=asyncio.FIRST_COMPLETED)
            self._say("stopping")
            for task in work:
                task.cancel()
            if campaign.done():
                lost = campaign.result()
            await hands.finish(leading=self._lead.held.is_set())
            for other in (following, stopped, campaign, waking):
                other.cancel()
        self._say("stopped")
        return lost

    def _hands(self, tasks: asyncio.TaskGroup) -> "_Hands":
        """What carries decisions out."""
        settings, say, writer = self._settings, self._say, self._writer
        notices = Notices(writer, say, tasks, settings.manners)
        reporter = GangReporter(writer, say, self._objects, self._progress.standing, settings.manners)

        def bound(bind: Bind) -> None:
            self._meters.bound(bind.pod.uid)
            notices.bound(bind)
            starts.ended(bind.pod.uid)

        def failed(failure: BindFailed) -> None:
            self._meters.not_bound(failure.uid, final=failure.final)
            self._failures.append(failure)
            self._following.news.set()

        binder = Binder(
            writer,
            say,
            tasks,
            allowed=lambda: self._lead.certain,
            first=notices.quiet,
            bound=bound,
            failed=failed,
        )
        starts = Starts(self._progress, binder, reporter, tasks, failed)
        evictor = Evictor(self._transport, writer, say, self._progress, reporter, self._objects)
        return _Hands(binder, notices, reporter, starts, evictor)

    @property
    def unheard(self) -> str | None:
        """Why it is not ready to schedule, or to take over; None when it is."""
        return self._following.unheard

    # Rounds

    async def _decide(self, hands: "_Hands") -> None:
        while True:
            await self._news()
            took = await self._round(hands)
            await asyncio.sleep(min(max(self._settings.pause, took), self._settings.longest_pause))

    async def _wake_to_lead(self) -> None:
        await self._lead.held.wait()
        self._following.news.set()

    async def _news(self) -> None:
        """Returns when there is something new, or something that was refused has rested long enough."""
        due = self.engine.next_due if self._lead.held.is_set() else None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if due is None else max(0.0, due - time.monotonic())):
                await self._following.news.wait()

    async def _round(self, hands: "_Hands") -> float:
        """Takes in what came, and decides until nothing can be placed any more; returns its own seconds."""
        began = time.monotonic()
        self._take_in(hands)
        took = time.monotonic() - began
        if not self._following.complete:
            return took
        if not self.heard.is_set():
            settle()
            self.heard.set()
        if not self._lead.held.is_set():
            return took
        if not self.ready.is_set():
            hands.starts.resume()
        deciding = True
        while deciding:
            began = time.monotonic()
            # The last tick has no limit, so nothing is left over.
            decisions = self.engine.handle(Tick(began, _AT_ONCE)) or self.engine.handle(Tick(began))
            outcomes = [one.outcome for one in decisions if isinstance(one, Report)]
            self._meters.decided(outcomes, time.monotonic() - began)
            self._carry_out(decisions, hands)
            took += time.monotonic() - began
            deciding = bool(decisions)
            await asyncio.sleep(0)
        if not self.ready.is_set():
            self.ready.set()
            self._say("ready", nodes=sum(node is not None for node in self.engine.cluster.nodes))
        return took

    def _take_in(self, hands: "_Hands") -> None:
        with collector_paused():
            changes = self._following.take()
            self._objects.take(changes)
            fed = self._feed.take(changes)
            failures, self._failures = self._failures, []
            bereft = self._bereft(fed.events)
            self.engine.handle(*fed.events, *failures)
        self._meters.took_in(fed.events)
        for failure in failures:
            hands.starts.ended(failure.uid)
        for key in bereft if self._lead.held.is_set() else ():
            hands.reporter.lost(key)
        for event in fed.events:
            match event:
                case PodRemoved(uid):
                    hands.notices.settled(uid)
                    hands.binder.forget(uid)
                case PodAdded(pod) if pod.finished or pod.node_name is not None:
                    hands.notices.settled(pod.uid)
                case GroupRemoved(key):
                    hands.reporter.forget(key)
        for problem in fed.problems:
            self._say(
                "problem",
                warning=True,
                object=problem.object,
                field=problem.field,
                reason=problem.reason,
                problem=problem.sentence(),
            )

    def _bereft(self, events: Iterable[Event]) -> set[str]:
        """Gangs that are about to lose a member."""
        pods = self.engine.books.pods
        gone = (pods.get(event.uid) for event in events if isinstance(event, PodRemoved))
        return {gang_key(pod) for pod in gone if pod is not None and pod.group is not None}

    # Decisions

    def _carry_out(self, decisions: Iterable[Decision], hands: "_Hands") -> None:
        binds: list[Bind] = []
        for decision in decisions:
            match decision:
                case Bind(binder=None):
                    binds.append(decision)
                    if not self._settings.dry_run:
                        self._meters.binding(decision.pod.uid)
                case Report(outcome):
                    self._report(outcome)
                    if not self._settings.dry_run:
                        hands.carry_out(outcome, binds)
                    binds = []

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
