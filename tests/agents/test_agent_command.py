"""`closeby agent` as a program of its own, without a cluster."""

import contextlib
import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.programs import Agent, agent, free_port, peers_file, refused
from tests.agents.talking import TOKEN, issued, soon
from tests.certificates import Authority
from tests.cli.calling import closeby
from tests.kube.scraping import Scrape

P50 = "netperf_p50_latency_microseconds"
#: Seconds in which an agent has ended that waits for nobody, on any machine; and in which one that waits for
#: the end of a probe of 9 s has not.
SOON, SOONER = 30.0, 8.0


@contextlib.contextmanager
def cluster(folder: Path, names: list[str], *arguments: object) -> Iterator[dict[str, Agent]]:
    """Agents on loopback."""
    ports = {name: free_port() for name in names}
    peers = peers_file(folder / "peers.yaml", {name: ("127.0.0.1", port) for name, port in ports.items()})
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                agent(
                    folder / f"{name}.log",
                    *(
                        "--peers",
                        peers,
                        "--node-name",
                        name,
                        "--listen",
                        f"127.0.0.1:{port}",
                        "--round",
                        "0.5",
                    ),
                    *arguments,
                    environment={"CLOSEBY_AGENT_TOKEN": TOKEN},
                )
            )
            for name, port in ports.items()
        }


def pairs(one: Agent) -> set[tuple[str, ...]]:
    """Destinations and origins of the latencies that it tells."""
    return set(one.told().all(P50))


def whole(told: Scrape) -> bool:
    """Whether a-1 has asked both of its peers all questions, and what it was told took not much longer than
    it had to: now and then the machine stands still.
    """
    near, far = (told.value(P50, origin="a-1", destination=other) or 0 for other in ("a-2", "b-1"))
    samples = told.all("closeby_agent_latency_samples")
    return 0 < near < 20_000 < far < 100_000 and set(samples.values()) == {50}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_agents_measure_each_other_and_follow_who_comes_and_goes(tmp_path: Path) -> None:
    """Three on one machine; one leaves the file, and later is back, but silent."""
    with cluster(
        tmp_path, ["a-1", "a-2", "b-1"], "--delay", "b=20", "--max-age", 6, "--timeout", 4
    ) as agents:
        one = agents["a-1"]
        told = one.until(whole)
        assert set(told.all(P50)) == {("a-2", "a-1"), ("b-1", "a-1")}
        assert (told.value("closeby_agent_latency_age_seconds", origin="a-1", destination="a-2") or 0) <= 6
        assert told.value("closeby_agent_peers") == 3
        assert {one.asked(f"/{path}") for path in ("healthz", "livez", "readyz")} == {200}

        every = ports_in((tmp_path / "peers.yaml").read_text())
        places = {name: ("127.0.0.1", port) for name, port in every.items()}
        peers_file(tmp_path / "peers.yaml", {name: at for name, at in places.items() if name != "b-1"})
        one.until(lambda told: set(told.all(P50)) == {("a-2", "a-1")})

        peers_file(tmp_path / "peers.yaml", places)
        one.until(lambda told: ("b-1", "a-1") in told.all(P50))
        agents["b-1"].process.kill()
        one.until(lambda told: told.value("closeby_agent_probe_failures_total", reason="Unreachable"))
        one.until(lambda told: set(told.all(P50)) == {("a-2", "a-1")})
        one.until(lambda told: 'msg="no latency" peer=b-1' in one.log)
        assert one.stop() < SOON
        assert one.process.returncode == 0
        assert "msg=stopped" in one.log and "Traceback" not in one.log


def ports_in(peers: str) -> dict[str, int]:
    found = re.findall(r"name: (\S+)\n  port: (\d+)", peers)
    return {name: int(port) for name, port in found}


