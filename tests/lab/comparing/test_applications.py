"""Applications under several policies: what their talk costs, by the same costs for all of them."""

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from closeby.lab.comparing.running import Experiment, run_all
from closeby.lab.replay.clusters import GivenCluster, made_up
from closeby.lab.replay.driver import Policy
from closeby.lab.workloads.generating import Load, WorkloadOptions
from closeby.lab.workloads.jobs import CallGraph, Jobs
from closeby.objects.applications import LinkCost, NetworkTopology, WeightSet
from closeby.objects.labels import HOSTNAME, REGION, ZONE
from closeby.objects.nodes import Node
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.plugins.configurations import NAMED
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.events import NetworkTopologyChanged, TopologyChanged

#: Two workloads of 3 cores that may be 2 apart.
PAIR = CallGraph(workloads=("web", "store"), replicas=(1, 1), calls=((0, 1),), cpu=(3000, 3000), limits=(2,))
#: shop runs from 0 to 100, bank from 10 to 60.
TWO = Jobs(
    names=("shop", "bank"),
    submitted=np.array([0.0, 10.0]),
    durations=np.array([100.0, 50.0]),
    pods=np.array([2, 2]),
    gpus=np.array([0, 0]),
    priorities=np.array([0, 0]),
    kinds=("", ""),
    graphs=(PAIR, PAIR),
)


def cluster() -> GivenCluster:
    """Zone a has two nodes of 4 cores, zone b one of 6, all in one region; talk between the zones costs 5."""
    nodes = tuple(
        Node(
            name=name,
            labels={REGION: "r", ZONE: name[0], HOSTNAME: name},
            allocatable={"cpu": cpu, "memory": 1 << 34, "pods": 110},
        )
        for name, cpu in (("a1", 4_000), ("a2", 4_000), ("b1", 6_000))
    )
    levels = tuple(TopologyLevel(label) for label in (REGION, ZONE, HOSTNAME))
    costs = tuple(LinkCost(origin=one, destination=other, cost=5) for one, other in ("ab", "ba"))
    network = NetworkTopology(
        namespace="default", name="net", weight_sets=(WeightSet(name="UserDefined", zone_costs=costs),)
    )
    others = (TopologyChanged(Topology(name="places", levels=levels)), NetworkTopologyChanged(network))
    return GivenCluster(name="three", nodes=nodes, others=others)


def figures(*policies: Policy, jobs: Jobs = TWO) -> dict[str, dict[str, float | None]]:
    """By policy and name."""
    experiment = Experiment(policies=policies, seeds=(None,), source=jobs, cluster=cluster())
    return {
        result.policy: {figure.name: value for figure, value in result.figures}
        for result in run_all(experiment, processes=1)
    }


def named(name: str) -> Policy:
    return Policy(name=name, configuration=NAMED[name])


def test_costs_are_means_over_time() -> None:
    """The default puts shop on b1, at no cost for 100 s, and bank on a1 and a2, at 1 for 50 s: 50 / 150.

    The emptiest nodes are b1 and one of zone a for shop, the other one and b1 for bank: 5 all the time, and
    beyond the limit of 2.
    """
    found = figures(named("default"), named("least-allocated"))
    shared = {"delay": 0.0, "delay.p99": 0.0, "started": 1.0, "makespan": 100.0}
    assert found["default"] == {
        **shared,
        "talkCost": pytest.approx(1 / 3),
        "talkCost.pair": pytest.approx(1 / 3),
        "sameNode": pytest.approx(2 / 3),
        "sameZone": 1.0,
        "sameRegion": 1.0,
        "overLimit": 0.0,
    }
    assert found["least-allocated"] == {
        **shared,
        "talkCost": 5.0,
        "talkCost.pair": 5.0,
        "sameNode": 0.0,
        "sameZone": 0.0,
        "sameRegion": 1.0,
        "overLimit": 1.0,
    }


def test_an_application_that_never_starts_costs_nothing_and_is_reported() -> None:
    """Each node holds one pod of 3.5 cores; of four such pods one has no place."""
    wide = CallGraph(workloads=("web", "store"), replicas=(3, 1), calls=((0, 1),), cpu=(3500, 3500))
    lonely = replace(TWO, graphs=(PAIR, wide), pods=np.array([2, 4]), submitted=np.array([0.0, 200.0]))
    found = figures(named("default"), jobs=lonely)["default"]
    assert (found["started"], found["talkCost"], found["overLimit"]) == (0.5, 0.0, 0.0)


def test_where_no_call_has_a_limit_nothing_tells() -> None:
    free = replace(TWO, graphs=(replace(PAIR, limits=()),) * 2)
    assert figures(named("default"), jobs=free)["default"]["overLimit"] is None


def test_all_are_judged_by_the_costs_of_the_first_that_minds_them() -> None:
    """Baselines mind none. The first that minds a network that is not there makes all costs unknown."""
    lost = Policy(
        name="lost",
        configuration=Configuration(
            plugins=(PluginEntry(name="NetworkMinCost", arguments={"networkTopologyName": "other"}),)
        ),
    )
    least = named("least-allocated")
    assert figures(least, named("default"))["least-allocated"]["talkCost"] == 5.0
    assert figures(least, lost, named("default"))["least-allocated"]["talkCost"] is None
    assert figures(least, named("default"), lost)["lost"]["talkCost"] is not None
    assert figures(least, named("random"))["least-allocated"]["talkCost"] == 5.0


def test_the_same_comes_out_in_one_process_and_in_two() -> None:
    load = Load(workload="microservices", jobs=6, load=0.5, capacity=3840.0, options=WorkloadOptions())
    policies = (named("default"), named("least-allocated"))
    made = Experiment(policies=policies, seeds=(1, 2), source=load, cluster=made_up("zones"))
    one: Any = run_all(made, processes=1)
    assert one == run_all(made, processes=1) == run_all(made, processes=2)
    assert one[0].figures != one[1].figures != one[3].figures
