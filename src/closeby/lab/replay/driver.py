"""One run over time: the very engine, fed by a virtual clock with jobs that arrive, wait, run and end.

Durations are given and do not depend on where a job is. A run ends when nothing can happen any more: jobs
that still wait then could never be placed.

Where jobs have several priorities they preempt each other by the policy's rule. Victims end at once and wait
again: a job that loses a pod loses all of them, and goes on from its last checkpoint.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.errors import UnrunnableError
from closeby.lab.replay.clusters import (
    GivenCluster,
    room_of,
    too_large,
    too_many_cores,
    too_many_pods,
    usual_needs,
)
from closeby.lab.replay.event_queue import Checkpoints, EventQueue, Work
from closeby.lab.replay.failures import PATIENCE, FailureRate, NodeFailures
from closeby.lab.replay.history import History
from closeby.lab.replay.recording import Recorder
from closeby.lab.replay.standstill import Standstill
from closeby.lab.replay.submitting import Submitter, Wishes, talk_of, tree_of
from closeby.lab.workloads.generating import CPU
from closeby.lab.workloads.jobs import Jobs
from closeby.objects.arrays import Floats
from closeby.objects.pods import Pod
from closeby.objects.process import collector_paused
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Event, FlushUnschedulable, MeasurementsChanged, NodeUpserted, Tick
from closeby.scheduling.extension import PlacementGenerate
from closeby.scheduling.outcomes import (
    Binding,
    Decision,
    ItemKind,
    Outcome,
    Output,
    Preemption,
    Released,
    Reserved,
    bindings_of,
)
from closeby.scheduling.preemption.rule import PodTimes, Preemptible


class Policy(Struct, frozen=True, kw_only=True):
    """How jobs are placed."""

    #: What the configuration is called in reports.
    name: str = "default"
    configuration: Configuration = Configuration()
    #: What its plugins decide by besides. It holds for the whole run.
    measurements: tuple[MeasurementsChanged, ...] = ()


class ReplaySettings(Struct, frozen=True, kw_only=True):
    """What is run, on a cluster and with jobs that are given."""

    policy: Policy = Policy()
    #: Seed of the workload; None for a trace.
    seed: int | None = None
    wishes: Wishes = Wishes()
    #: Virtual seconds after which the run stops; None: when all that can end has ended.
    until: float | None = None
    #: Whether jobs of lower priority make room, and what these keep of their work.
    preempt: bool = True
    checkpoints: Checkpoints = Checkpoints()
    #: How many nodes are out of order; None: none ever is.
    failures: FailureRate | None = None
    #: Whether the pods of a job have a deadline, which is as long as the job takes.
    deadlines: bool = False


def engine_of(cluster: GivenCluster, policy: Policy) -> Engine:
    """An engine that knows the cluster, and what was measured there.

    Raises:
        ConfigurationError: the configuration names what no plugin knows.
    """
    configuration = policy.configuration
    engine = Engine(
        lambda handle: profile_for(configuration, handle),
        backoff=False,
        reserve_after=configuration.reserve_after,
    )
    cluster.enter(engine)
    engine.handle(*policy.measurements)
    return engine


#: Moments between two reports of progress.
_STRIDE = 256

#: Called with the number of jobs that have ended or will never start.
Progress = Callable[[int], None]


def replay(
    jobs: Jobs,
    cluster: GivenCluster,
    settings: ReplaySettings,
    progress: Progress | None = None,
    after_each: Callable[[Engine], None] | None = None,
) -> History:
    """Run jobs on a cluster. The same input gives the same history.

    ``after_each`` is called after every moment (tests assert the engine's invariants there).

    Raises:
        ConfigurationError: the configuration names what no plugin knows.
        UnrunnableError: see there.
    """
    engine = engine_of(cluster, settings.policy)
    with collector_paused():
        return _Replay(jobs, cluster, settings, engine).run(progress, after_each)


class _Replay:
    """One run."""

    def __init__(self, jobs: Jobs, cluster: GivenCluster, settings: ReplaySettings, engine: Engine) -> None:
        self._jobs = jobs
        self._settings = settings
        self._engine = engine
        self._tree = tree_of(engine, settings.wishes)
        self._room = room_of(engine, cluster.resource, cluster.tolerations)
        if jobs.gpus.any() and not self._room.total.any():
            raise UnrunnableError(
                f"no node that pods tolerate offers {cluster.resource}; "
                "name with --resource what jobs ask for"
            )
        with_each = usual_needs(cluster.nodes, cluster.resource)
        self._queue = EventQueue(jobs.submitted)
        self._work = Work(jobs, settings.checkpoints)
        lasts = self._work.lasts if settings.deadlines else None
        self._submitter = Submitter(
            jobs, cluster.resource, with_each, settings.wishes, settings.seed, lasts, cluster.tolerations
        )
        self._recorder = Recorder(jobs)
        self._now = 0.0
        #: The slots of each job that runs.
        self._running: dict[int, list[int]] = {}
        #: The plans of this moment: who gets the room, and whose pods must go.
        self._plans: list[Preemption] = []
        # Applications start pod by pod: what of them is lost with a pod is not known.
        if settings.preempt and len(np.unique(jobs.priorities)) > 1 and not any(jobs.graphs):
            engine.preempt(Preemptible(times=self._times))
        self._pods: list[int] = jobs.pods.tolist()
        self._too_large = too_many_pods(jobs, room_of(engine, "pods", cluster.tolerations).free)
        self._too_large.update(too_large(jobs, self._room, self._tree, settings.wishes.bounds))
        self._cpu = room_of(engine, CPU, cluster.tolerations)
        self._too_large.update(too_many_cores(jobs, self._cpu))
        #: Applications of which some pods are placed: slot of each by its index.
        self._partly: dict[int, dict[int, int]] = {}
        self._done = 0
        self._failures = self._failing(settings)

    def _failing(self, settings: ReplaySettings) -> NodeFailures | None:
        if settings.failures is None:
            return None
        if any(self._jobs.graphs):
            raise UnrunnableError("--failures: applications don't start again as jobs do; leave it out")
        failures = NodeFailures(settings.failures, self._tree, settings.seed or 0)
        self._engine.handle(*(self._node(slot, ready=False) for slot in failures.first))
        return failures

    def run(self, progress: Progress | None, after_each: Callable[[Engine], None] | None) -> History:
        now = 0.0
        moments = 0
        end = inf if self._settings.until is None else self._settings.until
        idle = 0
        standstill = Standstill()
        while True:
            moment = self._next()
            if self._failures is not None:
                idle = idle + 1 if moment == inf else 0
                if moment < inf or (self._recorder.queued and idle <= PATIENCE):
                    moment = min(moment, self._failures.next())
            if moment > end or moment == inf:
                if self._looks_again(now):
                    continue
                now = end if moment < inf else now
                break
            now = moment
            standstill.moment(now, happened=self._moment(now))
            moments += 1
            if after_each is not None:
                after_each(self._engine)
            if progress is not None and moments % _STRIDE == 0:
                progress(self._done)
        cluster = self._engine.cluster
        if self._failures is not None:
            self._recorder.outages = self._failures.outages(now)
        return self._recorder.history(
            segments=tuple(
                (self._tree.level_named(one.level) or 0, one.size) for one in self._settings.wishes.segments
            ),
            policy=self._settings.policy.name,
            seed=self._settings.seed,
            tree=self._tree,
            nodes=tuple(name or "" for name in cluster.names),
            room=(self._room.free, self._cpu.free),
            until=now,
        )

    def _next(self) -> float:
        """When something happens: a job arrives or ends, or one that waits may preempt from then on."""
        preempts = self._engine.next_preemption
        return self._queue.next() if preempts is None else min(self._queue.next(), preempts)

    def _moment(self, now: float) -> bool:
        """Everything that happens at one time, and what is decided then; False if nothing came of it."""
        recorder, queue, submitter = self._recorder, self._queue, self._submitter
        events: list[Event] = []
        self._now = now
        for job in queue.ends(now):
            recorder.ends(job, now)
            self._running.pop(job, None)
            events.extend(submitter.leaves(job))
            self._done += 1
        events.extend(self._node_changes(now))
        arrivals = queue.arrivals(now)
        for job in arrivals:
            if job in self._too_large:
                recorder.refuses(job, self._too_large[job])
                self._done += 1
                continue
            recorder.arrives(job)
            events.extend(submitter.arrives(job))
        happened = bool(events) or len(arrivals) > 0
        decisions = self._engine.handle(*events, Tick(now))
        self._carry_out(decisions, now)
        return self._make_room(now) or happened or bool(bindings_of(decisions))

    def _node_changes(self, now: float) -> Iterator[Event]:
        """Nodes fail and come back. A job that loses a node ends, and waits again."""
        for slot, fails in () if self._failures is None else self._failures.changes(now):
            for job in [job for job, slots in self._running.items() if fails and slot in slots]:
                del self._running[job]
                self._queue.cuts(job)
                self._recorder.evicts(job, -1, now, self._work.cut(job, now), failed=slot)
                yield from self._submitter.comes_back(job, now)
            yield self._node(slot, ready=not fails)

    def _node(self, slot: int, *, ready: bool) -> NodeUpserted:
        node = self._engine.cluster.nodes[slot]
        assert node is not None
        return NodeUpserted(replace(node, ready=ready))

    def _make_room(self, now: float) -> bool:
        """Evict whom the plans name, until none is left; True if there was one."""
        evicted = False
        while self._plans:
            plans, self._plans, evicted = self._plans, [], True
            events = [event for plan in plans for event in self._evict(plan, now)]
            self._carry_out(self._engine.handle(*events, Tick(now)), now)
        return evicted

    def _evict(self, plan: Preemption, now: float) -> Iterator[Event]:
        by = self._submitter.number_of[plan.preemptor]
        victims = (self._submitter.job_of(pod) for pod in plan.victims)
        for job in dict.fromkeys(job for job in victims if job is not None):
            if job not in self._running:
                continue  # Another plan of this moment had a pod of it.
            del self._running[job]
            self._queue.cuts(job)
            self._recorder.evicts(job, by, now, self._work.cut(job, now))
            yield from self._submitter.comes_back(job, now)

    def _times(self, pod: Pod) -> PodTimes | None:
        """When a job's run began and what it has on disk; None for pods of the cluster, which stay."""
        job = self._submitter.job_of(pod)
        return None if job is None else PodTimes(*self._work.since(job, self._now))

    def _looks_again(self, now: float) -> bool:
        """Try all that waits once more at the end; True when something found a place.

        What lacks room still is not tried on the way, though by now it may wait for another reason than the
        one that it recorded. When this is False everything says what keeps it out now.
        """
        if not self._engine.unschedulable:
            return False
        decisions = self._engine.handle(FlushUnschedulable(), Tick(now))
        self._carry_out(decisions, now)
        return self._make_room(now) or bool(bindings_of(decisions))

    def _carry_out(self, decisions: Iterable[Output], now: float) -> None:
        recorder, number_of = self._recorder, self._submitter.number_of
        for decision in decisions:
            match decision:
                case Decision(outcome):
                    self._note(number_of[outcome.key], outcome, now)
                case Reserved(reserved):
                    slots = map(self._engine.cluster.slot_of, reserved.nodes)
                    recorder.reserves(number_of[reserved.key], now, slots)
                case Released(released, why):
                    recorder.releases(now, why, released.reason or "")
        recorder.sample(now)

    def _note(self, job: int, outcome: Outcome, now: float) -> None:
        self._plans += [plan for plan in outcome.preemptions if not plan.observed]
        if outcome.refused:
            self._recorder.refusals[job] = outcome.full_message or ""
        elif outcome.kind is ItemKind.APPLICATION:
            self._deployed(job, outcome, now)
        elif outcome.bindings:
            self._start(job, self._slots(outcome.bindings), now)

    def _start(self, job: int, slots: list[int], now: float) -> None:
        self._recorder.starts(job, now, slots)
        self._recorder.again[job] = self._work.again(job)
        self._running[job] = slots
        self._queue.starts(job, self._work.starts(job, now))

    def _deployed(self, job: int, outcome: Outcome, now: float) -> None:
        """Some pods of an application were placed, or none; it starts when all are."""
        held = self._partly.setdefault(job, {})
        cluster = self._engine.cluster
        for one in outcome.bindings:
            held[one.pod.index or 0] = cluster.slot_of(one.node)
        if len(held) < self._pods[job]:
            self._recorder.refusals[job] = next((left.message for left in outcome.leftover), "")
            return
        slots = [held[index] for index in sorted(self._partly.pop(job))]
        self._start(job, slots, now)
        graph = self._jobs.graphs[job]
        talk = None if graph is None else talk_of(self._engine, outcome.key, graph, slots)
        if talk is not None:
            self._recorder.talk[job] = talk

    def _slots(self, bindings: tuple[Binding, ...]) -> list[int]:
        slot_of = self._engine.cluster.slot_of
        if len(bindings) > 1:
            bindings = tuple(sorted(bindings, key=_rank))
        return [slot_of(one.node) for one in bindings]


def _rank(binding: Binding) -> int:
    return binding.rank or 0


def unconstrained_waits(history: History, cluster: GivenCluster, settings: ReplaySettings) -> Floats | None:
    """What each job of a run waits in the same run when no level is required; seconds, shape (J,).

    Required is what jobs ask for (segments, too), and what plugins of the policy require by themselves:
    these are left out of the second run, so that gangs go wherever the rest of the policy puts their pods.
    None where neither requires anything.

    Jobs that are too large with the requirement are left out (nan): they would run without it, and others
    would wait for them.
    """
    policy = settings.policy
    confining = {
        name
        for plugin in engine_of(cluster, policy).profile.plugins
        if isinstance(plugin, PlacementGenerate) and plugin.requires_by_itself
        for name in (plugin.name, f"{type(plugin).__module__}:{type(plugin).__name__}")
    }
    if not settings.wishes.bounds and not confining:
        return None
    free = replace(policy, configuration=_without(policy.configuration, confining))
    wishes = replace(settings.wishes, required=None, segments=())
    possible = np.ones(len(history.jobs), dtype=np.bool_)
    possible[list(history.impossible)] = False
    run = replay(history.jobs.only(possible), cluster, replace(settings, policy=free, wishes=wishes))
    waited = np.full(len(history.jobs), np.nan)
    waited[possible] = run.waited
    return waited


def _without(configuration: Configuration, names: set[str]) -> Configuration:
    return replace(
        configuration, plugins=tuple(one for one in configuration.plugins if one.name not in names)
    )
