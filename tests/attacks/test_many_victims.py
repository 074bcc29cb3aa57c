"""A tenant's pods, budgets and gangs are many, and an item of higher priority asks which of them must go."""

from collections import Counter

import pytest
from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod, PodDisruptionBudget
from closeby.objects.selectors import LabelSelector, PodAffinity, PodAffinityTerm, selector_of
from closeby.scheduling.events import BudgetChanged, GroupChanged, PodDeleted, PodUpserted, Tick
from closeby.scheduling.extension import Undo
from closeby.scheduling.outcomes import outcomes_of
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.preemption.plans import PlanInForce, Plans
from closeby.scheduling.preemption.possible import PossibleVictims
from closeby.scheduling.preemption.room import DomainRoom
from closeby.scheduling.preemption.units import Victims, VictimUnit
from tests.preempting.site import NOW, Site
from tests.worlds import GPU, gang, node, pods, spec

APART = PodAffinity(forbidden=(PodAffinityTerm(HOSTNAME, selector_of({"app": "a3"})),))


def test_a_budget_is_asked_about_pods_that_it_may_cover_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 budgets, of which each covers one of 400 pods."""
    site = Site([node(f"n{number}", {"zone": "z", "rack": "r"}, {GPU: 8}) for number in range(50)])
    site.tell(
        *(
            BudgetChanged(
                PodDisruptionBudget(
                    namespace="default",
                    name=f"b{number}",
                    selector=selector_of({"app": f"a{number}"}),
                    max_unavailable=1,
                )
            )
            for number in range(200)
        ),
        *(
            PodUpserted(replace(one, node_name=f"n{number % 50}", labels={"app": f"a{number}"}))
            for number, one in enumerate(pods(None, 400, spec(gpu=1, cpu=0), on="n0", created=0.0))
        ),
    )
    asked, matches = Counter[str](), LabelSelector.matches

    def counting(self: LabelSelector, labels: dict[str, str]) -> bool:
        asked["times"] += 1
        return matches(self, labels)

    monkeypatch.setattr(LabelSelector, "matches", counting)
    site.alone("one", gpu=8, priority=100)
    (plan,) = site.tick()
    assert len(plan.victims) == 8
    assert asked["times"] < 2_000, "pods were compared with all budgets"


def test_the_room_of_a_domain_is_counted_as_often_as_it_has_victims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of 300 gangs one member can go alone, and for most of them that is not enough."""
    site = Site([node(f"n{number}", {"zone": "z", "rack": "r"}, {GPU: 6}) for number in range(100)])
    for number in range(300):
        site.running(f"old{number}", [f"n{number % 100}", f"n{(number + 1) % 100}"], minimum=1)
    freed, free = Counter[str](), DomainRoom.free

    def counting(self: DomainRoom, unit: VictimUnit, sign: int = 1) -> None:
        freed["times"] += 1
        free(self, unit, sign)

    monkeypatch.setattr(DomainRoom, "free", counting)
    site.waiting("train", 90, gpu=6)
    (plan,) = site.tick()
    assert 540 <= len(plan.victims) <= 600
    assert freed["times"] < 10 * 900


