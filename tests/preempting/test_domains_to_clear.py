"""A gang clears the domain that costs the least: the rules of the design, one by one."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer, Remainder
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import PodDisruptionBudget, PriorityClass
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, selector_of
from closeby.scheduling.events import (
    BudgetChanged,
    GroupChanged,
    PodDeleted,
    PodUpserted,
    PriorityClassChanged,
)
from closeby.scheduling.outcomes import Preemption
from closeby.scheduling.placing.tools import Placed
from closeby.scheduling.preemption.domains import GangQuestion
from closeby.scheduling.preemption.units import Victims, VictimUnit
from tests.preempting.site import NOW, RESTART, Site, names
from tests.worlds import gang, pods, spec, subgroup

A1, A2, A3, A4, B1, B2 = "a1", "a2", "a3", "a4", "b1", "b2"
RACK_1, RACK_2, RACK_3 = [A1, A1, A2, A2], [A3, A3, A4, A4], [B1, B1, B2, B2]


def only(plans: list[Preemption]) -> Preemption:
    assert len(plans) == 1
    return plans[0]


def test_the_rack_of_the_lowest_priority_is_cleared_and_the_gang_starts_there() -> None:
    site = Site()
    site.running("one", RACK_1, priority=30)
    site.running("two", RACK_2, priority=10)
    site.running("three", RACK_3, priority=20)
    site.waiting("train", 4)
    plan = only(site.tick())
    assert (plan.path, plan.level, plan.topology) == (("zone-a", "rack-2"), "rack", "fabric")
    assert names(plan) == ["two-0", "two-1", "two-2", "two-3"]
    assert plan.cost.highest_priority == 10
    assert plan.exact
    assert site.evict(plan) == []
    assert set(site.where.values()) == {A3, A4}


def test_nothing_is_preempted_where_that_is_off() -> None:
    site = Site(preemption="off")
    site.running("one", RACK_1, priority=1)
    site.waiting("train", 4)
    site.running("two", RACK_2), site.running("three", RACK_3)
    assert site.tick() == []


def test_equal_priority_is_never_a_victim() -> None:
    site = Site()
    for name, rack in (("one", RACK_1), ("two", RACK_2), ("three", RACK_3)):
        site.running(name, rack, priority=100)
    site.waiting("train", 4, priority=100)
    assert site.tick() == []


def test_the_priority_that_a_trusted_group_gives_its_members_protects_them() -> None:
    site = Site()
    for name, rack in (("one", RACK_1), ("two", RACK_2), ("three", RACK_3)):
        site.running(name, rack, group={"priority": 50 if name == "two" else 200})
    site.waiting("train", 4, priority=100)
    assert only(site.tick()).path == ("zone-a", "rack-2")
    site.waiting("more", 4, priority=100)
    assert site.tick() == []


@pytest.mark.parametrize(("started", "path", "broken"), [(1.0, "rack-2", 2), (NOW, "rack-1", 1)])
def test_less_lost_work_comes_before_fewer_broken_gangs(started: float, path: str, broken: int) -> None:
    """Rack 1 holds one gang, the others two each, which have just started."""
    site = Site()
    site.running("one", RACK_1, started=started)
    for name, rack in (("two", RACK_2), ("three", RACK_3)):
        site.running(f"{name}-a", rack[:2], started=NOW), site.running(f"{name}-b", rack[2:], started=NOW)
    site.waiting("train", 4)
    plan = only(site.tick())
    assert (plan.path[-1], plan.cost.gangs_broken) == (path, broken)


def test_less_lost_work_decides_and_a_checkpoint_saves_it() -> None:
    site = Site()
    site.running("one", RACK_1, started=NOW - 100)
    site.running("two", RACK_2, started=NOW - 9_000, checkpointed=NOW - 10)
    site.running("three", RACK_3, started=NOW - 50)
    site.waiting("train", 4)
    plan = only(site.tick())
    assert plan.path == ("zone-a", "rack-2")
    assert plan.cost.lost == 4 * (10 + RESTART)


def test_restart_cost_counts_for_each_accelerator_that_a_victim_holds() -> None:
    """Four GPUs that start again lose more than two that worked for a while, where a start is dear."""
    for cost, rack in (("0", "rack-1"), ("10m", "rack-2")):
        site = Site("z rack-1 : a1=4\nz rack-2 : a2=4", restartCost=cost)
        site.running("fresh", ["a1"], gpu=4, started=NOW)
        site.running("old", ["a2"], gpu=2, started=NOW - 200)
        site.waiting("train", 1, gpu=4)
        assert only(site.tick()).path == ("z", rack)


@pytest.mark.parametrize(("worked", "rack"), [(50, "rack-2"), (49, "rack-1")])
def test_a_shorter_grace_decides_where_all_before_it_is_equal(worked: int, rack: str) -> None:
    site = Site("z rack-1 : a1=2\nz rack-2 : a2=2")
    site.running("slow", ["a1", "a1"], grace=86_400, started=NOW - worked)
    site.running("usual", ["a2", "a2"], started=NOW - 50)
    site.waiting("train", 2)
    plan = only(site.tick())
    assert (plan.path[-1], plan.cost.seconds) == (rack, 30 if rack == "rack-2" else 86_400)


def test_accelerators_outside_the_rack_count_last() -> None:
    site = Site("zone-a rack-1 : a1=2 a2=2 a5=2\nzone-a rack-2 : a3=2 a4=2")
    site.running("spread", [A1, A1, A2, "a5"]), site.running("stay", [A2, "a5"], priority=500)
    site.running("wide", [A3, A3, A4, A4])
    site.waiting("train", 3)
    assert only(site.tick()).cost.outside == 0


def test_only_members_beyond_the_minimum_go_where_they_are_enough() -> None:
    site = Site()
    site.running("elastic", RACK_1, minimum=2)
    site.running("two", RACK_2), site.running("three", RACK_3)
    site.waiting("train", 2)
    plan = only(site.tick())
    assert len(plan.victims) == 2
    assert {pod.group for pod in plan.victims} == {"elastic"}
    assert plan.cost.gangs_broken == 0


def test_disruption_all_takes_the_whole_gang_and_single_any_member() -> None:
    site = Site()
    site.running("whole", RACK_1, minimum=2, group={"disruption": "all"})
    site.running("any", RACK_2, group={"disruption": "single"}, priority=1)
    site.running("three", RACK_3, priority=50)
    site.waiting("train", 2)
    plan = only(site.tick())
    assert (len(plan.victims), plan.cost.gangs_broken, plan.cost.highest_priority) == (4, 1, 0)
    other = Site()
    other.running("any", RACK_2, group={"disruption": "single"})
    other.running("one", RACK_1, priority=50), other.running("three", RACK_3, priority=50)
    other.waiting("train", 2)
    plan = only(other.tick())
    assert (len(plan.victims), plan.cost.gangs_broken) == (2, 1)


def test_surplus_is_counted_by_subgroup() -> None:
    site = Site()
    record = gang("parts", 3, subgroups=[subgroup("left", 2), subgroup("right", 1)])
    made = site.running("parts", RACK_1, minimum=3, group={"subgroups": record.subgroups})
    site.tell(
        *(PodUpserted(replace(pod, subgroup="left" if i < 2 else "right")) for i, pod in enumerate(made))
    )
    site.running("two", RACK_2, priority=50), site.running("three", RACK_3, priority=50)
    site.waiting("train", 1)
    assert only(site.tick()).victims[0].name in ("parts-2", "parts-3")


def test_no_pod_goes_where_the_gang_does_not_fit_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Victims are chosen by trials; the last one, which says where the gang goes, fails here."""
    asked, fits = set[tuple[str, ...]](), GangQuestion._fits

    def once(self: GangQuestion, victims: Victims, units: Sequence[VictimUnit]) -> tuple[Placed, ...] | None:
        names = tuple(unit.name for unit in units)
        known = names in asked
        asked.add(names)
        return None if known else fits(self, victims, units)

    monkeypatch.setattr(GangQuestion, "_fits", once)
    site = Site()
    for name, rack in (("one", RACK_1), ("two", RACK_2), ("three", RACK_3)):
        site.running(name, rack)
    asks = gang("train", 4, required="rack", subgroups=[subgroup("all", 4)])
    site.waiting("train", 4, group=asks, subgroup="all")
    assert site.tick() == [] and asked


