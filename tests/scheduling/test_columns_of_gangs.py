"""What is known of a gang's members as columns says the same as what is known pod by pod."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.scheduling.gangs.places import SegmentOrder, ranks
from closeby.scheduling.intake.members import Members
from closeby.topology.tree import Tree
from tests.worlds import THREE_ZONES, pods, world

TREE = world(THREE_ZONES).engine.topologies.tree("fabric")


def one_by_one(tree: Tree, members: list[tuple[Pod, int]], keys: dict[str, int]) -> list[int]:
    """Ranks as a plain sort gives them."""
    places = [(keys.get(pod.uid, pod.part), pod.part, int(tree.position_of[at])) for pod, at in members]
    order = sorted(range(len(members)), key=places.__getitem__)
    return [order.index(number) for number in range(len(members))]


@given(
    random=st.randoms(use_true_random=False),
    parts=st.integers(1, 3),
    segments=st.integers(0, 4),
    in_order=st.booleans(),
)
def test_ranks_are_those_of_a_plain_sort(random: Random, parts: int, segments: int, in_order: bool) -> None:
    assert TREE is not None
    positions = [random.randrange(TREE.size) for _ in range(20)]
    slots = TREE.slot_at[np.asarray(sorted(positions) if in_order else positions)]
    named = [replace(pod, part=random.randrange(parts)) for pod in pods("train", 20)]
    placed = list(zip(named, slots.tolist(), strict=True))
    keys = np.asarray([random.randrange(max(segments, 1)) for _ in named])
    of_pod = {pod.uid: key for pod, key in zip(named, keys.tolist(), strict=True)} if segments else {}
    orders = [SegmentOrder(tuple(named), keys)] if segments else []
    assert ranks(TREE, (), 0, placed, slots, orders) == one_by_one(TREE, placed, of_pod)


def test_members_in_another_order_than_their_segments_have_the_same_ranks() -> None:
    assert TREE is not None
    members = pods("train", 6)
    slots, keys = TREE.slot_at[np.asarray([5, 4, 3, 2, 1, 0])], np.asarray([2, 1, 0, 2, 1, 0])
    placed = list(zip(members, slots.tolist(), strict=True))
    own = SegmentOrder(tuple(members), keys)
    turned = SegmentOrder(tuple(reversed(members)), keys[::-1])
    assert ranks(TREE, (), 0, placed, slots, [own]) == ranks(TREE, (), 0, placed, slots, [turned])


def test_members_are_the_same_tuple_until_one_comes_or_goes() -> None:
    members, (one, two, three) = Members(), pods("train", 3)
    members.add(two, placed=False, rank=None)
    members.add(one, placed=False, rank=None)
    before = members.in_order()
    assert before == (one, two) and members.in_order() is before
    members.add(three, placed=False, rank=None)
    assert members.in_order() == (one, two, three)
    members.remove(two.uid)
    assert members.in_order() == (one, three)


def test_members_settle_in_the_order_of_their_decision() -> None:
    for order in ((0, 1, 2), (2, 0, 1)):
        members, waiting = Members(), pods("train", 3)
        for pod in waiting:
            members.add(pod, placed=False, rank=None)
        decided = [waiting[at] for at in order]
        members.settle(decided, range(3))
        assert list(members.placed.values()) == decided and not members.waiting and members.in_order() == ()
        assert members.ranks == {pod.uid: rank for rank, pod in enumerate(decided)}


def test_ranks_that_were_written_before_are_kept_and_others_get_what_is_left() -> None:
    """The first in topology order has no rank yet; what another member has taken is nobody else's."""
    assert TREE is not None
    placed = [(pod, slot) for slot, pod in enumerate(pods("train", 4))]
    slots = np.arange(4)
    kept = {placed[1][0].uid: 0, placed[2][0].uid: 5, placed[3][0].uid: 1}
    assert ranks(TREE, {1}, 0, placed, slots, kept=kept) == [2, 0, 5, 3]
