"""What a forked cycle changes for the moment counts for the item, and is undone exactly."""

from random import Random

import numpy as np
import pytest

from closeby.objects.pods import Pod
from closeby.scheduling.engine import Engine
from tests.preempting.site import Site
from tests.worlds import GPU, node

SIZE = 4


def columns(engine: Engine) -> tuple[object, ...]:
    cluster = engine.cluster
    placed = sorted((pod.uid, slot) for pod, slot in cluster.placed_pods())
    return cluster.requested.tobytes(), cluster.alive.tobytes(), tuple(placed)


class Drawn:
    """Six nodes with pods and gangs on them, and a pod that waits."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.site = Site(
            [node(f"n{at}", {"zone": "z", "rack": f"r{at % 2}"}, {GPU: SIZE}) for at in range(6)]
        )
        free = [f"n{at}" for at in range(6) for _ in range(SIZE)]
        random.shuffle(free)
        self.running: list[Pod] = []
        while len(free) > random.randint(0, 4):
            on, free = free[: random.randint(1, 3)], free[3:]
            self.running += self.site.running(f"g{len(self.running)}", on)
        self.gpu = random.randint(1, SIZE)
        self.pod = self.site.alone("waits", gpu=self.gpu)

    def fits(self, gone: list[Pod], nodes: set[str]) -> bool:
        free = dict.fromkeys(nodes, SIZE)
        for pod in self.running:
            if pod not in gone and pod.node_name in free:
                free[pod.node_name] -= 1
        return any(left >= self.gpu for left in free.values())


@pytest.mark.parametrize("seed", range(40))
def test_pods_are_gone_and_nodes_are_left_for_the_moment_alone(seed: int) -> None:
    drawn = Drawn(seed)
    engine, random = drawn.site.engine, drawn.random
    before, everywhere = columns(engine), {f"n{at}" for at in range(6)}
    trial = engine.fork().trial
    for _ in range(4):
        gone = random.sample(drawn.running, random.randint(0, len(drawn.running)))
        with trial.without(gone, drawn.pod):
            assert (trial.place(drawn.pod) is not None) == drawn.fits(gone, everywhere)
        assert columns(engine) == before
        engine.validate_state()
        chosen = {name for name in everywhere if random.random() < 0.4}
        nodes = np.zeros(engine.cluster.capacity, dtype=np.bool_)
        nodes[[engine.cluster.slot_of(name) for name in chosen]] = True
        stay = [
            (pod, engine.cluster.slot_of(pod.node_name or "")) for pod in drawn.running if pod not in gone
        ]
        with trial.inside(stay, nodes):
            assert (trial.place(drawn.pod) is not None) == drawn.fits(gone, chosen)
        assert columns(engine) == before
        engine.validate_state()


def test_pods_stay_lifted_from_one_trial_to_the_next_until_the_last_is_over() -> None:
    drawn = Drawn(1)
    engine = drawn.site.engine
    before, trial = columns(engine), engine.fork().trial
    with trial.keeping():
        for count in range(len(drawn.running)):
            with trial.without(drawn.running[:count], drawn.pod):
                assert engine.cluster.placed_count == len(drawn.running) - count
    assert columns(engine) == before
    engine.validate_state()
