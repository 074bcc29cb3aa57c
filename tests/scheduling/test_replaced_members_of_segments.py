"""Random gangs with layers on small trees: what is placed is right, what is refused can't be placed.

A gang is drawn from a number, which each assertion names.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Layer, PodGroup, Remainder
from closeby.objects.labels import HOSTNAME
from closeby.objects.reasons import Reason
from closeby.scheduling.events import PodDeleted
from tests.worlds import GPU, World, fabric, gang, node, pods, world

LEVELS = ("zone", "block", "rack")
#: Of one draw to the next.
CHUNK = 60

Path = tuple[str, ...]


class Drawn(Struct, frozen=True):
    """A tree with the room of its nodes, and a gang."""

    #: Path (zone, block, rack, node) -> pods.
    rooms: dict[Path, int]
    layers: tuple[tuple[int, int], ...]
    count: int
    required: int | None
    remainder: bool = False

    def world(self) -> World:
        nodes = [
            node(path[-1], dict(zip(LEVELS, path, strict=False)), {GPU: room})
            for path, room in self.rooms.items()
        ]
        return world(nodes, fabric(*LEVELS, HOSTNAME))

    def gang(self) -> PodGroup:
        names = (*LEVELS, HOSTNAME)
        remainder = Remainder.ALLOW if self.remainder else Remainder.FORBID
        required = None if self.required is None else LEVELS[self.required]
        return replace(
            gang(min_member=self.count, required=required),
            layers=tuple(
                Layer(level=names[level], size=size, remainder=remainder) for level, size in self.layers
            ),
        )


def drawn(seed: int, *, remainder: bool = False) -> Drawn:
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
    if remainder:
        count = max(count - random.randrange(sizes[-1]), 1)
    required = random.choice([None, None, 0, 1])
    return Drawn(rooms, tuple(zip(levels, reversed(sizes), strict=True)), count, required, remainder)


def segments(layers: Sequence[tuple[int, int]], count: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """The finest segments: the number of its segment in each layer, and its pods."""
    size = layers[-1][1]
    for first in range(0, count, size):
        yield tuple(first // each for _, each in layers), min(size, count - first)


def fewest(drawn: Drawn, inside: Path) -> int | None:
    """The fewest domains of the coarsest layer that hold the gang inside a domain; None: it does not fit."""
    finest = drawn.layers[-1][0] + 1
    free: dict[Path, int] = {}
    for path, room in drawn.rooms.items():
        if path[: len(inside)] == inside:
            free[path[:finest]] = free.get(path[:finest], 0) + room
    domains = sorted(free)
    wanted = list(segments(drawn.layers, drawn.count))
    levels = [level + 1 for level, _ in drawn.layers]

    @cache
    def place(index: int, left: tuple[int, ...], at: tuple[Path, ...], used: frozenset[Path]) -> int | None:
        if index == len(wanted):
            return len(used)
        ids, size = wanted[index]
        before = wanted[index - 1][0] if index else None
        best = None
        for number, domain in enumerate(domains):
            if left[number] < size:
                continue
            paths = tuple(domain[:level] for level in levels)
            if before is not None and any(
                old == new and there != here
                for old, new, there, here in zip(before, ids, at, paths, strict=True)
            ):
                continue
            rest = (*left[:number], left[number] - size, *left[number + 1 :])
            found = place(index + 1, rest, paths, used | {paths[0]})
            if found is not None and (best is None or found < best):
                best = found
        return best

    return place(0, tuple(free[domain] for domain in domains), (), frozenset())


def candidates(drawn: Drawn, level: int) -> set[Path]:
    return {path[: level + 1] for path in drawn.rooms}


def expected(drawn: Drawn) -> tuple[int, int] | None:
    """The finest level of which one domain holds the gang, and the fewest domains of the coarsest layer."""
    finest = 3 if drawn.required is None else drawn.required
    coarsest = -1 if drawn.required is None else drawn.required
    for level in range(finest, coarsest - 1, -1):
        found = [fewest(drawn, inside) for inside in candidates(drawn, level)]
        if any(one is not None for one in found):
            return level, min(one for one in found if one is not None)
    return None


def check_segments(drawn: Drawn, where: Mapping[str, Path], seed: int) -> None:
    for level, size in drawn.layers:
        for first in range(0, drawn.count, size):
            members = [f"train-{at}" for at in range(first, min(first + size, drawn.count))]
            used = {where[name][: level + 1] for name in members}
            assert len(used) == 1, f"seed {seed}: {members} are in {used}"


@pytest.mark.parametrize("remainder", [False, True])
@pytest.mark.parametrize("chunk", range(5))
def test_a_feasible_gang_with_layers_is_placed_and_no_other(chunk: int, remainder: bool) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        one = drawn(seed, remainder=remainder)
        found = one.world().run(one.gang(), members=pods("train", one.count))
        best = expected(one)
        if best is None:
            assert not found.where, f"seed {seed}: {found.where}"
            refused = (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)
            assert found.reason("train") in refused, f"seed {seed}: {found.outcome('train').message}"
            continue
        assert len(found.where) == one.count, f"seed {seed}: {found.outcome('train').message}"
        paths = {path[-1]: path for path in one.rooms}
        where = {name: paths[chosen] for name, chosen in found.where.items()}
        for name, room in one.rooms.items():
            assert sum(1 for path in where.values() if path == name) <= room, f"seed {seed}"
        check_segments(one, where, seed)
        level, number = best
        assert len({path[: level + 1] for path in where.values()}) == 1, f"seed {seed}: not in one domain"
        coarsest = one.layers[0][0] + 1
        assert len({path[:coarsest] for path in where.values()}) == number, f"seed {seed}: not the fewest"
        ranks = [found.rank[f"train-{at}"] for at in range(one.count)]
        assert sorted(rank for rank in ranks if rank is not None) == list(range(one.count)), f"seed {seed}"
        assert all(a // s == b // s for _, s in one.layers for a, b in enumerate(ranks) if b is not None)
        assert all(x is not None and y is not None for x, y in pairwise(ranks))


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
