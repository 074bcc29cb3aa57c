"""A scheduler is asked for its story: whatever a server answers, the user gets a reason and no fault."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from closeby.kube.client.connection import Connection, connection_to
from closeby.kube.client.errors import TOO_LONG, ApiError
from closeby.kube.client.transport import LONGEST_REFUSAL, Request, Transport
from closeby.kube.metrics.asking import LONGEST_STORY, SchedulerAddress, ask_for_story
from closeby.objects.reasons import Problem
from closeby.objects.recorded import Story
from closeby.scheduling.outcomes import ItemKind
from tests.cli.calling import closeby

STORY = {
    "apiVersion": "closeby.dev/v1alpha1",
    "kind": "Story",
    "namespace": "default",
    "name": "solo",
    "scheduler": "closeby",
}
#: What steers a terminal and begins lines of its own.
STEERS = "\x1b[31mred\n\rerror: of the server\u202e\x9b2J\x00"
DEEP = b"[" * 100_000 + b"]" * 100_000
POD = {
    "metadata": {"name": "solo", "namespace": "default", "uid": "u"},
    "spec": {
        "schedulerName": "closeby",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
    },
    "status": {"phase": "Pending"},
}
NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}}}
#: As the scheduler's pods are looked for.
RUNNING = {"metadata": {"name": "closeby-0"}, "spec": {}, "status": {"phase": "Running"}}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def story(**fields: object) -> bytes:
    return json.dumps({**STORY, **fields}).encode()


def answers(body: bytes, status: int = 200, **headers: str) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=body, status=status, headers=named)

    return handle


def endless(status: int = 200) -> Handler:
    """A body that ends only when it is not read any more."""

    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)

    return handle


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def connection(url: str) -> Connection:
    found = connection_to(url)
    assert isinstance(found, Connection)
    return found


def asked(handler: Handler, token_file: Path | None = None) -> Story | Problem:
    """What is known after a scheduler was asked at its URL."""

    async def run() -> Story | Problem:
        async with serving(handler) as url, Transport(connection(url)) as transport:
            token = None if token_file is None else str(token_file)
            address = SchedulerAddress(url=url, token_file=token)
            return await ask_for_story(transport, address, "closeby", ItemKind.POD, "default/solo")

    return asyncio.run(run())


@pytest.mark.parametrize(
    "body",
    [
        b'{"apiVersion": "\xff\xfe"}',
        story()[:-1] + b', "more": ' + DEEP + b"}",
        DEEP,
        b"[1]",
        b"",
        story(lastDecision={"time": "", "reason": "X", "message": "\ud800"}),
        story(entries=[{"event": 10**30, "what": "x"}]),
    ],
)
def test_an_answer_that_cannot_be_read(body: bytes) -> None:
    assert isinstance(asked(answers(body)), Problem)
    # The API server's list of pods, and what one of them answers through it.
    assert isinstance(through_the_api_server(answers(body), answers(body)), Problem)
    assert isinstance(through_the_api_server(answers(pods()), answers(body)), Problem)
    found = asked(answers(body, 500))
    assert isinstance(found, Problem) and "500" in found.message


def pods() -> bytes:
    return json.dumps({"items": [RUNNING]}).encode()


def through_the_api_server(listed: Handler, proxied: Handler) -> Story | Problem:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await (proxied if "/proxy/" in request.path else listed)(request)

    async def run() -> Story | Problem:
        async with serving(handle) as url, Transport(connection(url)) as transport:
            return await ask_for_story(transport, SchedulerAddress(), "closeby", ItemKind.POD, "default/solo")

    return asyncio.run(run())


def test_a_story_comes_through_the_api_server() -> None:
    assert isinstance(through_the_api_server(answers(pods()), answers(story())), Story)


def test_no_more_is_read_than_a_story_may_have() -> None:
    assert isinstance(asked(answers(story().ljust(LONGEST_STORY))), Story)
    for found in (asked(endless()), through_the_api_server(answers(pods()), endless())):
        assert isinstance(found, Problem) and TOO_LONG in found.message


def test_of_a_long_error_the_beginning_is_read() -> None:
    async def run() -> None:
        async with serving(endless(403)) as url, Transport(connection(url)) as transport:
            answer = await transport.send(Request(path="/x"))
            assert isinstance(answer, ApiError) and answer.code == 403
        whole = json.dumps({"reason": "Forbidden"}).encode().ljust(LONGEST_REFUSAL)
        async with serving(answers(whole, 403)) as url, Transport(connection(url)) as transport:
            answer = await transport.send(Request(path="/x"))
            assert isinstance(answer, ApiError) and answer.reason == "Forbidden"

    asyncio.run(run())


def test_lists_may_be_as_long_as_they_are() -> None:
    async def run() -> None:
        long = b" " * 20_000_000
        async with serving(answers(long)) as url, Transport(connection(url)) as transport:
            assert await transport.list("/x", {}) == long
            answer = await transport.get("/x")
            assert isinstance(answer, ApiError) and answer.reason == TOO_LONG

    asyncio.run(run())


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_for_a_long_wait_is_given_up(status: int) -> None:
    refusal = answers(b"", status, Retry_After="100000")
    for found in (asked(refusal), through_the_api_server(refusal, refusal)):
        assert isinstance(found, Problem)
        assert f"{status}" in found.message and "asks to wait" in found.message


def test_texts_of_a_server_are_printable_lines() -> None:
    found = asked(
        answers(
            story(
                scheduler="closeby",
                entries=[{"event": 1, "what": STEERS, "message": STEERS}],
                lastDecision={"time": STEERS, "reason": STEERS, "message": STEERS},
                pods=[{"name": "solo", "uid": "u", "node": STEERS, "message": STEERS}],
                reservation={"nodes": 1, "since": STEERS, "domain": [STEERS]},
            )
        )
    )
    assert isinstance(found, Story) and found.last_decision is not None and found.reservation is not None
    (pod,), (entry,) = found.pods, found.entries
    texts = [pod.node, pod.message, entry.what, entry.message, found.last_decision.time]
    texts += [found.last_decision.message, found.reservation.since, *found.reservation.domain]
    assert all(text is not None and text.isprintable() and "red" in text for text in texts)


@pytest.mark.parametrize("token", ["two words", "two\nlines", "secret\x07", "s\r\nX-Other: y", "sécret"])
def test_a_token_that_no_header_can_hold(tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_bytes(token.encode())
    found = asked(answers(story()), file)
    assert isinstance(found, Problem)
    assert str(file) in found.message and token not in str(found) and "secret" not in str(found)


def kubeconfig(folder: Path, url: str) -> Path:
    file = folder / "config"
    content = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": url}}],
        "users": [{"name": "x", "user": {}}],
    }
    file.write_text(yaml.safe_dump(content))
    return file


def explained(folder: Path, handler: Handler, *options: str, output: str = "table") -> Any:
    """What `explain` prints of a pod that has room; ``handler`` answers for the scheduler."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/stories"):
            return await handler(request)
        lists: dict[str, object] = {
            "/apis": {"kind": "APIGroupDiscoveryList", "items": []},
            "/api/v1/pods": {"metadata": {"resourceVersion": "1"}, "items": [POD]},
            "/api/v1/nodes": {"metadata": {"resourceVersion": "1"}, "items": [NODE]},
            "/api/v1/namespaces/default/pods/solo": POD,
        }
        found = lists.get(request.path)
        return web.json_response(found, status=404 if found is None else 200)

    async def run() -> Any:
        async with serving(handle) as url:
            where = [one.replace("URL", url) for one in options]
            config = kubeconfig(folder, url)
            return await asyncio.to_thread(
                closeby, "explain", "solo", "--kubeconfig", config, *where, "-o", output
            )

    return asyncio.run(run())


