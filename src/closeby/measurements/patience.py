"""An end to all that a server may take, whatever it says meanwhile.

The timeout of a socket is for each of its words: a server that sends one header after the other keeps to it
indefinitely, so a user who may name a server could block its client.
"""

import contextlib
import http.client
import socket
import ssl
import urllib.request
from threading import Lock, Timer
from types import TracebackType
from typing import Any


class Patience:
    """For the time of its block: cuts the connections that were made under it when it is over."""

    def __init__(self, seconds: float) -> None:
        #: Whether it was, and something was cut.
        self.over = False
        self._lock = Lock()
        self._connected: list[socket.socket] = []
        self._timer = Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> "Patience":
        """Begins."""
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is cut any more."""
        self._timer.cancel()
        with self._lock:
            self._connected.clear()

    def holds(self, connected: socket.socket) -> None:
        """One more connection.

        Raises:
            TimeoutError: it comes too late.
        """
        with self._lock:
            if self.over:
                raise TimeoutError
            self._connected.append(connected)

    def _cut(self) -> None:
        with self._lock:
            self.over = True
            for one in self._connected:
                with contextlib.suppress(OSError):
                    # Not TLS's own, which is for the thread that reads.
                    socket.socket.shutdown(one, socket.SHUT_RDWR)


def opener(
    patience: Patience, context: ssl.SSLContext | None, *, redirects: bool = True
) -> urllib.request.OpenerDirector:
    """Opens URLs as long as there is patience, and what they redirect to if ``redirects`` says so."""
    more = () if redirects else (_NoRedirects(),)
    return urllib.request.build_opener(_Http(patience), _Https(patience, context), *more)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """The redirect itself is the answer."""


class _Connection(http.client.HTTPConnection):
    patience: Patience

    def connect(self) -> None:
        super().connect()
        self.patience.holds(self.sock)


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def __init__(self, patience: Patience) -> None:
        super().__init__()
        self._patience = patience

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, /, **more: Any) -> _Connection:
            made = _Connection(host, **more)
            made.patience = self._patience
            return made

        return self.do_open(connection, req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, patience: Patience, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._patience = patience
        self._given = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        def connection(host: str, /, **more: Any) -> _SecureConnection:
            made = _SecureConnection(host, **more, context=self._given)
            made.patience = self._patience
            return made

        return self.do_open(connection, req)
