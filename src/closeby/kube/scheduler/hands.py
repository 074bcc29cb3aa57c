"""What carries decisions out: bindings, the starts of gangs, what users are told, evictions by choice."""

import asyncio
from collections.abc import Callable, Iterable

from msgspec import Struct

from closeby.applications.registry import app_group_key
from closeby.kube.client.transport import Transport
from closeby.kube.gangs.evicting import Evictor
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.progress import GangProgress
from closeby.kube.gangs.reporter import GangReporter
from closeby.kube.gangs.starts import Starts
from closeby.kube.scheduler.heartbeat import Heartbeat
from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.writing.binding import Binder
from closeby.kube.writing.events import Events
from closeby.kube.writing.leading import Lead
from closeby.kube.writing.notices import Manners, Notices
from closeby.kube.writing.under_way import Ask, UnderWay
from closeby.kube.writing.without_group import WithoutGroup
from closeby.kube.writing.writer import Writer
from closeby.objects.saying import Say
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    BindFailed,
    BindingsWithdrawn,
    Event,
    GroupDeleted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    TopologyChanged,
    TopologyDeleted,
)
from closeby.scheduling.outcomes import Binding, Decision, Released, Reserved


class Means(Struct, frozen=True, kw_only=True):
    """What decisions are carried out with."""

    transport: Transport
    writer: Writer
    events: Events
    manners: Manners
    say: Say
    #: Where what is under way runs; entered before anything is carried out.
    tasks: asyncio.TaskGroup


class Senses(Struct, frozen=True, kw_only=True):
    """How it is made sure that decisions are carried out by what is so now."""

    heartbeat: Heartbeat
    #: Called when there is something for the engine to hear.
    news: Callable[[], None]
    #: Makes the engine hear all there is at once; False when it can't be relied upon any more.
    hear: Callable[[], bool]


