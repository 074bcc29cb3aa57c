"""What a tenant makes up to keep a scheduler busy: large applications, most of which can't be placed."""

from collections.abc import Iterator
from random import Random

from msgspec.structs import replace

from closeby.objects.applications import AppGroup, AppWorkload, Dependency
from closeby.objects.labels import REGION, ZONE
from closeby.objects.pods import Pod
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    Event,
    NetworkTopologyChanged,
    NodeUpserted,
    PodUpserted,
)
from tests.applications.networks import network
from tests.worlds import GPU, node, pods, spec

ZONES = 8
#: Nodes that are filled to the last unit, and what each has room for.
PACKED, ROOM = 5, 1_000


def engine() -> Engine:
    return Engine(lambda handle: profile_for(Configuration(), handle), contain_faults=False)


def cluster(nodes: int = 64, taken: int = 0) -> Iterator[Event]:
    """Nodes of 8 GPUs in eight zones, on each of which so many are taken."""
    costs = "\n".join(f"z{a} z{b} {5 + 3 * (b - a)}" for b in range(ZONES) for a in range(b))
    yield NetworkTopologyChanged(network(zones=costs))
    for number in range(nodes):
        labels = {ZONE: f"z{number % ZONES}", REGION: "r"}
        yield NodeUpserted(node(f"n{number}", labels, {GPU: 8, "cpu": 8000}))
        if taken:
            yield from (
                PodUpserted(one)
                for one in pods(None, 1, spec(gpu=taken), prefix=f"old{number}", on=f"n{number}")
            )


def complete(name: str, size: int, namespace: str) -> Iterator[Event]:
    """An application in which every workload talks to every other one, with limits of all kinds."""
    names = [f"w{number}" for number in range(size)]
    workloads = [
        AppWorkload(
            name=one,
            dependencies=tuple(
                Dependency(workload=other, max_network_cost=6 + (place + far) % 20)
                for far, other in enumerate(names[place + 1 :])
            ),
        )
        for place, one in enumerate(names)
    ]
    yield AppGroupChanged(AppGroup(namespace=namespace, name=name, workloads=tuple(workloads)))
    labels = {"appgroup.diktyo.x-k8s.io": name}
    for number, workload in enumerate(names):
        own = labels | {"appgroup.diktyo.x-k8s.io.workload": workload}
        for one in pods(None, 1, spec(gpu=1, cpu=1 + number), prefix=f"{name}-{workload}", labels=own):
            yield PodUpserted(in_namespace(one, namespace))


def in_namespace(pod: Pod, namespace: str) -> Pod:
    return replace(pod, namespace=namespace, uid=f"{namespace}/{pod.name}")


def exact_sizes() -> list[int]:
    """Sizes of pods that fill their nodes to the last unit: more than is searched within the limit."""
    dice, sizes = Random(1), list[int]()
    for _ in range(PACKED):
        cuts = sorted(dice.sample(range(60, ROOM - 60), 3))
        sizes += [end - start for start, end in zip([0, *cuts], [*cuts, ROOM], strict=True)]
    return sizes
