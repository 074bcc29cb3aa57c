"""One placement of a gang: warm, after a node change, pod by pod under a scorer that watches, by buckets."""

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from closeby.applications.buckets import make_buckets
from closeby.lab.benchmarks import clusters
from closeby.lab.benchmarks.figures import Figure, TimedSample, quiet_collector, summary, timed
from closeby.objects.groups import Layer, PodGroup, RoleRules
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.reading.decoding.keys import TASK_AFFINITY, TASK_ANTI_AFFINITY
from closeby.reading.dialects.task_topology import read_rules
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    GroupChanged,
    GroupDeleted,
    NodeDeleted,
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
#: Nodes that come or go at once.
MANY = 1_000


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


class LayeredCase(NamedTuple):
    """A gang in layers, and the milliseconds that we aim at."""

    text: str
    layers: tuple[Layer, ...]
    aim: float | None = None
    #: Of so many pods the first one is a leader, which asks for no GPU; 0: all are equal.
    led: int = 0


LAYERED_SHAPE = BenchmarkShape(1024, 1)
LAYERED_NODES = 50_000
LAYERED = (
    LayeredCase("1,024 x 1 GPU in segments: 64 a block", (Layer(level="block", size=64),), 6.0),
    LayeredCase("the same: 64 a rack", (Layer(level="rack", size=64),)),
    LayeredCase(
        "the same: 128 a block, 16 a rack",
        (Layer(level="block", size=128), Layer(level="rack", size=16)),
    ),
    LayeredCase(
        "the same: 256 a block, 32 a rack, 8 a node",
        (Layer(level="block", size=256), Layer(level="rack", size=32), Layer(level=HOSTNAME, size=8)),
        10.0,
    ),
    LayeredCase("64 leaders with 15 workers each: 16 a rack", (Layer(level="rack", size=16),), led=16),
)
LEADER = PodSpec(requests=(("cpu", 4_000), ("memory", 8 * clusters.GIB)))

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


