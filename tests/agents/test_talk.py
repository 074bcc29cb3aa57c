"""Two agents that ask and answer each other, and all that a stranger may try instead."""

import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.agents.latency.delays import Delays
from closeby.agents.latency.limits import ResponderLimits
from closeby.agents.latency.peers import Peer
from closeby.agents.latency.responder import ADDRESS_BUCKETS, Responder
from closeby.agents.latency.results import PeerLatency
from closeby.agents.latency.wire import (
    ANSWER,
    MAGIC,
    NONCE,
    PROOF,
    Channel,
    MessageKind,
    WireError,
    ask,
    authenticate_to,
)
from closeby.objects.reasons import Problem
from tests.agents.talking import LINES, PATIENT, TOKEN, answering, asking, shared, soon

#: Of what is given up soon.
QUICK = ResponderLimits(trips=10, warm=1, within=0.3, proof_within=0.2)
#: Seconds until which what is given up soon has been given up, on any machine.
SOON = 30.0


def reason(found: PeerLatency | Problem) -> str:
    assert isinstance(found, Problem), found
    return found.reason


def test_a_peer_is_asked_and_answers() -> None:
    with answering() as (responder, peer):
        found = asking()(peer)
        assert isinstance(found, PeerLatency), found
        assert found.samples == 50
        assert found.p90 is not None and found.p99 is not None
        assert 0 < found.p50 <= found.p90 <= found.p99 < 60e6
        soon(lambda: responder.outcomes == {"Answered": 1})


def test_a_delay_for_trials_is_added_to_each_answer() -> None:
    with answering() as (_, peer):
        found = asking(delays=Delays({"z": 8.0, "y": 10_000.0}, None, LINES.say))(peer)
        assert isinstance(found, PeerLatency), found
        assert 8000 <= found.p50 < 500_000


@pytest.mark.slow
def test_a_far_peer_has_fewer_answers_timed() -> None:
    """55 questions of 0.2 s do not fit into 8 s; as many as do are taken, if those are enough."""
    slow = Delays({"z": 200.0}, None, LINES.say)
    with answering() as (_, peer):
        found = asking(limits=ResponderLimits(within=8.0), delays=slow)(peer)
        assert isinstance(found, PeerLatency), found
        assert 5 <= found.samples < 40
        assert reason(asking(limits=ResponderLimits(within=1.0), delays=slow)(peer)) == "NoAnswerInTime"


def test_who_has_another_token_is_refused() -> None:
    with answering() as (responder, peer):
        found = asking(shared("another token altogether"))(peer)
        assert reason(found) == "Refused"
        assert "same token" in str(found)
        soon(lambda: responder.outcomes == {"Refused": 1})


def test_who_has_no_token_does_not_take_one_that_has_and_the_other_way_round() -> None:
    with answering() as (_, peer):
        assert reason(asking(shared(None))(peer)) == "Refused"
    with answering(credentials=shared(None)) as (_, peer):
        assert reason(asking()(peer)) == "Refused"
        assert isinstance(asking(shared(None))(peer), PeerLatency)


def test_another_host_at_the_address_of_a_peer() -> None:
    """Addresses of pods are used again."""
    with answering("b") as (_, peer):
        found = asking()(Peer(name="c", host=peer.host, port=peer.port))
        assert reason(found) == "WrongPeer"
        assert "'b'" in str(found) and "'c'" in str(found)


def test_the_token_never_travels_and_no_proof_serves_twice() -> None:
    """What went over the wire in one conversation, sent again to the same agent."""
    with answering() as (responder, peer):
        with relay(peer) as (there, heard):
            assert isinstance(asking()(there), PeerLatency)
        assert all(TOKEN.encode() not in one for one in heard)
        said = b"".join(heard)
        with closing(socket.create_connection((peer.host, peer.port))) as again:
            again.sendall(said)
            soon(lambda: responder.outcomes["Refused"] == 1)


def test_an_impostor_that_sends_our_own_proof_back() -> None:
    def impostor(channel: Channel) -> None:
        channel.send(MessageKind.HELLO, MAGIC + secrets.token_bytes(NONCE) + b"b")
        proof = channel.receive(MessageKind.PROOF, 400)
        channel.send(MessageKind.WELCOME, proof[NONCE : NONCE + PROOF])

    with pretending(impostor) as peer:
        assert reason(asking()(peer)) == "Impostor"


