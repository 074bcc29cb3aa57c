"""Who the peers are: the nodes on which an agent answers, and where they are."""

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from closeby.discovery.source_files import read_yaml
from closeby.errors import UnreadableError
from closeby.objects.reasons import Problem

#: A region and a zone in it; either is empty where nothing is known.
Area = tuple[str, str]

#: Where agents answer, unless something else is said.
PROBE_PORT: Final = 9471
#: A longer file of peers is not read.
LONGEST_FILE: Final = 16 * 1024 * 1024
#: A node's name is a DNS subdomain, which is no longer.
LONGEST_NAME: Final = 253
_INVALID: Final = "InvalidPeers"
_REMEDY: Final = "give peers: [{name: node-1, host: 192.0.2.1, zone: a}, ...]"


class Peer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One node with an agent."""

    #: The node's.
    name: str
    #: An address or a name, and the port of the agent.
    host: str
    port: int = PROBE_PORT
    zone: str = ""
    region: str = ""

    @property
    def area(self) -> Area:
        """Region and zone."""
        return self.region, self.zone


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    peers: tuple[Peer, ...]


class PeerFile:
    """The peers that a YAML or JSON file lists; it is read again whenever it has changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._read: tuple[Peer, ...] | Problem = ()

    def read(self) -> tuple[Peer, ...] | Problem:
        """The peers now."""
        try:
            about = os.stat(self._path)
            stamp = about.st_mtime_ns, about.st_size, about.st_ino
            if stamp != self._stamp:
                if about.st_size > LONGEST_FILE:
                    return _problem(f"is longer than {LONGEST_FILE:,} bytes", self._path)
                content = Path(self._path).read_bytes()
                self._stamp, self._read = stamp, parse_peers(content, self._path)
        except OSError as error:
            return _problem(f"can't be read: {error.strerror or error}", self._path)
        return self._read


def parse_peers(content: bytes, source: str) -> tuple[Peer, ...] | Problem:
    """The peers in the text of a file; ``source`` is its name for messages."""
    try:
        value = read_yaml(source, content.decode()).value
    except UnicodeDecodeError as error:
        return _problem(f"is not text: {error.reason}", source)
    except UnreadableError as error:
        return replace(error.problem, reason=_INVALID, remedy=f"{error.problem.remedy}; {_REMEDY}")
    try:
        peers = msgspec.convert(value, _File).peers
    except msgspec.ValidationError as error:
        return _problem(str(error), source)
    seen: set[str] = set()
    for peer in peers:
        if not peer.name or not peer.host or len(peer.name.encode()) > LONGEST_NAME:
            return _problem(f"{peer.name!r} is not a peer", source)
        if peer.name in seen:
            return _problem(f"{peer.name!r} is there twice", source, "name each peer once")
        if not 0 < peer.port < 65_536:
            return _problem(f"{peer.name!r} has no port {peer.port}", source, "give 1 to 65535")
        seen.add(peer.name)
    return peers


def _problem(message: str, file: str, remedy: str = _REMEDY) -> Problem:
    return Problem(message, remedy, file=file, reason=_INVALID)
