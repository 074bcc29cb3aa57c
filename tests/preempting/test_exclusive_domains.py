"""Domains that gangs have for themselves: victims may be anywhere in them, also on nodes that stay unused."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.scheduling.events import TopologyChanged
from closeby.scheduling.outcomes import Preemption
from tests.preempting.site import Site, names
from tests.preempting.test_layers_against_brute_force import BLOCK, HIGH, RACK, Drawn
from tests.worlds import GPU, gang, node

TWO_RACKS = """
z r1 : a1=1 a2=2
z r2 : b1=1
"""


def only(plans: list[Preemption]) -> Preemption:
    assert len(plans) == 1
    return plans[0]


@pytest.mark.parametrize("inner", ["rack", HOSTNAME])
def test_all_of_a_domain_goes_for_a_gang_that_has_it_for_itself_by_a_coarse_layer(inner: str) -> None:
    """One segment in a zone of its own, and in one rack or node of it: the pods of both racks must go."""
    site = Site(TWO_RACKS)
    here, there = site.alone("here", "a2"), site.alone("there", "b1")
    layers = (Layer(level="zone", size=2, exclusive=Exclusive.ALL), Layer(level=inner, size=2))
    site.waiting("train", 2, group=replace(gang("train", 2), layers=layers))
    plan = only(site.tick())
    assert (names(plan), plan.level, plan.path) == ([here.name, there.name], "zone", ("z",))
    assert plan.exact
    assert site.evict(plan) == []
    assert set(site.where.values()) == {"a2"}


def owner(site: Site, on: list[str], level: str, minimum: int) -> None:
    """A gang with one pod in each of its domains, which it has for itself."""
    layers = (Layer(level=level, size=1, exclusive=Exclusive.ALL),)
    site.running("owner", on, minimum=minimum, group={"layers": layers})


ON_ONE_NODE = replace(gang("train", 1), layers=(Layer(level=HOSTNAME, size=1),))
IN_ONE_RACK = gang("train", 1, required="rack")


@pytest.mark.parametrize("group", [ON_ONE_NODE, IN_ONE_RACK, None], ids=["node", "rack", "pod"])
@pytest.mark.parametrize(("on", "level"), [("a1", "rack"), ("a1", "zone"), ("b1", "zone")])
def test_a_gang_goes_for_a_node_in_its_domain_that_it_does_not_use(
    on: str, level: str, group: PodGroup | None
) -> None:
    """Only a2 has two GPUs; the gang that keeps others off it is elsewhere in the rack or the zone."""
    site = Site(TWO_RACKS)
    owner(site, [on], level, 1)
    if group is None:
        site.alone("train", gpu=2, priority=100)
    else:
        site.waiting("train", 1, gpu=2, group=group)
    plan = only(site.tick())
    assert (names(plan), plan.cost.pods) == (["owner-0"], 1)
    assert site.evict(plan) == []
    assert set(site.where.values()) == {"a2"}


@pytest.mark.parametrize("group", [ON_ONE_NODE, None], ids=["node", "pod"])
def test_the_member_in_a_domain_goes_alone_where_the_gang_can_spare_it(group: PodGroup | None) -> None:
    """The gang has both racks for itself, and one member is enough: that in the rack of a2 goes."""
    site = Site(TWO_RACKS)
    owner(site, ["a1", "b1"], "rack", 1)
    if group is None:
        site.alone("train", gpu=2, priority=100)
    else:
        site.waiting("train", 1, gpu=2, group=group)
    plan = only(site.tick())
    assert (names(plan), plan.cost.gangs_broken) == (["owner-0"], 0)
    assert site.evict(plan) == []
    assert set(site.where.values()) == {"a2"}


def test_an_owner_that_may_not_go_keeps_its_domain() -> None:
    site = Site(TWO_RACKS)
    owner(site, ["a1"], "rack", 1)
    site.waiting("equal", 1, priority=0, gpu=2, group=replace(ON_ONE_NODE, name="equal"))
    assert site.tick() == []
    assert not site.where


@pytest.mark.parametrize("group", [ON_ONE_NODE, IN_ONE_RACK], ids=["node", "rack"])
def test_the_cost_of_a_domain_is_explained_where_more_must_go_than_for_room(group: PodGroup) -> None:
    site = Site(TWO_RACKS, explain=True)
    owner(site, ["b1"], "zone", 1)
    site.waiting("train", 1, gpu=2, group=group)
    plan = only(site.tick())
    costs = [(one.path, one.cost, one.victims) for one in plan.domains if one.cost is not None]
    assert costs == [(plan.path, plan.cost, plan.victims)]


@pytest.mark.parametrize("chunk", range(4))
def test_a_plain_pod_gets_a_node_exactly_where_some_victims_help(chunk: int) -> None:
    """Random worlds of gangs with racks and blocks for themselves, against all sets of victims."""
    for seed in range(chunk * 100, (chunk + 1) * 100):
        world = Drawn(seed)
        wanted = 1 + seed % 4
        world.exclusive, world.gpu = Exclusive.NONE, 1
        site = Site([node(name, labels(path), {GPU: world.size[name]}) for name, path in world.path.items()])
        site.tell(TopologyChanged(world.topology()))
        world.fill(site)
        world.runs.clear()
        site.alone("high", gpu=wanted, priority=HIGH)
        sets = world.sets()
        if not world.holders or not sets:
            continue
        enough = [gone for gone in sets if takes(world, wanted, gone)]
        plans = site.tick()
        assert bool(site.where) == (set() in enough), f"seed {seed}"
        assert bool(plans) == bool(enough and not site.where), f"seed {seed}"
        for plan in plans:
            gone = {pod.uid for pod in plan.victims}
            assert gone in enough and not any(one < gone for one in enough), f"seed {seed}: {gone}"
            assert site.evict(plan) == [] and site.where, f"seed {seed}"


def labels(path: Sequence[str]) -> dict[str, str]:
    return {"block": path[0], "rack": path[1]}


def takes(world: Drawn, wanted: int, gone: set[str]) -> bool:
    """Whether a node takes a pod of so many GPUs without these pods."""
    owned, _ = world.barred(gone)
    return any(
        left >= wanted and owned.isdisjoint((world.path[name][:BLOCK], world.path[name][:RACK]))
        for name, left in world.free(gone).items()
    )
