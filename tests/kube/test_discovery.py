"""Which of the watched kinds a server has, also when one arrives later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

from closeby.kube.watch.reflector import Reflector, Watching
from closeby.kube.watch.resources import Arrived, Discovery, Left, Resource, Watched
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import direct, following, through_proxy, unique
from tests.kube.test_reflector import SOON

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def crd(group: str, status: bool = True) -> Object:
    """Racks, a made-up kind."""
    version: Object = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    if status:
        version["subresources"] = {"status": {}}
    return {
        "metadata": {"name": f"racks.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": "Rack", "plural": "racks", "singular": "rack", "listKind": "RackList"},
            "versions": [version],
        },
    }


@asynccontextmanager
async def served(api: Api, group: str, status: bool = True) -> AsyncIterator[None]:
    """The kind is there inside the context."""
    await api.create(CRDS, crd(group, status))
    try:
        yield
    finally:
        await api.delete(f"{CRDS}/racks.{group}")


def racks(group: str, status: bool = True) -> Resource:
    return Resource(
        group=group, version="v1alpha1", kind="Rack", plural="racks", namespaced=False, status=status
    )


def test_what_every_server_has(control_plane: ControlPlane) -> None:
    async def run() -> None:
        async with direct(control_plane.kubeconfig) as transport:
            found = await Discovery(transport).served()
            assert isinstance(found, tuple)
            classes = [one for one in found if one.kind == "PriorityClass"]
            assert [(one.collection(), one.namespaced) for one in classes] == [
                ("/apis/scheduling.k8s.io/v1/priorityclasses", False)
            ]

    asyncio.run(run())


def test_a_kind_that_comes_and_goes(control_plane: ControlPlane) -> None:
    group = unique("rack") + ".example.com"
    watched = [
        Watched("scheduling.k8s.io", "PriorityClass", ("v1",)),
        Watched(group, "Rack", ("v2", "v1alpha1")),
    ]

    async def run() -> None:
        access = control_plane.access()
        async with (
            Api(access) as api,
            through_proxy(access) as (proxy, transport),
            aclosing(Discovery(transport, watched).changes(interval=0.05)) as changes,
            asyncio.timeout(60),
        ):
            first = await anext(changes)
            assert isinstance(first, Arrived) and first.resource.kind == "PriorityClass"
            async with served(api, group):
                assert await anext(changes) == Arrived(racks(group))
                rack = {"apiVersion": f"{group}/v1alpha1", "kind": "Rack", "metadata": {"name": "r1"}}
                await api.create(f"/apis/{group}/v1alpha1/racks", rack)
                reflector = Reflector(transport, racks(group), Watching(pace=SOON))
                async with following(reflector) as seen:
                    assert list(seen.objects) == ["r1"]
                proxy.inject("GET", "/apis", Refuse(403))
                trouble = await anext(changes)
                assert not isinstance(trouble, Arrived | Left) and trouble.code == 403
            assert await anext(changes) == Left(racks(group))
            assert [change.key for change in reflector.forget() if hasattr(change, "key")] == ["r1"]

    asyncio.run(run())
