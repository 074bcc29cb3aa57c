"""Random gangs with layers on small trees that lose members: those that replace them go where they were.

A gang is drawn from a number, which each assertion names.
"""

from collections import Counter
from collections.abc import Mapping
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Layer, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.scheduling.events import PodDeleted
from tests.worlds import GPU, World, fabric, gang, node, pods, world

LEVELS = ("zone", "block", "rack")

Path = tuple[str, ...]


class Drawn(Struct, frozen=True):
    """A tree with the room of its nodes, and a gang."""

    #: Path (zone, block, rack, node) -> pods.
    rooms: dict[Path, int]
    layers: tuple[tuple[int, int], ...]
    count: int
    required: int | None

    def world(self) -> World:
        nodes = [
            node(path[-1], dict(zip(LEVELS, path, strict=False)), {GPU: room})
            for path, room in self.rooms.items()
        ]
        return world(nodes, fabric(*LEVELS, HOSTNAME))

    def gang(self) -> PodGroup:
        names = (*LEVELS, HOSTNAME)
        required = None if self.required is None else LEVELS[self.required]
        return replace(
            gang(min_member=self.count, required=required),
            layers=tuple(Layer(level=names[level], size=size) for level, size in self.layers),
        )


def drawn(seed: int) -> Drawn:
    """A small tree and a gang of one to three layers."""
    random = Random(seed)
    rooms: dict[Path, int] = {}
    for zone in range(random.randint(1, 2)):
        for block in range(random.randint(1, 3)):
            for rack in range(random.randint(1, 3)):
                for _ in range(random.randint(1, 2)):
                    path = (f"z{zone}", f"z{zone}b{block}", f"z{zone}b{block}r{rack}", f"n{len(rooms)}")
                    rooms[path] = random.randint(0, 4)
    levels = sorted(random.sample(range(4), random.choice([1, 1, 2, 2, 3])))
    size, sizes = random.choice([1, 1, 2, 3]), []
    for _ in levels:
        sizes.append(size)
        size *= random.choice([1, 2, 2, 3])
    count = sizes[-1] * random.randint(1, 3)
    required = random.choice([None, None, 0, 1])
    return Drawn(rooms, tuple(zip(levels, reversed(sizes), strict=True)), count, required)


def check_segments(drawn: Drawn, where: Mapping[str, Path], seed: int) -> None:
    for level, size in drawn.layers:
        for first in range(0, drawn.count, size):
            members = [f"train-{at}" for at in range(first, min(first + size, drawn.count))]
            used = {where[name][: level + 1] for name in members}
            assert len(used) == 1, f"seed {seed}: {members} are in {used}"


@pytest.mark.parametrize("indexed", [True, False])
def test_members_that_are_replaced_return_to_their_segments(indexed: bool) -> None:
    for seed in range(150):
        random, one = Random(seed), drawn(seed)
        members = pods("train", one.count)
        if indexed:
            members = [replace(pod, index=at) for at, pod in enumerate(members)]
        found = one.world().run(one.gang(), members=members)
        if not found.where:
            continue
        paths = {path[-1]: path for path in one.rooms}
        finest = one.layers[-1][0] + 1

        def occupied(
            where: Mapping[str, str], paths: Mapping[str, Path] = paths, finest: int = finest
        ) -> Counter[Path]:
            return Counter(paths[name][:finest] for name in where.values())

        before = occupied(found.where)
        lost = random.sample(
            range(one.count), random.randint(1, min(one.count - 1, 3)) if one.count > 1 else 0
        )
        found.tell(*(PodDeleted(members[at].uid) for at in lost))
        held = {name: place for name, place in found.where.items() if int(name.split("-")[1]) not in lost}
        gone = before - occupied(held)
        found.where.clear()
        found.run(members=[replace(members[at], uid=f"again-{at}") for at in lost])
        now = {**held, **found.where}
        assert len(now) == one.count, f"seed {seed}: {found.outcome('train').message}"
        # Of a segment that may be gone as a whole nothing says where it was.
        if max(gone.values(), default=0) < one.layers[-1][1]:
            assert occupied(now) == before, f"seed {seed}"
        if indexed:
            check_segments(one, {name: paths[place] for name, place in now.items()}, seed)
