"""Preemption on a full cluster: a gang that clears a rack, many of them in one tick, and gangs in vain."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from closeby.lab.benchmarks import clusters
from closeby.lab.benchmarks.figures import Figure, quiet_collector, summary, timed
from closeby.objects.groups import PodGroup, TopologyConstraint
from closeby.objects.pods import Pod, PodSpec
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, PodUpserted, Tick
from closeby.scheduling.outcomes import outcomes_of
from closeby.scheduling.preemption.rule import Preemptible

NODES: Final = 5_000
NODES_A_RACK: Final = 100


class Case(NamedTuple):
    """What waits on the full cluster, and the milliseconds that we aim at."""

    name: str
    #: Gangs that wait, and the pods of each; 0: as many plain pods of two GPUs.
    gangs: int
    pods: int
    target: float | None
    #: The lowest priority of what runs.
    lowest: int = 0
    #: Whether something was refused before: what is known of possible victims is kept then.
    warm: bool = True


CASES: Final = (
    Case("64 x 8 GPU, a rack is cleared", 1, 64, 20.0),
    Case("the same, the first search of a process", 1, 64, None, warm=False),
    Case("20 gangs of 64 x 8 GPU in one tick", 20, 64, 400.0),
    Case("128 x 8 GPU, no rack is large enough", 1, 128, 5.0),
    Case("64 x 8 GPU, all that runs is as important", 1, 64, 5.0, lowest=1_000),
    Case("a plain pod, among 40,000 plain pods", 1, 0, 20.0),
    Case("20 plain pods in one tick, the same", 20, 0, 400.0),
)
RUNS: Final = 5
PRIORITY: Final = 1_000
NOW: Final = 1e6


def preemption() -> Iterator[Figure]:
    """The tick that refuses the gangs and makes the plans; no pod is evicted."""
    for case in CASES:
        samples = []
        for run in range(RUNS):
            engine = _full(case.lowest, gangs=bool(case.pods))
            if case.warm:
                # What every decision of an engine needs is worked out by the first one.
                _ask(engine, "warm", case.pods, -1)
                engine.handle(Tick(wall=NOW))
            for number in range(case.gangs):
                _ask(engine, f"train-{run}-{number}", case.pods, PRIORITY)
            with quiet_collector():
                samples.append(timed(partial(_plans, engine)))
        count = case.gangs * max(case.pods, 1)
        yield summary("preemption", case.name, NODES, count, samples, case.target)


def _plans(engine: Engine) -> int:
    """Pods for which room is made."""
    outcomes = outcomes_of(engine.handle(Tick(wall=NOW)))
    return sum(len(plan.places) for outcome in outcomes for plan in outcome.preemptions)


def _full(lowest: int, *, gangs: bool) -> Engine:
    """A cluster full of gangs of 8 to 64 pods that take whole nodes, of three priorities.

    Without ``gangs`` each node has eight plain pods of one GPU.
    """
    configuration = Configuration()
    engine = Engine(lambda handle: profile_for(configuration, handle), backoff=False)
    engine.preempt(Preemptible())
    nodes = clusters.nodes(NODES, racks_a_block=10, nodes_a_rack=NODES_A_RACK)
    clusters.fill(engine, nodes, clusters.topology("block", "rack"), iter(()))
    draw = random.Random(7)
    if not gangs:
        ones = [replace(clusters.needs(1), priority=lowest + step) for step in (0, 10, 20)]
        for number in range(NODES):
            made = (
                _pod("busy", None, 8 * number + at, draw.choice(ones), f"node-{number}", draw.random() * NOW)
                for at in range(8)
            )
            engine.handle(*map(PodUpserted, made))
        return engine
    specs = [replace(clusters.needs(8), priority=lowest + step) for step in (0, 10, 20)]
    first = number = 0
    while first < NODES:
        size = min(draw.randint(8, 64), NODES - first)
        group = PodGroup(namespace="busy", name=f"busy-{number}", min_member=size)
        started = float(draw.randint(0, 100_000))
        members = (
            _pod("busy", group.name, index, specs[number % 3], f"node-{first + index}", started)
            for index in range(size)
        )
        engine.handle(GroupChanged(group), *map(PodUpserted, members))
        first, number = first + size, number + 1
    return engine


def _ask(engine: Engine, name: str, size: int, priority: int) -> None:
    """A gang, or a plain pod of two GPUs, waits."""
    if not size:
        spec = replace(clusters.needs(2), priority=priority)
        pod = Pod(namespace="train", name=name, uid=name, spec=spec)
        engine.handle(PodUpserted(pod))
        return
    constraint = TopologyConstraint(topology="network", required="rack")
    group = PodGroup(namespace="train", name=name, min_member=size, constraint=constraint)
    spec = replace(clusters.needs(8), priority=priority)
    members = (_pod("train", name, index, spec) for index in range(size))
    engine.handle(GroupChanged(group), *map(PodUpserted, members))


def _pod(
    namespace: str,
    group: str | None,
    index: int,
    spec: PodSpec,
    node: str | None = None,
    started: float | None = None,
) -> Pod:
    return Pod(
        namespace=namespace,
        name=f"{group or 'pod'}-{index}",
        uid=f"{namespace}/{group or 'pod'}-{index}",
        spec=spec,
        group=group,
        node_name=node,
        phase="Pending" if node is None else "Running",
        started=started,
    )
