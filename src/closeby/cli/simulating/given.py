"""What a run over time, or many that are compared, are given: policies, the cluster, and jobs."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from msgspec import Struct
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
from closeby.errors import UnrunnableError
from closeby.lab.comparing.running import Load
from closeby.lab.replay.clusters import (
    SHAPES,
    ClusterRoom,
    GivenCluster,
    cluster_of,
    largest_job,
    made_up,
    room_of,
)
from closeby.lab.replay.driver import Policy, engine_of, tree_of
from closeby.lab.replay.submitting import Wishes
from closeby.lab.workloads.applications import BOUTIQUE
from closeby.lab.workloads.generating import CPU, WORKLOADS, WorkloadOptions, left_out
from closeby.lab.workloads.jobs import Jobs
from closeby.lab.workloads.traces import read_trace
from closeby.objects.words import plural
from closeby.scheduling.engine import Engine
from closeby.simulator.misfits import conditions_of
from closeby.simulator.synthetic import GPU

#: Conditions that are listed one by one.
_MOST_TOLD = 20


class Given(Struct, frozen=True, kw_only=True, eq=False):
    """All that is known before the first run."""

    policies: tuple[Policy, ...]
    cluster: GivenCluster
    #: GPUs of the cluster by slot, and the cores that jobs may use.
    room: ClusterRoom
    cores: float
    #: The jobs of a trace, or what makes those of a seed.
    jobs: Jobs | Load
    #: What they are called.
    workload: str
    wishes: Wishes
    #: What was left aside or is odd, as sentences.
    notices: tuple[str, ...]

    def jobs_of(self, seed: int | None) -> Jobs:
        """The jobs of a trace, or those of a seed."""
        return self.jobs if isinstance(self.jobs, Jobs) else self.jobs.jobs_of(seed or 0)


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
    known, conditions = _measured(policies, cluster)
    with usable_configuration():
        engine = engine_of(cluster, known[0])
    room, cores = room_of(engine, cluster.resource), int(room_of(engine, CPU).free.sum()) / 1000
    if over_time.trace is None and not (room.total.any() or of_applications(over_time)):
        raise Unusable(f"no node offers {cluster.resource}; name with --resource what jobs are to ask for")
    wishes = Wishes(required=over_time.required, preferred=over_time.preferred, topology=over_time.topology)
    jobs: Jobs | Load
    if over_time.trace is not None:
        jobs, notices = _read_jobs(over_time.trace)
    else:
        jobs, notices = _load(over_time, _place_for(engine, wishes, cluster), usual_jobs)
    return Given(
        policies=known,
        cluster=cluster,
        room=room,
        cores=cores,
        jobs=jobs,
        workload=over_time.workload or _trace_name(over_time.trace or ""),
        wishes=wishes,
        notices=(*notices, *skipped, *conditions, *_left_aside(cluster)),
    )


def policy_of(config: str, name: str | None = None) -> Policy:
    """The policy of a configuration file, or of a configuration that comes with closeby.

    Raises:
        Unusable: it can't be read.
    """
    return Policy(name=name or Path(config).stem, configuration=read_configuration_file(config))


def of_applications(over_time: OverTime) -> bool:
    """Whether the load is one of cores."""
    known = WORKLOADS.get(over_time.workload or "")
    return known is not None and known.resource == CPU


def _cluster(sources: Sources, over_time: OverTime) -> tuple[GivenCluster, list[str]]:
    """The cluster of the files, or the one that is made up; and what of the files can't be read."""
    resource = GPU if over_time.resource is None else over_time.resource
    if "/" not in resource:
        # Such as cpu, which is counted in thousandths.
        raise Unusable(f"--resource: {resource!r} is not a device that jobs can ask for; one is {GPU}")
    if not sources.paths:
        usual = APPLICATIONS_CLUSTER if of_applications(over_time) else DEFAULT_CLUSTER
        name = usual if over_time.cluster is None else over_time.cluster
        if name not in SHAPES:
            known = "; ".join(f"{known}: {shape.summary}" for known, shape in SHAPES.items())
            raise Unusable(f"there is no cluster {name!r}; there are {known}")
        return made_up(name, resource), []
    if over_time.cluster is not None:
        raise click.UsageError("-f reads a cluster, --cluster makes one up: give one of them")
    inputs = read_inputs(sources)
    if not inputs.manifests.nodes:
        raise Unusable("the files hold no nodes; add some, or omit -f to run on a synthetic cluster")
    skipped = [f"skipped: {error}" for error in inputs.errors]
    return cluster_of(inputs.manifests, "the cluster of the files", resource), skipped