def test_an_impostor_that_sends_the_wrong_answers() -> None:
    def sloppy(channel: Channel) -> None:
        nonce = secrets.token_bytes(NONCE)
        channel.send(MessageKind.HELLO, MAGIC + nonce + b"b")
        said = channel.receive(MessageKind.PROOF, 400)
        fields = (MAGIC, b"answers", nonce, said[:NONCE], b"a", b"b")
        text = b"".join(len(one).to_bytes(4, "big") + one for one in fields)
        channel.send(MessageKind.WELCOME, hmac.digest(TOKEN.encode(), text, "sha256"))
        for _ in range(3):
            channel.receive(MessageKind.ASK, 32)
            channel.send(MessageKind.ANSWER, b"\xff" * ANSWER)

    with pretending(sloppy) as peer:
        assert reason(asking()(peer)) == "NotAnAgent"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "NotAnAgent"),
        (b"", "ConnectionCut"),
        (struct.pack("!BH", MessageKind.HELLO, 65_535) + b"x" * 65_535, "NotAnAgent"),
        (struct.pack("!BH", MessageKind.HELLO, 3) + b"abc", "NotAnAgent"),
        (struct.pack("!BH", MessageKind.HELLO, 40) + b"closeby1", "ConnectionCut"),
        (struct.pack("!BH", MessageKind.WELCOME, 0), "NotAnAgent"),
        (struct.pack("!BH", MessageKind.REFUSED, 0), "Refused"),
    ],
)
def test_what_is_no_agent(said: bytes, why: str) -> None:
    with speaking(lambda one: one.sendall(said)) as peer:
        assert reason(asking()(peer)) == why


def test_a_peer_that_never_answers() -> None:
    """Neither one that takes the connection and is silent, nor one that does not take it."""
    with silence() as peer:
        began = time.monotonic()
        assert reason(asking(limits=QUICK)(peer)) == "NoAnswerInTime"
        assert time.monotonic() - began < SOON
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        host, port = bound.getsockname()
        assert reason(asking()(Peer(name="b", host=host, port=port))) == "Unreachable"
    assert reason(asking()(Peer(name="b", host="no such host", port=9))) == "Unreachable"


def test_a_peer_that_dribbles() -> None:
    """Byte by byte it would take a minute: the time is for all of the probe."""
    over = threading.Event()

    def dribble(one: socket.socket) -> None:
        for byte in struct.pack("!BH", MessageKind.HELLO, 290) + bytes(290):
            one.sendall(bytes([byte]))
            if over.wait(0.2):
                return

    with speaking(dribble) as peer:
        began = time.monotonic()
        assert reason(asking(limits=QUICK)(peer)) == "NoAnswerInTime"
        over.set()
        assert time.monotonic() - began < SOON


def test_asking_can_be_broken_off() -> None:
    """Also while a peer says nothing; and then nobody is asked any more."""
    probe = asking()
    with silence() as peer:
        threading.Timer(0.2, probe.close).start()
        began = time.monotonic()
        assert reason(probe(peer)) == "ConnectionCut"
        assert time.monotonic() - began < SOON
        assert reason(probe(peer)) == "ConnectionCut"


# What strangers try on the responder.


def connected(peer: Peer) -> socket.socket:
    one = socket.create_connection((peer.host, peer.port))
    one.settimeout(60)
    return one


def introduced(one: socket.socket) -> Channel:
    """Ours, once both sides know each other."""
    channel = Channel(one, time.monotonic() + 60)
    authenticate_to(channel, "a", "b", TOKEN.encode())
    return channel


def test_who_sends_nothing_or_little_is_cut_off() -> None:
    """As slow as he may be: a byte now and then keeps no connection open."""
    with answering(limits=QUICK) as (responder, peer):
        with closing(connected(peer)) as silent, closing(connected(peer)) as slow:
            sent = 0
            with suppress(ConnectionError):
                for byte in struct.pack("!BH", MessageKind.PROOF, 300) + bytes(297):
                    slow.sendall(bytes([byte]))
                    sent += 1
                    time.sleep(0.1)
            assert sent < 300
            while silent.recv(4096):
                pass
        soon(lambda: responder.outcomes == {"NoAnswerInTime": 2})
        assert responder.connections == 0


