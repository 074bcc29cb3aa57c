"""One run over time: the very engine, fed by a virtual clock with jobs that arrive, wait, run and end.

Durations are given and do not depend on where a job is. A run ends when nothing can happen any more: jobs
that still wait then could never be placed.
"""

import gc
import heapq
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.errors import UnrunnableError
from closeby.lab.replay.clusters import (
    GivenCluster,
    judged_in,
    room_of,
    too_large,
    too_many_cores,
    too_many_pods,
    usual_needs,
)
from closeby.lab.replay.history import History, Recorder
from closeby.lab.replay.submitting import Submitter, Wishes, talk_of
from closeby.lab.workloads.generating import CPU
from closeby.lab.workloads.jobs import Jobs
from closeby.objects.arrays import Floats
from closeby.objects.labels import HOSTNAME
from closeby.objects.words import suggestion
from closeby.plugins.registry import profile_for
from closeby.quality.delays import waits
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Event, FlushUnschedulable, MeasurementsChanged, Tick
from closeby.scheduling.extension import PlacementGenerate
from closeby.scheduling.outcomes import (
    Binding,
    Decision,
    ItemKind,
    Outcome,
    Output,
    Released,
    Reserved,
    bindings_of,
)
from closeby.topology.tree import Tree, level_meant


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


