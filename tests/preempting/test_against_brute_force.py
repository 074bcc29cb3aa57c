"""Random small worlds: no set of victims is cheaper than the plan's, and none of the plan's can stay."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import inf
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodDisruptionBudget
from closeby.objects.selectors import selector_of
from closeby.scheduling.events import BudgetChanged
from closeby.scheduling.outcomes import EvictionCost, Preemption
from closeby.scheduling.preemption.rule import Preemptible
from tests.preempting.site import NOW, RESTART, SEMI_PREEMPTIBLE, Site
from tests.worlds import GPU, node

HIGH = 100


class Drawn:
    """A cluster of up to 12 nodes with up to 12 gangs and pods on it, and what waits."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.random = random
        racks = [f"rack-{index}" for index in range(random.randint(1, 3))]
        self.nodes: dict[str, tuple[str, int]] = {}
        for index in range(random.randint(2, 12)):
            self.nodes[f"n{index}"] = racks[index % len(racks)], random.choice((2, 4))
        self.gangs: dict[str, tuple[int, list[Pod]]] = {}
        self.wanted = random.randint(1, 6)
        self.gpu = random.choice((1, 2, 4))
        self.budget = random.choice((None, None, 0, 1, 2))
        #: The gangs that never go as a whole, for their minimum stays.
        self.minimum_stays: set[str] = set()

    def objects(self) -> list[Node]:
        return [
            node(name, {"zone": "z", "rack": rack}, {GPU: size}) for name, (rack, size) in self.nodes.items()
        ]

    def fill(self, site: Site) -> None:
        random, free = self.random, {name: size for name, (_, size) in self.nodes.items()}
        for index in range(random.randint(1, 12)):
            gpu = random.choice((1, 1, 2))
            room = [name for name, left in free.items() for _ in range(left // gpu)]
            size = min(random.randint(1, 4), len(room))
            if not size:
                break
            near = random.random() < 0.5
            on = (
                sorted(room, key=lambda name: self.nodes[name][0])[:size]
                if near
                else random.sample(room, size)
            )
            for name in on:
                free[name] -= gpu
            priority, started = random.choice((0, 0, 0, 10, 10, 200)), random.choice((0.0, NOW - 100, NOW))
            fields: dict[str, Any] = {"priority": priority, "gpu": gpu, "started": started}
            fields["grace"] = random.choice((1, 30, 600))
            if random.random() < 0.3:
                fields["labels"] = {"app": "covered"}
            if size == 1 and random.random() < 0.7:
                pod = site.alone(f"p{index}", on[0], **fields)
                self.gangs[pod.key] = 0, [pod]
                continue
            minimum = size if random.random() < 0.7 else random.randint(1, size)
            if random.random() < 0.3:
                self.minimum_stays.add(f"g{index}")
                fields["group"] = {"protected_by": SEMI_PREEMPTIBLE}
            made = site.running(f"g{index}", on, minimum=minimum, **fields)
            self.gangs[f"g{index}"] = minimum, made
        if self.budget is not None:
            selector = selector_of({"app": "covered"})
            site.tell(
                BudgetChanged(
                    PodDisruptionBudget(
                        namespace="default", name="b", selector=selector, max_unavailable=self.budget
                    )
                )
            )

    def ways(self) -> Iterator[Iterator[tuple[Pod, ...]]]:
        """By gang and pod alone: the sets of pods that may go."""
        for name, (minimum, made) in self.gangs.items():
            yield ways(minimum, made, name in self.minimum_stays)


def gpus(pod: Pod) -> int:
    return dict(pod.spec.requests)[GPU]


def ways(minimum: int, pods: Sequence[Pod], minimum_stays: bool) -> Iterator[tuple[Pod, ...]]:
    """The sets of one gang's pods that may go."""
    yield ()
    if (pods[0].spec.priority or 0) >= HIGH:
        return
    surplus = len(pods) - minimum if minimum else 0
    for count in range(1, surplus + 1):
        if count < len(pods):
            yield from combinations(pods, count)
    if not minimum_stays:
        yield tuple(pods)


def price(drawn: Drawn, gone: Sequence[Pod], rack: str) -> EvictionCost:
    broken = 0
    for minimum, pods in drawn.gangs.values():
        left = sum(pod not in gone for pod in pods)
        broken += bool(minimum) and left < len(pods) and left < minimum
    kept = [pod for _, pods in drawn.gangs.values() for pod in pods if pod not in gone]
    still = {pod.node_name for pod in kept}
    covered = sum(pod.labels.get("app") == "covered" for pod in gone)
    return EvictionCost(
        0,
        max(covered - drawn.budget, 0) if drawn.budget is not None else 0,
        max((pod.spec.priority or 0 for pod in gone), default=-inf),
        any(pod.grace > 60 for pod in gone),
        sum(gpus(pod) * (NOW - (pod.started or 0.0) + RESTART) for pod in gone),
        broken,
        sum(map(gpus, gone)),
        sum(gpus(pod) for pod in gone if drawn.nodes[pod.node_name or ""][0] != rack),
        max((pod.grace for pod in gone), default=0),
        len(gone),
        len({pod.node_name for pod in gone} & still),
    )


def room(drawn: Drawn, gone: Sequence[Pod]) -> Counter[str]:
    """Pods of the preemptor that fit in each rack."""
    used: Counter[str] = Counter()
    for _, pods in drawn.gangs.values():
        for pod in pods:
            if pod not in gone:
                used[pod.node_name or ""] += gpus(pod)
    found: Counter[str] = Counter()
    for name, (rack, size) in drawn.nodes.items():
        found[rack] += (size - used[name]) // drawn.gpu
    return found


def cheapest(drawn: Drawn) -> EvictionCost | None:
    """Over all sets of victims; budgets are never violated."""
    best: EvictionCost | None = None
    for chosen in product(*map(tuple, drawn.ways())):
        gone = [pod for some in chosen for pod in some]
        for rack, fits in room(drawn, gone).items():
            if fits >= drawn.wanted:
                cost = price(drawn, gone, rack)
                if not cost.pdb_violations and (best is None or cost < best):
                    best = cost
    return best


def planned(seed: int, *, shuffled: bool = False) -> tuple[Drawn, Site, list[Preemption]]:
    drawn = Drawn(seed)
    nodes = drawn.objects()
    whose = Preemptible(reports=True)
    site = Site(list(reversed(nodes)) if shuffled else nodes, whose=whose, maxGrace="1m")
    drawn.fill(site)
    site.waiting("train", drawn.wanted, priority=HIGH, gpu=drawn.gpu)
    return drawn, site, site.tick()


@pytest.mark.parametrize("seed", range(120))
def test_no_set_of_victims_is_cheaper(seed: int) -> None:
    drawn, site, plans = planned(seed)
    if site.where:
        assert not plans
        return
    sets = 1
    for gang in drawn.ways():
        sets *= sum(1 for _ in gang)
    if sets > 20_000:
        pytest.skip(f"{sets} sets of victims are too many to look at")
    check_cheapest(drawn, site, plans)


def check_cheapest(drawn: Drawn, site: Site, plans: list[Preemption]) -> None:
    best = cheapest(drawn)
    assert len(plans) == (best is not None)
    for plan in plans:
        assert best is not None
        # Victims that free several racks: the gang takes the one where it fits best.
        assert plan.cost == best._replace(outside=plan.cost.outside)
        assert plan.cost == price(drawn, plan.victims, plan.path[-1] or "")
        assert plan.exact
        assert site.evict(plan) == []
        assert len(site.where) == drawn.wanted


def test_the_gang_takes_the_smaller_of_two_racks_that_its_victims_free() -> None:
    """All of one gang goes in any case; the plan names the rack where the next one then is."""
    site = Site("z r1 : a1=2 a2=2\nz r2 : b1=2")
    site.running("low", ["a1", "a2", "b1"], gpu=2)
    site.waiting("train", 2)
    (plan,) = site.tick()
    assert (plan.path, plan.cost.accelerators, plan.cost.outside) == (("z", "r2"), 6, 4)
    assert site.evict(plan) == []
    assert set(site.where.values()) == {"b1"}


@pytest.mark.parametrize("seed", range(120))
def test_no_victim_could_stay_and_the_order_of_the_input_does_not_matter(seed: int) -> None:
    drawn, _, plans = planned(seed)
    _, _, again = planned(seed, shuffled=True)
    assert [(one.path, one.victims, one.cost) for one in plans] == [
        (one.path, one.victims, one.cost) for one in again
    ]
    for plan in plans:
        units = {pod.group or pod.uid for pod in plan.victims}
        for name in units:
            minimum, members = drawn.gangs.get(name, (0, []))
            mine = [pod for pod in plan.victims if (pod.group or pod.uid) == name]
            whole = not members or len(mine) == len(members)
            spared = [mine] if whole else [[pod] for pod in mine]
            for some in spared:
                left = [pod for pod in plan.victims if pod not in some]
                assert max(room(drawn, left).values()) < drawn.wanted, f"{some} could stay (min {minimum})"


@pytest.mark.parametrize("seed", range(60))
def test_a_plain_pod_takes_the_node_that_upstream_would(seed: int) -> None:
    """Without gangs: fewest violations, lowest top victim, smallest sum, fewest pods, latest start."""
    random = Random(seed)
    site = Site([node(f"n{index}", {}, {GPU: 4}) for index in range(6)])
    pods: dict[str, list[Pod]] = {f"n{index}": [] for index in range(6)}
    for name, here in pods.items():
        for index in range(4):
            priority, created = random.choice((0, 1, 2, 50)), float(random.randint(1, 9))
            here.append(site.alone(f"{name}-{index}", name, priority=priority, created=created))
    wanted = random.randint(1, 3)
    site.alone("high", priority=10, gpu=wanted)
    plans = site.tick()
    best = min(filter(None, (_upstream(name, here, wanted) for name, here in pods.items())), default=None)
    assert [(plan.node, sorted(pod.name for pod in plan.victims)) for plan in plans] == (
        [] if best is None else [(best[4], best[5])]
    )


def _upstream(name: str, here: Sequence[Pod], wanted: int) -> tuple[object, ...] | None:
    low = [pod for pod in here if (pod.spec.priority or 0) < 10]
    if len(low) < wanted:
        return None
    ordered = sorted(low, key=lambda pod: (-(pod.spec.priority or 0), pod.created or 0.0))
    gone = ordered[len(low) - wanted :]
    top = max(pod.spec.priority or 0 for pod in gone)
    earliest = min(pod.created or 0.0 for pod in gone if pod.spec.priority == top)
    total = sum(pod.spec.priority or 0 for pod in gone)
    return top, total, len(gone), -earliest, name, sorted(pod.name for pod in gone)


def test_a_node_may_be_full_of_what_stays() -> None:
    site = Site([node("n0", {}, {GPU: 1})])
    pod = site.alone("p", "n0", priority=5)
    assert replace(pod, node_name=None).node_name is None
    site.alone("high", priority=5)
    assert site.tick() == []
