"""The run over time that `closeby simulate --workload` and `--trace` ask for."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from msgspec import Struct
from msgspec.structs import replace

from closeby.cli.options import Sources
from closeby.cli.reading.inputs import Unusable, read_configuration_file, read_inputs, usable_configuration
from closeby.cli.simulating.over_time import APPLICATIONS_CLUSTER, DEFAULT_CLUSTER, JOBS, LOAD, SEED, OverTime
from closeby.plugins.configurations import CLOSEBY, NAMED
from closeby.quality.delays import waits
from closeby.quality.summary import Measures
from closeby.report.words import plural
from closeby.simulator.replay.clusters import SHAPES, GivenCluster, cluster_of, made_up, room_of
from closeby.simulator.replay.driver import Settings, UnrunnableError, engine_of, replay
from closeby.simulator.replay.history import Floats, History
from closeby.simulator.replay.measuring import measure
from closeby.simulator.replay.submitting import Wishes
from closeby.simulator.synthetic import GPU
from closeby.simulator.workloads.generating import CPU, WORKLOADS, Options, UnknownWorkloadError, generate
from closeby.simulator.workloads.jobs import Jobs
from closeby.simulator.workloads.traces import read_trace, write_trace

if TYPE_CHECKING:
    from closeby.report.documents.simulation import Asked

Value = TypeVar("Value")

#: Runs of so many jobs say how far they are.
LONG = 5_000
#: The same of applications, each of which takes a second to place well.
LONG_OF_APPLICATIONS = 50
STANDARD_INPUT = "-"


class Ran(Struct, frozen=True, kw_only=True, eq=False):
    """A run, its measures, and what it was asked to do."""

    history: History
    measures: Measures
    asked: "Asked"


def run_over_time(sources: Sources, over_time: OverTime) -> Ran:
    """Read or make the cluster and the jobs, and run them.

    Raises:
        Unusable: something of it can't be used.
    """
    from closeby.report.documents.simulation import Asked

    _contradictions(over_time)
    check_standard_input(sources, over_time)
    chosen = sources.config_path
    configuration = NAMED[CLOSEBY] if chosen is None else read_configuration_file(chosen)
    cluster = given_cluster(sources, over_time)
    with usable_configuration():
        engine = engine_of(cluster, configuration)
    room, cores = room_of(engine, cluster.resource), int(room_of(engine, CPU).free.sum()) / 1000
    if over_time.workload is not None and not (room.total.any() or of_applications(over_time)):
        raise Unusable(f"no node offers {cluster.resource}; name with --resource what jobs are to ask for")
    jobs, notices = _jobs(over_time, cores if of_applications(over_time) else int(room.free.sum()))
    if over_time.write_trace is not None:
        _write(over_time.write_trace, jobs)
    settings = Settings(
        configuration=configuration,
        policy=CLOSEBY if chosen is None else Path(chosen).stem,
        seed=None if over_time.workload is None else _or(over_time.seed, SEED),
        wishes=Wishes(
            required=over_time.required, preferred=over_time.preferred, topology=over_time.topology
        ),
        until=over_time.until,
    )
    try:
        with usable_configuration(), _progress(jobs) as progress:
            history = replay(jobs, cluster, settings, progress)
            free = _without_requirement(history, cluster, settings)
    except UnrunnableError as error:
        raise Unusable(str(error)) from error
    if cluster.waiting:
        wait = "waits for a node; it is" if cluster.waiting == 1 else "wait for a node; they are"
        notices = (*notices, f"{plural(cluster.waiting, 'pod')} of the files {wait} left aside")
    asked = Asked(
        workload=over_time.workload or trace_name(over_time.trace or ""),
        standing=0 if over_time.workload is None else len(jobs) - _or(over_time.jobs, JOBS),
        load=None if over_time.workload is None else _or(over_time.load, LOAD),
        cluster=cluster.name,
        held_gpus=int((room.total - room.free).sum()),
        cores=cores,
        required=over_time.required,
        preferred=over_time.preferred,
        notices=notices,
    )
    return Ran(history=history, measures=measure(history, unconstrained=free), asked=asked)


def _without_requirement(history: History, cluster: GivenCluster, settings: Settings) -> Floats | None:
    """What each job waits in the same run when no level is required; None where none is."""
    if settings.wishes.required is None:
        return None
    wishes = replace(settings.wishes, required=None)
    free = replay(history.jobs, cluster, replace(settings, wishes=wishes))
    return waits(free.jobs.submitted, free.started, free.until)


def _contradictions(over_time: OverTime) -> None:
    if over_time.workload is not None and over_time.trace is not None:
        raise click.UsageError("--workload makes jobs, --trace reads them: give one of them")
    if over_time.trace is not None:
        for option, given in (
            ("--jobs", over_time.jobs),
            ("--load", over_time.load),
            ("--seed", over_time.seed),
            ("--from-empty", over_time.from_empty or None),
        ):
            if given is not None:
                raise click.UsageError(f"{option} belongs to --workload: a trace says what its jobs are")


def given_cluster(sources: Sources, over_time: OverTime) -> GivenCluster:
    """The cluster of the files, or the one that is made up.

    Raises:
        Unusable: there is none of that name, or the files can't be used or hold no nodes.
    """
    resource = over_time.resource or GPU
    if "/" not in resource:
        # Such as cpu, which is counted in thousandths.
        raise Unusable(f"{resource} is no device that jobs can ask for; --resource is one such as {GPU}")
    if not sources.paths:
        usual = APPLICATIONS_CLUSTER if of_applications(over_time) else DEFAULT_CLUSTER
        name = over_time.cluster or usual
        if name not in SHAPES:
            known = "; ".join(f"{known}: {shape.summary}" for known, shape in SHAPES.items())
            raise Unusable(f"there is no cluster {name!r}; there are {known}")
        return made_up(name, resource)
    if over_time.cluster is not None:
        raise click.UsageError("-f reads a cluster, --cluster makes one up: give one of them")
    manifests = read_inputs(sources).manifests
    if not manifests.nodes:
        raise Unusable("the files hold no nodes; add them, or leave -f out to run on a made-up cluster")
    return cluster_of(manifests, "the cluster of the files", resource)


def of_applications(over_time: OverTime) -> bool:
    """Whether the load is one of cores."""
    known = WORKLOADS.get(over_time.workload or "")
    return known is not None and known.resource == CPU


def _jobs(over_time: OverTime, capacity: float) -> tuple[Jobs, tuple[str, ...]]:
    if over_time.trace is not None:
        return read_jobs(over_time.trace)
    if not capacity:
        raise Unusable("other pods hold all of the cluster, so that there is no load to make")
    try:
        jobs = generate(
            over_time.workload or "",
            jobs=_or(over_time.jobs, JOBS),
            load=_or(over_time.load, LOAD),
            capacity=capacity,
            seed=_or(over_time.seed, SEED),
            options=Options(standing=not over_time.from_empty),
        )
    except UnknownWorkloadError as error:
        raise Unusable(str(error)) from error
    return jobs, ()


def check_standard_input(sources: Sources, over_time: OverTime) -> None:
    """Says that manifests and jobs can't both come from there."""
    if over_time.trace == STANDARD_INPUT and STANDARD_INPUT in sources.paths:
        raise click.UsageError("-f - and --trace - can't both read standard input: give one of them a file")


def trace_name(path: str) -> str:
    """What the jobs of a trace are called."""
    return "standard input" if path == STANDARD_INPUT else Path(path).name


def read_jobs(path: str) -> tuple[Jobs, tuple[str, ...]]:
    """The jobs of a trace file, and what was left aside in it.

    Raises:
        Unusable: it can't be read.
    """
    here = path == STANDARD_INPUT
    trace = read_trace("/dev/stdin" if here else path)
    if trace.jobs is None:
        raise Unusable(*(fault.sentence("standard input" if here else path) for fault in trace.faults))
    return trace.jobs, trace.notices


def _write(path: str, jobs: Jobs) -> None:
    try:
        write_trace(path, jobs)
    except OSError as error:
        raise Unusable(f"{path}: can't be written: {error.strerror or error}; check the path") from error


@contextmanager
def _progress(jobs: Jobs) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error, for long runs on a terminal."""
    long = LONG_OF_APPLICATIONS if jobs.graphs else LONG
    if len(jobs) < long or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("jobs done"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("jobs", total=len(jobs))
        yield lambda done: bar.update(task, completed=done)


def _or(given: Value | None, default: Value) -> Value:
    return default if given is None else given
