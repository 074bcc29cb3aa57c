"""Who reads closeby's metrics: nobody but those whom the operator lets, by the API server's word.

The attacker is any pod that reaches the port. It has no token, an invented one, or its own, which the API
server knows and which has no right; or it floods the port with tokens, so that the API server is asked
without end. The kubelet's probes and a scraper with the right must get their answers all the same.
"""

import asyncio
import contextlib
import datetime
import json
import secrets
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from tests.certificates import Authority
from tests.control_plane.api import Api
from tests.control_plane.cluster import ControlPlane
from tests.deploy.installed import Release, installed, kubeconfig, port_told, running
from tests.kube.live import eventually
from tests.kube.scraping import Scrape


@dataclass(frozen=True)
class Target:
    """A component that serves its metrics as the chart has it."""

    admin: Api
    release: Release
    session: aiohttp.ClientSession
    port: int
    log: Path
    #: Of the accounts that ``metrics.readers`` and ``metrics.storyReaders`` name, and of one that the API
    #: server merely knows.
    reader: str
    operator: str
    tenant: str
    #: Paths of requests about which the API server did not say in time who asks.
    late: list[str] = field(default_factory=list)

    async def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"https://127.0.0.1:{self.port}{path}"
        while True:
            async with self.session.get(url, headers=headers, ssl=False) as answer:
                if path.endswith("z") or answer.status != 503:
                    return answer.status, await answer.text()
                self.late.append(path)

    async def status(self, path: str, token: str | None = None) -> int:
        return (await self.get(path, token))[0]

    async def scrape(self) -> Scrape:
        """As Prometheus does it."""
        status, text = await self.get("/metrics", self.reader)
        assert status == 200, text
        return Scrape(text)

    async def healthy(self) -> bool:
        """What the kubelet asks, without a token."""
        return {await self.status(f"/{one}") for one in ("healthz", "livez", "readyz")} == {200}


