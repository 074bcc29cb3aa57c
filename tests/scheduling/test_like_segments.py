"""Segments of unequal pods: of those that are alike, as a leader with its workers each time, all that fit.

A gang is drawn from a number, which each assertion names.
"""

from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Arrangement, Exclusive, Layer, LayerMode, PodGroup, Remainder
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.scheduling.events import PodUpserted
from closeby.scheduling.steps import Budget
from tests.worlds import GPU, World, draw, fabric, gang, node, pods, spec, subgroup, world

LEADER = spec(cpu=4)
WORKER = spec(gpu=2)


def in_turn(segments: int, *kinds: PodSpec) -> list[Pod]:
    """Members of so many segments, each with a pod of each kind, numbered through."""
    return [
        replace(one, index=at)
        for at in range(segments * len(kinds))
        for one in pods("train", 1, kinds[at % len(kinds)], prefix=f"p{at}")
    ]


def racks(drawing: str, cores: int = 8) -> World:
    nodes = [replace(one, allocatable={**one.allocatable, "cpu": cores}) for one in draw(drawing)]
    return world(nodes)


def test_segments_go_to_the_fewest_zones() -> None:
    """Zone a has three racks for one segment each, b and c two: three segments go to a, not to all zones."""
    found = racks("a ra0 : a0=4\na ra1 : a1=4\na ra2 : a2=4\nb rb0 : b0=4\nb rb1 : b1=4\nc rc0 : c0=4").run(
        replace(gang(min_member=9), layers=(Layer(level="zone", size=3), Layer(level="rack", size=3))),
        members=in_turn(3, LEADER, WORKER, WORKER),
    )
    assert found.used(by="zone") == {"a": 9}


def test_a_rack_that_holds_fewer_segments_than_its_sums_say_is_counted_with_these() -> None:
    """Rack r0 has GPUs for two segments in all, but its nodes have 3 each: a worker of 2 leaves one over."""
    found = racks("z r0 : a0=3 a1=3 a2=2\nz r1 : b0=4").run(
        replace(gang(min_member=6), layers=(Layer(level="rack", size=3),)),
        members=in_turn(2, LEADER, WORKER, WORKER),
    )
    assert found.used(by="rack") == {"r0": 3, "r1": 3}


def test_a_preferred_layer_gives_way_where_no_node_holds_its_segments() -> None:
    layers = (Layer(level="rack", size=3), Layer(level=HOSTNAME, size=3, mode=LayerMode.PREFERRED))
    found = racks("z r0 : a0=2 a1=2\nz r1 : b0=2 b1=2").run(
        replace(gang(min_member=6), layers=layers), members=in_turn(2, LEADER, WORKER, WORKER)
    )
    assert found.used(by="rack") == {"r0": 3, "r1": 3}


@pytest.mark.parametrize(("zones", "reason"), [(2, None), (1, Reason.TOPOLOGY_PLACEMENT_FAILED)])
def test_segments_with_a_domain_each(zones: int, reason: Reason | None) -> None:
    drawing = "\n".join(
        f"z{zone} r{zone}{rack} : n{zone}{rack}=8" for zone in range(zones) for rack in (0, 1)
    )
    layers = (Layer(level="zone", size=4, exclusive=Exclusive.KIND), Layer(level="rack", size=2))
    found = racks(drawing).run(replace(gang(min_member=8), layers=layers), members=in_turn(4, LEADER, WORKER))
    assert found.reason("train") is reason
    assert sorted(found.used(by="zone").values()) == ([] if reason else [4, 4])


def test_one_more_pod_in_the_first_segment_is_counted_too() -> None:
    """A launcher instead of a worker in the first of four segments of eight."""
    members = in_turn(4, *[spec(gpu=1)] * 8)
    members[0] = replace(members[0], spec=LEADER)
    drawing = "\n".join(f"z r{rack} : n{rack}a=4 n{rack}b=4" for rack in range(4))
    found = racks(drawing).run(
        replace(gang(min_member=32), layers=(Layer(level="rack", size=8),)), members=members
    )
    assert list(found.used(by="rack").values()) == [8] * 4


