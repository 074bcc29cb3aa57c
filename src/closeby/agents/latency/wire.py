"""The protocol of two agents over TCP: who they are, that both have the token, and small requests.

Every frame is a byte that says what it is, two bytes with the length, and that many bytes::

    client                               server
                   <-  HELLO             magic, nonce (32), name
    PROOF          ->                    nonce (32), HMAC (32), name
                   <-  WELCOME           HMAC (32)            or REFUSED
    ASK            ->                    32 bytes, the first four a number
                   <-  ANSWER            1,024 bytes, the first four the same number
    (ASK and ANSWER as often as the client likes, up to a limit)

Both HMACs (SHA-256, with the shared token as key) are over both nonces and both names, and each over a word
of its own, so that no proof is valid a second time, for another peer, or as the answer to itself. The token
itself is never sent. What follows the proofs is not signed: an attacker who can change packets on the way can
change what is measured, as it can by holding them back. Under TLS it is.

The sizes are those of the network-aware scheduling KEP's netperf runs (TCP_RR, 32 and 1,024 bytes).
"""

import hmac
import secrets
import socket
import ssl
import time
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Final

from closeby.agents.latency.peers import LONGEST_NAME
from closeby.errors import ClosebyError
from closeby.objects.reasons import Problem

MAGIC: Final = b"closeby1"
NONCE: Final = 32
PROOF: Final = 32
QUESTION: Final = 32
ANSWER: Final = 1024
_HEADER: Final = Struct("!BH")
#: Bytes of one question and its answer with their frames, without those of TCP.
TRIP: Final = 2 * _HEADER.size + QUESTION + ANSWER


class MessageKind(IntEnum):
    """What a frame is."""

    HELLO = 1
    PROOF = 2
    WELCOME = 3
    REFUSED = 4
    ASK = 5
    ANSWER = 6


class WireError(ClosebyError):
    """A conversation came to nothing; ``problem`` says why."""

    def __init__(self, reason: str, message: str) -> None:
        self.problem = Problem(message, reason=reason)
        super().__init__(str(self.problem))


