"""The files that name peers, and delays for trials: what they say, and what is wrong with others."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.agents.latency.delays import Delays, parse_delays
from closeby.agents.latency.peers import PROBE_PORT, Peer, PeerFile, parse_peers
from closeby.objects.reasons import Problem
from tests.agents.talking import Lines

THREE = """
peers:
  - {name: n-1, host: 192.0.2.1, zone: a, region: eu}
  - {name: n-2, host: 192.0.2.2, port: 9000}
"""


def test_peers_of_a_file_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "peers.yaml"
    path.write_text(THREE)
    file = PeerFile(str(path))
    assert file.read() == (
        Peer(name="n-1", host="192.0.2.1", port=PROBE_PORT, zone="a", region="eu"),
        Peer(name="n-2", host="192.0.2.2", port=9000),
    )
    path.write_text('{"peers": [{"name": "n-3", "host": "::1"}]}')
    assert file.read() == (Peer(name="n-3", host="::1"),)
    path.write_text("peers: 3")
    assert isinstance(file.read(), Problem)
    path.unlink()
    found = file.read()
    assert isinstance(found, Problem) and "can't be read" in str(found)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "peers:"),
        ("peers: [{name: a}]", "host"),
        ("peers: [{name: a, host: b, zon: c}]", "zon"),
        ("peers: [{name: a, host: b, port: 0}]", "port 0"),
        ("peers: [{name: a, host: b, port: high}]", "port"),
        ("peers: [{name: a, host: b}, {name: a, host: c}]", "twice"),
        ("peers: [{name: '', host: b}]", "is not a peer"),
        (f"peers: [{{name: {'x' * 300}, host: b}}]", "is not a peer"),
        ("peers: [", "peers:"),
        ("\0", "peers:"),
        ("peers: !!int ''", "tag !!int"),
        ("peers: !!timestamp soon", "tag !!timestamp"),
        ("[" * 5000, "nested"),
    ],
)
def test_what_names_no_peers(content: str, complaint: str) -> None:
    found = parse_peers(content.encode(), "peers.yaml")
    assert isinstance(found, Problem)
    assert found.file == "peers.yaml" and complaint in str(found)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_file(content: bytes) -> None:
    found = parse_peers(content, "peers.yaml")
    assert isinstance(found, Problem) or all(peer.name for peer in found)


def test_a_file_that_is_much_too_long(tmp_path: Path) -> None:
    path = tmp_path / "peers.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    found = PeerFile(str(path)).read()
    assert isinstance(found, Problem) and "longer than" in str(found)


def test_delays() -> None:
    assert parse_delays(("a=5", "b=0.25")) == {"a": 5.0, "b": 0.25}
    for wrong in ("a", "a=", "=5", "a=x", "a=-1", "a=nan", "a=10001", "a=inf"):
        found = parse_delays((wrong,))
        assert isinstance(found, Problem) and "ZONE=MILLISECONDS" in str(found), wrong


def test_delays_of_a_file_are_followed(tmp_path: Path) -> None:
    lines, path = Lines(), tmp_path / "delays.yaml"
    path.write_text("{b: 3}")
    delays = Delays({"a": 1.0, "b": 1.0}, str(path), lines.say)
    assert delays.read() is None
    assert [delays.of(zone) for zone in "abc"] == [1.0, 3.0, 0.0]
    for wrong in ("b: slow", "[1]", "b: -1", "{", "b: !!int ''", "b: !!bool x", "[" * 5000):
        path.write_text(wrong)
        assert isinstance(delays.read(), Problem), wrong
        assert delays.of("b") == 3.0
    path.write_text("")
    assert delays.read() is None
    assert delays.of("b") == 1.0
