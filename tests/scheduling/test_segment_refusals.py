"""What a gang with layers hears that waits: which segments find no domain, by counting on tiny clusters."""

import re
from random import Random

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer
from closeby.objects.reasons import Reason
from closeby.scheduling.events import PodDeleted, PodUpserted
from tests.scheduling.test_layers import BLOCKS, layered
from tests.worlds import gang, pods, spec, subgroup, world

WORLDS = 300


def message(drawing: str, *layers: Layer, members: int) -> str:
    found = world(drawing, levels=BLOCKS).run(layered(members, *layers), members=pods("train", members))
    assert found.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
    return found.outcome("train").message or ""


def test_one_segment_is_the_whole_gang() -> None:
    said = message("a r1 : n1=3\na r2 : n2=5", Layer(level="rack", size=6), members=6)
    assert said.startswith("the 6 pods are one segment, and no rack")
    assert said.endswith("holds 5 of its 6 pods")


def test_the_finest_layer_is_named_where_that_is_what_lacks_room() -> None:
    """Each block has room for its eight pods, but no rack for four of them."""
    drawing = "a r1 : n1=3\na r2 : n2=3\na r3 : n3=3\nb r4 : n4=3\nb r5 : n5=3\nb r6 : n6=3"
    said = message(drawing, Layer(level="block", size=8), Layer(level="rack", size=4), members=16)
    assert said.startswith("0 of 4 segments of 4 pods each find a rack")
    assert "roomiest rack holds 3 of its 4 pods" in said


def test_the_coarser_layer_is_named_where_the_finer_ones_have_room() -> None:
    """Four racks hold a segment of two each, but in no block are there two of them."""
    drawing = "a r1 : n1=2\nb r2 : n2=2"
    said = message(drawing, Layer(level="block", size=4), Layer(level="rack", size=2), members=4)
    assert said.startswith("the 4 pods are one segment, and no block")
    assert said.endswith("the roomiest holds 2 of its 4 pods in whole segments of 2")


def test_segments_with_a_domain_for_themselves() -> None:
    layer = Layer(level="rack", size=2, exclusive=Exclusive.KIND)
    said = message("a r1 : n1=4\na r2 : n2=4", layer, members=6)
    assert said.startswith("2 of 3 segments of 2 pods each find a rack of topology fabric for themselves")


def test_the_largest_of_unequal_segments_is_named_where_no_domain_holds_it() -> None:
    counts = Layer(level="rack", counts=(1, 5, 2))
    said = message("a r1 : n1=4\na r2 : n2=3\na r3 : n3=3", Layer(level="block", size=8), counts, members=8)
    assert said.startswith("segment 1 of 3 (train-1..5) finds no rack of topology fabric")
    assert said.endswith("the roomiest rack holds 4 of its 5 pods")


def test_the_domain_of_all_segments_is_named_where_it_is_no_larger_than_theirs() -> None:
    """One rack for the whole gang, and one block for each segment."""
    group = layered(8, Layer(level="block", size=4), required="rack")
    found = world("a r1 : n1=4\na r2 : n2=5", levels=BLOCKS).run(group, members=pods("train", 8))
    said = found.outcome("train").message or ""
    assert said.startswith("no rack of topology fabric holds all 8 pods: the roomiest, a/r2, takes 5")


def test_the_domain_of_the_others_of_a_segment_is_named_where_it_is_full() -> None:
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 4))]
    found = world("a r1 : n1=2\na r2 : n2=2\na r3 : n3=2", levels=BLOCKS)
    found.run(layered(4, Layer(level="rack", size=2)), members=members)
    rack = {"n1": "a/r1", "n2": "a/r2", "n3": "a/r3"}[found.where["train-3"]]
    thief = replace(pods(None, 1, prefix="thief")[0], node_name=found.where["train-3"])
    again = replace(members[3], name="again", uid="again")
    found.tell(PodDeleted(members[3].uid), PodUpserted(thief))
    found.run(members=[again])
    said = found.outcome("train").message or ""
    assert said.startswith(f"others of segment 1 run in {rack}, and again must be in that rack")


