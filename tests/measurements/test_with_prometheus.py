"""Traffic out of a real Prometheus: the default queries, other names of nodes, restarts, tokens and TLS."""

import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import msgspec
import pytest

from closeby.measurements.addresses import Access
from closeby.measurements.ageing import Known, State
from closeby.measurements.bandwidth import BandwidthMeasurements, BandwidthReadings, Unavailable
from closeby.measurements.latencies import PrometheusLatencies
from closeby.measurements.load_watcher import LoadWatcher
from closeby.measurements.prometheus import Prometheus
from closeby.measurements.promql import Queries
from closeby.measurements.providers import TrafficArguments
from closeby.scheduling.services import Reading, Source
from tests.control_plane.certificates import Certificates, make_certificates
from tests.measurements.real_prometheus import (
    PATIENCE_SECONDS,
    exported,
    program,
    quick_queries,
    running,
    scraped,
)
from tests.measurements.real_prometheus import (
    Prometheus as Server,
)
from tests.measurements.serving import LONG, handled_by
from tests.measurements.watching import links

MBIT = 1e6
#: Between two samples that are made up, in seconds.
STEP = 15
#: The last sample of who is scraped still: it is ahead, for seconds go by until Prometheus is asked.
ALIVE = -600


def usable(found: BandwidthReadings | Unavailable) -> BandwidthReadings:
    assert isinstance(found, BandwidthReadings), found
    return found


def sentence(found: object) -> str:
    assert isinstance(found, Unavailable), found
    return found.sentence()


def until(
    read: Callable[[], BandwidthReadings | Unavailable], met: Callable[[BandwidthReadings], bool]
) -> BandwidthReadings:
    """Waits until what is read is so, and returns it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = read()
        if isinstance(found, BandwidthReadings) and met(found):
            return found
        time.sleep(0.2)
    raise AssertionError(f"it stays {found.hosts if isinstance(found, BandwidthReadings) else found}")


def until_heard(source: Source, met: Callable[[Reading], bool]) -> Reading:
    """Waits until the source gives such a reading: a range without two scrapes in it has no rates."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = source.read()
        if isinstance(found, Reading) and met(found):
            return found
        time.sleep(0.2)
    raise AssertionError(f"it stays {found}")


#: Whose traffic passes a physical link too.
VIRTUAL = ("lo", "cali12", "eni0a1b2c3d4e5", "gke0123456789a", "antrea-gw0", "vnet3", "eth0.100")


def state_of(known: Known) -> State:
    return known.state


def history(
    now: float, hosts: Mapping[str, tuple[Callable[[float], float], Callable[[float], float], float]]
) -> str:
    """40 minutes of OpenMetrics: of hosts bits/s sent and received some time ago, and the last sample.

    What is ahead of ``now`` has a negative time ago.
    """
    lines = []
    for place, direction in enumerate(("transmit", "receive")):
        name = f"node_network_{direction}_bytes"
        lines.append(f"# TYPE {name} counter")
        for labels, (*rates, last) in hosts.items():
            for device, factor in (("eth0", 1.0), ("eth1", 0.5), *((name, 9.0) for name in VIRTUAL)):
                total = 0.0
                for ago in range(2400, int(last) - 1, -STEP):
                    total += factor * rates[place](ago) / 8 * STEP
                    lines.append(f'{name}_total{{device="{device}",{labels}}} {total} {now - ago:.3f}')
    return "\n".join([*lines, "# EOF", ""])


