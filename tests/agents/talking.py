"""Agents that talk to each other over loopback, in this process."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from closeby.agents.latency.asking import TcpProbe
from closeby.agents.latency.credentials import PEER_NAME, Credentials, TlsFiles
from closeby.agents.latency.delays import Delays
from closeby.agents.latency.limits import Limits
from closeby.agents.latency.peers import Peer
from closeby.agents.latency.responder import Responder
from tests.certificates import Authority

TOKEN = "correct horse battery staple"


class Lines:
    """What was said."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def say(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        self.lines.append((message, fields))

    def said(self, message: str) -> list[dict[str, object]]:
        return [fields for text, fields in self.lines if text == message]


LINES = Lines()


def shared(token: str | None = TOKEN, tls: TlsFiles | None = None) -> Credentials:
    return Credentials(token=token, tls=tls, say=LINES.say)


def issued(
    authority: Authority, stem: str = "agent", name: str = PEER_NAME, life: timedelta = timedelta(days=1)
) -> TlsFiles:
    """What one agent has, with a certificate for this DNS name that is good for so long from now on."""
    certificate, key = authority.issue(stem, name, life=life)
    return TlsFiles(certificate=str(certificate), key=str(key), authority=str(authority.path))


@contextmanager
def answering(
    name: str = "b", credentials: Credentials | None = None, limits: Limits | None = None
) -> Iterator[tuple[Responder, Peer]]:
    """A peer that answers inside the context."""
    responder = Responder(name, credentials or shared(), LINES.say, limits or Limits())
    port = responder.open("127.0.0.1", 0)
    assert isinstance(port, int), port
    try:
        yield responder, Peer(name=name, host="127.0.0.1", port=port, zone="z")
    finally:
        responder.close()


def asking(
    credentials: Credentials | None = None, limits: Limits | None = None, delays: Delays | None = None
) -> TcpProbe:
    return TcpProbe("a", credentials or shared(), delays or Delays({}, None, LINES.say), limits or Limits())


def soon(met: Callable[[], object], seconds: float = 5.0) -> None:
    """Waits until it is so."""
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "it does not come about"
        time.sleep(0.005)
