"""Agents that talk to each other over loopback, in this process."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from closeby.agents.latency.credentials import PEER_NAME, PeerCredentials, TlsFiles
from closeby.agents.latency.delays import Delays
from closeby.agents.latency.limits import ResponderLimits
from closeby.agents.latency.peers import Peer
from closeby.agents.latency.probing import TcpProbe
from closeby.agents.latency.responder import Responder
from tests.certificates import Authority

TOKEN = "correct horse battery staple"

#: For what is not about limits: a machine that stands still for seconds breaks no conversation off.
PATIENT = ResponderLimits(
    within=60.0,
    proof_within=60.0,
    served_within=120.0,
    connections=1000,
    per_address=1000,
    arrivals=1e9,
    arrivals_per_address=1e9,
)


class Lines:
    """What was said."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        self.lines.append((message, fields))

    def said(self, message: str) -> list[dict[str, object]]:
        return [fields for text, fields in self.lines if text == message]


LINES = Lines()


def shared(token: str | None = TOKEN, tls: TlsFiles | None = None) -> PeerCredentials:
    return PeerCredentials(token=token, tls=tls, say=LINES.say)


def issued(
    authority: Authority, stem: str = "agent", name: str = PEER_NAME, life: timedelta = timedelta(days=1)
) -> TlsFiles:
    """What one agent has, with a certificate for this DNS name that is good for so long from now on."""
    certificate, key = authority.issue(stem, name, life=life)
    return TlsFiles(certificate=str(certificate), key=str(key), authority=str(authority.path))


@contextmanager
def answering(
    name: str = "b", credentials: PeerCredentials | None = None, limits: ResponderLimits | None = None
) -> Iterator[tuple[Responder, Peer]]:
    """A peer that answers inside the context."""
    responder = Responder(name, credentials or shared(), LINES.say, limits or PATIENT)
    port = responder.open("127.0.0.1", 0)
    assert isinstance(port, int), port
    try:
        yield responder, Peer(name=name, host="127.0.0.1", port=port, zone="z")
    finally:
        responder.close()


def asking(
    credentials: PeerCredentials | None = None,
    limits: ResponderLimits | None = None,
    delays: Delays | None = None,
) -> TcpProbe:
    return TcpProbe("a", credentials or shared(), delays or Delays({}, None, LINES.say), limits or PATIENT)


def soon(met: Callable[[], object], seconds: float = 60.0) -> None:
    """Waits until it is so."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.005)
