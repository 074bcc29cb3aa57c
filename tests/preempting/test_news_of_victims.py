"""What was refused is tried again when other pods may be evicted than before, without any other event."""

from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from closeby.objects.pods import PodDisruptionBudget, PriorityClass, ProtectionRequest
from closeby.objects.selectors import selector_of
from closeby.scheduling.events import (
    BudgetChanged,
    BudgetDeleted,
    GroupChanged,
    GroupDeleted,
    PodUpserted,
    PriorityClassChanged,
)
from tests.preempting.site import NOW, Site, names
from tests.worlds import gang

ONE = "zone-a rack-1 : a1=2"
KEEP = PodDisruptionBudget(
    namespace="default", name="keep", selector=selector_of({"app": "covered"}), max_unavailable=0
)


def group_priority(site: Site, priority: int, name: str = "low", members: int = 2) -> None:
    site.tell(GroupChanged(replace(gang(name, members), priority=priority)))


def class_value(site: Site, value: int) -> None:
    site.tell(PriorityClassChanged(PriorityClass(name="steady", value=value)))


def of_priority() -> Site:
    site = Site(ONE, pdb="strict")
    site.running("low", ["a1", "a1"], group={"priority": 500})
    return site


def of_class() -> Site:
    site = Site(ONE, pdb="strict")
    class_value(site, 500)
    site.running("low", ["a1", "a1"], group={"priority_class_name": "steady"})
    return site


def of_a_protected_group() -> Site:
    site = Site(ONE, pdb="strict")
    site.running(
        "low", ["a1", "a1"], group={"protected_by": ProtectionRequest("spec.preemptibility=non-preemptible")}
    )
    return site


def of_a_protected_member(
    annotations: Mapping[str, str], labels: Mapping[str, str] = {}
) -> Callable[[], Site]:
    def made() -> Site:
        site = Site(ONE, pdb="strict")
        site.running("low", ["a1", "a1"], annotations=annotations, labels=labels)
        return site

    return made


def of_a_budget(**status: int) -> Callable[[], Site]:
    def made() -> Site:
        site = Site(ONE, pdb="strict")
        site.running("low", ["a1", "a1"], labels={"app": "covered"})
        site.tell(BudgetChanged(replace(KEEP, **status)))
        return site

    return made


def unprotected(site: Site) -> None:
    for pod in site.engine.state.placed("default/low"):
        site.tell(PodUpserted(replace(pod, annotations={}, labels={})))


NEWS: dict[str, tuple[Callable[[], Site], Callable[[Site], None]]] = {
    "its PodGroup has a lower priority": (of_priority, lambda site: group_priority(site, 10)),
    "the class of its PodGroup has a lower value": (of_class, lambda site: class_value(site, 10)),
    "its PodGroup is gone": (of_priority, lambda site: site.tell(GroupDeleted("default/low"))),
    "its pods protect themselves no more": (
        of_a_protected_member({"closeby.dev/preemptible": "false"}),
        unprotected,
    ),
    "its pods are preemptible for KAI by now": (
        of_a_protected_member({}, {"kai.scheduler/preemptibility": "non-preemptible"}),
        unprotected,
    ),
    "its PodGroup protects it no more": (
        of_a_protected_group,
        lambda site: site.tell(GroupChanged(gang("low", 2))),
    ),
    "its budget is gone": (of_a_budget(), lambda site: site.tell(BudgetDeleted(KEEP.key))),
    "its budget asks for less": (
        of_a_budget(),
        lambda site: site.tell(BudgetChanged(replace(KEEP, max_unavailable=2))),
    ),
    "its budget allows more by now": (
        of_a_budget(allowed=0),
        lambda site: site.tell(BudgetChanged(replace(KEEP, allowed=2))),
    ),
}


@pytest.mark.parametrize("news", NEWS)
@pytest.mark.parametrize("kind", ["gang", "pod"])
def test_what_found_no_victims_finds_them(kind: str, news: str) -> None:
    made, change = NEWS[news]
    site = made()
    if kind == "gang":
        site.waiting("train", 2)
    else:
        site.alone("high", priority=100, gpu=2)
    assert site.tick() == []
    assert site.tick(NOW + 1) == []
    change(site)
    [plan] = site.tick(NOW + 2)
    assert names(plan) == ["low-0", "low-1"]


def test_equal_pods_that_were_refused_together_are_all_tried() -> None:
    """The second was refused like the first, without a search of its own."""
    site = Site("zone-a rack-1 : a1=1 a2=1")
    for name, node in (("low", "a1"), ("least", "a2")):
        site.running(name, [node], group={"priority": 500})
    site.alone("high-1", priority=100), site.alone("high-2", priority=100)
    assert site.tick() == []
    for now, name in enumerate(("low", "least"), 1):
        group_priority(site, 10, name, 1)
        assert [names(plan) for plan in site.tick(NOW + now)] == [[f"{name}-0"]]


def test_a_budget_that_allows_less_is_no_news() -> None:
    site = Site(ONE, pdb="strict")
    site.running("low", ["a1", "a1"], labels={"app": "covered"}, priority=500)
    site.tell(BudgetChanged(replace(KEEP, allowed=2)))
    site.waiting("train", 2)
    site.tick()
    before = len(site.engine.story("default/train"))
    site.tell(BudgetChanged(replace(KEEP, allowed=1)))
    site.tick(NOW + 1)
    assert len(site.engine.story("default/train")) == before
    site.tell(BudgetChanged(replace(KEEP, allowed=2)))
    site.tick(NOW + 2)
    assert len(site.engine.story("default/train")) == before + 1


@pytest.mark.parametrize("count", [1, 2])
def test_equal_pods_are_tried_when_victims_have_run_for_long_enough(count: int) -> None:
    site = Site("zone-a rack-1 : a1=1 a2=1", minRuntime="1m")
    site.alone("low-1", "a1", started=NOW), site.alone("low-2", "a2", started=NOW)
    for number in range(count):
        site.alone(f"high-{number}", priority=100)
    assert site.tick(NOW + 1) == []
    assert site.engine.next_preemption == NOW + 60
    assert len(site.tick(NOW + 60)) == count
