"""The definitions of our kinds, on a real API server: what it takes, and what it says about what it refuses.

The server and closeby's own readers agree: what is refused has a blocking condition (or can't be read) and
what is taken has none.
"""

import asyncio
from collections.abc import Iterator

import pytest

from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.deploy.samples import (
    OURS,
    PLURALS,
    REFUSED,
    REFUSED_BY_THE_SERVER_ALONE,
    STATUSES,
    TAKEN,
    gang,
)
from tests.kube.live import eventually
from tests.reading.manifest_text import read_objects


def collection(one: Object, namespace: str) -> str:
    """Where objects of its kind are made."""
    where = "" if one["kind"] == "Topology" else f"/namespaces/{namespace}"
    return f"/apis/{one['apiVersion']}{where}/{PLURALS[one['kind']]}"


def made(control_plane: ControlPlane, namespace: str, one: Object) -> Object:
    """The object as the server would keep it."""

    async def run() -> Object:
        async with Api(control_plane.access()) as api:
            return await api.create(f"{collection(one, namespace)}?dryRun=All&fieldValidation=Strict", one)

    return asyncio.run(run())


def blocked(one: Object) -> bool:
    """Whether closeby's reader finds that it can't be used."""
    manifests = read_objects(one)
    conditions = [
        record.conditions
        for records in (
            manifests.groups,
            manifests.topologies,
            manifests.app_groups,
            manifests.network_topologies,
        )
        for record in records
    ]
    return not conditions or any(one.blocking for found in conditions for one in found)


@pytest.fixture(scope="module")
def defined(control_plane: ControlPlane) -> dict[str, Object]:
    """The definitions as they stand, once the server serves their kinds."""

    async def run() -> dict[str, Object]:
        async with Api(control_plane.access()) as api:
            return await define(api)

    return asyncio.run(run())


def test_the_server_serves_them_and_has_no_complaint(defined: dict[str, Object]) -> None:
    assert len(defined) == 4
    for name, one in defined.items():
        conditions = {each["type"]: each["status"] for each in one["status"]["conditions"]}
        assert conditions["NamesAccepted"] == conditions["Established"] == "True", name
        assert "NonStructuralSchema" not in conditions, name
        (version,) = one["spec"]["versions"]
        assert version["subresources"] == {"status": {}}, name
        assert one["spec"]["names"]["shortNames"], name


@pytest.mark.parametrize("one", TAKEN.values(), ids=TAKEN)
def test_the_definition_accepts(
    control_plane: ControlPlane, namespace: str, defined: dict[str, Object], one: Object
) -> None:
    kept = made(control_plane, namespace, one)
    # Nothing is defaulted and nothing is dropped.
    assert kept["spec"] == one["spec"]
    assert not blocked(one)


@pytest.mark.parametrize(("one", "field", "message"), REFUSED.values(), ids=REFUSED)
def test_the_definition_refuses(
    control_plane: ControlPlane,
    namespace: str,
    defined: dict[str, Object],
    one: Object,
    field: str,
    message: str,
) -> None:
    with pytest.raises(ApiError) as refused:
        made(control_plane, namespace, one)
    assert refused.value.status == 422
    assert f"{field}: " in refused.value.message and message in refused.value.message
    assert blocked(one)


@pytest.mark.parametrize(
    ("one", "field", "message"), REFUSED_BY_THE_SERVER_ALONE.values(), ids=REFUSED_BY_THE_SERVER_ALONE
)
def test_it_refuses_what_closeby_gets_by_with(
    control_plane: ControlPlane,
    namespace: str,
    defined: dict[str, Object],
    one: Object,
    field: str,
    message: str,
) -> None:
    with pytest.raises(ApiError) as refused:
        made(control_plane, namespace, one)
    assert refused.value.status == 422
    assert f"{field}: " in refused.value.message and message in refused.value.message
    assert not blocked(one)


def test_it_says_so_of_fields_that_do_not_exist(
    control_plane: ControlPlane, namespace: str, defined: dict[str, Object]
) -> None:
    with pytest.raises(ApiError, match=r'unknown field "spec\.minMembers"'):
        made(control_plane, namespace, gang(minMembers=3))


@pytest.fixture
def kept(
    control_plane: ControlPlane, namespace: str, defined: dict[str, Object], request: pytest.FixtureRequest
) -> Iterator[tuple[str, Object]]:
    """The path and the object of a kind, with its status written."""
    one, status, _ = STATUSES[request.param]
    one = {**one, "metadata": {"name": namespace}}
    path = f"{collection(one, namespace)}/{namespace}"

    async def make() -> Object:
        async with Api(control_plane.access()) as api:
            await api.create(collection(one, namespace), {**one, "status": status})
            assert "status" not in await api.get(path)
            return await api.patch(f"{path}/status", {"status": status})

    async def drop() -> None:
        async with Api(control_plane.access()) as api:
            await api.delete(path)

    yield path, asyncio.run(make())
    asyncio.run(drop())


@pytest.mark.parametrize("kept", STATUSES, indirect=True)
def test_its_status_is_written_apart_and_shown(control_plane: ControlPlane, kept: tuple[str, Object]) -> None:
    path, found = kept
    _, status, shown = STATUSES[found["kind"]]
    assert found["status"] == status

    async def table() -> Object:
        async with Api(control_plane.access(), accept="application/json;as=Table;g=meta.k8s.io;v=v1") as api:
            return await api.get(path)

    printed: Object = {}

    async def is_shown() -> bool:
        # A server that has just learnt of other columns prints the old ones for a moment.
        answer = await table()
        names = [column["name"] for column in answer["columnDefinitions"]]
        printed.update(zip(names, answer["rows"][0]["cells"], strict=True))
        return {name: str(printed.get(name)) for name in shown} == shown

    asyncio.run(eventually(is_shown))
    assert "Age" in printed


def test_a_status_that_makes_no_sense_is_refused(
    control_plane: ControlPlane, namespace: str, defined: dict[str, Object]
) -> None:
    path = f"/apis/{OURS}/namespaces/{namespace}/podgroups"
    wrong = {"plan": {"nodes": [{"name": "n1"}]}, "scheduled": -1}

    async def run() -> None:
        async with Api(control_plane.access()) as api:
            await api.create(path, gang())
            with pytest.raises(ApiError) as refused:
                await api.patch(f"{path}/one/status", {"status": wrong})
            for field in ("status.plan.nodes[0].pods", "status.scheduled"):
                assert f"{field}: " in refused.value.message

    asyncio.run(run())
