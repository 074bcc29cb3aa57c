"""Evictions don't go round in circles: what comes back waits and evicts nothing, and too many protect."""

from typing import Any

import pytest
from msgspec.structs import replace

from closeby.objects.pods import PodDisruptionBudget
from closeby.objects.quantities import utc
from closeby.objects.selectors import selector_of
from closeby.scheduling.events import (
    BudgetChanged,
    EvictionsRestored,
    FlushUnschedulable,
    PodDeleted,
    PodUpserted,
    PreemptionGivenUp,
    PreemptionRestored,
    VictimEvicted,
)
from closeby.scheduling.outcomes import Eviction, Preemption
from closeby.scheduling.preemption.rule import DAY, Preemptible
from tests.preempting.site import NOW, Site, names
from tests.worlds import gang

ONE = "zone-a rack-1 : a1=1"
TWO = "zone-a rack-1 : a1=1\nzone-a rack-2 : a3=1"
A1, A3 = "a1", "a3"
BUDGET = BudgetChanged(
    PodDisruptionBudget(
        namespace="default", name="keep", selector=selector_of({"app": "covered"}), max_unavailable=0
    )
)


def evicted(site: Site, plan: Preemption, now: float) -> None:
    """All victims of a plan are reported and end."""
    site.tell(*(VictimEvicted(plan, pod.uid, now) for pod in plan.victims))
    site.evict(plan, now=now)


def test_a_gang_that_was_evicted_comes_back_and_evicts_nothing_for_a_minute() -> None:
    site = Site(TWO)
    site.running("low", [A1], priority=5), site.running("lower", [A3], priority=6)
    site.alone("high", priority=10)
    [plan] = site.tick()
    assert names(plan) == ["low-0"]
    site.evict(plan)
    site.tell(PodDeleted("default/lower-0"))
    site.running("least", [A3], priority=1)
    site.waiting("low", 1, priority=5)
    assert site.tick(NOW + 1) == []
    assert site.engine.next_preemption == NOW + 60
    assert site.tick(NOW + 59) == []
    [own] = site.tick(NOW + 60)
    assert (own.preemptor, names(own)) == ("default/low", ["least-0"])
    assert site.engine.next_preemption is None


@pytest.mark.parametrize("when", [255.069, 495.435])
def test_a_deadline_that_has_come_is_over_however_floats_round(when: float) -> None:
    assert when + 60.0 - when < 60.0
    site = Site(TWO)
    site.running("low", [A1], priority=5), site.running("lower", [A3], priority=6)
    site.alone("high", priority=10)
    [plan] = site.tick(when)
    site.evict(plan, now=when)
    site.tell(PodDeleted("default/lower-0"))
    site.running("least", [A3], priority=1)
    site.waiting("low", 1, priority=5)
    assert site.tick(when + 1) == []
    assert site.engine.next_preemption == when + 60.0
    [own] = site.tick(when + 60.0)
    assert names(own) == ["least-0"]
    assert site.engine.next_preemption is None


@pytest.mark.parametrize("gang", [True, False])
def test_what_was_evicted_backs_off_even_where_there_is_room(gang: bool) -> None:
    site = Site(TWO, backoff=True)
    if gang:
        site.running("low", [A1], priority=5)
    else:
        site.alone("low", A1, priority=5, owner="ReplicaSet/low")
    site.running("other", [A3], priority=50)
    site.alone("high", priority=10)
    [plan] = site.tick()
    site.evict(plan)
    site.tell(PodDeleted("default/other-0"))
    if gang:
        site.waiting("low", 1, priority=5)
        again = "low-0"
    else:
        site.alone("again", priority=5, owner="ReplicaSet/low")
        again = "again"
    site.tick(NOW + 1)
    assert again not in site.where
    assert len(site.engine.backing_off) == 1
    # News of the item itself don't end that.
    [pod] = [pod for pod in site.engine.state.pods.values() if pod.name == again]
    site.tell(PodUpserted(replace(pod, labels={"is": "new"})))
    site.tick(NOW + 1.5)
    assert again not in site.where
    assert site.engine.next_backoff_end == NOW + 2
    site.tick(NOW + 2)
    assert site.where[again] == A3


