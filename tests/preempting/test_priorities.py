"""Priorities and policies: what a gang of several of them may do, and what changes while victims leave."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from closeby.objects.pods import PriorityClass
from closeby.scheduling.events import (
    Event,
    GroupChanged,
    PodUpserted,
    PriorityClassChanged,
    PriorityClassDeleted,
    Tick,
)
from closeby.scheduling.outcomes import Preemption, PreemptionEnded
from closeby.scheduling.preemption.rule import Preemptible
from tests.preempting.site import NOW, Site, names
from tests.worlds import GPU, gang, node, pods, spec


def one_node(gpu: int = 1) -> Site:
    return Site([node("n0", {"zone": "z", "rack": "r"}, {GPU: gpu})], whose=Preemptible(reports=True))


def of_class(name: str, value: int, policy: str = "") -> PriorityClassChanged:
    return PriorityClassChanged(PriorityClass(name=name, value=value, preemption_policy=policy))


def with_classes() -> Site:
    """A victim and a preemptor that name their classes, and a plan in force."""
    site = one_node()
    site.tell(of_class("low", 0), of_class("high", 10))
    low, high = (replace(spec(gpu=1, cpu=0), priority_class_name=name) for name in ("low", "high"))
    site.tell(PodUpserted(pods(None, 1, low, prefix="victim", on="n0")[0]))
    site.tell(PodUpserted(pods(None, 1, high, prefix="train")[0]))
    assert len(site.tick()) == 1
    return site


def after(site: Site, *events: Event) -> tuple[list[str], Sequence[Preemption]]:
    """Why plans ended, and which are in force then."""
    outputs = site.engine.handle(*events, Tick(wall=NOW + 1))
    site.engine.validate_state()
    return [one.why for one in outputs if isinstance(one, PreemptionEnded)], site.engine.preemptions


@pytest.mark.parametrize(
    "change", [of_class("low", 10), of_class("high", -1), PriorityClassDeleted("high")], ids=str
)
def test_a_plan_ends_when_its_victims_are_not_of_lower_priority_any_more(change: Event) -> None:
    ended, plans = after(with_classes(), change)
    assert ended == ["its victims are not of lower priority any more"]
    assert plans == ()


@pytest.mark.parametrize("change", [of_class("low", 9), of_class("high", 1), of_class("other", 1_000)])
def test_a_plan_goes_on_while_its_victims_are_of_lower_priority(change: Event) -> None:
    ended, plans = after(with_classes(), change)
    assert ended == []
    assert len(plans) == 1


def test_the_owner_of_a_gang_may_raise_its_priority_while_it_is_to_be_evicted() -> None:
    site = one_node()
    site.running("victim", ["n0"])
    site.waiting("train", 1, priority=10)
    site.tick()
    ended, plans = after(site, GroupChanged(replace(gang("victim", 1), priority=10)))
    assert (len(ended), plans) == (1, ())


def test_the_owner_of_a_preemptor_may_lower_its_priority() -> None:
    site = one_node()
    site.running("victim", ["n0"], priority=5)
    record = replace(gang("train", 1, required="rack"), priority=10)
    site.waiting("train", 1, priority=0, group=record)
    assert len(site.tick()) == 1
    ended, plans = after(site, GroupChanged(replace(record, priority=5)))
    assert (len(ended), plans) == (1, ())


def test_a_victim_that_leaves_already_ends_no_plan() -> None:
    site = one_node()
    [victim] = site.running("victim", ["n0"])
    site.waiting("train", 1, priority=10)
    [plan] = site.tick()
    site.tell(PodUpserted(replace(victim, terminating=True)))
    assert after(site, GroupChanged(replace(gang("victim", 1), priority=10))) == ([], (plan,))


def test_a_gang_preempts_at_the_priority_of_the_members_that_it_needs() -> None:
    """With one of priority 5 among the two that it needs it does not evict what has 10."""
    for minimum, victims in ((1, ["low-0", "low-1"]), (2, [])):
        site = one_node(2)
        site.running("low", ["n0", "n0"], priority=10)
        high, less = (replace(spec(gpu=1, cpu=0), priority=value) for value in (100, 5))
        members = [*pods("train", 1, high, prefix="a"), *pods("train", 1, less, prefix="b")]
        site.tell(GroupChanged(gang("train", minimum, required="rack")), *map(PodUpserted, members))
        assert [name for plan in site.tick() for name in names(plan)] == victims


@pytest.mark.parametrize("minimum", [1, 2])
def test_a_gang_of_which_a_member_must_not_preempt_evicts_no_pod(minimum: int) -> None:
    site = one_node(2)
    site.running("low", ["n0", "n0"])
    may = replace(spec(gpu=1, cpu=0), priority=10)
    members = [
        *pods("train", 1, may, prefix="a"),
        *pods("train", 1, replace(may, preemption_policy="Never"), prefix="b"),
    ]
    site.tell(GroupChanged(gang("train", minimum, required="rack")), *map(PodUpserted, members))
    assert site.tick() == []


def test_negative_priorities_count_like_others() -> None:
    site = one_node()
    site.alone("low", "n0", priority=-10)
    site.alone("same", priority=-10)
    assert site.tick() == []
    site.alone("more", priority=-9)
    assert [names(plan) for plan in site.tick()] == [["low"]]
