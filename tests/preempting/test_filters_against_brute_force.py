"""Tiny worlds in which more than one resource counts: no set of victims is cheaper that the filters accept.

Each set of victims is judged by an engine from which they are gone: with taints, host ports, anti-affinity in
both directions, volumes for one pod alone, and two resources.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations
from math import inf
from random import Random
from typing import Any

import pytest

from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import HostPort, InlineDisk
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, selector_of
from closeby.scheduling.outcomes import EvictionCost
from closeby.scheduling.preemption.rule import Preemptible
from tests.preempting.site import NOW, RESTART, Site
from tests.worlds import GPU, node

HIGH = 100
NOISY = PodAffinityTerm(topology_key=HOSTNAME, selector=selector_of({"app": "noisy"}))
TRAIN = PodAffinityTerm(topology_key=HOSTNAME, selector=selector_of({"app": "high"}))
RACKS = {"a1": "ra", "a2": "ra", "b1": "rb", "b2": "rb"}


class Tiny:
    """Two racks of two nodes, up to seven pods and gangs on them, and what waits: a gang or a pod."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = Random(seed)
        self.tainted = {name for name in RACKS if random.random() < 0.2}
        self.sizes = {name: (random.choice((2, 3)), random.choice((4, 6))) for name in RACKS}
        self.gang = random.random() < 0.6
        self.wanted = random.randint(1, 3) if self.gang else 1
        self.gpu, self.cpu = random.choice((1, 1, 2)), random.choice((0, 2, 3))
        self.needs: dict[str, Any] = {}
        match random.randrange(4):
            case 0:
                self.needs["host_ports"] = (HostPort(port=80),)
            case 1:
                self.needs["pod_affinity"] = PodAffinity(forbidden=(NOISY,))
            case 2:
                self.needs["inline_disks"] = (InlineDisk("rbd", "pool/one"),)
        #: Name, nodes, whether it is a gang, and its fields.
        self.running: list[tuple[str, list[str], bool, dict[str, Any]]] = []
        free = {name: list(size) for name, size in self.sizes.items()}
        for index in range(random.randint(2, 7)):
            gpu, cpu = random.choice(((1, 0), (1, 2), (0, 3), (2, 1)))
            room = [name for name, left in free.items() if left[0] >= gpu and left[1] >= cpu]
            is_gang = random.random() < 0.4
            on = random.sample(room, min(len(room), random.randint(1, 2) if is_gang else 1))
            for name in on:
                free[name][0] -= gpu
                free[name][1] -= cpu
            if not on:
                continue
            fields: dict[str, Any] = {
                "gpu": gpu,
                "cpu": cpu,
                "priority": random.choice((0, 0, 10, 200)),
                "started": random.choice((NOW, NOW - 50, NOW - 100)),
                "grace": random.choice((1, 30, 600)),
            }
            if random.random() < 0.3:
                fields["labels"] = {"app": "noisy"}
            match random.randrange(6):
                case 0:
                    fields["needs"] = {"host_ports": (HostPort(port=80),)}
                case 1:
                    fields["needs"] = {"pod_affinity": PodAffinity(forbidden=(TRAIN,))}
                case 2:
                    fields["needs"] = {"inline_disks": (InlineDisk("rbd", "pool/one"),)}
            self.running.append((f"u{index}", on, is_gang, fields))

    def nodes(self, only: str | None) -> list[Node]:
        return [
            node(
                name,
                {"zone": "z", "rack": rack},
                {GPU: self.sizes[name][0], "cpu": self.sizes[name][1]},
                taints=[Taint(key="kept", value="", effect="NoSchedule")] if name in self.tainted else [],
                unschedulable=only not in (None, rack),
            )
            for name, rack in RACKS.items()
        ]

    def site(self, gone: Iterable[int] = (), only: str | None = None, **arguments: Any) -> Site:
        """With all that runs but what is gone, and with one rack that takes pods, or all."""
        whose = Preemptible(reports=True)
        site = Site(self.nodes(only), whose=whose, maxGrace="1m", **arguments)
        left_out = set(gone)
        for number, (name, on, is_gang, fields) in enumerate(self.running):
            if number not in left_out:
                if is_gang:
                    site.running(name, on, **fields)
                else:
                    site.alone(name, on[0], **fields)
        fields = {"gpu": self.gpu, "cpu": self.cpu, "needs": self.needs, "labels": {"app": "high"}}
        if self.gang:
            site.waiting("high", self.wanted, priority=HIGH, **fields)
        else:
            site.alone("high", priority=HIGH, **fields)
        return site

    def fits(self, gone: Sequence[int], only: str) -> bool:
        site = self.site(gone, only, preemption="off")
        site.tick()
        return len(site.where) == self.wanted

    def price(self, gone: Sequence[int], where: str) -> EvictionCost:
        """``where``: the rack, or the node, that is cleared."""
        units = [self.running[number] for number in gone]
        homes = [(name, fields["gpu"]) for _, on, _, fields in units for name in on]
        stay = {name for n, (_, on, _, _) in enumerate(self.running) if n not in gone for name in on}
        return EvictionCost(
            0,
            0,
            max((fields["priority"] for *_, fields in units), default=-inf),
            any(fields["grace"] > 60 for *_, fields in units),
            sum(fields["gpu"] * len(on) * (NOW - fields["started"] + RESTART) for _, on, _, fields in units),
            sum(is_gang for _, _, is_gang, _ in units),
            sum(gpu for _, gpu in homes),
            sum(gpu for name, gpu in homes if where not in (name, RACKS[name])),
            max((fields["grace"] for *_, fields in units), default=0),
            len(homes),
            len({name for name, _ in homes} & stay),
        )

    def cheapest(self) -> EvictionCost | None:
        may = [n for n, (*_, fields) in enumerate(self.running) if fields["priority"] < HIGH]
        sets = chain.from_iterable(combinations(may, size) for size in range(len(may) + 1))
        return min(
            (self.price(gone, rack) for gone in sets for rack in ("ra", "rb") if self.fits(gone, rack)),
            default=None,
        )


@pytest.mark.parametrize("seed", range(80))
def test_no_set_of_victims_that_the_filters_accept_is_cheaper(seed: int) -> None:
    tiny = Tiny(seed)
    if not tiny.gang:
        pytest.skip("plain pods go by upstream's order")
    site = tiny.site()
    plans = site.tick()
    if site.where:
        assert not plans
        return
    best = tiny.cheapest()
    assert [plan.cost for plan in plans] == ([] if best is None else [best]), f"seed {seed}"
    for plan in plans:
        assert plan.exact
        assert site.evict(plan) == []
        assert len(site.where) == tiny.wanted


@pytest.mark.parametrize("seed", range(80))
def test_a_plain_pod_finds_a_node_wherever_one_can_be_cleared(seed: int) -> None:
    tiny = Tiny(seed)
    if tiny.gang:
        pytest.skip("gangs are judged by their cost")
    site = tiny.site()
    plans = site.tick()
    if site.where:
        assert not plans
        return
    may = [n for n, (*_, fields) in enumerate(tiny.running) if fields["priority"] < HIGH]
    assert bool(plans) == any(tiny.fits(may, rack) for rack in ("ra", "rb")), f"seed {seed}"
    for plan in plans:
        assert max(pod.spec.priority or 0 for pod in plan.victims) == plan.cost.highest_priority
        assert site.evict(plan) == []
        assert list(site.where.values()) == [plan.node]
