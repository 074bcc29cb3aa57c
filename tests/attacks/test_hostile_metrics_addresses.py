"""A tenant who may write NetworkTopologies attacks by the address that ``metricProvider`` names.

The controllers ask that address, with their place in the network, and keep what it answers. What must hold:
only addresses that the operator allows are asked, however they are spelt, and nothing that these redirect to;
a condition says nothing of what a server answered; and answers of any length, for any number of objects,
leave the controllers' memory below 300 MiB.
"""

import asyncio
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import aiohttp
import pytest

from closeby.applications.networks import live_scope
from closeby.controllers.counting import Counting
from closeby.controllers.networks.controller import NetworkTopologyController
from closeby.controllers.networks.settings import NetworkSettings, PrometheusAccess
from closeby.measurements.addresses import Access, Address, permitted, read_address
from closeby.measurements.latencies import LONGEST
from tests.cli.programs import lines_until, started
from tests.control_plane.api import Object, create_namespace, delete_namespace
from tests.control_plane.cluster import ControlPlane
from tests.controllers.at_work import Site, site
from tests.controllers.networks import (
    HOSTS,
    QUICK,
    ZONE,
    answering,
    condition,
    controller,
    costs,
    hearing,
    host,
    spec,
)
from tests.measurements.serving import handled_by, serving, silent, streaming

MIB = 1024 * 1024
#: What the process of the controllers may take.
MOST = 300 * MIB


class Heard:
    """What a server was asked."""

    def __init__(self) -> None:
        self.address = ""
        self.paths: list[str] = []


@contextmanager
def answering_with(status: int, body: bytes = b"", **headers: str) -> Iterator[Heard]:
    """A server that keeps what it is asked, and gives everybody the same answer."""
    heard = Heard()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.paths.append(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler) as heard.address:
        yield heard


def allowing(*addresses: str) -> PrometheusAccess:
    read = [read_address(one) for one in addresses]
    return PrometheusAccess(allowed=tuple(one for one in read if one is not None))


def failed(status: Object) -> Object:
    """The condition that says why there are no latencies; empty while there is none."""
    found = condition(status, "LatenciesMeasured")
    return found if found.get("status") == "False" else {}


# Which addresses are asked


@pytest.mark.parametrize(
    ("named", "asked"),
    [
        ("http://prometheus.monitoring:9090", "http://prometheus.monitoring:9090"),
        ("HTTP://Prometheus.MONITORING:9090/", "http://prometheus.monitoring:9090"),
        ("http://prometheus.monitoring:9090/a/b", "http://prometheus.monitoring:9090/a/b"),
        # Another look-up in DNS: the operator's spelling is asked.
        ("http://prometheus.monitoring.:9090", "http://prometheus.monitoring:9090"),
        ("https://mimir.example/prometheus", "https://mimir.example/prometheus"),
        ("https://mimir.example:443/prometheus/", "https://mimir.example/prometheus"),
        ("https://mimir.example/prometheus/tenant", "https://mimir.example/prometheus/tenant"),
        ("http://[FD00:0:0::7]:9090", "http://[fd00::7]:9090"),
        ("http://absolute.example/", "http://absolute.example."),
        # Others.
        ("http://prometheus.monitoring", None),
        ("http://prometheus.monitoring:9091", None),
        ("https://prometheus.monitoring:9090", None),
        ("http://prometheus.monitoring.evil.example:9090", None),
        ("http://evil.example/prometheus.monitoring:9090", None),
        ("http://prometheus.monitoring:9090@evil.example", None),
        ("http://prometheus.monitoring:9090@evil.example:9090/", None),
        ("http://user@prometheus.monitoring:9090", None),
        ("http://evil.example#@prometheus.monitoring:9090", None),
        ("http://evil.example?@prometheus.monitoring:9090", None),
        ("http://evil.example\\@prometheus.monitoring:9090", None),
        ("http://prometheus.monitoring:9090\\.evil.example", None),
        ("http://prometheus.monitoring:9090%2eevil.example", None),
        ("http://prometheus.monitoring:9090/..", None),
        ("http://prometheus.monitoring:9090/?query=1#", None),
        ("http:prometheus.monitoring:9090", None),
        ("http:///prometheus.monitoring:9090", None),
        ("//prometheus.monitoring:9090", None),
        (" http://prometheus.monitoring:9090", None),
        ("http://prometheus.monitoring:9090\n", None),
        ("ht\ntp://prometheus.monitoring:9090", None),
        ("http://prometheus.monitoring:\uff19\uff10\uff19\uff10", None),
        ("http://prometheu\u017f.monitoring:9090", None),
        ("http://prometheus\u3002monitoring:9090", None),
        ("https://mimir.example", None),
        ("https://mimir.example/", None),
        ("https://mimir.example/prometheusx", None),
        ("https://mimir.example/prometheus/../admin", None),
        ("https://mimir.example/prometheus/%2e%2e/admin", None),
        ("https://mimir.example//prometheus", None),
        ("http://[fd00::8]:9090", None),
        ("http://[fd00::7%25eth0]:9090", None),
        ("http://[::ffff:127.0.0.1]:9090", None),
        ("http://127.0.0.1:9090", None),
        ("http://2130706433:9090", None),
        ("http://169.254.169.254", None),
        ("file:///etc/passwd", None),
        ("ftp://prometheus.monitoring:9090", None),
        ("", None),
        ("http://" + "a" * 1_000_000, None),
    ],
)
def test_an_address_is_asked_only_as_the_operator_spells_it(named: str, asked: str | None) -> None:
    """The tenant spells addresses so that what is compared and what is asked might differ."""
    entries = (
        "http://prometheus.monitoring:9090",
        "https://mimir.example/prometheus",
        "http://[fd00::7]:9090",
        "http://absolute.example.",
    )
    allowed = [one for one in map(read_address, entries) if one is not None]
    assert len(allowed) == len(entries)
    address = read_address(named)
    found: Address | None = None if address is None else permitted(address, allowed)
    assert (None if found is None else found.url) == asked


