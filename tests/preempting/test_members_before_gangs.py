"""A plain pod evicts members beyond a gang's minimum before it breaks one, whatever refuses it a node."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import HostPort, Pod
from closeby.objects.selectors import PodAffinity, PodAffinityTerm, selector_of
from closeby.scheduling.events import GroupChanged, PodUpserted
from tests.preempting.site import NOW, SEMI_PREEMPTIBLE, Site, names, ways
from tests.worlds import GPU, gang, node, pods, spec

PORT = {"host_ports": (HostPort(port=80),)}
APART = {
    "pod_affinity": PodAffinity(
        forbidden=(PodAffinityTerm(topology_key=HOSTNAME, selector=selector_of({"app": "high"})),)
    )
}


def nodes(count: int, gpu: int = 4) -> Site:
    return Site([node(f"n{index}", {}, {GPU: gpu}) for index in range(1, count + 1)])


@pytest.mark.parametrize("needs", [PORT, APART])
def test_the_member_that_is_in_the_way_goes_alone(needs: dict[str, object]) -> None:
    site = nodes(2)
    site.running("elastic", ["n1", "n2"], minimum=1, needs=needs)
    site.alone("high", priority=10, labels={"app": "high"}, needs=PORT)
    [plan] = site.tick()
    assert (len(plan.victims), plan.cost.gangs_broken) == (1, 0)
    assert site.evict(plan) == []
    assert site.where == {"high": plan.node}


def test_a_member_may_go_where_its_gang_may_not_go_as_a_whole() -> None:
    site = nodes(2)
    site.running("elastic", ["n1"], minimum=1, needs=PORT)
    kept = pods("elastic", 1, replace(spec(gpu=1), priority=100, **PORT), prefix="kept", on="n2")
    site.tell(*map(PodUpserted, kept))
    site.alone("high", priority=10, needs=PORT)
    [plan] = site.tick()
    assert (plan.node, names(plan)) == ("n1", ["elastic-0"])


def test_one_gang_is_broken_and_the_other_gives_a_member_where_both_are_needed() -> None:
    site = nodes(2)
    site.running("one", ["n1", "n1", "n2"], minimum=2)
    site.running("two", ["n1", "n1", "n2"], minimum=2)
    site.alone("full", "n2", gpu=2, priority=100)
    site.alone("high", priority=10, gpu=3)
    [plan] = site.tick()
    assert (len(plan.victims), plan.cost.gangs_broken) == (4, 1)


def test_of_members_of_several_sizes_the_one_goes_that_is_large_enough() -> None:
    site = nodes(2, gpu=3)
    site.running("elastic", ["n1", "n2"], minimum=2)
    large = pods("elastic", 1, replace(spec(gpu=2), priority=0), prefix="large", on="n1", created=0.0)
    site.tell(*map(PodUpserted, large))
    site.alone("full", "n2", gpu=2, priority=100)
    site.alone("high", priority=10, gpu=2)
    [plan] = site.tick()
    assert names(plan) == ["large-0"]


class Elastic:
    """Up to three nodes full of gangs, some of which have members beyond their minimum."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.sizes = {f"n{index}": random.choice((3, 4, 6)) for index in range(random.randint(1, 3))}
        free = dict(self.sizes)
        self.gpu = random.randint(1, 3)
        self.ports = random.random() < 0.4
        #: By name: the minimum, and the node, GPUs and port of each member.
        self.gangs: dict[str, tuple[int, list[Pod]]] = {}
        #: The gangs that never go as a whole, for their minimum stays.
        self.minimum_stays: set[str] = set()
        for index in range(random.randint(2, 5)):
            name, made = f"g{index}", list[Pod]()
            priority = random.choice((0, 0, 10, 200))
            for member in range(random.randint(1, 4)):
                gpu = random.choice((1, 1, 2))
                room = [one for one, left in free.items() if left >= gpu]
                if not room:
                    break
                on = random.choice(room)
                free[on] -= gpu
                needs = replace(spec(gpu=gpu, cpu=0), priority=priority)
                if random.random() < 0.3:
                    needs = replace(needs, **PORT)
                started = random.choice((NOW, NOW - 50))
                made += pods(name, 1, needs, prefix=f"{name}-{member}", on=on, created=0.0, started=started)
            if made:
                self.gangs[name] = random.randint(1, len(made)), made
                if random.random() < 0.3:
                    self.minimum_stays.add(name)

    def site(self) -> Site:
        site = Site([node(name, {}, {GPU: size}) for name, size in self.sizes.items()])
        for name, (minimum, made) in self.gangs.items():
            request = SEMI_PREEMPTIBLE if name in self.minimum_stays else None
            group = replace(gang(name, minimum), protected_by=request)
            site.tell(GroupChanged(group), *map(PodUpserted, made))
        return site

    def fits(self, gone: set[str], on: str) -> bool:
        here = [pod for _, made in self.gangs.values() for pod in made if pod.node_name == on]
        left = [pod for pod in here if pod.uid not in gone]
        free = self.sizes[on] - sum(dict(pod.spec.requests)[GPU] for pod in left)
        return free >= self.gpu and not (self.ports and any(pod.spec.host_ports for pod in left))


