"""The scheduler beside a definition of the PodGroup that an older version installed, on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import yaml

from closeby.reading.configuration import Configuration
from tests.control_plane.api import Api, ApiError
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS, FILES, define
from tests.kube.live_world import World, group_of, host, until, world

NEWER = ("lastDecision", "reservation", "preemption", "evictions")
pytestmark = pytest.mark.timeout(300)


@asynccontextmanager
async def older_definition(it: World, *, reservation: bool = False) -> AsyncIterator[None]:
    """Inside the context the PodGroup's status lacks newer fields; ``reservation``: a part of it."""
    (file,) = [file for file in FILES if file.stem == "podgroups"]
    definition = yaml.safe_load(file.read_text())
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields = schema["properties"]["status"]["properties"]
    for field in NEWER:
        if reservation:
            fields["reservation"]["properties"].pop("expected", None)
        else:
            del fields[field]
    path = f"{CRDS}/podgroups.closeby.dev"
    await it.api.patch(path, definition, kind="apply", fieldManager="closeby-tests", force="true")
    try:
        await it.create_group("probe", 1)
        await until(lambda: refused(it.api, it.namespace))
        yield
    finally:
        await define(it.api)
        await until(lambda: taken(it.api, it.namespace))


async def refused(api: Api, namespace: str) -> bool:
    return not await taken(api, namespace)


async def taken(api: Api, namespace: str) -> bool:
    """Whether the server knows the newer fields, and all of their parts."""
    probe = {
        "apiVersion": "closeby.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "probe", "namespace": namespace},
        "status": {
            "lastDecision": {"time": "2026-11-22T00:00:00Z"},
            "reservation": {"nodes": 1, "since": "2026-11-22T00:00:00Z", "expected": "2026-11-22T00:00:00Z"},
        },
    }
    path = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/probe/status"
    try:
        await api.patch(path, probe, kind="apply", fieldManager="probe", force="true")
    except ApiError as error:
        assert error.status == 500
        return False
    return True


def test_gangs_start_and_get_conditions_without_the_newer_fields(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, host("a"), host("b")) as it, older_definition(it):
            async with it.scheduling():
                await it.gang("g", 2, required="rack", gpus=8)
                await it.bound(2)

                async def told() -> bool:
                    status = (await group_of(it, "g")).get("status", {})
                    return bool(status.get("scheduled") == 2)

                await until(told)
            status = (await group_of(it, "g"))["status"]
            assert not status.keys() & set(NEWER)
            assert len(it.said("PodGroup written without its newer fields")) == 1

    asyncio.run(run())


def test_gangs_get_conditions_without_a_part_of_the_newer_fields(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with (
            world(control_plane, namespace, host("a", "r1", 1), host("b", "r1", 1)) as it,
            older_definition(it, reservation=True),
            it.scheduling(Configuration(reserve_after=1.0)) as scheduler,
        ):
            await it.create(*(it.pod(f"old-{name}", activeDeadlineSeconds=3600) for name in "ab"))
            await it.bound(2)
            await it.gang("g", 2)

            async def expected() -> bool:
                kept = scheduler.engine.reservation
                return kept is not None and kept.expected is not None

            await until(expected)

            async def said() -> bool:
                return bool(it.said("PodGroup written without its newer fields"))

            await until(said)
            status = (await group_of(it, "g"))["status"]
            assert "reservation" not in status and status["conditions"]

    asyncio.run(run())
