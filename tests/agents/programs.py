"""`closeby agent` as a program of its own, and what it tells on /metrics."""

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from tests.kube.scraping import Scrape

#: Below the ports that Linux gives away by itself (ip_local_port_range).
_LOWEST_PORT, _PORTS = 20_000, 12_000
_given: set[int] = set()
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith(("CLOSEBY_", "NODE_"))}


class Agent:
    """One that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path, metrics: str) -> None:
        self.process = process
        self._log = log
        self.metrics = metrics

    @property
    def log(self) -> str:
        return self._log.read_text()

    def told(self) -> Scrape:
        """What a scrape tells now."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30) as answer:
            return Scrape(answer.read().decode())

    def asked(self, path: str) -> int:
        """The status of an HTTP answer."""
        try:
            with urllib.request.urlopen(f"http://{self.metrics}{path}", timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def until(self, met: Callable[[Scrape], object], seconds: float = 60.0) -> Scrape:
        """Waits until it tells this."""
        end = time.monotonic() + seconds
        while True:
            # Also one that is asked may take its time.
            with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
                told = self.told()
                if met(told):
                    return told
            assert self.process.poll() is None, self.log
            assert time.monotonic() < end, self.log
            time.sleep(0.1)

    def stop(self) -> float:
        """Seconds that it takes to end."""
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(60)
        return time.monotonic() - began


@contextlib.contextmanager
def agent(
    log: Path,
    *arguments: object,
    metrics: str | None = None,
    inside: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Agent]:
    """One with these arguments inside the context; ``inside`` is a command that runs it elsewhere."""
    metrics = metrics or f"127.0.0.1:{free_port()}"
    command = [*inside, sys.executable, "-m", "closeby", "agent", *map(str, arguments)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--metrics-address", metrics],
            stdout=output,
            stderr=output,
            env={**ENVIRONMENT, **(environment or {})},
        )
    with process:
        try:
            yield Agent(process, log, metrics)
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def refused(
    *arguments: object, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """What it says when it does not start."""
    return subprocess.run(
        [sys.executable, "-m", "closeby", "agent", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**ENVIRONMENT, **(environment or {})},
    )


def free_port() -> int:
    """One that nobody has, and that the kernel gives to nobody who asks for any before it is taken."""
    while True:
        port = _LOWEST_PORT + secrets.randbelow(_PORTS)
        if port not in _given:
            with contextlib.suppress(OSError), socket.create_server(("", port)):
                _given.add(port)
                return port


def peers_file(path: Path, peers: Mapping[str, tuple[str, int]]) -> Path:
    """By their names, which begin with their zone, the address and port of each."""
    listed = [
        {"name": name, "host": host, "port": port, "zone": name.partition("-")[0]}
        for name, (host, port) in peers.items()
    ]
    # As a whole, as who replaces a file in use does.
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump({"peers": listed}))
    return new.rename(path)
