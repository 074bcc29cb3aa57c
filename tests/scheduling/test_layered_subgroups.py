"""Random gangs whose subgroups have layers of their own: what is placed is right, what waits can't be placed.

Their gang is close at times, and may leave subgroups out; a second gang comes, and a member is replaced. A
world is drawn from a number, which each assertion names.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, combinations_with_replacement, product
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer, PodGroup, Remainder, SubGroup, TopologyConstraint
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.reading.common.layers import layer_problems
from closeby.scheduling.events import PodDeleted
from tests.worlds import GPU, World, fabric, node, pods, spec, world

LEVELS = ("block", "rack", HOSTNAME)
LACK_OF_ROOM = (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)
CHUNK = 100
#: Ways that are tried before a world counts as too large.
MOST_STEPS = 20_000

#: Of each pod by uid: its node.
Where = Mapping[str, str]
#: The number of a segment in each layer, from the coarsest to that of the segment.
Number = tuple[int, ...]


class Gang(Struct, frozen=True):
    """A gang with its pods."""

    group: PodGroup
    members: tuple[Pod, ...]

    def subgroup(self, name: str | None) -> SubGroup:
        return next(one for one in self.group.subgroups if one.name == name)

    def of_the_kind(self) -> bool:
        return any(one.exclusive is Exclusive.KIND for each in self.group.subgroups for one in each.layers)

    def around(self, name: str | None) -> Iterator[tuple[str, TopologyConstraint]]:
        """What constrains the pods of a subgroup, by the name of the part."""
        while name is not None:
            own = self.subgroup(name)
            if own.constraint is not None:
                yield name, own.constraint
            name = own.parent
        if self.group.constraint is not None:
            yield "", self.group.constraint


class Segment(Struct, frozen=True):
    """A segment of which some pods are placed, and their nodes."""

    gang: Gang
    leaf: str
    number: Number
    layer: Layer
    nodes: frozenset[str]

    def beside(self, other: "Segment") -> bool:
        """Whether neither of two segments is a part of the other."""
        if (self.gang, self.leaf) != (other.gang, other.leaf):
            return True
        length = min(len(self.number), len(other.number))
        return self.number[:length] != other.number[:length]


class TooLargeError(Exception):
    """Not all ways are tried."""


def numbers(layers: Sequence[Layer], index: int) -> list[Number]:
    """Of a pod, its segment in each layer."""
    found: list[Number] = []
    for depth, layer in enumerate(layers):
        if layer.counts and depth:  # The same as in the layer above.
            own = 0
        elif layer.counts:
            own = int(index >= layer.counts[0])
            index -= own * layer.counts[0]
        else:
            own, index = divmod(index, layer.size)
        found.append((*(found[-1] if found else ()), own))
    return found


def needs(pod: Pod) -> int:
    return dict(pod.spec.requests)[GPU]


class Drawn:
    """A cluster of two levels, and what may be wanted of it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.labels: dict[str, dict[str, str]] = {}
        self.room: dict[str, int] = {}
        for block in range(random.randint(1, 2)):
            for rack in range(random.randint(1, 3)):
                for _ in range(random.choice([1, 1, 2])):
                    name = f"n{len(self.room)}"
                    labels = {"block": f"b{block}", "rack": f"b{block}r{rack}"}
                    self.labels[name] = labels if random.random() > 0.1 else {"block": f"b{block}"}
                    self.room[name] = random.randint(0, 4)
        #: Nodes with a pod of nobody's.
        self.plain = [name for name, room in self.room.items() if room and random.random() < 0.15]
        self.gangs: list[Gang] = []

    def world(self) -> World:
        nodes = [node(name, self.labels[name], {GPU: room}) for name, room in self.room.items()]
        others = [one for name in self.plain for one in pods(None, 1, prefix=f"on-{name}", on=name)]
        return world(nodes, fabric(*LEVELS)).run(members=others)

    def draw_gang(self, name: str) -> Gang:
        random = self.random
        count = random.choice([1, 2, 2, 3])
        nested = count > 1 and random.random() < 0.25
        subgroups, members = [], list[Pod]()
        if nested:
            least = random.choice([None, None, 1])
            subgroups.append(SubGroup(name="p", min_subgroups=least, constraint=self._constraint(0.3)))
        for leaf in "abc"[:count]:
            size = random.choice([1, 2, 2, 3, 4, 4])
            one = SubGroup(
                name=leaf,
                min_member=size if random.random() < 0.75 else random.randint(1, size),
                parent="p" if nested and leaf != "abc"[count - 1] else None,
                layers=self._layers(size),
                constraint=self._constraint(0.2),
            )
            subgroups.append(one)
            each = spec(gpu=random.choice([1, 1, 1, 2]))
            own = pods(name, size, each, subgroup=leaf, prefix=f"{name}-{leaf}")
            members += (replace(pod, index=at) for at, pod in enumerate(own))
        tops = sum(one.parent is None for one in subgroups)
        group = PodGroup(
            namespace="default",
            name=name,
            subgroups=tuple(subgroups),
            min_subgroups=random.randint(1, tops) if random.random() < 0.25 else None,
            constraint=self._constraint(0.45),
        )
        return self.draw_gang(name) if layer_problems(group) else Gang(group, tuple(members))

    def _constraint(self, chance: float) -> TopologyConstraint | None:
        random = self.random
        if random.random() > chance:
            return None
        if random.random() < 0.3:
            return TopologyConstraint(topology="fabric", preferred=random.choice(LEVELS))
        return TopologyConstraint(topology="fabric", required=random.choice(LEVELS[:-1]))

    def _layers(self, pods: int) -> tuple[Layer, ...]:
        random = self.random
        levels = sorted(random.sample(range(3), random.choice([0, 1, 1, 1, 2])))
        remainder = Remainder.ALLOW if random.random() < 0.2 else Remainder.FORBID
        counts = (
            (cut := random.randint(1, pods - 1), pods - cut) if pods > 1 and random.random() < 0.15 else ()
        )
        size, found = pods, list[Layer]()
        for level in levels:
            size = random.choice([some for some in range(1, size + 1) if size % some == 0])
            exclusive = random.choice([Exclusive.NONE, Exclusive.NONE, Exclusive.KIND, Exclusive.ALL])
            first = not found and not counts and exclusive is not Exclusive.KIND
            layer = Layer(
                level=LEVELS[level],
                size=0 if counts else size,
                counts=counts,
                remainder=remainder,
                exclusive=exclusive,
                max_domains=random.randint(1, 2) if first and random.random() < 0.2 else None,
            )
            found.append(layer)
        return tuple(found)

    # What must hold

    def domain(self, name: str, level: str) -> tuple[str, bool]:
        """The domain of a level in which a node is, and whether it has the label of it."""
        value = name if level == HOSTNAME else self.labels[name].get(level)
        return (f"none of {name}", False) if value is None else (value, True)

    def problems(self, where: Where) -> list[str]:
        """What is wrong with where pods are."""
        held = [(one, pod, where[pod.uid]) for one in self.gangs for pod in one.members if pod.uid in where]
        used = Counter(self.plain)
        for _, pod, name in held:
            used[name] += needs(pod)
        found = [f"{name} is overcommitted" for name, number in used.items() if number > self.room[name]]
        together: dict[tuple[str, str, str], set[tuple[str, bool]]] = {}
        for own, pod, name in held:
            for part, constraint in own.around(pod.subgroup):
                if constraint.required is not None:
                    key = (own.group.name, part, constraint.required)
                    together.setdefault(key, set()).add(self.domain(name, constraint.required))
        segments = self._segments(held)
        for one in segments:
            key = (one.gang.group.name, f"{one.leaf}{one.number}", one.layer.level)
            together[key] = {self.domain(name, one.layer.level) for name in one.nodes}
        found += [f"{key} is in {at}" for key, at in together.items() if len(at) > 1 or (*at,)[0][1] is False]
        for one in segments:
            found += self._intruders(one, segments, held)
        limited: dict[tuple[str, str, int], set[str]] = {}
        for one in segments:
            if one.layer.max_domains is not None:
                homes = {self.domain(name, one.layer.level)[0] for name in one.nodes}
                limited.setdefault((one.gang.group.name, one.leaf, one.layer.max_domains), set()).update(
                    homes
                )
        return found + [f"{key} is in {homes}" for key, homes in limited.items() if len(homes) > key[2]]

    def _segments(self, held: Sequence[tuple[Gang, Pod, str]]) -> list[Segment]:
        found: dict[tuple[str, str, Number], Segment] = {}
        for own, pod, name in held:
            leaf = own.subgroup(pod.subgroup)
            for layer, number in zip(leaf.layers, numbers(leaf.layers, pod.index or 0), strict=True):
                key = (own.group.name, leaf.name, number)
                before = found[key].nodes if key in found else frozenset[str]()
                found[key] = Segment(own, leaf.name, number, layer, before | {name})
        return list(found.values())

    def _intruders(
        self, one: Segment, segments: Sequence[Segment], held: Sequence[tuple[Gang, Pod, str]]
    ) -> Iterator[str]:
        """Who is in the domain that a segment has for itself."""
        level, alone = one.layer.level, one.layer.exclusive
        homes = {self.domain(name, level)[0] for name in one.nodes}
        others = [
            other for other, _, name in held if other is not one.gang and self.domain(name, level)[0] in homes
        ]
        if alone is Exclusive.ALL:
            yield from (
                f"{name} is beside {one}" for name in self.plain if self.domain(name, level)[0] in homes
            )
            yield from (f"{other.group.name} is beside {one}" for other in others)
        if alone is Exclusive.KIND:
            yield from (f"{other.group.name} is beside {one}" for other in others if other.of_the_kind())
            for other in segments:
                kind = other.gang is one.gang and other.layer.exclusive is Exclusive.KIND
                if (
                    kind
                    and one.beside(other)
                    and homes & {self.domain(name, level)[0] for name in other.nodes}
                ):
                    yield f"{other} is beside {one}"

    def short(self, own: Gang, where: Where) -> list[str]:
        """What a gang lacks that was placed: minimums, and the rest of segments that have begun."""
        found = list[str]()

        def met(one: SubGroup) -> bool:
            below = [other for other in own.group.subgroups if other.parent == one.name]
            if below:
                return sum([met(other) for other in below]) >= (one.min_subgroups or len(below))
            parts = [[pod.uid in where for pod in part] for part in coarsest(own, one)]
            if any(any(part) and not all(part) for part in parts):
                found.append(f"a segment of {one.name} is placed in part")
            enough = sum(map(all, parts)) >= least(own, one)
            if any(map(any, parts)) and not enough:
                found.append(f"{one.name} is below its minimum")
            return enough

        tops = [met(one) for one in own.group.subgroups if one.parent is None]
        if sum(tops) < (own.group.min_subgroups or len(tops)):
            found.append("too few subgroups are placed")
        return found

    def way(self, own: Gang, where: Where) -> Where | None:
        """Some way to place what a gang needs at the least, of which nothing is placed yet; None: none is."""
        steps = 0

        def place(parts: Sequence[Sequence[Pod]], where: Where) -> Where | None:
            nonlocal steps
            if not parts:
                return where
            for names in combinations_with_replacement(self.room, len(parts[0])):
                steps += 1
                if steps > MOST_STEPS:
                    raise TooLargeError
                after = {**where, **{pod.uid: name for pod, name in zip(parts[0], names, strict=True)}}
                if not self.problems(after) and (found := place(parts[1:], after)) is not None:
                    return found
            return None

        for leaves in choices(own.group, None, own.group.min_subgroups):
            parts = [
                part
                for leaf in leaves
                for segment in coarsest(own, leaf)[: least(own, leaf)]
                for part in finest(leaf, segment)
            ]
            if (found := place(parts, where)) is not None:
                return found
        return None


