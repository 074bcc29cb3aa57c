"""The workloads of `closeby demo`: a GPU cluster in the middle of its day, and what is submitted next."""

from collections.abc import Iterator, Sequence
from functools import cache

from closeby.objects.groups import PodGroup, Strategy, SubGroup, TopologyConstraint
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.reading.manifests import Manifests
from closeby.simulator.synthetic import GPU, GPUS_PER_HOST, fabric_topology, gpu_hosts

NAMESPACE = "demo"

#: Tenths of each leaf's hosts that are taken already, in turn over the leaves.
_TAKEN = (10, 7, 10, 5, 9, 10, 0, 10, 4, 10, 8, 10, 6)
#: Gangs that run already, by number of hosts; they are dealt out host by host, in turn.
_RUNNING = (
    ("pretrain-70b", 256),
    ("pretrain-7b", 128),
    ("video-gen", 96),
    ("rl-rollouts", 64),
    ("asr", 1000),
)
#: GPUs that notebooks hold on the first free host of every third leaf.
_NOTEBOOKS = (3, 1, 5, 2)

#: Single-GPU pods fill hosts that are in use rather than opening new ones.
CONFIGURATION = Configuration(
    plugins=(PluginEntry(name="NodeResourcesFit", arguments={"scoringStrategy": {"type": "MostAllocated"}}),)
)

#: The gang whose place is explained, and the one whose waiting is.
WHY_HERE = f"{NAMESPACE}/llama-sft"
WHY_NOT = f"{NAMESPACE}/one-leaf-please"


def demo_manifests() -> Manifests:
    """Nodes, a topology, what runs, and what waits."""
    leaves = list(gpu_hosts())
    running = list(_running(leaves))
    groups, waiting = _submitted()
    return Manifests(
        nodes=tuple(host for leaf in leaves for host in leaf),
        topologies=(fabric_topology(),),
        groups=(*(_gang(name) for name, _ in _RUNNING), *groups),
        pods=(*running, *waiting),
    )


def _running(leaves: Sequence[Sequence[Node]]) -> Iterator[Pod]:
    gangs = iter([name for name, hosts in _RUNNING for _ in range(hosts)])
    whole, single = _needs(GPUS_PER_HOST), _needs(1)
    number = notebook = 0
    for index, leaf in enumerate(leaves):
        taken = round(len(leaf) * _TAKEN[index % len(_TAKEN)] / 10)
        for host in leaf[:taken]:
            yield _pod(f"job-{number}", whole, group=next(gangs), node=host.name)
            number += 1
        if index % 3 == 0:
            for host in leaf[taken : taken + 1]:
                for _ in range(_NOTEBOOKS[index // 3 % len(_NOTEBOOKS)]):
                    yield _pod(f"notebook-{notebook}", single, node=host.name)
                    notebook += 1


def _submitted() -> tuple[list[PodGroup], list[Pod]]:
    """Gangs of every kind, in the order of their submission, and some single pods."""
    serving = (
        SubGroup(name="prefill", min_member=2, constraint=_near(required="leaf")),
        SubGroup(name="decode", min_member=4, constraint=_near(required="leaf")),
    )
    asked = [
        (_gang("llama-sft", 6, _near(required="leaf")), 6, GPUS_PER_HOST),
        (_gang("mixtral", 40, _near(required="pod", preferred="leaf")), 40, GPUS_PER_HOST),
        (_gang("vision-ddp", 16, _near(required="leaf")), 16, 4),
        (_gang("eval-sweep", 24, _near(required="leaf"), strategy=Strategy.SPREAD), 24, 1),
        (_gang("serving", 6, _near(required="pod"), subgroups=serving), 0, 0),
        (_gang("one-leaf-please", 12, _near(required="leaf")), 12, GPUS_PER_HOST),
    ]
    groups = [group for group, _, _ in asked]
    pods = [
        _pod(f"{group.name}-{index}", _needs(gpus), group=group.name, created=float(turn))
        for turn, (group, count, gpus) in enumerate(asked)
        for index in range(count)
    ]
    whole = _needs(GPUS_PER_HOST)
    pods += [
        _pod(f"serving-{part.name}-{index}", whole, group="serving", subgroup=part.name, created=4.0)
        for part in serving
        for index in range(part.min_member)
    ]
    pods += [_pod(f"notebook-new-{index}", _needs(1), created=float(len(asked))) for index in range(6)]
    return groups, pods


def _near(required: str | None = None, preferred: str | None = None) -> TopologyConstraint:
    return TopologyConstraint(topology="fabric", required=required, preferred=preferred)


def _gang(
    name: str,
    min_member: int = 1,
    constraint: TopologyConstraint | None = None,
    strategy: Strategy = Strategy.BINPACK,
    subgroups: tuple[SubGroup, ...] = (),
) -> PodGroup:
    return PodGroup(
        namespace=NAMESPACE,
        name=name,
        min_member=min_member,
        constraint=constraint,
        strategy=strategy,
        subgroups=subgroups,
    )


@cache
def _needs(gpus: int) -> PodSpec:
    return PodSpec(requests=(("cpu", 8000 * gpus), ("memory", gpus << 36), (GPU, gpus)))


def _pod(
    name: str,
    spec: PodSpec,
    *,
    group: str | None = None,
    subgroup: str | None = None,
    node: str | None = None,
    created: float = 0.0,
) -> Pod:
    return Pod(
        namespace=NAMESPACE,
        name=name,
        uid=f"{NAMESPACE}/{name}",
        spec=spec,
        group=group,
        subgroup=subgroup,
        node_name=node,
        phase="Pending" if node is None else "Running",
        created=created,
    )
