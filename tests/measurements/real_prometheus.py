"""A real Prometheus, and exporters on this machine that it scrapes as if each were a node's."""

import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
import yaml

from closeby.measurements.promql import Queries
from tests.measurements.serving import handled_by

#: Between two scrapes.
SCRAPE_SECONDS = 0.2

#: For it to start, and for what it scrapes to follow.
PATIENCE_SECONDS = 60.0

_READY = b"Server is ready to receive web requests"
_TAKEN = b"address already in use"
#: Below those that the system gives to whoever asks for any, so that nobody gets it while Prometheus is down.
_PORTS = range(20_000, 32_000)


def program(name: str) -> str:
    """The path of a program of Prometheus; without it the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} to test with: install it (Debian: apt-get install prometheus)")
    return found


class Prometheus:
    """One server, which can be stopped and started again with all it knows."""

    def __init__(
        self,
        directory: Path,
        targets: Mapping[str, Mapping[str, str]],
        web: Mapping[str, object] | None = None,
        *,
        scrape_seconds: float = SCRAPE_SECONDS,
    ) -> None:
        """``targets`` are ``host:port`` with the labels of their series; ``web`` is about TLS and users.

        A target must answer before it is scraped again.
        """
        self._program = program("prometheus")
        self._directory = directory
        self._port = _free_port()
        self._scheme = "https" if web and "tls_server_config" in web else "http"
        self._started = False
        self._process: subprocess.Popen[bytes] | None = None
        self._arguments: Sequence[str] = ()
        interval = f"{scrape_seconds * 1000:.0f}ms"
        scrape = {
            "job_name": "tests",
            "scrape_interval": interval,
            "scrape_timeout": interval,
            "static_configs": [{"targets": [one], "labels": dict(labels)} for one, labels in targets.items()],
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
        if web is not None:
            (directory / "web.yaml").write_text(yaml.safe_dump(dict(web)))
            self._arguments = [f"--web.config.file={directory / 'web.yaml'}"]

    @property
    def address(self) -> str:
        """Its URL, which stands once it has started."""
        return f"{self._scheme}://127.0.0.1:{self._port}"

    @property
    def data(self) -> Path:
        """Where it keeps what it knows."""
        return self._directory / "data"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers(deadline):
            # Another program may have taken the port between our look and the start.
            self.stop()
            if not self._started:
                self._port = _free_port()
        self._started = True

    def _answers(self, deadline: float) -> bool:
        """Starts it; False if its port is taken."""
        path = self._directory / "log"
        with path.open("ab") as log:
            before = log.tell()
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--config.file={self._directory / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self.data}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                    *self._arguments,
                ],
                stdout=log,
                stderr=log,
            )
        while time.monotonic() < deadline:
            ended = self._process.poll() is not None
            said = path.read_bytes()[before:]
            if _READY in said:
                return True
            if ended and _TAKEN in said:
                return False
            if ended:
                break
            time.sleep(0.05)
        raise AssertionError(f"prometheus does not start: {path.read_text()[-2000:]}")

    def stop(self) -> None:
        """Stops it, if it runs."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


@contextmanager
def running(prometheus: Prometheus) -> Iterator[Prometheus]:
    """It runs inside the context, unless somebody stops it."""
    try:
        prometheus.start()
        yield prometheus
    finally:
        prometheus.stop()


class Exporter:
    """What node_exporter says of one node's links; bytes flow as fast as was said last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = time.monotonic()
        #: Bytes until then, and bits/s since, by direction.
        self._bytes = {"transmit": 0.0, "receive": 0.0}
        self._bits = {"transmit": 0.0, "receive": 0.0}

    def carry(self, *, sent: float, received: float = 0.0) -> None:
        """From now on so many bits/s cross the link."""
        with self._lock:
            self._advance()
            self._bits = {"transmit": sent, "receive": received}

    def text(self) -> str:
        """The metrics now; loopback and a pod's end are busier than the link, and must not count."""
        with self._lock:
            self._advance()
            lines = []
            for direction, amount in self._bytes.items():
                name = f"node_network_{direction}_bytes_total"
                lines.append(f"# TYPE {name} counter")
                for device, factor in (("eth0", 1), ("lo", 7), ("veth1", 3)):
                    lines.append(f'{name}{{device="{device}"}} {amount * factor}')
            return "\n".join(lines) + "\n"

    def _advance(self) -> None:
        now = time.monotonic()
        for direction, bits in self._bits.items():
            self._bytes[direction] += bits / 8 * (now - self._since)
        self._since = now


@contextmanager
def exported(host: str = "127.0.0.1") -> Iterator[tuple[str, Exporter]]:
    """An exporter that listens inside the context, with its ``host:port``."""
    exporter = Exporter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(exporter.text().encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with handled_by(Handler, host) as address:
        yield address.removeprefix("http://"), exporter


@contextmanager
def scraped(directory: Path, *nodes: str) -> Iterator[tuple[Prometheus, Mapping[str, Exporter]]]:
    """Prometheus and an exporter for each node, whose series have the node's name as the label ``node``."""
    with ExitStack() as stack:
        made = {node: stack.enter_context(exported()) for node in nodes}
        targets = {address: {"node": node} for node, (address, _) in made.items()}
        prometheus = stack.enter_context(running(Prometheus(directory, targets)))
        yield prometheus, {node: exporter for node, (_, exporter) in made.items()}


def quick_queries(by: str = "node, instance", rates: str = "1s") -> Queries:
    """The default queries, but over the last two seconds, of rates over a time that scrapes may fail for."""

    def over_time(function: str, direction: str) -> str:
        metric = f'node_network_{direction}_bytes_total{{device!~"lo|veth.*"}}'
        return f"{function}(sum by ({by}) (8 * rate({metric}[{rates}]))[2s:250ms])"

    return Queries(
        transmit_average=over_time("avg_over_time", "transmit"),
        receive_average=over_time("avg_over_time", "receive"),
        transmit_deviation=over_time("stddev_over_time", "transmit"),
        receive_deviation=over_time("stddev_over_time", "receive"),
        last_sample=f"max by ({by}) (timestamp(node_network_transmit_bytes_total))",
    )


def _free_port() -> int:
    while True:
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", secrets.choice(_PORTS)))
            return int(one.getsockname()[1])
