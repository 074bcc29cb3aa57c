"""How peers know each other: a shared token, certificates of one authority, both, or, if so configured, not
at all.

Files are looked at for every connection, so that a new token or certificate takes effect at once. One that
can't be used is logged, and what was there before stays in use.
"""

import os
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Final, Generic, TypeVar

from msgspec import Struct

from closeby.objects.process import Say
from closeby.objects.reasons import Problem
from closeby.reading.decoding.sources import stamp_of

#: The token, where it is not in a file.
VARIABLE: Final = "CLOSEBY_AGENT_TOKEN"
#: Characters: a shorter one could be guessed by trying.
SHORTEST_TOKEN: Final = 16
#: Tokens in use at the same time, while one takes the place of another.
_MOST_TOKENS: Final = 4
_NEW_TOKEN: Final = "make one: openssl rand -hex 32"
#: The name that the certificate of every agent must have (a DNS name in subjectAltName).
PEER_NAME: Final = "closeby-agent"

T = TypeVar("T")


class TlsFiles(Struct, frozen=True, kw_only=True):
    """PEM files: our certificate and its key, and the authority of all peers' certificates."""

    certificate: str
    key: str
    authority: str
    #: See ``PEER_NAME``.
    peer_name: str = PEER_NAME


class _Contexts(Struct, frozen=True):
    client: ssl.SSLContext
    server: ssl.SSLContext


class PeerCredentials:
    """What an agent shows its peers, and what it asks of them."""

    def __init__(
        self,
        *,
        token_file: str | None = None,
        token: str | None = None,
        tls: TlsFiles | None = None,
        say: Say,
    ) -> None:
        """Without token and TLS any peer is taken."""
        self._fixed = None if token is None else parse_tokens(token, f"${VARIABLE}")
        self._tokens = (
            None if token_file is None else _Kept((token_file,), lambda: _read_tokens(token_file), say)
        )
        self._tls = tls
        self._contexts = (
            None
            if tls is None
            else _Kept((tls.certificate, tls.key, tls.authority), lambda: _contexts(tls), say)
        )

    def problem(self) -> Problem | None:
        """Why they can't be used at all; None if they can."""
        for one in (
            self._fixed,
            None if self._tokens is None else self._tokens.now(),
            None if self._contexts is None else self._contexts.now(),
        ):
            if isinstance(one, Problem):
                return one
        return None

    @property
    def proves(self) -> bool:
        """Whether peers are authenticated."""
        return not (self._fixed is None and self._tokens is None and self._tls is None)

    def keys(self) -> Sequence[bytes]:
        """The first is shown to peers, all are taken from them. One that is empty proves nothing."""
        found = self._fixed if self._tokens is None else self._tokens.now()
        return (b"",) if found is None or isinstance(found, Problem) else found

    def client_side(self, connected: socket.socket) -> socket.socket:
        """The client's end, under TLS if there is any.

        Raises:
            OSError: no TLS comes about.
        """
        contexts = self._usable()
        if contexts is None or self._tls is None:
            return connected
        return contexts.client.wrap_socket(connected, server_hostname=self._tls.peer_name)

    def server_side(self, connected: socket.socket) -> socket.socket:
        """The server's end, under TLS if there is any.

        Raises:
            OSError: no TLS comes about, or the client's certificate is not an agent's.
        """
        contexts = self._usable()
        if contexts is None or self._tls is None:
            return connected
        wrapped = contexts.server.wrap_socket(connected, server_side=True)
        names = (wrapped.getpeercert() or {}).get("subjectAltName", ())
        if ("DNS", self._tls.peer_name) not in names:
            wrapped.close()
            raise ssl.SSLError(f"the client's certificate has not the name {self._tls.peer_name}")
        return wrapped

    def _usable(self) -> _Contexts | None:
        found = None if self._contexts is None else self._contexts.now()
        if isinstance(found, Problem):
            raise ssl.SSLError(str(found))
        return found


def from_environment(environment: Mapping[str, str] = os.environ) -> str | None:
    """The token in the environment; None without one."""
    return environment.get(VARIABLE) or None


def parse_tokens(text: str, source: str) -> tuple[bytes, ...] | Problem:
    """One token a line, the one to show first."""
    found = tuple(line.strip().encode() for line in text.splitlines() if line.strip())
    if not found:
        return Problem("holds no token", _NEW_TOKEN, file=source, reason="NoToken")
    if len(found) > _MOST_TOKENS:
        return Problem(
            f"holds {len(found)} tokens", f"keep at most {_MOST_TOKENS}", file=source, reason="NoToken"
        )
    if any(len(one) < SHORTEST_TOKEN for one in found):
        message = f"holds a token shorter than {SHORTEST_TOKEN} characters"
        return Problem(message, _NEW_TOKEN, file=source, reason="NoToken")
    return found


class _Kept(Generic[T]):
    """What was read of files, read again when one of them has changed."""

    def __init__(self, paths: Sequence[str], read: Callable[[], T | Problem], say: Say) -> None:
        self._paths = paths
        self._read = read
        self._say = say
        # Connections are handled by threads.
        self._lock = Lock()
        self._stamp: object = None
        self._value: T | Problem = Problem("nothing was read yet", reason="NotRead")

    def now(self) -> T | Problem:
        """What is in use; a problem only if it could never be read."""
        with self._lock:
            stamp = tuple(stamp_of(path) for path in self._paths)
            if stamp != self._stamp:
                first, self._stamp = self._stamp is None, stamp
                self._take(self._read(), first)
            return self._value

    def _take(self, read: T | Problem, first: bool) -> None:
        if not isinstance(read, Problem):
            self._value = read
            if not first:
                self._say("credentials reloaded", files=", ".join(self._paths))
        elif isinstance(self._value, Problem):
            self._value = read
        else:
            self._say("the new credentials are unusable, so the old ones stay", warning=True, error=read)


def _read_tokens(path: str) -> tuple[bytes, ...] | Problem:
    try:
        return parse_tokens(Path(path).read_text(), path)
    except OSError as error:
        return Problem(f"can't be read: {error.strerror or error}", file=path, reason="NoToken")
    except UnicodeDecodeError:
        return Problem("is not text", _NEW_TOKEN, file=path, reason="NoToken")


def _contexts(files: TlsFiles) -> _Contexts | Problem:
    made = []
    for role in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER):
        context = ssl.SSLContext(role)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cafile=files.authority)
            # A password would be asked for on the terminal.
            context.load_cert_chain(files.certificate, files.key, password="")
        except (OSError, ValueError) as error:
            named = f"{files.certificate}, {files.key} and {files.authority}"
            remedy = "give a certificate, its unencrypted key, and the CA's certificate, all in PEM"
            return Problem(f"{named} can't be used: {error}", remedy, reason="TlsFailed")
        made.append(context)
    return _Contexts(*made)