def test_the_operators_token_is_for_his_own_path_alone() -> None:
    """The tenant names the operator's own server, whose other paths are somebody else's."""
    own = Access(token_file="/token")
    known = PrometheusAccess(
        "https://mimir.example/ours", own, allowing("https://mimir.example/theirs").allowed
    )
    assert known.access_to(NetworkSettings(address="https://mimir.example/ours"), operators=True) == own
    assert (
        known.access_to(NetworkSettings(address="https://mimir.example/theirs"), operators=True) == Access()
    )


def test_the_operators_credentials_are_for_his_own_namespaces_alone() -> None:
    """The tenant's object, which counts beside it, names the operator's own server."""
    own = Access(token_file="/token", ca_file="/ca", cert_file="/cert", key_file="/key")
    known = PrometheusAccess("https://mimir.example/ours", own)
    named = NetworkSettings(address="https://mimir.example/ours")
    assert known.access_to(named, operators=True) == own
    assert known.access_to(named, operators=False) == Access(ca_file="/ca")
    theirs = NetworkSettings(address="https://mimir.example/ours", token="theirs")
    assert known.access_to(theirs, operators=False) == Access(ca_file="/ca", token="theirs")


@pytest.mark.parametrize("beside", [False, True])
def test_the_operators_server_gets_his_token_for_his_own_objects_alone(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, beside: bool
) -> None:
    """The tenant's object names it. It is asked about only where tenants' costs count, and as nobody."""
    token = tmp_path / "token"
    token.write_text("secret")

    async def run() -> None:
        with hearing("x-1", "y-1") as known:
            async with site(control_plane, namespace, *HOSTS) as it:
                operators = Site(it.api, it.transport, await create_namespace(it.api))
                try:
                    networks = NetworkTopologyController(
                        it.writer,
                        it.say,
                        timing=QUICK,
                        prometheus=PrometheusAccess(known.address, Access(token_file=str(token))),
                        counting=Counting(live_scope([operators.namespace], None, beside=beside)),
                    )
                    async with it.running(networks):
                        await it.create("networktopologies", "theirs", spec(known.address))
                        if beside:
                            await it.until("networktopologies", "theirs", costs)
                            assert set(known.tokens) == {None}
                        else:
                            told = await it.until("networktopologies", "theirs", failed)
                            assert failed(told)["reason"] == "NamespaceNotCounted"
                            assert condition(told, "Counts")["reason"] == "NamespaceNotCounted"
                            assert not known.tokens
                        await operators.create("networktopologies", "own", spec(known.address))
                        await operators.until("networktopologies", "own", costs)
                    assert set(known.tokens) == ({None, "Bearer secret"} if beside else {"Bearer secret"})
                finally:
                    await delete_namespace(it.api, operators.namespace)

    asyncio.run(run())


