"""A priority class for as long as a test needs it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.control_plane.api import ApiError
from tests.kube.live import unique
from tests.kube.live_world import World, until

PATH = "/apis/scheduling.k8s.io/v1/priorityclasses"


@asynccontextmanager
async def priority_class(it: World, value: int) -> AsyncIterator[str]:
    """The name of a new class, once the server admits pods that name it: admission hears of it by a watch."""
    name = unique("class")
    await it.api.create(PATH, {"metadata": {"name": name}, "value": value})
    pods = f"/api/v1/namespaces/{it.namespace}/pods?dryRun=All"

    async def admitted() -> bool:
        try:
            await it.api.create(pods, it.pod("probe", priorityClassName=name))
        except ApiError as error:
            assert error.status == 403, error
            return False
        return True

    try:
        await until(admitted)
        yield name
    finally:
        await it.api.delete(f"{PATH}/{name}")
