"""The runs that `closeby compare` asks for."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from msgspec import UNSET, Struct

from closeby.cli.options import Sources
from closeby.cli.reading.inputs import Unusable, read_configuration_file, usable_configuration
from closeby.cli.simulating.over_time import OverTime
from closeby.cli.simulating.replaying import (
    check_standard_input,
    given_cluster,
    of_applications,
    read_jobs,
    trace_name,
)
from closeby.plugins.configurations import FOR_GANGS_ONLY, NAMED
from closeby.report.documents.comparison import (
    ComparedCluster,
    ComparedWorkload,
    ComparisonReport,
    comparison_report,
)
from closeby.simulator.comparing.running import Experiment, Load, Policy, run_all
from closeby.simulator.replay.clusters import GivenCluster, Room, room_of
from closeby.simulator.replay.driver import UnrunnableError, engine_of
from closeby.simulator.replay.history import History
from closeby.simulator.replay.submitting import Wishes
from closeby.simulator.workloads.generating import CPU, WORKLOADS, Options
from closeby.simulator.workloads.jobs import Jobs


class Wanted(Struct, frozen=True, kw_only=True, eq=False):
    """What is to be run, besides the configurations."""

    sources: Sources
    over_time: OverTime
    #: Seeds 1, 2, ... up to this one.
    seeds: int
    #: Whether the workload begins with jobs that already run.
    standing: bool
    #: How many jobs a workload has unless it is said: gangs, and applications.
    usual_jobs: tuple[int, int]
    #: Whether there will be pictures.
    with_histories: bool


class Compared(Struct, frozen=True, kw_only=True, eq=False):
    """What came of it; the histories by policy and seed only where they are wanted."""

    report: ComparisonReport
    histories: Mapping[str, Sequence[History]]


def compare(configs: Sequence[str], wanted: Wanted, processes: int | None) -> Compared:
    """Run every configuration on the same jobs.

    Raises:
        Unusable: something of it can't be used.
    """
    over_time = wanted.over_time
    if wanted.with_histories and of_applications(over_time):
        raise Unusable(
            f"--plot and --html draw how gangs on GPUs lay, and {over_time.workload} has none; leave them "
            "out, or draw a run of one configuration with closeby simulate"
        )
    check_standard_input(wanted.sources, over_time)
    policies = _policies(configs)
    cluster = given_cluster(wanted.sources, over_time)
    room, cores = _room(cluster, policies, needs_gpus=not of_applications(over_time))
    gpus = int(room.free.sum())
    jobs, notices = _jobs(wanted, cores if of_applications(over_time) else gpus)
    if of_applications(over_time):
        notices = (*notices, *_silent(policies))
    experiment = Experiment(
        policies=policies,
        seeds=(None,) if isinstance(jobs, Jobs) else tuple(range(1, wanted.seeds + 1)),
        source=jobs,
        cluster=cluster,
        wishes=Wishes(
            required=over_time.required, preferred=over_time.preferred, topology=over_time.topology
        ),
        with_histories=wanted.with_histories,
    )
    try:
        with _progress(len(experiment.seeds) * len(policies)) as progress:
            results = run_all(experiment, processes=processes, progress=progress)
    except UnrunnableError as error:
        raise Unusable(str(error)) from error
    report = comparison_report(
        results,
        tuple(policy.name for policy in policies),
        ComparedWorkload(
            name=over_time.workload or trace_name(over_time.trace or ""),
            jobs=len(jobs) if isinstance(jobs, Jobs) else jobs.jobs,
            load=over_time.load if isinstance(jobs, Load) else None,
            seeds=tuple(seed for seed in experiment.seeds if seed is not None),
            standing=isinstance(jobs, Load) and wanted.standing,
        ),
        ComparedCluster(
            name=cluster.name,
            nodes=len(cluster.nodes),
            gpus=gpus,
            cores=cores if of_applications(over_time) else UNSET,
        ),
        notices,
    )
    histories: dict[str, list[History]] = {policy.name: [] for policy in policies}
    for result in results:
        if result.history is not None:
            histories[result.policy].append(result.history)
    return Compared(report=report, histories=histories)


def _policies(configs: Sequence[str]) -> tuple[Policy, ...]:
    """The configurations by the names of their files, or by their whole paths where those are equal."""
    if len(configs) < 2:
        raise click.UsageError("a comparison takes at least two configurations: give --config again")
    twice = next((one for index, one in enumerate(configs) if one in configs[:index]), None)
    if twice is not None:
        raise click.UsageError(f"--config {twice} is given twice")
    short = [Path(config).stem for config in configs]
    return tuple(
        Policy(name=name if short.count(name) == 1 else config, configuration=read_configuration_file(config))
        for name, config in zip(short, configs, strict=True)
    )


def _silent(policies: Sequence[Policy]) -> Iterator[str]:
    """Says which policies are no different from each other where nothing is a gang."""
    names = [policy.name for policy in policies if policy.configuration in map(NAMED.get, FOR_GANGS_ONLY)]
    if names:
        are = "is a baseline" if len(names) == 1 else "are baselines"
        yield f"{', '.join(names)} {are} for gangs: pods of applications go to the fullest node"


def _room(cluster: GivenCluster, policies: Sequence[Policy], *, needs_gpus: bool) -> tuple[Room, float]:
    """The room of the cluster and its cores, once all configurations are known to be usable."""
    for policy in policies:
        with usable_configuration():
            engine = engine_of(cluster, policy.configuration)
    room = room_of(engine, cluster.resource)
    if needs_gpus and not room.total.any():
        raise Unusable(f"no node offers {cluster.resource}; name with --resource what jobs are to ask for")
    return room, int(room_of(engine, CPU).free.sum()) / 1000


def _jobs(wanted: Wanted, capacity: float) -> tuple[Load | Jobs, tuple[str, ...]]:
    over_time = wanted.over_time
    if over_time.trace is not None:
        return read_jobs(over_time.trace)
    name = over_time.workload or ""
    known = WORKLOADS.get(name)
    if known is None:
        raise Unusable(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    if not capacity:
        raise Unusable("other pods hold all of the cluster, so that there is no load to make")
    load = Load(
        workload=name,
        jobs=over_time.jobs or wanted.usual_jobs[of_applications(over_time)],
        load=over_time.load or 0.0,
        capacity=capacity,
        options=Options(standing=wanted.standing),
    )
    return load, ()


@contextmanager
def _progress(runs: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error, on a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("runs", total=runs)
        yield lambda done: bar.update(task, completed=done)
