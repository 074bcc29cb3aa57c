"""No candidate is left out: a node or rack is cleared although hundreds of cheaper ones refuse what waits."""

import pytest

from closeby.objects.labels import HOSTNAME
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, selector_of
from tests.preempting.site import Site, names
from tests.worlds import GPU, node

#: More than sets are tried for one item.
MANY = 300
APART = PodAffinity(
    forbidden=(PodAffinityTerm(topology_key=HOSTNAME, selector=selector_of({"app": "high"})),)
)


@pytest.mark.parametrize("kind", ["pod", "gang"])
def test_what_can_be_cleared_is_found_behind_many_that_refuse_the_preemptor(kind: str) -> None:
    """A pod that stays keeps the preemptor off by anti-affinity, on all nodes but the dearest."""
    racks = [f"r{index:03}" for index in range(MANY)]
    site = Site([node(f"n-{rack}", {"zone": "z", "rack": rack}, {GPU: 2}) for rack in racks])
    for rack in racks[:-1]:
        site.alone(f"cheap-{rack}", f"n-{rack}")
        site.alone(f"stays-{rack}", f"n-{rack}", priority=50, needs={"pod_affinity": APART})
    site.alone("dear", f"n-{racks[-1]}", priority=5, gpu=2)
    if kind == "pod":
        site.alone("train-0", priority=10, labels={"app": "high"})
    else:
        site.waiting("train", 1, priority=10, labels={"app": "high"})
    [plan] = site.tick()
    assert (names(plan), plan.exact) == (["dear"], True)
    assert site.evict(plan) == []
    assert site.where == {"train-0": f"n-{racks[-1]}"}