def protected_after(site: Site, rounds: int, *, owner: str, priority: int = 10, **fields: Any) -> list[bool]:
    """Whether pods of an owner are evicted, one round after another; each pod has a name of its own."""
    found = []
    for number in range(rounds):
        now = NOW + 100 * number
        low = site.alone(f"low-{number}", A1, owner=owner, **fields)
        high = site.alone(f"high-{number}", priority=priority)
        plans = site.tick(now)
        found.append(bool(plans))
        site.tell(PodDeleted(low.uid), PodDeleted(high.uid))
        site.tick(now)
    return found


def test_pods_of_one_controlling_owner_count_together() -> None:
    assert protected_after(Site(ONE), 5, owner="ReplicaSet/web") == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("owner", "namespace"), [("ReplicaSet/other", "default"), ("ReplicaSet/web", "elsewhere")]
)
def test_owners_of_another_name_or_namespace_count_for_themselves(owner: str, namespace: str) -> None:
    site = Site(ONE)
    assert protected_after(site, 4, owner="ReplicaSet/web")[-1] is False
    low = site.alone("low", owner=owner)
    site.tell(PodDeleted(low.uid), PodUpserted(replace(low, namespace=namespace, node_name=A1)))
    site.alone("high", priority=10)
    assert site.tick(NOW + 1_000)


def test_a_higher_priority_may_evict_what_is_protected() -> None:
    site = Site(ONE, maxEvictions=2)
    assert protected_after(site, 3, owner="ReplicaSet/web") == [True, True, False]
    site.alone("low", A1, owner="ReplicaSet/web"), site.alone("urgent", priority=11)
    assert site.tick(NOW + 1_000)


def test_after_a_day_evictions_count_no_more() -> None:
    site = Site(ONE, maxEvictions=2)
    assert protected_after(site, 3, owner="ReplicaSet/web")[-1] is False
    site.alone("low", A1, owner="ReplicaSet/web"), site.alone("high", priority=10)
    assert site.tick(NOW + DAY - 1) == []
    site.tell(FlushUnschedulable())
    assert site.tick(NOW + DAY + 200)


def test_an_item_is_tried_when_the_first_of_too_many_evictions_is_a_day_old() -> None:
    site = Site(ONE, maxEvictions=2)
    assert protected_after(site, 2, owner="ReplicaSet/web") == [True, True]
    site.alone("low", A1, owner="ReplicaSet/web"), site.alone("high", priority=10)
    assert site.tick(NOW + 1_000) == []
    assert site.engine.next_preemption == NOW + DAY
    assert site.tick(NOW + DAY - 1) == []
    [plan] = site.tick(NOW + DAY)
    assert names(plan) == ["low"]
    assert site.engine.next_preemption is None


def test_a_gang_is_tried_when_evictions_of_a_higher_priority_are_a_day_old() -> None:
    site = Site(ONE, whose=Preemptible(reports=True), maxEvictions=2)
    site.running("low", [A1])
    times = ((NOW - 500, 200), (NOW - 400, 50), (NOW - 300, 50))
    site.tell(EvictionsRestored("default/low", tuple(Eviction(*one) for one in times)))
    site.waiting("train", 1)
    assert site.tick() == []
    assert site.engine.next_preemption == NOW - 500 + DAY
    [plan] = site.tick(NOW - 500 + DAY)
    assert names(plan) == ["low-0"]


@pytest.mark.parametrize("priority", [0, -5])
def test_what_is_never_a_victim_wakes_nothing_when_its_evictions_are_old(priority: int) -> None:
    site = Site(ONE, whose=Preemptible(reports=True), maxEvictions=1)
    site.running("low", [A1], priority=0)
    site.tell(EvictionsRestored("default/low", (Eviction(NOW - 500, 200),)))
    site.alone("high", priority=priority)
    assert site.tick() == []
    assert site.engine.next_preemption is None


def full(**arguments: Any) -> Site:
    """Two nodes, of which the first is the cheaper to clear, for a caller who reports evictions."""
    site = Site(TWO, whose=Preemptible(reports=True), **arguments)
    site.running("cheap", [A1], priority=1), site.running("dear", [A3], priority=2)
    site.waiting("train", 1)
    return site


