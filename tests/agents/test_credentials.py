"""Tokens and certificates: which are taken, which not, and new ones without a restart."""

import contextlib
import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from closeby.agents.latency.credentials import PeerCredentials, TlsFiles, parse_tokens
from closeby.agents.latency.results import PeerLatency
from closeby.objects.reasons import Problem
from tests.agents.talking import LINES, PATIENT, Lines, answering, asking, issued, shared, soon
from tests.certificates import Authority

OLD, NEW = "the old token of agents", "the new token of agents"
FEW = replace(PATIENT, trips=5, warm=1)


def reason(found: PeerLatency | Problem) -> str:
    return found.reason if isinstance(found, Problem) else "fine"


def replaced(path: Path, content: str) -> None:
    """By another file: one that is written twice in a tick of the kernel's clock may look the same."""
    new = path.with_suffix(".new")
    new.write_text(content)
    new.replace(path)


def test_a_token_is_replaced_while_all_agents_run(tmp_path: Path) -> None:
    """A new one is taken first, then shown, then the old one is taken no more: none is refused meanwhile."""
    here, there = tmp_path / "here", tmp_path / "there"
    for one in (here, there):
        one.write_text(OLD)
    mine, theirs = (PeerCredentials(token_file=str(one), say=LINES.say) for one in (here, there))
    with answering(credentials=theirs, limits=FEW) as (_, peer):
        probe = asking(mine, FEW)
        for path, content in (
            (there, f"{OLD}\n{NEW}\n"),
            (here, f"{OLD}\n{NEW}\n"),
            (here, f"{NEW}\n{OLD}\n"),
            (there, f"{NEW}\n{OLD}\n"),
            (there, f"{NEW}\n"),
            (here, f"{NEW}\n"),
        ):
            replaced(path, content)
            assert reason(probe(peer)) == "fine", content
        replaced(there, OLD)
        assert reason(probe(peer)) == "Refused"


def test_a_token_file_that_gets_unusable_changes_nothing(tmp_path: Path) -> None:
    lines, path = Lines(), tmp_path / "token"
    path.write_text(OLD)
    credentials = PeerCredentials(token_file=str(path), say=lines.say)
    assert credentials.keys() == (OLD.encode(),)
    for content in ("", "short", "\n".join([NEW] * 5)):
        path.write_text(content)
        assert credentials.keys() == (OLD.encode(),)
    path.unlink()
    assert credentials.keys() == (OLD.encode(),)
    assert len(lines.said("the new credentials are unusable, so the old ones stay")) == 4
    assert OLD not in str(lines.lines)
    path.write_text(NEW)
    assert credentials.keys() == (NEW.encode(),)
    assert len(lines.said("credentials reloaded")) == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "no token"),
        ("  \n", "no token"),
        ("fifteen letters", "shorter than 16"),
        ("a" * 20 + "\nb", "shorter"),
    ],
)
def test_tokens_that_are_none(content: str, complaint: str, tmp_path: Path) -> None:
    found = parse_tokens(content, "token")
    assert isinstance(found, Problem)
    assert complaint in str(found) and "openssl rand -hex 32" in str(found)
    path = tmp_path / "token"
    path.write_text(content)
    problem = PeerCredentials(token_file=str(path), say=LINES.say).problem()
    assert problem is not None and complaint in str(problem)


def test_a_token_file_that_can_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    problem = PeerCredentials(token_file=str(path), say=LINES.say).problem()
    assert problem is not None and "No such file" in str(problem)
    path.write_bytes(b"\xff\xfe" * 20)
    problem = PeerCredentials(token_file=str(path), say=LINES.say).problem()
    assert problem is not None
    assert (problem.reason, "is not text" in str(problem)) == ("NoToken", True)


def test_peers_with_certificates_of_one_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine, theirs = issued(authority, "mine"), issued(authority, "theirs")
    with answering(credentials=shared(None, theirs)) as (responder, peer):
        assert reason(asking(shared(None, mine))(peer)) == "fine"
        soon(lambda: responder.outcomes == {"Answered": 1})
    # Neither without a certificate, nor with a token instead.
    soon_over = replace(PATIENT, proof_within=0.5)
    with answering(credentials=shared(None, theirs), limits=soon_over) as (responder, peer):
        assert reason(asking(shared(None))(peer)) != "fine"
        assert reason(asking(shared())(peer)) != "fine"
        # Who says nothing of TLS is waited for until his time is up.
        soon(lambda: responder.outcomes == {"NoAnswerInTime": 2})
        assert responder.connections == 0


