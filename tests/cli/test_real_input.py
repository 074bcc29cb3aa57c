"""Manifests that others wrote, taken as they are, on small labelled clusters."""

import csv
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import GPU, Manifest, closeby, report, text
from tests.real_input import shared_data

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


def host(name: str, labels: dict[str, str], **allocatable: str) -> Manifest:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", **allocatable}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, "kubernetes.io/hostname": name}},
        "status": {"allocatable": amounts},
    }


def kueue_cluster() -> list[Manifest]:
    """Two blocks of two racks of four hosts with 4 cores each; and a host that is not of the flavor."""
    hosts = [
        host(
            f"host-{block}{rack}{number}",
            {BLOCK: f"b{block}", RACK: f"r{rack}", "cloud.provider.com/node-group": "tas-group"},
            cpu="4",
        )
        for block in "12"
        for rack in "12"
        for number in "1234"
    ]
    return [*hosts, host("other", {BLOCK: "b1", RACK: "r1"}, cpu="64")]


def kueue(sample: str, *more: str) -> Any:
    files = [shared_data(f"kueue/{name}.yaml") for name in ("sample-queues", sample, *more)]
    arguments = [part for file in files for part in ("-f", file)]
    return report("simulate", *arguments, "-f", "-", stdin=text(*kueue_cluster()))


def only_group(found: Any) -> Any:
    (group,) = found["groups"]
    return group


def test_kueue_job_that_requires_a_rack() -> None:
    """Ten pods of one core into one rack of sixteen cores, on hosts of the queue's flavor."""
    found = kueue("sample-job-required")
    group = only_group(found)
    assert (group["minMember"], group["scheduled"], group["level"]) == (10, 10, "topology-rack")
    assert group["topology"] == "default"
    assert group["span"] == {"topology-block": 1, "topology-rack": 1, "hostname": 3}
    assert {pod["node"] for pod in found["pods"]}.isdisjoint({"other"})
    assert sorted(pod["rank"] for pod in found["pods"]) == list(range(10))


def test_kueue_job_that_prefers_a_block() -> None:
    """Forty cores do not fit a block of 32; it spans two, and no more racks than needed."""
    group = only_group(kueue("sample-job-preferred"))
    assert (group["scheduled"], group["level"], group["domain"]) == (40, None, [])
    assert group["span"]["topology-block"] == 2
    assert group["span"]["topology-rack"] == 3


def test_kueue_job_without_constraint_and_jobset_that_requires_one() -> None:
    assert only_group(kueue("sample-job-unconstrained"))["scheduled"] == 6
    group = only_group(kueue("sample-jobset-tas-required"))
    assert (group["scheduled"], len(group["domain"])) == (4, 3)


def test_kueue_jobset_in_slices_has_each_slice_in_one_rack() -> None:
    group = only_group(kueue("sample-jobset-tas-sliced"))
    assert (group["scheduled"], group["reason"]) == (8, None)
    assert [(one["level"], len(one["pods"]), one["together"]) for one in group["segments"]] == [
        ("topology-rack", 4, True)
    ] * 2


def test_kueue_samples_all_at_once_do_not_disturb_each_other() -> None:
    """Sixty cores are asked for and sixty-four are there: all fit, and none overlap."""
    found = kueue(
        "sample-job-required",
        "sample-job-preferred",
        "sample-job-unconstrained",
        "sample-jobset-tas-required",
    )
    used = Counter(pod["node"] for pod in found["pods"] if pod["node"])
    assert max(used.values()) <= 4
    assert sum(used.values()) == 10 + 40 + 6 + 4


def test_kai_aliases_name_the_level_of_a_rack() -> None:
    """The alias ``rack`` is the label's level; hosts with one GPU make three of them necessary."""
    rack = "accelerator.nvidia.com/rack"
    hosts = [
        host(f"h{r}{n}", {rack: f"rack-{r}"}, **{GPU: "1"})
        for r in "ab"
        for n in ("12" if r == "a" else "123")
    ]
    path = shared_data("kai/topology-aliases.yaml")
    found = report("simulate", "-f", path, "-f", "-", stdin=text(*hosts))
    group = only_group(found)
    assert (group["topology"], group["level"], group["domain"]) == ("network", "rack", ["rack-b"])
    assert group["span"] == {"rack": 1, "hostname": 3}