def test_all_members_that_fall_to_one_plan_are_one_eviction() -> None:
    site = Site("zone-a rack-1 : a1=2", whose=Preemptible(reports=True))
    site.running("low", [A1, A1])
    site.waiting("train", 2)
    [plan] = site.tick()
    evicted(site, plan, NOW)
    assert site.engine.evictions_of("default/low") == (Eviction(NOW, 100),)


def test_the_evictions_of_an_earlier_process_protect() -> None:
    site = full()
    site.tell(EvictionsRestored("default/cheap", tuple(Eviction(NOW - 10 - at, 100) for at in range(3))))
    assert names(site.tick()[0]) == ["dear-0"]
    assert len(site.engine.evictions_of("default/cheap")) == 3


def test_what_an_earlier_process_counted_for_a_plan_is_not_counted_twice() -> None:
    first, second = full(), full()
    [plan] = first.tick()
    second.tell(
        EvictionsRestored("default/cheap", (Eviction(NOW - 10, 100),)),
        PreemptionRestored(plan, ("default/cheap",)),
        VictimEvicted(plan, plan.victims[0].uid, NOW),
    )
    second.tick()
    assert len(second.engine.evictions_of("default/cheap")) == 1


def test_a_victim_that_did_not_go_may_be_one_again_after_a_while() -> None:
    site = full()
    [plan] = site.tick()
    site.tell(PreemptionGivenUp(plan, "it took too long", (plan.victims[0].uid,)))
    [other] = site.tick()
    site.tell(PreemptionGivenUp(other, "it took too long"))
    [third] = site.tick(NOW + 3_600)
    assert (names(plan), names(other), names(third)) == (["cheap-0"], ["dear-0"], ["cheap-0"])


def test_pods_of_an_owner_and_of_a_namespace_are_the_last_choice_for_an_hour_since_one_did_not_end() -> None:
    """``team``, of another namespace, is the dearest in all but that."""
    site = Site("z r1 : a1=1 a2=1\nz r2 : a3=1\nz r3 : a4=1")
    for name, on in (("slow-0", "a1"), ("slow-1", "a2")):
        site.alone(name, on, owner="Job/slow")
    site.alone("beside", "a3", priority=1)
    team = site.alone("team", "a4", priority=90)
    site.tell(PodDeleted(team.uid), PodUpserted(replace(team, namespace="other", uid="other/team")))
    site.alone("high", priority=100)
    [first] = site.tick()
    [victim] = first.victims
    site.tell(PodUpserted(replace(victim, terminating=True)), PreemptionGivenUp(first, "", (victim.uid,)))
    chosen = []
    for after in (0, 3_500, 3_600):
        [plan] = site.tick(NOW + after)
        chosen.append((*names(plan), plan.cost.last_choice))
        site.tell(PreemptionGivenUp(plan, "for another reason"))
    assert (names(first), chosen) == (["slow-0"], [("team", 0), ("team", 0), ("slow-0", 0)])


def test_of_one_namespace_the_owner_whose_pod_did_not_end_comes_last() -> None:
    site = Site("z r1 : a1=1 a2=1\nz r2 : a3=1")
    for name, on in (("slow-0", "a1"), ("slow-1", "a2")):
        site.alone(name, on, owner="Job/slow")
    site.alone("beside", "a3", priority=50)
    site.alone("high", priority=100)
    [first] = site.tick()
    [victim] = first.victims
    site.tell(PodUpserted(replace(victim, terminating=True)), PreemptionGivenUp(first, "", (victim.uid,)))
    [plan] = site.tick()
    assert (names(first), names(plan), plan.cost.last_choice) == (["slow-0"], ["beside"], 1)