def test_a_smaller_last_segment_stays_together() -> None:
    layers = (Layer(level="rack", size=3, remainder=Remainder.ALLOW),)
    drawing = "\n".join(f"z r{rack} : n{rack}=4" for rack in range(4))
    found = racks(drawing).run(
        replace(gang(min_member=11), layers=layers), members=in_turn(4, LEADER, WORKER, WORKER)[:11]
    )
    assert sorted(found.used(by="rack").values()) == [2, 3, 3, 3]


def test_a_preferred_layer_is_followed_where_it_can_be() -> None:
    layers = (Layer(level="rack", size=3, mode=LayerMode.PREFERRED),)
    for drawing, used in (
        ("z r0 : a0=2 a1=2\nz r1 : b0=2 b1=2", [3, 3]),
        ("z r0 : a0=2\nz r1 : b0=2\nz r2 : c0=2\nz r3 : d0=2", [1, 1, 2, 2]),
    ):
        found = racks(drawing).run(
            replace(gang(min_member=6), layers=layers), members=in_turn(2, LEADER, WORKER, WORKER)
        )
        assert sorted(found.used(by="rack").values()) == used


def test_segments_that_follow_take_no_domain_of_others() -> None:
    """Two of four segments run on one node; those that follow would be tightest beside another pod."""
    members = in_turn(4, spec(gpu=1), spec(gpu=0))
    layer = Layer(level=HOSTNAME, size=2, exclusive=Exclusive.ALL)
    running = [replace(one, node_name="n1", phase="Running") for one in members[:4]]
    nodes = [node(name, {"rack": "r"}, {GPU: gpus}) for name, gpus in (("n0", 2), ("n1", 4), ("n2", 4))]
    found = world(nodes, fabric("rack", HOSTNAME)).tell(
        *map(PodUpserted, [*running, *pods("other", 1, spec(gpu=0), on="n0")])
    )
    found.run(replace(gang(min_member=8), layers=(layer,)), members=members[4:])
    assert len(found.where) == 4 and "n0" not in found.where.values()


@pytest.mark.parametrize(
    ("drawing", "done"),
    [
        ("a ra0 : a0=2\na ra1 : a1=2\nb rb0 : b0=2\nb rb1 : b1=2\nc rc0 : c0=2", (3, 4, 5)),
        ("a ra : a0=2\nb rb : b0=2\nc rc : c0=2", (3, 4, 5, 9, 10, 11)),
    ],
)
def test_of_segments_that_lack_members_whose_work_is_done_each_is_in_one_zone(
    drawing: str, done: tuple[int, ...]
) -> None:
    """The first zone lacks a rack's worth of members; counted through, its segment would take another's."""
    members = in_turn(4, LEADER, spec(gpu=1), spec(gpu=1))
    found = racks(drawing, cores=4).tell(
        *(PodUpserted(replace(members[at], phase="Succeeded")) for at in done)
    )
    found.run(
        replace(gang(min_member=12), layers=(Layer(level="zone", size=6), Layer(level="rack", size=3))),
        members=[one for at, one in enumerate(members) if at not in done],
    )
    assert len(found.where) == 12 - len(done)
    for size, letters in ((6, 1), (3, 2)):
        for first in range(0, 12, size):
            names = {found.where.get(f"p{at}-0", "")[:letters] for at in range(first, first + size)} - {""}
            assert len(names) <= 1


def test_segments_leave_another_subgroup_its_room() -> None:
    """The leaders may be on any node, but only one node has the cores for both pods of the other subgroup."""
    a, b = (
        [replace(one, index=at) for at, needs in enumerate(kinds) for one in of_one(name, at, needs)]
        for name, kinds in (
            ("a", [spec(gpu=1, cpu=2), spec(gpu=2, cpu=1)] * 2),
            ("b", [spec(gpu=1, cpu=1)] * 2),
        )
    )
    nodes = [
        node(name, {"zone": "z", "rack": rack}, {GPU: gpus, "cpu": cores})
        for name, rack, gpus, cores in (
            ("n0", "r0", 2, 1),
            ("n1", "r1", 3, 4),
            ("n2", "r1", 3, 2),
            ("n3", "r2", 3, 1),
        )
    ]
    subgroups = (
        replace(subgroup("a", 4), layers=(Layer(level="zone", size=2),)),
        replace(subgroup("b", 2), layers=(Layer(level=HOSTNAME, size=1),)),
    )
    found = world(nodes).run(gang(min_member=6, subgroups=subgroups), members=[*a, *b])
    assert len(found.where) == 6


