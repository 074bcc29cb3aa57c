"""Attack: somebody shows a certificate that is none of ours, has expired, begins tomorrow, or has another
name; files are exchanged at a bad moment.

What must hold: who shows such a certificate is not talked to, on either side, and the reason is told; those
with good ones go on meanwhile; what was good stays in use until its successor is complete.
"""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from closeby.agents.latency.credentials import PEER_NAME, TlsFiles
from closeby.measurements.addresses import Access
from closeby.measurements.bandwidth import Unavailable
from closeby.measurements.fetching import Client
from closeby.objects.reasons import Problem
from tests.agents.talking import answering, asking, shared, soon
from tests.attacks.programs import running
from tests.certificates import Authority
from tests.control_plane.cluster import ControlPlane

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
#: By what is wrong with it: whose authority signed, for which name, from when and until when.
BAD = {
    "expired": (True, PEER_NAME, -DAY, -HOUR),
    "not yet valid": (True, PEER_NAME, HOUR, DAY),
    "of another authority": (False, PEER_NAME, -DAY, DAY),
    "with another name": (True, "www.example.com", -DAY, DAY),
}


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return made(tmp_path / "ours")


@pytest.fixture
def others(tmp_path: Path) -> Authority:
    return made(tmp_path / "others")


def made(folder: Path) -> Authority:
    folder.mkdir()
    return Authority(folder)


def good(ours: Authority, stem: str = "good") -> TlsFiles:
    certificate, key = ours.issue(stem, PEER_NAME)
    return TlsFiles(certificate=str(certificate), key=str(key), authority=str(ours.path))


def bad(kind: str, ours: Authority, others: Authority) -> TlsFiles:
    """It trusts our authority in any case, so that only what it shows is wrong."""
    of_ours, name, begins, life = BAD[kind]
    certificate, key = (ours if of_ours else others).issue("bad", name, begins=begins, life=life)
    return TlsFiles(certificate=str(certificate), key=str(key), authority=str(ours.path))


@pytest.mark.parametrize("kind", BAD)
class TestAgents:
    """Agents under mutual TLS."""

    def test_who_asks_shows_it(self, kind: str, ours: Authority, others: Authority) -> None:
        stranger = asking(shared(None, bad(kind, ours, others)))
        peer_of_ours = asking(shared(None, good(ours)))
        with answering(credentials=shared(None, good(ours, "b"))) as (responder, peer):
            for _ in range(5):
                assert isinstance(stranger(peer), Problem)
                assert not isinstance(peer_of_ours(peer), Problem)
            soon(lambda: responder.outcomes["TlsFailed"] == 5 and responder.outcomes["Answered"] == 5)
            soon(lambda: responder.connections == 0)

    def test_who_answers_shows_it(self, kind: str, ours: Authority, others: Authority) -> None:
        mine = asking(shared(None, good(ours)))
        with answering(credentials=shared(None, bad(kind, ours, others))) as (responder, peer):
            found = mine(peer)
            assert isinstance(found, Problem)
            assert found.reason == "TlsFailed"
            soon(lambda: responder.connections == 0)
            assert "Answered" not in responder.outcomes


def test_a_certificate_that_comes_before_its_key(ours: Authority) -> None:
    """Files are exchanged one by one; the old pair is in use until the new one is whole."""
    mine, new = good(ours, "mine"), good(ours, "new")
    credentials = shared(None, mine)
    probe = asking(credentials)
    with answering(credentials=shared(None, good(ours, "b"))) as (_, peer):
        assert not isinstance(probe(peer), Problem)
        Path(mine.certificate).write_bytes(Path(new.certificate).read_bytes())
        assert not isinstance(probe(peer), Problem)
        Path(mine.key).write_text("half a key")
        assert not isinstance(probe(peer), Problem)
        Path(mine.key).write_bytes(Path(new.key).read_bytes())
        assert not isinstance(probe(peer), Problem)
        assert credentials.problem() is None


@contextmanager
def https(certificate: Path, key: Path, asks_for: Authority | None = None) -> Iterator[str]:
    """The address of a Prometheus with this certificate, which may ask for one of its clients'."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing of clients that turn away."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if asks_for is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(asks_for.path)
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TestMeasurements:
    """Prometheus, from which costs and bandwidths are read."""

    @pytest.mark.parametrize("kind", BAD)
    def test_a_server_that_shows_it(self, kind: str, ours: Authority, others: Authority) -> None:
        of_ours, name, begins, life = BAD[kind]
        name = "127.0.0.1" if name == PEER_NAME else name
        certificate, key = (ours if of_ours else others).issue("server", name, begins=begins, life=life)
        with https(certificate, key) as address:
            found = Client(Access(ca_file=str(ours.path))).get(address)
        assert isinstance(found, Unavailable)
        assert "certificate" in f"{found}"

    @pytest.mark.parametrize("kind", [None, "expired", "not yet valid", "of another authority"])
    def test_a_client_that_shows_it(self, kind: str | None, ours: Authority, others: Authority) -> None:
        mine = good(ours) if kind is None else bad(kind, ours, others)
        access = Access(ca_file=str(ours.path), cert_file=mine.certificate, key_file=mine.key)
        with https(*ours.issue("server", "127.0.0.1"), asks_for=ours) as address:
            found = Client(access).get(address)
        assert isinstance(found, Unavailable) is (kind is not None)


@pytest.mark.parametrize("kind", ["expired", "not yet valid", "of another authority"])
def test_the_api_server_does_not_take_our_certificate(
    kind: str, control_plane: ControlPlane, ours: Authority, others: Authority, tmp_path: Path
) -> None:
    """The program ends with the code of unusable input, and says what the server said."""

    def shows(kubeconfig: dict[str, list[dict[str, dict[str, str]]]]) -> None:
        mine = bad(kind, ours, others)
        kubeconfig["users"][0]["user"] = {"client-certificate": mine.certificate, "client-key": mine.key}

    said = asyncio.run(ended(control_plane, tmp_path, shows))
    assert "Unauthorized" in said


def test_the_api_server_shows_a_certificate_of_another_authority(
    control_plane: ControlPlane, others: Authority, tmp_path: Path
) -> None:
    """Nothing is sent to it, no token above all."""

    def trusts(kubeconfig: dict[str, list[dict[str, dict[str, str]]]]) -> None:
        cluster = kubeconfig["clusters"][0]["cluster"]
        cluster.pop("certificate-authority-data", None)
        cluster["certificate-authority"] = str(others.path)

    said = asyncio.run(ended(control_plane, tmp_path, trusts))
    assert "CertificateRefused" in said


async def ended(control_plane: ControlPlane, folder: Path, change: object) -> str:
    """What the scheduler says with a kubeconfig that was changed so, once it has ended as it should."""
    assert callable(change)
    kubeconfig = yaml.safe_load(control_plane.kubeconfig.read_text())
    change(kubeconfig)
    file = folder / "kubeconfig.yaml"
    file.write_text(yaml.safe_dump(kubeconfig))
    async with running(folder, "scheduler", file, "--no-leader-elect", "--metrics-address", "off") as program:
        assert await asyncio.to_thread(program.process.wait, 100) == 2
        assert "Traceback" not in program.said()
        return program.said()
