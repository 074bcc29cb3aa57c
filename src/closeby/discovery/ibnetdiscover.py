"""Reads what ``ibnetdiscover`` prints, as records of devices with their ports or (``-p``) as a line per port.

Its text is for people: descriptions stand in quotes that are not escaped, a port's line depends on whose port
it is, and speed, names or the last blank line may be missing. Nothing is read as a whole, so that a file that
is none of these is refused after its first lines, however long it is.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from closeby.discovery.fabric import Device, DeviceKind, End, FabricBuilder, cable
from closeby.discovery.source_files import MOST_BYTES, shown
from closeby.errors import UnreadableError
from closeby.objects.reasons import Condition, invalid

#: No line of a scan is longer; descriptions have at most 64 bytes.
LONGEST_LINE: Final = 1024
#: A subnet has 49,151 addresses.
MOST_DEVICES: Final = 100_000
#: Six levels of as many cables as a subnet has addresses.
MOST_CABLES: Final = 300_000
#: Ports have numbers of eight bits, of which the last one means none.
_LAST_PORT: Final = 254
#: So many ports may have two peers, before the file counts as something other than a scan.
_MOST_CONTRADICTIONS: Final = 1000
#: Lines that say nothing may be so many more than lines that do, before the file is taken for another thing.
_PATIENCE: Final = 100
_IDLE: Final = 10_000
#: Oddities that are reported of one scan.
_MOST_PROBLEMS: Final = 1000

_GUID = r"[0-9a-fA-F]{1,16}"
#: ``Switch 8 "S-a1ff"  # "MF0;spine:MQM8700/U1" enhanced port 0 lid 3 lmc 0``
_RECORD: Final = re.compile(
    rf'(?:Switch|Ca|Rt)\s+(\d{{1,5}})\s+"([SHR])-({_GUID})"(?:\s*#\s*"(.*)")?', re.ASCII
)
#: ``[1]  "H-b100"[1](b101)  # …`` of a switch, ``[1](b101)  "S-a100"[1]  # …`` of an adapter; between two
#: adapters ``[1](b101)  "H-b200"[1] (b201)  # …``.
_PORT: Final = re.compile(
    rf'\[(\d{{1,3}})\](?:\[[^\]]*\])?(?:\(({_GUID})\))?\s+"([SHR])-({_GUID})"\[(\d{{1,3}})\]'
    rf"(?:\[[^\]]*\])?(?:\s*\(({_GUID})\))?\s*(?:#(.*))?",
    re.ASCII,
)
#: The rest of such a line: ``"node01" lid 4 4xNDR``, or with ``lid 6 lmc 0`` before the name.
_PEER: Final = re.compile(r'[^"]*"(.*)"([^"]*)')
_RATE: Final = re.compile(r"(?:^|\s)(\d{1,2}x)([A-Z]+\d*)(?=\s|$)", re.ASCII)
_SYSTEM: Final = re.compile(rf"sysimgguid=0x({_GUID})", re.ASCII)
#: ``SW 3 1 0x…a1ff 4x SDR - SW 1 7 0x…a100 ( 'spine' - 'leaf' )``; a port without a cable has no second half.
_PAIR: Final = re.compile(
    rf"(SW|CA|RT)\s+\d{{1,5}}\s+(\d{{1,3}})\s+0x({_GUID})\s+(\S+)\s+(\S+)\s+"
    rf"(?:-\s+(SW|CA|RT)\s+\d{{1,5}}\s+(\d{{1,3}})\s+0x({_GUID})\s+\(\s*'(.*)'\s*\)|.*)",
    re.ASCII,
)
#: ``Ca : 0x… ports 2 devid 0x0 vendid 0x0 "node08"``
_INVENTORY: Final = re.compile(r"(?:Ca|Switch|Rt|Router)\s*:\s*0x", re.ASCII)
_HEADINGS: Final = re.compile(
    r"(?:vendid|devid|switchguid|caguid|rtguid|sysimgguid|chassisguid)=|(?:Non-)?Chassis\b|\s*(?:#|$)",
    re.ASCII | re.IGNORECASE,
)
_SHORT: Final = {"SW": DeviceKind.SWITCH, "CA": DeviceKind.ADAPTER, "RT": DeviceKind.ROUTER}
_REMEDY: Final = "give what `ibnetdiscover` prints, or `ibnetdiscover -p`"


def read_scan(name: str, stream: BinaryIO, builder: FabricBuilder) -> tuple[Condition, ...]:
    """Adds a scan to ``builder``; returns what is odd about it.

    ``name`` is the file's, for messages.

    Raises:
        UnreadableError: it is not a scan, or has no switch or no adapter.
    """
    reader = _Reader(name, builder)
    for number, line in _lines(name, stream):
        reader.take(number, line)
    return reader.end()


class _Reader:
    """One scan, line by line."""

    def __init__(self, name: str, builder: FabricBuilder) -> None:
        self._name = name
        self._builder = builder
        self._own: Device | None = None
        #: How many ports that one has.
        self._ports = 0
        self._system: str | None = None
        self._records: set[str] = set()
        self._kinds: set[DeviceKind] = set()
        self._peers: dict[End, End] = {}
        self._told = 0
        self._contradictions = 0
        self._idle = 0
        self._strange: list[int] = []
        self._problems: list[Condition] = []

    def take(self, number: int, line: str) -> None:
        """The next line, without its end."""
        if self._read(line):
            self._told += 1
            if len(self._builder) > MOST_DEVICES:
                raise self._error("has more devices than a fabric can", number)
            if self._builder.number_of_cables > MOST_CABLES:
                raise self._error("has more cables than a fabric can", number)
            if self._contradictions > max(_MOST_CONTRADICTIONS, self._told):
                raise self._error("contradicts itself in most of its lines", number)
            return
        if _HEADINGS.match(line) is None:
            if self._told == 0 and _INVENTORY.match(line):
                raise UnreadableError(
                    self._name, "is an inventory (-l), which does not list cables", _REMEDY, line=number
                )
            self._strange.append(number)
            if len(self._strange) > _PATIENCE + self._told:
                raise self._error("is not a scan of a fabric", self._strange[0])
        self._idle += 1
        if self._idle > _IDLE + 10 * self._told:
            raise self._error("is not a scan of a fabric", number)

    def end(self) -> tuple[Condition, ...]:
        """All lines were taken."""
        if self._strange and not self._told:
            raise self._error("is not a scan of a fabric", self._strange[0])
        for kind, word in ((DeviceKind.SWITCH, "switch"), (DeviceKind.ADAPTER, "host")):
            if kind not in self._kinds:
                raise UnreadableError(
                    self._name,
                    f"holds no {word}, so the scan failed or saw nothing",
                    "check that the port it started from is up, and scan again",
                )
        if self._strange:
            first, count = self._strange[0], len(self._strange)
            which = f"line {first} is" if count == 1 else f"{count} lines, the first of them {first}, are"
            self._problem(self._name, f"{which} not understood and left out", _REMEDY)
        return tuple(self._problems)

    def _read(self, line: str) -> bool:
        """Whether the line describes a device or a cable."""
        if (port := _PORT.match(line)) is not None:
            return self._port(port)
        if (record := _RECORD.match(line)) is not None:
            self._record(*record.groups())
            return True
        if (system := _SYSTEM.match(line)) is not None:
            self._own, self._system = None, _guid(system[1])
            return False
        if (pair := _PAIR.match(line)) is not None:
            self._pair(pair)
            return True
        if not line.strip():
            self._own = self._system = None
        return False

    def _record(self, ports: str, letter: str, guid: str, description: str | None) -> None:
        self._ports = int(ports)
        self._own = self._device(letter, guid, description or "", self._system)
        self._system = None
        if self._own.guid in self._records:
            self._problem(
                _object(self._own), f"{_called(self._own)} is described twice in {self._name}", "scan again"
            )
        self._records.add(self._own.guid)

    def _port(self, found: re.Match[str]) -> bool:
        """A port's line belongs to the record above it; without one it says nothing, nor of other ports."""
        number, own_port, letter, guid, peer_number, peer_port, tail = found.groups()
        if self._own is None or int(number) > min(self._ports, _LAST_PORT) or int(peer_number) > _LAST_PORT:
            return False
        about = _PEER.fullmatch(tail or "")
        peer = self._device(letter, guid, about[1] if about is not None else "", None)
        if own_port is not None:
            self._builder.port(_guid(own_port), self._own.guid)
        if peer_port is not None:
            self._builder.port(_guid(peer_port), peer.guid)
        # The rate stands behind the name, or alone where there is no name.
        rate = _RATE.search(about[2] if about is not None else tail or "")
        self._cable(
            End(self._own.guid, int(number)),
            End(peer.guid, int(peer_number)),
            None if rate is None else rate[1],
            None if rate is None else rate[2],
        )
        return True

    def _pair(self, found: re.Match[str]) -> None:
        kind, port, guid, width, speed, peer_kind, peer_port, peer_guid, names = found.groups()
        called, _, peer_called = (names or "").partition("' - '")
        own = self._device(_SHORT[kind].value, guid, called, None, by_port=True)
        if peer_kind is None:
            return
        peer = self._device(_SHORT[peer_kind].value, peer_guid, peer_called, None, by_port=True)
        rate = _RATE.fullmatch(f"{width}{speed}")
        self._cable(
            End(own.guid, int(port)),
            End(peer.guid, int(peer_port)),
            None if rate is None else rate[1],
            None if rate is None else rate[2],
        )

    def _device(
        self, letter: str, guid: str, description: str, system: str | None, *, by_port: bool = False
    ) -> Device:
        kind = DeviceKind(letter)
        self._kinds.add(kind)
        found = Device(guid=_guid(guid), kind=kind, description=description.strip(), system=system)
        self._builder.device(found, by_port=by_port)
        return found

    def _cable(self, one: End, other: End, width: str | None, speed: str | None) -> None:
        for end, peer in ((one, other), (other, one)):
            known = self._peers.setdefault(end, peer)
            if known != peer:
                self._contradictions += 1
                message = f"port {end.port} of {end.guid} is said to lead to {known.guid} and to {peer.guid}"
                self._problem(
                    f"Port/{end.guid}:{end.port}", message, "scan again when no cables are being moved"
                )
        if one.guid != other.guid:
            self._builder.cable(cable(one, other, width, speed))
        elif one <= other:
            message = f"a cable leads from port {one.port} of {one.guid} to its own port {other.port}"
            self._problem(f"Port/{one.guid}:{one.port}", message, "remove the cable")

    def _problem(self, subject: str, message: str, remedy: str) -> None:
        problem = invalid(subject, "", message, remedy)
        if len(self._problems) < _MOST_PROBLEMS and problem not in self._problems[-2:]:
            self._problems.append(problem)

    def _error(self, message: str, line: int) -> UnreadableError:
        return UnreadableError(self._name, message, _REMEDY, line=line)


