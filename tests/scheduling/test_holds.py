"""Who may take nodes that are held for somebody: the truth table of holds and of those that come.

The only room is on the nodes of one rack, which are held. A case passes where the item gets one of them.
"""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.objects.groups import Exclusive, Layer, PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    GroupChanged,
    NodeUpserted,
    PlacesAsked,
    PodDeleted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import Outcome, bindings_of
from closeby.scheduling.preemption.rule import Preemptible
from tests.scheduling.test_places_for_pods_to_come import asked, real
from tests.worlds import draw, fabric, gang, pods, spec

AFTER = 600.0
#: The priority of the one for whom nodes are held.
HOLDER = 10
LOWER, EQUAL, HIGHER = 5, 10, 20


class Site:
    """Two racks of two nodes. Each has two GPUs for the others, and one for what is there at first."""

    def __init__(self, *, place: bool = False) -> None:
        """``place``: one is held on the first node."""
        self.engine = Engine(
            lambda handle: profile_for(Configuration(reserve_budget=1e6), handle),
            backoff=False,
            reserve_after=AFTER,
        )
        self.where: dict[str, str] = {}
        self.now = 0.0
        drawing = draw("zone-a rack-1 : a1=3 a2=3\nzone-a rack-2 : b1=3 b2=3")
        self.take(*map(NodeUpserted, drawing), TopologyChanged(fabric("zone", "rack", HOSTNAME)))
        for name in ("a2", "b1", "b2") if place else ("a1", "a2", "b1", "b2"):
            self.take(*map(PodUpserted, pods(None, 1, important(1), prefix=f"first-{name}", on=name)))
        self.runs("b1", 1_000)
        self.runs("b2", 1_000)
        self.runs("a2")
        if place:
            self.take(PlacesAsked(asked(1)))
        self.runs("a1")

    def take(self, *events: Event, after: float = 1.0) -> None:
        self.now += after
        outputs = self.engine.handle(*events, Tick(self.now))
        self.where.update({one.pod.name: one.node for one in bindings_of(outputs)})
        self.engine.validate_state()

    def runs(self, node: str, priority: int = 0, ends: float | None = None) -> None:
        """A pod that takes two GPUs."""
        filling = pods(None, 1, important(2, priority), prefix=f"on-{node}", on=node, ends=ends)
        self.take(*map(PodUpserted, filling))

    def ends(self, node: str) -> None:
        self.take(PodDeleted(f"default/on-{node}-0"))

    def outcome(self, key: str) -> Outcome:
        found = self.engine.outcome(key)
        assert found is not None
        return found


def important(gpus: int, priority: int = 1_000) -> PodSpec:
    return replace(spec(gpu=gpus), priority=priority)


def big() -> tuple[PodGroup, list[Pod]]:
    """The gang for which nodes are held."""
    group = replace(gang("big", 2, required="rack"), priority=HOLDER)
    return group, pods("big", 2, important(2, HOLDER))


def reservation(site: Site) -> None:
    """Of both nodes one is free. What is on the other one ends later."""
    group, members = big()
    site.runs("a2", 1_000, ends=10_000.0)
    site.take(GroupChanged(group), *map(PodUpserted, members))
    site.take(after=AFTER)
    site.ends("a1")
    assert site.engine.reservation is not None and site.engine.reservation.nodes == ("a1", "a2")


def plan(site: Site) -> None:
    """Both nodes are cleared. One victim is gone, the other one leaves."""
    group, members = big()
    site.engine.preempt(Preemptible())
    site.take(GroupChanged(group), *map(PodUpserted, members))
    assert [plan.nodes for plan in site.engine.preemptions] == [("a1", "a2")]
    site.ends("a1")


def domain(site: Site) -> None:
    """A member runs on one node, and its gang has the whole rack for itself."""
    group, members = big()
    layer = Layer(level="rack", size=2, exclusive=Exclusive.ALL)
    site.ends("a2")
    site.take(
        GroupChanged(replace(group, min_member=1, constraint=None, layers=(layer,))),
        PodUpserted(replace(members[0], node_name="a2", phase="Running")),
    )
    site.ends("a1")


HOLDS: dict[str, tuple[Callable[[Site], None], Reason]] = {
    "reservation": (reservation, Reason.NODE_RESERVED),
    "plan": (plan, Reason.NODE_RESERVED),
    "domain": (domain, Reason.DOMAIN_EXCLUSIVE),
}


def plain(priority: int, **fields: Any) -> Pod:
    return pods(None, 1, important(2, priority), prefix="x", **fields)[0]


@pytest.mark.parametrize(
    ("held", "priority", "passes"),
    [
        ("reservation", LOWER, False),
        ("reservation", EQUAL, False),
        ("reservation", HIGHER, True),
        ("plan", LOWER, False),
        ("plan", EQUAL, False),
        ("plan", HIGHER, True),
        ("domain", LOWER, False),
        ("domain", EQUAL, False),
        ("domain", HIGHER, False),
    ],
)
def test_a_pod_by_its_priority(held: str, priority: int, passes: bool) -> None:
    site, (hold, reason) = Site(), HOLDS[held]
    hold(site)
    site.take(PodUpserted(plain(priority)))
    assert site.where == ({"x-0": "a1"} if passes else {})
    assert passes or reason in site.outcome("default/x-0").reasons


@pytest.mark.parametrize("priority", [LOWER, EQUAL, HIGHER])
@pytest.mark.parametrize("held", HOLDS)
def test_a_gang_passes_as_a_pod_does(held: str, priority: int) -> None:
    site, (hold, reason) = Site(), HOLDS[held]
    hold(site)
    members = pods("y", 1, important(2, priority))
    group = replace(gang("y"), priority=priority)
    site.take(GroupChanged(group), *map(PodUpserted, members))
    passes = priority == HIGHER and held != "domain"
    assert site.where == ({"y-0": "a1"} if passes else {})
    # Of a gang each node tells why it does not take a pod, where the whole cluster has no room for it.
    assert passes or site.outcome("default/y").reason is (
        Reason.GANG_DOES_NOT_FIT if held == "plan" else reason
    )


@pytest.mark.parametrize("held", HOLDS)
def test_the_holder_itself(held: str) -> None:
    site, (hold, _) = Site(), HOLDS[held]
    hold(site)
    if held == "domain":
        site.take(PodUpserted(big()[1][1]))
        assert site.where == {"big-1": "a1"}
    else:
        site.ends("a2")
        assert sorted(site.where.values()) == ["a1", "a2"]


@pytest.mark.parametrize("held", HOLDS)
def test_a_pod_of_a_daemon_set_passes_domains_alone(held: str) -> None:
    site, (hold, _) = Site(), HOLDS[held]
    hold(site)
    site.take(PodUpserted(plain(LOWER, owner="DaemonSet/agent")))
    assert site.where == ({"x-0": "a1"} if held == "domain" else {})


@pytest.mark.parametrize("held", HOLDS)
def test_a_pod_that_ends_in_time_passes_a_reservation_alone(held: str) -> None:
    site, (hold, _) = Site(), HOLDS[held]
    hold(site)
    site.take(PodUpserted(plain(LOWER, lasts=60.0)))
    assert site.where == ({"x-0": "a1"} if held == "reservation" else {})


@pytest.mark.parametrize("held", HOLDS)
def test_a_pod_for_which_a_place_is_held_passes_all_holds(held: str) -> None:
    """Its place is older than the hold."""
    site, (hold, _) = Site(place=True), HOLDS[held]
    hold(site)
    site.take(PodUpserted(real(1)[0]))
    assert site.where["train-pod-0"] == "a1"