def test_a_budget_is_never_violated_for_a_gang() -> None:
    site = Site()
    site.running("one", RACK_1, labels={"app": "one"})
    site.running("two", RACK_2, priority=90), site.running("three", RACK_3, priority=99)
    budget = PodDisruptionBudget(
        namespace="default", name="keep", selector=selector_of({"app": "one"}), min_available="75%"
    )
    site.tell(BudgetChanged(budget))
    site.waiting("train", 4)
    assert only(site.tick()).path == ("zone-a", "rack-2")


@pytest.mark.parametrize(("pdb", "rack", "violations"), [("soft", "rack-1", 4), ("strict", None, None)])
def test_the_argument_pdb_decides_for_gangs(pdb: str, rack: str | None, violations: int | None) -> None:
    """Only rack-1 has victims, and a budget covers them all."""
    site = Site(pdb=pdb)
    site.running("one", RACK_1, labels={"app": "one"})
    site.running("two", RACK_2, priority=100), site.running("three", RACK_3, priority=100)
    site.tell(BudgetChanged(_none_may_go("one")))
    site.waiting("train", 4)
    found = [(plan.path[-1], plan.cost.pdb_violations) for plan in site.tick()]
    assert found == ([] if rack is None else [(rack, violations)])


@pytest.mark.parametrize(("pdb", "preempts"), [("soft", True), ("strict", False)])
def test_the_argument_pdb_decides_for_plain_pods(pdb: str, preempts: bool) -> None:
    site = Site("zone-a rack-1 : a1=1", pdb=pdb)
    site.alone("old", A1, labels={"app": "old"})
    site.tell(BudgetChanged(_none_may_go("old")))
    site.alone("new", priority=100)
    assert bool(site.tick()) is preempts


