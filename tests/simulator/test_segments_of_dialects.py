"""Segments of other schedulers, from the manifest to the nodes: which domain each one gets.

Two blocks of two racks; in each rack four nodes that hold one pod each. Block b0 has racks r0 and r1, and one
node of r0 is taken.
"""

import pytest

from closeby.objects.reasons import Reason
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import read_manifests
from closeby.simulator.runs import simulate
from tests.reading.test_layers_of_dialects import (
    BLOCK,
    RACK,
    SLICE,
    constraints,
    job,
    job_set,
    leader_worker_set,
    pytorch_job,
    replicated,
)

NODES = f"""
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {{name: cluster-topology}}
spec: {{levels: [{{nodeLabel: {BLOCK}}}, {{nodeLabel: {RACK}}}, {{nodeLabel: kubernetes.io/hostname}}]}}
""" + "".join(
    f"""
---
apiVersion: v1
kind: Node
metadata:
  name: n{i:02}
  labels: {{{BLOCK}: b{i // 8}, {RACK}: r{i // 4}, kubernetes.io/hostname: n{i:02}}}
status: {{allocatable: {{cpu: {0 if i == 0 else 1}, memory: 8Gi, pods: 110}}}}
"""
    for i in range(16)
)


def placed(text: str) -> dict[str, list[int | None]]:
    """By the stem of their names, the number of each pod's node; None for one that waits."""
    report = simulate(read_manifests(["-"], stdin=lambda: NODES + text), Configuration())
    found: dict[str, list[int | None]] = {}
    order = sorted(report.pods, key=lambda one: (one.name.rpartition("-")[0], one.index or 0, one.name))
    for pod in order:
        node = report.bindings[pod.uid].node if pod.uid in report.bindings else None
        found.setdefault(pod.name.rpartition("-")[0], []).append(None if node is None else int(node[1:]))
    return found


