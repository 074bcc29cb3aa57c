"""Who asks a server of measurements, and how that server is known: bearer tokens and TLS, out of files.

Files are looked at for every request, because others replace them: the kubelet tokens, cert-manager
certificates.
"""

import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from closeby.measurements.bandwidth import Unavailable
from closeby.measurements.fetching import TIMEOUT, Asking, FetchedAnswer, Head, Sink, fetch, is_url, stream


class Access(Struct, frozen=True, kw_only=True):
    """A token or the file of one, and files in PEM; all may be empty."""

    token: str = ""
    token_file: str = ""
    #: Authorities that may have signed the server's certificate; empty: those of the system.
    ca_file: str = ""
    #: What we show if the server asks who we are; the key may stand in the same file.
    cert_file: str = ""
    key_file: str = ""
    #: Take any server for the right one.
    insecure: bool = False

    def warnings(self, address: str) -> tuple[str, ...]:
        """Warnings about such access to ``address``."""
        secure = address.lower().startswith("https://")
        found = []
        if self.insecure and secure:
            found.append("its certificate is not verified, so any server may impersonate it")
        if is_url(address) and not secure and (self.token or self.token_file):
            found.append("the token is sent without encryption")
        return tuple(found)


#: Access without credentials.
ANONYMOUS = Access()


class Client:
    """Asks servers by one ``Access``; for one thread at a time."""

    def __init__(self, access: Access = ANONYMOUS, timeout: float = TIMEOUT) -> None:
        """``timeout`` is in seconds, and for each word of the server."""
        self._access = access
        self._timeout = timeout
        #: The newest TLS context, and the state of the files it was made of.
        self._context: tuple[object, ssl.SSLContext] | None = None

    def get(self, url: str) -> FetchedAnswer | Unavailable:
        """As ``fetch``; a token or certificate that can't be used is returned as an error."""
        asking = self._asking(url)
        return asking if isinstance(asking, Unavailable) else fetch(url, asking)

    def stream(self, url: str, sink: Sink, longest: int) -> Head | Unavailable:
        """As ``stream`` of ``fetching``, without redirects, of at most ``longest`` bytes."""
        asking = self._asking(url)
        if isinstance(asking, Unavailable):
            return asking
        return stream(url, sink, msgspec.structs.replace(asking, longest=longest, redirects=False))

    def _asking(self, url: str) -> Asking | Unavailable:
        token = self._token()
        if isinstance(token, Unavailable):
            return token
        context = self._tls() if _is_https(url) else None
        if isinstance(context, Unavailable):
            return context
        return Asking(timeout=self._timeout, token=token, context=context)

    def _token(self) -> str | Unavailable:
        path = self._access.token_file
        if not path:
            return self._access.token
        try:
            token = Path(path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            return Unavailable(f"the token file {path} can't be read: {_why(error)}", "mount a token there")
        # What breaks a header would be shown in an error, so it must not get that far.
        if not token or not token.isprintable() or " " in token:
            return Unavailable(f"the token file {path} holds no token", "mount a token there")
        return token

    def _tls(self) -> ssl.SSLContext | Unavailable:
        access = self._access
        files = (access.ca_file, access.cert_file, access.key_file)
        try:
            state = tuple(_state(path) for path in files if path)
            if self._context is None or self._context[0] != state:
                self._context = state, _context(access)
        except (OSError, ValueError) as error:
            named = ", ".join(path for path in files if path)
            remedy = "give certificates and an unencrypted key in PEM"
            return Unavailable(f"certificates can't be used ({named}): {_why(error)}", remedy)
        return self._context[1]


def _context(access: Access) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.ca_file or None)
    if access.cert_file:
        # With a password OpenSSL does not ask on the terminal.
        context.load_cert_chain(access.cert_file, access.key_file or None, password="")
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_https(url: str) -> bool:
    try:
        return urlsplit(url).scheme == "https"
    except ValueError:
        return False


def _state(path: str) -> tuple[int, int, int]:
    """Another one when the file is another one."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
