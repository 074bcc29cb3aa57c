"""What a gang with layers hears that waits: which segments find no domain, by counting on tiny clusters."""

from random import Random

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer
from closeby.objects.reasons import Reason
from closeby.scheduling.events import PodDeleted, PodUpserted
from closeby.scheduling.reasons.facts import Shortfall, ShortOf
from closeby.scheduling.reasons.wording import message
from tests.golden.fixture import Golden
from tests.scheduling.test_layers import BLOCKS, layered
from tests.worlds import gang, pods, spec, subgroup, world

WORLDS = 300


def short(drawing: str, *layers: Layer, members: int, required: str | None = None) -> Shortfall:
    group = layered(members, *layers, required=required)
    found = world(drawing, levels=BLOCKS).run(group, members=pods("train", members))
    assert found.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
    return found.shortfall("train")


def test_one_segment_is_the_whole_gang(golden: Golden) -> None:
    found = short("a r1 : n1=3\na r2 : n2=5", Layer(level="rack", size=6), members=6)
    assert (found.what, found.level, found.fits, found.wanted) == (ShortOf.SEGMENT, "rack", 0, 1)
    assert (found.holds, len(found.pods)) == (5, 6)
    golden("refusals", message(found))


def test_the_finest_layer_is_named_where_that_is_what_lacks_room(golden: Golden) -> None:
    """Each block has room for its eight pods, but no rack for four of them."""
    drawing = "a r1 : n1=3\na r2 : n2=3\na r3 : n3=3\nb r4 : n4=3\nb r5 : n5=3\nb r6 : n6=3"
    found = short(drawing, Layer(level="block", size=8), Layer(level="rack", size=4), members=16)
    assert (found.what, found.level, found.fits, found.wanted) == (ShortOf.SEGMENT, "rack", 0, 4)
    assert (found.segment, found.holds, found.size) == (0, 3, 4)
    golden("refusals", message(found))


def test_the_coarser_layer_is_named_where_the_finer_ones_have_room(golden: Golden) -> None:
    """Four racks hold a segment of two each, but in no block are there two of them."""
    drawing = "a r1 : n1=2\nb r2 : n2=2"
    found = short(drawing, Layer(level="block", size=4), Layer(level="rack", size=2), members=4)
    assert (found.what, found.level, found.fits, found.wanted) == (ShortOf.SEGMENT, "block", 0, 1)
    assert (found.holds, found.inner) == (2, 2)
    golden("refusals", message(found))


def test_segments_with_a_domain_for_themselves() -> None:
    layer = Layer(level="rack", size=2, exclusive=Exclusive.KIND)
    found = short("a r1 : n1=4\na r2 : n2=4", layer, members=6)
    assert (found.what, found.fits, found.wanted, found.alone) == (ShortOf.SEGMENT, 2, 3, True)


def test_the_largest_of_unequal_segments_is_named_where_no_domain_holds_it(golden: Golden) -> None:
    counts = Layer(level="rack", counts=(1, 5, 2))
    found = short("a r1 : n1=4\na r2 : n2=3\na r3 : n3=3", Layer(level="block", size=8), counts, members=8)
    assert (found.what, found.level, found.segment, found.wanted) == (ShortOf.LARGEST, "rack", 1, 3)
    assert (found.pods, found.holds) == (tuple(f"train-{number}" for number in range(1, 6)), 4)
    golden("refusals", message(found))


def test_the_domain_of_all_segments_is_named_where_it_is_no_larger_than_theirs() -> None:
    """One rack for the whole gang, and one block for each segment."""
    found = short("a r1 : n1=4\na r2 : n2=5", Layer(level="block", size=4), members=8, required="rack")
    assert (found.what, found.level, found.wanted) == (ShortOf.DOMAIN, "rack", 8)
    assert (found.domain, found.holds) == (("a", "r2"), 5)


def test_the_domain_of_the_others_of_a_segment_is_named_where_it_is_full(golden: Golden) -> None:
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 4))]
    found = world("a r1 : n1=2\na r2 : n2=2\na r3 : n3=2", levels=BLOCKS)
    found.run(layered(4, Layer(level="rack", size=2)), members=members)
    rack = {"n1": "r1", "n2": "r2", "n3": "r3"}[found.where["train-3"]]
    thief = replace(pods(None, 1, prefix="thief")[0], node_name=found.where["train-3"])
    again = replace(members[3], name="again", uid="again")
    found.tell(PodDeleted(members[3].uid), PodUpserted(thief))
    found.run(members=[again])
    said = found.shortfall("train")
    assert (said.what, said.level, said.segment, said.domain) == (ShortOf.RUNNING, "rack", 1, ("a", rack))
    assert (said.pods, said.fits) == (("again",), 0)
    golden("refusals", message(said))


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
    said = found.shortfall("train")
    assert (said.what, said.part, said.level, said.wanted) == (ShortOf.DOMAIN, "left", "rack", 6)
    assert (said.domain, said.holds) == (("a", "r1"), 5)


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
        said = found.shortfall("train")
        fits = sum(each // size for each in room.values())
        blocks = dict.fromkeys(racks.values(), 0)
        for rack, each in room.items():
            blocks[racks[rack]] += each // size
        whole = sum(each // times for each in blocks.values())
        finer = fits < count // size
        expected = ("rack", fits, count // size) if finer else ("block", whole, count // (size * times))
        assert said.what is ShortOf.SEGMENT, (seed, said)
        assert (said.level, said.fits, said.wanted) == expected, (seed, said)
        assert said.size == (size if finer else size * times), (seed, said)
        if not said.segments:
            best = max(room.values()) if finer else size * max(blocks.values())
            assert said.holds == best, (seed, said)
    assert heard
