"""Unequal pods in segments: what a decision may try is bounded, and what is left over says why.

A gang is drawn from a number, which each assertion names.
"""

from collections.abc import Mapping
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Layer, LayerMode, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.steps import CANDIDATES, SEGMENT_CANDIDATES, Budget
from tests.worlds import GPU, World, draw, fabric, gang, node, pods, spec, world

NAMES = ("block", "rack", HOSTNAME)


class Drawn(Struct, frozen=True):
    """A cluster, and a gang of more pods than it needs at the least."""

    world: World
    gang: PodGroup
    members: list[Pod]
    segments: int

    def run(self) -> World:
        return self.world.run(self.gang, members=self.members)


def drawn(seed: int, mode: LayerMode = LayerMode.REQUIRED, zone: Mapping[str, str] = {}) -> Drawn:
    """``zone``: labels of all nodes, above the blocks."""
    random = Random(seed)
    most = random.choice([2, 4, 8])
    nodes: list[Node] = []
    for block in range(random.randint(1, 4)):
        for rack in range(random.randint(1, 6)):
            for _ in range(random.randint(1, 6)):
                labels = {**zone, "block": f"b{block}", "rack": f"b{block}r{rack}"}
                has = {GPU: random.randint(0, most), "cpu": random.randint(1, 16)}
                nodes.append(node(f"n{len(nodes)}", labels, has))
    levels = sorted(random.sample(range(3), random.choice([1, 2, 2])))
    sizes = [random.choice([2, 3, 4, 5])]
    for _ in levels:
        sizes.append(sizes[-1] * random.choice([2, 2, 3]))
    sizes = sizes[-2::-1]
    count = random.randint(2, max(2, 64 // sizes[0])) * sizes[0]
    minimum = sizes[0] * random.randint(1, count // sizes[0])
    needs = [(random.randint(0, 3), random.randint(1, 5)) for _ in range(random.choice([2, 2, 3]))]
    leads = random.random() < 0.5
    members = []
    for at in range(count):
        is_leader = at % sizes[-1] == 0
        gpus, cores = (needs[0] if is_leader else needs[1]) if leads else random.choice(needs)
        (pod,) = pods("train", 1, spec(gpu=gpus, cpu=cores))
        members.append(replace(pod, name=f"train-{at}", uid=f"default/train-{at}", index=at))
    layers = tuple(
        Layer(level=NAMES[level], size=size, mode=mode) for level, size in zip(levels, sizes, strict=True)
    )
    made = gang(min_member=minimum, required=random.choice([None, None, "block"]))
    segments = sum(count // size for size in sizes)
    return Drawn(world(nodes, fabric(*zone, *NAMES)), replace(made, layers=layers), members, segments)


@pytest.mark.parametrize("seed", [0, 12, 24, 75, 82, 106, 157, 159, 171, 187])
def test_a_decision_tries_few_domains_besides_two_for_each_segment(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, taken, take = drawn(seed), 0, Budget.take_candidate

    def counted(budget: Budget) -> bool:
        nonlocal taken
        taken += 1
        return take(budget)

    monkeypatch.setattr(Budget, "take_candidate", counted)
    one.run()
    assert taken <= 2 * SEGMENT_CANDIDATES + 6 * one.segments < CANDIDATES // 2, f"seed {seed}"


@pytest.mark.parametrize(("seed", "placed"), [(24, 28), (82, 60)])
def test_segments_beyond_the_minimum_are_placed_after_a_search_for_all_of_them_ended(
    seed: int, placed: int
) -> None:
    assert len(drawn(seed).run().where) >= placed, f"seed {seed}"


@pytest.mark.parametrize(
    ("seed", "reasons"),
    [
        (159, {Reason.SEARCH_BUDGET_EXHAUSTED, Reason.TOPOLOGY_PLACEMENT_FAILED}),
        (253, {Reason.SEARCH_BUDGET_EXHAUSTED, Reason.TOPOLOGY_PLACEMENT_FAILED}),
        (20, {Reason.TOPOLOGY_PLACEMENT_FAILED}),
        (24, {Reason.TOPOLOGY_PLACEMENT_FAILED}),
    ],
)
def test_a_segment_that_was_not_searched_to_the_end_says_so(seed: int, reasons: set[Reason]) -> None:
    found = drawn(seed).run()
    assert found.where, f"seed {seed}"
    assert {one.reason for one in found.outcome("train").leftover} == reasons, f"seed {seed}"


def test_a_gang_is_searched_without_its_preferred_segments_as_one_that_has_none() -> None:
    """Trying segments of four on one node each used up all pods that the search might take back."""
    assert len(drawn(25071, LayerMode.PREFERRED).run().where) == 40


@pytest.mark.parametrize("chunk", range(4))
def test_preferred_layers_never_keep_unequal_pods_from_places_that_they_have_without(chunk: int) -> None:
    for seed in range(chunk * 25, (chunk + 1) * 25):
        preferring, plain = drawn(seed, LayerMode.PREFERRED), drawn(seed)
        found, without = (
            preferring.run(),
            plain.world.run(replace(plain.gang, layers=()), members=plain.members),
        )
        assert bool(found.where) == bool(without.where), f"seed {seed}"
        if not found.where:
            assert found.reason("train") is without.reason("train"), f"seed {seed}"


def test_no_domain_is_tried_that_has_less_than_a_segment_asks_for() -> None:
    """Each kind of the 48 pods fits in each of 300 racks by itself; a rack has room for one segment."""
    sizes = [spec(gpu=1 + i % 7, cpu=i) for i in range(16)]
    members = [
        replace(one, index=i) for i in range(48) for one in pods("train", 1, sizes[i % 16], prefix=f"p{i}")
    ]
    layers = (Layer(level="rack", size=16),)
    drawing = "\n".join(f"z r{rack} : " + " ".join(f"n{rack}-{i}=8" for i in range(8)) for rack in range(300))
    nodes = [replace(one, allocatable={**one.allocatable, "cpu": 64}) for one in draw(drawing)]
    found = world(nodes).run(replace(gang(min_member=48), layers=layers), members=members)
    assert (found.reason("train"), list(found.used(by="rack").values())) == (None, [16] * 3)


def segments_of_two(number: int) -> list[Pod]:
    """Segments of a pod of 5 GPUs and one of 3."""
    sizes = [spec(gpu=5), spec(gpu=3)]
    return [
        replace(one, index=i)
        for i in range(2 * number)
        for one in pods("train", 1, sizes[i % 2], prefix=f"p{i}")
    ]


@pytest.mark.parametrize("other", [True, False], ids=["room-elsewhere", "no-room"])
def test_a_block_is_given_up_once_too_few_of_its_racks_hold_a_segment(other: bool) -> None:
    """Nine racks of a block hold a segment each. The tenth has as many GPUs, on nodes of 7 and of 1.

    There are too many orders of ten segments in nine racks to try them all.
    """
    drawing = [f"a ra{rack} : a{rack}=8" for rack in range(9)] + ["a ra9 : a9-7=7 a9-1=1"]
    if other:
        drawing += [f"b rb{rack} : b{rack}=8" for rack in range(12)]
    layers = (Layer(level="rack", size=2),)
    found = world("\n".join(drawing)).run(
        replace(gang(min_member=20, required="zone"), layers=layers), members=segments_of_two(10)
    )
    assert list(found.used(by="zone").items()) == ([("b", 20)] if other else [])
    assert found.reason("train") is (None if other else Reason.GANG_DOES_NOT_FIT)


def test_pods_that_fit_nowhere_are_not_searched_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size finds room by itself, and both together ask for more than there is."""
    monkeypatch.setattr(Budget, "take_candidate", lambda _: pytest.fail("a domain was tried"))
    members = [*pods("train", 4, spec(gpu=5), prefix="a"), *pods("train", 8, spec(gpu=3), prefix="b")]
    layers = (Layer(level="rack", size=3, mode=LayerMode.PREFERRED),)
    found = world("z r0 : a1=8 a2=8\nz r1 : b1=8 b2=8").run(
        replace(gang(min_member=12), layers=layers), members=members
    )
    assert found.reason("train") is Reason.GANG_DOES_NOT_FIT


@pytest.mark.parametrize("seed", [12, 188, 253])
def test_a_zone_with_all_nodes_of_the_cluster_is_searched_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, take = 0, Budget.take_candidate

    def counted(budget: Budget) -> bool:
        nonlocal taken
        taken += 1
        return take(budget)

    def tried(zone: Mapping[str, str]) -> int:
        nonlocal taken
        taken = 0
        drawn(seed, zone=zone).run()
        return taken

    monkeypatch.setattr(Budget, "take_candidate", counted)
    assert tried({"zone": "z"}) == tried({}) > 0, f"seed {seed}"
