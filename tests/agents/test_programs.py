"""Other programs: what they print, and the real ones where they are installed."""

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.agents.latency.peers import Peer
from closeby.agents.latency.programs import (
    ProgramRunner,
    iperf3_probe,
    netperf_probe,
    parse_iperf3,
    parse_netperf,
    parse_qperf,
    qperf_probe,
)
from closeby.agents.latency.results import PeerLatency
from closeby.agents.latency.servers import COMMANDS, ProgramServer
from closeby.objects.reasons import Problem
from tests.agents.programs import free_port
from tests.agents.talking import Lines, answering, asking, soon

#: Seconds that a program may take on a busy machine.
PATIENCE = 60.0

#: qperf 0.4.11 with -uu -vvs.
QPERF = b"""tcp_lat:
    latency         =    9250 ns
    msg_rate        =  107832 /sec
    loc_send_bytes  =   53916 bytes
    loc_send_msgs   =   53,916
    rem_send_msgs   =   53916
"""
#: As netperf's manual has its -k output.
NETPERF = b"P50_LATENCY=302\nP90_LATENCY=373\nP99_LATENCY=413\nTRANSACTION_RATE=3201.55\n"


def there(program: str) -> None:
    server = COMMANDS[program][0]
    if shutil.which(program) is None or shutil.which(server) is None:
        pytest.skip(f"there is no {program} to test with: install it")


@contextmanager
def companion(program: str) -> Iterator[tuple[ProgramServer, Peer]]:
    """Its server on this machine, when it listens."""
    port = free_port()
    one = ProgramServer(program, port, Lines().say)
    assert one.open() is None

    def listens() -> bool:
        with socket.socket() as trying:
            return trying.connect_ex(("127.0.0.1", port)) == 0

    try:
        # It may listen before the thread that has started it goes on.
        soon(lambda: one.process is not None and listens())
        yield one, Peer(name="b", host="127.0.0.1", port=port)
    finally:
        one.close()


def test_qperf_tells_half_of_the_way() -> None:
    assert parse_qperf(QPERF) == PeerLatency(p50=18.5, samples=53_916)
    assert parse_qperf(b"tcp_lat:\n    latency  =  21.9 us\n") == PeerLatency(p50=43.8, samples=1)
    assert parse_qperf(b"    latency = 1.5 ms\n") == PeerLatency(p50=3000.0, samples=1)
    for wrong in (b"", b"latency = fast ns", b"latency = 3 parsecs", b"latency = -3 us", b"latency = inf us"):
        assert isinstance(parse_qperf(wrong), Problem)


def test_netperf_tells_percentiles() -> None:
    assert parse_netperf(NETPERF) == PeerLatency(p50=302.0, p90=373.0, p99=413.0, samples=3201)
    for wrong in (b"", b"P50_LATENCY=", b"P90_LATENCY=3", b"P50_LATENCY=nan"):
        assert isinstance(parse_netperf(wrong), Problem)


def test_iperf3_tells_bits() -> None:
    assert parse_iperf3(b'{"end": {"sum_received": {"bits_per_second": 2.5e9, "seconds": 1}}}') == 2.5e9
    refused = parse_iperf3(b'{"end": {}, "error": "unable to connect to server: Connection refused"}')
    assert isinstance(refused, Problem) and "refused" in str(refused)
    nothing = parse_iperf3(b'{"end": {"sum_received": {"bits_per_second": 0}}}')
    assert isinstance(nothing, Problem) and "--iperf3-bytes" in str(nothing)
    for wrong in (b"", b"{}", b'{"end": {"sum_received": {"bits_per_second": -1}}}', b"[" * 100_000):
        assert isinstance(parse_iperf3(wrong), Problem)


@given(
    st.binary(max_size=300)
    | st.lists(st.sampled_from(["latency", "=", " ", "1", "ns", "\n", ",", "."])).map(
        lambda parts: "".join(parts).encode()
    )
)
def test_whatever_they_print(output: bytes) -> None:
    for parse in (parse_qperf, parse_netperf, parse_iperf3):
        found = parse(output)
        assert isinstance(found, (PeerLatency, float, Problem))


def test_the_real_qperf() -> None:
    there("qperf")
    with companion("qperf") as (_, peer), answering() as (_, ours):
        probe = qperf_probe(ProgramRunner(PATIENCE), peer.port)

        def alike() -> bool:
            found = probe(peer)
            assert isinstance(found, PeerLatency), found
            assert found.p90 is None
            own = asking()(ours)
            assert isinstance(own, PeerLatency), own
            return found.samples > 10 and found.p50 / 50 < own.p50 < found.p50 * 50

        # Both take what a request and its response take on this machine, unless it stands still during one.
        soon(alike)


