"""What a run over time, or many that are compared, are given: policies, the cluster, and jobs it can hold."""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from closeby.errors import UnrunnableError
from closeby.lab.replay.clusters import ClusterRoom, GivenCluster, gpus_of_a_pod, largest_job, room_of
from closeby.lab.replay.driver import Policy, engine_of
from closeby.lab.replay.failures import FailureRate, room_in_order
from closeby.lab.replay.submitting import Wishes, in_full, tree_of
from closeby.lab.workloads.applications import BOUTIQUE
from closeby.lab.workloads.generating import CPU, WORKLOADS, Load, WorkloadOptions, left_out, workload_named
from closeby.lab.workloads.jobs import Jobs
from closeby.lab.workloads.priorities import mix_named
from closeby.objects.words import plural
from closeby.scheduling.engine import Engine
from closeby.simulator.surroundings import conditions_of

#: Conditions that are listed one by one.
_MOST_LISTED = 20


class AskedLoad(Struct, frozen=True, kw_only=True):
    """A workload to be generated, as large as is said."""

    workload: str
    jobs: int
    load: float
    #: Whether jobs run already when the clock begins.
    standing: bool
    #: Classes of priority, as ``mix_named`` takes them; None: all jobs have the same priority.
    priorities: str | None = None


class TraceJobs(Struct, frozen=True, kw_only=True, eq=False):
    """Jobs that were read, what they are called, and what was left aside among them."""

    name: str
    jobs: Jobs
    notices: tuple[str, ...] = ()


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


def given(
    policies: Sequence[Policy],
    cluster: GivenCluster,
    wishes: Wishes,
    asked: AskedLoad | TraceJobs,
    skipped: Sequence[str] = (),
    failures: FailureRate | None = None,
) -> Given:
    """Put together what a run is given; ``skipped`` says what was left aside in the cluster's files.

    Raises:
        ConfigurationError: a policy's plugins or their arguments are wrong.
        UnknownWorkloadError: there is no such workload.
        UnrunnableError: the cluster, the wishes and the jobs make no sense together.
    """
    cluster = replace(cluster, tolerate=policies[0].configuration.extended_resource_toleration)
    conditions = _conditions(policies, cluster)
    engine = engine_of(cluster, policies[0])
    wishes = in_full(engine, wishes)
    room = room_of(engine, cluster.resource, cluster.tolerations)
    cores = int(room_of(engine, CPU, cluster.tolerations).free.sum()) / 1000
    jobs: Jobs | Load
    if isinstance(asked, TraceJobs):
        name, jobs, notices = asked.name, asked.jobs, asked.notices
    else:
        if not (room.total.any() or asks_for_cores(asked.workload)):
            raise UnrunnableError(
                f"no node that pods tolerate offers {cluster.resource}; "
                "name with --resource what jobs are to ask for"
            )
        name = asked.workload
        jobs, notices = _load(asked, _place_for(engine, wishes, cluster, failures))
    return Given(
        policies=tuple(policies),
        cluster=cluster,
        room=room,
        cores=cores,
        jobs=jobs,
        workload=name,
        wishes=wishes,
        notices=(*notices, *skipped, *conditions, *_left_aside(cluster)),
    )


def asks_for_cores(workload: str | None) -> bool:
    """Whether the jobs of a named workload are applications, whose load is one of cores."""
    known = WORKLOADS.get(workload or "")
    return known is not None and known.resource == CPU


def _conditions(policies: Sequence[Policy], cluster: GivenCluster) -> list[str]:
    """What is odd about the cluster and what the policies' plugins measure, with the policies it concerns."""
    found: dict[str, list[str]] = {}
    for policy in policies:
        for sentence in dict.fromkeys(_oddities(engine_of(cluster, policy), cluster)):
            found.setdefault(sentence, []).append(policy.name)
    listed = [
        sentence if len(names) == len(policies) else f"with {', '.join(names)}: {sentence}"
        for sentence, names in found.items()
    ]
    if len(listed) > _MOST_LISTED:
        listed[_MOST_LISTED:] = [f"{len(listed) - _MOST_LISTED} more are listed by closeby topology -f"]
    return listed


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
    #: GPUs of each pod of a job of several.
    gpus_of_a_pod: int
    #: GPUs of the largest job, and cores of the largest pod of an application; pods of all nodes.
    largest_job: int
    largest_pod: float
    pods: int


def _place_for(engine: Engine, wishes: Wishes, cluster: GivenCluster, failures: FailureRate | None) -> _Place:
    tree, cores = tree_of(engine, wishes), room_of(engine, CPU, cluster.tolerations).free
    room = room_in_order(room_of(engine, cluster.resource, cluster.tolerations), tree, failures)
    return _Place(
        name=cluster.name,
        required=wishes.required or "",
        gpus=int(room.free.sum()),
        cores=int(cores.sum()) / 1000,
        gpus_of_a_pod=gpus_of_a_pod(room),
        largest_job=largest_job(room, tree, wishes.required),
        largest_pod=int(cores.max(initial=0)) / 1000,
        pods=int(room_of(engine, "pods", cluster.tolerations).free.sum()),
    )


def _load(asked: AskedLoad, place: _Place) -> tuple[Load, tuple[str, ...]]:
    """What makes the jobs, all of which the cluster can hold, and how many are smaller for that."""
    name = asked.workload
    applications = workload_named(name).resource == CPU
    capacity = place.cores if applications else place.gpus
    mix = None if asked.priorities is None else mix_named(asked.priorities)
    if applications and mix is not None:
        raise UnrunnableError(f"--priorities: {name} has applications, which preempt nothing; leave it out")
    if not capacity:
        raise UnrunnableError("other pods hold all of the cluster, so that there is no load to make")
    options = WorkloadOptions(standing=asked.standing)
    if not applications:
        options = replace(options, max_gpus=place.largest_job, gpus_of_a_pod=place.gpus_of_a_pod)
    else:
        options = replace(
            options, max_cores=place.cores, max_pod_cores=place.largest_pod, max_pods=place.pods
        )
        if not options.allows(BOUTIQUE):
            raise UnrunnableError(
                f"the least that {name} needs is room for the Online Boutique: {BOUTIQUE.pods} pods with "
                f"{BOUTIQUE.cores:g} cores in all, and {max(BOUTIQUE.cpu) / 1000:g} of them on one node"
            )
    load = Load(
        workload=name,
        jobs=asked.jobs,
        load=asked.load,
        capacity=capacity,
        options=options,
        priorities=mix,
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
        f"(as published such jobs hold {100 * beyond.time:.0f} % of the {what} of {load.workload})"
    )
