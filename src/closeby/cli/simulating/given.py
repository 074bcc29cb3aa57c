"""Reads what a run over time, or many that are compared, are given: policies, the cluster, and jobs."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from msgspec.structs import replace

from closeby.cli.options import Sources
from closeby.cli.reading.inputs import (
    Unusable,
    read_configuration_file,
    read_inputs,
    usable_configuration,
)
from closeby.cli.reading.measuring import measure_once
from closeby.cli.simulating.over_time import (
    APPLICATIONS_CLUSTER,
    DEFAULT_CLUSTER,
    LOAD,
    STANDARD_INPUT,
    OverTime,
)
from closeby.errors import UnknownWorkloadError, UnrunnableError
from closeby.lab.replay.clusters import SHAPES, GivenCluster, cluster_of, made_up
from closeby.lab.replay.driver import Policy
from closeby.lab.replay.given import AskedLoad, Given, TraceJobs, asks_for_cores, given
from closeby.lab.replay.submitting import Segments, Wishes
from closeby.lab.workloads.traces import read_trace
from closeby.objects.words import not_known
from closeby.plugins.configurations import DEFAULT
from closeby.simulator.synthetic import GPU


def read_given(
    sources: Sources, over_time: OverTime, policies: Sequence[Policy], usual_jobs: tuple[int, int]
) -> Given:
    """Read or make the cluster and the jobs; of these a workload has ``usual_jobs``, of gangs and of
    applications, unless it is said.

    Raises:
        Unusable: something of it can't be used.
    """
    if over_time.trace == STANDARD_INPUT and STANDARD_INPUT in sources.paths:
        raise click.UsageError("-f - and --trace - can't both read standard input: give one of them a file")
    cluster, skipped = _cluster(sources, over_time)
    wishes = Wishes(
        required=over_time.required,
        preferred=over_time.preferred,
        topology=over_time.topology,
        segments=tuple(Segments(level=level, size=size) for level, size in over_time.segment),
    )
    asked: AskedLoad | TraceJobs
    if over_time.trace is not None:
        asked = _read_trace(over_time.trace)
    else:
        asked = AskedLoad(
            workload=over_time.workload or "",
            jobs=over_time.jobs or usual_jobs[asks_for_cores(over_time.workload)],
            load=LOAD if over_time.load is None else over_time.load,
            standing=not over_time.from_empty,
            priorities=over_time.priorities,
        )
    try:
        with usable_configuration():
            known = [
                replace(policy, measurements=measure_once(policy.configuration, live=False))
                for policy in policies
            ]
            return given(known, cluster, wishes, asked, skipped, over_time.failure_rate)
    except (UnknownWorkloadError, UnrunnableError) as error:
        raise Unusable(str(error)) from error


def policy_of(config: str | None, name: str | None = None) -> Policy:
    """The policy of a configuration file, or of a configuration that comes with closeby; None: the default.

    Raises:
        Unusable: it can't be read.
    """
    return Policy(name=name or Path(config or DEFAULT).stem, configuration=read_configuration_file(config))


def _cluster(sources: Sources, over_time: OverTime) -> tuple[GivenCluster, list[str]]:
    """The cluster of the files, or the one that is made up; and what of the files can't be read."""
    resource = GPU if over_time.resource is None else over_time.resource
    if "/" not in resource:
        # Such as cpu, which is counted in thousandths.
        raise Unusable(f"--resource: {resource!r} is not a device that jobs can ask for; one is {GPU}")
    if not sources.paths:
        usual = APPLICATIONS_CLUSTER if asks_for_cores(over_time.workload) else DEFAULT_CLUSTER
        name = usual if over_time.cluster is None else over_time.cluster
        if name not in SHAPES:
            listed = "; ".join(f"{known}: {shape.summary}" for known, shape in SHAPES.items())
            raise Unusable(not_known(name, SHAPES, "cluster", listed))
        return made_up(name, resource), []
    if over_time.cluster is not None:
        raise click.UsageError("-f reads a cluster, --cluster makes one up: give one of them")
    inputs = read_inputs(sources)
    if not inputs.manifests.nodes:
        raise Unusable("the files hold no nodes; add some, or omit -f to run on a synthetic cluster")
    skipped = [f"skipped: {error}" for error in inputs.errors]
    return cluster_of(inputs.manifests, "the cluster of the files", resource), skipped


def _read_trace(path: str) -> TraceJobs:
    """The jobs of a trace file, or of standard input."""
    here = path == STANDARD_INPUT
    if here and sys.stdin is None:
        raise Unusable("standard input: can't be read: it is closed; pipe jobs into it")
    trace = read_trace("/dev/stdin", "standard input") if here else read_trace(path)
    if trace.jobs is None:
        raise Unusable(*map(str, trace.faults))
    name = "standard input" if here else Path(path).name
    return TraceJobs(name=name, jobs=trace.jobs, notices=trace.notices)


@contextmanager
def progress_of(what: str, total: int, *, wanted: bool = True) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error, on a terminal; ``what`` is counted."""
    if not wanted or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)