@asynccontextmanager
async def serving(
    helm: Path, control_plane: ControlPlane, namespace: str, folder: Path, component: str, *more: str
) -> AsyncIterator[Target]:
    """The chart's component at work, with arguments of its own besides."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    named = {"readers": "prometheus", "storyReaders": "operator"}
    subjects = {
        value: [{"kind": "ServiceAccount", "name": name, "namespace": namespace}]
        for value, name in named.items()
    }
    log = folder / "log"
    async with (
        Api(control_plane.access()) as admin,
        installed(helm, admin, namespace, "--set-json", f"metrics={json.dumps(subjects)}") as release,
        aiohttp.ClientSession() as session,
    ):

        async def token(account: str) -> str:
            await admin.create(accounts, {"metadata": {"name": account}})
            answer = await admin.create(f"{accounts}/{account}/token", {"spec": {"expirationSeconds": 600}})
            return str(answer["status"]["token"])

        reader, operator, tenant = await token("prometheus"), await token("operator"), await token("tenant")
        who = await kubeconfig(control_plane, admin, release, component)
        with running([*release.arguments(component, folder), *more], who, log):

            async def heard() -> bool:
                return "serving metrics" in log.read_text()

            await eventually(heard)
            target = Target(admin, release, session, port_told(log), log, reader, operator, tenant)
            await eventually(target.healthy)
            yield target
    assert "Traceback" not in log.read_text()
    assert not any(one in log.read_text() for one in (reader, operator, tenant))


def reviews(scrape: Scrape) -> float:
    """Questions that were put to the API server for scrapers: the controllers POST nothing else."""
    return sum(
        value
        for (_, _, method), value in scrape.all("rest_client_requests_total").items()
        if method == "POST"
    )


@pytest.mark.parametrize("component", ["scheduler", "controllers"])
def test_metrics_are_for_those_whom_the_api_server_lets_read_them(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path, component: str
) -> None:
    """No token 401, an invented one 401, one without the right 403; health needs none."""

    async def run() -> None:
        async with serving(helm, control_plane, namespace, tmp_path, component) as target:
            assert await target.status("/metrics") == 401
            for invented in ("x", "a.b.c", target.reader[:-8] + "AAAAAAAA"):
                assert await target.status("/metrics", invented) == 401
            status, text = await target.get("/metrics", target.tenant)
            assert status == 403 and "closeby_" not in text
            scrape = await target.scrape()
            assert scrape.value("closeby_metrics_requests_total", ruling="unauthenticated") == 4
            assert scrape.value("closeby_metrics_requests_total", ruling="forbidden") == 1
            assert await target.healthy()
            with pytest.raises(aiohttp.ClientError):
                async with target.session.get(f"http://127.0.0.1:{target.port}/metrics"):
                    pass

    asyncio.run(run())


def test_stories_are_not_for_readers_of_the_metrics(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """They name pods of all namespaces: Prometheus gets 403, and the role for stories opens no metrics.

    The API server answers for both accounts before, so that no permission for one path counts for the other.
    """

    async def run() -> None:
        async with serving(helm, control_plane, namespace, tmp_path, "scheduler") as target:
            await target.scrape()
            story, unknown = f"/stories/{namespace}/train", 404
            assert await target.status(story, target.operator) == unknown
            for _ in range(2):
                status, text = await target.get(story, target.reader)
                assert status == 403 and "/stories" in text
                assert await target.status("/stories/kube-system/train?item=pod", target.reader) == 403
                assert await target.status("/metrics", target.operator) == 403
            assert await target.status(story, target.tenant) == 403
            assert await target.status(story) == 401
            await target.scrape()
            assert await target.status(story, target.operator) == unknown

    asyncio.run(run())


def test_a_flood_of_tokens_costs_the_api_server_a_few_questions(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """1,000 requests with different invented tokens, while Prometheus scrapes and the kubelet probes."""

    async def run() -> None:
        # A dry run elects no leader, and only the pod-grouper asks for rights of its own, so that all that it
        # POSTs are reviews of those who ask.
        alone = "--dry-run", "--only", "app-groups"
        async with serving(helm, control_plane, namespace, tmp_path, "controllers", *alone) as target:
            before = reviews(await target.scrape())
            # A TokenReview and a SubjectAccessReview; a busy API server may be asked again.
            assert 2 <= before <= 2 * (1 + len(target.late))
            began = time.monotonic()
            for _ in range(10):
                flood = await asyncio.gather(
                    *(target.status("/metrics", secrets.token_hex(20)) for _ in range(100))
                )
                assert set(flood) <= {401, 429}
                assert await target.healthy()
                scrape = await target.scrape()
            took = time.monotonic() - began
            # 10 at first and one in two seconds from then on, whatever the machine's speed; and Prometheus is
            # asked about again when what was answered is old.
            again = 2 * (1 + took // 120 + len(target.late))
            assert reviews(scrape) - before <= 10 + took * 0.5 + 1 + again
            assert (scrape.value("closeby_metrics_requests_total", ruling="limited") or 0) > 900 - took

    asyncio.run(run())


def test_garbage_on_the_port_does_no_harm(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Plain HTTP, half a handshake, a header without end: the next scrape is answered, the log is clean."""

    async def run() -> None:
        async with serving(helm, control_plane, namespace, tmp_path, "scheduler") as target:
            hello = bytes.fromhex("1603010200010001fc0303")
            for garbage in (b"GET /metrics HTTP/1.1\r\n\r\n", hello, b"\0" * 4096, b""):
                _, writer = await asyncio.open_connection("127.0.0.1", target.port)
                writer.write(garbage)
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            assert await target.status("/metrics", "x" * 100_000) in (400, 401)
            await target.scrape()

    asyncio.run(run())


def test_a_renewed_certificate_is_shown_to_the_next_connection(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """One that has expired is replaced as a Secret is; a broken one leaves the old one in use."""
    authority = Authority(tmp_path)
    short = datetime.timedelta(hours=-1)
    certificate, key = authority.issue("metrics", "localhost", life=short)
    trusting = ssl.create_default_context(cafile=str(authority.path))
    files = ("--metrics-tls-cert", str(certificate), "--metrics-tls-key", str(key))

    async def run() -> None:
        async with serving(helm, control_plane, namespace, tmp_path, "scheduler", *files) as target:

            async def verified() -> bool:
                connector = aiohttp.TCPConnector(ssl=trusting, force_close=True)
                async with aiohttp.ClientSession(connector=connector) as session:
                    try:
                        async with session.get(f"https://localhost:{target.port}/healthz") as answer:
                            return answer.status == 200
                    except aiohttp.ClientConnectorCertificateError:
                        return False

            assert not await verified()
            authority.issue("metrics", "localhost")
            assert await verified()
            certificate.write_text("nonsense")
            assert await verified()
            assert "the new certificate is unusable, so the old one stays" in target.log.read_text()

    asyncio.run(run())