def coarsest(own: Gang, leaf: SubGroup) -> list[list[Pod]]:
    """The pods of each segment of the first layer; of a subgroup without layers each pod."""
    found: dict[int, list[Pod]] = {}
    for pod in own.members:
        if pod.subgroup == leaf.name:
            at = pod.index or 0
            found.setdefault(numbers(leaf.layers, at)[0][0] if leaf.layers else at, []).append(pod)
    return list(found.values())


def finest(leaf: SubGroup, segment: Sequence[Pod]) -> list[list[Pod]]:
    found: dict[Number, list[Pod]] = {}
    for pod in segment:
        found.setdefault(numbers(leaf.layers, pod.index or 0)[-1] if leaf.layers else (), []).append(pod)
    return list(found.values())


def least(own: Gang, leaf: SubGroup) -> int:
    """How many of its coarsest segments are placed at the least."""
    sizes = [len(part) for part in coarsest(own, leaf)]
    return next(at for at in range(1, len(sizes) + 1) if sum(sizes[:at]) >= leaf.min_member)


def choices(group: PodGroup, parent: str | None, number: int | None) -> list[tuple[SubGroup, ...]]:
    """The leaves of which a gang, or a subgroup, may consist."""
    below = [one for one in group.subgroups if one.parent == parent]
    if not below:
        return [tuple(one for one in group.subgroups if one.name == parent)]
    return [
        tuple(leaf for part in parts for leaf in part)
        for some in combinations(below, number or len(below))
        for parts in product(*(choices(group, one.name, one.min_subgroups) for one in some))
    ]


