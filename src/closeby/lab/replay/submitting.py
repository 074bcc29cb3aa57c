"""Jobs as Kubernetes objects: plain pods, gangs with their PodGroup, applications; and what they ask for."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.registry import Application
from closeby.errors import UnrunnableError
from closeby.lab.replay.clusters import judged_in
from closeby.lab.workloads.applications import app_group
from closeby.lab.workloads.jobs import CallGraph, Jobs
from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.objects.groups import Layer, PodGroup, Remainder, TopologyConstraint
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod, PodSpec, Toleration
from closeby.objects.words import suggestion
from closeby.plugins.registry import dependency_cost
from closeby.quality.traffic import TrafficMeasures, traffic_measures
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupDeleted,
    Event,
    GroupChanged,
    GroupDeleted,
    PodDeleted,
    PodUpserted,
)
from closeby.topology.tree import Tree, level_meant


class Deployer:
    """Makes the events of applications. Pods that ask for the same share one spec."""

    def __init__(self, namespace: str, origin: str = "") -> None:
        """``origin`` begins the uids of all pods."""
        self._namespace = namespace
        self._origin = origin
        self._specs: dict[tuple[int, int], PodSpec] = {}

    def arrives(self, name: str, graph: CallGraph, created: float, priority: int) -> Iterator[Event]:
        """An application is deployed: its pods in the order of the graph's workloads."""
        yield AppGroupChanged(app_group(graph, self._namespace, name))
        number = count()
        for workload, replicas, cpu in zip(graph.workloads, graph.replicas, graph.cpu, strict=True):
            spec = self._specs.get((cpu, priority))
            if spec is None:
                spec = self._specs[cpu, priority] = PodSpec(requests=(("cpu", cpu),), priority=priority)
            labels = {APP_GROUP_LABEL: name, WORKLOAD_LABEL: workload}
            for replica in range(replicas):
                index = next(number)
                yield PodUpserted(
                    Pod(
                        namespace=self._namespace,
                        name=f"{name}-{workload}-{replica}",
                        uid=f"{self._origin}{name}/{index}",
                        spec=spec,
                        labels=labels,
                        created=created,
                        index=index,
                    )
                )

    def leaves(self, name: str, graph: CallGraph) -> Iterator[Event]:
        """An application is deleted."""
        yield from (PodDeleted(f"{self._origin}{name}/{index}") for index in range(graph.pods))
        yield AppGroupDeleted(f"{self._namespace}/{name}")


class Judge:
    """Says what talk costs, and how close pods are, by the network of one engine."""

    def __init__(self, engine: Engine) -> None:
        """By the costs that the engine goes by, else those of the defaults."""
        self._labels = engine.cluster.labels
        self._costs = dependency_cost(engine.profile)

    def talk(self, application: Application, graph: CallGraph, slots: Sequence[int]) -> TrafficMeasures:
        """How close the pods of an application are; ``slots`` in the order of the graph's workloads."""
        replicas = _replicas(graph, slots)
        known = self._costs.knows_costs(application)
        costs = self._costs.edges(application, replicas) if known else None
        return traffic_measures(application.edges, replicas, self._labels, costs)


def talk_of(engine: Engine, key: str, graph: CallGraph, slots: Sequence[int]) -> TrafficMeasures | None:
    """How close the pods of an application that an engine knows are, judged by its own costs."""
    application = engine.applications.get(key)
    return None if application is None else Judge(engine).talk(application, graph, slots)


def _replicas(graph: CallGraph, slots: Sequence[int]) -> dict[str, dict[int, int]]:
    """Slots of each workload, with how many of its pods are there."""
    replicas: dict[str, dict[int, int]] = {}
    place = iter(slots)
    for workload, wanted in zip(graph.workloads, graph.replicas, strict=True):
        at = replicas.setdefault(workload, {})
        for _ in range(wanted):
            slot = next(place)
            at[slot] = at.get(slot, 0) + 1
    return replicas