def _none_may_go(app: str) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        namespace="default", name="keep", selector=selector_of({"app": app}), max_unavailable="0"
    )


def test_who_protects_itself_is_no_victim_and_the_whole_gang_with_it() -> None:
    site = Site()
    site.running("no", RACK_1[:3]), site.alone("kept", A2, annotations={"closeby.dev/preemptible": "false"})
    queued = site.running("kueue", RACK_2)
    site.tell(PodUpserted(replace(queued[0], labels={"kueue.x-k8s.io/podset": "main"})))
    site.running("three", RACK_3, priority=99)
    site.waiting("train", 4)
    assert only(site.tick()).path == ("zone-b", "rack-3")


@pytest.mark.parametrize("policy", ["Never", "PreemptLowerPriority"])
def test_a_preemption_policy_is_followed(policy: str) -> None:
    site = Site("zone-a rack-1 : a1=1")
    site.alone("low", A1)
    site.alone("high", priority=5, needs={"preemption_policy": policy})
    assert bool(site.tick()) == (policy != "Never")


def test_what_runs_for_less_than_the_minimum_is_left_alone() -> None:
    site = Site(minRuntime="1h")
    site.running("young", RACK_1, started=NOW - 60)
    site.running("old", RACK_2, started=NOW - 7200, priority=50)
    site.running("three", RACK_3, started=NOW - 60)
    site.waiting("train", 4)
    assert only(site.tick()).path == ("zone-a", "rack-2")


def test_an_item_waits_for_the_delay_first() -> None:
    site = Site(preemptionDelay="30s")
    for name, rack in (("one", RACK_1), ("two", RACK_2), ("three", RACK_3)):
        site.running(name, rack)
    site.waiting("train", 4)
    assert site.tick(NOW) == []
    site.tell(PodUpserted(site.outcomes["default/train"].refused[0]))
    assert len(site.tick(NOW + 30)) == 1


