"""Whether the topology is to blame: the reason of a gang that waits, against all ways to place it."""

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Layer, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.objects.selectors import LabelRequirement, LabelSelector, PodAffinity, PodAffinityTerm
from tests.worlds import GPU, World, fabric, gang, node, pods, subgroup, world

APART = PodAffinity(
    forbidden=(
        PodAffinityTerm(HOSTNAME, LabelSelector((LabelRequirement("app", "In", ("train",)),)), ("default",)),
    )
)


def fits(sizes: Sequence[tuple[int, int]], nodes: Sequence[tuple[int, int]], *, apart: bool) -> bool:
    """Whether pods fit on nodes, each with GPUs and CPUs; ``apart``: at most one pod on each."""
    if not sizes:
        return True
    (gpus, cpus), *others = sizes
    for at, (free_gpus, free_cpus) in enumerate(nodes):
        if gpus <= free_gpus and cpus <= free_cpus:
            left = [] if apart else [(free_gpus - gpus, free_cpus - cpus)]
            if fits(others, [*nodes[:at], *left, *nodes[at + 1 :]], apart=apart):
                return True
    return False


def asked(dice: Random, count: int) -> tuple[PodGroup, list[str | None]]:
    """A gang with the subgroup of each of its pods; something of it may be required."""
    match dice.choice(("level", "subgroups", "layer", "nothing", "block and layer")):
        case "level":
            return gang(min_member=count, required=dice.choice(("rack", "block"))), [None] * count
        case "subgroups":
            first = dice.randint(1, count - 1)
            minima = dice.randint(1, first), dice.randint(1, count - first)
            parts = [
                subgroup("one", minima[0], required="rack"),
                subgroup("two", minima[1], required=dice.choice(("rack", None))),
            ]
            least = dice.randint(sum(minima), count)
            owners: list[str | None] = ["one" if at < first else "two" for at in range(count)]
            return gang(min_member=least, subgroups=parts), owners
        case "layer":
            size = dice.choice([size for size in range(1, count + 1) if count % size == 0])
            return replace(gang(min_member=count), layers=(Layer(level="rack", size=size),)), [None] * count
        case "block and layer":
            layer = Layer(level="rack", size=count)
            return replace(gang(min_member=count, required="block"), layers=(layer,)), [None] * count
        case _:
            return gang(min_member=count), [None] * count


@pytest.mark.parametrize("seed", range(400))
def test_the_topology_is_to_blame_only_where_the_gang_fits_without_it(seed: int) -> None:
    dice = Random(seed)
    shapes = [(dice.randint(1, 4), dice.randint(2, 6)) for _ in range(dice.randint(2, 5))]
    nodes = [
        node(
            f"n{at}",
            {"block": f"b{at % 2}", "rack": f"r{at % 2}{dice.randint(0, 1)}"},
            {GPU: gpus, "cpu": cpus},
        )
        for at, (gpus, cpus) in enumerate(shapes)
    ]
    count, apart = dice.randint(2, 5), dice.random() < 0.2
    group, owners = asked(dice, count)
    sizes = [(dice.randint(1, 3), dice.randint(0, 3)) for _ in range(count if dice.random() < 0.6 else 1)]
    if len(sizes) < count:
        sizes *= count
    members: list[Pod] = []
    for at, ((gpus, cpus), owner) in enumerate(zip(sizes, owners, strict=True)):
        spec = PodSpec(requests=((GPU, gpus), ("cpu", cpus)), pod_affinity=APART if apart else None)
        (pod,) = pods("train", 1, spec, owner, labels={"app": "train"})
        members.append(replace(pod, name=f"train-{at}", uid=f"train-{at}", index=at))
    found: World = world(nodes, fabric("block", "rack", HOSTNAME), levels=("block", "rack"))
    found.run(group, members=members)
    reason = found.reason("train")
    if reason is None or reason is Reason.SEARCH_BUDGET_EXHAUSTED:
        return
    needed: list[int] = []
    for part in group.subgroups:
        own = [at for at, owner in enumerate(owners) if owner == part.name]
        needed += own[: part.min_member]
    others = [at for at in range(count) if at not in needed]
    anyhow = any(
        fits([sizes[at] for at in (*needed, *more)], shapes, apart=apart)
        for more in combinations(others, max(group.min_member - len(needed), 0))
    )
    assert reason is (Reason.TOPOLOGY_PLACEMENT_FAILED if anyhow else Reason.GANG_DOES_NOT_FIT)
