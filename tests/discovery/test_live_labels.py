"""`closeby discover … --apply` on a real API server: nodes get labels and lose them in time, nothing else."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.control_plane.api import Api
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, node
from tests.discovery.drawing_fabrics import Drawing
from tests.kube.live import eventually, unique

BLOCK = "network.topology.kubernetes.io/block"
SPINE = "network.topology.kubernetes.io/datacenter"
NOTE = "discovery.closeby.dev/ibnetdiscover"


class World:
    """Nodes a, b and c in the cluster, and a file with a scan."""

    def __init__(self, api: Api, kubeconfig: Path, names: list[str], scan: Path) -> None:
        self.api = api
        self.names = names
        self._kubeconfig = kubeconfig
        self._scan = scan

    def scanned(self, uplinks: str | None = None, **leaves: str) -> None:
        """The fabric from now on: names of hosts per leaf; without ``uplinks`` each leaf has a cable to S."""
        hosts = {
            leaf: ", ".join(f"{self.names['abc'.index(one)]} mlx5_0" for one in each)
            for leaf, each in leaves.items()
        }
        cables = ", ".join(f"{leaf}-S" for leaf in hosts) if uplinks is None else uplinks
        text = Drawing(hosts, cables, order="S L1 L2 L3").text()
        beside = self._scan.with_suffix(".new")
        beside.write_text(text)
        beside.replace(self._scan)

    def broken(self) -> None:
        """The scan failed."""
        self._scan.write_text("#\n# Topology file: generated\n#\n")

    def arguments(self, *more: str) -> list[str]:
        program = [sys.executable, "-m", "closeby", "discover", "ibnetdiscover", str(self._scan)]
        return [*program, "--apply", "--kubeconfig", str(self._kubeconfig), *more]

    async def apply(self, *more: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """The command, once."""
        done = await asyncio.to_thread(
            subprocess.run, self.arguments(*more), capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == code, done.stderr
        return done

    async def node(self, which: str) -> Any:
        return (await self.api.get(f"/api/v1/nodes/{self.names['abc'.index(which)]}"))["metadata"]

    async def labels(self, which: str) -> tuple[str | None, str | None]:
        """Leaf and spine."""
        labels = (await self.node(which))["labels"]
        return labels.get(BLOCK), labels.get(SPINE)


@asynccontextmanager
async def world(control_plane: ControlPlane, folder: Path) -> AsyncIterator[World]:
    names = [unique(name) for name in "abc"]
    made = [node(name, labels={"example.com/mine": "yes"}) for name in names]
    async with Api(control_plane.access()) as api, joined(api, made):
        yield World(api, control_plane.kubeconfig, names, folder / "scan.txt")


def test_nodes_get_labels_and_lose_them_after_three_misses(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async def run() -> None:
        async with world(control_plane, tmp_path) as here:
            here.scanned(L1="ab", L2="c")
            done = await here.apply("-o", "json")
            assert len(json.loads(done.stdout)["nodes"]) == 3
            assert "msg=" in done.stderr and "found=3 changed=3" in done.stderr
            assert [await here.labels(one) for one in "abc"] == [("L1", "S"), ("L1", "S"), ("L2", "S")]
            before = await here.node("a")
            assert before["labels"]["example.com/mine"] == "yes"
            # Again: nothing changes, so nothing is written. (Kubernetes' own controllers annotate new nodes.)
            assert "changed=0" in (await here.apply()).stderr
            after = await here.node("a")
            assert (after["labels"], after["annotations"][NOTE]) == (
                before["labels"],
                before["annotations"][NOTE],
            )
            # b is off and c was moved.
            here.scanned(L1="ac", L2="")
            assert "changed=2" in (await here.apply()).stderr
            assert [await here.labels(one) for one in "abc"] == [("L1", "S"), ("L1", "S"), ("L1", "S")]
            await here.apply()
            assert await here.labels("b") == ("L1", "S")
            assert f"cleared={here.names[1]}" in (await here.apply()).stderr
            assert await here.labels("b") == (None, None)
            gone = await here.node("b")
            assert NOTE not in gone.get("annotations", {})
            assert gone["labels"]["example.com/mine"] == "yes"

    asyncio.run(run())


def test_a_dry_run_keeps_nothing(control_plane: ControlPlane, tmp_path: Path) -> None:
    async def run() -> None:
        async with world(control_plane, tmp_path) as here:
            here.scanned(L1="abc")
            done = await here.apply("--dry-run")
            assert "found=3 changed=3" in done.stderr and "dry_run=True" in done.stderr
            assert await here.labels("a") == (None, None)

    asyncio.run(run())


def test_hosts_that_are_no_nodes_are_reported(control_plane: ControlPlane, tmp_path: Path) -> None:
    async def run() -> None:
        async with world(control_plane, tmp_path) as here:
            here.names[2] = "a-stranger"
            here.scanned(L1="abc")
            done = await here.apply("--labels", "example.com/leaf")
            assert 'msg="hosts without a node" number=1 hosts=a-stranger' in done.stderr
            assert (await here.node("a"))["labels"]["example.com/leaf"] == "L1"
            assert await here.labels("a") == (None, None)

    asyncio.run(run())


def test_labels_of_others_are_left_alone(control_plane: ControlPlane, tmp_path: Path) -> None:
    async def run() -> None:
        async with world(control_plane, tmp_path) as here:
            here.scanned(L1="ab", L2="c")
            theirs = {"metadata": {"labels": {BLOCK: "rack-7"}}}
            await here.api.patch(f"/api/v1/nodes/{here.names[0]}", theirs)
            done = await here.apply()
            told = f'msg="labels of other writers stay unchanged" labels={BLOCK} nodes={here.names[0]} '
            assert f'{told}remedy="--overwrite takes them over"' in done.stderr
            assert [await here.labels(one) for one in "abc"] == [("rack-7", "S"), ("L1", "S"), ("L2", "S")]
            assert "labels of others" not in (await here.apply("--overwrite")).stderr
            assert await here.labels("a") == ("L1", "S")

    asyncio.run(run())


def test_a_scan_from_which_most_nodes_are_missing_takes_no_labels(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async def run() -> None:
        async with world(control_plane, tmp_path) as here:
            here.scanned(L1="ab", L2="c")
            await here.apply()
            here.scanned(L1="a")
            for _ in range(4):
                done = await here.apply("--misses", "1")
                assert (
                    'msg="the scan seems to be cut short, so nothing counts as missed" not_found=2 labelled=3'
                    in done.stderr
                )
            assert [await here.labels(one) for one in "abc"] == [("L1", "S"), ("L1", "S"), ("L2", "S")]

    asyncio.run(run())


def test_hosts_none_of_which_is_a_node_are_an_error(control_plane: ControlPlane, tmp_path: Path) -> None:
    async def run() -> None:
        async with world(control_plane, tmp_path) as here:
            here.names[:] = ["host-a", "host-b", "host-c"]
            here.scanned(L1="ab", L2="c")
            done = await here.apply(code=2)
            assert "error: none of the 3 hosts that were found is a node of " in done.stderr
            assert "such as host-a; name them as the nodes are called" in done.stderr

    asyncio.run(run())


def test_labels_of_kubernetes_own_are_not_written(control_plane: ControlPlane, tmp_path: Path) -> None:
    async def run() -> None:
        async with world(control_plane, tmp_path) as here:
            here.scanned(L1="abc")
            for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone"):
                done = await here.apply("--labels", key, code=2)
                assert f"{key} is a label of Kubernetes' own, which --apply does not write" in done.stderr

    asyncio.run(run())


def watching(here: World, log: Path) -> "subprocess.Popen[bytes]":
    """The command, with a round every second."""
    with log.open("wb") as said:
        return subprocess.Popen(here.arguments("--watch", "1", "--misses", "2"), stderr=said)


def test_repeated_discovery_follows_the_source_and_survives_its_failures(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    unread = 'level=warning msg="reading the source failed'

    async def failed_several_times() -> bool:
        return log.read_text().count(unread) >= 3

    async def run() -> None:
        async with world(control_plane, tmp_path) as here:
            here.scanned(L1="ab", L2="c")
            with watching(here, log) as process:
                try:

                    async def moved_to(leaf: str | None) -> None:
                        async def met() -> bool:
                            return (await here.labels("b"))[0] == leaf

                        await eventually(met, 60)

                    await moved_to("L1")
                    here.scanned(L1="a", L2="bc", uplinks="L1-S, L2-S, L2-S")
                    await moved_to("L2")
                    # A scan that fails is not a miss: several of them change nothing.
                    here.broken()
                    await eventually(failed_several_times, 60)
                    assert await here.labels("b") == ("L2", "S")
                    here.scanned(L1="a", L2="c")
                    await moved_to(None)
                finally:
                    process.send_signal(signal.SIGTERM)
                code = await asyncio.to_thread(process.wait, 60)
                said = log.read_text()
                assert code == 0, said
                # What is odd is told when it is new.
                assert said.count("the uplinks of L1 are degraded") == 1

    asyncio.run(run())


def test_a_user_who_may_not_label_nodes_gets_an_error(control_plane: ControlPlane, tmp_path: Path) -> None:
    ordinary = control_plane.ordinary_kubeconfig
    if ordinary is None:
        pytest.skip("needs a user without rights: run it without CLOSEBY_TEST_KUBECONFIG")

    async def run() -> None:
        async with world(control_plane, tmp_path) as here:
            here.scanned(L1="abc")
            done = await here.apply("--kubeconfig", str(ordinary), code=2)
            assert done.stderr.startswith("error: nodes can't be listed: ")
            assert done.stderr.endswith("; let this user list and patch nodes\n")

    asyncio.run(run())


def test_labels_of_a_cluster_are_read_and_written_under_other_keys(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    """No -f: the nodes as they are now."""
    layers = [f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3)]

    async def run() -> None:
        name = unique("eks")
        made = node(name, labels={key: f"nn-{place}" for place, key in enumerate(layers)})
        async with Api(control_plane.access()) as api, joined(api, [made]):
            program = [sys.executable, "-m", "closeby", "discover", "labels", "--preset", "eks"]
            more = ["--kubeconfig", str(control_plane.kubeconfig), "-o", "json"]

            async def discover(*arguments: str) -> Any:
                command = [*program, *more, *arguments]
                done = await asyncio.to_thread(
                    subprocess.run, command, capture_output=True, text=True, timeout=100, check=False
                )
                assert done.returncode == 0, done.stderr
                return json.loads(done.stdout)["nodes"][name]

            assert (await discover())["path"] == ["nn-2", "nn-1", "nn-0"]
            await discover("--apply", "--labels", "example.com/leaf,example.com/spine")
            labels = (await api.get(f"/api/v1/nodes/{name}"))["metadata"]["labels"]
            assert (labels["example.com/leaf"], labels["example.com/spine"]) == ("nn-2", "nn-1")
            assert labels[layers[0]] == "nn-0"

    asyncio.run(run())
