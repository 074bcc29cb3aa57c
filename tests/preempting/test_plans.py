"""Plans while victims leave: when they end, what they keep free, and what an earlier process left behind."""

from typing import Any

import pytest
from msgspec.structs import replace

from closeby.scheduling.events import (
    FlushUnschedulable,
    PodDeleted,
    PodUpserted,
    PreemptionGivenUp,
    PreemptionRestored,
    Tick,
    VictimEvicted,
)
from closeby.scheduling.outcomes import Preemption, PreemptionEnded
from closeby.scheduling.preemption.plans import PlanState
from closeby.scheduling.preemption.rule import Preemptible
from tests.preempting.site import NOW, Site, names

RACKS = "zone-a rack-1 : a1=2 a2=2\nzone-a rack-2 : a3=2 a4=2"
RACK_1, RACK_2 = ["a1", "a1", "a2", "a2"], ["a3", "a3", "a4", "a4"]


def full(**arguments: Any) -> Site:
    """Two full racks, the first of which is the cheaper."""
    site = Site(RACKS, whose=Preemptible(reports=True), **arguments)
    site.running("cheap", RACK_1, priority=1)
    site.running("dear", RACK_2, priority=2)
    site.waiting("train", 4)
    return site


def ended(site: Site, now: float = NOW) -> list[PreemptionEnded]:
    return [one for one in site.engine.handle(Tick(wall=now)) if isinstance(one, PreemptionEnded)]


def test_a_plan_ends_without_a_reason_once_the_gang_has_its_place() -> None:
    site = full()
    [plan] = site.tick()
    site.tell(*(PodDeleted(pod.uid) for pod in plan.victims))
    assert ended(site) == [PreemptionEnded(plan=plan)]
    assert site.engine.preemptions == ()


def test_a_plan_ends_with_a_reason_when_the_preemptor_is_deleted() -> None:
    site = full()
    [plan] = site.tick()
    site.tell(*(PodDeleted(uid) for uid, _ in plan.places))
    assert [one.why for one in ended(site)] == ["nothing of it waits any more"]


def test_a_plan_needs_its_victims_until_there_is_room() -> None:
    site = full()
    [plan] = site.tick()
    uids = [pod.uid for pod in plan.victims]
    needs = site.engine.preemption_needs
    assert needs(plan, uids) is PlanState.NEEDED
    assert needs(plan, []) is PlanState.ENOUGH
    for pod in site.engine.state.placed("default/dear"):
        site.tell(PodDeleted(pod.uid))
    assert needs(plan, uids) is PlanState.ENOUGH
    site.tick()
    assert needs(plan, uids) is PlanState.ENDED


def test_a_plan_that_lost_its_room_says_so() -> None:
    site = full()
    [plan] = site.tick()
    site.alone("urgent", "a1", priority=5_000)
    assert site.engine.preemption_needs(plan, [pod.uid for pod in plan.victims]) is PlanState.LOST


def test_what_was_given_up_is_tried_elsewhere_and_not_with_the_same_victims() -> None:
    site = full()
    [plan] = site.tick()
    site.tell(PreemptionGivenUp(plan, "it took too long", (plan.victims[0].uid,)))
    [other] = site.tick()
    assert names(other) == ["dear-0", "dear-1", "dear-2", "dear-3"]


def test_a_preemptor_rests_after_its_plans_came_to_nothing() -> None:
    site = full()
    for _ in range(2):
        [plan] = site.tick()
        site.tell(PreemptionGivenUp(plan, "it took too long"))
    assert site.tick() == []
    site.tell(FlushUnschedulable())
    assert site.tick(NOW + 3_600)


def test_a_plan_of_an_earlier_process_is_carried_on() -> None:
    first, second = full(), full()
    [plan] = first.tick()
    second.tell(PreemptionRestored(plan))
    assert second.tick() == []
    assert second.engine.preemptions == (plan,)
    second.evict(plan)
    assert set(second.where.values()) == {"a1", "a2"}


@pytest.mark.parametrize("lost", ["preemptor", "priority"])
def test_a_plan_that_does_not_hold_any_more_is_not_carried_on(lost: str) -> None:
    [plan] = full().tick()
    site = Site(RACKS, whose=Preemptible(reports=True))
    site.running("cheap", RACK_1, priority=1 if lost == "preemptor" else 100)
    site.running("dear", RACK_2, priority=100)
    if lost == "priority":
        site.waiting("train", 4)
        victims = tuple(site.engine.state.placed("default/cheap"))
        plan = Preemption(
            item=plan.item,
            preemptor=plan.preemptor,
            is_gang=True,
            priority=100,
            places=plan.places,
            victims=victims,
        )
    site.tell(PreemptionRestored(plan))
    [end] = ended(site)
    assert end.why
    assert site.engine.preemptions == ()


def test_two_preemptors_in_one_tick_have_disjoint_victims_and_nodes() -> None:
    site = full()
    site.waiting("other", 4)
    first, second = site.tick()
    assert set(first.nodes).isdisjoint(second.nodes)
    assert {pod.uid for pod in first.victims}.isdisjoint(pod.uid for pod in second.victims)


def test_only_reported_evictions_count() -> None:
    site = full(maxEvictions=1)
    [plan] = site.tick()
    site.tell(PreemptionGivenUp(plan, "it took too long"))
    [plan] = site.tick()
    assert names(plan)[0] == "cheap-0"
    site.tell(VictimEvicted(plan, plan.victims[0].uid, NOW), PreemptionGivenUp(plan, "it took too long"))
    [plan] = site.tick(NOW + 60)
    assert names(plan)[0] == "dear-0"


@pytest.mark.parametrize("leaving", [False, True])
def test_a_higher_priority_that_comes_between_takes_over_the_victims(leaving: bool) -> None:
    site = Site("zone-a rack-1 : a1=2 a2=2", whose=Preemptible(reports=True))
    site.running("low", RACK_1)
    site.waiting("train", 4, priority=1_000)
    [plan] = site.tick()
    if leaving:
        site.tell(*(PodUpserted(replace(pod, terminating=True)) for pod in plan.victims))
    site.waiting("vip", 4, priority=2_000)
    [other] = site.tick()
    assert (other.preemptor, other.nodes) == ("default/vip", plan.nodes)
    assert {pod.uid for pod in other.victims} == {pod.uid for pod in plan.victims}
    assert all(pod.terminating is leaving for pod in other.victims)
    assert other.cost.pods == (0 if leaving else 4)
    assert site.engine.preemptions == (other,)
    site.evict(other)
    assert {name.partition("-")[0] for name in site.where} == {"vip"}


def test_a_higher_priority_elsewhere_leaves_a_plan_in_force() -> None:
    site = full()
    [plan] = site.tick()
    site.tell(*(PodDeleted(pod.uid) for pod in site.engine.state.placed("default/dear")))
    site.waiting("vip", 4, priority=2_000)
    assert site.tick() == []
    assert {node for name, node in site.where.items() if name.startswith("vip")} == {"a3", "a4"}
    assert site.engine.preemptions == (plan,)
