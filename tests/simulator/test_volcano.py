"""Volcano's wishes for a network topology, from its HyperNodes to the nodes."""

import textwrap

import pytest

from closeby.objects.reasons import Reason
from closeby.objects.topologies import tier_level
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import read_manifests
from closeby.scheduling.reasons.wording import labelling, unlabelled_text
from closeby.simulator.runs import simulate

#: The network of Volcano's user guide: s0 and s1 in s4, s2 and s3 in s5, all in s6; two nodes in each.
TREE = "".join(
    f"""
---
apiVersion: topology.volcano.sh/v1alpha1
kind: HyperNode
metadata: {{name: {name}}}
spec:
  tier: {tier}
  tierName: {called}
  members: [{", ".join(f"{{type: {kind}, selector: {{exactMatch: {{name: {one}}}}}}}" for one in members)}]
"""
    for name, tier, called, kind, members in [
        ("s0", 1, "rack", "Node", ["node0", "node1"]),
        ("s1", 1, "rack", "Node", ["node2", "node3"]),
        ("s2", 1, "rack", "Node", ["node4", "node5"]),
        ("s3", 1, "rack", "Node", ["node6", "node7"]),
        ("s4", 2, "zone", "HyperNode", ["s0", "s1"]),
        ("s5", 2, "zone", "HyperNode", ["s2", "s3"]),
        ("s6", 3, "cluster", "HyperNode", ["s4", "s5"]),
    ]
)
NODES = "".join(
    f"""
---
apiVersion: v1
kind: Node
metadata: {{name: node{i}}}
status: {{allocatable: {{cpu: 4, memory: 8Gi, pods: 110}}}}
"""
    for i in range(8)
)
RACKS = {f"node{i}": f"s{i // 2}" for i in range(8)}
ZONES = {f"node{i}": f"s{4 + i // 4}" for i in range(8)}


def job(replicas: int, spec: str, *more: str) -> str:
    """Shaped as in Volcano's guide to network topology aware scheduling: each pod takes a node's CPUs."""
    return f"""
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: network-topology-job}}
spec:
  schedulerName: volcano
{textwrap.indent(textwrap.dedent(spec).strip(), "  ")}
  tasks:
  - name: t0
    replicas: {replicas}
    template: {{spec: {{containers: [{{name: c0, image: nginx, resources: {{requests: {{cpu: "4"}}}}}}]}}}}
{"".join(f"    {line}" for line in more)}
"""


def nodes_of(text: str) -> list[str | None]:
    """The node of each pod, in the order of their index; None for one that waits."""
    report = simulate(read_manifests(["-"], stdin=lambda: TREE + NODES + text), Configuration())
    bound = report.bindings
    return [bound[one.uid].node if one.uid in bound else None for one in report.pods]


def spread(nodes: list[str | None], domains: dict[str, str]) -> set[str]:
    return {domains[node] for node in nodes if node is not None}


@pytest.mark.parametrize(
    ("wish", "placed", "racks", "zones"),
    [
        ("networkTopology: {mode: hard, highestTierAllowed: 1}", 2, 1, 1),
        ("networkTopology: {highestTierName: rack}", 2, 1, 1),
        ("networkTopology: {mode: hard, highestTierAllowed: 2}", 4, 2, 1),
        ("networkTopology: {mode: hard, highestTierAllowed: 3}", 6, 3, 2),
        ("networkTopology: {mode: soft, highestTierAllowed: 1}", 6, 3, 2),
    ],
)
def test_a_job_stays_in_a_hypernode_of_the_tier_that_is_allowed(
    wish: str, placed: int, racks: int, zones: int
) -> None:
    found = nodes_of(job(6, f"minAvailable: 2\n{wish}"))
    assert sum(node is not None for node in found) == placed
    assert (len(spread(found, RACKS)), len(spread(found, ZONES))) == (racks, zones)


@pytest.mark.parametrize("wish", ["highestTierAllowed: 1", "highestTierAllowed: 9", "highestTierName: row"])
def test_a_job_waits_that_no_hypernode_holds_or_whose_tier_there_is_not(wish: str) -> None:
    assert set(nodes_of(job(4, f"minAvailable: 4\nnetworkTopology: {{{wish}}}"))) == {None}


