"""Several plans in force at once: together they leave each gang its minimum, or all of it goes."""

from collections import Counter

from closeby.objects.labels import HOSTNAME
from closeby.scheduling.events import Tick
from closeby.scheduling.outcomes import PreemptionEnded
from closeby.scheduling.preemption.rule import Preemptible
from tests.preempting.site import NOW, Site
from tests.worlds import GPU, node


def elastic() -> Site:
    """Four nodes with one GPU each, and a gang of four of which some members may go."""
    site = Site(
        [node(f"n{index}", {"zone": "z", "rack": "r"}, {GPU: 1}) for index in range(4)],
        whose=Preemptible(reports=True),
    )
    site.running("elastic", [f"n{index}" for index in range(4)], minimum=2)
    return site


def left_of(site: Site) -> int:
    gone = {pod.uid for plan in site.engine.preemptions for pod in plan.victims}
    return sum(pod.uid not in gone for pod in site.engine.state.placed("default/elastic"))


def test_members_that_go_for_other_plans_are_beyond_the_minimum_no_more() -> None:
    site = elastic()
    for index in range(3):
        site.alone(f"high-{index}", priority=10)
    plans = site.tick()
    assert [(len(plan.victims), plan.cost.gangs_broken) for plan in plans] == [(1, 0), (1, 0), (2, 1)]
    assert left_of(site) == 0


def test_a_plan_of_higher_priority_leaves_the_gang_its_minimum_too() -> None:
    site = elastic()
    for index in range(2):
        site.alone(f"high-{index}", priority=10)
    assert sorted(plan.node or "" for plan in site.tick()) == ["n0", "n1"]
    for name in ("n2", "n3"):
        site.alone(f"higher-{name}", priority=20, needs={"node_selector": ((HOSTNAME, name),)})
    outputs = site.engine.handle(Tick(wall=NOW))
    whys = {one.why for one in outputs if isinstance(one, PreemptionEnded)}
    assert whys == {"pods of higher priority take its victims"}
    assert left_of(site) in (0, 2)
    site.tick()
    assert left_of(site) in (0, 2)


def test_no_two_plans_evict_the_same_member_of_a_gang_that_goes_as_a_whole() -> None:
    site = Site(
        [node(name, {"zone": "z", "rack": name}, {GPU: 1}) for name in ("n0", "n1", "n2")],
        whose=Preemptible(reports=True),
    )
    site.running("elastic", ["n0", "n1", "n2"], minimum=2)
    site.alone("first", priority=20)
    [first] = site.tick()
    site.alone("second", priority=10)
    [second] = site.tick()
    counts = Counter(pod.name for plan in (first, second) for pod in plan.victims)
    assert counts == Counter(["elastic-0", "elastic-1", "elastic-2"])