def _lines(name: str, stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """The lines with their numbers; at most one is held."""
    number = size = 0
    try:
        while line := stream.readline(LONGEST_LINE + 1):
            number += 1
            size += len(line)
            if size > MOST_BYTES:
                remedy = "check that it is the right file"
                raise UnreadableError(name, f"is longer than {MOST_BYTES >> 20} MiB", remedy)
            if b"\0" in line:
                raise UnreadableError(
                    name,
                    "is binary and no text",
                    "of a cache of ibnetdiscover give what `ibnetdiscover --load-cache FILE` prints",
                )
            if len(line) > LONGEST_LINE:
                start = shown(line[:80].decode(errors="replace"))
                message = f"is not a scan of a fabric: the line starts with {start}"
                raise UnreadableError(
                    name, f"{message} and is longer than {LONGEST_LINE} bytes", _REMEDY, line=number
                )
            yield number, line.decode(errors="backslashreplace").rstrip("\r\n")
    except OSError as error:
        raise UnreadableError(name, f"can't be read: {error.strerror or error}", "check the path") from error


def _guid(text: str) -> str:
    return text.lower().rjust(16, "0")


def _object(device: Device) -> str:
    return f"{'Switch' if device.kind is DeviceKind.SWITCH else 'Adapter'}/{device.guid}"


def _called(device: Device) -> str:
    return device.description or device.guid
