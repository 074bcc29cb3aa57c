"""Applications over time: the objects of one, and how close its pods lie once all are placed."""

from collections.abc import Iterator, Sequence
from itertools import count

from closeby.applications.registry import Application
from closeby.lab.workloads.applications import app_group
from closeby.lab.workloads.jobs import CallGraph
from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.registry import dependency_cost
from closeby.quality.talk import TalkMeasures, talk_measures
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import AppGroupChanged, AppGroupDeleted, Event, PodDeleted, PodUpserted


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
    """Says what talk costs, and how close pods lie, by the network of one engine."""

    def __init__(self, engine: Engine) -> None:
        """By the costs that the engine goes by, else those of the defaults."""
        self._labels = engine.cluster.labels
        self._costs = dependency_cost(engine.profile)

    def talk(self, application: Application, graph: CallGraph, slots: Sequence[int]) -> TalkMeasures:
        """How close the pods of an application lie; ``slots`` in the order of the graph's workloads."""
        replicas = _replicas(graph, slots)
        costs = self._costs.edges(application, replicas)
        return talk_measures(application.edges, replicas, self._labels, costs)


def talk_of(engine: Engine, key: str, graph: CallGraph, slots: Sequence[int]) -> TalkMeasures | None:
    """How close the pods of an application that an engine knows lie, judged by its own costs."""
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
