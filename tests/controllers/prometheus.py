"""A real Prometheus that scrapes latencies which a test makes up."""

import contextlib
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, Gauge, start_http_server

#: Between two scrapes.
SCRAPE_SECONDS = 0.2


class Probes:
    """What agents on nodes would say on their ``/metrics``: the median latency of pairs, in microseconds."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._latency = Gauge(
            "netperf_p50_latency_microseconds",
            "Median latency of requests and their responses.",
            ["origin", "destination"],
            registry=registry,
        )

    def measure(self, latencies: Mapping[tuple[str, str], float]) -> None:
        """From now on it is so; pairs that are not named stay as they are."""
        for (origin, destination), value in latencies.items():
            self._latency.labels(origin=origin, destination=destination).set(value)


class Prometheus:
    """One server, which can be stopped and started again with all it knows."""

    def __init__(self, program: str, directory: Path, target: str) -> None:
        self._program = program
        self._directory = directory
        self._port = _free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        scrape = {
            "job_name": "probes",
            "scrape_interval": f"{SCRAPE_SECONDS * 1000:.0f}ms",
            "scrape_timeout": f"{SCRAPE_SECONDS * 1000:.0f}ms",
            "static_configs": [{"targets": [target]}],
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump({"scrape_configs": [scrape]}))

    def start(self) -> None:
        """Starts it and waits until it answers."""
        log = (self._directory / "log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--config.file={self._directory / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self._process.poll() is None:
            with (
                contextlib.suppress(urllib.error.URLError, OSError),
                urllib.request.urlopen(f"{self.address}/-/ready", timeout=2),
            ):
                return
            time.sleep(0.05)
        raise AssertionError(f"prometheus does not start: {(self._directory / 'log').read_text()[-2000:]}")

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
def measuring(directory: Path) -> Iterator[tuple[Prometheus, Probes]]:
    """Prometheus and the probes it scrapes, inside the context; without Prometheus the test is skipped."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("there is no prometheus to test with: install it (Debian: apt-get install prometheus)")
    registry = CollectorRegistry()
    probes = Probes(registry)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    prometheus = Prometheus(program, directory, f"127.0.0.1:{server.server_port}")
    try:
        prometheus.start()
        yield prometheus, probes
    finally:
        prometheus.stop()
        server.shutdown()
        server.server_close()
        thread.join()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
