"""The live scheduler: one engine that is fed with what happens in a cluster, and whose decisions are written.

The engine is asked to decide only when everything is known that was there at the start. Between two rounds of
decisions is a pause, so that what belongs together is taken in together: a gang's pods, say.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from closeby.applications import sorts as graph
from closeby.applications.networks import live_scope
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import unless
from closeby.kube.gangs.binder import PreBindStep
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.metrics.health import Right, seeing
from closeby.kube.scheduler.awaiting import GroupLooks, awaited_kinds
from closeby.kube.scheduler.binding_controller import BindingController, BindingDependencies
from closeby.kube.scheduler.decision_log import DecisionLog
from closeby.kube.scheduler.heartbeat import LIMIT, Heartbeat
from closeby.kube.scheduler.live_engine import live_engine
from closeby.kube.scheduler.measurement_events import MeasurementEvents
from closeby.kube.scheduler.observed_preemption import ObservedPreemption
from closeby.kube.scheduler.refreshing import Refreshing
from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.scheduler.unknown_costs import UnknownCosts
from closeby.kube.state.awaited_kinds import AwaitedKinds
from closeby.kube.state.feed import Feed
from closeby.kube.state.following import FOLLOWED, Following
from closeby.kube.state.gated_pods import GatedPods
from closeby.kube.state.ownership import OurPods, OwnGangs
from closeby.kube.state.unknown_groups import KINDS, UnknownGroups
from closeby.kube.watch.resources import OWNERS, REPLICATION_CONTROLLERS, SELECTED_BY, VOLUMES
from closeby.kube.writing.events import Events
from closeby.kube.writing.leading import Lead
from closeby.kube.writing.lease import LeaseSettings
from closeby.kube.writing.statuses import ReportingSettings
from closeby.kube.writing.writer import Writer
from closeby.objects.process import Contained, Say, collector_paused, settle, spare, thaw
from closeby.reading.configuration import Configuration
from closeby.reading.registry import OWN_GROUP
from closeby.scheduling.events import Event, FlushUnschedulable, ProblemSolved, Tick
from closeby.scheduling.outcomes import (
    Decision,
    Output,
    PreemptionEnded,
    Released,
    Reserved,
    Undecided,
    outcomes_of,
)
from closeby.scheduling.steps import SOLVER_WITHOUT_LIMIT

#: Who we are in Events.
CONTROLLER: Final = "closeby-scheduler"
DEFAULT_NAME: Final = "closeby"
#: Seconds of decisions before others get a turn: bindings are sent, changes taken in, probes answered.
_TURN: Final = 0.05
#: Seconds in which the requests for the next pages of lists are sent.
_REQUESTS_SENT: Final = 0.002
#: Steps of one decision after which it searches no more (see ``closeby.scheduling.steps``): some 0.3 s, for
#: which bindings, changes and probes wait.
STEPS: Final = 300_000
#: Seconds after which all that waits is looked at again, should something happen that no watch reports:
#: what is said may be that old, and users do not see the same in other words more often.
_LOOK_AT_ALL_EVERY: Final = 60.0


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """How a live scheduler behaves (times in seconds)."""

    #: Pods that name it in ``spec.schedulerName`` are ours; with ``gates`` those with our gate.
    scheduler_name: str = DEFAULT_NAME
    gates: bool = False
    #: Unique to this replica.
    instance: str = CONTROLLER
    #: Whether pods that have an owner wait until the pod-grouper has said to which gang they belong.
    pod_grouper: bool = False
    #: Namespaces whose pods wait, whatever scheduler they name.
    excluded_namespaces: tuple[str, ...] = ()
    #: Decide and tell, write nothing.
    dry_run: bool = False
    reporting: ReportingSettings = ReportingSettings()
    #: Between two rounds of decisions. After a round that took longer than ``pause`` it lasts as long as that
    #: round did, up to ``longest_pause``; shorter where the round left something to decide.
    pause: float = 0.05
    longest_pause: float = 1.0
    discover_every: float = 10.0
    #: None: there is one replica only, and it leads.
    lease: LeaseSettings | None = None
    #: Where this process runs as a pod; None: it does not.
    own_namespace: str | None = None


def _needed(settings: SchedulerSettings) -> tuple[Right, ...]:
    """What a scheduler must be allowed to do in any cluster; more where pods have claims, say."""
    seen = seeing(("", "nodes"), ("", "pods"), (OWN_GROUP, "podgroups"))
    if settings.dry_run:
        return seen
    binds = Right("patch", "pods") if settings.gates else Right("create", "pods", subresource="binding")
    says = (Right("patch", "pods", subresource="status"), Right("patch", "podgroups", OWN_GROUP, "status"))
    return *seen, binds, *says


class LiveScheduler:
    """Schedules one cluster's pods until it is stopped."""

    def __init__(
        self,
        transport: Transport,
        configuration: Configuration,
        settings: SchedulerSettings,
        say: Say,
        meters: SchedulerMeters | None = None,
        steps: Sequence[PreBindStep] = (),
    ) -> None:
        """Makes the engine; ``meters`` count what it does, and ``steps`` run before bindings that need them.

        Raises:
            ConfigurationError: the configuration names what no plugin knows.
        """
        self._settings = settings
        self._say = say
        self._meters = meters or SchedulerMeters(settings.scheduler_name)
        self._following = self._watches(transport)
        networks = live_scope(
            configuration.network_topology_namespaces,
            settings.own_namespace,
            beside=configuration.tenant_network_topologies,
        )
        unknown = UnknownGroups(configuration.unknown_app_group_delay, lambda: self._following.listed(KINDS))
        awaited = awaited_kinds(self._following)
        self._looks = GroupLooks(transport, self._following, unknown)
        self.engine = live_engine(configuration, networks, unknown, awaited, settings.excluded_namespaces)
        self._meters.shows(self.engine)
        ours = GatedPods() if settings.gates else OurPods(settings.scheduler_name)
        self._feed = Feed(
            ours,
            pod_grouper=settings.pod_grouper,
            networks=networks,
            unknown=unknown,
            awaited=awaited,
            own_namespace=settings.own_namespace,
        )
        self._objects = GangObjects()
        self._lead = Lead(transport, settings.lease, say, _needed(settings))
        writer = Writer(transport, CONTROLLER, settings.instance)
        events = Events(writer, say, wanted=settings.reporting.events)
        self._events = None if settings.dry_run else events
        self._measurement_events = self._about_measurements(transport, events)
        self._refreshing = Refreshing(
            self.engine.profile.measured, say, self._following.news.set, self._measurement_events
        )
        self._meters.measures(self._refreshing.known)
        self._observed = ObservedPreemption(self.engine, settings, say, self._meters)
        self._unknown_costs = UnknownCosts(self.engine, say)
        self._lines = DecisionLog(say, dry_run=settings.dry_run, refused=self.engine.stories.refused)
        limit = LIMIT if settings.lease is None else min(LIMIT, settings.lease.deadline)
        self._heartbeat = Heartbeat(limit, self._stood_still)
        #: What is under way in ``run``.
        self._tasks = asyncio.TaskGroup()
        #: Reading the cluster again.
        self._reading: set[asyncio.Task[None]] = set()
        #: By item the problems that are being solved, and those that were since they were taken in.
        self._solving: dict[str, asyncio.Task[None]] = {}
        self._solved: list[ProblemSolved] = []
        self._solver = asyncio.Lock()
        own = OwnGangs(ours, self.engine.state, self._feed.foreign)
        self._bindings = self._binding(transport, writer, events, own, awaited, steps)
        #: What went wrong where the engine was to take something in.
        self._broken: Exception | None = None
        #: When everything that waits is looked at again (monotonic seconds).
        self._look_at_all = time.monotonic() + _LOOK_AT_ALL_EVERY
        #: Whether more is left to decide than there was time for, and whether one decision ever took a turn.
        self._more = self._searches = False
        #: Whether starts that were cut off are being carried on.
        self._resumed = False
        #: Set once everything was listed that was there at the start.
        self.listed = asyncio.Event()
        #: Whether it leads, and what it knows so far is not older than that, or is not complete.
        self._caught_up = False
        #: Set once the first round of decisions was made.
        self.ready = asyncio.Event()

    def _watches(self, transport: Transport) -> Following:
        return Following(
            transport,
            self._say,
            followed=(*FOLLOWED, *OWNERS),
            core=(*SELECTED_BY, *VOLUMES, REPLICATION_CONTROLLERS),
            discover_every=self._settings.discover_every,
            meters=self._meters,
        )

    def _about_measurements(self, transport: Transport, events: Events) -> MeasurementEvents | None:
        """Events about lost measurements, which are on the Lease; None without one."""
        lease = self._settings.lease
        if lease is None:
            return None
        self._meters.leads(lease.name, lambda: self._lead.certain)
        return MeasurementEvents(transport, events, self._lead, lease, self._say)

    def _binding(
        self,
        transport: Transport,
        writer: Writer,
        events: Events,
        own: OwnGangs,
        awaited: Sequence[AwaitedKinds],
        steps: Sequence[PreBindStep],
    ) -> BindingController:
        given = BindingDependencies(
            transport=transport,
            writer=writer,
            events=events,
            reporting=self._settings.reporting,
            say=self._say,
            tasks=self._tasks,
            objects=self._objects,
            own=own,
            lead=self._lead,
            meters=self._meters,
            heartbeat=self._heartbeat,
            news=self._following.news.set,
            catch_up=self._catch_up,
            preempting=self._observed,
            awaited=awaited,
            steps=steps,
        )
        return BindingController(self.engine, given)

    @property
    def leading(self) -> bool:
        """Whether this replica decides."""
        return self._lead.certain

    async def run(self, stop: asyncio.Event) -> ApiError | None:
        """Schedules until ``stop`` is set, then finishes what was sent. To be called once.

        Returns an error if the cluster can't be talked to, or (``LEASE_LOST``) if another replica may lead.
        """
        error = await unless(stop, self._following.look)
        if stop.is_set() or error is not None:
            return error
        thaw()
        lost: ApiError | None = None
        async with self._tasks as tasks:
            campaign = tasks.create_task(self._lead.campaign())
            beside = [
                tasks.create_task(one)
                for one in (
                    self._wake_to_lead(),
                    self._load_graphs(),
                    self._following.run(),
                    self._refreshing.run(),
                    self._unknown_costs.run(self.listed),
                    self._looks.run(),
                    self._heartbeat.run(),
                )
            ]
            work = [tasks.create_task(self._decide())]
            if not self._settings.dry_run:
                work.append(tasks.create_task(self._bindings.run()))
                if self._measurement_events is not None:
                    work.append(tasks.create_task(self._measurement_events.run(stop)))
            stopped = tasks.create_task(stop.wait())
            await asyncio.wait([stopped, campaign], return_when=asyncio.FIRST_COMPLETED)
            self._say("stopping")
            for task in work:
                task.cancel()
            # What they were about to tell is due again then.
            await asyncio.wait(work)
            if campaign.done():
                lost = campaign.result()
            await self._bindings.finish()
            for other in (*beside, *self._reading, *self._solving.values(), stopped, campaign):
                other.cancel()
        self._say("stopped")
        return lost

    @property
    def unready(self) -> str | None:
        """Why it is not ready to schedule, or to take over; None when it is."""
        return self._lead.rights.lacking or self._following.unready

    # Rounds

    async def _decide(self) -> None:
        while True:
            await self._news()
            await asyncio.sleep(self._pause_after(self._round()))

    def _pause_after(self, took: float) -> float:
        """Seconds until the next round, after one that took so many."""
        if not self._following.complete:
            # Nothing else is to be done. The server makes the next pages of all lists while these are taken
            # in, so that there is always something to do, if the requests for them are sent before.
            return max(_REQUESTS_SENT, self._settings.pause - took)
        # Others have as long: bindings are sent, probes are answered, changes are taken in.
        pause = took if self._more else max(self._settings.pause, took)
        return min(pause, self._settings.longest_pause)

    async def _load_graphs(self) -> None:
        """What only applications need. Those that are there at the start load it as they are taken in."""
        await self.listed.wait()
        await asyncio.to_thread(graph.load)

    async def _wake_to_lead(self) -> None:
        await self._lead.held.wait()
        if self.listed.is_set():
            # It stood by, and what it received may be late: the one that led may have written meanwhile.
            await self._following.refresh()
        self._caught_up = True
        self._following.news.set()

    async def _news(self) -> None:
        """Returns when there is something to decide, something new, or what was refused has rested enough."""
        if self._more:
            return
        until = self._look_at_all
        by_date = (self.engine.next_preemption, self.engine.next_relaxation)
        if self._lead.held.is_set():
            until = min(until, self.engine.next_backoff_end or until)
            ahead = time.monotonic() - time.time()
            until = min((until, *(one + ahead for one in by_date if one is not None)))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self._following.news.wait()

    def _round(self) -> float:
        """Takes in what came, which may go first, and decides for a turn; returns its own seconds."""
        if self._broken is not None:
            raise self._broken
        began = time.monotonic()
        self._more = False
        self._take_in()
        if not self._following.complete:
            return time.monotonic() - began
        self._heartbeat.read()
        if not self.listed.is_set():
            settle()
            self.listed.set()
        if self._may_decide:
            if not self._resumed:
                self._resumed = True
                self._bindings.resume()
            self._more = self._decide_for_a_while()
            if not self.ready.is_set() and (not self._more or self._searches):
                self.ready.set()
                self._say("ready", nodes=sum(node is not None for node in self.engine.cluster.nodes))
        return time.monotonic() - began

    @property
    def _may_decide(self) -> bool:
        return self._caught_up and self._following.complete and self._refreshing.begun

    def _decide_for_a_while(self) -> bool:
        """Decides item by item until others should have a turn; whether something is left."""
        began = now = time.monotonic()
        while now < began + _TURN:
            outputs = self.engine.handle(Tick(now, limit=1, steps=STEPS, wall=time.time()))
            if not outputs:
                return False
            took, now = time.monotonic() - now, time.monotonic()
            self._meters.decided(outcomes_of(outputs), took)
            self._carry_out(outputs)
            self._searches |= took > _TURN
        return True

    def _catch_up(self) -> bool:
        """Takes in what was received, should there be anything, before something is sent."""
        if self._broken is None and (self._following.pending or self._bindings.pending):
            with Contained() as taking:
                self._take_in()
            self._broken = taking.error
            # What it means for those that wait is looked at in the next round.
            self._following.news.set()
        return self._broken is None

    def _stood_still(self, seconds: float) -> None:
        self._say("event loop stalled", warning=True, seconds=f"{seconds:.1f}")
        self._following.distrust()
        reading = self._tasks.create_task(self._following.refresh())
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    def _take_in(self) -> None:
        with self._heartbeat.working(), collector_paused():
            changes = self._following.take()
            renewed = self._objects.take(changes)
            self._bindings.preemption.look(changes)
            self._feed.can_keep_plans(self._following.follows(OWN_GROUP, "PodGroup"))
            fed = self._feed.take(changes)
            renewed |= self._feed.foreign.news()
            refused, failures = self._bindings.take_failures()
            losing_members = self._bindings.losing_members(fed.events)
            renewed |= self._bindings.accepted(fed.events)
            reports = (*refused, *failures, *self._bindings.preemption.take())
            solved, self._solved = self._solved, []
            events: tuple[Event, ...] = (*fed.events, *reports, *self._refreshing.take(), *solved)
            if time.monotonic() > self._look_at_all:
                self._look_at_all = time.monotonic() + _LOOK_AT_ALL_EVERY
                events = (*events, FlushUnschedulable())
            self.engine.handle(*events)
            if not self.listed.is_set():
                spare()
        self._meters.took_in(fed.events)
        self._bindings.took_in(fed.events, failures, changes)
        self._unknown_costs.took_in(fed.events)
        if self._resumed and not self._settings.dry_run:
            self._bindings.look_again(losing_members, renewed)
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

    def _carry_out(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            match output:
                case Decision():
                    self._lines.decided(output)
                    self._observed.decided(output.outcome, self._events, self._objects)
                    if not self._settings.dry_run:
                        self._bindings.carry_out(output)
                case Reserved() | Released():
                    self._bindings.reserved(output, writes=not self._settings.dry_run)
                case Undecided():
                    self._solve(output)
                case PreemptionEnded():
                    self._bindings.preemption.ended(output)

    def _solve(self, undecided: Undecided) -> None:
        """Solve the problem of an item in a thread, one at a time for each item."""
        if undecided.key not in self._solving:
            solving = self._tasks.create_task(self._solved_in_a_thread(undecided))
            self._solving[undecided.key] = solving
            solving.add_done_callback(lambda _: self._solving.pop(undecided.key, None))

    async def _solved_in_a_thread(self, undecided: Undecided) -> None:
        program = undecided.program
        async with self._solver:
            solution = await asyncio.to_thread(program.solve, SOLVER_WITHOUT_LIMIT)
        self._solved.append(ProblemSolved(undecided.key, program.key, solution))
        self._following.news.set()
