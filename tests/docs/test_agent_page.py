"""The page about the agent names what is there: options, values of the chart, reasons, limits."""

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from closeby.agents.latency.credentials import PEER_NAME
from closeby.agents.latency.limits import ResponderLimits
from closeby.agents.latency.peers import LONGEST_NAME, PROBE_PORT, Peer, parse_peers
from closeby.agents.latency.plan import MOST, peers_to_probe
from closeby.agents.latency.rounds import LATE, UNEXPECTED
from closeby.agents.latency.wire import NONCE, PROOF, QUESTION, TRIP
from closeby.objects.reasons import Problem
from tests.cli.calling import closeby
from tests.reading.manifest_text import read_good

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agent.md").read_text()
CODE = "".join(path.read_text() for path in (ROOT / "src/closeby/agents/latency").glob("*.py"))


def test_its_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#:]+)", PAGE):
        assert (ROOT / "docs" / link).exists(), link


def test_its_options_are_options_of_the_command() -> None:
    shown = closeby("agent", "--help").stdout
    commands = re.findall(r"closeby agent (.+)", PAGE)
    named = set(re.findall(r"`(--[a-z0-9-]+)", PAGE)) | set(re.findall(r"--[a-z-]+", " ".join(commands)))
    assert len(named) > 20
    assert [one for one in named if f"{one} " not in shown and f"{one}/" not in shown] == []


def test_its_values_are_values_of_the_chart() -> None:
    values = yaml.safe_load((ROOT / "deploy/helm/closeby/values.yaml").read_text())
    named = set(re.findall(r"((?:agent|metrics)\.[a-zA-Z.]+[a-zA-Z])(?==|`)", PAGE))
    assert len(named) >= 6
    for path in named:
        found: Any = values
        for step in path.split("."):
            assert step in found, path
            found = found[step]


def test_its_files_make_sense() -> None:
    network, peers = re.findall(r"```yaml\n(.+?)```", PAGE, re.DOTALL)
    found = parse_peers(peers.encode(), "peers.yaml")
    assert not isinstance(found, Problem) and [one.name for one in found] == ["n1", "n2"]
    (topology,) = read_good(network).network_topologies
    # Its costs are what its controller finds out.
    assert [one.field for one in topology.conditions] == ["status.weights"]
    spec = yaml.safe_load(network)["spec"]
    # What agents tell still (two minutes) is out of the range when costs are worked out anew.
    assert spec["timeRangeInMinutes"] <= spec["freqUpdate"] - 2


def test_it_explains_every_reason() -> None:
    table = PAGE[PAGE.index("## When something is wrong") :]
    used = set(re.findall(r'(?:WireError\(|\breason=)"(\w+)"', CODE)) | {LATE, UNEXPECTED}
    used |= set(re.findall(r'^_(?:MISSING|FAILED|UNREADABLE): Final = "(\w+)"', CODE, re.MULTILINE))
    # Those of files and ports are said when it starts, or while it has no peers.
    used -= {"InvalidPeers", "InvalidDelays", "NoToken", "NotRead", "CantListen", "CantAccept"}
    assert len(used) >= 11
    assert used == set(
        re.findall(r"`([A-Z]\w+)`", "".join(re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)))
    )


def test_its_figures_are_those_of_the_code() -> None:
    limits = ResponderLimits()
    text = " ".join(PAGE.split())
    assert f"asks {limits.warm} times to warm it up and then {limits.trips} times" in text
    assert f"within {limits.within:g} s, those count, if there are at least {limits.least}" in text
    assert f"at most {MOST} other zones" in text and f"{MOST + 1} N" in text
    assert f"{(limits.trips + limits.warm + 1) * TRIP / 1000:.0f} kB" in text
    assert f"frames of at most {NONCE + PROOF + LONGEST_NAME} bytes, afterwards of {QUESTION}" in text
    assert (
        f"at most {limits.connections} connections (`--connections`), {limits.per_address} from one address, "
        f"{limits.arrivals:g} new ones a second, {limits.arrivals_per_address:g} from one address, and "
        f"{limits.questions:,} questions or {limits.served_within:g} s for each"
    ) in text
    assert f"has not authenticated after {limits.proof_within:g} s" in text
    assert f"DNS name `{PEER_NAME}`" in text and f"{PROBE_PORT} for peers" in text
    assert f"{limits.probes:g} a second (`--probes-per-second`), {limits.bytes / 1e6:g} MB/s" in text


def test_its_example_of_a_big_cluster() -> None:
    """5,000 nodes in 20 zones: 5,380 probes a round."""
    sizes = {f"z{zone:02}": 250 for zone in range(20)}
    peers = [
        Peer(name=f"{zone}-{number}", host="192.0.2.1", zone=zone)
        for zone, size in sizes.items()
        for number in range(size)
    ]
    # Every zone is alike, so one of them tells how many.
    counts = [len(peers_to_probe(peers, one.name, 77)) for one in peers[:250]]
    assert 20 * sum(counts) == 5380
    assert set(counts) == {1, 2}


def test_the_peers_of_the_page_are_all_that_a_peer_has() -> None:
    fields = {field.name for field in msgspec.structs.fields(Peer)}
    (peers,) = re.findall(r"peers:\n(.+?)```", PAGE, re.DOTALL)
    assert fields == set(re.findall(r"(\w+):", peers))
