"""The domains that gangs have for themselves are worked out once, and again only where something changed."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer, LayerMode, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.objects.workloads import exclusive_kind
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
    TopologyDeleted,
)
from closeby.scheduling.judging.holds import Comer
from closeby.scheduling.outcomes import bindings_of
from closeby.scheduling.placing.exclusive import Exclusives, OwnedDomain
from tests.worlds import GPU, fabric, gang, node, pods, spec

FABRIC = fabric("zone", "rack", HOSTNAME)


def engine_of(nodes: int) -> Engine:
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    racks = ({"zone": "z", "rack": f"r{at // 2}", HOSTNAME: f"n{at}"} for at in range(nodes))
    engine.handle(*(NodeUpserted(node(f"n{at}", one, {GPU: 4})) for at, one in enumerate(racks)))
    engine.handle(TopologyChanged(FABRIC))
    return engine


def wanting(name: str, level: str, exclusive: Exclusive, members: int = 2) -> PodGroup:
    layer = Layer(level=level, size=members, mode=LayerMode.REQUIRED, exclusive=exclusive)
    return replace(gang(name, members), layers=(layer,))


def assert_as_worked_out_afresh(engine: Engine) -> None:
    """For each item that waits, and for one of each kind that does not."""
    kept, state = engine._exclusives, engine.state
    afresh = Exclusives(engine.cluster, engine.topologies, state, close_by_default=False)
    for key in (*state.item_keys(), *state.exclusive, "default/any"):
        plain = state.waiting_pods.get(key)
        found, expected = kept._owned(key, plain), afresh._owned(key, plain)
        assert (found is None) is (expected is None), key
        assert found is None or expected is None or np.array_equal(found, expected), key


class History:
    """Random changes of gangs, pods, nodes and topologies."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.engine = engine_of(8)
        self.pods: dict[str, Pod] = {}
        self.count = 0

    def step(self) -> None:
        dice = self.dice
        match dice.choice(["gang", "plain", "goes", "goes", "node", "topology", "group", "no group"]):
            case "gang":
                self.count += 1
                kind = dice.choice([Exclusive.KIND, Exclusive.ALL, Exclusive.NONE])
                made = pods(f"g{self.count}", 2, spec(gpu=1))
                self.pods |= {one.uid: one for one in made}
                group = wanting(f"g{self.count}", dice.choice(["rack", HOSTNAME]), kind)
                self.engine.handle(GroupChanged(group), *map(PodUpserted, made))
            case "plain":
                self.count += 1
                name = f"p{self.count}"
                self.pods[name] = replace(pods(None, 1, spec(gpu=1))[0], name=name, uid=name)
                self.engine.handle(PodUpserted(self.pods[name]))
            case "goes" if self.pods:
                uid = dice.choice(sorted(self.pods))
                pod = self.pods.pop(uid)
                ends: list[Event] = [PodDeleted(uid), PodUpserted(replace(pod, phase="Failed"))]
                self.engine.handle(dice.choice(ends))
            case "node":
                name, rack = f"n{dice.randrange(8)}", f"r{dice.randrange(4)}"
                labels = {"zone": "z", "rack": rack, HOSTNAME: name}
                there = NodeUpserted(node(name, labels, {GPU: 4}))
                nodes: list[Event] = [there, there, NodeDeleted(name)]
                self.engine.handle(dice.choice(nodes))
            case "topology":
                changes: list[Event] = [TopologyDeleted(FABRIC.name), TopologyChanged(FABRIC)]
                self.engine.handle(dice.choice(changes))
            case "group" if self.count:
                kind = dice.choice([Exclusive.KIND, Exclusive.ALL, Exclusive.NONE])
                name = f"g{dice.randint(1, self.count)}"
                self.engine.handle(GroupChanged(wanting(name, dice.choice(["rack", HOSTNAME]), kind)))
            case "no group" if self.count:
                self.engine.handle(GroupDeleted(f"default/g{dice.randint(1, self.count)}"))

    def decide(self) -> None:
        for one in bindings_of(self.engine.handle(Tick())):
            if self.dice.random() < 0.7:
                self.pods[one.pod.uid] = bound = replace(one.pod, node_name=one.node)
                self.engine.handle(PodUpserted(bound))


@pytest.mark.parametrize("seed", range(30))
def test_what_is_kept_is_what_would_be_worked_out(seed: int) -> None:
    history = History(seed)
    for _ in range(40):
        history.step()
        if history.dice.random() < 0.5:
            history.decide()
        history.engine.validate_state()
        assert_as_worked_out_afresh(history.engine)


def test_a_decision_works_out_nothing_of_gangs_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(60)
    for number in range(50):
        members = pods(f"g{number}", 2, spec(gpu=1), on=f"n{number}")
        running = [replace(one, node_name=f"n{number}") for one in members]
        group = wanting(f"g{number}", HOSTNAME, Exclusive.KIND)
        engine.handle(GroupChanged(group), *map(PodUpserted, running))
    asked: list[str] = []
    held_by = Exclusives._held_by

    def counting(self: Exclusives, owner: str, *rest: object) -> object:
        asked.append(owner)
        return held_by(self, owner, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Exclusives, "_held_by", counting)
    for number in range(10):
        name = f"p{number}"
        engine.handle(PodUpserted(replace(pods(None, 1, spec(gpu=1))[0], name=name, uid=name)), Tick())
    assert len(asked) == 50
    engine.handle(
        PodDeleted("default/g7-0"), PodUpserted(replace(pods(None, 1, spec(gpu=1))[0], uid="one")), Tick()
    )
    assert asked[50:] == ["default/g7"]


def test_a_job_asks_for_the_kind_of_no_plain_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(8)
    plain = pods(None, 16, spec(gpu=1))
    engine.handle(*(PodUpserted(replace(one, node_name=f"n{at % 4}")) for at, one in enumerate(plain)))
    asked: list[Pod] = []

    def counting(pod: Pod) -> str:
        asked.append(pod)
        return exclusive_kind(pod)

    monkeypatch.setattr("closeby.scheduling.placing.exclusive.exclusive_kind", counting)
    job = wanting("job", "rack", Exclusive.KIND)
    members = [replace(one, owner="JobSet/job") for one in pods("job", 2, spec(gpu=1))]
    assert len(bindings_of(engine.handle(GroupChanged(job), *map(PodUpserted, members), Tick()))) == 2
    assert asked and all(one.group == "job" for one in asked)


def test_the_domains_that_keep_an_item_off_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(8)
    (member,) = pods("owner", 1, spec(gpu=1))
    owner = wanting("owner", "rack", Exclusive.ALL, 1)
    engine.handle(GroupChanged(owner), PodUpserted(replace(member, node_name="n0")))
    engine.handle(*map(PodUpserted, pods(None, 1, spec(gpu=1))))
    exclusives, listed = engine._exclusives, list[str]()
    domains = exclusives._domains

    def counting(key: str, plain: Pod | None) -> Iterator[OwnedDomain]:
        listed.append(key)
        return domains(key, plain)

    monkeypatch.setattr(exclusives, "_domains", counting)
    hold = exclusives.off(Comer(next(iter(engine.state.waiting_pods)), 0))
    assert hold is not None
    said = {hold.says(slot, namespace) for slot in (0, 1) for namespace in ("default", "another")}
    assert len(said) == 2 and len(listed) == 1
