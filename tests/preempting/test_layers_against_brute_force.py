"""Random small worlds in which gangs with layers preempt: a plan is made exactly where victims help.

No set of victims is cheaper, none of them can stay, and without them the gang is placed as its layers say.
Each assertion names the seed of its world.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import inf
from random import Random
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.objects.topologies import Topology
from closeby.scheduling.events import GroupChanged, PodUpserted, TopologyChanged
from closeby.scheduling.outcomes import EvictionCost, Preemption
from tests.preempting.site import NOW, RESTART, Site
from tests.worlds import GPU, fabric, gang, node, pods, spec

HIGH = 100
LEVELS = ("block", "rack", HOSTNAME)
#: Sets of victims that are looked at for one world.
SETS = 3_000
CHUNK = 60
EXCLUSIVE = (Exclusive.NONE, Exclusive.NONE, Exclusive.NONE, Exclusive.KIND, Exclusive.ALL)
#: Names in the path of a block and of a rack: the domains that gangs have for themselves.
BLOCK, RACK = 1, 2

Path = tuple[str, ...]


class Holder(Struct):
    """A gang, or a pod by itself (minimum 0), that runs."""

    minimum: int
    pods: list[Pod]
    exclusive: Exclusive = Exclusive.NONE
    #: Names in the path of each domain that it has for itself.
    depth: int = RACK

    @property
    def priority(self) -> int:
        return self.pods[0].spec.priority or 0

    def ways(self) -> Iterator[tuple[Pod, ...]]:
        """The sets of its pods that may go."""
        yield ()
        if self.priority >= HIGH:
            return
        surplus = len(self.pods) - self.minimum if self.minimum else 0
        for count in range(1, min(surplus, len(self.pods) - 1) + 1):
            yield from combinations(self.pods, count)
        yield tuple(self.pods)


class Drawn:
    """A tree with what runs on it, and a gang with layers that waits."""

    def __init__(self, seed: int, *, large: bool = False) -> None:
        """``large``: more may go than is judged exactly."""
        self.seed = seed
        self.large = large
        random = Random(seed)
        self.size: dict[str, int] = {}
        self.path: dict[str, Path] = {}
        for block in range(random.randint(1, 2) + large):
            for rack in range(random.randint(1, 3) + large):
                for _ in range(random.randint(1, 2) + large):
                    name = f"n{len(self.size)}"
                    self.size[name] = random.randint(1, 4)
                    self.path[name] = (f"b{block}", f"b{block}r{rack}", name)
        self.holders: dict[str, Holder] = {}
        self.gpu = random.choice((1, 1, 2))
        levels = sorted(random.sample(range(3), random.choice((1, 1, 2))))
        inner = random.choice((1, 2, 2, 3))
        sizes = [inner * random.choice((1, 2)), inner] if len(levels) == 2 else [inner]
        self.layers = tuple(zip(levels, sizes, strict=True))
        self.count = sizes[0] * random.randint(1, 2 if sizes[0] > 2 else 3)
        self.exclusive = random.choice((Exclusive.NONE, Exclusive.NONE, Exclusive.KIND, Exclusive.ALL))
        limits = self.exclusive is not Exclusive.KIND and random.random() < 0.3
        self.most = random.randint(1, 2) if limits else None
        self.required = random.choice((None, None, 0)) if levels[0] else None
        segments = self.count // sizes[0]
        self.least = sizes[0] * (segments if random.random() < 0.7 else random.randint(1, segments))
        #: Members that run already, by their index.
        self.runs: dict[int, str] = {}

    def gang(self) -> PodGroup:
        asked = tuple(
            Layer(
                level=LEVELS[level],
                size=size,
                exclusive=Exclusive.NONE if at else self.exclusive,
                max_domains=None if at else self.most,
            )
            for at, (level, size) in enumerate(self.layers)
        )
        required = None if self.required is None else LEVELS[self.required]
        return replace(gang("train", self.least, required=required), layers=asked)

    def site(self, *, shuffled: bool = False) -> Site:
        nodes = [
            node(name, dict(zip(LEVELS[:2], self.path[name], strict=False)), {GPU: size})
            for name, size in self.size.items()
        ]
        site = Site(list(reversed(nodes)) if shuffled else nodes)
        site.tell(TopologyChanged(self.topology()))
        self.fill(site)
        needs = replace(spec(gpu=self.gpu), priority=HIGH)
        members = [
            replace(
                pod, index=at, node_name=self.runs.get(at), phase="Running" if at in self.runs else "Pending"
            )
            for at, pod in enumerate(pods("train", self.count, needs))
        ]
        site.tell(GroupChanged(self.gang()), *map(PodUpserted, members))
        return site

    def topology(self) -> Topology:
        return fabric(*LEVELS)

    def fill(self, site: Site) -> None:
        random, free = Random(self.seed + 1), dict(self.size)
        self.holders.clear()
        self.runs.clear()
        if random.random() < 0.3:
            self._run_some(random, free)
        for index in range(random.randint(20, 40) if self.large else random.randint(1, 7)):
            gpu, alone = random.choice((1, 1, 2)), random.choice(EXCLUSIVE)
            depth = RACK if alone is Exclusive.NONE else random.choice((RACK, RACK, BLOCK))
            room = [
                name
                for name, left in free.items()
                if self._open(name, alone, depth)
                for _ in range(left // gpu)
            ]
            size = min(random.randint(1, 3), len(room))
            if not size:
                continue
            on = random.sample(room, size)
            priority, started = random.choice((0, 0, 0, 10, 200)), random.choice((0.0, NOW - 100, NOW))
            fields: dict[str, Any] = {"priority": priority, "gpu": gpu, "started": started}
            if size == 1 and alone is Exclusive.NONE and random.random() < 0.6:
                self.holders[f"p{index}"] = Holder(0, [site.alone(f"p{index}", on[0], **fields)])
            else:
                minimum = size if random.random() < 0.7 else random.randint(1, size)
                owned = Layer(level=LEVELS[depth - 1], size=1, exclusive=alone)
                layers = () if alone is Exclusive.NONE else (owned,)
                made = site.running(f"g{index}", on, minimum=minimum, group={"layers": layers}, **fields)
                self.holders[f"g{index}"] = Holder(minimum, made, alone, depth)
            for name in on:
                free[name] -= gpu

    def _open(self, name: str, alone: Exclusive, depth: int) -> bool:
        """Whether a gang may use a node beside the others, in domains for itself of such a depth."""
        path = self.path[name]
        runs = any(self.path[node][:depth] == path[:depth] for node in self.runs.values())
        if alone is not Exclusive.NONE and runs:
            return False
        for holder in self.holders.values():
            kinds = holder.exclusive is alone is Exclusive.KIND
            for there in (self.path[pod.node_name or ""] for pod in holder.pods):
                keeps_off = there[: holder.depth] == path[: holder.depth]
                if keeps_off and (holder.exclusive is Exclusive.ALL or kinds):
                    return False
                if there[:depth] == path[:depth] and (alone is Exclusive.ALL or kinds):
                    return False
        return True

    def _run_some(self, random: Random, free: dict[str, int]) -> None:
        """Some members of the first segment run, all in one finest domain."""
        finest, size = self.layers[-1]
        name = random.choice(sorted(free))
        near = [
            other for other in sorted(free) if self.path[other][: finest + 1] == self.path[name][: finest + 1]
        ]
        for at in random.sample(range(size), random.randint(1, size)):
            node = next((one for one in near if free[one] >= self.gpu), None)
            if node is None or (size > 1 and len(self.runs) == size - 1 and self.least == size):
                return
            self.runs[at] = node
            free[node] -= self.gpu

    # By brute force

    def free(self, gone: set[str]) -> dict[str, int]:
        """Pods of the gang that fit on each node without these pods."""
        left = dict(self.size)
        for name in self.runs.values():
            left[name] -= self.gpu
        for holder in self.holders.values():
            for pod in holder.pods:
                if pod.uid not in gone:
                    left[pod.node_name or ""] -= dict(pod.spec.requests)[GPU]
        return {name: amount // self.gpu for name, amount in left.items()}

    def barred(self, gone: set[str]) -> tuple[set[Path], set[Path]]:
        """The domains in which others let no pod of the gang, and those that no segment may begin in."""
        level = self.layers[0][0] + 1
        owned, taken = set[Path](), set[Path]()
        for holder in self.holders.values():
            stay = [self.path[pod.node_name or ""] for pod in holder.pods if pod.uid not in gone]
            kind = holder.exclusive is self.exclusive is Exclusive.KIND
            if kind or holder.exclusive is Exclusive.ALL:
                owned |= {path[: holder.depth] for path in stay}
            if kind or self.exclusive is Exclusive.ALL:
                taken |= {path[:level] for path in stay}
        return owned, taken

    def bounds(self) -> set[Path]:
        """The domains of which one holds all of the minimum: those of a layer of which it is one segment."""
        undivided = [
            level
            for at, (level, size) in enumerate(self.layers)
            if not self.runs and (size >= self.least or (not at and self.most == 1))
        ]
        return {path[: undivided[-1] + 1] for path in self.path.values()} if undivided else {()}

    def fits(self, gone: set[str], within: Path | None = None) -> bool:
        """Whether the minimum fits without these pods, in any way, or in one domain."""
        free, (owned, taken) = self.free(gone), self.barred(gone)
        finest, size = self.layers[-1]
        rooms = Counter[Path]()
        for name, number in free.items():
            if owned.isdisjoint((self.path[name][:BLOCK], self.path[name][:RACK])):
                rooms[self.path[name][: finest + 1]] += number
        parts = [
            (first, sum(at not in self.runs for at in range(first, first + size)))
            for first in range(0, self.least, size)
        ]
        parts = [(first, count) for first, count in parts if count]
        homes = [
            {at // each: self.path[name][: level + 1] for at, name in self.runs.items()}
            for level, each in self.layers
        ]

        def place(at: int, homes: Sequence[dict[int, Path]], inside: Path) -> bool:
            if at == len(parts):
                return True
            first, count = parts[at]
            for domain in sorted(rooms):
                if rooms[domain] < count or domain[: len(inside)] != inside:
                    continue
                own = [domain[: level + 1] for level, _ in self.layers]
                numbers = [first // each for _, each in self.layers]
                known = [home.get(number) for home, number in zip(homes, numbers, strict=True)]
                if any(one not in (None, other) for one, other in zip(known, own, strict=True)):
                    continue
                used = set(homes[0].values())
                if known[0] is None and own[0] in taken:
                    continue
                if self.exclusive is Exclusive.KIND and known[0] is None and own[0] in used:
                    continue
                if self.most is not None and len(used | {own[0]}) > self.most:
                    continue
                after = [{**home, number: one} for home, number, one in zip(homes, numbers, own, strict=True)]
                rooms[domain] -= count
                found = place(at + 1, after, inside)
                rooms[domain] += count
                if found:
                    return True
            return False

        bounds = {()} if self.required is None else {path[:1] for path in self.path.values()}
        if self.required is not None and self.runs:
            bounds = {self.path[name][:1] for name in self.runs.values()}
        bounds = bounds if within is None else {within}
        return any(place(0, homes, inside) for inside in sorted(bounds))

    def sets(self) -> list[set[str]]:
        """All sets of victims; empty if these are too many."""
        every = [list(holder.ways()) for holder in self.holders.values()]
        number = 1
        for some in every:
            number *= len(some)
        if number > SETS:
            return []
        return [{pod.uid for some in chosen for pod in some} for chosen in product(*every)]

    def price(self, gone: set[str], within: Path) -> EvictionCost:
        victims = [pod for holder in self.holders.values() for pod in holder.pods if pod.uid in gone]
        broken = 0
        for holder in self.holders.values():
            left = sum(pod.uid not in gone for pod in holder.pods)
            broken += bool(holder.minimum) and left < len(holder.pods) and left < holder.minimum
        kept = set[str | None](self.runs.values())
        for holder in self.holders.values():
            kept |= {pod.node_name for pod in holder.pods if pod.uid not in gone}
        gpus = {pod.uid: dict(pod.spec.requests)[GPU] for pod in victims}
        outside = [pod for pod in victims if self.path[pod.node_name or ""][: len(within)] != within]
        return EvictionCost(
            0,
            0,
            max((pod.spec.priority or 0 for pod in victims), default=-inf),
            False,
            sum(gpus[pod.uid] * (NOW - (pod.started or 0.0) + RESTART) for pod in victims),
            broken,
            sum(gpus.values()),
            sum(gpus[pod.uid] for pod in outside),
            max((pod.grace for pod in victims), default=0),
            len(victims),
            len({pod.node_name for pod in victims} & kept),
        )

    def check_placed(self, site: Site) -> None:
        """The gang is whole, its layers hold, and no node has more than it can take."""
        where = {int(name.rsplit("-", 1)[1]): site.where[name] for name in site.where} | self.runs
        first = self.layers[0][1]
        whole = all(at - at % first + one in where for at in where for one in range(first))
        assert whole and len(where) >= self.least, f"seed {self.seed}: half placed {where}"
        for at, (level, size) in enumerate(self.layers):
            homes: dict[int, set[Path]] = {}
            for number, name in where.items():
                homes.setdefault(number // size, set()).add(self.path[name][: level + 1])
            assert all(len(own) == 1 for own in homes.values()), f"seed {self.seed}: {homes}"
            used = [next(iter(own)) for own in homes.values()]
            if not at and self.exclusive is Exclusive.KIND:
                assert len(set(used)) == len(used), f"seed {self.seed}: {homes}"
            if not at and self.most is not None:
                assert len(set(used)) <= self.most, f"seed {self.seed}: {homes}"
        if self.required is not None:
            assert len({self.path[name][0] for name in where.values()}) == 1, f"seed {self.seed}"


def planned(seed: int, *, large: bool = False) -> tuple[Drawn, Site, list[Preemption]]:
    drawn = Drawn(seed, large=large)
    site = drawn.site()
    return drawn, site, site.tick()


@pytest.mark.parametrize("chunk", range(10))
def test_victims_are_the_cheapest_and_the_gang_is_placed_without_them(chunk: int) -> None:
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        drawn, site, plans = planned(seed)
        if drawn.fits(set()):
            assert not plans, f"seed {seed}: a plan for what fits"
            drawn.check_placed(site)
            continue
        assert not site.where, f"seed {seed}"
        for plan in plans:
            check(drawn, plan)
        sets = drawn.sets()
        enough = [gone for gone in sets if drawn.fits(gone)]
        if sets:
            assert bool(plans) == bool(enough), f"seed {seed}: {site.outcomes['default/train'].message}"
        if plans:
            (plan,) = plans
            assert plan.exact, f"seed {seed}"
            assert site.evict(plan) == [], f"seed {seed}"
            drawn.check_placed(site)
        if plans and enough and drawn.required is None:
            ways = [(gone, one) for gone in enough for one in drawn.bounds() if drawn.fits(gone, one)]
            best = min(drawn.price(gone, one) for gone, one in ways)
            # Victims that free several domains: the gang may choose another one than that of the plan.
            chosen = best if drawn.bounds() == {()} else best._replace(outside=plan.cost.outside)
            assert plan.cost == chosen, f"seed {seed}"


@pytest.mark.parametrize("chunk", range(3))
def test_where_more_may_go_than_is_judged_exactly_each_victim_is_needed(chunk: int) -> None:
    for seed in range(chunk * 20, (chunk + 1) * 20):
        drawn, site, plans = planned(seed, large=True)
        every = {pod.uid for one in drawn.holders.values() if one.priority < HIGH for pod in one.pods}
        could = not drawn.fits(set()) and drawn.fits(every)
        assert bool(plans) == could, f"seed {seed}"
        for plan in plans:
            check(drawn, plan)
            assert site.evict(plan) == [], f"seed {seed}"
            drawn.check_placed(site)


def check(drawn: Drawn, plan: Preemption) -> None:
    gone = {pod.uid for pod in plan.victims}
    where = f"seed {drawn.seed}: {sorted(gone)}"
    assert gone, where
    assert all((pod.spec.priority or 0) < HIGH for pod in plan.victims), where
    assert len(plan.places) >= drawn.least - len(drawn.runs), where
    assert drawn.fits(gone), where
    for holder in drawn.holders.values():
        mine = {pod.uid for pod in holder.pods} & gone
        spared = [mine] if len(mine) == len(holder.pods) else [{uid} for uid in mine]
        for some in filter(None, spared):
            assert not drawn.fits(gone - some), f"{where}: {some} could stay"
