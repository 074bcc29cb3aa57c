"""Jobs as Kubernetes objects: plain pods, gangs with their PodGroup, applications and how close these are."""

from collections.abc import Iterator, Sequence
from itertools import count

from msgspec import Struct

from closeby.applications.registry import Application
from closeby.lab.workloads.applications import app_group
from closeby.lab.workloads.jobs import CallGraph, Jobs
from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.objects.groups import PodGroup, TopologyConstraint
from closeby.objects.pods import Pod, PodSpec, Toleration
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


class Wishes(Struct, frozen=True, kw_only=True):
    """What all jobs of several pods ask of the topology; nothing by default: then the policy decides.

    Levels are named by label, alias or short name, of ``topology``, else of the only one that has them.
    """

    required: str | None = None
    preferred: str | None = None
    topology: str | None = None

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
    ) -> None:
        """``with_each``: what a pod asks for with each of its GPUs.

        ``seed`` goes into the pods' uids, of which policies draw where nodes are alike: else all seeds of a
        comparison would share these draws. All policies of one seed see the same uids.
        """
        self._origin = "" if seed is None else f"{seed}/"
        self._names = jobs.names
        self._submitted: list[float] = jobs.submitted.tolist()
        self._pods: list[int] = jobs.pods.tolist()
        self._gpus: list[int] = jobs.gpus.tolist()
        self._priorities: list[int] = jobs.priorities.tolist()
        self._resource = resource
        self._with_each = with_each
        self._constraint = wishes.constraint
        self._specs: dict[tuple[int, int], PodSpec] = {}
        self._graphs = jobs.graphs or (None,) * len(jobs)
        self._deployer = Deployer(NAMESPACE, self._origin)
        #: Key of each job as the engine reports it -> its number.
        self.number_of = {f"{NAMESPACE}/{name}": number for number, name in enumerate(jobs.names)}

    def arrives(self, job: int) -> Iterator[Event]:
        """A job is submitted."""
        name, created = self._names[job], self._submitted[job]
        gpus, priority, count = self._gpus[job], self._priorities[job], self._pods[job]
        graph = self._graphs[job]
        if graph is not None:
            yield from self._deployer.arrives(name, graph, created, priority)
            return
        spec = self._specs.get((gpus, priority)) or self._spec(gpus, priority)
        if count == 1:
            yield PodUpserted(
                Pod(namespace=NAMESPACE, name=name, uid=f"{self._origin}{name}/0", spec=spec, created=created)
            )
            return
        yield GroupChanged(
            PodGroup(
                namespace=NAMESPACE,
                name=name,
                min_member=count,
                priority=priority,
                created=created,
                constraint=self._constraint,
            )
        )
        for index in range(count):
            member = f"{name}-{index}"
            yield PodUpserted(
                Pod(
                    namespace=NAMESPACE,
                    name=member,
                    uid=f"{self._origin}{name}/{index}",
                    spec=spec,
                    created=created,
                    group=name,
                    index=index,
                )
            )

    def leaves(self, job: int) -> Iterator[Event]:
        """A job has ended, or is withdrawn."""
        name, count, graph = self._names[job], self._pods[job], self._graphs[job]
        if graph is not None:
            yield from self._deployer.leaves(name, graph)
            return
        if count == 1:
            yield PodDeleted(f"{self._origin}{name}/0")
            return
        yield from (PodDeleted(f"{self._origin}{name}/{index}") for index in range(count))
        yield GroupDeleted(f"{NAMESPACE}/{name}")

    def _spec(self, gpus: int, priority: int) -> PodSpec:
        asked = {self._resource: gpus, **{name: amount * gpus for name, amount in self._with_each}}
        spec = PodSpec(
            requests=tuple(sorted((name, amount) for name, amount in asked.items() if amount)),
            # As upstream's admission plugin ExtendedResourceToleration has it.
            tolerations=(Toleration(key=self._resource, operator="Exists"),) if gpus else (),
            priority=priority,
        )
        self._specs[gpus, priority] = spec
        return spec