@pytest.mark.parametrize("seed", range(100))
def test_no_member_could_stay(seed: int) -> None:
    drawn = Elastic(seed)
    site = drawn.site()
    site.alone("high", priority=100, gpu=drawn.gpu, needs=PORT if drawn.ports else {})
    for plan in site.tick():
        gone, on = {pod.uid for pod in plan.victims}, plan.node or ""
        assert drawn.fits(gone, on)
        for name, (minimum, members) in drawn.gangs.items():
            mine = {pod.uid for pod in members} & gone
            sets = list(ways(minimum, members, minimum_stays=name in drawn.minimum_stays))
            assert mine in sets, f"{sorted(mine)} may not go without the rest (minimum {minimum})"
            fewer = [some for some in sets if some < mine and drawn.fits(gone - mine | some, on)]
            assert not fewer, f"{sorted(fewer[0])} instead of {sorted(mine)} would be enough"


@pytest.mark.parametrize(
    "fields",
    [
        {"group": {"protected_by": SEMI_PREEMPTIBLE}},
        {"labels": {"kai.scheduler/preemptibility": "semi-preemptible"}},
    ],
)
@pytest.mark.parametrize(("gpu", "victims"), [(1, [1]), (2, [])])
def test_only_members_beyond_the_minimum_of_a_semi_preemptible_gang_go(
    fields: dict[str, Any], gpu: int, victims: list[int]
) -> None:
    site = nodes(1)
    site.running("elastic", ["n1"] * 4, minimum=3, **fields)
    site.alone("high", priority=10, gpu=gpu)
    plans = site.tick()
    assert [len(plan.victims) for plan in plans] == victims
    assert all(plan.cost.gangs_broken == 0 for plan in plans)


def test_no_member_of_a_semi_preemptible_gang_goes_beyond_its_minimum_where_each_may_go_alone() -> None:
    site = nodes(1)
    site.running(
        "elastic", ["n1"] * 4, minimum=3, group={"protected_by": SEMI_PREEMPTIBLE, "disruption": "single"}
    )
    site.alone("high", priority=10, gpu=2)
    assert site.tick() == []


def test_a_semi_preemptible_pod_without_a_gang_stays() -> None:
    site = nodes(1)
    site.alone("low", "n1", gpu=4, labels={"kai.scheduler/preemptibility": "semi-preemptible"})
    site.alone("high", priority=10)
    assert site.tick() == []


def test_a_semi_preemptible_group_without_a_minimum_may_go() -> None:
    site = nodes(1)
    site.running("loose", ["n1"], minimum=0, gpu=4, group={"protected_by": SEMI_PREEMPTIBLE})
    site.alone("high", priority=10)
    [plan] = site.tick()
    assert names(plan) == ["loose-0"]