def _measured(policies: Sequence[Policy], cluster: GivenCluster) -> tuple[tuple[Policy, ...], list[str]]:
    """The policies with what their plugins decide by besides, and what is odd about it and the cluster."""
    measured = []
    said: dict[str, list[str]] = {}
    for policy in policies:
        with usable_configuration():
            known = replace(policy, measurements=measure_once(policy.configuration, live=False))
            engine = engine_of(cluster, known)
        measured.append(known)
        for sentence in dict.fromkeys(_oddities(engine, cluster)):
            said.setdefault(sentence, []).append(policy.name)
    told = [
        sentence if len(names) == len(policies) else f"with {', '.join(names)}: {sentence}"
        for sentence, names in said.items()
    ]
    if len(told) > _MOST_TOLD:
        told[_MOST_TOLD:] = [f"{len(told) - _MOST_TOLD} more are listed by closeby topology -f"]
    return tuple(measured), told


def _oddities(engine: Engine, cluster: GivenCluster) -> Iterator[str]:
    for plugin in engine.profile.measured:
        if plugin.source is not None:
            yield f"what {plugin.source.name} says counts for {plugin.name} during the whole run"
    for condition in conditions_of(engine, cluster.conditions):
        yield f"{condition.object}: {condition.located()}"


def _left_aside(cluster: GivenCluster) -> Iterator[str]:
    if cluster.waiting:
        wait = "waits for a node; it is" if cluster.waiting == 1 else "wait for a node; they are"
        yield f"{plural(cluster.waiting, 'pod')} of the files {wait} left aside"


class _Place(Struct, frozen=True, kw_only=True):
    """What a cluster has for the jobs of a workload."""

    #: What it is called, and what all pods of a job must share; empty for nothing.
    name: str
    required: str
    gpus: int
    cores: float
    #: GPUs of the largest job, and cores of the largest pod of an application; pods of all nodes.
    largest_job: int
    largest_pod: float
    pods: int


def _place_for(engine: Engine, wishes: Wishes, cluster: GivenCluster) -> _Place:
    room, cores = room_of(engine, cluster.resource), room_of(engine, CPU).free
    try:
        tree = tree_of(engine, wishes)
    except UnrunnableError as error:
        raise Unusable(str(error)) from error
    return _Place(
        name=cluster.name,
        required=wishes.required or "",
        gpus=int(room.free.sum()),
        cores=int(cores.sum()) / 1000,
        largest_job=largest_job(room, tree, wishes.required),
        largest_pod=int(cores.max(initial=0)) / 1000,
        pods=int(room_of(engine, "pods").free.sum()),
    )


def _load(over_time: OverTime, place: _Place, usual_jobs: tuple[int, int]) -> tuple[Load, tuple[str, ...]]:
    """What makes the jobs, all of which the cluster can hold, and how many are smaller for that."""
    name = over_time.workload or ""
    if name not in WORKLOADS:
        raise Unusable(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    applications = of_applications(over_time)
    capacity = place.cores if applications else place.gpus
    if not capacity:
        raise Unusable("other pods hold all of the cluster, so that there is no load to make")
    options = WorkloadOptions(standing=not over_time.from_empty)
    if not applications:
        options = replace(options, max_gpus=place.largest_job)
    else:
        options = replace(
            options, max_cores=place.cores, max_pod_cores=place.largest_pod, max_pods=place.pods
        )
        if not options.allows(BOUTIQUE):
            raise Unusable(
                f"the least that {name} needs is room for the Online Boutique: {BOUTIQUE.pods} pods with "
                f"{BOUTIQUE.cores:g} cores in all, and {max(BOUTIQUE.cpu) / 1000:g} of them on one node"
            )
    load = Load(
        workload=name,
        jobs=over_time.jobs or usual_jobs[applications],
        load=LOAD if over_time.load is None else over_time.load,
        capacity=capacity,
        options=options,
    )
    return load, tuple(_drawn_smaller(load, place))


def _drawn_smaller(load: Load, place: _Place) -> Iterator[str]:
    """Says how many jobs would have been larger than what the cluster can hold."""
    beyond = left_out(load.workload, load.options)
    if not beyond.jobs:
        return
    count = max(round(beyond.jobs * load.jobs), 1)
    most = load.options.max_gpus
    where = f"one {place.required}" if place.required else place.name
    if most is None:
        what, asks = "core time", f"ask for more cores or pods than {place.name} has"
    else:
        what = "GPU-time"
        asks = f"have more than {plural(most, 'GPU')}, the most that a job can get in {where}"
    yield (
        f"about {count:,} of {plural(load.jobs, 'job')} would {asks}: smaller ones are drawn in their place "
        f"(as published such jobs hold {beyond.time:.0%} of the {what} of {load.workload})"
    )


def _read_jobs(path: str) -> tuple[Jobs, tuple[str, ...]]:
    """The jobs of a trace file, and what was left aside in it."""
    here = path == STANDARD_INPUT
    if here and sys.stdin is None:
        raise Unusable("standard input: can't be read: it is closed; pipe jobs into it")
    trace = read_trace("/dev/stdin", "standard input") if here else read_trace(path)
    if trace.jobs is None:
        raise Unusable(*map(str, trace.faults))
    return trace.jobs, trace.notices


def _trace_name(path: str) -> str:
    """What the jobs of a trace are called."""
    return "standard input" if path == STANDARD_INPUT else Path(path).name


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