def test_two_preemptors_of_one_tick_share_neither_victims_nor_nodes() -> None:
    site = Site()
    for name, rack in (("one", RACK_1), ("two", RACK_2), ("three", RACK_3)):
        site.running(name, rack)
    for name in ("p", "q", "r", "s"):
        site.waiting(name, 4)
    plans = site.tick()
    assert sorted(plan.path[-1] or "" for plan in plans) == ["rack-1", "rack-2", "rack-3"]
    assert len({pod.uid for plan in plans for pod in plan.victims}) == 12
    assert site.evict(*plans) == []
    assert len(site.where) == 12


def test_pods_of_no_more_priority_keep_off_the_cleared_nodes() -> None:
    site = Site()
    site.running("one", RACK_1[:3])
    site.running("two", RACK_2, priority=200), site.running("three", RACK_3, priority=200)
    site.waiting("train", 4)
    site.alone("small", priority=99)
    plan = only(site.tick())
    assert site.outcomes["default/small"].refused
    site.evict(plan)
    assert "small" not in site.where
    assert len(site.where) == 4


def test_there_is_no_second_plan_while_victims_leave() -> None:
    site = Site()
    for name, rack in (("one", RACK_1), ("two", RACK_2), ("three", RACK_3)):
        site.running(name, rack)
    site.waiting("train", 4)
    plan = only(site.tick())
    gone = list(plan.victims)
    while gone:
        leaving = gone.pop()
        site.tell(PodUpserted(replace(leaving, terminating=True)))
        assert site.tick() == []
        assert site.evict(replace(plan, victims=(leaving,))) == []
    assert len(site.where) == 4


def test_pods_that_are_being_deleted_cost_nothing() -> None:
    site = Site()
    leaving = site.running("leaving", RACK_1, priority=90)
    site.tell(*(PodUpserted(replace(pod, terminating=True)) for pod in leaving))
    site.running("two", RACK_2), site.running("three", RACK_3)
    site.waiting("train", 4)
    plan = only(site.tick())
    assert plan.path == ("zone-a", "rack-1")
    assert (plan.cost.pods, len(plan.victims)) == (0, 4)


def test_after_so_many_evictions_of_a_day_a_gang_is_left_alone() -> None:
    site = Site("zone-a rack-1 : a1=1", maxEvictions=2)
    for round_ in range(3):
        low = site.running("low", [A1])
        site.alone(f"high-{round_}", priority=10)
        plans = site.tick(NOW + 100 * round_)
        assert bool(plans) == (round_ < 2)
        if plans:
            site.evict(*plans, now=NOW + 100 * round_)
            assert site.where.pop(f"high-{round_}") == A1
            site.tell(PodDeleted(f"default/high-{round_}-0"))
        else:
            assert low[0].uid in site.engine.state.pods


def test_observing_says_the_plan_and_keeps_nothing_free() -> None:
    site = Site(preemption="observe")
    for name, rack in (("one", RACK_1), ("two", RACK_2), ("three", RACK_3)):
        site.running(name, rack)
    site.waiting("train", 4)
    assert only(site.tick()).observed
    assert site.engine.preemptions == ()


def test_a_blocker_of_another_resource_is_seen() -> None:
    site = Site("zone-a rack-1 : a1=2\nzone-a rack-2 : a3=2")
    site.running("gpu", [A1, A1], priority=1)
    needs = {"host_ports": ()}
    site.alone("blocker", A3, priority=500, gpu=1, needs=needs), site.alone("low", A3)
    site.waiting("train", 2)
    assert only(site.tick()).path == ("zone-a", "rack-1")


def test_an_anti_affinity_to_what_stays_rules_a_node_out() -> None:
    site = Site("zone-a rack-1 : a1=2\nzone-a rack-2 : a3=2")
    site.alone("kept", A1, priority=500, labels={"app": "noisy"}), site.alone("low", A1)
    site.alone("noisy", A3, priority=50, labels={"app": "noisy"}), site.alone("quiet", A3, priority=60)
    term = PodAffinityTerm(topology_key=HOSTNAME, selector=selector_of({"app": "noisy"}))
    site.alone("high", priority=100, needs={"pod_affinity": PodAffinity(forbidden=(term,))})
    plan = only(site.tick())
    assert (plan.node, names(plan)) == (A3, ["noisy"])
    assert site.evict(plan) == []
    assert site.where == {"high": A3}