@pytest.mark.parametrize("chunk", range(5))
def test_all_that_layers_of_subgroups_demand_holds(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        drawn = Drawn(seed)
        found = drawn.world()
        found.where.clear()
        where: dict[str, str] = {}
        for name in ("first", "later"):
            own = drawn.draw_gang(name)
            drawn.gangs.append(own)
            found.run(own.group, members=own.members)
            after = {**where, **{f"default/{pod}": chosen for pod, chosen in found.where.items()}}
            assert not (wrong := drawn.problems(after)), f"seed {seed}, {name}: {wrong}"
            if any(pod.uid in after for pod in own.members):
                assert not (lacks := drawn.short(own, after)), f"seed {seed}, {name}: {lacks}"
            elif found.reason(name) in LACK_OF_ROOM:
                try:
                    way = drawn.way(own, where)
                except TooLargeError:
                    continue
                assert way is None, f"seed {seed}, {name}: {way}"
            where = after
        members = [pod for own in drawn.gangs for pod in own.members]
        if any(pod.uid not in where for pod in members):
            continue  # What waits may take the room of a member that is replaced.
        lost = drawn.random.choice(members)
        before = found.where.pop(lost.name)
        found.tell(PodDeleted(lost.uid)).run(members=[lost])
        assert lost.name in found.where, f"seed {seed}: {lost.name} was on {before}"
        back = {f"default/{pod}": chosen for pod, chosen in found.where.items()}
        assert not (wrong := drawn.problems(back)), f"seed {seed}, replaced: {wrong}"
