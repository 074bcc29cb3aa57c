"""Other programs that measure, for those who trust them more: qperf and netperf latency, iperf3 bandwidth.

Each needs its own server on the peer, which an agent runs beside itself (see ``servers``). They know no
authentication. What they print is read as far as it is needed, and they are ended when they take too long.
"""

import math
import shutil
import subprocess
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from closeby.agents.latency.peers import Peer
from closeby.agents.latency.results import PeerLatency
from closeby.objects.reasons import Problem

T = TypeVar("T")

#: Seconds that a program measures, and until it is ended.
MEASURED: Final = 1
PATIENCE: Final = 8.0
#: Of what a program prints; more is not a figure.
LONGEST_OUTPUT: Final = 1_000_000
#: What iperf3 sends unless something else is said, in bytes.
SENT: Final = 10_000_000

_MISSING: Final = "ProgramMissing"
_FAILED: Final = "ProgramFailed"
_UNREADABLE: Final = "UnreadableOutput"
_MICROSECONDS: Final = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "sec": 1e6}


class ProgramRunner:
    """Runs one program at a time, and ends it when it takes too long or no caller waits any more."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def run(self, *command: str) -> bytes | Problem:
        """What the program prints when all went well."""
        if shutil.which(command[0]) is None:
            return Problem(f"there is no {command[0]}", "install it, or choose --probe tcp", reason=_MISSING)
        with self._lock:
            if self._closed:
                return Problem("it is stopping", reason=_FAILED)
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
            except OSError as error:
                return Problem(
                    f"{command[0]} can't be started: {error.strerror or error}",
                    "reinstall it",
                    reason=_FAILED,
                )
            self._process = process
        with process:
            try:
                output, _ = process.communicate(timeout=self._patience)
            except subprocess.TimeoutExpired:
                process.kill()
                return Problem(f"{command[0]} was ended after {self._patience:g} s", reason="NoAnswerInTime")
            finally:
                self._process = None
        if len(output) > LONGEST_OUTPUT:
            return Problem(f"{command[0]} prints {len(output):,} bytes", reason=_UNREADABLE)
        if process.returncode:
            said = output.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
            message = f"{command[0]} ends with {process.returncode} and says {said[0][:200]!r}"
            return Problem(message, reason=_FAILED)
        return output

    def close(self) -> None:
        """Ends what runs, and runs nothing any more."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()


class ProgramProbe(Generic[T]):
    """A program that measures one peer, and the reader of what it prints."""

    def __init__(
        self,
        runner: ProgramRunner,
        command: Callable[[Peer], Sequence[str]],
        parse: Callable[[bytes], T | Problem],
    ) -> None:
        self._runner = runner
        self._command = command
        self._parse = parse

    def __call__(self, peer: Peer) -> T | Problem:
        """The measurement, or why there is none."""
        output = self._runner.run(*self._command(peer))
        return output if isinstance(output, Problem) else self._parse(output)


def qperf_probe(runner: ProgramRunner, port: int) -> ProgramProbe[PeerLatency]:
    """``qperf tcp_lat``: the mean of one way, so half of what a request and its response take."""
    options = f"-lp {port} -t {MEASURED} -m 32 -uu -vvs tcp_lat".split()
    return ProgramProbe(runner, lambda peer: ("qperf", peer.host, *options), parse_qperf)


def netperf_probe(runner: ProgramRunner, port: int) -> ProgramProbe[PeerLatency]:
    """``netperf`` with TCP_RR, as in the network-aware scheduling KEP: 32 bytes asked, 1,024 answered."""
    figures = "P50_LATENCY,P90_LATENCY,P99_LATENCY,TRANSACTION_RATE"
    options = f"-p {port} -t TCP_RR -l {MEASURED} -P 0 -- -r 32,1024 -k {figures}".split()
    return ProgramProbe(runner, lambda peer: ("netperf", "-H", peer.host, *options), parse_netperf)


def iperf3_probe(runner: ProgramRunner, port: int, sent: int = SENT) -> ProgramProbe[float]:
    """``iperf3``: bits/s that a peer receives of a fixed number of bytes, ``sent``."""
    options = f"-p {port} -n {sent} -J --connect-timeout 2000".split()
    return ProgramProbe(runner, lambda peer: ("iperf3", "-c", peer.host, *options), parse_iperf3)


def parse_qperf(output: bytes) -> PeerLatency | Problem:
    """``latency = 9274 ns`` and ``loc_send_msgs = 53,916``, in any unit."""
    found = dict(_pairs(output))
    value, unit = _figure(found.get("latency", ""))
    if value is None or unit not in _MICROSECONDS:
        return _unreadable("qperf", output)
    count, _ = _figure(found.get("loc_send_msgs", ""))
    return PeerLatency(p50=2 * value * _MICROSECONDS[unit], samples=int(count or 1))


def parse_netperf(output: bytes) -> PeerLatency | Problem:
    """``P50_LATENCY=302`` and so on, in microseconds."""
    found = {key: _figure(text)[0] for key, text in _pairs(output)}
    p50, p90, p99 = (found.get(f"P{share}_LATENCY") for share in (50, 90, 99))
    if p50 is None:
        return _unreadable("netperf", output)
    # A second long, so many transactions a second.
    count = MEASURED * (found.get("TRANSACTION_RATE") or 0)
    return PeerLatency(p50=p50, p90=p90, p99=p99, samples=max(1, int(count)))


class _Sum(Struct):
    bits_per_second: float


class _End(Struct):
    sum_received: _Sum | None = None


class _Report(Struct):
    end: _End
    error: str = ""


def parse_iperf3(output: bytes) -> float | Problem:
    """Bits/s of iperf3's JSON."""
    try:
        report = msgspec.json.decode(output, type=_Report)
    except (msgspec.DecodeError, RecursionError):
        return _unreadable("iperf3", output)
    if report.error:
        return Problem(f"iperf3 says {report.error[:200]!r}", reason=_FAILED)
    received = report.end.sum_received
    if received is None or not 0 <= received.bits_per_second < math.inf:
        return _unreadable("iperf3", output)
    if received.bits_per_second == 0:
        # So little was sent that it was over before the receiver had counted any of it.
        message = "iperf3 counted nothing in so short a time"
        return Problem(message, "send more with --iperf3-bytes", reason=_FAILED)
    return received.bits_per_second


def _pairs(output: bytes) -> Sequence[tuple[str, str]]:
    split = (line.partition("=") for line in output.decode(errors="replace").splitlines())
    return [(key.strip(), text.strip()) for key, equals, text in split if equals]


def _figure(text: str) -> tuple[float | None, str]:
    """A number that is not negative, and its unit."""
    number, _, unit = text.partition(" ")
    try:
        value = float(number.replace(",", ""))
    except ValueError:
        return None, ""
    return (value if 0 <= value < math.inf else None), unit.strip()


def _unreadable(program: str, output: bytes) -> Problem:
    shown = " ".join(output[:200].decode(errors="replace").split())
    return Problem(f"{program} prints no figure but {shown!r}", reason=_UNREADABLE)