def test_nothing_is_asked_that_the_operator_does_not_allow(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The default. The tenant's objects name servers of all sorts; the operator's own one is asked."""

    async def run() -> None:
        with (
            answering_with(200, b"{}") as theirs,
            serving(answering(("x-1", "y-1", 5.0))) as address,
        ):
            async with (
                site(control_plane, namespace, *HOSTS) as it,
                it.running(controller(it, prometheus=PrometheusAccess(address))),
            ):
                for number in range(20):
                    await it.create("networktopologies", f"n{number}", spec(theirs.address))
                await it.create("networktopologies", "own", spec(address))
                await it.until("networktopologies", "own", costs)
                for number in range(20):
                    told = await it.until("networktopologies", f"n{number}", failed)
                    assert failed(told)["reason"] == "AddressNotAllowed"
                assert theirs.paths == []

    asyncio.run(run())


def test_a_redirect_is_not_followed(control_plane: ControlPlane, namespace: str) -> None:
    """A server that the operator allows sends the controllers on to one that nobody allows."""

    async def run() -> None:
        with answering_with(200, b"{}") as inner:
            for status in (301, 302, 303, 307, 308):
                with answering_with(status, Location=f"{inner.address}/private") as outer:
                    async with (
                        site(control_plane, namespace, *HOSTS) as it,
                        it.running(controller(it, prometheus=allowing(outer.address))),
                    ):
                        await it.create("networktopologies", f"to-{status}", spec(outer.address))
                        told = await it.until("networktopologies", f"to-{status}", failed)
                        assert failed(told)["reason"] == "NoLatencies"
                        assert outer.paths and inner.address not in str(told)
            assert inner.paths == []

    asyncio.run(run())


@pytest.mark.parametrize("status", [200, 302, 401, 404, 418, 500, 503])
def test_a_condition_says_nothing_of_what_a_server_answered(
    control_plane: ControlPlane, namespace: str, status: int
) -> None:
    """The tenant names a private server, and reads the condition. The operator's log has what is needed."""
    body = b'{"status": "error", "error": "the secret is hunter2"}'

    async def run() -> None:
        with answering_with(status, body, Server="secret-server") as private:
            async with (
                site(control_plane, namespace, *HOSTS) as it,
                it.running(controller(it, prometheus=allowing(private.address))),
            ):
                await it.create("networktopologies", "n", spec(private.address))
                told = await it.until("networktopologies", "n", failed)
                message = failed(told)["message"]
                assert private.address in message
                text = str(told).replace(private.address, "")
                assert not re.search(r"secret|hunter|teapot", text, re.IGNORECASE)
                assert str(status) not in message.replace(private.address, "")
                (line,) = it.said("no latencies")
                assert str(status) in str(line["error"])

    asyncio.run(run())


def test_a_condition_does_not_tell_which_ports_are_open(control_plane: ControlPlane, namespace: str) -> None:
    """A server that is not allowed is not connected to: whether it listens is not told."""

    async def run() -> None:
        with silent() as listening, socket.create_server(("127.0.0.1", 0)) as held:
            closed = f"http://127.0.0.1:{held.getsockname()[1]}"
            held.close()
            async with (
                site(control_plane, namespace, *HOSTS) as it,
                it.running(controller(it, prometheus=PrometheusAccess())),
            ):
                said = []
                for name, address in (("open", listening), ("closed", closed)):
                    await it.create("networktopologies", name, spec(address))
                    told = failed(await it.until("networktopologies", name, failed))
                    said.append((told["reason"], told["message"].replace(address, "")))
                assert said[0] == said[1]

    asyncio.run(run())


# Memory


def resident(process: "subprocess.Popen[str]") -> int:
    """The most memory that the process ever had, in bytes."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    (line,) = (one for one in text.splitlines() if one.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def long_answer(names: list[str]) -> bytes:
    """31 MiB of series as Prometheus gives them: between nodes again and again, and between strangers."""
    series = []
    length = number = 0
    while length < LONGEST - MIB:
        one, other = names[number % len(names)], names[number // len(names) % len(names)]
        if number % 2:
            other = f"stranger-{number:0150}"
        names_of = f'{{"destination":"{other}","origin":"{one}"}}'
        text = f'{{"metric":{names_of},"value":[1700000000.123,"{number % 9000}"]}}'
        series.append(text)
        length += len(text) + 1
        number += 1
    vector = ",".join(series)
    return f'{{"status":"success","data":{{"resultType":"vector","result":[{vector}]}}}}'.encode()


@contextmanager
def drained(process: "subprocess.Popen[str]") -> Iterator[None]:
    """Reads what the program says, so that it never waits for a reader."""
    assert process.stderr is not None

    def read() -> None:
        with suppress(ValueError):
            for _ in process.stderr or ():
                pass

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    yield
    process.terminate()
    thread.join(60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("allowed", "hostile"),
    [
        pytest.param(False, 100, id="by default"),
        # These answers, held all at once, would be too much already.
        pytest.param(True, 12, id="allowed"),
        pytest.param(True, 100, id="a hundred allowed", marks=pytest.mark.soak),
    ],
)
def test_many_objects_whose_servers_answer_31_mib_leave_the_memory_bounded(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, allowed: bool, hostile: int
) -> None:
    """The process itself, as an operator runs it. By default the tenant's server is not even connected to."""
    config = tmp_path / "config.yaml"
    config.write_text("tenantNetworkTopologies: true\n")
    hosts = [host(f"{'xyz'[number % 3]}-{number:02}") for number in range(64)]
    body = long_answer([one["metadata"]["name"] for one in hosts])
    assert 30 * MIB < len(body) < LONGEST

    async def measured(it: Site, number: int) -> None:
        def met(status: Object) -> bool:
            found = condition(status, "LatenciesMeasured")
            return bool(
                found.get("status") == "True" if allowed else found.get("reason") == "AddressNotAllowed"
            )

        await it.until("networktopologies", f"n{number}", met, seconds=800)

    async def ready(port: str) -> None:
        async with aiohttp.ClientSession() as session, session.get(f"http://{port}/readyz/workers") as answer:
            assert (answer.status, await answer.text()) == (200, "ok")

    async def moved(it: Site) -> None:
        """A node moves to another zone, and all costs are calculated again."""
        before = [
            (await it.status("networktopologies", f"n{number}"))["weights"] for number in range(hostile)
        ]
        await it.api.patch("/api/v1/nodes/x-00", {"metadata": {"labels": {ZONE: "y"}}})
        for number, old in enumerate(before):

            def changed(status: Object, old: object = old) -> bool:
                return bool(status["weights"] != old)

            await it.until("networktopologies", f"n{number}", changed, seconds=300)

    asked: list[str] = []

    async def run() -> None:
        with streaming(body, asked) as address:
            async with site(control_plane, namespace, *hosts) as it:
                for number in range(hostile):
                    # Each asks for something else, so that nothing can be shared.
                    text = spec(address, 1440).replace(
                        "timeRangeInMinutes: 1", f"timeRangeInMinutes: {number + 1}"
                    )
                    await it.create("networktopologies", f"n{number}", text)
                arguments = ["--kubeconfig", str(control_plane.kubeconfig), "--no-leader-elect"]
                arguments += ["--only", "network-topologies", "--metrics-address", "127.0.0.1:0"]
                if allowed:
                    arguments += ["--allow-prometheus-address", address, "--config", str(config)]
                with started("controllers", *arguments) as process:
                    line = await asyncio.to_thread(lines_until, process, "serving metrics")
                    port = re.search(r"port=(\d+)", line)
                    assert port is not None
                    with drained(process):
                        for number in range(hostile):
                            await measured(it, number)
                        if allowed:
                            await moved(it)
                        await ready(f"127.0.0.1:{port[1]}")
                        most = resident(process)
                assert most < MOST, f"{most / MIB:.0f} MiB"
            assert bool(asked) == allowed

    asyncio.run(run())
