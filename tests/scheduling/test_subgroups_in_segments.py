"""Two subgroups whose pods go in segments share small trees: they are placed exactly where both fit.

Which nodes of a rack the one uses may matter to the other. A gang is drawn from a number, which each
assertion names, and compared with every way to place its pods.
"""

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Layer
from closeby.objects.labels import HOSTNAME
from closeby.objects.reasons import Reason
from tests.worlds import GPU, World, fabric, gang, node, pods, spec, subgroup, world

LEVELS = ("block", "rack", HOSTNAME)
CHUNK = 75
#: GPUs and cores.
Amounts = tuple[int, int]
Path = tuple[str, str, str]


class Half(Struct, frozen=True):
    """A subgroup: so many segments of pods with these needs; at no level they need not be together."""

    name: str
    needs: tuple[Amounts, ...]
    segments: int
    level: int | None


class Drawn(Struct, frozen=True):
    """What each node has, and two subgroups."""

    free: dict[Path, Amounts]
    halves: tuple[Half, ...]

    def run(self) -> World:
        nodes = [
            node(path[-1], {"block": path[0], "rack": path[1]}, {GPU: gpus, "cpu": cores})
            for path, (gpus, cores) in self.free.items()
        ]
        members = [
            replace(one, name=f"{half.name}{at}", uid=f"{half.name}{at}", index=at)
            for half in self.halves
            for at, (gpus, cores) in enumerate(half.needs * half.segments)
            for one in pods("train", 1, spec(gpu=gpus, cpu=cores), subgroup=half.name)
        ]
        subgroups = [
            replace(
                subgroup(half.name, len(half.needs) * half.segments),
                layers=() if half.level is None else (Layer(level=LEVELS[half.level], size=len(half.needs)),),
            )
            for half in self.halves
        ]
        whole = gang(min_member=len(members), subgroups=subgroups)
        return world(nodes, fabric(*LEVELS)).run(whole, members=members)

    def parts(self) -> list[tuple[int | None, tuple[Amounts, ...]]]:
        """What must be together in a domain of a level."""
        found: list[tuple[int | None, tuple[Amounts, ...]]] = []
        for half in self.halves:
            for _ in range(half.segments):
                alone = [(half.level, (one,)) for one in half.needs]
                found += alone if half.level is None else [(half.level, half.needs)]
        return found

    def fits(self) -> bool:
        """Whether any way places all of them."""
        parts = self.parts()

        def place(at: int, free: dict[Path, Amounts]) -> bool:
            if at == len(parts):
                return True
            level, needs = parts[at]
            return any(place(at + 1, left) for left in _ways(free, needs, level))

        return place(0, self.free)


def _ways(
    free: dict[Path, Amounts], needs: tuple[Amounts, ...], level: int | None
) -> Iterator[dict[Path, Amounts]]:
    for paths in product(free, repeat=len(needs)):
        if level is not None and len({path[: level + 1] for path in paths}) > 1:
            continue
        left = dict(free)
        for path, (gpus, cores) in zip(paths, needs, strict=True):
            left[path] = (left[path][0] - gpus, left[path][1] - cores)
        if all(min(left[path]) >= 0 for path in paths):
            yield left


def drawn(seed: int) -> Drawn:
    random = Random(seed)
    free: dict[Path, Amounts] = {}
    for block in range(random.randint(1, 2)):
        for rack in range(random.randint(1, 2)):
            for _ in range(random.randint(1, 2)):
                path = (f"b{block}", f"b{block}r{rack}", f"n{len(free)}")
                free[path] = (random.randint(0, 4), random.randint(1, 4))

    def half(name: str) -> Half:
        size = random.choice([1, 2, 2])
        needs = [(random.randint(0, 2), random.randint(0, 2)) for _ in range(size)]
        if random.random() < 0.5:
            needs = [needs[0]] * size
        level = random.randrange(3) if random.random() < 0.8 else None
        return Half(name, tuple(needs), random.randint(1, 2), level)

    return Drawn(free, (half("a"), half("b")))


@pytest.mark.parametrize("chunk", range(6))
def test_both_are_placed_exactly_where_there_is_a_way(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        one = drawn(seed)
        found = one.run()
        assert bool(found.where) == one.fits(), f"seed {seed}"
        if not found.where:
            refused = (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)
            assert found.reason("train") in refused, f"seed {seed}"


def test_the_other_subgroup_needs_the_node_that_is_as_good_for_the_first() -> None:
    """Both nodes of rack r1 have three GPUs, and only one of them has the cores for b."""
    free = {("b", "r0", "n0"): (1, 4), ("b", "r1", "n1"): (3, 4), ("b", "r1", "n2"): (3, 1)}
    halves = (Half("a", ((2, 0), (1, 0)), 1, 1), Half("b", ((0, 1), (2, 2)), 1, None))
    found = Drawn(free, halves).run()
    assert found.used("a") == {"n2": 2}
    assert found.where["b1"] == "n1"