def test_kai_gang_over_two_topologies_keeps_each_subgroup_in_its_domain() -> None:
    """Racks of three hosts with room for one pod each: one rack is full, so the others are in another."""
    labels = ("topology.test/zone-domain", "topology.test/rack-domain")
    hosts = [
        host(
            f"h{zone}{rack}{number}",
            dict(zip(labels, (f"z{zone}", f"r{zone}{rack}"), strict=True)),
            **{GPU: "4"},
        )
        for zone in "12"
        for rack in "12"
        for number in "123"
    ]
    place_of = {one["metadata"]["name"]: one["metadata"]["labels"] for one in hosts}
    found = report(
        "simulate", "-f", shared_data("kai/multi-topology-jobs.yaml"), "-f", "-", stdin=text(*hosts)
    )
    group = only_group(found)
    assert (group["scheduled"], group["topology"], group["domain"], group["reason"]) == (6, None, [], None)
    nodes: dict[str, list[str]] = defaultdict(list)
    for pod in found["pods"]:
        nodes[pod["name"].rsplit("-", 1)[0]].append(pod["node"])
    assert {len(members) for members in nodes.values()} == {3}
    assert len({place_of[name][labels[1]] for name in nodes["rack-bound-job"]}) == 1
    assert len({place_of[name][labels[0]] for name in nodes["zone-bound-job"]}) == 1


def test_the_online_boutique_is_placed_and_what_is_not_needed_is_counted() -> None:
    hosts = [host(f"h{number}", {}) for number in range(3)]
    found = report("simulate", "-f", shared_data("online-boutique"), "-f", "-", stdin=text(*hosts))
    assert len(found["pods"]) == 12
    assert {pod["phase"] for pod in found["pods"]} == {"Scheduled"}
    assert found["unused"] == {"ServiceAccount": 11}


def lingjun() -> list[Manifest]:
    """The hosts of a real GPU cluster with the switches above them."""
    with Path(shared_data("lingjun/topo.csv")).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    switches = {"DSW": "core", "PSW": "aggregation", "ASW": "access"}
    levels = [{"nodeLabel": f"example.com/{name}"} for name in switches.values()]
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "lingjun"},
        "spec": {"levels": [*levels, {"nodeLabel": "kubernetes.io/hostname"}]},
    }
    hosts = [
        host(
            f"host-{number}",
            {f"example.com/{name}": row[column] for column, name in switches.items()},
            **{GPU: "8"},
        )
        for number, row in enumerate(rows)
    ]
    return [topology, *hosts]


def gpu_job(name: str, pods: int, annotation: str, level: str) -> Manifest:
    resources = {"requests": {GPU: "8"}, "limits": {GPU: "8"}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {
                    "annotations": {f"kueue.x-k8s.io/podset-{annotation}-topology": f"example.com/{level}"}
                },
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "resources": resources}]},
            },
        },
    }


def test_lingjun_tree_has_the_shape_of_the_data() -> None:
    (tree,) = report("topology", "-f", "-", "--depth", "3", stdin=text(*lingjun()))["topologies"]
    assert [level["domains"] for level in tree["levels"]] == [1, 3, 119, 847]
    pods = sorted(one["nodes"] for one in tree["domains"] if one["level"] == "aggregation")
    assert pods == [179, 306, 362]
    assert tree["domains"][0]["free"][GPU] == 847 * 8


@pytest.mark.parametrize(("pods", "level"), [(8, "access"), (100, "aggregation"), (847, "core")])
def test_lingjun_gangs_lie_in_the_level_they_require(pods: int, level: str) -> None:
    found = report("simulate", "-f", "-", stdin=text(*lingjun(), gpu_job("train", pods, "required", level)))
    group = only_group(found)
    assert (group["scheduled"], group["level"], group["span"]["hostname"]) == (pods, level, pods)


def test_lingjun_gang_that_prefers_one_switch_uses_as_few_as_possible() -> None:
    """No access switch has more than eight hosts, so twenty pods need three."""
    found = report("simulate", "-f", "-", stdin=text(*lingjun(), gpu_job("train", 20, "preferred", "access")))
    group = only_group(found)
    assert (group["scheduled"], group["level"], group["span"]["access"]) == (20, "aggregation", 3)


def test_lingjun_gang_that_can_not_fit_says_so() -> None:
    manifests = text(*lingjun(), gpu_job("train", 9, "required", "access"))
    group = only_group(report("simulate", "-f", "-", stdin=manifests))
    assert group["reason"] == "TopologyPlacementFailed"
    shown = " ".join(closeby("explain", "podgroup/train", "-f", "-", stdin=manifests).stdout.split())
    assert "Even if it were empty, no access would hold more than 8 of its 9 pods" in shown