#: Namespace of the jobs' objects.
NAMESPACE = "simulated"


class Segments(Struct, frozen=True, kw_only=True):
    """Segments of so many pods, each in one domain of the level; the last may have fewer."""

    level: str
    size: int


class Wishes(Struct, frozen=True, kw_only=True):
    """What all jobs of several pods ask of the topology; nothing by default: then the policy decides.

    Levels are named by label, alias or short name, of ``topology``, else of the only one that has them.
    """

    required: str | None = None
    preferred: str | None = None
    topology: str | None = None
    #: Coarse to fine.
    segments: tuple[Segments, ...] = ()

    @property
    def bounds(self) -> tuple[tuple[str, int | None], ...]:
        """Levels of which one domain has all pods of a job (None), or so many of them."""
        whole = () if self.required is None else ((self.required, None),)
        return (*whole, *((one.level, one.size) for one in self.segments))

    @property
    def layers(self) -> tuple[Layer, ...]:
        """As a PodGroup says it."""
        return tuple(
            Layer(level=one.level, size=one.size, remainder=Remainder.ALLOW, topology=self.topology)
            for one in self.segments
        )

    @property
    def constraint(self) -> TopologyConstraint | None:
        """As a PodGroup says it."""
        if self.required is None and self.preferred is None:
            return None
        return TopologyConstraint(topology=self.topology, required=self.required, preferred=self.preferred)