class Hands:
    """The hands of one scheduler. What became of bindings is kept until the engine is told of it."""

    def __init__(
        self,
        engine: Engine,
        means: Means,
        objects: GangObjects,
        lead: Lead,
        meters: SchedulerMeters,
        senses: Senses,
    ) -> None:
        """Does nothing yet; ``run`` tells and evicts."""
        self._engine = engine
        self._lead = lead
        self._meters = meters
        self._senses = senses
        self._failures: list[BindFailed | BindingsWithdrawn] = []
        self._under_way = UnderWay(engine.recheck, self._withdrawn)
        self._tasks = tasks = means.tasks
        writer, events, say = means.writer, means.events, means.say
        self._say = say
        progress = GangProgress(engine, self.informed)
        self._progress = progress
        self._notices = Notices(writer, events, say, tasks, means.manners, self.informed)
        self._without_group = WithoutGroup(writer, events, say, tasks)
        self._reporter = GangReporter(writer, events, say, objects, progress, means.manners)
        self._binder = Binder(writer, say, tasks, self)
        self._starts = Starts(progress, self._binder, self._reporter, tasks, self._under_way)
        self._evictor = Evictor(means.transport, writer, events, say, progress, self._reporter, objects)

    async def run(self) -> None:
        """Tells what is due and evicts who must go, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._notices.run(), self._reporter.run(), self._evictor.run()):
                tasks.create_task(work)

    async def finish(self) -> None:
        """Waits for what was sent; what is not known to be ours to write is not written."""
        await self._starts.finish()
        await self._binder.finish()
        await self._notices.finish()
        await self._without_group.finish()
        if self._lead.certain:
            await self._reporter.finish()

    # Decisions

    def resume(self) -> None:
        """Takes up starts that another replica, or an earlier process, has begun."""
        self._starts.resume()

    def carry_out(self, decision: Decision) -> None:
        """Starts the bindings of one decision, and notes what to report about it."""
        outcome = decision.outcome
        for binding in decision.bindings:
            self._notices.settled(binding.pod.uid)
        binds = [binding for binding in decision.bindings if binding.binder is None]
        self._under_way.begin(binds)
        for bind in binds:
            self._meters.binding(bind.pod.uid)
            if app_group_key(bind.pod) is not None:
                known = self._engine.applications.of(bind.pod) is not None
                self._without_group.decided(bind.pod, known=known)
        leftover = outcome.leftover
        for one in leftover:
            self._notices.refused(one)
        if not outcome.is_gang:
            for bind in binds:
                self._binder.start(bind)
            return
        if binds:
            self._starts.begin(outcome.key, binds)
        if leftover or outcome.conditions:
            self._reporter.refused(outcome.key)

    def reserved(self, change: Reserved | Released) -> None:
        """Tells of nodes that are kept free for a gang, or are so no more."""
        self._tasks.create_task(self._reporter.reserved(change))

    # What happened

    @property
    def pending(self) -> bool:
        """Whether there are failures to take."""
        return bool(self._failures)

    def take_failures(self) -> list[BindFailed | BindingsWithdrawn]:
        """Bindings that did not happen, since the last call."""
        taken, self._failures = self._failures, []
        return taken

    def took_in(self, events: Iterable[Event], failures: Iterable[BindFailed | BindingsWithdrawn]) -> None:
        """The engine has heard of these."""
        for failure in failures:
            if isinstance(failure, BindFailed):
                self._starts.ended(failure.uid)
            elif failure.gang is not None:
                self._starts.withdrawn(failure.gang, failure.uids)
        for event in events:
            match event:
                case NodeUpserted() | NodeDeleted() | TopologyChanged() | TopologyDeleted():
                    self._reporter.moved()
                case PodDeleted(uid):
                    self._notices.settled(uid)
                    self._without_group.forget(uid)
                    self._binder.forget(uid)
                case PodUpserted(pod) if pod.finished or pod.node_name is not None:
                    self._notices.settled(pod.uid)
                case GroupDeleted(key):
                    self._reporter.forget(key)

    def look_again(self, losing_members: Iterable[str], anew: Iterable[str]) -> None:
        """Gangs that have lost a member, and gangs whose object is a new one or says something new."""
        for key in losing_members:
            self._reporter.lost(key)
        for key in anew:
            self._reporter.heard(key)

    # The binder asks and tells

    def asks(self, bind: Binding) -> Ask:
        """What to do about a binding, by all that was heard up to this moment."""
        return self._under_way.asks(bind) if self._senses.hear() else Ask.LET_GO

    def informed(self) -> bool:
        """Whether the cluster need not be read again first."""
        return self._senses.heartbeat.look()

    async def until_informed(self) -> None:
        """Returns when it was read again."""
        await self._senses.heartbeat.until_informed()

    def may_bind(self) -> bool:
        """Whether nobody else can lead."""
        return self._lead.certain

    async def quiet(self, uid: str) -> None:
        """Returns when nothing is being written about the pod, so that no refusal follows its binding."""
        await self._notices.quiet(uid)
        await self._without_group.quiet(uid)

    def missed(self, bind: Binding, *, in_doubt: bool) -> None:
        """An attempt had no effect, or (``in_doubt``) nobody knows."""
        self._under_way.missed(bind, in_doubt=in_doubt)

    def settled(self, bind: Binding) -> None:
        """No attempt had an effect."""
        self._under_way.settled(bind)

    def bound(self, bind: Binding) -> None:
        """The pod is bound."""
        self._without_group.forget(bind.pod.uid)
        self._under_way.over(bind, bound=True)
        self._meters.bound(bind.pod.uid)
        self._notices.bound(bind)
        self._starts.ended(bind.pod.uid)

    def failed(self, bind: Binding, failure: BindFailed) -> None:
        """The pod is not bound; the engine is to hear of it first."""
        if not self._under_way.over(bind, bound=False):
            return  # It was withdrawn, and something else may be decided about the pod by now.
        self._meters.not_bound(failure.uid, final=failure.final)
        self._failures.append(failure)
        self._senses.news()

    def _withdrawn(self, event: BindingsWithdrawn) -> None:
        self._say("bindings withdrawn", gang=event.gang, pods=len(event.uids), why=event.why)
        for uid in event.uids:
            self._meters.not_bound(uid, final=False)
        self._failures.append(event)
        self._senses.news()
