"""An InfiniBand fabric as a graph: devices by GUID, and each cable between two ports once.

It says what is there, not what is above what (see ``ranks`` and ``trees``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from msgspec import Struct

#: Bits per second of one lane, as adapters report their rate (``4xNDR`` is 400 Gb/s).
LANE_RATES: Final[Mapping[str, int]] = {
    "SDR": 2_500_000_000,
    "DDR": 5_000_000_000,
    "QDR": 10_000_000_000,
    "FDR10": 10_000_000_000,
    "FDR": 14_000_000_000,
    "EDR": 25_000_000_000,
    "HDR": 50_000_000_000,
    "NDR": 100_000_000_000,
    "XDR": 200_000_000_000,
}
_WIDTH: Final = re.compile(r"([0-9]{1,2})x", re.ASCII)


class DeviceKind(Enum):
    """What hangs on a cable."""

    SWITCH = "S"
    #: A host channel adapter, or what looks like one to the fabric.
    ADAPTER = "H"
    ROUTER = "R"


class Device(Struct, frozen=True, kw_only=True):
    """A switch or an adapter. An identifier is 16 lower-case hexadecimal digits."""

    guid: str
    kind: DeviceKind
    description: str = ""
    #: What cards of one chassis share; None where the scan does not say.
    system: str | None = None


class End(NamedTuple):
    """One end of a cable."""

    guid: str
    port: int


class Cable(Struct, frozen=True, kw_only=True):
    """A cable that works; ``a`` sorts before ``b``."""

    a: End
    b: End
    #: Such as ``4x`` and ``HDR``; None where the scan does not say.
    width: str | None = None
    speed: str | None = None

    @property
    def bandwidth(self) -> int | None:
        """Bits per second; None where width or speed are not known."""
        lanes = _WIDTH.fullmatch(self.width or "")
        rate = LANE_RATES.get(self.speed or "")
        return None if lanes is None or rate is None else int(lanes[1]) * rate


class Fabric(Struct, frozen=True, kw_only=True):
    """One or several scans together."""

    #: By GUID.
    devices: Mapping[str, Device] = {}
    cables: tuple[Cable, ...] = ()

    def of_kind(self, kind: DeviceKind) -> Iterator[Device]:
        """The devices of one kind, by GUID."""
        return (self.devices[guid] for guid in sorted(self.devices) if self.devices[guid].kind is kind)


def cable(one: End, other: End, width: str | None, speed: str | None) -> Cable:
    """A cable, whichever end is listed first."""
    a, b = sorted((one, other))
    return Cable(a=a, b=b, width=width, speed=speed)


class FabricBuilder:
    """Takes devices and cables as scans tell them, in any order and as often as they like."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._cables: dict[tuple[End, End], Cable] = {}
        #: GUID of an adapter's port -> GUID of the adapter; the same for most, but not for all.
        self._ports: dict[str, str] = {}
        #: GUIDs that are of devices for sure.
        self._certain: set[str] = set()

    def __len__(self) -> int:
        """Devices so far."""
        return len(self._devices)

    @property
    def number_of_cables(self) -> int:
        """Cables so far."""
        return len(self._cables)

    def device(self, found: Device, *, by_port: bool = False) -> None:
        """A device; what is known of it already is kept where ``found`` does not say.

        ``by_port``: its identifier may be that of a port of it.
        """
        if not by_port:
            self._certain.add(found.guid)
        known = self._devices.get(found.guid)
        if known is not None:
            found = Device(
                guid=found.guid,
                kind=found.kind,
                description=found.description or known.description,
                system=found.system or known.system,
            )
        self._devices[found.guid] = found

    def port(self, port_guid: str, guid: str) -> None:
        """An adapter's port has an identifier of its own."""
        self._ports[port_guid] = guid

    def cable(self, found: Cable) -> None:
        """A cable; listed from its other end again, it is the same."""
        known = self._cables.get((found.a, found.b))
        if known is None or known.speed is None:
            self._cables[found.a, found.b] = found

    def build(self) -> Fabric:
        """The graph. An adapter that some scan knows only by its port is the adapter of that port."""
        aliases = {
            port: guid
            for port, guid in self._ports.items()
            if port in self._devices and port not in self._certain and guid in self._certain
        }
        devices = {guid: one for guid, one in self._devices.items() if guid not in aliases}
        cables: dict[tuple[End, End], Cable] = {}
        for one in self._cables.values():
            a, b = (End(aliases.get(end.guid, end.guid), end.port) for end in (one.a, one.b))
            renamed = cable(a, b, one.width, one.speed)
            if renamed.a.guid != renamed.b.guid:
                cables.setdefault((renamed.a, renamed.b), renamed)
        return Fabric(devices=devices, cables=tuple(cables[key] for key in sorted(cables)))


def neighbours(fabric: Fabric) -> dict[str, dict[str, list[Cable]]]:
    """Per device the devices it has cables to, with these cables."""
    found: dict[str, dict[str, list[Cable]]] = {guid: {} for guid in fabric.devices}
    for one in fabric.cables:
        found[one.a.guid].setdefault(one.b.guid, []).append(one)
        found[one.b.guid].setdefault(one.a.guid, []).append(one)
    return found


def bandwidth_of(cables: Iterable[Cable]) -> int | None:
    """Bits per second of all cables together; None if that of one is not known, or there are none."""
    rates = [one.bandwidth for one in cables]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if rates and len(known) == len(rates) else None