def in_layers(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """The same for gangs whose pods go in segments."""
    for count in sizes:
        engine = engine_of(count)
        with quiet_collector():
            for case in LAYERED:
                samples = [_place(engine, LAYERED_SHAPE, run, case=case) for run in range(RUNS)]
                goal = case.aim if count == LAYERED_NODES else None
                yield summary("placement, in layers", case.text, count, LAYERED_SHAPE.pods, samples[1:], goal)


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


def node_events(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """Nodes that come, leave or move to another rack, and the tick after that, which places one pod."""
    one = BenchmarkShape(1, 1, required="rack")
    for count in sizes:
        engine = engine_of(count)
        members = clusters.nodes(count + RUNS + MANY)
        half = count // 2
        there, more = members[half : half + 2 * RUNS], members[count : count + RUNS]
        moved = [replace(node, labels=other.labels) for node, other in zip(there, members, strict=False)]
        fleet = [NodeUpserted(node) for node in members[-MANY:]]
        single: dict[str, list[Event]] = {
            "a node arrives": [NodeUpserted(node) for node in more],
            "a node moves to another rack": [NodeUpserted(node) for node in moved[:RUNS]],
            "a node leaves": [NodeDeleted(node.name) for node in there[RUNS:]],
            "a node comes back": [NodeUpserted(node) for node in there[RUNS:]],
        }
        with quiet_collector():
            samples = [_place(engine, one, run) for run in range(RUNS)]
            yield summary("nodes change", "nothing", count, 1, samples[1:])
            for number, (case, events) in enumerate(single.items(), start=1):
                samples = [_place(engine, one, number * RUNS + run, each) for run, each in enumerate(events)]
                limit = 1.0 if count == SIZES[-1] else None
                yield summary("nodes change", case, count, 1, samples[1:], limit)
            come, go = [], []
            for run in range(4):
                come.append(_place(engine, one, 1_000 + run, *fleet))
                go.append(_place(engine, one, 2_000 + run, *(NodeDeleted(each.node.name) for each in fleet)))
            limit = 100.0 if count == SIZES[-1] else None
            yield summary("nodes change", f"{MANY:,} nodes arrive", count, 1, come, limit)
            yield summary("nodes change", f"{MANY:,} nodes leave", count, 1, go, limit)


def pod_by_pod(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """The fill that asks every scorer again after every pod."""
    for count in sizes:
        engine = engine_of(count, POD_BY_POD)
        with quiet_collector():
            for shape in (BenchmarkShape(64, 1, required="rack"), BenchmarkShape(256, 1, required="block")):
                samples = [_place(engine, shape, run) for run in range(4)]
                yield summary("placement, pod by pod", shape.text, count, shape.pods, samples[1:])


def _place(
    engine: Engine, shape: BenchmarkShape, run: int, *changes: Event, case: LayeredCase | None = None
) -> TimedSample:
    group, pods = clusters.gang(f"gang-{run}", shape.pods, shape.gpus, shape.required, shape.preferred)
    if case is not None:
        group = replace(group, layers=case.layers)
        pods = [
            replace(pod, spec=LEADER) if case.led and at % case.led == 0 else pod
            for at, pod in enumerate(pods)
        ]
    engine.handle(GroupChanged(group), *(PodUpserted(pod) for pod in pods))

    def decide() -> int:
        return len(bindings_of(engine.handle(*changes, Tick())))

    sample = timed(decide)
    engine.handle(*(PodDeleted(pod.uid) for pod in pods), GroupDeleted(group.key))
    return sample


def _cordoned(node: Node) -> Node:
    return Node(name=node.name, labels=node.labels, allocatable=node.allocatable, unschedulable=True)


TASKS = 10_000
SORTS = 7
TARGET_MS = 100.0
#: Case -> roles with their share of the tasks, affinity, anti-affinity.
CASES = {
    "ps and workers, 100 buckets": ({"ps": 1, "worker": 99}, "ps,worker", "ps"),
    "ps and workers, 5,000 buckets": ({"ps": 1, "worker": 1}, "ps,worker", "ps"),
    "all apart, 10,000 buckets": ({"worker": 1}, "", "worker"),
    "ten roles, 1,000 buckets": (
        {f"role-{n}": 1 for n in range(10)},
        ",".join(f"role-{n}" for n in range(10)),
        "role-0",
    ),
}


def buckets() -> Iterator[Figure]:
    """10,000 tasks, in no order."""
    for case, (shares, affinity, anti_affinity) in CASES.items():
        group = _group("train", affinity, anti_affinity)
        pods = _tasks("train", shares, TASKS)
        Random(1).shuffle(pods)
        rules = read_rules(group, shares).rules or RoleRules()
        with quiet_collector():
            samples = [timed(partial(_sort, rules, pods)) for _ in range(SORTS)]
        yield summary("buckets", case, 0, TASKS, samples[1:], TARGET_MS)


def placed_by_buckets(nodes: tuple[int, ...] = (1_000, 5_000)) -> Iterator[Figure]:
    """The tick that places a gang of 256 tasks pod by pod, by its buckets."""
    for count in nodes:
        engine = engine_of(count)
        with quiet_collector():
            samples = [_place_tasks(engine, f"train-{run}") for run in range(4)]
        yield summary("placement, by buckets", "32 ps and 224 workers", count, 256, samples[1:])


def _sort(rules: RoleRules, pods: list[Pod]) -> int:
    return len(make_buckets(rules, pods).order)


def _place_tasks(engine: Engine, name: str) -> TimedSample:
    pods = _tasks(name, {"ps": 1, "worker": 7}, 256)
    engine.handle(GroupChanged(_group(name, "ps,worker", "ps")), *(PodUpserted(pod) for pod in pods))
    sample = timed(lambda: len(bindings_of(engine.handle(Tick()))))
    engine.handle(*(PodDeleted(pod.uid) for pod in pods), GroupDeleted(f"default/{name}"))
    return sample


def _group(name: str, affinity: str, anti_affinity: str) -> PodGroup:
    return PodGroup(
        namespace="default",
        name=name,
        annotations={TASK_AFFINITY: affinity, TASK_ANTI_AFFINITY: anti_affinity},
        members_apart=True,
    )


def _tasks(group: str, shares: dict[str, int], count: int) -> list[Pod]:
    """So many tasks, with roles by their share; each role has needs of its own."""
    whole = sum(shares.values())
    pods = []
    for number, (role, share) in enumerate(shares.items(), start=1):
        needs = PodSpec(requests=(("cpu", 500 * number), ("memory", number << 28)))
        pods += [
            Pod(
                namespace="default",
                name=f"{group}-{role}-{index}",
                uid=f"{group}-{role}-{index}",
                spec=needs,
                group=group,
                role=role,
            )
            for index in range(count * share // whole)
        ]
    return pods