def test_it_ends_while_a_peer_says_nothing(tmp_path: Path) -> None:
    """And while strangers hold connections open."""
    with socket.create_server(("127.0.0.1", 0)) as silent, contextlib.ExitStack() as stack:
        port = free_port()
        places = {"a-1": ("127.0.0.1", port), "a-2": silent.getsockname()}
        peers = peers_file(tmp_path / "peers.yaml", places)
        token = tmp_path / "token"
        token.write_text(TOKEN)
        arguments = ("--peers", peers, "--node-name", "a-1", "--listen", f"127.0.0.1:{port}", "--timeout", 9)
        one = stack.enter_context(agent(tmp_path / "log", *arguments, "--token-file", token))
        accepted, _ = silent.accept()
        stack.enter_context(accepted)

        def held(told: Scrape) -> bool:
            # Again and again, as who says nothing is cut off after a second.
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            return (told.value("closeby_agent_connections") or 0) >= 1

        one.until(held)
        assert one.stop() < SOONER
        assert one.process.returncode == 0, one.log


def test_it_opens_nothing_else(tmp_path: Path) -> None:
    port = free_port()
    peers = peers_file(tmp_path / "peers.yaml", {"a-1": ("127.0.0.1", port)})
    arguments = (
        "--peers",
        peers,
        "--node-name",
        "a-1",
        "--listen",
        f"127.0.0.1:{port}",
        "--log-format",
        "json",
    )
    with agent(tmp_path / "log", *arguments, environment={"CLOSEBY_AGENT_TOKEN": TOKEN}) as one:
        one.until(lambda told: (told.value("closeby_agent_rounds_total") or 0) > 0)
        assert listening(one.process.pid) == {port, int(one.metrics.rpartition(":")[2])}
        one.stop()
        lines = [json.loads(line) for line in one.log.splitlines()]
        assert {"answering peers", "serving metrics"} <= {line["msg"] for line in lines}
        assert TOKEN not in one.log


def listening(pid: int) -> set[int]:
    """TCP ports that a process listens on, and UDP ports it has."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found = re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))
            if found:
                inodes.add(found[1])
    ports = set()
    for kind, state in (("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == state and fields[9] in inodes:
                ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def test_agents_with_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ports = {name: free_port() for name in ("a-1", "b-1")}
    peers = peers_file(tmp_path / "peers.yaml", {name: ("127.0.0.1", port) for name, port in ports.items()})
    with contextlib.ExitStack() as stack:
        agents = []
        for name, port in ports.items():
            files = issued(authority, name)
            arguments = (
                "--peers",
                peers,
                "--node-name",
                name,
                "--listen",
                f"127.0.0.1:{port}",
                "--round",
                "0.5",
            )
            tls = ("--tls-cert", files.certificate, "--tls-key", files.key, "--tls-ca", files.authority)
            agents.append(stack.enter_context(agent(tmp_path / f"{name}.log", *arguments, *tls)))
        agents[0].until(lambda told: told.all(P50))
        agents[1].until(lambda told: told.all(P50))


@pytest.mark.parametrize(
    ("arguments", "complaint", "remedy"),
    [
        ((), "neither a token nor a certificate", "--insecure"),
        (("--token-file", "none"), "none: can't be read", ""),
        (("--tls-cert", "x"), "needs all of", "--tls-key"),
        (("--tls-cert", "x", "--tls-key", "y", "--tls-ca", "z"), "can't be used", "PEM"),
        (("--insecure", "--peers", "none.yaml"), "none.yaml: can't be read", ""),
        (("--insecure", "--listen", "9"), "not an address to listen on", "HOST:PORT"),
        (("--insecure", "--delay", "b"), "not a delay of a zone", "ZONE=MILLISECONDS"),
        (("--insecure", "--delays", "none.yaml"), "none.yaml: can't be read", "check the path"),
        (("--insecure", "--bandwidth", "-1"), "negative", "10G"),
        (("--insecure", "--node-name", "x" * 300), "not a node's name", "253"),
        (("--insecure", "--metrics-address", "9"), "not an address to listen on", "HOST:PORT"),
        (("--insecure", "--round", "0"), "--round", ""),
        (("--insecure", "--round", "nan"), "round_seconds is nan", "number"),
        (("--insecure", "--round", "1e-300"), "--round", "0.1"),
        (("--insecure", "--round", "1e308"), "--round", "86400"),
        (("--insecure", "--probes-per-second", "1e-300"), "--probes-per-second", "0.001"),
        (("--insecure", "--max-age", "inf"), "max_age is inf", "number"),
        (("--insecure", "--trips", "1000"), "--trips", "900"),
        (("--insecure", "--probe", "ping"), "ping", "qperf"),
    ],
)
def test_what_can_not_be_used(
    arguments: tuple[str, ...], complaint: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    peers = () if "--peers" in arguments else ("--peers", peers_file(tmp_path / "p.yaml", {"a": ("::1", 1)}))
    environment = {"CLOSEBY_AGENT_TOKEN": "", "NODE_NAME": ""}
    done = closeby("agent", *peers, *arguments, environment=environment)
    assert done.exit_code == 2, done.output
    assert complaint in done.stderr and remedy in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_agents_that_measure_with_the_real_qperf_and_iperf3(tmp_path: Path) -> None:
    """An agent asks the servers that it runs itself: they answer for a peer at the same address."""
    for program in ("qperf", "iperf3"):
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} to test with: install it")
    ports = (free_port(), free_port(), free_port())
    peers = peers_file(tmp_path / "peers.yaml", {"a-1": ("127.0.0.1", ports[0]), "b-1": ("127.0.0.1", 1)})
    arguments = ("--peers", peers, "--node-name", "a-1", "--listen", f"127.0.0.1:{ports[0]}", "--insecure")
    programs = ("--probe", "qperf", "--program-port", ports[1], "--iperf3", "--iperf3-port", ports[2])
    with agent(tmp_path / "log", *arguments, *programs, "--round", 3) as one:
        told = one.until(
            lambda told: told.all(P50) and told.all("closeby_agent_throughput_bits_per_second"), 120
        )
        assert set(told.all(P50)) == {("b-1", "a-1")}
        assert told.all("netperf_p90_latency_microseconds") == {}
        children = children_of(one.process.pid)
        assert len(children) >= 2
        assert one.stop() < SOON
        assert one.process.returncode == 0, one.log
    # One that it killed is there until the kernel, and who inherits it, have come to it.
    soon(lambda: not any(map(runs, children)))
    soon(lambda: listening_on({*ports}) == set())


def children_of(pid: int) -> list[str]:
    """Those that all threads of a process have started."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # A thread may have ended meanwhile.
        with contextlib.suppress(OSError):
            found += (thread / "children").read_text().split()
    return found