def test_who_has_proved_himself_may_not_stay_for_ever_either() -> None:
    short, few = replace(PATIENT, served_within=0.2), replace(PATIENT, questions=5)
    with answering(limits=short) as (responder, peer), closing(connected(peer)) as idle:
        introduced(idle)
        soon(lambda: responder.outcomes == {"NoAnswerInTime": 1})
    with answering(limits=few) as (_, peer), closing(connected(peer)) as greedy:
        channel = introduced(greedy)
        with pytest.raises((EOFError, ConnectionError)):
            for number in range(6):
                ask(channel, number)
        assert number == 5


def test_frames_that_are_too_long() -> None:
    with answering() as (responder, peer):
        with closing(connected(peer)) as one:
            # It may be cut off before all was said.
            with suppress(ConnectionError):
                one.sendall(struct.pack("!BH", MessageKind.PROOF, 65_535) + b"x" * 65_535)
            soon(lambda: responder.outcomes == {"NotAnAgent": 1})
        with closing(connected(peer)) as one:
            channel = introduced(one)
            channel.send(MessageKind.ASK, b"x" * 5000)
            with pytest.raises((EOFError, ConnectionError)):
                channel.receive(MessageKind.ANSWER, ANSWER)
        soon(lambda: responder.outcomes == {"NotAnAgent": 2})


def test_connections_are_counted() -> None:
    limits = replace(PATIENT, connections=3, per_address=3)
    with answering(limits=limits) as (responder, peer):
        strangers = [connected(peer) for _ in range(3)]
        soon(lambda: responder.connections == 3)
        assert reason(asking()(peer)) == "ConnectionCut"
        assert responder.outcomes == {"TooMany": 1}
        for one in strangers:
            one.close()
        soon(lambda: responder.connections == 0)
        assert isinstance(asking()(peer), PeerLatency)


def test_one_address_does_not_get_all_connections() -> None:
    limits = replace(PATIENT, connections=10, per_address=2)
    with answering(limits=limits) as (responder, peer):
        strangers = [connected(peer) for _ in range(2)]
        soon(lambda: responder.connections == 2)
        assert reason(asking()(peer)) == "ConnectionCut"
        with closing(socket.create_connection((peer.host, peer.port), source_address=("127.0.0.2", 0))):
            soon(lambda: responder.connections == 3)
        for one in strangers:
            one.close()


def test_who_comes_too_often_is_sent_away() -> None:
    """No more than five at once, and five a second then."""
    with answering(limits=replace(PATIENT, arrivals=5.0)) as (responder, peer):
        began = time.monotonic()
        for _ in range(60):
            connected(peer).close()
        soon(lambda: sum(responder.outcomes.values()) == 60)
        taken = 60 - responder.outcomes["TooMany"]
        assert 5 <= taken <= 5 + 5 * (time.monotonic() - began)


def test_who_knocks_all_the_time_takes_nothing_from_others() -> None:
    """No more than five of his at once, and five a second then, of the twenty that all have."""
    with answering(limits=replace(PATIENT, arrivals=20.0, arrivals_per_address=5.0)) as (responder, peer):
        # One address in so many shares what it may with another one.
        address = next(
            one
            for one in (f"127.0.0.{number}" for number in range(2, 255))
            if hash(one) % ADDRESS_BUCKETS != hash(peer.host) % ADDRESS_BUCKETS
        )
        began = time.monotonic()
        for _ in range(60):
            with socket.socket() as stranger:
                stranger.bind((address, 0))
                stranger.connect((peer.host, peer.port))
        soon(lambda: sum(responder.outcomes.values()) == 60)
        taken = 60 - responder.outcomes["TooMany"]
        assert 5 <= taken <= 5 + 5 * (time.monotonic() - began)
        assert isinstance(asking()(peer), PeerLatency)


def test_a_system_that_gives_no_more_threads_does_so_again() -> None:
    with answering() as (responder, peer):
        # No machine has room for the stack of one more.
        threading.stack_size(1 << 62)
        try:
            assert reason(asking()(peer)) == "ConnectionCut"
        finally:
            threading.stack_size(0)
        assert responder.broken is None
        assert isinstance(asking()(peer), PeerLatency)
        soon(lambda: responder.outcomes == {"CantAccept": 1, "Answered": 1})
        assert responder.connections == 0


def test_a_stranger_does_not_fill_the_log() -> None:
    with answering() as (responder, peer):
        before = len(LINES.said("connection failed"))
        for _ in range(20):
            with closing(connected(peer)) as one:
                one.sendall(b"x" * 10)
        soon(lambda: responder.outcomes["NotAnAgent"] + responder.outcomes["ConnectionCut"] == 20)
        assert len(LINES.said("connection failed")) - before <= 2


