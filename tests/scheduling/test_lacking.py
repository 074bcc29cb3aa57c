"""What pods lack, looked at for all resources at once on few nodes, and one by one on many."""

from random import Random

import numpy as np
import pytest

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Ints
from closeby.objects.nodes import Node
from closeby.objects.pods import PodSpec
from closeby.scheduling.judging import lacking
from tests.golden.fixture import Golden
from tests.worlds import GPU, gang, pods, spec, world

AMOUNTS = {"cpu": (0, 500, 8_000, 32_000), "memory": (1 << 30, 64 << 30), GPU: (0, 1, 4, 16), "odd/one": (1,)}


@pytest.mark.parametrize("seed", range(200))
def test_resources_lack_the_same_one_by_one_and_all_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(seed)
    cluster = Cluster()
    for number in range(draw.randrange(1, 8)):
        offered = {"cpu": 16_000, "memory": 32 << 30, "pods": draw.choice((1, 10))}
        if draw.random() < 0.7:
            offered[GPU] = draw.choice((4, 8))
        slot = cluster.add_node(Node(name=f"n{number}", allocatable=offered))
        cluster.requested[cluster.row_of["cpu"], slot] = draw.choice((0, 4_000, 20_000))
    demand = []
    for kind in range(draw.choice((1, 1, 2))):
        names = draw.sample(sorted(AMOUNTS), draw.randrange(1, 4))
        needs = PodSpec(requests=tuple(sorted((name, draw.choice(AMOUNTS[name])) for name in names)))
        demand.append((pods(None, 1, needs, prefix=f"k{kind}")[0], draw.choice((1, 2, 30))))
    slots = np.asarray(draw.sample(range(cluster.capacity), draw.randrange(1, cluster.capacity + 1)))
    index: Ints | slice = slots if draw.random() < 0.5 else slice(0, cluster.capacity)
    alive = cluster.alive[index]
    usable = alive & np.asarray([draw.random() < 0.7 for _ in alive])

    at_once = lacking.lacks_of(cluster, demand, index, alive, usable)
    monkeypatch.setattr(lacking, "TOGETHER", -1)

    assert lacking.lacks_of(cluster, demand, index, alive, usable) == at_once


def test_the_largest_free_amount_is_named_where_it_is_too_little_for_a_pod(golden: Golden) -> None:
    for asked in (4, 5):
        drawn = world("z r : a1=4 a2=3 a3=3").run(
            gang(min_member=2), members=pods("train", 2, spec(gpu=asked))
        )
        golden("refusals", drawn.outcome("train").message or "")
