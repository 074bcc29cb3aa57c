"""The nodes that a plain pod may clear, in random worlds: order and costs are those of a plain reading of the
rules, one node after the other."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, combinations, product
from math import inf, prod
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.objects.pods import Pod, PodDisruptionBudget
from closeby.objects.selectors import selector_of
from closeby.scheduling.events import BudgetChanged, GroupChanged, PodUpserted
from closeby.scheduling.outcomes import EvictionCost
from closeby.scheduling.preemption.rule import Preemptible
from tests.preempting.site import NOW, RESTART, Site
from tests.worlds import GPU, gang, node, pods, spec

HIGH = 10


class Drawn:
    """Nodes with pods and gangs of all kinds, and a pod that looks for a node."""

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        self.sizes = {f"n{at}": {GPU: random.choice((2, 4)), "cpu": 8} for at in range(random.randint(1, 12))}
        self.pdb = random.choice((None, "soft", "strict"))
        self.allowed = {name: random.randint(0, 3) for name in ("app", "tier") if random.random() < 0.5}
        self.asks = {GPU: random.choice((1, 2, 4)), "cpu": random.choice((0, 2))}
        #: By gang, or by pod: its pods, how many of them may go alone, and how many without breaking it.
        self.holders: list[tuple[list[Pod], int, int]] = []
        arguments: dict[str, Any] = {} if self.pdb is None else {"pdb": self.pdb}
        self.site = Site(
            [node(name, {}, size) for name, size in self.sizes.items()],
            whose=Preemptible(reports=True),
            explain=True,
            **arguments,
        )
        for name, allowed in self.allowed.items():
            selector = selector_of({name: "covered"})
            budget = PodDisruptionBudget(namespace="default", name=name, selector=selector, allowed=allowed)
            self.site.tell(BudgetChanged(budget))
        alone = random.choice((0.6, 1.0))
        for index in range(random.randint(3, 24)):
            self._add(index, None if random.random() < alone else f"g{index}")
        self.site.alone("high", priority=HIGH, gpu=self.asks[GPU], cpu=self.asks["cpu"])

    def _add(self, index: int, group: str | None) -> None:
        random, count = self._random, 1 if group is None else self._random.randint(1, 3)
        needs = spec(gpu=random.choice((0, 1, 1, 2)), cpu=random.choice((0, 1, 3)))
        needs = replace(needs, priority=random.choice((0, 0, 5, 9, 50)))
        fields: dict[str, Any] = {"started": random.choice((None, 10.0, 20.0, 900.0)), "created": None}
        fields["grace"] = random.choice((30, 30, 900))
        if random.random() < 0.4:
            fields["labels"] = {random.choice(("app", "tier")): "covered"}
        made = [
            replace(pod, node_name=random.choice(list(self.sizes)), terminating=random.random() < 0.1)
            for pod in pods(group, count, needs, prefix=f"p{index}", **fields)
        ]
        stay = [pod for pod in made if not pod.terminating]
        single, surplus = 0, 0
        if group is not None:
            minimum, disruption = (
                random.choice((count, count, 1)),
                random.choice((None, None, "all", "single")),
            )
            self.site.tell(GroupChanged(replace(gang(group, minimum), disruption=disruption)))
            surplus = 0 if disruption == "all" else max(len(stay) - minimum, 0)
            single = len(stay) if disruption == "single" else surplus
        self.site.tell(*map(PodUpserted, made))
        self.holders.append((made, single if len(stay) > 1 else 0, surplus))

    def fits(self, name: str, gone: set[str]) -> bool:
        stay = (pod for made, _, _ in self.holders for pod in made if pod.node_name == name)
        taken = Counter[str]()
        for pod in stay:
            if pod.uid not in gone and not (pod.terminating and priority(pod) < HIGH):
                taken.update(dict(pod.spec.requests))
        free = {resource: most - taken[resource] for resource, most in self.sizes[name].items()}
        return all(free[resource] >= amount for resource, amount in self.asks.items() if amount)

    def violations(self, gone: Sequence[Pod]) -> int:
        covered = Counter(name for pod in gone for name in pod.labels if name in self.allowed)
        return sum(max(count - self.allowed[name], 0) for name, count in covered.items())

    def cost(self, name: str, gone: Sequence[Pod]) -> EvictionCost:
        uids, broken = {pod.uid for pod in gone}, 0
        for made, _, surplus in self.holders:
            stay = [pod for pod in made if not pod.terminating]
            lost = sum(pod.uid in uids for pod in stay)
            broken += made[0].group is not None and lost > 0 and (lost == len(stay) or lost > surplus)
        kept = {
            pod.node_name
            for made, _, _ in self.holders
            for pod in made
            if pod.uid not in uids and not (pod.terminating and priority(pod) < HIGH)
        }
        return EvictionCost(
            0,
            self.violations(gone),
            max(map(priority, gone), default=-inf),
            any(pod.grace > 600 for pod in gone),
            sum(gpus(pod) * (RESTART + (NOW - pod.started if pod.started else 0.0)) for pod in gone),
            broken,
            sum(map(gpus, gone)),
            sum(gpus(pod) for pod in gone if pod.node_name != name),
            max((pod.grace for pod in gone), default=0),
            len(gone),
            len({pod.node_name for pod in gone} & kept),
        )

    def sets(self, name: str) -> int:
        """How many sets of pods may go for a node, at the most."""
        singles = (single and sum(pod.node_name == name for pod in made) for made, single, _ in self.holders)
        return prod(2**count for count in singles)

    def going(self, name: str) -> list[Pod] | None:
        """Who goes on a node; None where that is not enough."""
        here = []
        for made, single, _ in self.holders:
            stay = [pod for pod in made if not pod.terminating]
            on_node = [pod for pod in stay if pod.node_name == name]
            if on_node and priority(made[0]) < HIGH:
                here.append((stay, on_node, single))
        if any(single for _, _, single in here):
            sets = [list(chain(*some)) for some in product(*(ways(*one) for one in here))]
            sets = [some for some in sets if self.pdb != "strict" or not self.violations(some)]
            sets = [some for some in sets if self.fits(name, {pod.uid for pod in some})]
            return min(sets, key=lambda some: self.cost(name, some), default=None)
        return self._reprieved(name, [stay for stay, _, _ in here])

    def _reprieved(self, name: str, units: list[list[Pod]]) -> list[Pod] | None:
        """All go, and come back if they can: those first that a budget protects, then the most important."""
        order, covered = sorted(units, key=importance), Counter[str]()
        violating: list[list[Pod]] = []
        for unit in order:
            covered.update(label for pod in unit for label in pod.labels)
            if any(covered[label] > self.allowed.get(label, 99) for label in unit[0].labels):
                violating.append(unit)
        others = [unit for unit in order if unit not in violating]
        gone = others if self.pdb == "strict" else [*violating, *others]
        if not self.fits(name, {pod.uid for unit in gone for pod in unit}):
            return None
        for unit in tuple(gone):
            rest = [one for one in gone if one is not unit]
            if self.fits(name, {pod.uid for one in rest for pod in one}):
                gone = rest
        return list(chain(*gone))

    def key(self, name: str, gone: Sequence[Pod]) -> tuple[object, ...]:
        """Upstream's order where no gang is broken, the order of costs among the others."""
        cost = self.cost(name, gone)
        first = *cost[:4], cost.gangs_broken
        if cost.gangs_broken:
            return *first, cost, int(name[1:])
        top = [pod.started for pod in gone if priority(pod) == cost.highest and pod.started is not None]
        total = sum(priority(pod) + (1 << 31) for pod in gone)
        return *first, (total, cost.pods, -min(top, default=0.0)), int(name[1:])


def priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def gpus(pod: Pod) -> int:
    return dict(pod.spec.requests).get(GPU, 0)


def importance(unit: Sequence[Pod]) -> tuple[object, ...]:
    started = min(inf if pod.started is None else pod.started for pod in unit)
    gang_name = unit[0].group and f"default/{unit[0].group}"
    slow = any(pod.grace > 600 for pod in unit)
    return -priority(unit[0]), not slow, not gang_name, started, gang_name or unit[0].key


def ways(stay: Sequence[Pod], on_node: Sequence[Pod], single: int) -> Iterator[tuple[Pod, ...]]:
    """The pods of a gang that may go together for a node."""
    yield from chain.from_iterable(
        combinations(on_node, count) for count in range(min(single, len(on_node)) + 1)
    )
    yield tuple(stay)


@pytest.mark.parametrize("seed", range(200))
def test_nodes_come_in_the_order_of_the_rules(seed: int) -> None:
    drawn = Drawn(seed)
    plans = drawn.site.tick()
    if drawn.site.where or max(map(drawn.sets, drawn.sizes)) > 1_000:
        return
    going = {name: gone for name in drawn.sizes if (gone := drawn.going(name)) is not None}
    order = sorted(going, key=lambda name: drawn.key(name, going[name]))
    expected = [(name, drawn.cost(name, going[name])) for name in order]
    assert [plan.node for plan in plans] == order[:1]
    assert [(one.path[0], one.cost) for plan in plans for one in plan.domains if one.cost] == expected
