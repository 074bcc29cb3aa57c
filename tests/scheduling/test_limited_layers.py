"""Layers that limit how many domains a gang uses, and layers that are required for a time only."""

from itertools import combinations
from random import Random

from msgspec.structs import replace

from closeby.objects.groups import Layer, LayerMode, PodGroup
from closeby.objects.reasons import Reason
from closeby.scheduling.events import GroupChanged, PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import bindings_of
from tests.worlds import World, gang, pods, spec, subgroup, world

BLOCKS = ("block", "rack")
FOUR_RACKS = """
a r1 : a1=2 a2=2
a r2 : a3=2
b r3 : b1=2 b2=2
b r4 : b3=2
"""


def limited(minimum: int, most: int, size: int = 1, relax_after: float | None = None) -> PodGroup:
    layer = Layer(level="rack", size=size, max_domains=most, relax_after=relax_after)
    return replace(gang(min_member=minimum), layers=(layer,))


def racks(found: World) -> dict[str, int]:
    return found.used("train", by="rack")


def test_the_racks_that_hold_a_gang_are_no_more_than_it_allows() -> None:
    found = world(FOUR_RACKS, levels=BLOCKS).run(limited(8, 2), members=pods("train", 8))
    assert racks(found) == {"r1": 4, "r3": 4}
    refused = world(FOUR_RACKS, levels=BLOCKS).run(limited(9, 2), members=pods("train", 9))
    assert (refused.where, refused.reason("train")) == ({}, Reason.TOPOLOGY_PLACEMENT_FAILED)
    assert "at most 2 racks of topology fabric may be used, which hold 8 pods of 9" in (
        refused.outcome("train").message or ""
    )


def test_members_that_come_later_stay_in_the_racks_that_are_in_use() -> None:
    found = world(FOUR_RACKS, levels=BLOCKS).run(limited(5, 2), members=pods("train", 5))
    assert len(racks(found)) == 2
    more = pods("train", 9)[5:]
    found.run(members=more)
    assert len(racks(found)) == 2
    assert sum(racks(found).values()) == (8 if set(racks(found)) == {"r1", "r3"} else 6)
    assert set(found.left("train").values()) == {Reason.TOPOLOGY_PLACEMENT_FAILED}


