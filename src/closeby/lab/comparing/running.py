"""Runs every policy on the jobs of every seed, in processes beside each other."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import active_children, get_context, parent_process
from threading import Thread, current_thread, main_thread
from types import FrameType

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.registry import application
from closeby.lab.comparing.figures import ComparedFigure, figures_of, figures_of_applications
from closeby.lab.replay.clusters import GivenCluster
from closeby.lab.replay.driver import Policy, ReplaySettings, engine_of, replay, unconstrained_waits
from closeby.lab.replay.event_queue import Checkpoints
from closeby.lab.replay.failures import FailureRate
from closeby.lab.replay.history import NO_SAMPLES, History, measure
from closeby.lab.replay.submitting import NAMESPACE, Judge, Wishes
from closeby.lab.workloads.applications import app_group
from closeby.lab.workloads.generating import Load
from closeby.lab.workloads.jobs import Jobs
from closeby.quality.traffic import RunTraffic, TrafficMeasures, run_traffic


def judged_talk(history: History, judge: Judge) -> dict[int, TrafficMeasures]:
    """How close each application that started was, by its number."""
    started = [
        (job, graph)
        for job, graph in enumerate(history.jobs.graphs)
        if graph is not None and not np.isnan(history.started[job])
    ]
    known = {
        graph: application(app_group(graph, NAMESPACE, "app"))
        for graph in dict.fromkeys(graph for _, graph in started)
    }
    return {job: judge.talk(known[graph], graph, history.slots_of(job).tolist()) for job, graph in started}


def talk_over_time(history: History, found: Mapping[int, TrafficMeasures]) -> RunTraffic:
    """The means over time of what was found of applications; none of their pods moves while they run."""
    ends = np.where(np.isnan(history.ended), history.until, history.ended)
    return run_traffic(list(found.values()), (ends - history.started)[list(found)])


class Experiment(Struct, frozen=True, kw_only=True, eq=False):
    """What is run. ``source`` is a load, or the jobs of a trace (then there is one seed, None)."""

    policies: tuple[Policy, ...]
    seeds: tuple[int | None, ...]
    source: Load | Jobs
    cluster: GivenCluster
    wishes: Wishes = Wishes()
    #: What jobs that are evicted keep of their work.
    checkpoints: Checkpoints = Checkpoints()
    #: How many nodes are out of order; None: none ever is.
    failures: FailureRate | None = None
    #: Whether the pods of a job have a deadline, which is as long as the job takes.
    deadlines: bool = False
    #: Whether results come with their histories, for pictures.
    with_histories: bool = False

    @property
    def yardstick(self) -> Policy:
        """Whose costs the talk of all policies is judged by: of the first one that minds them.

        A policy that knows other costs, or none, is not to be judged by those.
        """
        for policy in self.policies:
            if engine_of(self.cluster, policy).profile.dependency_costs:
                return policy
        return Policy()

    def jobs_of(self, seed: int | None) -> Jobs:
        """The jobs that all policies get for a seed."""
        if isinstance(self.source, Jobs):
            return self.source
        return self.source.jobs_of(0 if seed is None else seed)


class ComparedRun(Struct, frozen=True, kw_only=True):
    """One policy on the jobs of one seed."""

    policy: str
    seed: int | None
    jobs: int
    #: Jobs that never started although the cluster could hold them.
    unstarted: int
    #: Jobs that the cluster could never hold: they are refused as they come, and count in no figure.
    impossible: int
    figures: tuple[tuple[ComparedFigure, float | None], ...]
    #: What happened, if the experiment asks for it; without the samples, which are most of it, and with the
    #: talk of applications by the costs that all policies are judged by.
    history: History | None = None


#: Called with the number of runs that are done.
Progress = Callable[[int], None]


def run_one(experiment: Experiment, policy: Policy, seed: int | None) -> ComparedRun:
    """One run. Its result does not depend on the process or the machine.

    Raises:
        UnrunnableError: cluster, topology and wishes make no sense together.
    """
    jobs = experiment.jobs_of(seed)
    settings = ReplaySettings(
        policy=policy,
        seed=seed,
        wishes=experiment.wishes,
        checkpoints=experiment.checkpoints,
        failures=experiment.failures,
        deadlines=experiment.deadlines,
    )
    history = replay(jobs, experiment.cluster, settings)
    talk = _talk(experiment, history)
    unstarted = int(np.isnan(history.started).sum()) - len(history.impossible)
    return ComparedRun(
        policy=policy.name,
        seed=seed,
        jobs=len(jobs),
        unstarted=unstarted,
        impossible=len(history.impossible),
        figures=_figures(history, talk, experiment.cluster, settings),
        history=replace(history, samples=NO_SAMPLES, talk=talk) if experiment.with_histories else None,
    )


def _talk(experiment: Experiment, history: History) -> dict[int, TrafficMeasures]:
    """How close the pods of applications were, by the costs that all policies are judged by."""
    if not history.jobs.graphs:
        return {}
    return judged_talk(history, Judge(engine_of(experiment.cluster, experiment.yardstick)))


def _figures(
    history: History, talk: dict[int, TrafficMeasures], cluster: GivenCluster, settings: ReplaySettings
) -> tuple[tuple[ComparedFigure, float | None], ...]:
    if history.jobs.graphs:
        return figures_of_applications(measure(history), talk_over_time(history, talk))
    found = measure(history, unconstrained=unconstrained_waits(history, cluster, settings))
    return figures_of(found, history.jobs.all_classes)


def run_all(
    experiment: Experiment, *, processes: int | None = None, progress: Progress | None = None
) -> tuple[ComparedRun, ...]:
    """All runs, seed by seed and policy by policy; ``processes`` at a time, by default one per core.

    Raises:
        UnrunnableError: see ``run_one``.
    """
    tasks = [(policy, seed) for seed in experiment.seeds for policy in experiment.policies]
    workers = min(os.cpu_count() or 1 if processes is None else processes, len(tasks))
    found: list[ComparedRun] = []
    for result in _in_turn(experiment, tasks) if workers < 2 else _beside(experiment, tasks, workers):
        found.append(result)
        if progress is not None:
            progress(len(found))
    return tuple(found)


_Task = tuple[Policy, int | None]
_Handler = Callable[[int, FrameType | None], None] | signal.Handlers


def _in_turn(experiment: Experiment, tasks: Sequence[_Task]) -> Iterator[ComparedRun]:
    for policy, seed in tasks:
        yield run_one(experiment, policy, seed)


def _beside(experiment: Experiment, tasks: Sequence[_Task], workers: int) -> Iterator[ComparedRun]:
    # Spawned, as a forked process would inherit the threads that draw the progress.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _know, (experiment,))
    others = set(active_children())
    try:
        with _ends_at(signal.SIGTERM):
            with _deaf_to(signal.SIGINT):
                results = pool.map(_run_known, tasks)
            yield from results
    except BaseException:
        for worker in set(active_children()) - others:
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _heeds(number: signal.Signals, how: _Handler) -> Iterator[None]:
    """A signal is heeded in another way meanwhile; only a main thread may say so."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(number, how)
    try:
        yield
    finally:
        signal.signal(number, before)


def _deaf_to(number: signal.Signals) -> AbstractContextManager[None]:
    """Processes that are started meanwhile don't hear an interrupt; this one does later, and ends them."""
    return _heeds(number, signal.SIG_IGN)


def _ends_at(number: signal.Signals) -> AbstractContextManager[None]:
    """The signal raises meanwhile, so that processes beside this one are ended too."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    return _heeds(number, leave)


#: What this process runs; set once, when it starts.
_known: list[Experiment] = []


def _know(experiment: Experiment) -> None:
    _known[:] = [experiment]
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process whose parent was killed would wait for its next task indefinitely."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_known(task: _Task) -> ComparedRun:
    return run_one(_known[0], *task)