@pytest.mark.parametrize("gangs", [False, True])
@pytest.mark.parametrize(
    ("reports", "quick", "victim"),
    [
        (True, {}, "quick"),
        # Who chooses a long grace is not above those of higher priority, nor those that a budget protects.
        (True, {"priority": 5}, "slow"),
        (True, {"labels": {"app": "covered"}}, "slow"),
        # Where victims end at once no grace is too long.
        (False, {}, "slow"),
    ],
)
def test_a_grace_that_no_plan_waits_for_decides_among_pods_of_equal_priority(
    reports: bool, quick: dict[str, Any], victim: str, gangs: bool
) -> None:
    """``quick`` has worked longer: without their graces ``slow`` goes."""
    whose = Preemptible(reports=reports)
    site = Site("z r1 : a1=1\nz r2 : a3=1", whose=whose, maxGrace="1h", pdb="soft")
    site.alone("slow", "a1", grace=3_601, started=NOW - 10)
    site.alone("quick", "a3", grace=3_600, started=NOW - 20, **quick)
    site.tell(BUDGET)
    if gangs:
        site.waiting("high", 1, priority=100)
    else:
        site.alone("high", priority=100)
    [plan] = site.tick()
    assert (names(plan), plan.cost.last_choice, plan.cost.slow) == ([victim], 0, reports and victim == "slow")


@pytest.mark.parametrize("strict", [False, True])
def test_a_plan_that_was_given_up_is_tried_again_strictly(strict: bool) -> None:
    site = Site(TWO, whose=Preemptible(reports=True), pdb="soft")
    site.alone("cheap", A1, labels={"app": "covered"}), site.alone("stays", A3, priority=500)
    site.tell(BUDGET)
    site.alone("high", priority=100)
    [plan] = site.tick()
    assert plan.cost.pdb_violations == 1
    site.tell(PreemptionGivenUp(plan, "the budget allows no eviction", strict=strict))
    assert bool(site.tick()) is not strict


def test_an_item_is_tried_when_its_delay_is_over_without_any_event() -> None:
    site = Site(TWO, preemptionDelay="30s")
    site.running("low", [A1]), site.running("other", [A3])
    site.waiting("train", 1)
    site.alone("high", priority=50)
    assert site.tick(NOW) == []
    assert site.engine.next_preemption == NOW + 30
    assert site.tick(NOW + 29) == []
    assert sorted(plan.preemptor for plan in site.tick(NOW + 30)) == ["default/high", "default/train"]
    assert site.engine.next_preemption is None


@pytest.mark.parametrize(
    ("rule", "of_group", "of_pods", "waits"),
    [
        # Its own delay counts from its creation, 20 s ago, that of the rule from the first refusal.
        ("0s", 50.0, None, 30.0),
        ("0s", 0.0, "50s", 30.0),
        ("0s", 50.0, "90s", 30.0),
        ("40s", 50.0, None, 40.0),
        ("0s", 20.0, None, 0.0),
        ("0s", 0.0, "soon", 0.0),
    ],
)
def test_a_gang_waits_for_its_own_delay(
    rule: str, of_group: float, of_pods: str | None, waits: float
) -> None:
    site = Site(ONE, explain=True, preemptionDelay=rule)
    site.running("low", [A1])
    record = replace(gang("train", 1), preemption_delay=of_group, created=NOW - 20)
    delay = {} if of_pods is None else {"kai.scheduler/preemption-delay": of_pods}
    site.waiting("train", 1, group=record, annotations=delay, created=NOW - 20)
    plans = site.tick(NOW)
    assert bool(plans) == (not waits)
    if waits:
        assert site.engine.next_preemption == NOW + waits
        why = site.why("train")
        assert why is not None and utc(NOW + waits) in why.why
        assert site.tick(NOW + waits - 1) == []
        assert len(site.tick(NOW + waits)) == 1


def test_equal_pods_wait_for_their_own_delays() -> None:
    """The first one preempts at once, the second not though it is refused like the first."""
    site = Site(TWO)
    site.running("low", [A1]), site.running("other", [A3])
    site.alone("now", priority=50, created=NOW - 1)
    delay = {"kai.scheduler/preemption-delay": "1m"}
    site.alone("slow", priority=50, annotations=delay, created=NOW)
    assert [plan.preemptor for plan in site.tick(NOW)] == ["default/now"]
    assert site.engine.next_preemption == NOW + 60
    assert [plan.preemptor for plan in site.tick(NOW + 60)] == ["default/slow"]


def test_an_item_that_waits_no_more_has_no_deadline() -> None:
    site = Site(ONE, preemptionDelay="30s")
    site.running("low", [A1])
    high = site.alone("high", priority=50)
    site.tick(NOW)
    site.tell(PodDeleted(high.uid))
    assert site.engine.next_preemption is None