class Submitter:
    """Makes the events of jobs. Pods that ask for the same share one spec, so that they are judged once."""

    def __init__(
        self,
        jobs: Jobs,
        resource: str,
        with_each: tuple[tuple[str, int], ...],
        wishes: Wishes,
        seed: int | None = None,
        lasts: Callable[[int], float] | None = None,
        tolerations: tuple[Toleration, ...] = (),
    ) -> None:
        """``with_each``: what a pod asks for with each of its GPUs; ``tolerations`` of pods with GPUs.

        ``seed`` goes into the pods' uids, of which policies draw where nodes are alike: else all seeds of a
        comparison would share these draws. All policies of one seed see the same uids. ``lasts``: the
        deadline of the pods of a job, in seconds from its start; None: they have none.
        """
        self._origin = "" if seed is None else f"{seed}/"
        self._names = jobs.names
        self._submitted: list[float] = jobs.submitted.tolist()
        self._pods: list[int] = jobs.pods.tolist()
        self._gpus: list[int] = jobs.gpus.tolist()
        self._priorities: list[int] = jobs.priorities.tolist()
        self._resource = resource
        self._with_each = with_each
        self._tolerations = tolerations
        self._constraint = wishes.constraint
        self._layers = wishes.layers
        self._lasts = lasts
        self._specs: dict[tuple[int, int], PodSpec] = {}
        #: How often each job was evicted: its pods are others each time, as those that a controller makes.
        self._evicted = [0] * len(jobs)
        self._graphs = jobs.graphs or (None,) * len(jobs)
        self._deployer = Deployer(NAMESPACE, self._origin)
        #: Key of each job as the engine reports it -> its number.
        self.number_of = {f"{NAMESPACE}/{name}": number for number, name in enumerate(jobs.names)}

    def arrives(self, job: int) -> Iterator[Event]:
        """A job is submitted."""
        name, created = self._names[job], self._submitted[job]
        priority, count = self._priorities[job], self._pods[job]
        graph = self._graphs[job]
        if graph is not None:
            yield from self._deployer.arrives(name, graph, created, priority)
            return
        if count > 1:
            yield GroupChanged(
                PodGroup(
                    namespace=NAMESPACE,
                    name=name,
                    min_member=count,
                    priority=priority,
                    created=created,
                    constraint=self._constraint,
                    layers=self._layers,
                )
            )
        yield from self._members(job, created)

    def _members(self, job: int, created: float) -> Iterator[PodUpserted]:
        """The pods of a job that is no application; a single one is a plain pod."""
        name, count = self._names[job], self._pods[job]
        gpus, priority = self._gpus[job], self._priorities[job]
        spec = self._specs.get((gpus, priority)) or self._spec(gpus, priority)
        lasts = None if self._lasts is None else self._lasts(job)
        for index, uid in enumerate(self._uids(job)):
            alone = count == 1
            yield PodUpserted(
                Pod(
                    namespace=NAMESPACE,
                    name=name if alone else f"{name}-{index}",
                    uid=uid,
                    spec=spec,
                    created=created,
                    group=None if alone else name,
                    index=None if alone else index,
                    lasts=lasts,
                )
            )

    def _uids(self, job: int) -> Iterator[str]:
        evicted = self._evicted[job]
        last = f"/{evicted}" if evicted else ""
        return (f"{self._origin}{self._names[job]}/{index}{last}" for index in range(self._pods[job]))

    def comes_back(self, job: int, now: float) -> Iterator[Event]:
        """A job was evicted: its pods are deleted, and its controller makes others that wait."""
        yield from map(PodDeleted, list(self._uids(job)))
        self._evicted[job] += 1
        yield from self._members(job, now)

    def job_of(self, pod: Pod) -> int | None:
        """The job of a pod; None for a pod of the cluster's own."""
        if pod.namespace != NAMESPACE:
            return None
        return self.number_of.get(f"{NAMESPACE}/{pod.name if pod.group is None else pod.group}")

    def leaves(self, job: int) -> Iterator[Event]:
        """A job has ended, or is withdrawn."""
        name, graph = self._names[job], self._graphs[job]
        if graph is not None:
            yield from self._deployer.leaves(name, graph)
            return
        yield from map(PodDeleted, self._uids(job))
        if self._pods[job] > 1:
            yield GroupDeleted(f"{NAMESPACE}/{name}")

    def _spec(self, gpus: int, priority: int) -> PodSpec:
        asked = {self._resource: gpus, **{name: amount * gpus for name, amount in self._with_each}}
        spec = PodSpec(
            requests=tuple(sorted((name, amount) for name, amount in asked.items() if amount)),
            tolerations=self._tolerations if gpus else (),
            priority=priority,
        )
        self._specs[gpus, priority] = spec
        return spec


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

    return replace(
        wishes,
        required=meant(wishes.required),
        preferred=meant(wishes.preferred),
        segments=tuple(replace(one, level=meant(one.level) or "") for one in wishes.segments),
    )


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
    for wish in (wishes.required, wishes.preferred, *(one.level for one in wishes.segments)):
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
    _check_segments(tree, wishes)
    return tree


def _check_segments(tree: Tree, wishes: Wishes) -> None:
    """Raises UnrunnableError where segments are not coarse to fine, or do not consist of whole ones."""
    above = None if wishes.required is None else tree.level_named(wishes.required)
    for index, one in enumerate(wishes.segments):
        level = tree.level_named(one.level)
        before = wishes.segments[index - 1] if index else None
        if above is not None and level is not None and (level < above or (before and level == above)):
            other = wishes.required if before is None else before.level
            raise UnrunnableError(
                f"--segment: {one.level} is not finer than {other}; give levels coarse to fine"
            )
        if before is not None and before.size % one.size:
            raise UnrunnableError(
                f"--segment: segments of {before.size} pods are not whole segments of {one.size}; "
                f"take a divisor of {before.size}"
            )
        above = level


def _no_level(tree: Tree, wish: str) -> str:
    """Single nodes are a level of every tree, but may be asked for only where they are declared one."""
    single = tree.level_names[-1]
    declared = tree.level_names if tree.host_level is not None else tree.level_names[:-1]
    remedy = f"; add {HOSTNAME} to its levels" if wish in (single, HOSTNAME) else ""
    known = f"there {'are' if len(declared) > 1 else 'is'} {', '.join(declared)}"
    return f"topology {tree.name} has no level {wish}; {known}{remedy or suggestion(wish, declared)}"
