"""The chart as a release on a real API server: installed, upgraded, uninstalled."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS, define
from tests.control_plane.nodes import joined, node
from tests.deploy.helm import CHART, objects
from tests.deploy.installed import (
    Release,
    helm_says,
    kubeconfig,
    naming,
    path_of,
    removed,
    running,
)
from tests.deploy.test_rights import forbidden, pod
from tests.kube.live import eventually

OLD = Path(__file__).parent / "chart_of_2026_11_29"

RESTRICTED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_release_comes_changes_and_goes(helm: Path, control_plane: ControlPlane, namespace: str) -> None:
    """Its pods are such as a namespace takes that is restricted, and what users have made outlives it."""
    if not control_plane.controllers:
        pytest.skip("needs kube-controller-manager, which makes the pods of a Deployment")

    release = partial(helm_says, helm, control_plane)

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
            asked = (str(CHART), *naming(namespace), "--take-ownership")
            notes = await asyncio.to_thread(release, "install", namespace, *asked)
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
                namespace,
                str(CHART),
                "--reset-then-reuse-values",
                "--set-json",
                f"controllers={json.dumps({'enabled': False})}",
            )

            async def schedulers_alone() -> bool:
                # Two, and one in place of another: without the controllers they are started otherwise.
                names = [one["metadata"]["name"] for one in await pods(api)]
                return len(names) >= 2 and all(one.startswith(f"{namespace}-scheduler-") for one in names)

            await eventually(schedulers_alone, 60)
            await asyncio.to_thread(release, "uninstall", namespace)
            with pytest.raises(ApiError, match="404"):
                await api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{namespace}-scheduler")
            assert (await api.get(f"{groups}/kept"))["spec"] == group["spec"]
            for name in ("podgroups.closeby.dev", "appgroups.scheduling.sigs.k8s.io"):
                assert "deletionTimestamp" not in (await api.get(f"{CRDS}/{name}"))["metadata"]

    asyncio.run(run())


def old_chart(folder: Path) -> Path:
    """The chart as it was, with its defaults; its templates are what it rendered."""
    chart = folder / "closeby"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: closeby, version: 0.1.0}")
    (chart / "values.yaml").write_text((OLD / "values.yaml").read_text())
    made = [one for one in objects((OLD / "rendered.yaml").read_text()) if one["kind"] != "Namespace"]
    # JSON is YAML.
    (chart / "templates" / "all.yaml").write_text("\n---\n".join(map(json.dumps, made)))
    return chart


@contextlib.asynccontextmanager
async def installed_of_old(
    helm: Path, control_plane: ControlPlane, api: Api, folder: Path
) -> AsyncIterator[Release]:
    """The old chart is installed by its own names; whatever the release is then goes at the end."""
    await define(api)
    it = Release("closeby-system", [], "closeby")
    release = partial(helm_says, helm, control_plane, namespace=it.namespace)
    asked = (
        str(old_chart(folder)),
        "--create-namespace",
        "--take-ownership",
        "--set",
        "scheduler.replicas=3",
    )
    await asyncio.to_thread(release, "install", "closeby", *asked)
    try:
        yield it
    finally:
        await asyncio.to_thread(release, "uninstall", "closeby")
        await removed(api, it.namespace)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("values", ["--reset-then-reuse-values", "--reuse-values"])
def test_a_release_of_an_older_chart_is_upgraded(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path, values: str
) -> None:
    """What the new chart has is there, what the operator chose is kept, and the scheduler binds a pod."""
    log = tmp_path / "log"

    async def run() -> None:
        async with (
            Api(control_plane.access()) as api,
            installed_of_old(helm, control_plane, api, tmp_path) as it,
        ):
            release = partial(helm_says, helm, control_plane, namespace=it.namespace)
            await asyncio.to_thread(release, "upgrade", "closeby", str(CHART), values)
            now = Release(
                it.namespace, objects(await asyncio.to_thread(release, "get", "manifest", "closeby")), it.name
            )
            assert {one["kind"] for one in now.objects} >= {"Deployment", "ValidatingAdmissionPolicy"}
            for one in now.objects:
                assert (await api.get(path_of(one)))["metadata"]["name"] == one["metadata"]["name"]
            deployments = [one for one in now.objects if one["kind"] == "Deployment"]
            assert {one["metadata"]["name"]: one["spec"]["replicas"] for one in deployments} == {
                "closeby-scheduler": 3,
                "closeby-controllers": 2,
            }
            who = await kubeconfig(control_plane, api, now, "scheduler")
            pods = f"/api/v1/namespaces/{namespace}/pods"
            async with joined(api, [node(f"{namespace}-n")]):
                with running(now.arguments("scheduler", tmp_path), who, log):
                    await api.create(pods, pod("one", "closeby"))

                    async def bound() -> bool:
                        return bool((await api.get(f"{pods}/one"))["spec"].get("nodeName"))

                    await eventually(bound, 120)
                await api.delete(f"{pods}/one", {"gracePeriodSeconds": 0})
            assert forbidden(log) == []

    asyncio.run(run())
