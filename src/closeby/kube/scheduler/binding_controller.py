"""Carries out decisions: bindings, starts of gangs, what users see of both, evictions of unfinished gangs."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from closeby.applications.registry import app_group_key
from closeby.kube.client.errors import INVALID, ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.gangs.binder import Binder, PreBindStep
from closeby.kube.gangs.evicting import Evictor
from closeby.kube.gangs.gang_statuses import GangStatuses
from closeby.kube.gangs.handed_over import HandedOver
from closeby.kube.gangs.held_places import HeldPlaces
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import Decided, GivenBack, GroupGone, MemberGone, Restarted
from closeby.kube.gangs.volumes import VolumeProblem, VolumeStep, VolumeTrouble
from closeby.kube.preempting.live_preemption import LivePreemption, PreemptionDependencies
from closeby.kube.scheduler.heartbeat import Heartbeat
from closeby.kube.scheduler.observed_preemption import ObservedPreemption
from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from closeby.kube.state.awaited_kinds import AwaitedKinds
from closeby.kube.state.gated_pods import GatedPods
from closeby.kube.state.ownership import OwnGangs
from closeby.kube.watch.changes import Change
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.events import Events
from closeby.kube.writing.leading import Lead
from closeby.kube.writing.placements import PlacementWriter
from closeby.kube.writing.pod_statuses import PodStatuses
from closeby.kube.writing.statuses import ReportingSettings
from closeby.kube.writing.writer import Writer, Written
from closeby.objects.pods import gang_key
from closeby.objects.process import Say
from closeby.objects.quantities import utc
from closeby.objects.reasons import Reason
from closeby.plugins.volume_binding import VolumeBinding
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    BindFailed,
    BindingsWithdrawn,
    CannotBind,
    Event,
    GroupDeleted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    TopologyChanged,
    TopologyDeleted,
    VolumeRefused,
)
from closeby.scheduling.outcomes import Binding, Decision, Leftover, Released, Reserved

#: Conflicts or faults in a row after which a write counts as refused.
_SEEMS_FOR_GOOD: Final = 3
#: Seconds within which volumes must be bound, where no VolumeBinding says so.
_BIND_WITHIN: Final = 600.0


class BindingDependencies(Struct, frozen=True, kw_only=True):
    """What a binding controller works with."""

    transport: Transport
    writer: Writer
    events: Events
    reporting: ReportingSettings
    say: Say
    objects: GangObjects
    #: The gangs that this scheduler schedules.
    own: OwnGangs
    lead: Lead
    meters: SchedulerMeters
    heartbeat: Heartbeat
    #: What is in progress runs there; entered before anything is carried out.
    tasks: asyncio.TaskGroup
    #: Called when there is something for the engine to take in.
    news: Callable[[], None]
    #: Makes the engine take in all there is; returns False when it can't be relied upon any more.
    catch_up: Callable[[], bool]
    #: Whether pods are evicted for plans of preemption, and which of them may be.
    preempting: ObservedPreemption
    #: Kinds that are followed once a pod depends on them.
    awaited: Sequence[AwaitedKinds]
    #: Run before each binding that needs them, in this order.
    steps: Sequence[PreBindStep] = ()


class BindingController:
    """Binds for one scheduler. What failed is kept until the engine takes it in."""

    def __init__(self, engine: Engine, given: BindingDependencies) -> None:
        """Does nothing yet; ``run`` writes and evicts."""
        self._engine = engine
        self.own = given.own
        self._lead = given.lead
        self._meters = given.meters
        self._heartbeat = given.heartbeat
        self._news = given.news
        self.catch_up = given.catch_up
        self._failures: list[BindFailed | BindingsWithdrawn] = []
        #: What keeps pods from being bound, which the engine has not taken in.
        self._refused: list[VolumeRefused | CannotBind] = []
        self._tasks = tasks = given.tasks
        #: Set when nothing new is to be written, and what writes until then.
        self._stopping = asyncio.Event()
        self._writing: list[asyncio.Task[None]] = []
        self._say = say = given.say
        writer, events, objects = given.writer, given.events, given.objects
        self._events = events
        self._finish_within = given.reporting.finish_within
        self._pod_statuses = PodStatuses(writer, events, say, given.reporting, self.informed)
        asked = engine.profile.pre_filters
        within = next((one.bind_timeout for one in asked if isinstance(one, VolumeBinding)), _BIND_WITHIN)
        volumes = VolumeStep(given.transport, engine.cluster, say, within, self)
        self.gated = gated = given.own.pods if isinstance(given.own.pods, GatedPods) else None
        # Where another scheduler binds the pods it binds their volumes too.
        steps = given.steps if gated is not None else (volumes, *given.steps)
        writes = writer if gated is None else PlacementWriter(given.transport, gated.sending, gated.not_sent)
        self._binder = Binder(engine, objects, writes, say, tasks, self, steps)
        starts = self._binder.starts
        self._meters.binds(lambda: (starts.in_flight - starts.preparing, starts.preparing))
        preempting = PreemptionDependencies(
            objects=objects,
            pod_statuses=self._pod_statuses,
            transport=given.transport,
            events=events,
            say=say,
            meters=given.meters.preemption,
            tasks=tasks,
            evicts=given.preempting.evicts,
            writes=given.preempting.writes,
            may_evict=given.preempting.may_evict,
        )
        self.preemption = LivePreemption(engine, preempting, self)
        self._gang_statuses = GangStatuses(
            writer, events, say, objects, starts, given.reporting, self.informed
        )
        self._gang_statuses.preemption = self.preemption.status
        self._gang_statuses.evictions = self.preemption.history.of
        self._held_places = HeldPlaces(engine, writer, events, say, objects, given.reporting, self.informed)
        self._held_places.awaited = given.awaited
        self._evictor = Evictor(given.transport, events, say, self._binder, objects, self._may_evict)
        review = self._gang_statuses.review
        self._handed_over = (
            None if gated is None else HandedOver(gated, events, say, self._waits_for_node, review)
        )

    async def run(self) -> None:
        """Writes what is due and evicts members of unfinished gangs, until it is cancelled."""
        self._writing = [
            self._tasks.create_task(statuses.run(self._stopping))
            for statuses in (self._pod_statuses, self._gang_statuses, self._held_places.workers)
        ]
        if self._handed_over is None:
            await self._evictor.run()
        else:
            await asyncio.gather(self._evictor.run(), self._handed_over.run())

    async def finish(self) -> None:
        """Waits for a while for bindings that were sent, then for statuses and Events.

        What is not known to be ours to write is not written: without the lead nothing is waited for.
        """
        within = self._finish_within if self._lead.certain else 0.0
        self._stopping.set()
        await self.preemption.finish()
        await self._binder.finish(within)
        try:
            async with asyncio.timeout(within):
                await asyncio.gather(*self._writing)
                if self._lead.certain:
                    await self._gang_statuses.finish()
        except TimeoutError:
            if within:
                self._say("statuses not finished", warning=True, after=f"{within:g}s")
        await self._events.finish(within)

    # Decisions

    def resume(self) -> None:
        """Takes up starts and plans of preemption that another replica, or an earlier process, has begun."""
        if self.gated is not None:
            self.gated.took_over()
        self.preemption.resume()
        self._binder.handle(Restarted(_now()))
        for key in tuple(self._engine.state.groups):
            self._gang_statuses.resume(key)

    def carry_out(self, decision: Decision) -> None:
        """Starts the bindings of one decision, and notes what to report about it."""
        outcome = decision.outcome
        if self._held_places.decided(outcome):
            return
        for binding in decision.bindings:
            pod, grouped = binding.pod, None
            if binding.binder is None and app_group_key(pod) is not None:
                grouped = self._engine.applications.of(pod) is not None
            self._pod_statuses.decided(pod, with_group=grouped)
        bindings = tuple(binding for binding in decision.bindings if binding.binder is None)
        for binding in bindings:
            self._meters.binding(binding.pod.uid)
        leftover = outcome.leftover
        for one in leftover:
            self._pod_statuses.refused(one)
        if bindings:
            self._binder.handle(Decided(bindings, _now()))
        self.preemption.decided(outcome)
        if outcome.is_gang and (leftover or outcome.conditions):
            self._gang_statuses.refused(outcome.key)

    def reserved(self, change: Reserved | Released, *, writes: bool) -> None:
        """Reports nodes that are kept for a gang, or no more: in the log alone unless it ``writes``."""
        kept, made = change.reservation, isinstance(change, Reserved)
        self._say(
            "reserved" if made else "released",
            gang=kept.key,
            nodes=len(kept.nodes),
            domain="/".join(value or "" for value in kept.path),
            missing=kept.missing if made else None,
            reason=kept.reason,
            why=change.why if isinstance(change, Released) else None,
        )
        if made:
            self._meters.reserved()
        if writes:
            self._gang_statuses.reserved(change)

    # What happened

    @property
    def pending(self) -> bool:
        """Whether there are failures to take."""
        return bool(self._failures or self._refused) or self.preemption.pending

    def take_failures(
        self,
    ) -> tuple[list[VolumeRefused | CannotBind], tuple[BindFailed | BindingsWithdrawn, ...]]:
        """What keeps pods from being bound, and bindings that did not happen, since the last call."""
        taken = self._refused, tuple(self._failures)
        self._refused, self._failures = [], []
        return taken

    def losing_members(self, events: Iterable[Event]) -> set[str]:
        """Our gangs that lose a member by events which the engine has not taken in: it is gone, or going."""
        pods = self._engine.state.pods
        gone: set[str] = set()
        for event in events:
            match event:
                case PodDeleted(uid) if uid in pods and pods[uid].group is not None:
                    gone.add(gang_key(pods[uid]))
                case PodUpserted(pod) if pod.group is not None and (pod.terminating or pod.phase == "Failed"):
                    gone.add(gang_key(pod))
        # Asked while all members are known.
        return {key for key in gone if key in self.own}

    def accepted(self, events: Iterable[Event]) -> set[str]:
        """Gangs with a member that is bound after the server refused that; the engine has not taken it in."""
        refused = self._engine.stories.refused
        pods = (one.pod for one in events if refused and isinstance(one, PodUpserted))
        return {gang_key(pod) for pod in pods if pod.uid in refused and pod.node_name and pod.group}

    def took_in(
        self,
        events: Iterable[Event],
        failures: tuple[BindFailed | BindingsWithdrawn, ...],
        changes: Iterable[tuple[Resource, Change]],
    ) -> None:
        """The engine has taken in these; ``changes`` is what the watches brought, as it was read."""
        if self._handed_over is not None:
            self._handed_over.take(changes)
        self._binder.handle(GivenBack(failures))
        for event in events:
            match event:
                case NodeUpserted() | NodeDeleted() | TopologyChanged() | TopologyDeleted():
                    self._gang_statuses.moved()
                case PodDeleted(uid):
                    self._pod_statuses.settled(uid)
                    self._binder.forget(uid)
                case PodUpserted(pod) if pod.finished or pod.node_name is not None:
                    self._pod_statuses.settled(pod.uid)
                case GroupDeleted(key):
                    self._binder.handle(GroupGone(key, _now()))
                    self._gang_statuses.forget(key)

    def look_again(self, losing_members: Iterable[str], renewed: Iterable[str]) -> None:
        """Gangs that have lost a member, and gangs whose object is a new one or says something new."""
        for key in losing_members:
            self._binder.handle(MemberGone(key, _now()))
            self._gang_statuses.lost(key)
        for key in renewed:
            self._gang_statuses.renewed(key)
        self._held_places.look()

    # What the step for volumes needs

    def wanted(self, binding: Binding) -> bool:
        """Whether the pod is still to be bound as this says."""
        return self._binder.starts.wanted(binding)

    def volumes_awaited(self, binding: Binding, why: str) -> None:
        """The pod has its node, and is bound when its volumes are."""
        self._cannot_bind((binding,), Reason.VOLUME_NOT_BINDABLE, why)

    def volumes_failed(self, problem: VolumeProblem) -> None:
        """The volumes of a pod can't be had as it was decided: it is placed again."""
        if problem.failure is not None:
            self._refused.append(VolumeRefused(problem.failure))
        server = problem.trouble is VolumeTrouble.SERVER
        reason = Reason.BINDING_REFUSED if server else Reason.VOLUME_NOT_BINDABLE
        self._cannot_bind((problem.binding,), reason, problem.sentence())

    def write_refused(self, bindings: Sequence[Binding], error: ApiError | None, times: int = 1) -> None:
        """The server did not do, so many times in a row, what must be written before these take effect."""
        if error is not None and _is_refusal(error, times):
            why = f"the API server refuses a write that the start needs: {error}"
            self._cannot_bind(bindings, Reason.BINDING_REFUSED, why)

    def _cannot_bind(self, bindings: Sequence[Binding], reason: Reason, why: str) -> None:
        """Users hear of it: on the pods, on their gang, and as the newest decision."""
        pods = [one.pod for one in bindings if one.pod.uid in self._engine.state.pods]
        self._refused.append(CannotBind(tuple(pod.uid for pod in pods), reason, why))
        self._news()
        for pod in pods:
            self._pod_statuses.refused(Leftover(pod, reason, why), placed=True)
        for key in {gang_key(pod) for pod in pods if pod.group is not None}:
            self._gang_statuses.refused(key)

    def volumes_ended(self, seconds: float, trouble: VolumeTrouble | None) -> None:
        """All volumes of a pod are bound after so many seconds, or (``trouble``) are not."""
        self._meters.volumes_ended(seconds, "" if trouble is None else str(trouble))

    # What the binder needs

    def informed(self) -> bool:
        """Whether the cluster need not be read again first."""
        return self._heartbeat.look()

    def _waits_for_node(self, uid: str) -> bool:
        pod = self._engine.state.pods.get(uid)
        return pod is not None and pod.node_name is None

    def _may_evict(self) -> bool:
        return self.gated is None and self.informed()

    async def until_informed(self) -> None:
        """Returns when it was read again."""
        await self._heartbeat.until_informed()

    def may_bind(self) -> bool:
        """Whether no other replica can lead."""
        return self._lead.certain

    async def quiet(self, uid: str) -> None:
        """Returns when nothing is being written about the pod, so that no refusal follows its binding."""
        await self._pod_statuses.before_binding(uid)

    def wake(self) -> None:
        """There is something for the engine to take in."""
        self._news()

    async def write_plan(self, key: str) -> Written:
        """Writes where the gang's members go, and who is evicted for it."""
        return await self._gang_statuses.write_plan(key)

    def bound(self, binding: Binding) -> None:
        """The pod is bound."""
        self._meters.bound(binding.pod.uid)
        if self._handed_over is None:
            self._pod_statuses.bound(binding)
        else:
            self._pod_statuses.settled(binding.pod.uid)
            self._handed_over.placed(binding)

    def give_back(self, failure: BindFailed | BindingsWithdrawn) -> None:
        """The engine is to take it in first."""
        if isinstance(failure, BindFailed):
            self._meters.not_bound(failure.uid, final=failure.final)
        else:
            self._say("bindings withdrawn", gang=failure.gang, pods=len(failure.uids), why=failure.why)
            for uid in failure.uids:
                self._meters.not_bound(uid, final=False)
        self._failures.append(failure)
        self._news()

    def review(self, key: str, *, waits: bool) -> None:
        """The status of the gang may not be true any more."""
        if waits:
            self._gang_statuses.refused(key)
        else:
            self._gang_statuses.review(key)


def _is_refusal(error: ApiError, times: int) -> bool:
    """Whether users are to hear of it: the server refuses for good, or for so long that it seems so.

    A conflict may mean that another writer was faster; a webhook that does not answer is a fault (500).
    """
    if error.code in (409, 500):
        return times >= _SEEMS_FOR_GOOD
    return not error.passing and (error.code is not None or error.reason == INVALID)


def _now() -> str:
    return utc(time.time())
