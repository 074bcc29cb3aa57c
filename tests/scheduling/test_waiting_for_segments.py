"""A gang in segments is tried again only where the domains could hold them: no cure is missed by that.

Random worlds are told to two engines::

    gangs, nodes, pods ──┬── the engine: tries a gang when there is room for its segments
                         └── an eager one: tries it at each change, or at every tick

Both must decide the same.
"""

from random import Random

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Arrangement, Exclusive, Layer, LayerMode, PodGroup, Remainder
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
from closeby.scheduling.outcomes import bindings_of, outcomes_of
from closeby.scheduling.preempting.records import Preemption
from closeby.scheduling.preempting.rule import Preemptible
from tests.worlds import GPU, fabric, gang, node, pods, spec

LEVELS = ("block", "rack", HOSTNAME)
STEPS = 16


def new_engine(*, preempts: bool, reserve_after: float = 0.0) -> Engine:
    made = Engine(
        lambda handle: profile_for(Configuration(), handle), backoff=False, reserve_after=reserve_after
    )
    if preempts:
        made.preempt(Preemptible())
    made.handle(TopologyChanged(fabric(*LEVELS)))
    return made


class Twins:
    """A world, our engine and the eager one."""

    def __init__(self, seed: int, *, preempts: bool, reserve_after: float) -> None:
        self.random = random = Random(seed)
        self.seed, self.preempts, self.now = seed, preempts, 0.0
        self.ours = new_engine(preempts=preempts, reserve_after=reserve_after)
        self.eager = new_engine(preempts=preempts, reserve_after=reserve_after)
        if preempts:
            rooms, reservations = self.eager._tools.rooms, self.eager._rounds.reservations
            self.eager._rounds.queue._lacks = lambda need, key: rooms.lack(need, reservations.excludes(key))
        else:
            self.eager._rounds.queue._lacks = lambda need, key: False
        self.nodes: dict[str, Node] = {}
        for at in range(random.randint(4, 9)):
            rack = random.randint(0, 3)
            labels = {"block": f"b{rack % 2}", "rack": f"r{rack}"}
            if random.random() < 0.1:
                del labels["rack"]
            self.nodes[f"n{at}"] = node(f"n{at}", labels, {GPU: random.randint(1, 4)})
        self.gone: set[str] = set()
        self.pods: dict[str, Pod] = {}
        self.plans: list[Preemption] = []
        self.attempts = [0, 0]
        self.number = self.spent = 0
        self.tell(*map(NodeUpserted, self.nodes.values()))

    def tell(self, *events: Event) -> None:
        self.now += 1.0
        for engine in (self.ours, self.eager):
            engine.handle(*events)
        if not self.preempts:
            for key in self.eager.unschedulable:
                self.eager._rounds.queue.activate(key)
        found, others = (engine.handle(Tick(self.now)) for engine in (self.ours, self.eager))
        for at, outputs in enumerate((found, others)):
            self.attempts[at] += len(outcomes_of(outputs))
        where = f"seed {self.seed} at {self.now:g}"
        reasons = {outcome.reason for outcome in (*outcomes_of(found), *outcomes_of(others))}
        self.spent += Reason.SEARCH_BUDGET_EXHAUSTED in reasons
        assert {(one.pod.uid, one.node) for one in bindings_of(found)} == {
            (one.pod.uid, one.node) for one in bindings_of(others)
        }, where
        assert self.ours.reservation == self.eager.reservation, where
        assert set(self.ours.unschedulable) == set(self.eager.unschedulable), where
        plans = [
            [plan for outcome in outcomes_of(outputs) for plan in outcome.preemptions]
            for outputs in (found, others)
        ]
        assert plans[0] == plans[1], where
        self.plans += plans[0]
        for one in bindings_of(found):
            self.pods[one.pod.uid] = replace(one.pod, node_name=one.node)
        self.ours.validate_state()
        self.eager.validate_state()

    def step(self) -> None:
        if self.plans and self.random.random() < 0.7:
            plan = self.plans.pop(0)
            self.leave(*(pod.uid for pod in plan.victims))
            return
        kinds = (self.comes, self.comes, self.goes, self.plain, self.fails, self.fails, self.fails)
        self.random.choice(kinds)()

    def comes(self) -> None:
        if len({pod.group for pod in self.pods.values()}) > 5:
            return
        random = self.random
        self.number += 1
        levels = sorted(random.sample(range(3), random.choice([1, 1, 1, 2])))
        size = random.choice([1, 2, 3, 4])
        sizes = [size * random.choice([1, 2]), size][-len(levels) :]
        remainder = random.choice([Remainder.ALLOW, Remainder.ALLOW, Remainder.FORBID])
        count = sizes[0] * random.randint(1, 3)
        if remainder is Remainder.ALLOW:
            count = max(1, count - random.randint(0, sizes[0] - 1))
        layers = tuple(
            Layer(
                level=LEVELS[level],
                size=own,
                remainder=remainder,
                mode=random.choice([LayerMode.REQUIRED, LayerMode.REQUIRED, LayerMode.PREFERRED]),
                arrangement=random.choice([Arrangement.PACK, Arrangement.PACK, Arrangement.SPREAD]),
                exclusive=random.choice([Exclusive.NONE, Exclusive.NONE, Exclusive.KIND, Exclusive.ALL])
                if not at
                else Exclusive.NONE,
                max_domains=random.choice([None, None, 1, 2]) if not at else None,
            )
            for at, (level, own) in enumerate(zip(levels, sizes, strict=True))
        )
        name = f"job{self.number}"
        required = LEVELS[random.randint(0, levels[0])] if random.random() < 0.3 else None
        group = replace(
            gang(name, min_member=random.choice([count, count, max(count // 2, 1)]), required=required),
            layers=layers,
        )
        self.arrive(name, count, group)

    def arrive(self, name: str | None, count: int, *groups: PodGroup) -> None:
        priority = self.random.choice([0, 0, 10]) if self.preempts else 0
        needs = replace(spec(gpu=self.random.choice([1, 1, 2])), priority=priority)
        made = pods(name, count, needs, prefix=f"pod{self.number}")
        made = [replace(pod, index=at) for at, pod in enumerate(made)] if name else made
        self.pods.update({pod.uid: pod for pod in made})
        self.tell(*map(GroupChanged, groups), *map(PodUpserted, made))

    def plain(self) -> None:
        self.number += 1
        self.arrive(None, 1)

    def goes(self) -> None:
        if self.pods:
            gone = self.random.choice(sorted(self.pods))
            group = self.pods[gone].group
            self.leave(
                *[uid for uid, pod in self.pods.items() if uid == gone or (group and pod.group == group)]
            )

    def leave(self, *uids: str, more: tuple[Event, ...] = ()) -> None:
        groups = {self.pods[uid].group for uid in uids if uid in self.pods}
        for uid in uids:
            self.pods.pop(uid, None)
        kept = {pod.group for pod in self.pods.values()}
        ended = [GroupDeleted(f"default/{one}") for one in sorted(filter(None, groups - kept))]
        self.tell(*more, *map(PodDeleted, uids), *ended)

    def fails(self) -> None:
        """A node fails with the pods on it, or one returns, moves to another rack or is cordoned."""
        name = self.random.choice(sorted(self.nodes))
        if name in self.gone:
            self.gone.remove(name)
            self.tell(NodeUpserted(self.nodes[name]))
        elif self.random.random() < 0.2:
            other = self.nodes[self.random.choice(sorted(self.nodes))]
            self.nodes[name] = replace(self.nodes[name], labels={**other.labels, HOSTNAME: name})
            self.tell(NodeUpserted(self.nodes[name]))
        elif self.random.random() < 0.2:
            cordoned = not self.nodes[name].unschedulable
            self.nodes[name] = replace(self.nodes[name], unschedulable=cordoned)
            self.tell(NodeUpserted(self.nodes[name]))
        else:
            self.gone.add(name)
            lost = [uid for uid, pod in self.pods.items() if pod.node_name == name]
            self.leave(*lost, more=(NodeDeleted(name),))


@pytest.mark.parametrize("reserve_after", [0.0, 3.0])
@pytest.mark.parametrize("preempts", [False, True])
@pytest.mark.parametrize("chunk", [0, *(pytest.param(one, marks=pytest.mark.slow) for one in range(1, 6))])
def test_no_cure_is_missed(chunk: int, preempts: bool, reserve_after: float) -> None:
    ours = others = plans = 0
    for seed in range(chunk * 60, (chunk + 1) * 60):
        world = Twins(seed, preempts=preempts, reserve_after=reserve_after)
        for _ in range(STEPS):
            world.step()
            plans += len(world.plans)
        ours, others = ours + world.attempts[0], others + world.attempts[1]
    assert ours < others
    assert bool(plans) == preempts


def racks(whole: int) -> list[Node]:
    """Three racks of three nodes, of which so many nodes in each are there."""
    return [
        node(f"r{rack}-n{at}", {"block": "b", "rack": f"r{rack}"}, {GPU: 1})
        for rack in range(3)
        for at in range(whole)
    ]


def test_only_a_node_that_makes_room_for_a_segment_wakes_the_gangs() -> None:
    engine = new_engine(preempts=False)
    engine.handle(*map(NodeUpserted, racks(3)), *(NodeDeleted(f"r{rack}-n2") for rack in range(3)))
    for name in ("a", "b"):
        group = replace(gang(name, min_member=3), layers=(Layer(level="rack", size=3),))
        engine.handle(GroupChanged(group), *map(PodUpserted, pods(name, 3, spec(gpu=1))))
    first = outcomes_of(engine.handle(Tick()))
    assert [outcome.reason for outcome in first] == [Reason.TOPOLOGY_PLACEMENT_FAILED] * 2
    assert outcomes_of(engine.handle(NodeDeleted("r0-n1"), Tick())) == []
    assert outcomes_of(engine.handle(NodeUpserted(racks(2)[1]), Tick())) == []
    found = engine.handle(NodeUpserted(racks(3)[5]), Tick())
    assert {one.pod.group for one in bindings_of(found)} == {"a"}
    engine.validate_state()


def test_a_gang_that_may_evict_is_tried_at_each_change() -> None:
    engine = new_engine(preempts=True)
    engine.handle(*map(NodeUpserted, racks(3)), NodeDeleted("r2-n2"))
    low = [
        replace(pod, node_name=f"r{at}-n0")
        for at, pod in enumerate(pods(None, 3, replace(spec(gpu=1), priority=0), on="r0-n0"))
    ]
    group = replace(gang("a", min_member=3), layers=(Layer(level="rack", size=3),))
    wanted = pods("a", 3, replace(spec(gpu=1), priority=10))
    engine.handle(*map(PodUpserted, low[2:]), *(NodeDeleted(f"r{rack}-n2") for rack in range(2)))
    engine.handle(GroupChanged(group), *map(PodUpserted, wanted))
    (first,) = outcomes_of(engine.handle(Tick()))
    assert first.reason is Reason.TOPOLOGY_PLACEMENT_FAILED and not first.preemptions
    (second,) = outcomes_of(engine.handle(NodeUpserted(racks(3)[8]), Tick()))
    assert [pod.uid for plan in second.preemptions for pod in plan.victims] == [low[2].uid]