def test_random_limits_hold_and_a_gang_that_fits_is_placed() -> None:
    for seed in range(300):
        random = Random(seed)
        lines, rooms = [], {}
        for rack in range(random.randint(2, 6)):
            free = [random.randint(0, 4) for _ in range(random.randint(1, 2))]
            rooms[f"r{rack}"] = sum(free)
            nodes = " ".join(f"n{rack}{at}={room}" for at, room in enumerate(free))
            lines.append(f"{random.choice('ab')} r{rack} : {nodes}")
        size, most = random.choice([1, 1, 2, 3]), random.randint(1, 3)
        count = size * random.randint(1, 5)
        held = max(
            sum(rooms[rack] // size for rack in some) for some in combinations(rooms, min(most, len(rooms)))
        )
        found = world("\n".join(lines), levels=BLOCKS).run(
            limited(count, most, size), members=pods("train", count)
        )
        assert bool(found.where) == (held * size >= count), f"seed {seed}: {found.outcome('train').message}"
        assert len(racks(found)) <= most, f"seed {seed}"
        if not found.where or count < 2:
            continue
        # What a replaced member leaves is free, and so the gang stays in as few.
        lost = random.sample(range(count), random.randint(1, count - 1))
        members = pods("train", count)
        kept = {name: node for name, node in found.where.items() if int(name.split("-")[1]) not in lost}
        found.tell(*(PodDeleted(members[at].uid) for at in lost))
        found.where.clear()
        found.run(members=[replace(members[at], uid=f"again-{at}") for at in lost])
        found.where.update(kept)
        assert len(found.where) == count, f"seed {seed}: {found.outcome('train').message}"
        assert len(racks(found)) <= most, f"seed {seed}"


def test_a_replaced_member_goes_back_to_the_racks_that_are_in_use() -> None:
    """Of two that are replaced the other's takes that room first, and could be elsewhere in the block."""
    layers = {"x": Layer(level="block", size=3), "y": Layer(level="rack", size=1, max_domains=1)}
    below = [replace(subgroup(name, 3 if name == "x" else 4), layers=(one,)) for name, one in layers.items()]
    members = [pod for one in below for pod in pods("train", one.min_member, subgroup=one.name)]
    group = gang(min_member=7, subgroups=below, required="block")
    found = world("a r1 : a1=4\na r2 : a2=4", levels=BLOCKS).run(group, members=members)
    before = found.used("y", by="rack")
    assert (len(found.where), len(before)) == (7, 1)
    lost = [members[0], members[-1]]
    found.tell(*(PodDeleted(pod.uid) for pod in lost))
    for pod in lost:
        del found.where[pod.name]
    found.run(members=[replace(pod, uid=f"{pod.uid}-again") for pod in lost])
    assert found.used("y", by="rack") == before


def test_a_subgroup_leaves_the_only_rack_that_is_large_enough_to_one_that_needs_it() -> None:
    """The larger subgroup is placed first, and its tightest node is in that rack."""
    one = replace(subgroup("x", 2), layers=(Layer(level="rack", size=1, max_domains=1),))
    group = gang(min_member=6, subgroups=[one, subgroup("y", 4)])
    members = [*pods("train", 2, spec(gpu=2), subgroup="x"), *pods("train", 4, subgroup="y")]
    found = world("a r1 : a1=4\na r2 : a2=3\nb r3 : b1=3", levels=BLOCKS).run(group, members=members)
    assert (len(found.where), found.used("x", by="rack")) == (6, {"r1": 2})


def ticked(found: World, now: float) -> dict[str, int]:
    for binding in bindings_of(found.engine.handle(Tick(now, wall=1000.0 + now))):
        found.where[binding.pod.name] = binding.node
    found.engine.validate_state()
    return racks(found)


def next_fall(found: World) -> float | None:
    return found.engine.next_relaxation


def test_a_limit_falls_once_the_gang_has_waited_long_enough() -> None:
    found = world(FOUR_RACKS, levels=BLOCKS)
    group = limited(10, 2, relax_after=600.0)
    members = [replace(pod, created=1000.0) for pod in pods("train", 10)]
    found.tell(GroupChanged(group), *(PodUpserted(pod) for pod in members))
    assert ticked(found, 60.0) == {}
    coming = found.outcome("train").relaxation
    assert coming is not None
    assert (coming.left, coming.what, coming.at) == (540.0, "the limit of 2 racks", "1970-01-01T00:26:40Z")
    assert next_fall(found) == 1600.0
    assert ticked(found, 599.0) == {}
    assert sorted(ticked(found, 600.0).values()) == [2, 4, 4]
    assert next_fall(found) is None
    # The object comes again as it was written, and a member is replaced: the limit stays fallen.
    found.tell(GroupChanged(replace(group, annotations={"a": "b"})), PodDeleted(members[0].uid))
    kept = {name: node for name, node in found.where.items() if name != "train-0"}
    found.where.clear()
    found.tell(PodUpserted(replace(members[0], uid="again", created=1650.0)))
    ticked(found, 660.0)
    assert len({**kept, **found.where}) == 10


def test_a_required_layer_becomes_a_preferred_one() -> None:
    layer = Layer(level="rack", size=3, relax_after=30.0)
    found = world(FOUR_RACKS, levels=BLOCKS)
    group = replace(gang(min_member=9), layers=(layer,))
    found.tell(GroupChanged(group), *(PodUpserted(pod) for pod in pods("train", 9)))
    assert ticked(found, 5.0) == {}
    assert found.reason("train") is Reason.TOPOLOGY_PLACEMENT_FAILED
    # Nothing says when it was created: it has waited since the first tick.
    assert next_fall(found) == 1035.0
    assert sum(ticked(found, 35.0).values()) == 9
    assert found.engine.state.groups["default/train"].layers[0].mode is LayerMode.PREFERRED


def test_the_time_restarts_with_a_gang_whose_pods_are_all_new() -> None:
    found = world(FOUR_RACKS, levels=BLOCKS)
    members = [replace(pod, created=1000.0) for pod in pods("train", 10)]
    found.tell(GroupChanged(limited(10, 2, relax_after=60.0)), *(PodUpserted(pod) for pod in members))
    assert len(ticked(found, 100.0)) == 3
    found.tell(*(PodDeleted(pod.uid) for pod in members))
    found.where.clear()
    again = [replace(pod, uid=f"{pod.uid}-again", created=1110.0) for pod in members]
    found.tell(*(PodUpserted(pod) for pod in again))
    assert ticked(found, 120.0) == {}
    assert next_fall(found) == 1170.0


def test_a_deadline_that_has_come_is_over_however_floats_round() -> None:
    created = 551.303
    assert created + 600.0 - created < 600.0
    found = world(FOUR_RACKS, levels=BLOCKS)
    members = [replace(pod, created=created) for pod in pods("train", 10)]
    found.tell(GroupChanged(limited(10, 2, relax_after=600.0)), *(PodUpserted(pod) for pod in members))
    found.tell(Tick(created))
    deadline = found.engine.next_relaxation
    assert deadline is not None
    placed = bindings_of(found.engine.handle(Tick(deadline)))
    assert (found.engine.next_relaxation, len(placed)) == (None, 10)


def test_a_gang_that_needs_no_such_layer_any_more_is_not_waited_for() -> None:
    found = world(FOUR_RACKS, levels=BLOCKS)
    found.tell(
        GroupChanged(limited(10, 2, relax_after=60.0)), *(PodUpserted(pod) for pod in pods("train", 10))
    )
    assert ticked(found, 1.0) == {}
    found.tell(GroupChanged(limited(10, 3)))
    assert (next_fall(found), len(ticked(found, 2.0))) == (None, 3)
