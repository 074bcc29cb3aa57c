"""Decisions per second at 5,000 nodes in 50 racks, and the time to say no."""

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from closeby.lab.benchmarks import clusters
from closeby.lab.benchmarks.figures import Figure, TimedSample, quiet_collector, summary, timed
from closeby.lab.benchmarks.placement import engine_of
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, GroupDeleted, PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of

NODES = 5_000
RUNS = 3


def throughput() -> Iterator[Figure]:
    """Gangs of 4 and of 1,000, equal and all-distinct plain pods, on an empty cluster each time.

    ``intake`` counts the events by which the engine hears of the pods, ``decisions`` the tick alone.
    """
    small = [clusters.gang(f"small-{index}", 4, 1, required="rack") for index in range(750)]
    large = [clusters.gang(f"large-{index}", 1_000, 1, required="block") for index in range(9)]
    equal = clusters.plain_pods([clusters.needs(1)] * 10_000, "equal")
    distinct = clusters.plain_pods([clusters.needs(1, extra) for extra in range(3_000)], "distinct")
    asked = (("cpu", 1_000), ("memory", 4 * clusters.GIB))
    bare = clusters.plain_pods([PodSpec(requests=asked)] * 2_000, "bare")
    cases: tuple[tuple[str, list[PodGroup], list[Pod], float], ...] = (
        ("750 gangs of 4, required=rack", *_parted(small), 10_000),
        ("9 gangs of 1,000, required=block", *_parted(large), 100_000),
        ("10,000 equal plain pods", [], equal, 10_000),
        ("3,000 all-distinct plain pods", [], distinct, 3_000),
        ("2,000 equal plain pods without accelerators", [], bare, 10_000),
    )
    for case, groups, pods, target in cases:
        intake, decisions = _run(groups, pods)
        limit = round(len(pods) / target * 1000, 3)
        yield summary("throughput, decisions", case, NODES, len(pods), decisions, limit)
        yield summary("throughput, intake", case, NODES, len(pods), intake)


def refusals() -> Iterator[Figure]:
    """The tick that says no: no rack holds the gang although the cluster could."""
    engine = engine_of(NODES)
    with quiet_collector():
        for size, gpus in ((20, 8), (64, 8), (256, 1), (1_024, 1)):
            group, pods = clusters.gang("hopeless", size, gpus, required="rack")
            engine.handle(GroupChanged(group), *(PodUpserted(pod) for pod in pods))
            engine.handle(Tick())
            samples = []
            for run in range(20):
                # A group that says the same as before is not tried again.
                engine.handle(GroupChanged(replace(group, annotations={"run": f"{run}"})))
                samples.append(timed(partial(_bound, engine)))
            engine.handle(*(PodDeleted(pod.uid) for pod in pods), GroupDeleted(group.key))
            yield summary("time to say no", f"{size} x {gpus} GPU required=rack", NODES, size, samples, 0.2)
    engine.handle(*(PodUpserted(pod) for pod in clusters.plain_pods([clusters.needs(1)], "first")), Tick())
    for name, extras, limit in (("equal", [0] * 1_000, 5.0), ("all-distinct", range(1_000), None)):
        samples = []
        for run in range(RUNS + 1):
            pods = clusters.plain_pods([clusters.needs(16, extra) for extra in extras], f"{name}-{run}")
            engine.handle(*(PodUpserted(pod) for pod in pods))
            with quiet_collector():
                samples.append(timed(partial(_bound, engine)))
            engine.handle(*(PodDeleted(pod.uid) for pod in pods))
        yield summary("time to say no", f"1,000 {name} plain pods", NODES, 1_000, samples[1:], limit)


def unequal() -> Iterator[Figure]:
    """Gangs of unequal pods that are placed, the last one pod by pod, and such whose search is in vain.

    A dozen sizes are 3 to 6 GPUs, each with three amounts of CPU.
    """
    engine = engine_of(NODES)
    engine.handle(*(PodUpserted(pod) for pod in clusters.plain_pods([clusters.needs(1)], "first")), Tick())
    dozen = [clusters.needs(3 + index % 4, 100 * index) for index in range(12)]
    for kinds, text in (
        (_of_gpus((5, 2_500), (3, 3_000)), "2,500 x 5 GPU and 3,000 x 3 GPU"),
        (_of_gpus((5, 2_900), (3, 4_200)), "2,900 x 5 GPU and 4,200 x 3 GPU, in vain"),
        (_of_gpus((5, 2_000), (6, 700), (7, 200), (3, 3_600)), "5, 6, 7 and 3 GPU, in vain"),
        ([(needs, 500) for needs in dozen], "6,000 of a dozen sizes, in vain"),
        ([(needs, 463 + (index < 4)) for index, needs in enumerate(dozen)], "5,560 of a dozen sizes"),
    ):
        specs = [needs for needs, count in kinds for _ in range(count)]
        group = PodGroup(namespace="bench", name="unequal", min_member=len(specs))
        pods = [replace(pod, group="unequal") for pod in clusters.plain_pods(specs, "unequal")]
        samples = []
        for _ in range(RUNS + 1):
            engine.handle(GroupChanged(group), *(PodUpserted(pod) for pod in pods))
            with quiet_collector():
                samples.append(timed(partial(_bound, engine)))
            engine.handle(*(PodDeleted(pod.uid) for pod in pods), GroupDeleted(group.key))
        yield summary("unequal gang", text, NODES, len(pods), samples[1:], 500.0)


def _of_gpus(*kinds: tuple[int, int]) -> list[tuple[PodSpec, int]]:
    """What pods need, and how many there are, of so many GPUs each."""
    return [(clusters.needs(gpus), count) for gpus, count in kinds]


def _run(groups: Sequence[PodGroup], pods: Sequence[Pod]) -> tuple[list[TimedSample], list[TimedSample]]:
    intake, decisions = [], []
    members = clusters.nodes(NODES, racks_a_block=25, nodes_a_rack=100)
    for _ in range(RUNS):
        engine = Engine(lambda handle: profile_for(Configuration(), handle))
        clusters.fill(engine, members, clusters.topology("block", "rack"), iter(()))

        def hear(engine: Engine = engine) -> int:
            engine.handle(*(GroupChanged(group) for group in groups))
            return len(engine.handle(*(PodUpserted(pod) for pod in pods)))

        def decide(engine: Engine = engine) -> int:
            return _bound(engine)

        with quiet_collector():
            intake.append(timed(hear))
            decisions.append(timed(decide))
    return intake, decisions


def _bound(engine: Engine) -> int:
    return len(bindings_of(engine.handle(Tick())))


def _parted(gangs: Sequence[tuple[PodGroup, list[Pod]]]) -> tuple[list[PodGroup], list[Pod]]:
    return [group for group, _ in gangs], [pod for _, pods in gangs for pod in pods]