@pytest.fixture
def lifted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often pods were lifted in trials, under ``pods``."""
    counts, lift = Counter[str](), Holdings.lift

    def counting(self: Holdings, pod: Pod) -> Undo:
        counts["pods"] += 1
        return lift(self, pod)

    monkeypatch.setattr(Holdings, "lift", counting)
    return counts


def test_trials_lift_each_victim_about_as_often_as_they_must(lifted: Counter[str]) -> None:
    """A gang keeps off some pods, so that sets of victims are tried; most pods of three racks must go."""
    site = Site([node(f"n{number}", {"zone": "z", "rack": "r"}, {GPU: 8}) for number in range(60)])
    site.tell(
        *(
            PodUpserted(replace(one, node_name=f"n{number % 60}", labels={"app": f"a{number % 7}"}))
            for number, one in enumerate(pods(None, 480, spec(gpu=1, cpu=0), on="n0", created=0.0))
        )
    )
    site.waiting("train", 50, gpu=8, needs={"pod_affinity": APART})
    (plan,) = site.tick()
    assert len(plan.victims) == 400
    assert lifted["pods"] < 20_000


def test_trials_for_one_pod_end_in_time(monkeypatch: pytest.MonkeyPatch, lifted: Counter[str]) -> None:
    """On each node a member of a large elastic gang must go, and the gang as a whole could."""
    site = Site([node(f"n{number}", {"zone": "z", "rack": "r"}, {GPU: 8}) for number in range(100)])
    site.running("old", [f"n{number % 100}" for number in range(800)], minimum=400, labels={"app": "a3"})
    monkeypatch.setattr("closeby.scheduling.preemption.trials.TRIAL_STEPS", 4_000)
    monkeypatch.setattr("closeby.scheduling.preemption.clearing.TRIAL_STEPS", 4_000)
    site.alone("one", gpu=2, priority=100, needs={"pod_affinity": APART})
    (plan,) = site.tick()
    assert len(plan.victims) == 8
    assert lifted["pods"] < 9_000


def test_of_many_priorities_few_are_tried_to_explain_which_would_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """300 pods of as many priorities hold all nodes, ten a node."""
    site = Site(
        [node(f"n{number}", {"zone": "z", "rack": "r"}, {GPU: 10}) for number in range(30)], explain=True
    )
    for number in range(300):
        site.alone(f"old{number}", f"n{number // 10}", priority=100 + number)
    asked, below = Counter[str](), PossibleVictims.below

    def counting(self: PossibleVictims, key: str, priority: int) -> Victims | None:
        asked["times"] += 1
        return below(self, key, priority)

    monkeypatch.setattr(PossibleVictims, "below", counting)
    site.alone("one", gpu=10, priority=50)
    assert not site.tick()
    found = site.why("one")
    assert found is not None and found.above == 109
    assert asked["times"] < 20


def test_a_victim_that_leaves_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gang of 600 goes as a whole, one pod after the other."""
    site = Site([node(f"n{number}", {"zone": "z", "rack": "r"}, {GPU: 6}) for number in range(100)])
    members = site.running("old", [f"n{number % 100}" for number in range(600)])
    site.alone("one", gpu=6, priority=100)
    (plan,) = site.tick()
    assert len(plan.victims) == 600
    asked, left = Counter[str](), Plans.left

    def counting(self: Plans, plan: PlanInForce) -> tuple[Pod, ...]:
        asked["times"] += 1
        return left(self, plan)

    monkeypatch.setattr(Plans, "left", counting)
    site.tell(*(PodDeleted(pod.uid) for pod in members))
    assert not asked
    site.tick()
    assert site.where["one"] == "n0"


def test_searches_for_victims_in_vain_take_turns_with_the_items_of_other_namespaces() -> None:
    """Ten gangs of unequal pods have no victims, which takes many trials each."""
    names = [f"n{number}" for number in range(64)]
    site = Site(
        [node(name, {"zone": "z", "rack": f"r{at // 8}"}, {GPU: 8}) for at, name in enumerate(names)],
        backoff=True,
    )
    for name in names:
        for index in range(8):
            site.alone(f"{name}-{index}", name, priority=100 if index < 4 else 0)
    for number in range(10):
        group = replace(gang(f"odd-{number}", 17, required="rack"), namespace="greedy")
        members = pods(group.name, 17, replace(spec(cpu=0), priority=50))
        unequal = [
            replace(one, namespace="greedy", spec=replace(one.spec, requests=((GPU, 1 + index % 3),)))
            for index, one in enumerate(members)
        ]
        site.tell(GroupChanged(group), *map(PodUpserted, unequal))
    site.alone("other", priority=10, gpu=5)
    decided: list[str] = []
    while "default/other" not in decided:
        decided += [one.key for one in outcomes_of(site.engine.handle(Tick(NOW, 1, 20_000, NOW)))]
    assert len(decided) < 7