def racks(nodes: list[int | None], size: int) -> list[set[int]]:
    """The racks of each segment; -1 for pods that wait."""
    return [
        {-1 if node is None else node // 4 for node in nodes[i : i + size]}
        for i in range(0, len(nodes), size)
    ]


@pytest.mark.parametrize("within", [8, 12])
def test_kueues_slices_are_whole_in_their_racks(within: int) -> None:
    (found,) = placed(job_set(replicated("w", 1, within, SLICE))).values()
    segments = racks(found, 4)
    # r0 has three nodes that are free, so that no slice of four is there.
    assert all(len(one) == 1 and not one & {-1, 0} for one in segments)
    assert len(set.union(*segments)) == within // 4


def test_kueues_slices_of_two_layers_and_of_more_pods_than_there_are_racks_for() -> None:
    keys = constraints((BLOCK, 8), (RACK, 4))
    (found,) = placed(job(8, keys)).values()
    assert racks(found, 4) in ([{2}, {3}], [{3}, {2}])
    # Of the other block one rack is not whole.
    (found,) = placed(job(16, keys)).values()
    assert racks(found, 16) == [{-1}]


def test_kais_segments_may_end_with_a_smaller_one() -> None:
    keys = f"kai.scheduler/segment-size: '4', kai.scheduler/segment-topology-required-placement: {RACK}"
    found = placed(pytorch_job(14, keys))["train-worker"]
    segments = racks(found, 4)
    assert [len(one) for one in segments] == [1, 1, 1, 1]
    assert -1 not in set.union(*segments)


def test_kais_segments_beyond_the_minimum_need_not_fit() -> None:
    """The master and two segments must start. A fourth segment has no rack."""
    keys = f"kai.scheduler/segment-size: '4', kai.scheduler/segment-topology-required-placement: {RACK}"
    policy = "spec:\n  runPolicy: {schedulingPolicy: {minAvailable: 9}}"
    found = placed(pytorch_job(16, keys).replace("spec:", policy, 1))
    assert found["train-master"] != [None]
    assert racks(found["train-worker"], 4) == [{1}, {2}, {3}, {-1}]


def test_kais_preferred_segments_are_split_where_they_must() -> None:
    keys = f"kai.scheduler/segment-size: '4', kai.scheduler/segment-topology-preferred-placement: {RACK}"
    found = placed(job(15, keys))["train"]
    assert None not in found


def test_kueues_leader_is_with_its_workers() -> None:
    group = f"kueue.x-k8s.io/podset-required-topology: {RACK}, kueue.x-k8s.io/podset-group-name: lws-group"
    found = placed(leader_worker_set(4, leader=group, worker=group))
    # Leaders are called serve-0 and serve-1, their workers serve-0-1 and on.
    homes = [
        {(node or 0) // 4 for node in [leader, *found[f"serve-{i}"]]}
        for i, leader in enumerate(found["serve"])
    ]
    assert [len(one) for one in homes] == [1, 1]
    assert homes[0] != homes[1]


def test_slurms_segments_spread_or_not() -> None:
    keys = f"closeby.dev/segment-size: '2', closeby.dev/segment-level: {RACK}"
    (packed,) = placed(job(4, "", at_job=keys)).values()
    assert len(set.union(*racks(packed, 2))) == 1
    (spread,) = placed(job(4, "", at_job=f"{keys}, closeby.dev/segment-arrangement: spread")).values()
    assert [len(one) for one in racks(spread, 2)] == [1, 1]
    assert len(set.union(*racks(spread, 2))) == 2


def test_no_two_jobs_of_job_sets_share_an_exclusive_rack() -> None:
    key = f"alpha.jobset.sigs.k8s.io/exclusive-topology: {RACK}"
    first = job_set(replicated("w", 3, 3), annotations=key)
    found = placed(first)
    homes = [{(node or 0) // 4 for node in found[f"train-w-{i}"]} for i in range(3)]
    assert [len(one) for one in homes] == [1, 1, 1]
    assert len(set.union(*homes)) == 3
    # One rack is left for a second JobSet, and its second job has none.
    second = job_set(replicated("w", 2, 1), annotations=key).replace("name: train", "name: other")
    found = placed(second + first)
    assert sum(None in nodes for nodes in found.values()) in (2, 3)


@pytest.mark.parametrize("driver_first", [True, False])
def test_the_other_jobs_of_a_job_set_keep_off_the_racks_of_its_exclusive_ones(driver_first: bool) -> None:
    key = f"alpha.jobset.sigs.k8s.io/exclusive-topology: {RACK}"
    jobs = [replicated("driver", 1, 2), replicated("w", 3, 2, of_job=key)]
    found = placed(job_set(*(jobs if driver_first else reversed(jobs))))
    homes = [{(node or 0) // 4 for node in nodes} for name, nodes in sorted(found.items())]
    assert [len(one) for one in homes] == [1, 1, 1, 1]
    assert len(set.union(*homes)) == 4
    assert all(None not in nodes for nodes in found.values())


def test_a_leader_with_a_template_of_its_own_has_rank_0() -> None:
    leader = f"kueue.x-k8s.io/podset-preferred-topology: {RACK}"
    text = NODES + leader_worker_set(4, leader=leader, worker=leader)
    report = simulate(read_manifests(["-"], stdin=lambda: text), Configuration())
    ranks = {pod.name: report.bindings[pod.uid].rank for pod in report.pods}
    for i in range(2):
        assert [ranks[name] for name in (f"serve-{i}", *(f"serve-{i}-{j}" for j in (1, 2, 3)))] == [
            0,
            1,
            2,
            3,
        ]


def test_replicas_go_by_number() -> None:
    text = leader_worker_set(1, f"leaderworkerset.sigs.k8s.io/exclusive-topology: {RACK}")
    found = placed(text.replace("replicas: 2", "replicas: 11"))
    # Four racks for eleven replicas: those with the lowest numbers have them (here by text: 0, 1, 10, 2, 3).
    assert [node is not None for node in found["serve"]] == [True, True, False, True, True, *[False] * 6]


def test_each_group_of_a_leader_worker_set_has_an_exclusive_rack() -> None:
    found = placed(leader_worker_set(2, f"leaderworkerset.sigs.k8s.io/exclusive-topology: {RACK}"))
    pairs = zip(found["serve"], (found["serve-0"][0], found["serve-1"][0]), strict=True)
    homes = [{(one or 0) // 4, (other or 0) // 4} for one, other in pairs]
    assert [len(one) for one in homes] == [1, 1]
    assert homes[0] != homes[1]


def limited(created: str) -> str:
    """A Job of ten pods in at most two racks for half an hour."""
    keys = f"closeby.dev/switches: 2@30, closeby.dev/switch-level: {RACK}"
    return job(10, "", at_job=keys).replace("name: train,", f"name: train, creationTimestamp: '{created}',")


OTHER = """
---
apiVersion: v1
kind: Pod
metadata: {name: other, creationTimestamp: '2026-11-23T12:26:00Z'}
spec: {containers: [{name: c, image: i}]}
"""


def test_slurms_limit_of_switches_counts_until_the_latest_time_in_the_manifests() -> None:
    text = NODES + limited("2026-11-23T12:00:00Z") + OTHER
    (outcome,) = simulate(read_manifests(["-"], stdin=lambda: text), Configuration()).gang_outcomes.values()
    assert (outcome.reason, outcome.relaxation is not None) == (Reason.TOPOLOGY_PLACEMENT_FAILED, True)
    assert outcome.relaxation is not None
    assert outcome.relaxation.from_now() == "In 4 min the limit of 2 topology-racks falls."
    later = placed(limited("2026-11-23T11:50:00Z") + OTHER)["train"]
    assert None not in later
    assert len(set().union(*racks(later, 10))) == 3


def test_the_last_slice_of_kueues_only_layer_may_be_a_smaller_one() -> None:
    # Rack r0 has room for three, the others for four.
    (nodes,) = placed(job(7, SLICE)).values()
    assert [len(one) for one in racks(nodes, 4)] == [1, 1]
    assert -1 not in set.union(*racks(nodes, 4))