def test_plain_pods_say_it_in_annotations() -> None:
    pods = "".join(
        f"""
---
apiVersion: v1
kind: Pod
metadata:
  name: p{i}
  ownerReferences: [{{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: web}}]
  annotations: {{volcano.sh/network-topology-mode: hard, volcano.sh/network-topology-highest-tier: "2"}}
spec: {{containers: [{{name: c, image: i, resources: {{requests: {{cpu: "4"}}}}}}]}}
"""
        for i in range(4)
    )
    found = nodes_of(pods)
    assert None not in found
    assert len(spread(found, ZONES)) == 1


def partitions(total: int, size: int, more: str = "") -> str:
    tier = "networkTopology: {mode: hard, highestTierAllowed: 1}"
    return f"partitionPolicy: {{totalPartitions: {total}, partitionSize: {size}, {tier}{more}}}"


def test_each_partition_is_in_a_hypernode_of_its_tier_and_the_job_in_one_of_a_higher_tier() -> None:
    # volcano-sh/volcano: docs/user-guide/how_to_use_network_topology_aware_scheduling.md
    found = nodes_of(
        job(4, "minAvailable: 4\nnetworkTopology: {mode: hard, highestTierAllowed: 2}", partitions(2, 2))
    )
    assert None not in found
    assert len(spread(found, ZONES)) == 1
    assert [len(spread(found[i : i + 2], RACKS)) for i in (0, 2)] == [1, 1]
    # Six pods in partitions of two need three racks, and no zone has these.
    asked = "minAvailable: 6\nnetworkTopology: {mode: hard, highestTierAllowed: 2}"
    assert set(nodes_of(job(6, asked, partitions(3, 2)))) == {None}
    found = nodes_of(job(6, asked.replace("2}", "3}"), partitions(3, 2)))
    assert [len(spread(found[i : i + 2], RACKS)) for i in (0, 2, 4)] == [1, 1, 1]


def test_a_job_starts_with_the_partitions_that_it_needs() -> None:
    asked = "minAvailable: 2\nnetworkTopology: {mode: hard, highestTierAllowed: 2}"
    found = nodes_of(job(6, asked, partitions(3, 2, ", minPartitions: 2")))
    assert [node is not None for node in found] == [True, True, True, True, False, False]
    assert len(spread(found, ZONES)) == 1


@pytest.mark.parametrize(
    "asked",
    [
        "topologyConstraint: {topology: hypernodes, requiredTopologyLevel: LEVEL}",
        "layers: [{topology: hypernodes, level: LEVEL, size: 1}]",
    ],
)
def test_a_tier_of_endless_digits_is_no_level(asked: str) -> None:
    """A tenant writes it; whoever looks at the cluster must still see the rest of it."""
    level = "hypernodes.closeby.dev/tier-" + "9" * 5000
    gang = f"""
---
apiVersion: closeby.dev/v1alpha1
kind: PodGroup
metadata: {{name: g}}
spec: {{minMember: 1, {asked.replace("LEVEL", level)}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: p, labels: {{closeby.dev/pod-group: g}}}}
spec: {{containers: [{{name: c}}]}}
"""
    run = simulate(read_manifests(["-"], stdin=lambda: TREE + NODES + gang), Configuration())
    assert {one.reason for one in run.leftovers.values()} == {Reason.TOPOLOGY_LEVEL_NOT_FOUND}


def test_nodes_in_no_hypernode_are_to_be_made_members_and_not_labelled() -> None:
    """Three pods fit in no rack; node8 is in none, and no label of a node would change that."""
    loose = NODES.replace("name: node7}", "name: node8}")
    wanting = job(3, "minAvailable: 3\nnetworkTopology: {mode: hard, highestTierAllowed: 1}")
    run = simulate(read_manifests(["-"], stdin=lambda: TREE + loose + wanting), Configuration())
    (outcome,) = run.gang_outcomes.values()
    bare = None if outcome.shortfall is None else outcome.shortfall.unlabelled
    assert bare is not None
    assert (bare.label, bare.names) == (tier_level(1), ("node8",))
    assert "HyperNode" in unlabelled_text(bare)
    assert labelling(bare).startswith("make node8 a member of one")
