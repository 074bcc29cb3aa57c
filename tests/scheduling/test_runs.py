"""Equal members that go by score are placed in one run; it comes out as if each were placed by itself."""

from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.labels import HOSTNAME, ZONE
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import NodeSelectorTerm, Pod, PodSpec, PreferredTerm, Requirement
from closeby.objects.selectors import (
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodTerm,
)
from closeby.plugins.configurations import NAMED
from closeby.plugins.registry import profile_for
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, NodeUpserted, PodUpserted, Tick, TopologyChanged
from closeby.scheduling.outcomes import bindings_of
from closeby.scheduling.placing import by_score
from tests.worlds import GPU, fabric, gang, pods

GIB = 1 << 30
KEYS = (HOSTNAME, "rack", ZONE)


def selector(app: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", "In", (app,)),))


def some_nodes(dice: Random) -> list[Node]:
    made = []
    for index in range(dice.randint(3, 24)):
        labels = {HOSTNAME: f"n{index}", "rack": f"r{index // 4}", ZONE: f"z{index // 8}"}
        for key in ("rack", ZONE):
            if dice.random() < 0.08:
                del labels[key]
        taints = (Taint("slow", "", "PreferNoSchedule"),) if dice.random() < 0.2 else ()
        offered = {"cpu": dice.choice([2000, 4000, 9000]), "memory": dice.choice([4, 16]) * GIB, "pods": 30}
        if dice.random() < 0.4:
            offered[GPU] = dice.choice([2, 8])
        name = f"n{dice.randrange(10)}-{index}"  # Names and slots have different orders.
        made.append(Node(name=name, labels=labels, taints=taints, allocatable=offered))
    return made


def preferences(dice: Random, app: str) -> PodSpec:
    """A spec of members that are scored by what was just placed, and perhaps by what else there is."""
    affinity, spread = None, []
    if dice.random() < 0.7:
        weighted = tuple(
            WeightedPodTerm(
                dice.choice([-100, -7, 1, 50]),
                PodAffinityTerm(dice.choice(KEYS), selector(dice.choice([app, "old"]))),
            )
            for _ in range(dice.randint(1, 3))
        )
        near = (PodAffinityTerm(dice.choice(KEYS), selector(dice.choice([app, "old"]))),)
        apart = (
            PodAffinityTerm(dice.choice([HOSTNAME, HOSTNAME, "rack"]), selector(dice.choice([app, "old"]))),
        )
        affinity = PodAffinity(
            preferred=weighted,
            required=near if dice.random() < 0.2 else (),
            forbidden=apart if dice.random() < 0.4 else (),
        )
    if affinity is None or dice.random() < 0.5:
        spread = [
            TopologySpreadConstraint(
                topology_key=key,
                max_skew=dice.randint(1, 3),
                selector=selector(app) if dice.random() < 0.9 else selector("old"),
                hard=dice.random() < 0.1,
            )
            for key in dice.sample(KEYS, dice.randint(1, 2))
        ]
    wished = (PreferredTerm(9, NodeSelectorTerm(expressions=(Requirement("rack", "In", ("r1",)),))),)
    requests: tuple[tuple[str, int], ...] = (("cpu", dice.choice([100, 300, 700])), ("memory", GIB // 4))
    if dice.random() < 0.2:
        requests = (*requests, (GPU, 1))
    return PodSpec(
        requests=requests,
        pod_affinity=affinity,
        topology_spread=tuple(spread),
        preferred_affinity=wished if dice.random() < 0.3 else (),
    )


def members(dice: Random, group: PodGroup) -> list[Pod]:
    """One or two kinds, one after the other or mixed; with indices among the labels or without."""
    kinds = [preferences(dice, "new") for _ in range(dice.randint(1, 2))]
    drawn = dice.randint(0, 1)
    made = [
        replace(
            pod,
            index=at,
            labels={"app": "new", **({"index": str(at)} if drawn else {})},
            spec=kinds[at * len(kinds) // group.min_member] if dice.random() < 0.95 else kinds[0],
        )
        for at, pod in enumerate(pods(group.name, group.min_member))
    ]
    return made


def placements(
    nodes: Sequence[Node], old: Sequence[Pod], group: PodGroup, new: Sequence[Pod], name: str
) -> dict[str, str]:
    engine = Engine(lambda handle: profile_for(NAMED[name], handle))
    engine.handle(*map(NodeUpserted, nodes), TopologyChanged(fabric(ZONE, "rack", HOSTNAME)))
    engine.handle(*map(PodUpserted, old), GroupChanged(group), *map(PodUpserted, new))
    found = {one.pod.name: one.node for one in bindings_of(engine.handle(Tick()))}
    engine.validate_state()
    return found


@pytest.mark.parametrize("seed", range(60))
def test_a_run_places_pods_as_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = Random(seed)
    nodes = some_nodes(dice)
    level = dice.choice([None, None, "rack", ZONE])
    group = gang(
        min_member=dice.choice([5, 9, 12, 40]),
        required=level if dice.random() < 0.3 else None,
        preferred=level if dice.random() < 0.5 else None,
    )
    old = [
        replace(pod, labels={"app": "old"}, node_name=dice.choice(nodes).name, phase="Running")
        for pod in pods(None, dice.randint(0, 12), preferences(dice, "old"), prefix="old")
    ]
    new = members(dice, group)
    name = dice.choice(["default", "default", "kube-scheduler"])
    in_runs = placements(nodes, old, group, new, name)
    monkeypatch.setattr(by_score, "LEAST_RUN", 1 << 30)
    assert in_runs == placements(nodes, old, group, new, name), f"seed {seed}"