def test_an_explained_gang_shows_all_domains_and_what_priority_would_do() -> None:
    site = Site(explain=True)
    site.running("one", RACK_1, priority=30)
    site.running("two", RACK_2, priority=10)
    site.running("three", RACK_3, priority=500)
    site.waiting("train", 4)
    plan = only(site.tick())
    assert [(one.path[-1], one.cost is not None) for one in plan.domains] == [
        ("rack-2", True),
        ("rack-1", True),
        ("rack-3", False),
    ]
    other = Site(explain=True)
    other.running("one", RACK_1, priority=300), other.running("two", RACK_2, priority=200)
    other.running("three", RACK_3, priority=500)
    other.waiting("train", 4)
    assert other.tick() == []
    why = other.why("train")
    assert why is not None
    assert (why.above, why.path) == (200, ("zone-a", "rack-2"))


@pytest.mark.parametrize(
    ("policy", "named", "whose"),
    [
        ("Never", "", "pod"),
        ("", "polite", "PriorityClass/polite"),
        ("Never", "polite", "PriorityClass/polite"),
        ("PreemptLowerPriority", "polite", ""),
        ("", "", ""),
    ],
)
def test_an_explanation_names_the_policy_that_forbids_to_preempt(policy: str, named: str, whose: str) -> None:
    site = Site("zone-a rack-1 : a1=2", explain=True)
    polite = PriorityClass(name="polite", value=100, preemption_policy="Never")
    site.tell(PriorityClassChanged(polite))
    site.running("low", [A1, A1], priority=1)
    needs = {"preemption_policy": policy, "priority_class_name": named}
    site.alone("high", priority=100, needs=needs)
    plans, why = site.tick(), site.why("high")
    assert bool(plans) == (not whose)
    if whose:
        assert why is not None
        assert (why.policy_of, why.path, why.above) == (whose, (A1,), None)


@pytest.mark.parametrize(
    ("of_group", "of_pods", "whose"),
    [
        ("Never", "", "PodGroup/train"),
        ("Never", "PreemptLowerPriority", "PodGroup/train"),
        ("PreemptLowerPriority", "Never", ""),
        ("", "Never", "pod"),
    ],
)
def test_the_policy_of_a_pod_group_counts_instead_of_its_pods(
    of_group: str, of_pods: str, whose: str
) -> None:
    site = Site("zone-a rack-1 : a1=2", explain=True)
    site.running("low", [A1, A1], priority=1)
    record = replace(gang("train", 2, required="rack"), preemption_policy=of_group)
    site.waiting("train", 2, group=record, needs={"preemption_policy": of_pods})
    plans, why = site.tick(), site.why("train")
    assert bool(plans) == (not whose)
    assert whose == ("" if why is None else why.policy_of)


def test_a_policy_is_not_named_where_nothing_would_be_cleared_anyway() -> None:
    site = Site("zone-a rack-1 : a1=1", explain=True)
    site.alone("low", A1, priority=500)
    site.alone("high", priority=100, needs={"preemption_policy": "Never"})
    assert site.tick() == []
    why = site.why("high")
    assert why is None or not why.policy_of


def test_a_further_segment_clears_a_rack_though_each_node_has_room_for_its_pods() -> None:
    #: Of two segments of four pods and one of one, members 0, 1 and 8 run, and 2 and 3 have not come again.
    site = Site()
    low = site.alone("low", B1, priority=10)
    layer = Layer(level="rack", size=4, remainder=Remainder.ALLOW, exclusive=Exclusive.ALL)
    runs = {0: A1, 1: A1, 8: A3}
    members = [
        replace(pod, index=at, node_name=runs.get(at))
        for at, pod in enumerate(pods("train", 9, replace(spec(gpu=1), priority=100)))
        if at not in (2, 3)
    ]
    site.tell(GroupChanged(replace(gang("train", 4), layers=(layer,))), *map(PodUpserted, members))
    plan = only(site.tick())
    assert names(plan) == [low.name]
    assert site.evict(plan) == []
    assert {site.where[f"train-{at}"] for at in (4, 5, 6, 7)} == {B1, B2}