class Agenda:
    """Arrivals, which are known beforehand, and ends, which are known once a job has started."""

    def __init__(self, submitted: Floats) -> None:
        """``submitted``: when each job arrives, ascending; seconds."""
        self._submitted: list[float] = submitted.tolist()
        self._arrived = 0
        #: Heap of (end, job).
        self._ends: list[tuple[float, int]] = []

    def starts(self, job: int, until: float) -> None:
        """A job has started and runs until then."""
        heapq.heappush(self._ends, (until, job))

    def next(self) -> float:
        """The next moment at which a job arrives or ends; infinity when nothing is to come."""
        arrives = self._submitted[self._arrived] if self._arrived < len(self._submitted) else inf
        return min(arrives, self._ends[0][0]) if self._ends else arrives

    def arrivals(self, now: float) -> range:
        """The jobs that have arrived since the last call."""
        first = self._arrived
        while self._arrived < len(self._submitted) and self._submitted[self._arrived] <= now:
            self._arrived += 1
        return range(first, self._arrived)

    def ends(self, now: float) -> list[int]:
        """The jobs that have ended since the last call; by end, then by number."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            ended.append(heapq.heappop(self._ends)[1])
        return ended


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
    with _no_collection():
        return _Replay(jobs, cluster, settings, engine).run(progress, after_each)


class _Replay:
    """One run."""

    def __init__(self, jobs: Jobs, cluster: GivenCluster, settings: ReplaySettings, engine: Engine) -> None:
        self._jobs = jobs
        self._settings = settings
        self._engine = engine
        self._tree = tree_of(engine, settings.wishes)
        self._room = room_of(engine, cluster.resource)
        if jobs.gpus.any() and not self._room.total.any():
            raise UnrunnableError(
                f"no node offers {cluster.resource}; name what jobs ask for with --resource"
            )
        with_each = usual_needs(cluster.nodes, cluster.resource)
        self._submitter = Submitter(jobs, cluster.resource, with_each, settings.wishes, settings.seed)
        self._agenda = Agenda(jobs.submitted)
        self._recorder = Recorder(jobs)
        self._durations: list[float] = jobs.durations.tolist()
        self._pods: list[int] = jobs.pods.tolist()
        self._too_large = too_many_pods(jobs, room_of(engine, "pods").free)
        self._too_large.update(too_large(jobs, self._room, self._tree, settings.wishes.required))
        self._cpu = room_of(engine, CPU)
        self._too_large.update(too_many_cores(jobs, self._cpu))
        #: Applications of which some pods are placed: slot of each by its index.
        self._partly: dict[int, dict[int, int]] = {}
        self._done = 0

    def run(self, progress: Progress | None, after_each: Callable[[Engine], None] | None) -> History:
        now = 0.0
        moments = 0
        end = inf if self._settings.until is None else self._settings.until
        while True:
            moment = self._agenda.next()
            if moment > end or moment == inf:
                if self._looks_again(now):
                    continue
                now = end if moment < inf else now
                break
            now = moment
            self._moment(now)
            moments += 1
            if after_each is not None:
                after_each(self._engine)
            if progress is not None and moments % _STRIDE == 0:
                progress(self._done)
        cluster = self._engine.cluster
        return self._recorder.history(
            policy=self._settings.policy.name,
            seed=self._settings.seed,
            tree=self._tree,
            nodes=tuple(name or "" for name in cluster.names),
            room=(self._room.free, self._cpu.free),
            until=now,
        )

    def _moment(self, now: float) -> None:
        """Everything that happens at one time, and what is decided then."""
        recorder, agenda, submitter = self._recorder, self._agenda, self._submitter
        events: list[Event] = []
        for job in agenda.ends(now):
            recorder.ends(job, now)
            events.extend(submitter.leaves(job))
            self._done += 1
        for job in agenda.arrivals(now):
            if job in self._too_large:
                recorder.refuses(job, self._too_large[job])
                self._done += 1
                continue
            recorder.arrives(job)
            events.extend(submitter.arrives(job))
        events.append(Tick(now))
        self._carry_out(self._engine.handle(*events), now)

    def _looks_again(self, now: float) -> bool:
        """Try all that waits once more at the end; True when something found a place.

        What lacks room still is not tried on the way, though by now it may wait for another reason than the
        one that it recorded. When this is False everything says what keeps it out now.
        """
        if not self._engine.unschedulable:
            return False
        decisions = self._engine.handle(FlushUnschedulable(), Tick(now))
        self._carry_out(decisions, now)
        return bool(bindings_of(decisions))

    def _carry_out(self, decisions: Iterable[Output], now: float) -> None:
        recorder, number_of = self._recorder, self._submitter.number_of
        for decision in decisions:
            match decision:
                case Decision(outcome):
                    self._note(number_of[outcome.key], outcome, now)
                case Reserved(reserved):
                    slots = map(self._engine.cluster.slot_of, reserved.nodes)
                    recorder.reserves(number_of[reserved.key], now, slots)
                case Released(_, why):
                    recorder.releases(now, why)
        recorder.sample(now)

    def _note(self, job: int, outcome: Outcome, now: float) -> None:
        if outcome.refused:
            self._recorder.refusals[job] = outcome.full_message or ""
        elif outcome.kind is ItemKind.APPLICATION:
            self._deployed(job, outcome, now)
        elif outcome.bindings:
            self._start(job, self._slots(outcome.bindings), now)

    def _start(self, job: int, slots: list[int], now: float) -> None:
        self._recorder.starts(job, now, slots)
        self._agenda.starts(job, now + self._durations[job])

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


def in_full(engine: Engine, wishes: Wishes) -> Wishes:
    """The wishes with the labels of levels that are named by the last word of their label only.

    Raises:
        UnrunnableError: several levels end so.
    """
    tree = judged_in(engine, wishes.topology)

    def meant(wish: str | None) -> str | None:
        if wish is None or tree is None or tree.level_named(wish) is not None:
            return wish
        try:
            return level_meant(tree.levels, wish)
        except ValueError as error:
            raise UnrunnableError(str(error)) from error

    return replace(wishes, required=meant(wishes.required), preferred=meant(wishes.preferred))


def tree_of(engine: Engine, wishes: Wishes) -> Tree:
    """The topology in which places are judged, which has all levels that are asked for.

    Raises:
        UnrunnableError: there is no such topology, or no such level.
    """
    tree = judged_in(engine, wishes.topology)
    names = engine.topologies.usable()
    if tree is None and wishes.topology is not None:
        known = f"there {'are' if len(names) > 1 else 'is'} {', '.join(names)}" if names else "there is none"
        raise UnrunnableError(
            f"there is no topology {wishes.topology}; {known}{suggestion(wishes.topology, names)}"
        )
    if tree is None:
        raise UnrunnableError(
            f"there are {len(names)} topologies; say in which one places are judged: {', '.join(names)}"
        )
    for wish in (wishes.required, wishes.preferred):
        if wish is not None and tree.level_named(wish) is None:
            if not names:
                raise UnrunnableError(
                    f"there is no topology, and so no level {wish}; add a Topology to the files"
                )
            raise UnrunnableError(_no_level(tree, wish))
    indices = [tree.level_named(wish) for wish in (wishes.required, wishes.preferred) if wish is not None]
    if len(indices) == 2 and (indices[1] or 0) < (indices[0] or 0):
        raise UnrunnableError(
            f"the preferred level {wishes.preferred} is coarser than the required one, {wishes.required}; "
            "prefer that one or a finer one"
        )
    return tree


def _no_level(tree: Tree, wish: str) -> str:
    """Single nodes are a level of every tree, but may be asked for only where they are declared one."""
    single = tree.level_names[-1]
    declared = tree.level_names if tree.host_level is not None else tree.level_names[:-1]
    remedy = f"; add {HOSTNAME} to its levels" if wish in (single, HOSTNAME) else ""
    known = f"there {'are' if len(declared) > 1 else 'is'} {', '.join(declared)}"
    return f"topology {tree.name} has no level {wish}; {known}{remedy or suggestion(wish, declared)}"


def _rank(binding: Binding) -> int:
    return binding.rank or 0


@contextmanager
def _no_collection() -> Iterator[None]:
    """No search for garbage during a run, whose records hold no cycles."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def unconstrained_waits(history: History, cluster: GivenCluster, settings: ReplaySettings) -> Floats | None:
    """What each job of a run waits in the same run when no level is required; seconds, shape (J,).

    Required is what jobs ask for, and what plugins of the policy require by themselves: these are left out of
    the second run, so that gangs go wherever the rest of the policy puts their pods. None where neither
    requires anything.

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
    if settings.wishes.required is None and not confining:
        return None
    free = replace(policy, configuration=_without(policy.configuration, confining))
    wishes = replace(settings.wishes, required=None)
    possible = np.ones(len(history.jobs), dtype=np.bool_)
    possible[list(history.impossible)] = False
    run = replay(history.jobs.only(possible), cluster, replace(settings, policy=free, wishes=wishes))
    waited = np.full(len(history.jobs), np.nan)
    waited[possible] = waits(run.jobs.submitted, run.started, run.until)
    return waited


def _without(configuration: Configuration, names: set[str]) -> Configuration:
    return replace(
        configuration, plugins=tuple(one for one in configuration.plugins if one.name not in names)
    )
