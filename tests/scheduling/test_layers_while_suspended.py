"""Random worlds of gangs in segments whose searches are suspended wherever they can be, while much happens.

Segments are alike (a leader with its workers), or one of them differs. Nodes come, go, are cordoned and
change what they offer, members are lost and bindings fail, other gangs and pods come and go. Once all is
decided, what is placed keeps all that was asked for, and a gang that waits would not be placed by an engine
that hears of all this only then.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    BindFailed,
    Event,
    GroupChanged,
    GroupDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import Output, Suspended, bindings_of
from tests.attacks.crowds import in_namespace
from tests.scheduling.test_layered_worlds import (
    LACK_OF_ROOM,
    LEVELS,
    NAMES,
    STEPS,
    Job,
    Path,
    Play,
)
from tests.worlds import GPU, fabric, gang, pods, spec

#: Turns in which all that was begun is decided.
MOST_TURNS = 4_000


class Happened(NamedTuple):
    """What a world saw."""

    suspended: int
    interrupted: int
    refused: int


def _namespace(name: str) -> str:
    """Items of one namespace do not overtake each other."""
    return f"team{len(name) + ord(name[-1]) & 1}"


class SuspendedPlay(Play):
    """A world in which nothing is decided at once."""

    def __init__(self, seed: int) -> None:
        self.suspended = self.interrupted = self.refused = 0
        self.groups: dict[str, PodGroup] = {}
        self._meanwhile = True
        super().__init__(seed, reserve_after=0.0)
        self._meanwhile = False

    def tell(self, *events: Event) -> None:
        self.now += 1.0
        self.engine.handle(*events)
        if not self._meanwhile:
            self._decide()

    def _decide(self) -> None:
        for _ in range(MOST_TURNS):
            steps = 1 if self.random.random() < 0.8 else 100
            decisions = self.engine.handle(Tick(self.now, limit=1, steps=steps))
            self.engine.validate_state()
            self._bind(decisions)
            if not decisions:
                return
            if any(isinstance(one, Suspended) for one in decisions):
                self.suspended += 1
                if self.random.random() < 0.3:
                    self.interrupted += 1
                    self._meanwhile = True
                    self.step()
                    self._meanwhile = False
        raise AssertionError(f"seed {self.seed}: it never ends")

    def _bind(self, decisions: list[Output]) -> None:
        for binding in bindings_of(decisions):
            pod = binding.pod
            if pod.group is None:
                self.plain[pod.name] = replace(pod, node_name=binding.node)
            else:
                self.jobs[pod.group].where[pod.index or 0] = binding.node

    # Steps

    def step(self) -> None:
        kinds = [self.comes, self.comes, self.loses, self.loses, self.goes, self.plain_pod, self.plain_pod]
        kinds += [self.node_fails, self.node_changes, self.cordons, self.binding_fails]
        self.random.choice(kinds)()

    def comes(self) -> None:
        if len(self.jobs) > 3:
            return
        random = self.random
        self.number += 1
        name = f"job{self.number}"
        levels = sorted(random.sample(range(3), random.choice([1, 1, 2])))
        inner = random.choice([1, 2, 2, 3])
        sizes = [inner * 2, inner] if len(levels) == 2 else [inner]
        count = sizes[0] * random.randint(1, 4)
        exclusive = random.choice([Exclusive.NONE, Exclusive.NONE, Exclusive.KIND, Exclusive.ALL])
        leader, worker = random.choices([0, 1, 1, 2, 3], k=2)
        amounts = [leader if at % inner == 0 else worker for at in range(count)]
        if random.random() < 0.4:
            amounts[random.randrange(count)] = random.randint(0, 3)
        namespace = _namespace(name)
        members = [
            replace(in_namespace(replace(pod, name=f"{name}-{at}"), namespace), index=at)
            for at, amount in enumerate(amounts)
            for pod in pods(name, 1, spec(gpu=amount))
        ]
        layers = tuple(zip(levels, sizes, strict=True))
        self.jobs[name] = Job(name, layers, exclusive, count, 0, members, {})
        asked = tuple(
            Layer(level=NAMES[level], size=size, exclusive=Exclusive.NONE if at else exclusive)
            for at, (level, size) in enumerate(layers)
        )
        self.groups[name] = replace(gang(name, min_member=count), namespace=namespace, layers=asked)
        self.tell(GroupChanged(self.groups[name]), *map(PodUpserted, members))

    def goes(self) -> None:
        if self.jobs:
            job = self.jobs.pop(self.random.choice(sorted(self.jobs)))
            members = (PodDeleted(pod.uid) for pod in job.members)
            self.tell(*members, GroupDeleted(self.groups[job.name].key))

    def plain_pod(self) -> None:
        """It comes or goes. One that comes may have a node from another scheduler."""
        if self.plain and self.random.random() < 0.4:
            self.tell(PodDeleted(self.plain.pop(self.random.choice(sorted(self.plain))).uid))
            return
        self.number += 1
        (pod,) = pods(None, 1, prefix=f"plain{self.number}")
        pod = in_namespace(pod, "plain")
        if self.random.random() < 0.5 and (room := self._with_room()):
            pod = replace(pod, node_name=self.random.choice(room), phase="Running")
        self.plain[pod.name] = pod
        self.tell(PodUpserted(pod))

    def _with_room(self) -> list[str]:
        """Nodes of which no gang keeps others off."""
        used = Counter[Path]()
        for _, path, amount in self.held():
            used[path] += amount
        alone = {
            self.path[place][: job.layers[0][0] + 1]
            for job in self.jobs.values()
            for place in job.where.values()
            if job.exclusive is Exclusive.ALL
        }
        return [
            path[-1]
            for path in sorted(self.free)
            if used[path] < self.free[path]
            and path[-1] not in self.gone
            and not any(path[: len(domain)] == domain for domain in alone)
        ]

    def node_changes(self) -> None:
        """It offers another amount, and no less than is used."""
        name = self.random.choice(sorted(self.nodes))
        path = self.path[name]
        if name not in self.gone:
            used = sum(amount for _, place, amount in self.held() if place == path)
            self.free[path] = max(used, self.random.randint(1, 6))
            allocatable = {**self.nodes[name].allocatable, GPU: self.free[path]}
            self._change(name, allocatable=allocatable)

    def cordons(self) -> None:
        """Or takes it back."""
        name = self.random.choice(sorted(self.nodes))
        if name not in self.gone:
            self._change(name, unschedulable=not self.nodes[name].unschedulable)

    def _change(self, name: str, **fields: object) -> None:
        self.nodes[name] = replace(self.nodes[name], **fields)
        self.tell(NodeUpserted(self.nodes[name]))

    def binding_fails(self) -> None:
        bound = [(job, at) for _, job in sorted(self.jobs.items()) for at in sorted(job.where)]
        if bound:
            job, at = self.random.choice(bound)
            del job.where[at]
            self.tell(BindFailed(job.members[at].uid, "no", final=False))

    # What must hold

    def held(self) -> Iterator[tuple[str, Path, int]]:
        for job in self.jobs.values():
            for at, place in job.where.items():
                yield job.name, self.path[place], dict(job.members[at].spec.requests).get(GPU, 0)
        for pod in self.plain.values():
            if pod.node_name is not None:
                yield "", self.path[pod.node_name], 1

    def _check_refusal(self, job: Job, used: Counter[Path], where: str) -> None:
        waiting = [pod for at, pod in enumerate(job.members) if at not in job.where]
        if not waiting:
            return
        outcome = self.engine.outcome(self.groups[job.name].key)
        assert outcome is not None and outcome.reason is not None, (
            f"{where}: {job.name} waits without a reason"
        )
        if outcome.reason in LACK_OF_ROOM:
            self.refused += 1
            placed = bindings_of(self._late().handle(*map(PodUpserted, waiting), Tick(self.now)))
            assert not placed, f"{where}: {job.name} waits: {outcome.message}"

    def _late(self) -> Engine:
        """An engine that hears only now of all that is placed."""
        late = Engine(lambda handle: profile_for(Configuration(), handle), backoff=False)
        nodes = [one for name, one in self.nodes.items() if name not in self.gone]
        running = [
            replace(job.members[at], node_name=place, phase="Running")
            for job in self.jobs.values()
            for at, place in job.where.items()
        ]
        plain: list[Pod] = [pod for pod in self.plain.values() if pod.node_name is not None]
        late.handle(TopologyChanged(fabric(*LEVELS, HOSTNAME)), *map(NodeUpserted, nodes))
        late.handle(*(GroupChanged(self.groups[name]) for name in self.jobs))
        late.handle(*map(PodUpserted, (*running, *plain)))
        return late


def played(seeds: range) -> Happened:
    found = Happened(0, 0, 0)
    for seed in seeds:
        play = SuspendedPlay(seed)
        for _ in range(STEPS):
            play.step()
            play.check()
        one = (play.suspended, play.interrupted, play.refused)
        found = Happened(*map(sum, zip(found, one, strict=True)))
    return found


def test_whatever_happens_between_the_turns_layers_hold_and_what_waits_has_no_place() -> None:
    found = played(range(20))
    assert found.suspended > 300 and found.interrupted > 100 and found.refused > 100


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(1, 5))
def test_the_same_in_many_more_worlds(chunk: int) -> None:
    played(range(chunk * 100, (chunk + 1) * 100))
