"""Clusters without a Topology object, and clusters with several that say the same."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import GPU, Manifest, closeby, node, report, text

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"
RACK = "cloud.provider.com/topology-rack"


# zone a: n0 with 4 GPUs, n1 with 8    zone b: n2 and n3 with 8 each
def zones() -> list[Manifest]:
    places = [("a", 4), ("a", 8), ("b", 8), ("b", 8)]
    return [
        node(f"n{number}", {ZONE: zone, REGION: "r", HOSTNAME: f"n{number}"}, gpus)
        for number, (zone, gpus) in enumerate(places)
    ]


def job(name: str, count: int, gpus: int, **annotations: str) -> Manifest:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {
            "parallelism": count,
            "completions": count,
            "template": {
                "metadata": {"annotations": {key.replace("_", "/"): one for key, one in annotations.items()}},
                "spec": {
                    "containers": [
                        {"name": "c", "resources": {"limits": {GPU: gpus}, "requests": {GPU: gpus}}}
                    ]
                },
            },
        },
    }


def gang(name: str, members: int, gpus: int) -> list[Manifest]:
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{index}", "labels": {"closeby.dev/pod-group": name}},
            "spec": {
                "containers": [{"name": "c", "resources": {"limits": {GPU: gpus}, "requests": {GPU: gpus}}}]
            },
        }
        for index in range(members)
    ]
    group = {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": members},
    }
    return [group, *pods]


def topology(name: str, api_version: str = "kueue.x-k8s.io/v1beta1", *labels: str) -> Manifest:
    levels = [{"nodeLabel": label} for label in labels or (RACK, HOSTNAME)]
    return {
        "apiVersion": api_version,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": levels},
    }


# rack r1: n0 n1 (8 GPUs each)    rack r2: n2 n3    no rack: n4
def racks() -> list[Manifest]:
    found = [node(f"n{i}", {RACK: f"r{i // 2 + 1}", HOSTNAME: f"n{i}"}, 8) for i in range(4)]
    return [*found, node("n4", {HOSTNAME: "n4"}, 8)]


def group_of(got: Any, name: str) -> Any:
    [found] = [one for one in got["groups"] if one["name"] == name]
    return found


def test_a_gang_without_a_constraint_goes_to_the_tightest_zone() -> None:
    got = report("simulate", "-f", "-", stdin=text(*zones(), *gang("g", 4, 4)))

    assert group_of(got, "g")["domain"] == ["r", "b"]
    assert group_of(got, "g")["topology"] == "zones"
    assert got["foundTopology"] == {
        "name": "zones",
        "labels": [REGION, ZONE, HOSTNAME],
        "nodes": 4,
        "of": 4,
        "command": "closeby discover labels --preset zones -o topology",
    }


def test_the_table_says_which_labels_count_and_which_command_writes_them_as_an_object() -> None:
    shown = " ".join(closeby("simulate", "-f", "-", stdin=text(*zones(), *gang("g", 4, 4))).stdout.split())

    assert "closeby discover labels --preset zones -o topology" in shown
    assert ZONE in shown


def test_the_command_that_is_named_writes_an_object_that_is_the_same_topology(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(text(*zones()))
    found = report("simulate", "-f", nodes)["foundTopology"]
    _, *arguments = shlex.split(found["command"])
    written = tmp_path / "topology.yaml"
    written.write_text(closeby(*arguments, "-f", nodes).stdout)

    got = report("topology", "-f", nodes, "-f", written)

    [one] = got["topologies"]
    assert [level["nodeLabel"] for level in one["levels"]] == found["labels"]
    assert "command" not in one
    assert "foundTopology" not in report("simulate", "-f", nodes, "-f", written)


def test_an_object_goes_before_the_labels() -> None:
    given = [*zones(), topology("own", "closeby.dev/v1alpha1", HOSTNAME), *gang("g", 4, 4)]

    got = report("simulate", "-f", "-", stdin=text(*given))

    assert group_of(got, "g")["topology"] == "own"
    assert "foundTopology" not in got


def test_a_topology_that_is_named_and_not_there_is_not_found_though_labels_make_one() -> None:
    group, *pods = gang("g", 4, 4)
    group["spec"]["topologyConstraint"] = {"topology": "fabric", "requiredTopologyLevel": ZONE}

    got = report("simulate", "-f", "-", stdin=text(*zones(), group, *pods))

    assert group_of(got, "g")["reason"] == "TopologyNotFound"
    [condition] = group_of(got, "g")["conditions"]
    assert "closeby discover labels" in condition["remedy"]
    assert "--preset" in condition["remedy"] and "--key" in condition["remedy"]


def test_a_level_of_the_labels_can_be_required_without_naming_the_topology() -> None:
    group, *pods = gang("g", 3, 4)
    group["spec"]["topologyConstraint"] = {"requiredTopologyLevel": ZONE}

    got = report("simulate", "-f", "-", stdin=text(*zones(), group, *pods))

    assert group_of(got, "g")["domain"][:2] == ["r", "a"]


def test_the_topology_command_shows_what_the_labels_make() -> None:
    got = report("topology", "-f", "-", stdin=text(*zones()))

    [one] = got["topologies"]
    assert (one["name"], one["command"]) == ("zones", "closeby discover labels --preset zones -o topology")


@pytest.mark.parametrize("wish", ["required", "preferred"])
def test_equal_topologies_of_two_dialects_are_one(wish: str) -> None:
    given = [
        *racks(),
        topology("kueue-racks"),
        topology("kai-racks", "kai.scheduler/v1alpha1"),
        job("train", 2, 8, **{f"kueue.x-k8s.io_podset-{wish}-topology": RACK}),
    ]

    got = report("simulate", "-f", "-", stdin=text(*given))

    train = group_of(got, "train")
    assert (train["scheduled"], train["span"]["topology-rack"]) == (2, 1)
    assert not any(one["reason"].startswith("Topology") for one in train["conditions"])
    [one] = report("topology", "-f", "-", stdin=text(*given))["topologies"]
    assert (one["name"], one["alsoCalled"]) == ("kai-racks", ["kueue-racks"])


def test_a_message_names_the_field_that_the_user_wrote() -> None:
    given = [
        *racks(),
        topology("one"),
        topology("two", "kai.scheduler/v1alpha1", "example.com/row", RACK),
        job("train", 2, 8, **{"kueue.x-k8s.io_podset-required-topology": RACK}),
    ]

    got = report("simulate", "-f", "-", stdin=text(*given))

    train = group_of(got, "train")
    assert train["reason"] == "TopologyNotFound"
    [condition] = [one for one in train["conditions"] if one["blocking"]]
    assert condition["object"] == "Job/default/train"
    assert "kueue.x-k8s.io/podset-required-topology" in condition["field"]
    assert "spec.topologyConstraint" not in json.dumps(condition)


def test_a_level_that_no_topology_has_names_the_command_that_writes_one() -> None:
    given = [*racks(), job("train", 2, 8, **{"kueue.x-k8s.io_podset-required-topology": RACK})]

    train = group_of(report("simulate", "-f", "-", stdin=text(*given)), "train")

    assert train["reason"] == "TopologyLevelNotFound"
    [condition] = [one for one in train["conditions"] if one["reason"] == "TopologyLevelNotFound"]
    assert f"closeby discover labels --key {RACK} -o topology -f FILE" in condition["remedy"]


def test_the_command_that_writes_a_missing_topology_writes_the_one_that_is_missing(tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(text(*racks()))
    asked = {"kai.scheduler_topology": "gpus", "kai.scheduler_topology-required-placement": RACK}
    given = text(*racks(), job("train", 2, 8, **asked))
    train = group_of(report("simulate", "-f", "-", stdin=given), "train")
    assert train["reason"] == "TopologyNotFound"
    [remedy] = [one["remedy"] for one in train["conditions"] if one["reason"] == "TopologyNotFound"]

    printed = remedy.split("`")[1].replace("LABEL,LABEL", RACK).replace("FILE", str(nodes)).split()
    written = closeby(*printed[1:])

    assert written.exit_code == 0
    got = report("simulate", "-f", "-", stdin=f"{given}\n---\n{written.stdout}")
    assert group_of(got, "train")["reason"] is None


@pytest.mark.parametrize(
    ("given", "said"),
    [(("--name", "a"), "-o topology"), (("-o", "topology", "--name", "A b"), "--name A b")],
)
def test_a_name_is_for_a_topology_and_one_that_kubernetes_takes(given: tuple[str, ...], said: str) -> None:
    result = closeby("discover", "labels", "-f", "-", "--preset", "zones", *given, stdin=text(*racks()))
    assert result.exit_code != 0
    assert said in result.stderr


def test_nodes_without_a_label_are_not_counted_as_racks() -> None:
    [one] = report("topology", "-f", "-", stdin=text(*racks(), topology("t")))["topologies"]

    assert [(level["name"], level["domains"]) for level in one["levels"]] == [
        ("topology-rack", 2),
        ("hostname", 5),
    ]


def test_discovery_without_labels_of_the_family_names_the_option() -> None:
    found = closeby("discover", "labels", "-f", "-", "-o", "json", stdin=text(*zones()))

    [warning] = json.loads(found.stdout)["warnings"]
    assert "zones" in warning["remedy"] and "--preset" in warning["remedy"]


EKS = "topology.k8s.aws/network-node-layer-"
CLIQUE = "nvidia.com/gpu.clique"


def beside(*given: Manifest) -> list[tuple[str, str]]:
    """What is said of families that do not count: the message, and the preset that the remedy names."""
    found = report("simulate", "-f", "-", stdin=text(*given))["conditions"]
    said = [one for one in found if "do not count beside" in one["message"]]
    return [(one["message"], one["remedy"].partition("--preset ")[2].split()[0]) for one in said]


def test_a_second_family_of_labels_is_mentioned_with_how_to_choose_it() -> None:
    given = [
        node(f"n{i}", {f"{EKS}1": "a", f"{EKS}3": f"c{i // 2}", ZONE: "z", CLIQUE: f"q{i // 3}"}, 8)
        for i in range(4)
    ]
    given.append(node("n4", {f"{EKS}1": "a", f"{EKS}3": "c2", "cloud.google.com/gce-topology-block": "b"}, 8))

    assert beside(*given) == [
        ("labels of gke, on 1 of 5 nodes, do not count beside those of eks", "gke"),
        ("labels of gpu-clique, on 4 of 5 nodes, do not count beside those of eks", "gpu-clique"),
    ]
    assert beside(*given, topology("own", "closeby.dev/v1alpha1", CLIQUE)) == []


def test_zones_and_labels_of_the_family_itself_are_no_second_family() -> None:
    labels = {f"{EKS}1": "a", f"{EKS}3": "c", ZONE: "z", REGION: "r"}
    ultra = labels | {"topology.k8s.aws/ultraserver-id": "u"}
    assert beside(*(node(f"n{i}", labels, 8) for i in range(4))) == []
    assert beside(*(node(f"n{i}", ultra, 8) for i in range(4))) == []


# fabric f: superpod 1 (leaf groups 1, 2), superpod 2 (leaf group 1); each leaf group has two NVLink domains
def test_coreweaves_labels_are_a_topology() -> None:
    backend = "backend.coreweave.cloud/"
    given = [
        node(
            f"n{i}",
            {
                f"{backend}fabric": "f",
                f"{backend}flavor": "infiniband",
                f"{backend}superpod": superpod,
                f"{backend}leafgroup": group,
                "ds.coreweave.com/nvlink.domain": f"d{i // 2}",
            },
            4,
        )
        for i, (superpod, group) in enumerate(
            pair for pair in (("1", "1"), ("1", "2"), ("2", "1")) for _ in range(4)
        )
    ]
    [one] = report("topology", "-f", "-", stdin=text(*given))["topologies"]
    assert one["name"] == "coreweave"
    assert [(level["name"], level["domains"]) for level in one["levels"][:4]] == [
        ("fabric", 1),
        ("superpod", 2),
        ("leafgroup", 3),
        ("nvlink.domain", 6),
    ]
