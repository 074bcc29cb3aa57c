"""One program of a control plane as a process: started until ready, paused, killed, stopped, measured."""

import contextlib
import http.client
import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.05
_STOP_SECONDS = 20
_TAIL_LINES = 25
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class StartError(Exception):
    """A program ended before it was ready or took too long; the message ends with the end of its log."""


@dataclass(frozen=True)
class Usage:
    """What a process has used: CPU seconds since its start (to 0.01 s), bytes of memory now and at most."""

    cpu_seconds: float
    memory: int
    memory_peak: int


@dataclass(frozen=True)
class Command:
    """How to start a program, and the address that answers 200 once it is ready."""

    arguments: Sequence[str]
    ready_url: str
    environment: Mapping[str, str]


class Process:
    """A program that a test may pause, kill and start again; its log is appended to over all starts."""

    def __init__(self, name: str, command: Command, log: Path) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it runs; a paused one does."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id; StartError if it does not run."""
        if self._process is None or not self.running:
            raise StartError(f"{self.name} does not run\n{self.log_tail()}")
        return self._process.pid

    @property
    def address(self) -> str:
        """Where it answers: `http://127.0.0.1:2379`."""
        return self._command.ready_url.rpartition("/")[0]

    def start(self, timeout: float = 100) -> None:
        """Starts it and waits for at most `timeout` seconds until it answers that it is ready."""
        if self.running:
            return
        self._forget()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command.arguments,
                # Its end tells our binary that we are gone, however we went.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._command.environment, "CLOSEBY_STOP_WITH_STDIN": "1"},
                # Ctrl-C is for us alone: the programs must end in their order.
                start_new_session=True,
            )
        self.wait_ready(timeout)

    def wait_ready(self, timeout: float = 100) -> None:
        """Waits until it answers that it is ready."""
        deadline = time.monotonic() + timeout
        while not _answers(self._command.ready_url):
            if not self.running:
                raise StartError(f"{self.name} ended before it was ready\n{self.log_tail()}")
            if time.monotonic() > deadline:
                self.stop()
                raise StartError(f"{self.name} was not ready after {timeout:g} s\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    def pause(self) -> None:
        """Freezes it: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Ends it as a crash would."""
        os.kill(self.pid, signal.SIGKILL)
        self._forget()

    def stop(self) -> None:
        """Ends it in order; it is killed if that takes more than 20 s. Nothing happens if it does not run."""
        if self._process is not None and self.running:
            self.resume()
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._forget()

    def restart(self, timeout: float = 100) -> None:
        """Stops it in order and starts it again, with what it has stored."""
        self.stop()
        self.start(timeout)

    def usage(self) -> Usage:
        """CPU and memory since the last start."""
        folder = Path("/proc") / str(self.pid)
        # The program's name, in parentheses, may hold spaces.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return Usage(
            cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND,
            memory=_kibibytes(status["VmRSS"]),
            memory_peak=_kibibytes(status["VmHWM"]),
        )

    def log_tail(self) -> str:
        """The last lines of the log, under its path."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"--- {self.log}", *lines[-_TAIL_LINES:]])

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
            self._process = None


def _answers(url: str) -> bool:
    tls = ssl.create_default_context()
    # Whether it is ready is not a secret, and the controller manager makes up its certificate as it starts.
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls)
    )
    try:
        with opener.open(url, timeout=2) as answer:
            return bool(answer.status == http.HTTPStatus.OK)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except (OSError, http.client.HTTPException):
        return False


def _kibibytes(words: str) -> int:
    return int(words.split(maxsplit=1)[0]) * 1024
