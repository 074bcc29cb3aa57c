"""The domain that a plan names is the one that the gang goes to once its victims are gone."""

from random import Random

import pytest

from tests.preempting.site import Site
from tests.worlds import GPU, node

HIGH = 100
RACKS = {"a1": "rack-a", "a2": "rack-a", "b1": "rack-b", "b2": "rack-b", "c1": "rack-c"}


@pytest.mark.parametrize("seed", range(60))
def test_a_gang_goes_to_the_domain_that_its_plan_names(seed: int) -> None:
    """Victims are gangs across racks, so that each set of them frees nodes in several racks."""
    random = Random(seed)
    sizes = {name: random.choice((2, 3)) for name in RACKS}
    site = Site([node(name, {"zone": "z", "rack": rack}, {GPU: sizes[name]}) for name, rack in RACKS.items()])
    free = [name for name, size in sizes.items() for _ in range(size)]
    random.shuffle(free)
    index = 0
    while free:
        size = random.randint(2, 4)
        on, free = free[:size], free[size:]
        site.running(f"g{index}", on, priority=random.choice((0, 10, 200)))
        index += 1
    wanted = random.randint(1, 3)
    site.waiting("train", wanted, priority=HIGH)
    for plan in site.tick():
        assert {RACKS[name] for name in plan.nodes} == {plan.path[-1]}
        outside = sum(RACKS[pod.node_name or ""] != plan.path[-1] for pod in plan.victims)
        assert plan.cost.outside == outside
        assert site.evict(plan) == []
        assert {RACKS[name] for name in site.where.values()} == {plan.path[-1]}
        assert len(site.where) == wanted
