"""The chart as a release on a real API server: installed, upgraded, uninstalled."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS, define
from tests.deploy.helm import CHART, called
from tests.kube.live import eventually

RESTRICTED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_release_comes_changes_and_goes(helm: Path, control_plane: ControlPlane, namespace: str) -> None:
    """Its pods are such as a namespace takes that is restricted, and what users have made outlives it."""
    if not control_plane.controllers:
        pytest.skip("needs kube-controller-manager, which makes the pods of a Deployment")

    def release(command: str, *arguments: str) -> str:
        done = called(
            helm,
            command,
            namespace,
            *arguments,
            "--namespace",
            namespace,
            "--kubeconfig",
            str(control_plane.kubeconfig),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    async def pods(api: Api) -> list[dict[str, Any]]:
        found = await api.get(
            f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"app.kubernetes.io/instance={namespace}"
        )
        return [one for one in found["items"] if "deletionTimestamp" not in one["metadata"]]

    async def run() -> None:
        async with Api(control_plane.access()) as api:
            # As other tests left them: not as Helm's.
            await define(api)
            await api.patch(f"/api/v1/namespaces/{namespace}", RESTRICTED)
            values = f"fullnameOverride={namespace},configuration.schedulerName={namespace}"
            notes = await asyncio.to_thread(
                release, "install", str(CHART), "--set", values, "--take-ownership"
            )
            assert f"schedulerName: {namespace}" in notes

            async def four() -> bool:
                return len(await pods(api)) == 4

            await eventually(four, 60)
            group = {
                "apiVersion": "closeby.dev/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "kept"},
                "spec": {"minMember": 2},
            }
            groups = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups"
            await api.create(groups, group)
            await asyncio.to_thread(
                release,
                "upgrade",
                str(CHART),
                "--reuse-values",
                "--set-json",
                f"controllers={json.dumps({'enabled': False})}",
            )

            async def schedulers_alone() -> bool:
                # Two, and one in place of another: without the controllers they are started otherwise.
                names = [one["metadata"]["name"] for one in await pods(api)]
                return len(names) >= 2 and all(one.startswith(f"{namespace}-scheduler-") for one in names)

            await eventually(schedulers_alone, 60)
            await asyncio.to_thread(release, "uninstall")
            with pytest.raises(ApiError, match="404"):
                await api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{namespace}-scheduler")
            assert (await api.get(f"{groups}/kept"))["spec"] == group["spec"]
            for name in ("podgroups.closeby.dev", "appgroups.scheduling.sigs.k8s.io"):
                assert "deletionTimestamp" not in (await api.get(f"{CRDS}/{name}"))["metadata"]

    asyncio.run(run())
