"""From a scan to a decision: discovered, written to nodes, and used by the plugin of the type ``dynamic``."""

import json
from pathlib import Path

import pytest
import yaml

from closeby.objects.nodes import Node
from closeby.topology.finding import read_network_labels
from closeby.topology.qos import Quality
from tests.cli.calling import Manifest, closeby, node, pod, report, text
from tests.discovery.drawing_fabrics import Drawing
from tests.discovery.test_clouds import AWS

#: Two pods of two leaves with two hosts each; the nodes' names tell nothing.
#        C
#    S1      S2
#  L1  L2  L3  L4
LEAVES = {"L1": "n1, n5", "L2": "n2, n6", "L3": "n3, n7", "L4": "n4, n8"}
FABRIC = Drawing(LEAVES, "L1-S1, L2-S1, L3-S2, L4-S2, S1-C, S2-C")
DYNAMIC = "- plugins:\n   - name: network-topology\n     arguments:\n       network-topology.type: dynamic\n"


def patches(folder: Path, *arguments: str) -> list[Manifest]:
    """What ``-o labels`` prints."""
    scan = folder / "scan.txt"
    scan.write_text(FABRIC.text())
    printed = closeby("discover", "ibnetdiscover", scan, "-o", "labels", *arguments)
    assert printed.exit_code == 0, printed.stderr
    found = list(yaml.safe_load_all(printed.stdout))
    assert [one["metadata"]["name"] for one in found] == [f"n{number}" for number in range(1, 9)]
    return found


def labelled(folder: Path, *arguments: str) -> list[Manifest]:
    """The eight nodes with these labels."""
    return [node(one["metadata"]["name"], one["metadata"]["labels"]) for one in patches(folder, *arguments)]


def placed(folder: Path, config: str, manifests: list[Manifest]) -> dict[str, str]:
    file = folder / "closeby.yaml"
    file.write_text(config)
    found = report("simulate", "-f", "-", "--config", file, stdin=text(*manifests))
    return {one["name"]: one["node"] for one in found["pods"] if one["phase"] == "Scheduled"}


def job(members: int, gpus: int) -> list[Manifest]:
    """A gang that asks for no place."""
    group: Manifest = {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"minMember": members},
    }
    return [group, *(pod(f"w-{number}", gpus, gang="train") for number in range(members))]


@pytest.mark.parametrize("keys", [None, "example.com/leaf,example.com/spine,example.com/core"])
def test_a_job_is_placed_by_what_was_discovered(tmp_path: Path, keys: str | None) -> None:
    arguments = [] if keys is None else ["--labels", keys]
    config = DYNAMIC if keys is None else f"{DYNAMIC}       network-topology.keys: {keys}\n"
    nodes = labelled(tmp_path, *arguments)
    # Two members go to one leaf, four to one spine: n1 is taken, so L1 and S1 have no room for them.
    taken = pod("other", 8, on="n1")
    assert set(placed(tmp_path, config, [*nodes, taken, *job(2, 8)]).values()) in (
        {"n2", "n6"},
        {"n3", "n7"},
        {"n4", "n8"},
    )
    assert set(placed(tmp_path, config, [*nodes, taken, *job(4, 8)]).values()) == {"n3", "n7", "n4", "n8"}


def test_the_rest_of_a_job_goes_near_its_first_task(tmp_path: Path) -> None:
    nodes = labelled(tmp_path)
    running = pod("w-first", 8, gang="train", on="n6")
    assert placed(tmp_path, DYNAMIC, [*nodes, running, *job(1, 8)]) == {"w-0": "n2"}
    # The leaf is full, so under the same spine.
    full = pod("other", 8, on="n2")
    assert placed(tmp_path, DYNAMIC, [*nodes, running, full, *job(1, 8)])["w-0"] in ("n1", "n5")


def test_the_annotation_is_what_network_labels_read(tmp_path: Path) -> None:
    nodes = [Node(name=one["metadata"]["name"], **_held(one)) for one in patches(tmp_path, "--qos")]
    read = read_network_labels(nodes)
    assert read.conditions == ()
    prefix = "network.topology.kubernetes.io/"
    assert read.quality == {
        **{
            (f"{prefix}block", f"L{number}"): Quality(bandwidth=200 * 10**9, uplinks=1)
            for number in (1, 2, 3, 4)
        },
        **{
            (f"{prefix}datacenter", f"S{number}"): Quality(bandwidth=200 * 10**9, uplinks=1)
            for number in (1, 2)
        },
    }


def _held(manifest: Manifest) -> Manifest:
    return {"labels": manifest["metadata"]["labels"], "annotations": manifest["metadata"]["annotations"]}


def test_before_anything_is_discovered_it_does_nothing(tmp_path: Path) -> None:
    nodes = [node(f"n{number}", {}) for number in range(1, 4)]
    assert len(placed(tmp_path, DYNAMIC, [*nodes, *job(3, 8)])) == 3


def test_a_topology_object_comes_out_that_constraints_can_name(tmp_path: Path) -> None:
    nodes = labelled(tmp_path)
    printed = closeby("discover", "ibnetdiscover", tmp_path / "scan.txt", "-o", "topology")
    topology = yaml.safe_load(printed.stdout)
    prefix = "network.topology.kubernetes.io/"
    assert [level["nodeLabel"] for level in topology["spec"]["levels"]] == [
        f"{prefix}zone",
        f"{prefix}datacenter",
        f"{prefix}block",
        "kubernetes.io/hostname",
    ]
    group, *members = job(4, 8)
    group["spec"]["topologyConstraint"] = {
        "topology": topology["metadata"]["name"],
        "requiredTopologyLevel": f"{prefix}datacenter",
    }
    found = report("simulate", "-f", "-", stdin=text(topology, *nodes, group, *members))
    (placed_group,) = found["groups"]
    assert placed_group["domain"] in (["C", "S1"], ["C", "S2"])


@pytest.mark.parametrize("source", ["ibnetdiscover", "slurm", "aws", "labels"])
def test_printed_labels_stand_beside_the_nodes_of_a_cluster(tmp_path: Path, source: str) -> None:
    """Nobody has to edit what the two commands print."""
    given = tmp_path / "given"
    given.write_text(
        {
            "ibnetdiscover": FABRIC.text(),
            "slurm": "SwitchName=a Nodes=n[1-4]\nSwitchName=b Nodes=n[5-8]\nSwitchName=s Switches=a,b\n",
            "aws": json.dumps(AWS),
            "labels": text(*(node(f"n{number}", {"rack": f"r{number % 2}"}) for number in range(4))),
        }[source]
    )
    arguments = ["-f", given, "--key", "rack"] if source == "labels" else [given]
    labels = closeby("discover", source, *arguments, "-o", "labels").stdout
    hosts = {one["metadata"]["name"]: one["metadata"]["labels"] for one in yaml.safe_load_all(labels)}
    assert hosts
    cluster = text(*(node(name, {"mine": "yes"}) for name in hosts))
    found = report("topology", "-f", "-", stdin=f"{labels}\n---\n{cluster}")
    assert "InvalidSpec" not in [one["reason"] for one in found["conditions"]]
    run = report("simulate", "-f", "-", stdin=f"{text(*job(2, 8))}\n---\n{cluster}\n---\n{labels}")
    assert [one["phase"] for one in run["pods"]] == ["Scheduled", "Scheduled"]
    assert "InvalidSpec" not in [one["reason"] for one in run["conditions"]]
