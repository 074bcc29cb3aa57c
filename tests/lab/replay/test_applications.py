"""Applications over time: partly placed ones wait for the rest, and how close they are is told once."""

import numpy as np
from msgspec.structs import replace

from closeby.lab.replay.clusters import GivenCluster
from closeby.lab.workloads.jobs import CallGraph, Jobs
from closeby.objects.applications import LinkCost, NetworkTopology, WeightSet
from closeby.objects.labels import HOSTNAME, REGION, ZONE
from closeby.objects.nodes import Node
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.scheduling.events import NetworkTopologyChanged, TopologyChanged
from tests.golden.fixture import Golden
from tests.lab.replay.small import jobs, places, run

#: Two workloads of 3 cores; a node of 4 holds one of them.
PAIR = CallGraph(workloads=("web", "store"), replicas=(1, 1), calls=((0, 1),), cpu=(3000, 3000))


def cluster() -> GivenCluster:
    """Zone a has two nodes, zone b has one; talk between the zones costs 5."""
    nodes = tuple(
        Node(
            name=name,
            labels={REGION: "r", ZONE: zone, HOSTNAME: name},
            allocatable={"cpu": 4_000, "memory": 1 << 34, "pods": 110},
        )
        for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b"))
    )
    levels = tuple(TopologyLevel(label) for label in (REGION, ZONE, HOSTNAME))
    costs = tuple(LinkCost(origin=one, destination=other, cost=5) for one, other in ("ab", "ba"))
    network = NetworkTopology(
        namespace="default", name="net", weight_sets=(WeightSet(name="UserDefined", zone_costs=costs),)
    )
    others = (TopologyChanged(Topology(name="places", levels=levels)), NetworkTopologyChanged(network))
    return GivenCluster(name="three", nodes=nodes, others=others)


def applications(*rows: tuple[str, float, float], graph: CallGraph = PAIR) -> Jobs:
    """Name, submitted, stays for."""
    bare = jobs(*((name, submitted, stays, graph.pods, 0) for name, submitted, stays in rows))
    return replace(bare, graphs=(graph,) * len(rows))


def test_an_application_goes_where_its_talk_is_cheap() -> None:
    history = run(applications(("shop", 0, 100)), cluster())
    assert sorted(places(history)["shop"]) == ["a1", "a2"]
    talk = history.talk[0]
    # Different nodes of one zone cost 1.
    assert (talk.cost, talk.pairs, talk.same_node, talk.same_zone, talk.same_region) == (1, 1, 0, 1, 1)


def test_an_application_starts_when_its_last_pod_is_placed() -> None:
    """Only b1 is left for the second one until the first ends."""
    history = run(applications(("shop", 0, 100), ("bank", 10, 50)), cluster())
    assert history.started.tolist() == [0, 100]
    assert history.ended.tolist() == [100, 150]
    assert len(set(places(history)["bank"]) & {"a1", "a2"}) == 1
    assert history.talk[1].cost == 5
    assert not history.refusals
    assert history.samples.queued.tolist() == [0, 1, 0]


def test_one_that_never_gets_all_its_nodes_says_why() -> None:
    """Twelve cores would be enough, but each node holds one pod of three."""
    four = CallGraph(workloads=("web",), replicas=(4,), calls=(), cpu=(3000,))
    history = run(applications(("wide", 0, 10), graph=four), cluster())
    assert np.isnan(history.started).all()
    assert "cpu" in history.refusals[0]


def test_one_larger_than_the_cluster_is_refused_at_once(golden: Golden) -> None:
    huge = CallGraph(workloads=("web",), replicas=(5,), calls=(), cpu=(3000,))
    heavy = CallGraph(workloads=("web",), replicas=(1,), calls=(), cpu=(5000,))
    (five,) = run(applications(("five", 0, 10), graph=huge), cluster()).refusals.values()
    (one,) = run(applications(("one", 0, 10), graph=heavy), cluster()).refusals.values()
    golden("replay", five)
    golden("replay", one)
