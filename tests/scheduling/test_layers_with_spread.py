"""Gangs with layers whose equal pods limit each other: by a spread, or as one to a node.

That holds for the gang as a whole.
"""

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Layer, LayerMode, PodGroup, Remainder
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, TopologySpreadConstraint, selector_of
from closeby.scheduling.events import PodDeleted
from tests.worlds import World, gang, pods, spec, world

BLOCKS = ("block", "rack")
TWO_BLOCKS = """
a r1 : a1=1 a2=1
a r2 : a3=1 a4=1
b r3 : b1=1 b2=1
b r4 : b3=1 b4=1
"""
THREE_BLOCKS = """
a r1 : a1=4
a r2 : a2=4
b r3 : b1=4
b r4 : b2=4
c r5 : c1=4
"""


def spread(key: str = "block", skew: int = 1) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(topology_key=key, max_skew=skew, selector=selector_of({"app": "train"}))


def members(count: int, *constraints: TopologySpreadConstraint) -> list[Pod]:
    needs = replace(spec(gpu=1), topology_spread=constraints)
    return pods("train", count, needs, labels={"app": "train"})


def layered(count: int, size: int, mode: LayerMode = LayerMode.REQUIRED) -> PodGroup:
    layer = Layer(level="rack", size=size, mode=mode, remainder=Remainder.ALLOW)
    return replace(gang(min_member=count), layers=(layer,))


def in_racks(found: World, count: int, size: int) -> bool:
    """Whether each segment is in one rack."""
    rack = {}
    for name, node in found.where.items():
        slot = found.engine.cluster.slot(node)
        assert slot is not None
        rack[int(name.split("-")[1])] = found.engine.cluster.node_at(slot).labels["rack"]
    return all(
        len({rack[at] for at in range(first, min(first + size, count))}) == 1
        for first in range(0, count, size)
    )


@pytest.mark.parametrize("count", [4, 8])
def test_segments_are_shared_out_over_the_domains_of_a_spread(count: int) -> None:
    found = world(TWO_BLOCKS, levels=BLOCKS).run(layered(count, 2), members=members(count, spread()))
    assert found.used(by="block") == {"a": count // 2, "b": count // 2}
    assert in_racks(found, count, 2)


def test_larger_segments_are_shared_out_over_three_domains() -> None:
    found = world(THREE_BLOCKS, levels=BLOCKS).run(layered(9, 3), members=members(9, spread()))
    assert found.used(by="block") == {"a": 3, "b": 3, "c": 3}
    assert in_racks(found, 9, 3)


def test_a_spread_that_no_division_of_the_segments_keeps_is_refused() -> None:
    found = world(THREE_BLOCKS, levels=BLOCKS).run(layered(6, 3), members=members(6, spread()))
    assert (found.where, found.reason("train")) == ({}, Reason.TOPOLOGY_PLACEMENT_FAILED)
    found = world(THREE_BLOCKS, levels=BLOCKS).run(layered(12, 3), members=members(12, spread(skew=3)))
    assert len(found.where) == 12
    # There a block would have to take more than it has room for, with layers or without.
    for group in (layered(16, 2), layered(16, 2, mode=LayerMode.PREFERRED)):
        found = world(THREE_BLOCKS, levels=BLOCKS).run(group, members=members(16, spread()))
        assert (found.where, found.reason("train")) == ({}, Reason.GANG_DOES_NOT_FIT)


def test_segments_spread_over_the_nodes_of_their_racks() -> None:
    nodes = TWO_BLOCKS.replace("=1", "=3")
    found = world(nodes, levels=BLOCKS).run(
        layered(16, 4), members=members(16, spread("kubernetes.io/hostname"))
    )
    assert set(found.used().values()) == {2}
    assert in_racks(found, 16, 4)


def test_a_smaller_last_segment_counts_for_the_spread() -> None:
    found = world(TWO_BLOCKS, levels=BLOCKS).run(layered(5, 2), members=members(5, spread()))
    assert sorted(found.used(by="block").values()) == [2, 3]
    assert in_racks(found, 5, 2)


def test_a_preferred_layer_gives_way_to_a_spread() -> None:
    group = layered(6, 3, mode=LayerMode.PREFERRED)
    found = world(THREE_BLOCKS, levels=BLOCKS).run(group, members=members(6, spread()))
    assert found.used(by="block") == {"a": 2, "b": 2, "c": 2}


def test_pods_that_run_already_count_for_the_spread() -> None:
    found = world(TWO_BLOCKS, levels=BLOCKS).run(layered(2, 2), members=members(2, spread(skew=2)))
    (first,) = found.used(by="block")
    other = replace(layered(4, 2), name="more")
    more = [
        replace(pod, labels={"app": "train"}) for pod in pods("more", 4, members(1, spread(skew=2))[0].spec)
    ]
    found.run(other, members=more)
    assert found.used(by="block") == {"a": 2, "b": 4} if first == "a" else {"a": 4, "b": 2}


def test_members_that_are_replaced_return_although_all_are_spread() -> None:
    found = world(TWO_BLOCKS, levels=BLOCKS).run(layered(8, 2), members=members(8, spread()))
    own = members(8, spread())
    before = dict(found.where)
    found.tell(*(PodDeleted(own[at].uid) for at in (0, 1, 2)))
    found.where.clear()
    found.run(members=[replace(own[at], uid=f"again-{at}") for at in (0, 1, 2)])
    assert len(found.where) == 3
    found.where = {**before, **found.where}
    assert found.used(by="block") == {"a": 4, "b": 4}
    assert in_racks(found, 8, 2)


@pytest.mark.parametrize(("nodes", "placed"), [(2, True), (1, False)])
def test_pods_of_which_a_node_takes_one_are_counted_so(nodes: int, placed: bool) -> None:
    """Racks with GPUs for many, on two nodes or on one."""
    term = PodAffinityTerm(topology_key="kubernetes.io/hostname", selector=selector_of({"app": "train"}))
    needs = replace(spec(gpu=1), pod_affinity=PodAffinity(forbidden=(term,)))
    drawing = "\n".join(
        f"a r{rack} : " + " ".join(f"n{rack}{at}=8" for at in range(nodes)) for rack in range(20)
    )
    found = world(drawing, levels=BLOCKS).run(
        layered(40, 2), members=pods("train", 40, needs, labels={"app": "train"})
    )
    assert found.used(by="rack") == (
        {f"r{rack}": 2 for rack in sorted(map(str, range(20)))} if placed else {}
    )
    assert found.reason("train") is (None if placed else Reason.GANG_DOES_NOT_FIT)
