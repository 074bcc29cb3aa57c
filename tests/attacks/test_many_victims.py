"""A tenant's pods, budgets and gangs are many, and an item of higher priority asks which of them must go."""

from collections import Counter

import pytest
from msgspec.structs import replace

from closeby.objects.disruption import PodDisruptionBudget
from closeby.objects.selectors import LabelSelector, selector_of
from closeby.scheduling.events import BudgetChanged, PodUpserted
from closeby.scheduling.preempting.domain_room import DomainRoom
from closeby.scheduling.preempting.units import VictimUnit
from tests.preempting.site import Site
from tests.worlds import GPU, node, pods, spec


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
