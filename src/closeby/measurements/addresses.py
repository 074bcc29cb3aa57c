"""Addresses of servers of measurements, as objects name them and as an operator allows them; and who asks.

The grammar is narrow on purpose: scheme, host, port and plain segments of a path. What libraries read in
different ways (user names, escapes, backslashes, dot segments, queries) is not an address. An address that
an object names is compared with those of the operator, and the operator's spelling is asked.
"""

import ipaddress
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

_PORTS: Final = {"http": 80, "https": 443}
_HIGHEST_PORT: Final = 65_535
#: A name of DNS, with a dot at its end if it is absolute, or an address of IPv4.
_HOST: Final = r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?\.?"
_URL: Final = re.compile(
    rf"(https?)://(?:\[([0-9a-f:.]+)\]|({_HOST}))(?::([0-9]{{1,5}}))?((?:/[\w.~:-]+)*)/?",
    re.ASCII | re.IGNORECASE,
)
#: No usable URL is longer; an object may hold a megabyte.
_LONGEST: Final = 2048
#: Seconds to wait for an answer.
TIMEOUT: Final = 5.0


class Address(Struct, frozen=True, kw_only=True):
    """``scheme://host[:port][/prefix]``; ``host`` and ``port`` as they are asked."""

    scheme: str
    host: str
    port: int
    path: tuple[str, ...] = ()

    @property
    def origin(self) -> tuple[str, str, int]:
        """Which server, in one spelling."""
        return self.scheme, self.host.removesuffix("."), self.port

    @property
    def url(self) -> str:
        """As it is asked, without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return "/".join((f"{self.scheme}://{host}{port}", *self.path))

    def covers(self, other: "Address") -> bool:
        """Whether ``other`` is at the same server, at or below the same path."""
        return self.origin == other.origin and other.path[: len(self.path)] == self.path


def is_url(address: str) -> bool:
    """Whether an address is an HTTP URL; anything else is taken as a path."""
    return address.lower().startswith(("http://", "https://"))


def address_of(url: str) -> str:
    """A URL for messages: without its query, which may be long, and without a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def read_address(text: str) -> Address | None:
    """The address; None for what is none, or is more than that."""
    found = _URL.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    scheme, bracketed, name, port, path = found.groups()
    scheme = scheme.lower()
    host = _ipv6(bracketed) if bracketed else name.lower()
    number = int(port) if port else _PORTS[scheme]
    segments = tuple(path.split("/")[1:])
    if host is None or ".." in host or not 1 <= number <= _HIGHEST_PORT or {".", ".."} & set(segments):
        return None
    return Address(scheme=scheme, host=host, port=number, path=segments)


def permitted(address: Address, allowed: Iterable[Address]) -> Address | None:
    """What may be asked for ``address``: the same in the operator's spelling; None if nothing allows it.

    A dot at the end of a host makes another look-up in DNS of it, so the spelling must be the operator's.
    """
    for one in allowed:
        if one.covers(address):
            return Address(scheme=one.scheme, host=one.host, port=one.port, path=address.path)
    return None


def _ipv6(text: str) -> str | None:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        return None


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
ANONYMOUS: Final = Access()
