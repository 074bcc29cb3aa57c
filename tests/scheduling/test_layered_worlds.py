"""Random worlds of gangs with layers that come, grow, lose members and go, beside pods and nodes that do.

After each step what is placed keeps all that was asked for, and what waits for lack of room could not be
placed in any way. A world is drawn from a number, which each assertion names.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    GroupChanged,
    GroupDeleted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import bindings_of
from tests.worlds import GPU, fabric, gang, node, pods, spec

LEVELS = ("block", "rack")
NAMES = (*LEVELS, HOSTNAME)
STEPS = 14
LACK_OF_ROOM = (Reason.GANG_DOES_NOT_FIT, Reason.TOPOLOGY_PLACEMENT_FAILED)

Path = tuple[str, ...]


class Job(Struct):
    """A gang: its pods in the order of their index, and where they are."""

    name: str
    layers: tuple[tuple[int, int], ...]
    exclusive: Exclusive
    least: int
    needs: int
    members: list[Pod]
    where: dict[int, str]

    @property
    def size(self) -> int:
        """Pods of a coarsest segment."""
        return self.layers[0][1]

    def segments(self) -> range:
        return range(len(self.members) // self.size)

    def running(self, segment: int) -> list[int]:
        return [at for at in self.own(segment) if at in self.where]

    def own(self, segment: int) -> range:
        return range(segment * self.size, (segment + 1) * self.size)


class Play:
    """One world, and the engine that decides about it."""

    def __init__(self, seed: int, *, reserve_after: float) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.engine = Engine(
            lambda handle: profile_for(Configuration(), handle), backoff=False, reserve_after=reserve_after
        )
        self.free: dict[Path, int] = {}
        self.nodes: dict[str, Node] = {}
        for block in range(self.random.randint(1, 2)):
            for rack in range(self.random.randint(1, 3)):
                for _ in range(self.random.randint(1, 2)):
                    path = (f"b{block}", f"b{block}r{rack}", f"n{len(self.free)}")
                    self.free[path] = self.random.randint(1, 6)
                    labels = dict(zip(LEVELS, path, strict=False))
                    self.nodes[path[-1]] = node(path[-1], labels, {GPU: self.free[path]})
        self.path = {path[-1]: path for path in self.free}
        self.gone: set[str] = set()
        self.jobs: dict[str, Job] = {}
        self.plain: dict[str, Pod] = {}
        self.number = 0
        self.tell(*map(NodeUpserted, self.nodes.values()), TopologyChanged(fabric(*LEVELS, HOSTNAME)))

    def tell(self, *events: Event) -> None:
        self.now += 1.0
        for binding in bindings_of(self.engine.handle(*events, Tick(self.now))):
            pod = binding.pod
            job = self.jobs.get(pod.group or "")
            if job is None:
                self.plain[pod.name] = replace(pod, node_name=binding.node)
            else:
                job.where[pod.index or 0] = binding.node
        self.engine.validate_state()

    # Steps

    def step(self) -> None:
        kinds = [self.comes, self.comes, self.loses, self.loses, self.goes, self.plain_pod, self.node_fails]
        self.random.choice(kinds)()

    def comes(self) -> None:
        if len(self.jobs) > 3:
            return
        random = self.random
        self.number += 1
        name = f"job{self.number}"
        levels = sorted(random.sample(range(3), random.choice([1, 1, 2])))
        inner = random.choice([1, 1, 2, 3])
        sizes = [inner * 2, inner] if len(levels) == 2 else [inner]
        count = random.randint(1, 4)
        least = random.randint(1, count)
        exclusive = random.choice([Exclusive.NONE, Exclusive.NONE, Exclusive.KIND, Exclusive.ALL])
        needs = random.choice([1, 1, 2])
        layers = tuple(zip(levels, sizes, strict=True))
        members = [
            replace(pod, index=at) for at, pod in enumerate(pods(name, count * sizes[0], spec(gpu=needs)))
        ]
        self.jobs[name] = Job(name, layers, exclusive, least * sizes[0], needs, members, {})
        asked = tuple(
            Layer(level=NAMES[level], size=size, exclusive=Exclusive.NONE if at else exclusive)
            for at, (level, size) in enumerate(layers)
        )
        group = replace(gang(name, min_member=least * sizes[0]), layers=asked)
        self.tell(GroupChanged(group), *map(PodUpserted, members))

    def loses(self) -> None:
        """Some members of a gang are replaced."""
        begun = [job for job in self.jobs.values() if job.where]
        if not begun:
            return
        job = self.random.choice(begun)
        lost = self.random.sample(sorted(job.where), self.random.randint(1, min(2, len(job.where))))
        events: list[Event] = [PodDeleted(job.members[at].uid) for at in lost]
        for at in lost:
            del job.where[at]
            job.members[at] = replace(job.members[at], uid=f"{job.members[at].uid}+")
            events.append(PodUpserted(job.members[at]))
        self.tell(*events)

    def goes(self) -> None:
        if self.jobs:
            job = self.jobs.pop(self.random.choice(sorted(self.jobs)))
            key = f"default/{job.name}"
            self.tell(*(PodDeleted(pod.uid) for pod in job.members), GroupDeleted(key))

    def plain_pod(self) -> None:
        if self.plain and self.random.random() < 0.5:
            name = self.random.choice(sorted(self.plain))
            self.tell(PodDeleted(self.plain.pop(name).uid))
            return
        self.number += 1
        (pod,) = pods(None, 1, prefix=f"plain{self.number}")
        self.plain[pod.name] = pod
        self.tell(PodUpserted(pod))

    def node_fails(self) -> None:
        """With its pods; those of gangs are made again. Or it is back."""
        if self.gone and self.random.random() < 0.7:
            name = min(self.gone)
            self.gone.remove(name)
            self.tell(NodeUpserted(self.nodes[name]))
            return
        name = self.random.choice(sorted(self.nodes))
        if name in self.gone:
            return
        self.gone.add(name)
        events: list[Event] = [NodeDeleted(name)]
        for job in self.jobs.values():
            for at in [at for at, place in job.where.items() if place == name]:
                del job.where[at]
                events.append(PodDeleted(job.members[at].uid))
                job.members[at] = replace(job.members[at], uid=f"{job.members[at].uid}+")
                events.append(PodUpserted(job.members[at]))
        for pod in [pod for pod in self.plain.values() if pod.node_name == name]:
            events.append(PodDeleted(pod.uid))
            del self.plain[pod.name]
        self.tell(*events)

    # What must hold

    def held(self) -> Iterator[tuple[str, Path, int]]:
        """Of each pod that has a node: its gang, the node's path and its GPUs."""
        for job in self.jobs.values():
            for place in job.where.values():
                yield job.name, self.path[place], job.needs
        for pod in self.plain.values():
            if pod.node_name is not None:
                yield "", self.path[pod.node_name], 1

    def check(self) -> None:
        where = f"seed {self.seed} at {self.now:g}"
        used = Counter[Path]()
        for _, path, needs in self.held():
            used[path] += needs
        assert all(used[path] <= self.free[path] for path in used), f"{where}: overcommitted"
        for job in self.jobs.values():
            self._check_segments(job, where)
        self._check_exclusive(where)
        for job in self.jobs.values():
            self._check_refusal(job, used, where)

    def _check_segments(self, job: Job, where: str) -> None:
        for level, size in job.layers:
            for first in range(0, len(job.members), size):
                own = {
                    self.path[job.where[at]][: level + 1]
                    for at in range(first, first + size)
                    if at in job.where
                }
                assert len(own) <= 1, f"{where}: {job.name} from {first} is in {own}"

    def _check_exclusive(self, where: str) -> None:
        kinds = [
            ((job.name, at // job.size), self.path[place], job.layers[0][0] + 1)
            for job in self.jobs.values()
            for at, place in job.where.items()
            if job.exclusive is Exclusive.KIND
        ]
        for own, path, level in kinds:
            inside = {other for other, where_to, _ in kinds if where_to[:level] == path[:level]}
            assert inside == {own}, f"{where}: {inside} are in {path[:level]}"
        for job in self.jobs.values():
            level = job.layers[0][0] + 1
            if job.exclusive is Exclusive.ALL:
                homes = {self.path[place][:level] for place in job.where.values()}
                others = [who for who, path, _ in self.held() if who != job.name and path[:level] in homes]
                assert not others, f"{where}: {others} are in what {job.name} has for itself"

    def _check_refusal(self, job: Job, used: Counter[Path], where: str) -> None:
        waiting = [one for one in job.segments() if len(job.running(one)) < job.size]
        if not waiting:
            return
        complete = len(job.segments()) - len(waiting)
        needed = max(job.least // job.size - complete, 0)
        first = sorted(waiting, key=lambda one: not job.running(one))[:needed]
        outcome = self.engine.outcome(f"default/{job.name}")
        assert outcome is not None
        reservation = self.engine.reservation
        if reservation is not None and reservation.key != f"default/{job.name}":
            return
        if first:
            assert outcome.reason is not None, f"{where}: {job.name} waits without a reason"
            if outcome.reason in LACK_OF_ROOM:
                message = f"{where}: {job.name} {outcome.message}"
                assert not self._fits(job, first, used), message
        for one in waiting if not needed else ():
            message = f"{where}: segment {one} of {job.name} {[left.message for left in outcome.left]}"
            assert not self._fits(job, [one], used), message

    def _fits(self, job: Job, segments: Sequence[int], used: Counter[Path]) -> bool:
        """Whether the members of these segments that wait fit beside all that is placed, in any way."""
        room = {
            path: (self.free[path] - used[path]) // job.needs
            for path in self.free
            if path[-1] not in self.gone and not self._owned(job, path)
        }
        finest, size = job.layers[-1]
        homes = [
            {at // each: self.path[place][: level + 1] for at, place in job.where.items()}
            for level, each in job.layers
        ]
        parts = [
            (first, sum(at not in job.where for at in range(first, first + size)))
            for one in segments
            for first in range(one * job.size, (one + 1) * job.size, size)
        ]
        parts = [(first, count) for first, count in parts if count]
        rooms = Counter[Path]()
        for path, number in room.items():
            rooms[path[: finest + 1]] += number
        taken = self._taken(job)

        def place(at: int, homes: Sequence[dict[int, Path]]) -> bool:
            if at == len(parts):
                return True
            first, count = parts[at]
            for domain in sorted(rooms):
                if rooms[domain] < count:
                    continue
                own = [domain[: level + 1] for level, _ in job.layers]
                numbers = [first // each for _, each in job.layers]
                known = [home.get(number) for home, number in zip(homes, numbers, strict=True)]
                if any(one not in (None, other) for one, other in zip(known, own, strict=True)):
                    continue
                if known[0] is None and own[0] in taken:
                    continue
                alone = job.exclusive is Exclusive.KIND
                if alone and known[0] is None and own[0] in homes[0].values():
                    continue
                after = [{**home, number: one} for home, number, one in zip(homes, numbers, own, strict=True)]
                rooms[domain] -= count
                found = place(at + 1, after)
                rooms[domain] += count
                if found:
                    return True
            return False

        return place(0, homes)

    def _owned(self, job: Job, path: Path) -> bool:
        """Whether another gang keeps this one off a node."""
        for other in self.jobs.values():
            strict = other.exclusive is Exclusive.ALL or (other.exclusive is job.exclusive is Exclusive.KIND)
            if other is job or not strict:
                continue
            level = other.layers[0][0] + 1
            if any(self.path[place][:level] == path[:level] for place in other.where.values()):
                return True
        return False

    def _taken(self, job: Job) -> set[Path]:
        """The domains that no segment of a gang can begin in, as others are there."""
        level = job.layers[0][0] + 1
        kinds = {one.name for one in self.jobs.values() if one.exclusive is Exclusive.KIND}
        others = [(who, path[:level]) for who, path, _ in self.held() if who != job.name]
        if job.exclusive is Exclusive.NONE:
            return set()
        return {path for who, path in others if job.exclusive is Exclusive.ALL or who in kinds}


@pytest.mark.parametrize("reserve_after", [0.0, 3.0])
@pytest.mark.parametrize("chunk", range(4))
def test_layers_hold_over_time_and_what_waits_could_not_be_placed(chunk: int, reserve_after: float) -> None:
    for seed in range(chunk * 40, (chunk + 1) * 40):
        play = Play(seed, reserve_after=reserve_after)
        for _ in range(STEPS):
            play.step()
            play.check()


def test_worlds_have_all_that_is_asked_for() -> None:
    seen = Counter[str]()
    for seed in range(60):
        play = Play(seed, reserve_after=0.0)
        for _ in range(STEPS):
            before = {name: dict(job.where) for name, job in play.jobs.items()}
            play.step()
            for name, job in play.jobs.items():
                seen["elastic"] += job.least < len(job.members) and bool(job.where)
                seen["alone"] += job.exclusive is not Exclusive.NONE and bool(job.where)
                seen["returned"] += name in before and bool(before[name]) and before[name] != job.where
                seen["refused"] += not job.where
    assert all(seen[what] > 10 for what in ("elastic", "alone", "returned", "refused")), seen