@pytest.fixture(scope="module")
def stood() -> Iterator[tuple[Responder, Peer]]:
    with answering() as (responder, peer):
        yield responder, peer


FRAMES = st.builds(
    lambda kind, length, content: struct.pack("!BH", kind, length) + content,
    st.integers(0, 255) | st.sampled_from(MessageKind),
    st.integers(0, 65_535) | st.integers(0, 400),
    st.binary(max_size=400),
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FRAMES | st.binary(max_size=300), max_size=4), st.booleans())
def test_garbage(stood: tuple[Responder, Peer], said: list[bytes], known: bool) -> None:
    """Whatever comes, before or after a good introduction: the connection ends, and others are answered."""
    responder, peer = stood
    before = sum(responder.outcomes.values())
    with closing(connected(peer)) as one:
        if known:
            introduced(one)
        try:
            one.sendall(b"".join(said))
            one.shutdown(socket.SHUT_WR)
            while one.recv(65_536):
                pass
        except OSError:
            # It was cut off before all was said.
            pass
    soon(lambda: sum(responder.outcomes.values()) > before)
    assert responder.connections == 0
    assert set(responder.outcomes) <= {"Answered", "NotAnAgent", "ConnectionCut", "Refused"}


def test_garbage_changed_nothing(stood: tuple[Responder, Peer]) -> None:
    assert isinstance(asking()(stood[1]), PeerLatency)
    # Those of conversations have the name; one may just be about to end.
    soon(lambda: not [one for one in threading.enumerate() if one.name == "answer"])


def test_a_port_that_is_taken() -> None:
    with answering() as (_, peer):
        found = Responder("c", shared(), LINES.say, ResponderLimits()).open(peer.host, peer.port)
        assert isinstance(found, Problem) and "--listen" in str(found)


def test_after_closing_no_client_is_answered() -> None:
    with answering() as (responder, peer), closing(connected(peer)) as one:
        soon(lambda: responder.connections == 1)
        responder.close()
        while one.recv(4096):
            pass
        soon(lambda: responder.connections == 0)
        assert reason(asking()(peer)) == "Unreachable"


def test_a_channel_says_what_came_instead() -> None:
    here, there = socket.socketpair()
    with closing(here), closing(there):
        Channel(here, time.monotonic() + 60).send(MessageKind.ASK, b"x")
        with pytest.raises(WireError, match="instead of HELLO"):
            Channel(there, time.monotonic() + 60).receive(MessageKind.HELLO, 10)


@contextmanager
def speaking(words: Callable[[socket.socket], None]) -> Iterator[Peer]:
    """Something that listens, and says this to whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            while True:
                try:
                    one, _ = listening.accept()
                except OSError:
                    return
                try:
                    words(one)
                except (OSError, EOFError, WireError):
                    pass
                finally:
                    one.close()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            host, port = listening.getsockname()
            yield Peer(name="b", host=host, port=port, zone="z")
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@contextmanager
def silence() -> Iterator[Peer]:
    """Something that listens and says nothing, inside the context."""
    over = threading.Event()

    def mute(one: socket.socket) -> None:
        over.wait()

    with speaking(mute) as peer:
        try:
            yield peer
        finally:
            over.set()


@contextmanager
def pretending(conversation: Callable[[Channel], None]) -> Iterator[Peer]:
    """Something that speaks the agents' language to whoever comes."""
    with speaking(lambda one: conversation(Channel(one, time.monotonic() + 60))) as peer:
        yield peer


@contextmanager
def relay(peer: Peer) -> Iterator[tuple[Peer, list[bytes]]]:
    """Somebody in the middle, who hears what the asker says."""
    heard: list[bytes] = []

    def carry(source: socket.socket, target: socket.socket, into: list[bytes]) -> None:
        while True:
            try:
                content = source.recv(65_536)
            except OSError:
                return
            if not content:
                # The other thread may wait on it.
                with suppress(OSError):
                    target.shutdown(socket.SHUT_RDWR)
                return
            into.append(content)
            with suppress(ConnectionError):
                target.sendall(content)

    def between(asker: socket.socket) -> None:
        with closing(connected(peer)) as answerer:
            back = threading.Thread(target=carry, args=(answerer, asker, []))
            back.start()
            carry(asker, answerer, heard)
            back.join()

    with speaking(between) as there:
        yield there, heard
