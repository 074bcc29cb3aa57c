"""All nodes at once are put in the order that comparing them one by one gives."""

from random import Random
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from closeby.objects.labels import selector_of
from closeby.objects.pods import PodDisruptionBudget
from closeby.plugins.default_preemption import DefaultPreemption
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import BudgetChanged, GroupChanged, NodeUpserted, PodUpserted, Tick
from closeby.scheduling.extension import Handle
from closeby.scheduling.preempting.nodes import NodeCandidate, NodeChoice, PodQuestion
from closeby.scheduling.preempting.rule import Preemptible, PreemptionRule
from closeby.scheduling.preempting.victims import Victims
from closeby.scheduling.profile import Profile
from tests.worlds import GPU, gang, node, pods, spec

NOW = 1_000.0


class Both(DefaultPreemption):
    """Notes the order of the nodes in both ways."""

    orders: ClassVar[list[tuple[list[Any], list[Any]]]] = []

    def node_for(self, question: PodQuestion, victims: Victims) -> NodeChoice | None:
        quick = [plain(victims, one) for one in question.in_order(victims)]
        exact = [plain(victims, one) for one in question.in_order(victims, one_by_one=True)]
        self.orders.append((quick, exact))
        return super().node_for(question, victims)


def plain(victims: Victims, one: NodeCandidate) -> tuple[object, ...]:
    names = sorted(victims.running.pods[row].key for unit in one.units for row in unit.pods)
    return one.slot, names, one.cost


def draw(seed: int) -> None:
    """Nodes with pods and gangs of all kinds, and pods that look for a node."""
    random = Random(seed)

    def profile(handle: Handle) -> Profile:
        rule = PreemptionRule(pdb=random.choice((None, "soft", "strict")))
        return replace(profile_for(Configuration(), handle), post_filters=(Both(rule, handle),))

    engine = Engine(profile, backoff=False)
    engine.preempt(Preemptible(reports=True))
    names = [f"n{index}" for index in range(random.randint(1, 12))]
    plain_pods = random.random() < 0.5
    for name in names:
        engine.handle(NodeUpserted(node(name, {}, {GPU: random.choice((2, 4)), "cpu": 8})))
    for index in range(random.randint(3, 40)):
        group = None if plain_pods or random.random() < 0.6 else f"g{index}"
        count = 1 if group is None else random.randint(1, 3)
        needs = replace(spec(gpu=random.choice((0, 1, 1, 2)), cpu=random.choice((0, 1, 3))))
        needs = replace(needs, priority=random.choice((0, 0, 5, 9, 50)))
        fields: dict[str, Any] = {"started": random.choice((None, 10.0, 20.0, 900.0))}
        fields["grace"] = random.choice((30, 30, 900))
        if random.random() < 0.4:
            fields["labels"] = {random.choice(("app", "tier")): "covered"}
        if group is not None:
            record = gang(group, random.choice((count, count, 1)))
            record = replace(record, disruption=random.choice((None, None, "all", "single")))
            engine.handle(GroupChanged(record))
        made = pods(group, count, needs, prefix=f"p{index}", **fields)
        engine.handle(
            *(
                PodUpserted(replace(pod, node_name=random.choice(names), terminating=random.random() < 0.1))
                for pod in made
            )
        )
    for name in ("app", "tier"):
        if random.random() < 0.5:
            selector = selector_of({name: "covered"})
            allowed = random.randint(0, 3)
            budget = PodDisruptionBudget(namespace="default", name=name, selector=selector, allowed=allowed)
            engine.handle(BudgetChanged(budget))
    for index in range(3):
        needs = replace(spec(gpu=random.choice((1, 2, 4)), cpu=random.choice((0, 2))), priority=10)
        engine.handle(PodUpserted(pods(None, 1, needs, prefix=f"high{index}")[0]))
    engine.handle(Tick(wall=NOW))


@pytest.mark.parametrize("seeds", range(20))
def test_the_order_is_that_of_the_exact_costs(seeds: int) -> None:
    Both.orders.clear()
    for seed in range(seeds * 10, seeds * 10 + 10):
        draw(seed)
        for quick, exact in Both.orders:
            assert quick == exact, f"seed {seed}"
    assert any(len(quick) > 1 for quick, _ in Both.orders)
