"""The run over time that `closeby simulate --workload` and `--trace` ask for."""

from typing import TYPE_CHECKING

from msgspec import Struct

from closeby.cli.options import Sources
from closeby.cli.reading.inputs import Unusable, usable_configuration
from closeby.cli.simulating.given import policy_of, progress_of, read_given
from closeby.cli.simulating.over_time import JOBS, SEED, OverTime
from closeby.errors import UnrunnableError
from closeby.lab.replay.driver import ReplaySettings, replay, unconstrained_waits
from closeby.lab.replay.history import History, measure
from closeby.lab.workloads.jobs import Jobs
from closeby.lab.workloads.traces import write_trace
from closeby.quality.summary import Measures

if TYPE_CHECKING:
    from closeby.lab.documents.simulation_report import AskedRun

#: Runs of so many jobs say how far they are.
LONG = 5_000
#: The same of applications, each of which takes a second to place well.
LONG_OF_APPLICATIONS = 50


class Ran(Struct, frozen=True, kw_only=True, eq=False):
    """A run, its measures, and what it was asked to do."""

    history: History
    measures: Measures
    asked: "AskedRun"


def run_over_time(sources: Sources, over_time: OverTime, *, preempt: bool = True) -> Ran:
    """Read or make the cluster and the jobs, and run them.

    Raises:
        Unusable: something of it can't be used.
    """
    from closeby.lab.documents.simulation_report import AskedRun

    over_time.check()
    policy = policy_of(sources.config_path)
    given = read_given(sources, over_time, [policy], (JOBS, JOBS))
    load = None if isinstance(given.jobs, Jobs) else given.jobs
    seed = None if load is None else SEED if over_time.seed is None else over_time.seed
    jobs = given.jobs_of(seed)
    if over_time.write_trace is not None:
        _write(over_time.write_trace, jobs)
    settings = ReplaySettings(
        policy=given.policies[0],
        seed=seed,
        wishes=given.wishes,
        until=over_time.until,
        preempt=preempt,
        checkpoints=over_time.checkpoints,
        failures=over_time.failure_rate,
        deadlines=over_time.deadlines,
    )
    long = len(jobs) >= (LONG_OF_APPLICATIONS if jobs.graphs else LONG)
    try:
        with usable_configuration(), progress_of("jobs", len(jobs), wanted=long) as progress:
            history = replay(jobs, given.cluster, settings, progress)
            free = unconstrained_waits(history, given.cluster, settings)
    except UnrunnableError as error:
        raise Unusable(str(error)) from error
    asked = AskedRun(
        workload=given.workload,
        standing=0 if load is None else len(jobs) - load.jobs,
        load=None if load is None else load.load,
        cluster=given.cluster.name,
        held_gpus=int((given.room.total - given.room.free).sum()),
        cores=given.cores,
        required=over_time.required,
        preferred=over_time.preferred,
        segments=over_time.segment,
        failures=over_time.failure_rate,
        notices=given.notices,
    )
    return Ran(history=history, measures=measure(history, unconstrained=free), asked=asked)


def _write(path: str, jobs: Jobs) -> None:
    if jobs.graphs:
        raise Unusable("--write-trace: a trace can't say who calls whom in applications; leave it out")
    try:
        write_trace(path, jobs)
    except OSError as error:
        raise Unusable(f"{path}: can't be written: {error.strerror or error}; check the path") from error
