"""One placement of a gang: warm, after a node change, and pod by pod under a scorer that watches them."""

from collections.abc import Iterator
from typing import NamedTuple

from closeby.lab.benchmarks import clusters
from closeby.lab.benchmarks.figures import Figure, TimedSample, quiet_collector, summary, timed
from closeby.objects.nodes import Node
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    GroupChanged,
    GroupDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.outcomes import bindings_of

SIZES = (1_000, 5_000, 20_000, 50_000, 100_000)
RUNS = 11
#: What we aim at for one warm placement: (nodes, milliseconds), plus ``PER_POD_MS`` for each pod.
TARGETS = {5_000: 0.1, 50_000: 0.5, 100_000: 1.0}
PER_POD_MS = 0.004


class BenchmarkShape(NamedTuple):
    """A gang of the benchmark."""

    pods: int
    gpus: int
    required: str | None = None
    preferred: str | None = None

    @property
    def text(self) -> str:
        """``64 x 1 GPU required=rack``."""
        asked = f"required={self.required}" if self.required else f"preferred={self.preferred}"
        return f"{self.pods} x {self.gpus} GPU {asked}"


SHAPES = (
    BenchmarkShape(64, 1, required="rack"),
    BenchmarkShape(256, 1, required="block"),
    BenchmarkShape(1024, 1, required="block"),
    BenchmarkShape(64, 8, required="block"),
    BenchmarkShape(256, 8, required="block"),
    BenchmarkShape(1024, 8, required="block"),
    BenchmarkShape(64, 1, preferred="rack"),
    BenchmarkShape(256, 1, preferred="rack"),
    BenchmarkShape(1024, 1, preferred="rack"),
    BenchmarkShape(64, 8, preferred="rack"),
    BenchmarkShape(256, 8, preferred="rack"),
    BenchmarkShape(1024, 8, preferred="rack"),
)

#: A scorer that depends on what was placed a moment ago, so that gangs are filled pod by pod.
POD_BY_POD = PluginEntry(
    name="network-topology",
    arguments={"network-topology.type": "static", "network-topology.keys": "rack,block"},
)


def engine_of(count: int, *plugins: PluginEntry) -> Engine:
    """An engine with the benchmark's cluster."""
    configuration = Configuration(plugins=plugins)
    engine = Engine(lambda handle: profile_for(configuration, handle))
    clusters.fill(engine, clusters.nodes(count), clusters.topology("block", "rack"), clusters.usage(count))
    return engine


def warm(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """The tick that places a gang whose pods the engine knows, with the state update."""
    for count in sizes:
        engine = engine_of(count)
        with quiet_collector():
            for shape in SHAPES:
                samples = [_place(engine, shape, run) for run in range(RUNS)]
                base = TARGETS.get(count) if samples[-1].placed else None
                target = None if base is None else round(base + PER_POD_MS * shape.pods, 4)
                yield summary("placement, warm", shape.text, count, shape.pods, samples[1:], target)


def after_node_change(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """The same, with a node that was cordoned (or that arrived) just before; its event is timed too."""
    shape = BenchmarkShape(256, 1, required="block")
    for count in sizes:
        engine = engine_of(count)
        members = clusters.nodes(count + RUNS)
        with quiet_collector():
            cordoned = [
                _place(engine, shape, run, NodeUpserted(_cordoned(members[run * 7]))) for run in range(RUNS)
            ]
            yield summary("placement, node cordoned", shape.text, count, shape.pods, cordoned[1:])
            arrived = [
                _place(engine, shape, RUNS + run, NodeUpserted(members[count + run])) for run in range(RUNS)
            ]
            yield summary("placement, node arrived", shape.text, count, shape.pods, arrived[1:])


def pod_by_pod(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """The fill that asks every scorer again after every pod."""
    for count in sizes:
        engine = engine_of(count, POD_BY_POD)
        with quiet_collector():
            for shape in (BenchmarkShape(64, 1, required="rack"), BenchmarkShape(256, 1, required="block")):
                samples = [_place(engine, shape, run) for run in range(4)]
                yield summary("placement, pod by pod", shape.text, count, shape.pods, samples[1:])


def _place(engine: Engine, shape: BenchmarkShape, run: int, *changes: Event) -> TimedSample:
    group, pods = clusters.gang(f"gang-{run}", shape.pods, shape.gpus, shape.required, shape.preferred)
    engine.handle(GroupChanged(group), *(PodUpserted(pod) for pod in pods))

    def decide() -> int:
        return len(bindings_of(engine.handle(*changes, Tick())))

    sample = timed(decide)
    engine.handle(*(PodDeleted(pod.uid) for pod in pods), GroupDeleted(group.key))
    return sample


def _cordoned(node: Node) -> Node:
    return Node(name=node.name, labels=node.labels, allocatable=node.allocatable, unschedulable=True)
