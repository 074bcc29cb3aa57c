"""Random gangs of unequal pods with layers on small trees: a gang that fits is placed, or the search ended.

A gang is drawn from a number, which each assertion names.
"""

from collections.abc import Iterator, Mapping
from random import Random
from time import process_time

import pytest
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from tests.worlds import GPU, World, fabric, gang, node, pods, spec, world

LEVELS = ("block", "rack")
NAMES = (*LEVELS, HOSTNAME)
CHUNK = 60
#: GPUs and cores.
Amounts = tuple[int, int]
Path = tuple[str, ...]
REFUSED = (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)


class Drawn(Struct, frozen=True):
    """A tree with what its nodes have free, and what the pods of a gang need, in order."""

    free: dict[Path, Amounts]
    needs: tuple[Amounts, ...]
    #: Level and size, coarse to fine.
    layers: tuple[tuple[int, int], ...]
    required: int | None
    alone: bool

    def world(self) -> World:
        nodes = [
            node(path[-1], dict(zip(LEVELS, path, strict=False)), {GPU: gpus, "cpu": cores})
            for path, (gpus, cores) in self.free.items()
        ]
        return world(nodes, fabric(*LEVELS, HOSTNAME))

    def gang(self) -> PodGroup:
        required = None if self.required is None else LEVELS[self.required]
        kind = Exclusive.KIND if self.alone else Exclusive.NONE
        layers = tuple(
            Layer(level=NAMES[level], size=size, exclusive=Exclusive.NONE if at else kind)
            for at, (level, size) in enumerate(self.layers)
        )
        return replace(gang(min_member=len(self.needs), required=required), layers=layers)

    def members(self) -> list[Pod]:
        """Pods with an index, as the order of unequal pods is not that of their names alone."""
        found = []
        for at, (gpus, cores) in enumerate(self.needs):
            (pod,) = pods("train", 1, spec(gpu=gpus, cpu=cores))
            found.append(replace(pod, name=f"train-{at}", uid=f"default/train-{at}", index=at))
        return found


def drawn(seed: int) -> Drawn:
    random = Random(seed)
    free: dict[Path, Amounts] = {}
    for block in range(random.randint(1, 2)):
        for rack in range(random.randint(1, 3)):
            for _ in range(random.randint(1, 2)):
                path = (f"b{block}", f"b{block}r{rack}", f"n{len(free)}")
                free[path] = (random.randint(0, 5), random.randint(1, 5))
    levels = sorted(random.sample(range(3), random.choice([1, 1, 2])))
    size, sizes = random.choice([1, 2, 2, 3]), []
    for _ in levels:
        sizes.append(size)
        size *= 2
    layers = tuple(zip(levels, reversed(sizes), strict=True))
    count = min(sizes[-1] * random.randint(1, 3), 8) // sizes[-1] * sizes[-1]
    kinds = [(random.randint(0, 3), random.randint(1, 3)) for _ in range(2)]
    if random.random() < 0.5:  # A leader and its workers.
        needs = tuple(kinds[0] if at % sizes[0] == 0 else kinds[1] for at in range(count))
    else:
        needs = tuple(random.choice(kinds) for _ in range(count))
    return Drawn(free, needs, layers, random.choice([None, None, 0]), random.random() < 0.2)


def ways(
    drawn: Drawn, pods: range, inside: Path, free: Mapping[Path, Amounts]
) -> Iterator[dict[Path, Amounts]]:
    """What is left after each way to put some pods on nodes of a domain."""
    nodes = [path for path in free if path[: len(inside)] == inside]

    def put(at: int, left: dict[Path, Amounts]) -> Iterator[dict[Path, Amounts]]:
        if at == pods.stop:
            yield left
            return
        gpus, cores = drawn.needs[at]
        for path in nodes:
            if left[path][0] >= gpus and left[path][1] >= cores:
                yield from put(at + 1, {**left, path: (left[path][0] - gpus, left[path][1] - cores)})

    yield from put(pods.start, dict(free))


def fits(drawn: Drawn) -> bool:
    """Whether there is any way at all."""
    seen: set[tuple[object, ...]] = set()
    outer_level, outer = drawn.layers[0]
    inner_level, inner = drawn.layers[-1]

    def place(
        first: int, free: Mapping[Path, Amounts], held: Path, used: frozenset[Path], whole: Path
    ) -> bool:
        if first == len(drawn.needs):
            return True
        state = first, tuple(free.values()), held, used
        if state in seen:
            return False
        seen.add(state)
        begins = first % outer == 0
        for domain in sorted({path[: inner_level + 1] for path in free}):
            own = domain[: outer_level + 1]
            if domain[: len(whole)] != whole or (not begins and own != held):
                continue
            if begins and drawn.alone and own in used:
                continue
            for left in ways(drawn, range(first, first + inner), domain, free):
                if place(first + inner, left, own, used | {own}, whole):
                    return True
        return False

    bounds = [()] if drawn.required is None else sorted({path[: drawn.required + 1] for path in drawn.free})
    for whole in bounds:
        seen.clear()
        if place(0, drawn.free, (), frozenset(), whole):
            return True
    return False


def check(one: Drawn, found: World, seed: int) -> None:
    paths = {path[-1]: path for path in one.free}
    where = {name: paths[chosen] for name, chosen in found.where.items()}
    left = dict(one.free)
    for at, (gpus, cores) in enumerate(one.needs):
        path = where[f"train-{at}"]
        left[path] = (left[path][0] - gpus, left[path][1] - cores)
    assert all(gpus >= 0 and cores >= 0 for gpus, cores in left.values()), f"seed {seed}: overcommitted"
    for at, (level, size) in enumerate(one.layers):
        homes: list[Path] = []
        for first in range(0, len(one.needs), size):
            own = {where[f"train-{member}"][: level + 1] for member in range(first, first + size)}
            assert len(own) == 1, f"seed {seed}: a segment is in {own}"
            homes += own
        assert at or not one.alone or len(set(homes)) == len(homes), f"seed {seed}: two in one domain"


@pytest.mark.parametrize("chunk", range(5))
def test_a_gang_of_unequal_pods_is_placed_or_certainly_has_no_place_or_the_search_ended(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        one = drawn(seed)
        began = process_time()
        found = one.world().run(one.gang(), members=one.members())
        took = process_time() - began
        reason = None if found.where else found.reason("train")
        if found.where:
            check(one, found, seed)
        elif reason in REFUSED:
            assert not fits(one), f"seed {seed}: {found.outcome('train').message}"
        else:
            assert reason is Reason.SEARCH_BUDGET_EXHAUSTED, f"seed {seed}"
        assert took < 10, f"seed {seed}"


def test_most_answers_about_small_gangs_are_certain() -> None:
    reasons = []
    for seed in range(200):
        one = drawn(seed)
        found = one.world().run(one.gang(), members=one.members())
        if not found.where:
            reasons.append(found.reason("train"))
    assert reasons.count(Reason.SEARCH_BUDGET_EXHAUSTED) <= len(reasons) // 10
