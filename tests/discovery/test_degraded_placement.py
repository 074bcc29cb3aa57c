"""A leaf with a dead uplink, from the real fabric to a decision: told, shown, and taken last."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.cli.calling import Manifest, closeby, node, pod, report, text
from tests.control_plane.api import Api
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined
from tests.control_plane.nodes import node as cluster_node
from tests.discovery.drawing_fabrics import Drawing
from tests.discovery.ibsim import simulated
from tests.discovery.test_ibsim import FAT_TREE
from tests.golden.fixture import Golden
from tests.kube.live import unique

PREFIX = "network.topology.kubernetes.io/"
QOS = "network.qos.kubernetes.io/switches"


@pytest.fixture
def scan(tmp_path: Path) -> Iterator[str]:
    """Three leaves with two hosts and two uplinks each, of which L1 has lost one; by ibnetdiscover itself."""
    with ExitStack() as stack:
        fabric = stack.enter_context(simulated(FAT_TREE, tmp_path))
        leaf = next(one for one in fabric.scan("n1").split("\n\n") if '# "L1" base port' in one)
        line = next(one for one in leaf.splitlines() if one.startswith('[7]\t"S-'))
        fabric.console('Unlink "L1"[7]')
        yield fabric.scan_without(line, "n1")


def labelled(folder: Path, scanned: str, *arguments: str) -> list[Manifest]:
    """The nodes as ``discover -o labels`` labels them."""
    (folder / "scan.txt").write_text(scanned)
    printed = closeby("discover", "ibnetdiscover", folder / "scan.txt", "-o", "labels", *arguments)
    nodes = []
    for one in yaml.safe_load_all(printed.stdout):
        nodes.append(node(one["metadata"]["name"], one["metadata"]["labels"]))
        nodes[-1]["metadata"]["annotations"] = one["metadata"].get("annotations", {})
    return nodes


def job(name: str, members: int, gpus: int = 8) -> list[Manifest]:
    """A gang that wants one leaf."""
    constraint = {"topology": "network-labels", "requiredTopologyLevel": f"{PREFIX}block"}
    group: Manifest = {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": members, "topologyConstraint": constraint},
    }
    return [group, *(pod(f"{name}-{number}", gpus, gang=name) for number in range(members))]


def test_the_healthy_leaves_are_taken_first(tmp_path: Path, scan: str) -> None:
    nodes = labelled(tmp_path, scan)
    jobs = [one for number in range(3) for one in job(f"job-{number}", 2)]
    found = report("simulate", "-f", "-", stdin=text(*nodes, *jobs))
    assert [group["domain"][-1] for group in found["groups"]] == ["L2", "L3", "L1"]
    # Without what is known of the uplinks all leaves are alike.
    found = report("simulate", "-f", "-", stdin=text(*labelled(tmp_path, scan, "--no-qos"), *jobs))
    assert [group["domain"][-1] for group in found["groups"]] == ["L1", "L2", "L3"]


def test_topology_shows_what_is_wrong(tmp_path: Path, scan: str, golden: Golden) -> None:
    nodes = labelled(tmp_path, scan)
    (found,) = report("topology", "-f", "-", stdin=text(*nodes))["topologies"]
    uplinks = {one["path"][-1]: one["uplinks"] for one in found["domains"] if one["level"] == "block"}
    healthy = {
        "cables": 2,
        "usualCables": 2,
        "bandwidth": 20 * 10**9,
        "usualBandwidth": 20 * 10**9,
        "cost": 1,
    }
    assert uplinks == {
        "L1": {**healthy, "cables": 1, "bandwidth": 10 * 10**9, "cost": 2},
        "L2": healthy,
        "L3": healthy,
    }
    shown = closeby("topology", "-f", "-", "--level", "block", stdin=text(*nodes)).stdout
    golden("discover", shown)
    assert shown.count("counts as") == 1


def test_of_a_healthy_fabric_nothing_is_said() -> None:
    nodes = [node(f"n{number}", {f"{PREFIX}block": f"L{number}"}) for number in (1, 2)]
    for number, one in enumerate(nodes, 1):
        one["metadata"]["annotations"] = {QOS: json.dumps({f"L{number}": {"uplinks": 2}})}
    assert "counts as" not in closeby("topology", "-f", "-", stdin=text(*nodes)).stdout


def test_a_job_over_two_leaves_leaves_the_degraded_one_out(tmp_path: Path, scan: str) -> None:
    (group, *members) = job("wide", 4)
    group["spec"]["topologyConstraint"]["requiredTopologyLevel"] = f"{PREFIX}datacenter"
    found = report("simulate", "-f", "-", stdin=text(*labelled(tmp_path, scan), group, *members))
    assert {one["node"] for one in found["pods"]} == {"n3", "n4", "n5", "n6"}


def test_degraded_links_are_applied_and_shown_in_a_cluster(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Applied, shown from the cluster, and left alone where somebody else wrote the annotation."""
    scan = tmp_path / "scan.txt"

    async def run() -> None:
        names = [unique(name) for name in ("a", "b", "c")]
        leaves = {f"L{place}": f"{name} mlx5_0" for place, name in enumerate(names, 1)}
        nodes = [cluster_node(name) for name in names]
        theirs = '{"L3": {"distance": 1}}'
        nodes[2]["metadata"]["annotations"] = {QOS: theirs}
        async with Api(control_plane.access()) as api, joined(api, nodes):
            kubeconfig = ("--kubeconfig", str(control_plane.kubeconfig))

            async def annotation(name: str) -> str | None:
                found = await api.get(f"/api/v1/nodes/{name}")
                value: str | None = found["metadata"].get("annotations", {}).get(QOS)
                return value

            async def apply(cables: str) -> None:
                scan.write_text(Drawing(leaves, cables, order="S L1 L2 L3").text())
                program = (sys.executable, "-m", "closeby", "discover", "ibnetdiscover", str(scan))
                done = await asyncio.create_subprocess_exec(*program, "--apply", *kubeconfig)
                assert await done.wait() == 0

            await apply("L1-S, L1-S, L2-S, L3-S, L3-S")
            assert await annotation(names[1]) == '{"L2":{"bandwidth":"200Gbps","uplinks":1}}'
            assert await annotation(names[2]) == theirs
            found = await asyncio.to_thread(report, "topology", "--topology", "network-labels", *kubeconfig)
            (topology,) = found["topologies"]
            shown = {
                one["path"][-1]: one["uplinks"] and one["uplinks"]["cost"]
                for one in topology["domains"]
                if one["level"] == "block" and one["path"][0] == "S"
            }
            assert shown == {"L1": 1, "L2": 2, "L3": None}
            # Healed: at once.
            await apply("L1-S, L1-S, L2-S, L2-S, L3-S, L3-S")
            assert await annotation(names[1]) == '{"L2":{"bandwidth":"400Gbps","uplinks":2}}'

    asyncio.run(run())
