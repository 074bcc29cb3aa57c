"""Requests to a real API server, some through a proxy that refuses and cuts them."""

import asyncio
import ssl
from pathlib import Path

import pytest
import yaml

from closeby.kube.client.connection import Connection, connect
from closeby.kube.client.credentials import Fixed, TokenFile
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Limits, Request, Retry, Transport
from closeby.kube.client.waiting import RequestPace
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Cut, Refuse, Silence
from tests.kube.live import direct, through_proxy

VERSION = "/version"


async def refused(transport: Transport, request: Request) -> ApiError:
    answer = await transport.send(request)
    assert isinstance(answer, ApiError), answer
    return answer


def test_a_kubeconfig_file_is_enough(control_plane: ControlPlane) -> None:
    async def run() -> None:
        async with direct(control_plane.kubeconfig) as transport:
            body = await transport.get(VERSION)
            assert isinstance(body, bytes) and b"gitVersion" in body
            missing = await refused(transport, Request(path="/api/v1/namespaces/default/pods/closeby-none"))
            assert (missing.code, missing.reason, missing.details.name) == (404, "NotFound", "closeby-none")

    asyncio.run(run())


def test_reads_are_tried_again(control_plane: ControlPlane) -> None:
    async def run() -> None:
        async with through_proxy(control_plane.access()) as (proxy, transport):
            proxy.inject("GET", VERSION, Refuse(429, {"Retry-After": "1"}))
            proxy.inject("GET", VERSION, Refuse(500))
            proxy.inject("GET", VERSION, Cut())
            began = asyncio.get_running_loop().time()
            assert isinstance(await transport.get(VERSION), bytes)
            assert asyncio.get_running_loop().time() - began >= 1.0
            assert proxy.count("GET", VERSION) == 4

            proxy.inject("GET", VERSION, Refuse(503), times=100)
            assert (await refused(transport, Request(path=VERSION))).code == 503
            assert proxy.count("GET", VERSION) == 4 + Limits().attempts

    asyncio.run(run())


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_an_error_and_is_not_followed(control_plane: ControlPlane, status: int) -> None:
    async def run() -> None:
        async with through_proxy(control_plane.access()) as (proxy, transport):
            path = "/api/v1/namespaces/default/configmaps"
            proxy.inject("POST", path, Refuse(status, {"Location": VERSION}))
            found = await refused(transport, Request(method="POST", path=path, body=b"{}"))
            assert (found.code, found.unsent, found.passing) == (status, False, False)
            assert (proxy.count("POST", path), proxy.count("GET", VERSION)) == (1, 0)

    asyncio.run(run())


def test_what_may_have_been_carried_out_is_not_repeated_unasked(control_plane: ControlPlane) -> None:
    async def run() -> None:
        async with through_proxy(control_plane.access()) as (proxy, transport):
            path = "/api/v1/namespaces/default/configmaps"
            post = Request(method="POST", path=path, body=b"{}", retry=Retry.UNSENT)
            proxy.inject("POST", path, Refuse(429), times=2)
            proxy.inject("POST", path, Refuse(500))
            assert (await refused(transport, post)).code == 500
            assert proxy.count("POST", path) == 3
            proxy.inject("POST", path, Cut())
            broken = await refused(transport, post)
            assert (broken.code, broken.reason, broken.unsent) == (None, "ConnectionCut", False)
            assert proxy.count("POST", path) == 4
            never = Request(method="POST", path=path, body=b"{}", retry=Retry.NEVER)
            proxy.inject("POST", path, Refuse(429))
            assert (await refused(transport, never)).unsent
            assert proxy.count("POST", path) == 5

    asyncio.run(run())


def test_an_answer_that_does_not_come(control_plane: ControlPlane) -> None:
    async def run() -> None:
        async with through_proxy(control_plane.access()) as (proxy, transport):
            # Over a connection that is there: to make one may take as long.
            assert isinstance(await transport.get(VERSION), bytes)
            proxy.inject("GET", VERSION, Silence())
            late = await refused(transport, Request(path=VERSION, retry=Retry.NEVER, within=0.2))
            assert (late.reason, late.unsent) == ("NoAnswerInTime", False)

    asyncio.run(run())


def test_a_token_that_was_replaced(control_plane: ControlPlane, tmp_path: Path) -> None:
    """The server refuses the old token with 401; the file is read again at once."""
    access = control_plane.access()
    if access.token is None:
        pytest.skip("the kubeconfig's user has no token")
    right = access.token
    token = tmp_path / "token"
    token.write_text("wrong")

    async def run() -> None:
        connection = Connection(
            url=access.server, tls=access.tls, credentials=TokenFile(token), source="a test"
        )
        async with Transport(connection) as transport:
            assert (await refused(transport, Request(path="/api/v1/nodes"))).code == 401
            token.write_text(right)
            assert isinstance(await transport.get("/api/v1/nodes"), bytes)

    asyncio.run(run())


def test_an_address_without_a_server() -> None:
    async def run() -> None:
        connection = Connection(url="http://127.0.0.1:1", credentials=Fixed(), source="a test")
        async with Transport(connection, Limits(attempts=2, pace=RequestPace(0.01, 0.01))) as transport:
            error = await refused(transport, Request(path=VERSION))
            assert (error.reason, error.unsent, error.passing) == ("Unreachable", True, True)

    asyncio.run(run())


def test_a_server_that_cannot_prove_who_it_is(control_plane: ControlPlane, tmp_path: Path) -> None:
    access = control_plane.access()

    async def run() -> None:
        stranger = Connection(
            url=access.server, tls=ssl.create_default_context(), credentials=Fixed(), source="a test"
        )
        async with Transport(stranger) as transport:
            error = await refused(transport, Request(path=VERSION))
            assert error.reason == "CertificateRefused"
            assert not error.passing
            assert "check certificate-authority" in error.message

    asyncio.run(run())


def test_the_name_in_the_certificate_may_differ_from_the_address(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    content = yaml.safe_load(control_plane.kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]

    async def version(changes: dict[str, object]) -> bytes | ApiError:
        file = tmp_path / "config"
        file.write_text(
            yaml.safe_dump({**content, "clusters": [{"name": "test", "cluster": cluster | changes}]})
        )
        connection = connect(str(file))
        assert isinstance(connection, Connection), connection
        async with Transport(connection) as transport:
            return await transport.get(VERSION)

    wrong = asyncio.run(version({"tls-server-name": "elsewhere.example.com"}))
    assert isinstance(wrong, ApiError) and wrong.reason == "CertificateRefused"
    assert isinstance(asyncio.run(version({"tls-server-name": "127.0.0.1"})), bytes)
    unproven: dict[str, object] = {
        "certificate-authority-data": "",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "x",
    }
    assert isinstance(asyncio.run(version(unproven)), bytes)


def test_no_more_requests_at_once_than_allowed(control_plane: ControlPlane) -> None:
    async def run() -> None:
        async with through_proxy(control_plane.access(), Limits(concurrency=3)) as (proxy, transport):
            at_once = most = 0
            three = asyncio.Barrier(3)

            async def count() -> None:
                nonlocal at_once, most
                at_once += 1
                most = max(most, at_once)
                await three.wait()
                # Time for a fourth, if there was one.
                await asyncio.sleep(0.02)
                at_once -= 1

            for _ in range(9):
                proxy.before("GET", VERSION, count)
            answers = await asyncio.gather(*(transport.get(VERSION) for _ in range(9)))
            assert all(isinstance(answer, bytes) for answer in answers)
            assert most == 3

    asyncio.run(run())
