"""Gangs of unequal pods are as close to each other as equal pods would be, where a domain holds them."""

import random
import tracemalloc
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from closeby.lab.benchmarks import clusters
from closeby.lab.benchmarks.placement import engine_of
from closeby.objects.groups import PodGroup, Strategy
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod, PodSpec, Toleration
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, TopologySpreadConstraint, selector_of
from closeby.scheduling.events import GroupChanged, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of
from closeby.scheduling.reasons.facts import ShortOf
from tests.worlds import GPU, fabric, gang, node, pods, spec, world

TOLERANT = replace(spec(gpu=1), tolerations=(Toleration(key="k", operator="Exists"),))


@pytest.mark.parametrize("second", [TOLERANT, spec(gpu=2)], ids=["tolerations", "sizes"])
def test_a_gang_goes_to_one_rack_inside_the_zone_that_it_requires(second: PodSpec) -> None:
    drawn = world("z r0 : a1=1\nz r1 : b1=3\ny r2 : c1=1")
    members = [*pods("train", 1, spec(gpu=1), prefix="x"), *pods("train", 1, second, prefix="y")]
    drawn.run(gang(min_member=2, required="zone"), members=members)
    assert drawn.used() == {"b1": 2}


def test_labels_that_a_term_elsewhere_goes_by_take_a_gang_no_further() -> None:
    apart = PodAffinity(forbidden=(PodAffinityTerm(HOSTNAME, selector_of({"role": "y"})),))
    running = pods(None, 1, replace(spec(gpu=1), pod_affinity=apart), prefix="w", on="c1")
    drawn = world("z r0 : a1=1\nz r1 : b1=3\ny r2 : c1=1").tell(*map(PodUpserted, running))
    members = [*pods("train", 1, prefix="x"), *pods("train", 1, prefix="y", labels={"role": "y"})]
    drawn.run(gang(min_member=2, required="zone"), members=members)
    assert drawn.used() == {"b1": 2}


@pytest.mark.parametrize(("small", "large"), [("r1", "r2"), ("r2", "r1")])
def test_a_small_pod_goes_to_the_tightest_rack_in_use(small: str, large: str) -> None:
    drawn = world(f"z {small} : a1=5\nz {large} : b1=7")
    members = [*pods("train", 3, spec(gpu=3), prefix="x"), *pods("train", 1, prefix="y")]
    drawn.run(gang(min_member=4, required="zone"), members=members)
    assert drawn.used() == {"a1": 1, "b1": 3}


def test_a_rack_that_holds_each_pod_but_not_both_is_passed_over() -> None:
    # By counts r0 is tighter: each of the pods fits there by itself.
    drawn = world("z r0 : a1=3\nz r1 : b1=2 b2=3\nz r2 : c1=9 c2=9")
    members = [*pods("train", 1, spec(gpu=3), prefix="x"), *pods("train", 1, spec(gpu=2), prefix="y")]
    drawn.run(gang(min_member=2, required="zone"), members=members)
    assert drawn.used() == {"b1": 1, "b2": 1}


def test_a_rack_with_room_for_each_pod_alone_is_not_said_to_take_them_all() -> None:
    drawn = world("z r0 : a1=2 a2=2\nz r1 : b1=1")
    members = [*pods("train", 1, spec(gpu=1), prefix="x"), *pods("train", 2, spec(gpu=2), prefix="y")]
    found = drawn.run(gang(min_member=3, required="rack"), members=members)
    short = found.shortfall("train")
    assert (short.what, short.wanted, short.domain, short.holds) == (ShortOf.DOMAIN, 3, ("z", "r0"), 3)


def test_a_gang_that_spreads_is_not_kept_together() -> None:
    drawn = world("z r0 : a1=4\nz r1 : b1=4")
    members = [*pods("train", 2, spec(gpu=1), prefix="x"), *pods("train", 2, TOLERANT, prefix="y")]
    drawn.run(gang(min_member=4, required="zone", strategy=Strategy.SPREAD), members=members)
    assert drawn.used() == {"a1": 2, "b1": 2}


