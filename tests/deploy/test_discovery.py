"""`closeby discover … --apply --watch` as the chart runs it: with a source of choice, and few rights."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeby.cli.discover import SOURCES
from tests.control_plane.api import Api
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, node
from tests.deploy.helm import CHART, called, objects, rendered
from tests.deploy.installed import Release, allowed, installed, kubeconfig, running
from tests.deploy.test_rights import CONTROLLERS_ONLY, NEITHER, SCHEDULER_ONLY, forbidden
from tests.kube.live import eventually

ENABLED = ("--set", "discovery.enabled=true")


def found(text: str, kind: str) -> dict[str, Any]:
    """The discovery's only object of a kind."""
    (one,) = (
        one
        for one in objects(text)
        if one["kind"] == kind and one["metadata"]["name"].endswith("closeby-discovery")
    )
    return dict(one)


def test_it_is_left_out_unless_it_is_enabled(helm: Path) -> None:
    assert "discovery" not in rendered(helm)


def test_helm_finds_no_fault_with_it(helm: Path) -> None:
    done = called(helm, "lint", "--strict", str(CHART), *ENABLED, "--set", "discovery.infiniband=true")
    assert done.returncode == 0, done.stdout


def test_it_knows_every_source(helm: Path) -> None:
    for source in SOURCES:
        if source != "diff":
            text = rendered(helm, *ENABLED, "--set", f"discovery.source={source}")
            (container,) = found(text, "Deployment")["spec"]["template"]["spec"]["containers"]
            assert container["args"] == ["discover", source, "--apply", "--watch=300", "--misses=3"]


def test_one_at_a_time_since_two_would_count_each_others_misses(helm: Path) -> None:
    spec = found(rendered(helm, *ENABLED), "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_it_runs_without_privileges_unless_it_scans(helm: Path) -> None:
    pods = found(rendered(helm, *ENABLED), "Deployment")["spec"]["template"]["spec"]
    (container,) = pods["containers"]
    assert pods["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    scanning = ("--set", "discovery.infiniband=true,discovery.image.repository=with-diags")
    pods = found(rendered(helm, *ENABLED, *scanning), "Deployment")["spec"]["template"]["spec"]
    (container,) = pods["containers"]
    assert container["image"].startswith("with-diags:")
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert {one["name"] for one in container["volumeMounts"]} == {"scratch", "infiniband"}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ("discovery.source=guess", "source"),
        ("discovery.seconds=0", "seconds"),
        ("discovery.sauce=slurm", "sauce"),
    ],
)
def test_values_are_checked(helm: Path, values: str, complaint: str) -> None:
    done = called(helm, "template", "closeby", str(CHART), *ENABLED, "--set", values)
    assert done.returncode != 0
    assert complaint in done.stderr


def test_it_labels_nodes_with_these_rights_and_has_no_others(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A topology.conf in the values; it is changed while the program runs."""
    log = tmp_path / "log"
    names = [f"{namespace}-{i}" for i in range(3)]
    block = "network.topology.kubernetes.io/block"

    def conf(*leaves: str) -> str:
        lines = [f"SwitchName=leaf-{at} Nodes={nodes}" for at, nodes in enumerate(leaves)]
        switches = ",".join(f"leaf-{at}" for at in range(len(leaves)))
        return "\n".join([*lines, f"SwitchName=spine Switches={switches}", ""])

    values = tmp_path / "values.yaml"
    discovery = {
        "enabled": True,
        "source": "slurm",
        "arguments": ["/etc/closeby/topology.conf"],
        "seconds": 1,
        "files": {"topology.conf": conf(f"{names[0]},{names[1]}", names[2])},
    }
    values.write_text(yaml.safe_dump({"discovery": discovery}))

    async def run() -> None:
        async with (
            Api(control_plane.access()) as api,
            joined(api, [node(name) for name in names]),
            installed(helm, api, namespace, "--values", str(values)) as release,
        ):
            await check_rights(api, release, namespace)
            who = await kubeconfig(control_plane, api, release, "discovery")
            arguments = release.arguments("discovery", tmp_path)

            async def leaves() -> list[str | None]:
                each = [await api.get(f"/api/v1/nodes/{name}") for name in names]
                return [one["metadata"]["labels"].get(block) for one in each]

            async def are(*wanted: str) -> None:
                async def met() -> bool:
                    return await leaves() == list(wanted)

                await eventually(met)

            with running(arguments, who, log):
                await are("leaf-0", "leaf-0", "leaf-1")
                (tmp_path / "topology.conf").write_text(conf(names[0], f"{names[1]},{names[2]}"))
                await are("leaf-0", "leaf-1", "leaf-1")
        assert forbidden(log) == []

    asyncio.run(run())


async def check_rights(api: Api, release: Release, namespace: str) -> None:
    user = release.user("discovery")
    for verb in ("patch", "list"):
        assert await allowed(api, user, verb, "nodes"), verb
    for verb, resource in (*NEITHER, *SCHEDULER_ONLY, *CONTROLLERS_ONLY, ("get", "nodes"), ("list", "pods")):
        if (verb, resource) != ("patch", "nodes"):
            assert not await allowed(api, user, verb, resource, namespace=namespace), (verb, resource)
