"""One run over time: the very engine, fed by a virtual clock with jobs that arrive, wait, run and end.

Durations are given and do not depend on where a job lies. A run ends when nothing can happen any more: jobs
that still wait then could never be placed.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf

import numpy as np
from msgspec import Struct

from closeby.objects.configuration import Configuration
from closeby.plugins.registry import profile_for
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Event, Tick
from closeby.scheduling.outcomes import Assignment, Report
from closeby.simulator.replay.agenda import Agenda
from closeby.simulator.replay.clusters import GivenCluster, Room, judged_in, room_of, usual_needs
from closeby.simulator.replay.history import Counts, History
from closeby.simulator.replay.recording import Recorder
from closeby.simulator.replay.submitting import Submitter, Wishes
from closeby.simulator.workloads.jobs import Jobs
from closeby.topology.tree import Tree

#: Moments between two reports of progress.
_STRIDE = 256

#: Is told how many jobs have ended or will never start.
Progress = Callable[[int], None]


class UnrunnableError(ValueError):
    """The cluster, the topology and the jobs' wishes make no sense together; the text says what to do."""


class Settings(Struct, frozen=True, kw_only=True):
    """What a run depends on besides the cluster and the jobs."""

    configuration: Configuration = Configuration()
    #: What the configuration is called in reports.
    policy: str = "default"
    #: Seed of the workload; None for a trace.
    seed: int | None = None
    wishes: Wishes = Wishes()
    #: Virtual seconds after which the run stops; None: when all that can end has ended.
    until: float | None = None


def engine_of(cluster: GivenCluster, configuration: Configuration) -> Engine:
    """An engine that knows the cluster.

    Raises:
        ConfigurationError: the configuration names what no plugin knows.
    """
    engine = Engine(lambda handle: profile_for(configuration, handle))
    cluster.enter(engine)
    return engine


def replay(
    jobs: Jobs,
    cluster: GivenCluster,
    settings: Settings,
    progress: Progress | None = None,
    after_each: Callable[[Engine], None] | None = None,
) -> History:
    """Run jobs on a cluster. The same input gives the same history.

    ``after_each`` is called after every moment (tests assert the engine's invariants there).

    Raises:
        ConfigurationError: the configuration names what no plugin knows.
        UnrunnableError: see there.
    """
    engine = engine_of(cluster, settings.configuration)
    with _no_collection():
        return _Replay(jobs, cluster, settings, engine).run(progress, after_each)


class _Replay:
    """One run."""

    def __init__(self, jobs: Jobs, cluster: GivenCluster, settings: Settings, engine: Engine) -> None:
        self._jobs = jobs
        self._settings = settings
        self._engine = engine
        self._tree = _tree(engine, settings.wishes)
        self._room = room_of(engine, cluster.resource)
        if not self._room.total.any():
            raise UnrunnableError(
                f"no node offers {cluster.resource}; name what jobs ask for with --resource"
            )
        with_each = usual_needs(cluster.nodes, cluster.resource)
        self._submitter = Submitter(jobs, cluster.resource, with_each, settings.wishes)
        self._agenda = Agenda(jobs.submitted)
        self._recorder = Recorder(jobs)
        self._durations: list[float] = jobs.durations.tolist()
        self._pods: list[int] = jobs.pods.tolist()
        self._too_large = too_large(jobs, self._room, self._tree, settings.wishes.required)
        self._done = 0

    def run(self, progress: Progress | None, after_each: Callable[[Engine], None] | None) -> History:
        now = 0.0
        moments = 0
        end = inf if self._settings.until is None else self._settings.until
        while (moment := self._agenda.next(self._engine.next_due)) < inf:
            if moment > end:
                now = end
                break
            now = max(moment, now)
            self._moment(now)
            moments += 1
            if after_each is not None:
                after_each(self._engine)
            if progress is not None and moments % _STRIDE == 0:
                progress(self._done)
        cluster = self._engine.cluster
        return self._recorder.history(
            policy=self._settings.policy,
            seed=self._settings.seed,
            tree=self._tree,
            nodes=tuple(name or "" for name in cluster.names),
            gpus=self._room.free,
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
        number_of = submitter.number_of
        for decision in self._engine.handle(*events):
            if isinstance(decision, Report):
                outcome = decision.outcome
                job = number_of[outcome.key]
                if outcome.refused:
                    recorder.refusals[job] = outcome.message or ""
                elif outcome.assigned:
                    recorder.starts(job, now, self._slots(outcome.assigned))
                    agenda.starts(job, now + self._durations[job])
        recorder.sample(now)

    def _slots(self, assigned: tuple[Assignment, ...]) -> list[int]:
        slot_of = self._engine.cluster.slot
        if len(assigned) > 1:
            assigned = tuple(sorted(assigned, key=_rank))
        slots = [slot_of(one.node) for one in assigned]
        return [slot for slot in slots if slot is not None]


def too_large(jobs: Jobs, room: Room, tree: Tree, required: str | None) -> dict[int, str]:
    """Jobs that the cluster could not hold if no other job ran, with the reason; told by GPUs alone."""
    level = None if required is None else tree.level_named(required)
    found: dict[int, str] = {}
    for gpus in np.unique(jobs.gpus).tolist():
        if gpus == 0:
            continue
        asks_so = jobs.gpus == gpus
        in_all = _most_pods(gpus, room.free, tree, None)
        for job in np.flatnonzero(asks_so & (jobs.pods > in_all)).tolist():
            found[job] = f"all nodes together take {_pods(in_all, gpus)} when no other job runs"
        if level is not None:
            in_one = _most_pods(gpus, room.free, tree, level)
            for job in np.flatnonzero(asks_so & (jobs.pods > max(in_one, 1))).tolist():
                message = f"no {tree.level_names[level]} takes more than {_pods(in_one, gpus)}"
                found.setdefault(job, f"{message} when no other job runs")
    return found


def _pods(count: int, gpus: int) -> str:
    return f"{count:,} pod{'' if count == 1 else 's'} of {gpus} GPU{'' if gpus == 1 else 's'}"


def _most_pods(gpus: int, free: Counts, tree: Tree, level: int | None) -> int:
    """The most pods of so many GPUs that one domain of the level holds (the whole cluster without one)."""
    holds: Counts = (free // gpus)[tree.slot_at]
    if level is None:
        return int(holds.sum())
    if level < tree.node_level:
        holds = np.add.reduceat(holds, tree.bounds[level][:-1])
    return int(holds[tree.labelled[level]].max(initial=0))


def _tree(engine: Engine, wishes: Wishes) -> Tree:
    tree = judged_in(engine, wishes.topology)
    names = engine.topologies.usable()
    if tree is None and wishes.topology is not None:
        known = f"there are {', '.join(names)}" if names else "there is none"
        raise UnrunnableError(f"there is no topology {wishes.topology}; {known}")
    if tree is None:
        raise UnrunnableError(f"there are {len(names)} topologies; choose one of {', '.join(names)}")
    levels = tree.level_names
    for wish in (wishes.required, wishes.preferred):
        if wish is not None and tree.level_named(wish) is None:
            raise UnrunnableError(f"topology {tree.name} has no level {wish}; there are {', '.join(levels)}")
    indices = [tree.level_named(wish) for wish in (wishes.required, wishes.preferred) if wish is not None]
    if len(indices) == 2 and (indices[1] or 0) < (indices[0] or 0):
        raise UnrunnableError(
            f"the preferred level {wishes.preferred} lies above the required one, {wishes.required}; "
            "prefer that one or a finer one"
        )
    return tree


def _rank(assignment: Assignment) -> int:
    return assignment.rank or 0


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