def test_it_is_said_when_a_scheduler_that_was_named_cannot_be_asked(tmp_path: Path) -> None:
    """Also of a pod that would be placed now; unasked, only where the scheduler would know more."""
    for handler in (answers(b"[1]"), answers(b"", 302, Location="/elsewhere")):
        named = explained(tmp_path, handler, "--scheduler", "URL")
        assert (named.exit_code, named.stderr) == (0, "")
        assert "scheduler was not asked" in named.stdout
    assert "scheduler was not asked" not in explained(tmp_path, answers(b"[1]")).stdout


def test_a_scheduler_without_tls_is_to_be_named_so() -> None:
    async def run() -> Story | Problem:
        async with serving(answers(story())) as url, Transport(connection(url)) as transport:
            address = SchedulerAddress(url=url.replace("http:", "https:"), insecure=True)
            return await ask_for_story(transport, address, "closeby", ItemKind.POD, "default/solo")

    found = asyncio.run(run())
    assert isinstance(found, Problem)
    assert "http://" in found.remedy
    assert "kubeconfig" not in str(found)


def test_a_server_writes_no_lines_of_its_own(tmp_path: Path) -> None:
    pod = {"name": "solo", "uid": "u", "node": STEERS, "message": STEERS}
    told = explained(tmp_path, answers(story(pods=[pod])), "--scheduler", "URL")
    assert told.exit_code == 0 and "chose" in told.stdout
    assert not any(line.startswith("error:") for line in told.stdout.splitlines())
    assert told.stdout.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "where", ["ftp://scheduler", "http://", "http://host:port", "http://a b", "http://a\n"]
)
def test_a_url_that_is_none_is_wrong_use(tmp_path: Path, where: str) -> None:
    refused = explained(tmp_path, answers(story()), "--scheduler", where)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--scheduler" in refused.stderr


def test_an_authority_that_cannot_be_used_is_wrong_use(tmp_path: Path) -> None:
    broken = tmp_path / "ca.pem"
    broken.write_text("nothing")
    for file in (broken, tmp_path / "absent.pem"):
        refused = explained(
            tmp_path, answers(story()), "--scheduler", "https://127.0.0.1", "--scheduler-ca-file", str(file)
        )
        assert refused.exit_code == 2 and str(file) in refused.stderr
