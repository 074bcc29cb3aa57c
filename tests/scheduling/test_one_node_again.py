"""What is kept of a class of pods, as pods come to nodes and leave them one by one."""

from random import Random

import numpy as np
import pytest

from closeby.objects.pods import Pod, PodSpec
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import NodeUpserted, PodDeleted, PodUpserted
from closeby.scheduling.judging.classes import ClassTable
from tests.worlds import GPU, node, pods, spec, world

ASKED = (
    spec(gpu=1, cpu=2_000, memory=4 << 30),
    spec(cpu=500, memory=1 << 30),
    PodSpec(requests=((GPU, 2),), node_selector=(("zone", "a"),)),
)


def assert_kept_as_computed(engine: Engine) -> None:
    """What is kept of each class is what a table computes that has just been made."""
    kept = engine._tools.table
    fresh = ClassTable(engine.cluster, engine.profile.filters, engine.profile.scores)
    for asked in ASKED:
        (pod,) = pods(None, 1, asked)
        one, other = kept.of(pod), fresh.of(pod)
        assert one.fits.tolist() == other.fits.tolist()
        assert one.total == other.total
        assert np.array_equal(kept.ranked(one), fresh.ranked(other))


@pytest.mark.parametrize("seed", range(6))
def test_figures_of_one_node_are_what_they_are_for_all_nodes_at_once(seed: int) -> None:
    draw = Random(seed)
    nodes = [
        node(
            f"n{index}",
            {"zone": draw.choice("ab"), "rack": f"r{index % 3}"},
            {GPU: 8, "cpu": draw.choice((8_000, 64_000)), "memory": 64 << 30, "pods": draw.choice((3, 110))},
        )
        for index in range(12)
    ]
    engine = world(nodes).engine
    placed: list[Pod] = []
    for step in range(40):
        if placed and draw.random() < 0.4:
            engine.handle(PodDeleted(placed.pop(draw.randrange(len(placed))).uid))
        elif draw.random() < 0.1:
            engine.handle(NodeUpserted(draw.choice(nodes)))
        else:
            placed += pods(None, 1, draw.choice(ASKED), prefix=f"p{step}", on=draw.choice(nodes).name)
            engine.handle(PodUpserted(placed[-1]))
        assert_kept_as_computed(engine)


@pytest.mark.parametrize("seed", range(6))
def test_figures_hold_after_many_pods_came_to_a_few_nodes(seed: int) -> None:
    """Each pod is one change: there are many more of these than nodes, and the nodes' figures are kept."""
    draw = Random(seed)
    nodes = [
        node(
            f"n{index}", {"zone": draw.choice("ab")}, {GPU: 8, "pods": 110, "cpu": 640_000, "memory": 1 << 40}
        )
        for index in range(100)
    ]
    engine = world(nodes).engine
    for step in range(6):
        busy = [one.name for one in draw.sample(nodes, draw.choice((2, 30, 90)))]
        came: list[Pod] = []
        for name in busy:
            came += pods(None, draw.randint(1, 6), draw.choice(ASKED), prefix=f"p{step}-{name}", on=name)
        engine.handle(*map(PodUpserted, came))
        if draw.random() < 0.7:
            engine.handle(*(PodDeleted(pod.uid) for pod in came))
        assert_kept_as_computed(engine)