def runs(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def listening_on(ports: set[int]) -> set[int]:
    found = set()
    for port in ports:
        with socket.socket() as trying:
            if trying.connect_ex(("127.0.0.1", port)) == 0:
                found.add(port)
    return found


@pytest.mark.parametrize("program", [("--probe", "qperf"), ("--iperf3",)])
def test_programs_that_know_no_token_need_to_be_allowed(program: tuple[str, ...], tmp_path: Path) -> None:
    peers = peers_file(tmp_path / "peers.yaml", {"a-1": ("::1", 1)})
    done = refused("--peers", peers, *program, environment={"CLOSEBY_AGENT_TOKEN": TOKEN})
    assert done.returncode == 2
    assert "accepts unauthenticated clients" in done.stderr and "--insecure" in done.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        peers = peers_file(tmp_path / "peers.yaml", {"a-1": taken.getsockname()})
        arguments = ("--peers", peers, "--insecure", "--listen", address, "--metrics-address", "off")
        done = refused(*arguments)
        assert done.returncode == 2, done.stderr
        assert "can't be listened on" in done.stderr and "--listen" in done.stderr
        assert "Traceback" not in done.stderr and threading.active_count() < 50


def test_no_cluster_and_no_file() -> None:
    done = refused("--insecure", environment={"HOME": "/nonexistent", "KUBECONFIG": ""})
    assert done.returncode == 2
    assert "no cluster is known" in done.stderr


def test_help_names_all_that_is_needed() -> None:
    shown = closeby("agent", "--help").stdout
    for option in (
        "--peers",
        "--token-file",
        "--tls-cert",
        "--insecure",
        "--delay",
        "--bandwidth",
        "--round",
    ):
        assert option in shown
    assert "For testing" in shown
