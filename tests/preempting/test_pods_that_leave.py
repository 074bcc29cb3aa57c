"""Pods that are being deleted already: a plan waits for those whose room it needs, and for no others."""

import pytest
from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, selector_of
from closeby.scheduling.events import PodDeleted, PodUpserted
from tests.preempting.site import Site, names
from tests.worlds import GPU, node


def two_nodes() -> Site:
    """Two full nodes on each of which two pods are being deleted."""
    site = Site([node(name, {"zone": "z", "rack": name}, {GPU: 2}) for name in ("n0", "n1")])
    for name in ("n0", "n1"):
        for index in range(2):
            pod = site.alone(f"{name}-{index}", name)
            site.tell(PodUpserted(replace(pod, terminating=True)))
    return site


@pytest.mark.parametrize("kind", ["pod", "gang"])
def test_a_plan_waits_for_the_pods_of_its_node_alone(kind: str) -> None:
    site = two_nodes()
    if kind == "pod":
        site.alone("train-0", priority=10, gpu=2)
    else:
        site.waiting("train", 1, priority=10, gpu=2)
    [plan] = site.tick()
    [chosen] = plan.nodes
    assert names(plan) == [f"{chosen}-0", f"{chosen}-1"]
    assert plan.cost.pods == 0


def test_the_room_is_kept_while_the_first_of_them_ends() -> None:
    site = two_nodes()
    site.alone("high", priority=10, gpu=2)
    [plan] = site.tick()
    [chosen] = plan.nodes
    site.alone("low", priority=5)
    site.tell(PodDeleted(plan.victims[0].uid))
    site.tick()
    assert not site.where
    assert site.evict(plan) == []
    assert site.where == {"high": chosen}


def test_of_two_that_are_enough_the_same_one_is_needed_in_any_order() -> None:
    found = set()
    for order in (1, -1):
        site = Site([node("n0", {}, {GPU: 2})])
        for name in ("a", "b")[::order]:
            pod = site.alone(name, "n0")
            site.tell(PodUpserted(replace(pod, terminating=True)))
        site.alone("high", priority=10)
        [plan] = site.tick()
        found.add(tuple(names(plan)))
    assert len(found) == 1


def test_a_pod_elsewhere_is_waited_for_where_its_end_is_needed() -> None:
    """One in the same zone keeps the preemptor off by anti-affinity."""
    site = Site([node(name, {"zone": "z"}, {GPU: 1}) for name in ("n0", "n1")])
    apart = PodAffinityTerm(topology_key="zone", selector=selector_of({"app": "high"}))
    pod = site.alone("apart", "n1", needs={"pod_affinity": PodAffinity(forbidden=(apart,))})
    site.tell(PodUpserted(replace(pod, terminating=True)))
    site.alone("low", "n0")
    site.alone("high", priority=10, labels={"app": "high"}, needs={"node_selector": ((HOSTNAME, "n0"),)})
    [plan] = site.tick()
    assert (plan.node, names(plan)) == ("n0", ["apart", "low"])


def test_the_domain_is_the_one_of_the_nodes_that_the_gang_gets_in_the_end() -> None:
    """Without the pod that leaves anyway the gang would go to the other rack."""
    sizes = {"a1": (2, 4), "a2": (4, 4), "b1": (4, 4), "b2": (3, 6)}
    site = Site(
        [
            node(name, {"zone": "z", "rack": f"rack-{name[0]}"}, {GPU: gpu, "cpu": cpu})
            for name, (gpu, cpu) in sizes.items()
        ]
    )
    leaving = site.alone("leaving", "b2", gpu=0, cpu=3)
    site.tell(PodUpserted(replace(leaving, terminating=True)))
    site.running("wide", ["a2", "b2", "b1", "a1"], gpu=0, cpu=3)
    site.waiting("train", 3, gpu=1, cpu=2)
    [plan] = site.tick()
    assert {f"rack-{name[0]}" for name in plan.nodes} == {plan.path[-1]}
    site.evict(plan)
    assert {f"rack-{name[0]}" for name in site.where.values()} == {plan.path[-1]}


def test_the_node_is_the_one_that_a_plain_pod_gets_in_the_end() -> None:
    """A gang goes as a whole, and pods that leave on other nodes take no part in the choice then."""
    nodes = {"a1": 3, "a2": 3, "b1": 3, "b2": 3}
    site = Site([node(name, {}, {GPU: size}) for name, size in nodes.items()])
    made = site.running("wide", ["b2", "a2", "b1", "a1"], minimum=3, gpu=2, group={"disruption": "all"})
    site.tell(PodUpserted(replace(made[3], terminating=True)))
    apart = PodAffinityTerm(topology_key=HOSTNAME, selector=selector_of({"app": "high"}))
    site.alone("one", "a1", needs={"pod_affinity": PodAffinity(forbidden=(apart,))}, priority=200)
    site.alone("two", "b1")
    site.alone("three", "b2", priority=10)
    leaving = site.alone("leaving", "a2", priority=10)
    site.tell(PodUpserted(replace(leaving, terminating=True)))
    site.alone("high", priority=100, gpu=2, labels={"app": "high"})
    [plan] = site.tick()
    assert plan.nodes == (plan.node,)
    assert site.evict(plan) == []
    assert site.where == {"high": plan.node}


def test_a_node_that_is_empty_once_they_are_gone_is_left_whole_for_others() -> None:
    site = Site([node(name, {"zone": "z", "rack": name}, {GPU: 3}) for name in ("n0", "n1")])
    for name in ("n0", "n1"):
        site.running(f"low-{name}", [name], gpu=2)
    site.alone("stays", "n0", priority=100)
    site.alone("leaves", "n1", terminating=True)
    site.alone("high", priority=10, gpu=2)
    [plan] = site.tick()
    assert plan.nodes == ("n1",)