def remembering(folder: Path, text: str) -> Server:
    """A Prometheus that scrapes nobody and knows this history."""
    server = Server(folder, {})
    (folder / "history").write_text(text)
    command = [
        program("promtool"),
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(folder / "history"),
        str(server.data),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return server


@pytest.mark.slow
def test_the_default_queries_on_what_node_exporters_said(tmp_path: Path) -> None:
    """Two links each, of which the second carries half as much: 1.5 times what the first carries is used."""
    now = time.time()
    text = history(
        now,
        {
            'instance="10.0.0.1:9100"': (lambda ago: 200 * MBIT, lambda ago: 100 * MBIT, ALIVE),
            # Received swings between 100 and 500 every three minutes.
            'instance="n2:9100"': (
                lambda ago: 10 * MBIT,
                lambda ago: (100 if ago // 180 % 2 else 500) * MBIT,
                ALIVE,
            ),
            'instance="10.0.0.3:9100",node="n3"': (lambda ago: 0.0, lambda ago: 0.0, 30),
            'instance="10.0.0.4:9100"': (lambda ago: 5 * MBIT, lambda ago: 5 * MBIT, 210),
            'instance="10.0.0.5:9100"': (lambda ago: 5 * MBIT, lambda ago: 5 * MBIT, 330),
        },
    )
    with running(remembering(tmp_path, text)) as server:
        found = usable(Prometheus(server.address, stale_after=300, timeout=LONG).read())
        strict = usable(Prometheus(server.address, stale_after=120, timeout=LONG).read())
    asked = time.time()
    hosts = found.hosts
    assert hosts["10.0.0.1:9100"].average == pytest.approx(300 * MBIT, rel=0.01)
    assert hosts["10.0.0.1:9100"].deviation == pytest.approx(0, abs=MBIT)
    assert 350 * MBIT < hosts["n2:9100"].average < 550 * MBIT
    # A rate over 5 minutes dulls what swings faster.
    assert 10 * MBIT < hosts["n2:9100"].deviation < 300 * MBIT
    assert hosts["n3"].average == 0
    assert "10.0.0.5:9100" not in hosts
    assert "10.0.0.4:9100" in hosts and "10.0.0.4:9100" not in strict.hosts
    assert hosts["n3"].measured == pytest.approx(now - 30, abs=STEP)
    assert found.measured is not None and now - 1 <= found.measured <= asked + 1
    of: BandwidthMeasurements = found.of_nodes({"n1": ("n1", "10.0.0.1"), "n2": ("n2",), "n3": ("n3",)})
    assert sorted(of.of) == ["n1", "n2", "n3"]
    told = [one.message for one in strict.problems]
    assert "hosts were not scraped for 120 s (2: 10.0.0.4:9100, 10.0.0.5:9100)" in told


@pytest.mark.slow
def test_a_label_of_choice_names_the_node(tmp_path: Path) -> None:
    """Of two exporters on one node the busier one counts."""
    text = history(
        time.time(),
        {
            'instance="10.0.0.1:9100",nodename="n1"': (lambda ago: 200 * MBIT, lambda ago: 0.0, ALIVE),
            'instance="10.0.0.1:9200",nodename="n2"': (lambda ago: 20 * MBIT, lambda ago: 40 * MBIT, ALIVE),
            'instance="10.0.0.3:9100"': (lambda ago: 1.0, lambda ago: 1.0, ALIVE),
        },
    )
    with running(remembering(tmp_path, text)) as server:
        found = usable(Prometheus(server.address, label="nodename", timeout=LONG).read())
        queries = Queries().adapted("nodename", 'eth[1-3]|"\\\\d')
        second = usable(Prometheus(server.address, queries, label="nodename", timeout=LONG).read())
    # The second link carries half of what the first does.
    assert {host: round(link.average / MBIT) for host, link in second.hosts.items()} == {"n1": 100, "n2": 20}
    assert {host: round(link.average / MBIT) for host, link in found.hosts.items()} == {"n1": 300, "n2": 60}
    (told,) = found.problems
    assert told.message.startswith("queries give series without the label nodename (5: last_sample, ")


@pytest.mark.slow
def test_an_exporter_that_two_jobs_scrape_counts_once(tmp_path: Path) -> None:
    def busy(ago: float) -> float:
        return 200 * MBIT

    text = history(
        time.time(),
        {f'instance="10.0.0.1:9100",job="{job}"': (busy, busy, ALIVE) for job in ("node-exporter", "pods")},
    )
    with running(remembering(tmp_path, text)) as server:
        found = usable(Prometheus(server.address, timeout=LONG).read())
    assert {host: round(link.average / MBIT) for host, link in found.hosts.items()} == {"10.0.0.1:9100": 300}


def test_values_that_are_no_rates(tmp_path: Path) -> None:
    def constant(host: str, value: str) -> str:
        return f'label_replace(vector({value}), "node", "{host}", "", "")'

    values = {"a": "0/0", "b": "1/0", "c": "-1", "d": "5"}
    queries = Queries(
        transmit_average=" or ".join(constant(host, value) for host, value in values.items()),
        receive_average="",
        transmit_deviation=constant("d", "1"),
        receive_deviation="",
        last_sample="",
    )
    with running(Server(tmp_path, {})) as server:
        found = usable(Prometheus(server.address, queries, timeout=LONG).read())
        broken = Prometheus(server.address, Queries(transmit_average="sum("), timeout=LONG).read()
    assert {host: (one.average, one.deviation) for host, one in found.hosts.items()} == {"d": (5.0, 1.0)}
    assert [one.message for one in found.problems] == ["hosts have values that are no rates (3: a, b, c)"]
    assert "answers 400 Bad Request" in sentence(broken)


@pytest.mark.slow
def test_what_is_known_gets_old_while_prometheus_is_gone(tmp_path: Path) -> None:
    """Scraped live; stopped and started again; at last without its data."""
    with scraped(tmp_path, "n1", "n2") as (server, exporters):
        exporters["n1"].carry(sent=80 * MBIT, received=20 * MBIT)
        exporters["n2"].carry(sent=10 * MBIT, received=30 * MBIT)
        arguments = TrafficArguments(
            prometheus=server.address, queries=quick_queries(), window=2.0, timeout=LONG
        )
        provider, source = arguments.provider(), arguments.source()
        assert provider is not None and source is not None

        def near(n1: float, n2: float) -> Callable[[BandwidthReadings], bool]:
            return lambda found: (
                found.hosts.keys() == {"n1", "n2"}
                and found.hosts["n1"].average == pytest.approx(n1 * MBIT, rel=0.1)
                and found.hosts["n2"].average == pytest.approx(n2 * MBIT, rel=0.1)
            )

        until(provider.read, near(80, 30))
        answer = until_heard(source, lambda one: not one.empty)
        assert answer.measured == pytest.approx(time.time(), abs=LONG)
        # From now on time goes by as it is told to here.
        began, later = time.time(), 0.0
        known = Known(source, clock=lambda: later, epoch=lambda: began + later)
        first = known.take(answer)
        assert state_of(known) is State.GOOD and first.reading is answer
        assert first.age is not None and first.age < LONG

        server.stop()
        second = known.take(source.read())
        assert second.reading is first.reading and "can't be reached" in second.trouble
        later = 299.0 - first.age
        assert known.now().reading is first.reading and state_of(known) is State.STALE
        later = 301.0 - first.age
        assert known.now().reading is None and state_of(known) is State.GONE
        later = 0.0

        exporters["n1"].carry(sent=40 * MBIT)
        server.start()
        until(provider.read, near(40, 30))
        again = known.take(until_heard(source, lambda one: not one.empty))
        assert again.trouble == "" and again.reading is not None and state_of(known) is State.GOOD

        server.stop()
        (tmp_path / "empty").mkdir()
        with running(Server(tmp_path / "empty", {})) as empty:
            other = TrafficArguments(prometheus=empty.address, queries=quick_queries(), timeout=LONG).source()
            assert other is not None
            nothing = other.read()
            assert not isinstance(nothing, str) and nothing.empty
            assert known.take(nothing).reading is again.reading
            assert state_of(known) is State.STALE


def tls(certificates: Certificates, *, clients: bool) -> dict[str, object]:
    """What ``--web.config.file`` says about it."""
    files: dict[str, object] = {
        "cert_file": str(certificates.server),
        "key_file": str(certificates.server_key),
    }
    if clients:
        files |= {
            "client_auth_type": "RequireAndVerifyClientCert",
            "client_ca_file": str(certificates.authority),
        }
    return {"tls_server_config": files}


ONE_HOST = Queries(
    transmit_average='label_replace(vector(5), "node", "n1", "", "")',
    receive_average="",
    transmit_deviation='label_replace(vector(1), "node", "n1", "", "")',
    receive_deviation="",
    last_sample="",
)


def test_a_server_with_tls(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with running(Server(tmp_path, {}, tls(certificates, clients=False))) as server:

        def read(access: Access) -> BandwidthReadings | Unavailable:
            return Prometheus(server.address, ONE_HOST, access=access, timeout=LONG).read()

        assert "n1" in usable(read(Access(ca_file=str(certificates.authority)))).hosts
        assert "n1" in usable(read(Access(insecure=True))).hosts
        assert "shows a certificate that can't be trusted: " in sentence(read(Access()))
        assert "name its caFile" in sentence(read(Access()))
        plain = Prometheus(server.address.replace("https", "http"), ONE_HOST, timeout=LONG).read()
        assert "answers 400 Bad Request" in sentence(plain)


def test_what_a_configuration_says_about_it_is_used(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    with running(Server(tmp_path, {}, tls(certificates, clients=True))) as server:
        given = {
            "prometheusAddress": server.address,
            "prometheusQueries": msgspec.to_builtins(ONE_HOST),
            "caFile": str(certificates.authority),
            "certFile": str(certificates.server),
            "keyFile": str(certificates.server_key),
            "timeoutSeconds": LONG,
        }
        source = msgspec.convert(given, TrafficArguments).source()
        unsafe = msgspec.convert(
            {**given, "caFile": "", "insecureSkipVerify": True}, TrafficArguments
        ).source()
        assert source is not None and unsafe is not None
        for one in (source, unsafe):
            before = time.time()
            reading = one.read()
            assert not isinstance(reading, str), reading
            assert reading.measured is not None
            assert before - 1 <= reading.measured <= time.time() + 1
    assert (source.warnings, len(unsafe.warnings)) == ((), 1)
    assert source.name == server.address


def test_a_server_that_asks_who_we_are(tmp_path: Path) -> None:
    """The certificate is replaced while the provider lives, as cert-manager does it."""
    certificates = make_certificates(tmp_path)
    with running(Server(tmp_path, {}, tls(certificates, clients=True))) as server:
        nobody = Prometheus(
            server.address, ONE_HOST, access=Access(ca_file=str(certificates.authority)), timeout=2
        )
        assert isinstance(nobody.read(), Unavailable)
        certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
        access = Access(ca_file=str(certificates.authority), cert_file=str(certificate), key_file=str(key))
        somebody = Prometheus(server.address, ONE_HOST, access=access, timeout=LONG)
        assert "certificates can't be used" in sentence(somebody.read())
        certificate.write_bytes(certificates.server.read_bytes())
        key.write_text("rubbish")
        assert "certificates can't be used" in sentence(somebody.read())
        key.write_bytes(certificates.server_key.read_bytes())
        assert "n1" in usable(somebody.read()).hosts


@contextmanager
def guarded(server: Server, token: Path) -> Iterator[str]:
    """A reverse proxy before Prometheus that lets bearers of the token in that the file holds."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != f"Bearer {token.read_text()}":
                self.send_response(401)
                self.end_headers()
                return
            with urllib.request.urlopen(f"{server.address}{self.path}") as answer:
                self.send_response(answer.status)
                self.end_headers()
                self.wfile.write(answer.read())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler) as address:
        yield address


def test_a_token_is_read_again_when_it_was_replaced(tmp_path: Path) -> None:
    asked, ours = tmp_path / "asked", tmp_path / "ours"
    asked.write_text("first")
    with running(Server(tmp_path, {})) as server, guarded(server, asked) as address:
        provider = Prometheus(address, ONE_HOST, access=Access(token_file=str(ours)), timeout=LONG)
        assert sentence(provider.read()) == (
            f"the token file {ours} can't be read: No such file or directory; mount a token there"
        )
        ours.write_text("first\n")
        assert "n1" in usable(provider.read()).hosts
        asked.write_text("second")
        refused = f"{address}/api/v1/query does not let us in: 401 Unauthorized"
        assert sentence(provider.read()) == f"{refused}; give a token or certificate it takes"
        ours.write_text("second")
        assert "n1" in usable(provider.read()).hosts

        def probed(access: Access) -> PrometheusLatencies:
            return PrometheusLatencies(address, minutes=5, access=access, timeout=LONG)

        latencies = probed(Access(token="second")).read()
        assert "has no latencies" in sentence(latencies)
        latencies = probed(Access(token="third")).read()
        assert "does not let us in" in sentence(latencies)


@pytest.mark.parametrize("content", ["", " \n", "two words", "a\nb", "tok\x00en", "töken"])
def test_a_token_that_is_none_is_never_sent_or_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    told = sentence(LoadWatcher("http://127.0.0.1:1", access=Access(token_file=str(file))).read())
    assert told.startswith(f"the token file {file}")
    assert not content.strip() or content.strip() not in told


def test_basic_authentication_is_reported(tmp_path: Path) -> None:
    """closeby has no password to give; the sentence says what it could."""
    # The password is "test".
    users = {"me": "$2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay"}
    with running(Server(tmp_path, {}, {"basic_auth_users": users})) as server:
        assert "does not let us in: 401 Unauthorized" in sentence(
            Prometheus(server.address, timeout=LONG).read()
        )


def test_the_load_watcher_behind_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(links("n1: 700 600").encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler) as address:
        found = usable(LoadWatcher(address, LONG, Access(token_file=str(token))).read())
    assert (seen, found.hosts["n1"].average, found.window) == (["Bearer secret"], 700 * MBIT, 900)


@pytest.mark.slow
def test_an_exporter_that_is_known_by_its_address_alone(tmp_path: Path) -> None:
    """Nobody relabels ``instance``: it is ``127.0.0.2:port``, an address of the node."""
    with exported("127.0.0.2") as (target, exporter):
        exporter.carry(sent=16 * MBIT)
        with running(Server(tmp_path, {target: {}})) as server:
            provider = Prometheus(server.address, quick_queries(), window=2.0, timeout=LONG)
            found = until(provider.read, lambda one: bool(one.hosts))
    assert found.host_of(["n1", "127.0.0.2"]) == target
    assert found.of_nodes({"n1": ("n1", "127.0.0.2")}).of.keys() == {"n1"}
