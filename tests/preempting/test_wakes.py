"""An item that lost its plan, or whose victims may be tried once more, is tried again by itself."""

from closeby.scheduling.events import PodDeleted, PreemptionGivenUp
from closeby.scheduling.preempting.rule import Preemptible
from tests.preempting.site import NOW, Site, names
from tests.worlds import GPU, node


def site_of(*sizes: int) -> Site:
    nodes = [node(f"n{index}", {"zone": "z", "rack": "r"}, {GPU: size}) for index, size in enumerate(sizes)]
    return Site(nodes, whose=Preemptible(reports=True))


def test_who_loses_its_nodes_to_a_higher_priority_clears_others_in_the_same_round() -> None:
    site = site_of(1, 1)
    site.alone("cheap", "n0")
    site.alone("dear", "n1", priority=1)
    site.alone("first", priority=10)
    assert [plan.node for plan in site.tick()] == ["n0"]
    site.alone("second", priority=20)
    found = {plan.preemptor: plan.node for plan in site.tick()}
    assert found == {"default/second": "n0", "default/first": "n1"}


def test_a_victim_that_did_not_go_is_tried_again_after_a_while() -> None:
    site = site_of(1)
    site.alone("low", "n0")
    site.alone("high", priority=10)
    [plan] = site.tick()
    site.tell(PreemptionGivenUp(plan, "it took too long", (plan.victims[0].uid,)))
    assert site.tick(NOW + 1) == []
    assert site.tick(NOW + 599) == []
    assert [names(plan) for plan in site.tick(NOW + 601)] == [["low"]]


def test_what_had_to_keep_off_nodes_may_clear_them_once_the_plan_is_given_up() -> None:
    site = site_of(1)
    site.alone("low", "n0")
    high = site.alone("high", priority=20)
    site.alone("middle", priority=10)
    assert [plan.preemptor for plan in site.tick()] == ["default/high"]
    site.tell(PodDeleted(high.uid))
    site.tick()
    assert [plan.preemptor for plan in site.engine.preemptions] == ["default/middle"]
