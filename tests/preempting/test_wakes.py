"""An item that lost its plan, or whose victims may be tried once more, is tried again by itself."""

from closeby.objects.pods import Pod
from closeby.objects.selectors import LabelRequirement, LabelSelector, TopologySpreadConstraint
from closeby.scheduling.events import PodDeleted, PreemptionGivenUp
from closeby.scheduling.preemption.rule import Preemptible
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


def waiting_for_victims() -> tuple[Site, list[Pod]]:
    """A pod of two GPUs that was refused; one of four GPUs that pods of higher priority hold comes free."""
    site = Site([node("n0", {}, {GPU: 4}), node("n1", {}, {GPU: 1})], backoff=True)
    running = [site.alone("low", "n1")]
    running += [site.alone(f"high-{index}", "n0", priority=20) for index in range(4)]
    site.alone("young", priority=10, gpu=2, created=9.0)
    site.tick(NOW)
    site.tell(PodDeleted(running.pop().uid))
    return site, running


def test_after_one_of_a_class_is_placed_the_others_back_off_from_the_beginning() -> None:
    site, (_, *high) = waiting_for_victims()
    site.alone("younger", priority=10, gpu=2, created=10.0)
    site.tick(NOW + 1)
    assert site.engine.next_backoff_end is None
    site.tell(PodDeleted(high[0].uid))
    site.tick(NOW + 3)
    assert site.where == {"young": "n0"}
    site.tell(PodDeleted(high[1].uid))
    site.tick(NOW + 3.5)
    assert site.engine.next_backoff_end == NOW + 4


def test_one_that_found_no_victims_looks_for_none_until_there_may_be_others() -> None:
    site, (low, *_) = waiting_for_victims()
    site.tick(NOW + 1)
    tried = len(site.engine.story("default/young"))
    site.tell(PodDeleted(low.uid))
    site.tick(NOW + 10)
    assert len(site.engine.story("default/young")) == tried


def test_one_that_may_find_victims_is_tried_though_an_equal_pod_has_found_none() -> None:
    site, _ = waiting_for_victims()
    tried = len(site.engine.story("default/young"))
    site.alone("old", priority=10, gpu=2, created=1.0)
    site.tick(NOW + 1)
    assert len(site.engine.story("default/young")) == tried + 1


def test_what_may_find_victims_after_its_backoff_still_does_when_other_labels_matter_meanwhile() -> None:
    site = Site([node("n0", {"zone": "z"}, {GPU: 2}), node("n1", {"zone": "z"}, {GPU: 1})], backoff=True)
    site.alone("low", "n0")
    high = site.alone("high", "n0", priority=20)
    site.alone("middle", priority=10, gpu=2, labels={"app": "a"})
    assert site.tick(NOW) == []
    site.tell(PodDeleted(high.uid))
    assert site.tick(NOW + 0.5) == []
    selector = LabelSelector((LabelRequirement("app", "Exists"),))
    spread = TopologySpreadConstraint(topology_key="zone", max_skew=1, selector=selector)
    site.alone("other", gpu=9, needs={"topology_spread": (spread,)}, labels={"app": "b"})
    assert site.tick(NOW + 0.7) == []
    assert [names(plan) for plan in site.tick(NOW + 1)] == [["low"]]


def test_what_had_to_keep_off_nodes_may_clear_them_once_the_plan_is_given_up() -> None:
    site = site_of(1)
    site.alone("low", "n0")
    high = site.alone("high", priority=20)
    site.alone("middle", priority=10)
    assert [plan.preemptor for plan in site.tick()] == ["default/high"]
    site.tell(PodDeleted(high.uid))
    site.tick()
    assert [plan.preemptor for plan in site.engine.preemptions] == ["default/middle"]