@pytest.mark.parametrize(
    ("exclusive", "fits"),
    [(Exclusive.NONE, {"r1": 6, "r2": 3, "r3": 0}), (Exclusive.KIND, {"r1": 3, "r2": 3})],
)
def test_each_domain_is_explained_by_the_segments_that_it_holds(
    exclusive: Exclusive, fits: dict[str, int]
) -> None:
    """Nothing is required of all segments together: so none asks for a rack that holds all pods."""
    group = layered(12, Layer(level="rack", size=3, exclusive=exclusive))
    drawn = world("a r1 : n1=8\na r2 : n2=5\na r3 : n3=2", levels=BLOCKS, explain=True)
    found = drawn.run(group, members=pods("train", 12)).outcome("train").domains
    told = {one.path[-1]: one for one in found}
    assert {rack: told[rack].fits for rack in fits} == fits
    assert all(
        told[rack].lack.startswith(f"{pods // 3} of 4 segments of 3 pods") for rack, pods in fits.items()
    )


def test_the_subgroup_that_fits_nowhere_is_named() -> None:
    """Five of the left fit in the larger rack; the right would have room."""
    groups = (subgroup("left", 6, required="rack"), subgroup("right", 2, required="rack"))
    members = [*pods("train", 6, subgroup="left"), *pods("train", 2, spec(), subgroup="right")]
    found = world("a r1 : n1=5\na r2 : n2=4", levels=BLOCKS).run(
        gang(min_member=8, subgroups=groups), members=members
    )
    said = found.outcome("train").message or ""
    assert said.startswith("no rack of topology fabric holds all 6 pods of subgroup 'left'")
    assert "a/r1, takes 5" in said


def test_the_numbers_are_those_of_the_cluster() -> None:
    """One layer, or two: the room of each domain by counting."""
    heard = 0
    for seed in range(WORLDS):
        random = Random(seed)
        racks = {f"r{number}": random.choice("ab") for number in range(random.randint(2, 5))}
        room = {rack: random.randint(1, 9) for rack in racks}
        drawing = "\n".join(f"{racks[rack]} {rack} : n-{rack}={room[rack]}" for rack in racks)
        size, times = random.randint(2, 6), random.choice([1, 2])
        count = size * times * random.randint(1, 3)
        inner = Layer(level="rack", size=size)
        layers = (Layer(level="block", size=size * times), inner) if random.random() < 0.5 else (inner,)
        found = world(drawing, levels=BLOCKS).run(layered(count, *layers), members=pods("train", count))
        if found.reason("train") is not Reason.TOPOLOGY_PLACEMENT_FAILED:
            continue
        heard += 1
        said = f"seed {seed}: {found.outcome('train').message}"
        fits = sum(each // size for each in room.values())
        blocks = dict.fromkeys(racks.values(), 0)
        for rack, each in room.items():
            blocks[racks[rack]] += each // size
        if fits < count // size:
            numbers = re.search(r"(\d+) of (\d+) segments of (\d+) pods each find a rack", said)
            assert (numbers is None) == (count == size), said
            assert numbers is None or [int(one) for one in numbers.groups()] == [fits, count // size, size]
        else:
            blocks = dict.fromkeys(racks.values(), 0)
            for rack, each in room.items():
                blocks[racks[rack]] += each // size
            whole = sum(each // times for each in blocks.values())
            numbers = re.search(r"(\d+) of (\d+) segments of (\d+) pods each find a block", said)
            number = count // (size * times)
            assert (numbers is None) == (number == 1), said
            assert numbers is None or [int(one) for one in numbers.groups()] == [whole, number, size * times]
        best = re.search(r"holds (\d+) of its (\d+) pods( in whole)?", said)
        if best is not None and best[3] is None:
            assert [int(best[1]), int(best[2])] == [max(room.values()), size], said
        elif best is not None:
            assert [int(best[1]), int(best[2])] == [size * max(blocks.values()), size * times], said
    assert heard