def of_one(name: str, at: int, needs: PodSpec) -> list[Pod]:
    return pods("train", 1, needs, subgroup=name, prefix=f"{name}{at}")


def test_equal_segments_leave_another_subgroup_its_rack() -> None:
    """Two segments of one pod would fill the only rack that holds the two pods of the other subgroup."""
    subgroups = (
        replace(subgroup("a", 2), layers=(Layer(level="rack", size=1),)),
        replace(subgroup("b", 2), layers=(Layer(level="rack", size=2),)),
    )
    found = world("z r0 : n0=2\ny r1 : n1=1\ny r2 : n2=0\ny r2 : n3=1").run(
        gang(min_member=4, subgroups=subgroups),
        members=[*pods("train", 2, subgroup="a"), *pods("train", 2, subgroup="b")],
    )
    assert found.used("b", by="rack") == {"r0": 2}
    assert len(found.where) == 4


def test_each_segment_is_tried_once_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 segments in 100 racks, besides one try for the whole gang and one to share the racks out."""
    taken, take = 0, Budget.take_candidate

    def counted(budget: Budget) -> bool:
        nonlocal taken
        taken += 1
        return take(budget)

    monkeypatch.setattr(Budget, "take_candidate", counted)
    drawing = "\n".join(f"z r{rack} : a{rack}=2 b{rack}=2" for rack in range(100))
    found = racks(drawing).run(
        replace(gang(min_member=192), layers=(Layer(level="rack", size=3),)),
        members=in_turn(64, LEADER, WORKER, WORKER),
    )
    assert len(found.where) == 192
    assert taken <= 64 + 2


@pytest.mark.parametrize("others", [0, 400])
def test_mixtures_are_judged_in_any_number_of_equal_racks(others: int) -> None:
    """Two pods of 5 GPUs and three of 3 need four nodes of 7, though three have as many GPUs.

    The other racks have as many GPUs on other nodes, so that they are of another kind.
    """
    drawing = [f"z r{rack} : a{rack}=7 b{rack}=7 c{rack}=7" for rack in range(300)]
    drawing += [f"z s{rack} : d{rack}=7 e{rack}=4 f{rack}=5 g{rack}=5" for rack in range(others)]
    kinds = [spec(gpu=5), spec(gpu=3), spec(gpu=3), spec(gpu=5), spec(gpu=3)]
    found = world("\n".join(drawing)).run(
        replace(gang(min_member=350), layers=(Layer(level="rack", size=5),)), members=in_turn(70, *kinds)
    )
    assert found.reason("train") is (None if others else Reason.TOPOLOGY_PLACEMENT_FAILED)
    assert len(found.used(by="rack")) == (70 if others else 0)


class Drawn(Struct, frozen=True):
    """Racks of two nodes with GPUs and cores, in blocks, and segments of a leader and its workers."""

    #: Of each rack its block, and what its nodes have.
    racks: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    leader: tuple[int, int]
    worker: tuple[int, int]
    workers: int
    #: Segments of a rack in one of a block; 0: there is one layer.
    outer: int
    number: int

    def gang(self) -> PodGroup:
        size = 1 + self.workers
        outer = (Layer(level="block", size=size * self.outer),) if self.outer else ()
        return replace(gang(min_member=self.number * size), layers=(*outer, Layer(level="rack", size=size)))

    def run(self) -> World:
        nodes = [
            node(f"n{rack}-{at}", {"block": f"b{block}", "rack": f"r{rack}"}, {GPU: gpus, "cpu": cores})
            for rack, (block, own) in enumerate(self.racks)
            for at, (gpus, cores) in enumerate(own)
        ]
        kinds = [self.leader, *[self.worker] * self.workers]
        members = in_turn(self.number, *(spec(gpu=gpus, cpu=cores) for gpus, cores in kinds))
        return world(nodes, fabric("block", "rack", HOSTNAME)).run(self.gang(), members=members)

    def in_rack(self, nodes: tuple[tuple[int, int], ...]) -> int:
        """Segments that the two nodes of a rack hold, by trying every way to share the pods out."""

        def fit(leaders: int, workers: int, of: tuple[int, int]) -> bool:
            amounts = zip(self.leader, self.worker, of, strict=True)
            return all(leaders * one + workers * other <= has for one, other, has in amounts)

        def holds(number: int) -> bool:
            return any(
                fit(leaders, workers, nodes[0])
                and fit(number - leaders, number * self.workers - workers, nodes[1])
                for leaders in range(number + 1)
                for workers in range(number * self.workers + 1)
            )

        number = 0
        while number < self.number and holds(number + 1):
            number += 1
        return number

    def fewest_blocks(self) -> int | None:
        """Blocks that are needed at the least; None where all together hold too few segments."""
        held: dict[int, int] = {}
        for block, nodes in self.racks:
            held[block] = held.get(block, 0) + self.in_rack(nodes)
        each = max(self.outer, 1)
        left, used = self.number // each, 0
        for segments in sorted((one // each for one in held.values()), reverse=True):
            if left > 0:
                left, used = left - segments, used + 1
        return None if left > 0 else used


def drawn(seed: int) -> Drawn:
    random = Random(seed)
    found = [
        (block, tuple((random.randint(0, 8), random.randint(1, 12)) for _ in range(2)))
        for block in range(random.randint(1, 4))
        for _ in range(random.randint(1, 5))
    ]
    outer = random.choice([0, 2, 3])
    return Drawn(
        racks=tuple(found),
        leader=(random.randint(0, 2), random.randint(1, 4)),
        worker=(random.randint(1, 4), random.randint(0, 3)),
        workers=random.randint(1, 3),
        outer=outer,
        number=max(outer, 1) * random.randint(2, 5),
    )


@pytest.mark.parametrize("chunk", range(4))
def test_a_gang_is_placed_exactly_where_it_fits_in_the_fewest_blocks(chunk: int) -> None:
    for seed in range(chunk * 75, (chunk + 1) * 75):
        one = drawn(seed)
        found, fewest = one.run(), one.fewest_blocks()
        assert bool(found.where) == (fewest is not None), f"seed {seed}"
        if fewest is None:
            refused = (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)
            assert found.reason("train") in refused, f"seed {seed}"
        elif one.outer:
            assert len(found.used(by="block")) == fewest, f"seed {seed}"


def unlike(segments: int, size: int, seed: int) -> list[Pod]:
    """Segments of pods of six kinds, drawn one by one."""
    random = Random(seed)
    kinds = [spec(gpu=random.randint(1, 4), cpu=random.randint(4, 60)) for _ in range(6)]
    return [
        replace(one, index=at)
        for at in range(segments * size)
        for one in pods("train", 1, random.choice(kinds), prefix=f"p{at}")
    ]


def test_unlike_segments_that_fit_are_placed() -> None:
    random = Random(1)
    nodes = [
        node(f"n{rack}-{at}", {"block": f"b{rack // 10}", "rack": f"r{rack}"}, {GPU: gpus, "cpu": cores})
        for rack in range(100)
        for at in range(16)
        for gpus, cores in [random.choice([(4, 144), (4, 144), (4, 144), (2, 100), (1, 60)])]
    ]
    group = replace(gang(min_member=640), layers=(Layer(level="rack", size=16),))
    found = world(nodes, fabric("block", "rack", HOSTNAME)).run(group, members=unlike(40, 16, 9))
    assert list(found.used(by="rack").values()) == [16] * 40


@pytest.mark.parametrize(("arrangement", "racks"), [(Arrangement.PACK, 1), (Arrangement.SPREAD, 4)])
def test_unlike_segments_are_packed_or_spread(arrangement: Arrangement, racks: int) -> None:
    layer = Layer(level="rack", size=2, arrangement=arrangement)
    nodes = [node(f"n{rack}", {"block": "b", "rack": f"r{rack}"}, {GPU: 32, "cpu": 480}) for rack in range(6)]
    found = world(nodes, fabric("block", "rack", HOSTNAME)).run(
        replace(gang(min_member=8), layers=(layer,)), members=unlike(4, 2, 3)
    )
    assert len(found.used(by="rack")) == racks