def test_who_begins_tls_and_dribbles_is_cut_off(tmp_path: Path) -> None:
    files = issued(Authority(tmp_path))
    limits = replace(PATIENT, proof_within=0.4)
    with answering(credentials=shared(None, files), limits=limits) as (responder, peer):
        sent = 0
        with socket.create_connection((peer.host, peer.port)) as one, contextlib.suppress(OSError):
            # The head of a record of 512 bytes, and then one byte after the other.
            one.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            for _ in range(500):
                one.sendall(b"x")
                sent += 1
                time.sleep(0.05)
        assert sent < 500
        soon(lambda: responder.outcomes == {"NoAnswerInTime": 1})
        assert responder.connections == 0


def test_a_token_counts_under_tls_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = issued(authority)
    with answering(credentials=shared(NEW, files)) as (_, peer):
        assert reason(asking(shared(NEW, files))(peer)) == "fine"
        assert reason(asking(shared(OLD, files))(peer)) == "Refused"


def test_certificates_of_another_authority(tmp_path: Path) -> None:
    for one in ("ours", "others"):
        (tmp_path / one).mkdir()
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    good, bad = issued(ours), issued(others)
    with answering(credentials=shared(None, good)) as (responder, peer):
        assert reason(asking(shared(None, bad))(peer)) == "TlsFailed"
        # It trusts us, but has no certificate that we trust.
        half = TlsFiles(certificate=bad.certificate, key=bad.key, authority=good.authority)
        assert reason(asking(shared(None, half))(peer)) in ("TlsFailed", "ConnectionCut")
        soon(lambda: sum(responder.outcomes.values()) == 2)
        assert "Answered" not in responder.outcomes


def test_a_certificate_of_the_right_authority_that_is_no_agents(tmp_path: Path) -> None:
    """Where one authority signs for everything, the name tells agents from others."""
    authority = Authority(tmp_path)
    agent, web = issued(authority, "agent"), issued(authority, "web", "www.example.com")
    with answering(credentials=shared(None, agent)) as (responder, peer):
        assert reason(asking(shared(None, web))(peer)) in ("ConnectionCut", "TlsFailed")
        soon(lambda: responder.outcomes["TlsFailed"] == 1)
    with answering(credentials=shared(None, web)) as (_, peer):
        assert reason(asking(shared(None, agent))(peer)) == "TlsFailed"


def test_certificates_that_have_expired(tmp_path: Path) -> None:
    """On either side; a new one is taken without a restart."""
    authority = Authority(tmp_path)
    good, expired = issued(authority, "good"), issued(authority, "expired", life=timedelta(hours=-1))
    with answering(credentials=shared(None, good)) as (responder, peer):
        assert reason(asking(shared(None, expired))(peer)) in ("ConnectionCut", "TlsFailed")
        soon(lambda: responder.outcomes["TlsFailed"] == 1)
    late = asking(shared(None, good))
    with answering(credentials=shared(None, expired)) as (_, peer):
        found = late(peer)
        assert isinstance(found, Problem)
        assert (found.reason, "check both sides' certificates" in str(found)) == ("TlsFailed", True)
        for old, new in ((expired.certificate, good.certificate), (expired.key, good.key)):
            Path(old).write_bytes(Path(new).read_bytes())
        assert reason(late(peer)) == "fine"


def test_certificates_are_renewed_while_it_runs(tmp_path: Path) -> None:
    """Another authority altogether: refused until both have its certificates."""
    for one in ("old", "new"):
        (tmp_path / one).mkdir()
    here, there = issued(Authority(tmp_path / "old"), "here"), issued(Authority(tmp_path / "new"), "there")
    mine = shared(None, here)
    with answering(credentials=shared(None, there)) as (_, peer):
        assert reason(asking(mine)(peer)) == "TlsFailed"
        for new, old in (
            (there.certificate, here.certificate),
            (there.key, here.key),
            (there.authority, here.authority),
        ):
            Path(old).write_bytes(Path(new).read_bytes())
        assert reason(asking(mine)(peer)) == "fine"


def test_certificates_that_can_not_be_used(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = issued(authority, "one"), issued(authority, "other")
    for files in (
        TlsFiles(certificate=one.certificate, key=other.key, authority=one.authority),
        TlsFiles(certificate=one.certificate, key=one.key, authority=one.key),
        TlsFiles(certificate=str(tmp_path / "none"), key=one.key, authority=one.authority),
    ):
        problem = shared(None, files).problem()
        assert problem is not None and "PEM" in str(problem)
