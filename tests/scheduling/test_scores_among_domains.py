"""Of domains that are equally tight the scores of the pods decide: which racks, and which nodes of them."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.groups import Arrangement, Layer, Remainder, Strategy
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import PREFER_NO_SCHEDULE, Node, Taint
from closeby.objects.pods import NodeSelectorTerm, PodSpec, PreferredTerm, Requirement
from closeby.objects.selectors import (
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    WeightedPodTerm,
)
from closeby.plugins.configurations import DEFAULT, KUBE_SCHEDULER, NAMED
from closeby.plugins.registry import profile_for
from closeby.scheduling.engine import Engine
from tests.worlds import GPU, World, fabric, gang, node, pods, spec, subgroup

#: What a node is like: ``+`` has what the pods prefer, ``-`` a soft taint, ``*`` both, ``.`` neither.
SOFT = Taint("maintenance", "soon", PREFER_NO_SCHEDULE)
WISH = (PreferredTerm(9, NodeSelectorTerm(expressions=(Requirement("disk", "In", ("ssd",)),))),)
WISHING = replace(spec(gpu=1), preferred_affinity=WISH)
#: NodeAffinity weighs 2 and TaintToleration 3, each up to 100.
SCORES = {"+": 500, ".": 300, "*": 200, "-": 0}
CONFIGURATIONS = (DEFAULT, KUBE_SCHEDULER)


def racks(*kinds: str, block: str = "b") -> list[Node]:
    """Racks r0, r1, … of one block, with a node for each letter, which takes one pod."""
    return [
        node(
            f"{block}-r{rack}-{at}",
            {"block": block, "rack": f"{block}-r{rack}"} | ({"disk": "ssd"} if kind in "+*" else {}),
            {GPU: 1},
            [SOFT] if kind in "-*" else [],
        )
        for rack, letters in enumerate(kinds)
        for at, kind in enumerate(letters)
    ]


def drawn(nodes: Sequence[Node], configuration: str = DEFAULT) -> World:
    engine = Engine(lambda handle: profile_for(NAMED[configuration], handle))
    return World(engine, nodes, fabric("block", "rack", HOSTNAME))


def kinds_used(world: World, nodes: Sequence[Node]) -> str:
    by_name = {one.name: one for one in nodes}
    used = [by_name[name] for name in world.where.values()]
    return "".join(sorted(".+-*"[("disk" in one.labels) + 2 * bool(one.taints)] for one in used))


def selecting(app: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", "In", (app,)),))


def points(kinds: str) -> int:
    return sum(SCORES[kind] for kind in kinds)


def best(kinds: str, count: int) -> int:
    return sum(sorted((SCORES[kind] for kind in kinds), reverse=True)[:count])


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("required", [True, False])
@given(
    kinds=st.lists(st.text("+-*.", min_size=1, max_size=4), min_size=1, max_size=4), count=st.integers(1, 4)
)
def test_the_best_of_the_tightest_racks_and_of_its_nodes(
    configuration: str, required: bool, kinds: list[str], count: int
) -> None:
    enough = [rack for rack in kinds if len(rack) >= count]
    if not enough:
        return
    asked = gang(min_member=count, required="rack") if required else gang(min_member=count, preferred="rack")
    nodes = racks(*kinds)
    world = drawn(nodes, configuration).run(asked, members=pods("train", count, WISHING))
    tightest = [rack for rack in enough if len(rack) == min(map(len, enough))]
    (used,) = world.used(by="rack")
    rack = kinds[int(used.removeprefix("b-r"))]
    assert rack in tightest
    assert points(rack) == max(map(points, tightest))
    assert points(kinds_used(world, nodes)) == best(rack, count)


@given(kinds=st.lists(st.text("+-*.", min_size=2, max_size=2), min_size=3, max_size=5))
def test_the_best_racks_where_several_are_needed(kinds: list[str]) -> None:
    nodes = racks(*kinds)
    world = drawn(nodes).run(gang(min_member=4), members=pods("train", 4, WISHING))
    assert set(world.used(by="rack").values()) == {2}
    pairs = combinations(kinds, 2)
    assert points(kinds_used(world, nodes)) == max(points(one + two) for one, two in pairs)


@pytest.mark.parametrize("required", [None, "block"])
def test_blocks_are_chosen_by_scores_too(required: str | None) -> None:
    nodes = [*racks("--", block="a"), *racks("..", block="b"), *racks("++", block="c")]
    world = drawn(nodes).run(gang(min_member=2, required=required), members=pods("train", 2, WISHING))
    assert world.used(by="block") == {"c": 2}


def test_tightness_comes_before_scores() -> None:
    world = drawn(racks("+++", "--")).run(gang(min_member=2), members=pods("train", 2, WISHING))
    assert world.used(by="rack") == {"b-r1": 2}


def test_spread_takes_the_best_of_the_emptiest() -> None:
    asked = gang(min_member=2, required="rack", strategy=Strategy.SPREAD)
    world = drawn(racks("++", "---", "...")).run(asked, members=pods("train", 2, WISHING))
    assert world.used(by="rack") == {"b-r2": 2}


def test_subgroups_go_to_the_best_racks() -> None:
    asked = gang(
        min_member=4, subgroups=[subgroup("one", 2, required="rack"), subgroup("two", 2, required="rack")]
    )
    members = [*pods("train", 2, WISHING, "one"), *pods("train", 2, WISHING, "two")]
    world = drawn(racks("--", "++", "..")).run(asked, members=members)
    assert world.used(by="rack") == {"b-r1": 2, "b-r2": 2}


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("arrangement", list(Arrangement))
def test_segments_go_to_the_best_racks(size: int, arrangement: Arrangement) -> None:
    layer = Layer(level="rack", size=size, remainder=Remainder.ALLOW, arrangement=arrangement)
    asked = replace(gang(min_member=4), layers=(layer,))
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 4, WISHING))]
    world = drawn(racks("-" * size, "+" * size, "." * size)).run(asked, members=members)
    assert sum(world.used(by="rack").values()) == 4
    assert "b-r0" not in world.used(by="rack")


def test_unequal_pods_go_to_the_best_rack() -> None:
    leader = replace(WISHING, requests=((GPU, 1), ("cpu", 1)))
    nodes = [
        replace(one, allocatable={GPU: 1, "cpu": 1 if one.name.endswith("0") else 0})
        for one in racks("--", "++", "..")
    ]
    members = [*pods("train", 1, leader, prefix="leader"), *pods("train", 1, WISHING)]
    world = drawn(nodes).run(gang(min_member=2, required="block"), members=members)
    assert world.used(by="rack") == {"b-r1": 2}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_preferred_pod_affinity_decides(configuration: str) -> None:
    term = PodAffinityTerm("rack", selecting("store"), ("default",))
    near = replace(spec(gpu=1), pod_affinity=PodAffinity(preferred=(WeightedPodTerm(9, term),)))
    store = pods(None, 1, PodSpec(), prefix="store", on="b-r1-0", labels={"app": "store"})
    world = drawn(racks("..", "..", ".."), configuration).run(members=store)
    world.run(gang(min_member=2, required="rack"), members=pods("train", 2, near))
    assert world.used("train", by="rack") == {"b-r1": 2}


def test_pods_that_keep_apart_go_to_the_best_nodes() -> None:
    term = PodAffinityTerm(HOSTNAME, selecting("train"), ("default",))
    apart = replace(WISHING, pod_affinity=PodAffinity(forbidden=(term,)))
    members = pods("train", 2, apart, labels={"app": "train"})
    world = drawn(racks("--++")).run(gang(min_member=2), members=members)
    assert set(world.where.values()) == {"b-r0-2", "b-r0-3"}


def test_more_equal_racks_than_can_be_seen_at_a_glance() -> None:
    kinds = ["-"] * 90
    kinds[77] = "+"
    world = drawn(racks(*kinds)).run(gang(required="rack"), members=pods("train", 1, WISHING))
    assert world.used(by="rack") == {"b-r77": 1}
