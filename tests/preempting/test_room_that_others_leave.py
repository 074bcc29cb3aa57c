"""What was refused is tried again when it may clear more than before, though what is free is too little.

A pod that it could not evict has left, or a node takes other pods than before. Of items that need the same
one is tried, and the others once it has found victims. That is so where items back off, which bounds how
often they are tried.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.objects.nodes import NodeImage, Taint
from closeby.objects.pods import PodDisruptionBudget
from closeby.objects.selectors import selector_of
from closeby.scheduling.events import BudgetChanged, NodeUpserted, PodDeleted, PodUpserted
from closeby.scheduling.preemption.rule import Preemptible
from tests.preempting.site import NOW, Site, names
from tests.worlds import GPU, node

FULL = node("n0", {"zone": "z", "rack": "r"}, {GPU: 4})
#: When whatever was refused at the first tick has backed off.
LATER = NOW + 20


def site_of(**fields: Any) -> Site:
    """A node of which a pod of low priority has a quarter."""
    site = Site([FULL], backoff=True, **fields)
    site.alone("low", "n0")
    return site


def wants(site: Site, kind: str) -> None:
    if kind == "pod":
        site.alone("wants", priority=50, gpu=4)
    else:
        site.waiting("wants", 4, priority=50)


def of_higher_priority(site: Site) -> str:
    return site.alone("kept", "n0", priority=100, gpu=3).uid


def protected(site: Site) -> str:
    return site.alone("kept", "n0", gpu=3, annotations={"closeby.dev/preemptible": "false"}).uid


def covered_by_a_budget(site: Site) -> str:
    covering = selector_of({"app": "kept"})
    keep = PodDisruptionBudget(namespace="default", name="keep", selector=covering, max_unavailable=0)
    site.tell(BudgetChanged(keep))
    return site.alone("kept", "n0", gpu=3, labels={"app": "kept"}).uid


def of_another_scheduler(site: Site) -> str:
    return site.alone("kept", "n0", gpu=3, needs={"scheduler_name": "other"}).uid


def that_just_started(site: Site) -> str:
    return site.alone("kept", "n0", gpu=3, created=NOW - 10).uid


@pytest.mark.parametrize("kind", ["pod", "gang"])
@pytest.mark.parametrize(
    ("kept", "fields"),
    [
        (of_higher_priority, {}),
        (protected, {}),
        (covered_by_a_budget, {"pdb": "strict"}),
        (of_another_scheduler, {"whose": Preemptible(scheduler_name="closeby")}),
        (that_just_started, {"minRuntime": "1m"}),
    ],
)
def test_a_pod_that_could_not_be_evicted_leaves(
    kept: Callable[[Site], str], fields: dict[str, Any], kind: str
) -> None:
    site = Site([FULL], backoff=True, **fields)
    site.alone("low", "n0", needs={"scheduler_name": "closeby"})
    uid = kept(site)
    wants(site, kind)
    assert site.tick() == []
    site.tell(PodDeleted(uid))
    assert [names(plan) for plan in site.tick(LATER)] == [["low"]]


def tries(site: Site, name: str) -> int:
    """How often something happened to an item."""
    return len(site.engine.story(f"default/{name}"))


def test_no_attempt_is_made_that_would_find_nothing() -> None:
    """A pod that it may evict has left, or none that runs is of lower priority."""
    site = site_of()
    other = site.alone("other", "n0", gpu=2)
    kept = site.alone("kept", "n0", priority=100)
    wants(site, "pod")
    site.alone("lowest", gpu=4)
    assert site.tick() == []
    before = tries(site, "wants"), tries(site, "lowest")
    site.tell(PodDeleted(other.uid))
    assert site.tick(LATER) == []
    assert (tries(site, "wants"), tries(site, "lowest")) == before
    site.tell(PodDeleted(kept.uid))
    assert [names(plan) for plan in site.tick(LATER)] == [["low"]]
    assert (tries(site, "wants"), tries(site, "lowest")) == (before[0] + 1, before[1])


@pytest.mark.parametrize(
    "before",
    [
        replace(FULL, unschedulable=True),
        replace(FULL, taints=(Taint("held", "", "NoSchedule"),)),
        replace(FULL, ready=False),
        replace(FULL, labels={"zone": "z"}),
        replace(FULL, allocatable={GPU: 3}),
    ],
)
@pytest.mark.parametrize("kind", ["pod", "gang"])
def test_a_node_takes_such_pods_again(before: Any, kind: str) -> None:
    site = Site([before], backoff=True)
    site.alone("low", "n0", gpu=3)
    if kind == "pod":
        site.alone("wants", priority=50, gpu=4, needs={"node_selector": (("rack", "r"),)})
    else:
        site.waiting("wants", 4, priority=50)
    assert site.tick() == []
    site.tell(NodeUpserted(FULL))
    assert [names(plan) for plan in site.tick(LATER)] == [["low"]]


def test_a_node_that_has_other_images_alone_is_no_reason() -> None:
    site = site_of()
    of_higher_priority(site)
    wants(site, "pod")
    assert site.tick() == []
    before = tries(site, "wants")
    site.tell(NodeUpserted(replace(FULL, images=(NodeImage("registry/a", 1),))))
    assert site.tick(LATER) == []
    assert tries(site, "wants") == before


def test_a_pod_that_asks_for_less_leaves_room_to_clear() -> None:
    site = site_of()
    top = site.alone("kept", "n0", priority=100, gpu=3)
    site.alone("wants", priority=50, gpu=3)
    assert site.tick() == []
    smaller = replace(top.spec, requests=((GPU, 1),))
    site.tell(PodUpserted(replace(top, spec=smaller)))
    assert [names(plan) for plan in site.tick(LATER)] == [["low"]]


def test_all_that_need_the_same_find_victims_one_after_the_other() -> None:
    nodes = [node(f"n{i}", {"zone": "z", "rack": "r"}, {GPU: 2}) for i in range(3)]
    site = Site(nodes, backoff=True)
    tops = [site.alone(f"top-{i}", f"n{i}", priority=100) for i in range(3)]
    for index in range(3):
        site.alone(f"low-{index}", f"n{index}")
        site.alone(f"wants-{index}", priority=50, gpu=2)
    assert site.tick() == []
    site.tell(*(PodDeleted(one.uid) for one in tops))
    plans = site.tick(LATER)
    assert sorted(names(plan)[0] for plan in plans) == ["low-0", "low-1", "low-2"]
    assert sorted(plan.preemptor for plan in plans) == [f"default/wants-{i}" for i in range(3)]