@pytest.mark.parametrize("seed", range(60))
def test_what_tells_pods_apart_without_keeping_them_off_nodes_takes_them_no_further(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [
        node(f"n{i}", {"zone": "z", "rack": f"r{i % 3}"}, {"example.com/gpu": dice.randint(0, 4)})
        for i in range(dice.randint(3, 9))
    ]
    count = dice.randint(2, 6)

    def racks(members: list[Pod]) -> int:
        drawn = world(nodes).run(gang(min_member=count, required="zone"), members=members)
        return len(drawn.used(by="rack"))

    of_two_kinds = [
        *pods("train", count // 2, spec(gpu=1), prefix="x"),
        *pods("train", count - count // 2, TOLERANT, prefix="y"),
    ]
    assert racks(of_two_kinds) == racks(pods("train", count, spec(gpu=1))), f"seed {seed}"


def placed_within(memory: int, needs: Sequence[PodSpec], number: int) -> int:
    """Places a gang with so many pods of these needs, in turn, on 600 nodes; within so many MiB."""
    engine = engine_of(600)
    members = clusters.plain_pods([needs[i % len(needs)] for i in range(number)], "u")
    group = PodGroup(namespace="bench", name="u", min_member=number)
    labelled = (replace(pod, group="u", labels={"app": "u"}) for pod in members)
    engine.handle(GroupChanged(group), *map(PodUpserted, labelled))
    tracemalloc.start()
    try:
        placed = bindings_of(engine.handle(Tick()))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < memory * 1024 * 1024
    return len(placed)


def test_a_search_among_many_nodes_keeps_little_for_each_pod() -> None:
    """Pods of a dozen sizes fill the nodes nearly. All nodes are looked at for each of them."""
    sizes = [clusters.needs(3 + i % 4, 100 * i) for i in range(12)]
    assert placed_within(8, sizes, 660) == 660


def test_a_search_for_pods_about_pods_keeps_little_for_each() -> None:
    """A set of placements is not tried in two orders, and thousands of such sets come one after another."""
    near = PodAffinity(required=(PodAffinityTerm("block", selector_of({"app": "u"})),))
    sizes = [replace(clusters.needs(1, 100 * i), pod_affinity=near) for i in range(3)]
    assert placed_within(8, sizes, 900) == 900


def test_a_spread_does_not_count_pods_on_nodes_that_its_own_pods_may_not_use() -> None:
    """One goes to an ssd node, one to an hdd node. Only rack r1 has room; they don't see each other there."""
    even = TopologySpreadConstraint(topology_key="rack", max_skew=1, selector=selector_of({"app": "u"}))
    nodes = [
        node(f"{disk}{rack}", {"rack": f"r{rack}", "disk": disk}, {GPU: 2 - rack, "cpu": 8000})
        for rack in (1, 2)
        for disk in ("ssd", "hdd")
    ]
    members = [
        pod
        for disk in ("ssd", "hdd")
        for pod in pods(
            "train",
            1,
            replace(spec(gpu=1), topology_spread=(even,), node_selector=(("disk", disk),)),
            prefix=disk,
            labels={"app": "u"},
        )
    ]
    drawn = world(nodes, fabric("rack", HOSTNAME), levels=("rack",))
    drawn.run(gang(min_member=2), members=members)
    assert drawn.where == {"ssd-0": "ssd1", "hdd-0": "hdd1"}


def test_members_that_come_later_use_few_racks_besides_that_of_the_others() -> None:
    """One runs in r3, which takes one more. The others fit tightly into r2 and r4, and both into r1."""
    drawn = world("b r1 : a1=3 a2=3\nb r2 : b1=2\nb r3 : c1=2\nb r4 : d1=2")
    running = pods("train", 1, spec(gpu=1), prefix="first", on="c1")
    later = [*pods("train", 2, spec(gpu=2), prefix="x"), *pods("train", 1, spec(gpu=1), prefix="y")]
    drawn.run(gang(min_member=4), members=[*running, *later])
    assert drawn.used(by="rack") == {"r3": 1, "r1": 2}