class Channel:
    """Frames over one socket, all of them before ``deadline`` (of ``time.monotonic``)."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._socket = connected
        self.deadline = deadline
        self._rest = b""

    def send(self, kind: MessageKind, content: bytes) -> None:
        """One frame.

        Raises:
            OSError: it can't be sent, or not in time.
        """
        self._in_time()
        self._socket.sendall(_HEADER.pack(kind, len(content)) + content)

    def receive(self, wanted: MessageKind, longest: int) -> bytes:
        """The next frame's content; never more than about ``longest`` bytes are kept.

        Raises:
            WireError: it is another kind of frame, or too long.
            EOFError: the other side ended the conversation.
            OSError: the connection broke, or nothing came in time.
        """
        kind, length = _HEADER.unpack(self._exactly(_HEADER.size, longest))
        if kind == MessageKind.REFUSED and wanted != MessageKind.REFUSED:
            raise WireError("Refused", "the peer does not take our proof: do both have the same token?")
        if kind != wanted:
            raise WireError("NotAnAgent", f"a frame of kind {kind} came instead of {wanted.name}")
        if length > longest:
            raise WireError("NotAnAgent", f"{wanted.name} of {length:,} bytes is longer than {longest:,}")
        return self._exactly(length, longest)

    def _exactly(self, size: int, longest: int) -> bytes:
        while len(self._rest) < size:
            self._in_time()
            more = self._socket.recv(_HEADER.size + longest)
            if not more:
                raise EOFError
            self._rest += more
        found, self._rest = self._rest[:size], self._rest[size:]
        return found

    def _in_time(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)


def authenticate_to(channel: Channel, name: str, peer: str, key: bytes) -> None:
    """The client's part: shows the peer that we have the key, and sees that it has it and is who we mean.

    Raises:
        WireError: it has not, or is not. Else as ``Channel``.
    """
    hello = channel.receive(MessageKind.HELLO, len(MAGIC) + NONCE + LONGEST_NAME)
    magic, theirs = hello[: len(MAGIC)], hello[len(MAGIC) : len(MAGIC) + NONCE]
    found = hello[len(MAGIC) + NONCE :]
    if magic != MAGIC or len(theirs) != NONCE:
        raise WireError("NotAnAgent", "what answers there is no agent of this version")
    if found != peer.encode():
        shown = found.decode(errors="replace")
        raise WireError("WrongPeer", f"{shown!r} answers where {peer!r} should be")
    ours = secrets.token_bytes(NONCE)
    signed = (theirs, ours, name.encode(), found)
    channel.send(MessageKind.PROOF, ours + _proof(key, b"asks", signed) + name.encode())
    welcome = channel.receive(MessageKind.WELCOME, PROOF)
    if not hmac.compare_digest(welcome, _proof(key, b"answers", signed)):
        raise WireError("Impostor", "the peer does not prove that it has the token")


def authenticate_client(channel: Channel, name: str, keys: Sequence[bytes]) -> str:
    """The server's part: the name of the client, who has one of our keys.

    Raises:
        WireError: it has none of them, or does not speak as agents do. Else as ``Channel``.
    """
    ours = secrets.token_bytes(NONCE)
    channel.send(MessageKind.HELLO, MAGIC + ours + name.encode())
    content = channel.receive(MessageKind.PROOF, NONCE + PROOF + LONGEST_NAME)
    theirs, proof, client = content[:NONCE], content[NONCE : NONCE + PROOF], content[NONCE + PROOF :]
    signed = (ours, theirs, client, name.encode())
    # All keys are tried whichever fits, so that the time tells nothing.
    fitting = [key for key in keys if hmac.compare_digest(proof, _proof(key, b"asks", signed))]
    if not fitting:
        channel.send(MessageKind.REFUSED, b"")
        raise WireError("Refused", "the client does not prove that it has the token")
    channel.send(MessageKind.WELCOME, _proof(fitting[0], b"answers", signed))
    return client.decode(errors="replace")


def ask(channel: Channel, number: int) -> None:
    """One question and its answer.

    Raises:
        WireError: the answer is to another question. Else as ``Channel``.
    """
    head = number.to_bytes(4, "big")
    channel.send(MessageKind.ASK, head.ljust(QUESTION, b"\0"))
    if not channel.receive(MessageKind.ANSWER, ANSWER).startswith(head):
        raise WireError("NotAnAgent", "the answer is to another question")


def answer(channel: Channel) -> None:
    """Waits for one question and answers it. Raises as ``Channel``."""
    asked = channel.receive(MessageKind.ASK, QUESTION)
    channel.send(MessageKind.ANSWER, asked[:4].ljust(ANSWER, b"\0"))


def problem_of(error: Exception) -> Problem:
    """What an exception says about a conversation."""
    match error:
        case WireError():
            return error.problem
        case ssl.SSLError():
            # Only an error of OpenSSL's own has a reason.
            said = getattr(error, "reason", None) or str(error)
            return Problem(said, "check both sides' certificates and CA", reason="TlsFailed")
        case TimeoutError():
            return Problem("no answer came in time", reason="NoAnswerInTime")
        case EOFError() | ConnectionError() if not isinstance(error, ConnectionRefusedError):
            return Problem("the connection was cut", reason="ConnectionCut")
        case OSError():
            return Problem(error.strerror or str(error), reason="Unreachable")
        case UnicodeError():
            return Problem("its address is not a name of a host", reason="Unreachable")
    return Problem(str(error) or type(error).__name__, reason="ConnectionCut")


def _proof(key: bytes, role: bytes, signed: Sequence[bytes]) -> bytes:
    # Each with its length, so that no two sets of fields look alike.
    message = b"".join(len(one).to_bytes(4, "big") + one for one in (MAGIC, role, *signed))
    return hmac.digest(key, message, "sha256")