def test_the_real_netperf() -> None:
    there("netperf")
    with companion("netperf") as (_, peer):
        found = netperf_probe(ProgramRunner(PATIENCE), peer.port)(peer)
        assert isinstance(found, PeerLatency), found
        assert found.p90 is not None and found.p99 is not None
        assert 0 < found.p50 <= found.p90 <= found.p99


def test_the_real_iperf3() -> None:
    there("iperf3")
    with companion("iperf3") as (_, peer):
        probe = iperf3_probe(ProgramRunner(PATIENCE), peer.port)
        found: list[float | Problem] = []

        def measured() -> bool:
            # Now and then it is over before anything was counted.
            found.append(probe(peer))
            return isinstance(found[-1], float)

        soon(measured)
        last = found[-1]
        assert isinstance(last, float) and last > 1e6


@pytest.mark.parametrize("program", ["qperf", "iperf3", "netperf"])
def test_the_real_program_gets_no_answer(program: str) -> None:
    there(program)
    port = free_port()
    nobody = Peer(name="b", host="127.0.0.1")
    runner = ProgramRunner(patience=3.0)
    began = time.monotonic()
    found: object
    if program == "iperf3":
        found = iperf3_probe(runner, port)(nobody)
    else:
        found = (qperf_probe if program == "qperf" else netperf_probe)(runner, port)(nobody)
    assert isinstance(found, Problem) and found.reason in ("ProgramFailed", "NoAnswerInTime")
    assert time.monotonic() - began < 30


def test_a_server_that_ends_is_restarted_and_none_is_left_over() -> None:
    there("iperf3")
    with companion("iperf3") as (one, peer):
        first = one.process
        assert first is not None
        first.kill()
        soon(lambda: one.process is not first and Path(f"/proc/{one.process and one.process.pid}").exists())
        soon(lambda: isinstance(iperf3_probe(ProgramRunner(PATIENCE), peer.port)(peer), float))
        last = one.process
    assert last is not None
    # It was killed if it did not end by itself, which takes effect in time.
    soon(lambda: last.poll() is not None)


def test_a_server_whose_port_is_taken_is_tried_less_and_less_often() -> None:
    there("iperf3")
    lines = Lines()
    with socket.create_server(("", 0)) as taken:
        one = ProgramServer("iperf3", int(taken.getsockname()[1]), lines.say)
        assert one.open() is None
        soon(lambda: len(lines.said("server exited")) >= 2)
        one.close()
    assert [line["retry_seconds"] for line in lines.said("server exited")][:2] == [2, 4]


def test_a_program_that_can_not_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executable, but for no machine."""
    for name in ("qperf", "iperf3"):
        (tmp_path / name).write_bytes(b"\x7fELF and no more")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = ProgramRunner().run("qperf")
    assert isinstance(found, Problem) and "can't be started" in str(found)
    lines = Lines()
    one = ProgramServer("iperf3", 1, lines.say)
    assert one.open() is None
    soon(lambda: lines.said("server exited"))
    one.close()
    assert "Exec format error" in str(lines.said("server exited")[0]["error"])


def test_a_program_that_takes_too_long_is_ended() -> None:
    began = time.monotonic()
    found = ProgramRunner(patience=0.3).run("sleep", "60")
    assert isinstance(found, Problem) and found.reason == "NoAnswerInTime"
    assert time.monotonic() - began < 30


def test_a_program_that_is_not_there_or_fails() -> None:
    missing = ProgramRunner().run("no-such-program")
    assert isinstance(missing, Problem) and "install it" in str(missing)
    failing = ProgramRunner(PATIENCE).run("sh", "-c", "echo it is so; exit 3")
    assert isinstance(failing, Problem) and "it is so" in str(failing)
    # It prints for as long as it is read, but not for ever.
    chatty = ProgramRunner(PATIENCE).run("sh", "-c", "head -c 3000000 /dev/zero")
    assert isinstance(chatty, Problem) and chatty.reason == "UnreadableOutput"


def test_a_program_is_ended_when_no_caller_waits_any_more() -> None:
    runner = ProgramRunner(patience=30.0)
    runner.close()
    found = runner.run("sleep", "30")
    assert isinstance(found, Problem) and "stopping" in str(found)
