"""What it costs to hold places for a Workload of many pods, whose pods come and go one at a time."""

import sys
from collections.abc import Callable
from types import FrameType

import pytest
from msgspec.structs import replace

from closeby.objects.groups import TopologyConstraint
from closeby.scheduling.events import NodeDeleted, NodeUpserted, PlacesAsked, PodUpserted, Tick
from tests.scheduling.test_places_for_pods_to_come import Site, asked, real

ONE_ZONE = TopologyConstraint(topology="fabric", required="zone")


def site_for(count: int) -> Site:
    """Nodes of eight GPUs for so many pods, of one GPU each, and places that are held for them."""
    site = Site("zone-a rack-1 : " + " ".join(f"n{one}=8" for one in range(count // 8)))
    site.take(PlacesAsked(asked(count, constraint=ONE_ZONE)))
    return site


def come(site: Site, count: int) -> None:
    for pod in real(count):
        site.engine.handle(PodUpserted(pod), Tick())


def go(site: Site, count: int) -> None:
    for pod in real(count):
        site.engine.handle(PodUpserted(replace(pod, phase="Failed")), Tick())


def come_without_index(site: Site, count: int) -> None:
    for pod in real(count):
        site.engine.handle(PodUpserted(replace(pod, index=None)), Tick())


def bound_by_others(site: Site, count: int) -> None:
    where = site.where()
    for pod in real(count):
        site.engine.handle(PodUpserted(replace(pod, node_name=where[f"train-main-{pod.index}"])))


def calls(step: Callable[[], None]) -> int:
    """The functions of Python that run, and the items that generators yield."""
    count = 0

    def note(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("step", [come, come_without_index, bound_by_others])
def test_pods_that_come_one_by_one_cost_no_more_each_where_more_are_to_come(
    step: Callable[[Site, int], None],
) -> None:
    few, many = site_for(64), site_for(512)
    ratio = calls(lambda: step(many, 512)) / calls(lambda: step(few, 64))
    assert ratio < 12, "eight times as many pods"
    assert set(many.where()) == {f"train-pod-{one}" for one in range(512)}


def test_pods_that_go_one_by_one_cost_no_more_each_where_more_run() -> None:
    few, many = site_for(64), site_for(512)
    come(few, 64)
    come(many, 512)
    ratio = calls(lambda: go(many, 512)) / calls(lambda: go(few, 64))
    assert ratio < 12, "eight times as many pods"
    assert set(many.where()) == {f"train-main-{one}" for one in range(512)}


def test_places_on_a_node_that_went_and_came_back_cordoned_are_looked_for_elsewhere() -> None:
    site = Site("zone-a rack-1 : a1=2 a2=2 a3=2")
    site.take(PlacesAsked(asked()))
    gone = site.where()["train-main-0"]
    site.take(NodeDeleted(gone), NodeUpserted(replace(site.nodes[gone], unschedulable=True)))
    assert len(site.where()) == 4
    assert gone not in site.where().values()
