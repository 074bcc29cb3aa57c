"""Preemption on a full cluster: a gang that clears a rack, many of them in one tick, and gangs in vain."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Final

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
from closeby.scheduling.preempting.rule import Preemptible

NODES: Final = 5_000
NODES_A_RACK: Final = 100
#: A gang and the priority of what runs: how many of them wait, its pods, and the milliseconds that we aim at.
CASES: Final = (
    ("64 x 8 GPU, a rack is cleared", 1, 64, 0, 20.0),
    ("20 gangs of 64 x 8 GPU in one tick", 20, 64, 0, 400.0),
    ("128 x 8 GPU, no rack is large enough", 1, 128, 0, 5.0),
    ("64 x 8 GPU, all that runs is as important", 1, 64, 1_000, 5.0),
)
RUNS: Final = 5
PRIORITY: Final = 1_000
NOW: Final = 1e6


def preemption() -> Iterator[Figure]:
    """The tick that refuses the gangs and makes the plans; no pod is evicted."""
    for case, count, size, lowest, target in CASES:
        samples = []
        for run in range(RUNS):
            engine = _full(lowest)
            # What every decision of an engine needs is worked out by the first one.
            _ask(engine, "warm", size, -1)
            engine.handle(Tick(wall=NOW))
            for number in range(count):
                _ask(engine, f"train-{run}-{number}", size, PRIORITY)
            with quiet_collector():
                samples.append(timed(partial(_plans, engine)))
        yield summary("preemption", case, NODES, count * size, samples, target)


def _plans(engine: Engine) -> int:
    """Pods for which room is made."""
    outcomes = outcomes_of(engine.handle(Tick(wall=NOW)))
    return sum(len(plan.places) for outcome in outcomes for plan in outcome.preemptions)


def _full(lowest: int) -> Engine:
    """A cluster full of gangs of 8 to 64 pods that take whole nodes, of three priorities."""
    configuration = Configuration()
    engine = Engine(lambda handle: profile_for(configuration, handle), backoff=False)
    engine.preempt(Preemptible())
    nodes = clusters.nodes(NODES, racks_a_block=10, nodes_a_rack=NODES_A_RACK)
    clusters.fill(engine, nodes, clusters.topology("block", "rack"), iter(()))
    draw = random.Random(7)
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
    constraint = TopologyConstraint(topology="network", required="rack")
    group = PodGroup(namespace="train", name=name, min_member=size, constraint=constraint)
    spec = replace(clusters.needs(8), priority=priority)
    members = (_pod("train", name, index, spec) for index in range(size))
    engine.handle(GroupChanged(group), *map(PodUpserted, members))


def _pod(
    namespace: str,
    group: str,
    index: int,
    spec: PodSpec,
    node: str | None = None,
    started: float | None = None,
) -> Pod:
    return Pod(
        namespace=namespace,
        name=f"{group}-{index}",
        uid=f"{namespace}/{group}-{index}",
        spec=spec,
        group=group,
        node_name=node,
        phase="Pending" if node is None else "Running",
        started=started,
    )
