"""closeby's own kinds in a control plane."""

import asyncio
from pathlib import Path

import yaml

from tests.control_plane.api import Api, ApiError, Object

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FILES = sorted((Path(__file__).parents[2] / "deploy" / "crds").glob("*.yaml"))


async def define(api: Api) -> dict[str, Object]:
    """Applies the definitions and waits until their kinds are served; returns them by name, as they stand."""
    return {name: await applied(api, one) for name, one in _definitions().items()}


def _definitions() -> dict[str, Object]:
    found = [yaml.safe_load(file.read_text()) for file in FILES]
    return {one["metadata"]["name"]: one for one in found}


async def applied(api: Api, definition: Object) -> Object:
    """Applies one definition and waits until its kind is served; returns it as it stands."""
    name = definition["metadata"]["name"]
    await api.patch(f"{CRDS}/{name}", definition, kind="apply", fieldManager="closeby-tests", force="true")
    async with asyncio.timeout(60):
        while True:
            found = await api.get(f"{CRDS}/{name}")
            conditions = found.get("status", {}).get("conditions") or ()
            if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
                await served(api, definition)
                return found
            await asyncio.sleep(0.05)


async def served(api: Api, definition: Object) -> None:
    """Waits until the kind is served: what serves it learns that it is established a moment later."""
    spec = definition["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    while True:
        try:
            await api.get(path, limit="1")
        except ApiError as error:
            if error.status != 404:
                raise
            await asyncio.sleep(0.05)
        else:
            return
