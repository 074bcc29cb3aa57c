"""How good the places of gangs are, as the live scheduler tells it: the same as a report of a simulation."""

import math

from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.report.documents.quality import QualityEntry
from closeby.report.documents.scheduling import scheduling_report
from closeby.scheduling.events import (
    GroupChanged,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    TopologyChanged,
)
from closeby.simulator.runs import simulate
from closeby.topology.finding import read_network_labels
from tests.kube.metered import Metered, added
from tests.kube.scraping import Scrape
from tests.worlds import GPU, draw, fabric, gang, node, pods, spec, world

#   rack-1 holds 4 pods of 8 GPUs when it is empty; now one of its nodes is taken.
TWO_RACKS = "zone-a rack-1 : a=8 b=8 c=8 d=8\nzone-a rack-2 : e=8 f=8"


def excess(told: Scrape) -> dict[tuple[str, ...], float]:
    return told.all("closeby_gang_excess_span_sum")


def test_a_gang_is_measured_when_its_last_binding_stands() -> None:
    it = Metered(world(TWO_RACKS))
    it.bind(it.hear(GroupChanged(gang("held", 1)), *added(pods("held", 1, spec(gpu=8)))), seconds=2.0)
    held = it.scrape()
    assert excess(held) == {("zone",): 1.0, ("rack",): 1.0, ("hostname",): 1.0}
    assert held.value("closeby_gang_wait_seconds_sum", size="2-8") == 2.0

    wide = it.hear(GroupChanged(gang("wide", 4, preferred="rack")), *added(pods("wide", 4, spec(gpu=8))))
    it.now += 60.0
    it.bind(wide[:3])
    assert excess(it.scrape()) == excess(held)
    it.bind(wide[3:], seconds=4.0)
    told = it.scrape()
    assert excess(told) == {("zone",): 2.0, ("rack",): 3.0, ("hostname",): 2.0}
    assert told.value("closeby_gang_wait_seconds_sum", size="9-64") == 64.25
    assert told.value("closeby_gang_slowdown_count") == 2


def test_it_tells_what_a_simulation_of_the_same_reports() -> None:
    members = [*pods("wide", 3, spec(gpu=8)), *pods("wide", 2, spec(gpu=3), prefix="small")]
    held, asked = pods("held", 1, spec(gpu=8), on="b"), gang("wide", 5, preferred="rack")
    it = Metered(world(TWO_RACKS))
    it.bind(it.hear(*added(held), GroupChanged(asked), *added(members)))
    told = it.scrape()
    run = simulate(
        Manifests(
            nodes=tuple(draw(TWO_RACKS)),
            pods=(*held, *members),
            groups=(asked,),
            topologies=(fabric("zone", "rack", HOSTNAME),),
        ),
        Configuration(),
    )
    quality = next(one.quality for one in scheduling_report(run).groups if one.name == "wide")
    assert isinstance(quality, QualityEntry)
    assert {level: value for (level,), value in excess(told).items()} == quality.excess_span
    assert quality.slowdown is not None
    assert quality.slowdown > 1
    assert math.isclose(told.value("closeby_gang_slowdown_sum") or 0, quality.slowdown, rel_tol=1e-5)


def test_a_gang_that_loses_a_pod_on_the_way_is_measured_when_it_is_placed_again() -> None:
    it = Metered(world(TWO_RACKS))
    members = pods("train", 2, spec(gpu=8))
    uids = it.hear(GroupChanged(gang("train", 2)), *added(members))
    it.bind(uids[:1])
    it.hear(PodDeleted(uids[1]))
    it.meters.not_bound(uids[1], final=True)
    assert excess(it.scrape()) == {}
    again = it.hear(PodUpserted(members[1]))
    it.bind(again)
    assert it.scrape().value("closeby_gang_slowdown_count") == 1
    assert excess(it.scrape()) == {("zone",): 1.0, ("rack",): 1.0, ("hostname",): 1.0}


def test_nodes_are_counted_on_which_more_is_used_than_they_offer() -> None:
    it = Metered(world(TWO_RACKS))
    it.hear(
        *added(pods(None, 2, spec(gpu=8), on="b")), *added(pods(None, 1, spec(gpu=8), prefix="c", on="c"))
    )
    told = it.scrape()
    assert told.value("closeby_overcommitted_nodes", resource=GPU) == 1
    assert (told.value("closeby_resource_utilisation_ratio", resource=GPU) or 1) < 1
    it.hear(NodeDeleted("b"))
    assert it.scrape().value("closeby_overcommitted_nodes", resource=GPU) == 0


def test_nodes_are_counted_whose_labels_contradict_those_of_others() -> None:
    """One node of block b1 names another datacenter: no node of the block has a block then."""
    network = "network.topology.kubernetes.io/"

    def host(name: str, block: str, center: str) -> Node:
        return node(name, {f"{network}block": block, f"{network}datacenter": center}, {GPU: 8})

    hosts = [host("a", "b1", "d1"), host("b", "b1", "d1"), host("c", "b2", "d1"), host("d", "b3", "d2")]

    def counts(*more: Node) -> dict[tuple[str, ...], float]:
        found = read_network_labels((*hosts, *more))
        it = Metered(world((*hosts, *more)))
        it.hear(*(TopologyChanged(one, found.ignored.get(one.name, {})) for one in found.topologies))
        return {key: n for key, n in it.scrape().all("closeby_nodes_without_level").items() if n}

    assert counts() == {}
    assert set(counts(host("e", "b1", "d2")).values()) == {3}


def test_use_and_fragmentation_are_looked_up() -> None:
    #   48 GPUs, 8 + 6 of them taken: a 2, b 0 and c to f 8 each: 34 free, 18 in rack-1, 16 in rack-2
    it = Metered(world(TWO_RACKS))
    it.hear(
        *added(pods(None, 1, spec(gpu=8), on="b")), *added(pods(None, 1, spec(gpu=6), prefix="six", on="a"))
    )
    told = it.scrape()
    assert told.value("closeby_resource_utilisation_ratio", resource=GPU) == 14 / 48
    assert told.all("closeby_largest_gang_ratio") == {
        ("zone", GPU, "fabric"): 1.0,
        ("rack", GPU, "fabric"): 18 / 34,
        ("hostname", GPU, "fabric"): 8 / 34,
    }
    #   What is free on a cordoned node serves nobody: 26 free, 16 of them in rack-2.
    it.hear(NodeUpserted(node("c", {"zone": "zone-a", "rack": "rack-1"}, {GPU: 8}, unschedulable=True)))
    assert it.scrape().value("closeby_largest_gang_ratio", topology="fabric", level="rack", resource=GPU) == (
        16 / 26
    )
