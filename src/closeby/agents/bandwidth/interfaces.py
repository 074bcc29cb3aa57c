"""Which interface of this node carries its traffic, and how much that is, as the kernel says.

``/sys/class/net/IFACE/speed`` is in Mbit/s. It is -1, or can't be read, where the kernel does not know: for a
cable that is not plugged in, and for many virtual machines. A virtual end of a pod's network (veth) always
says 10,000, and a tunnel 10, which mean nothing.
"""

from pathlib import Path
from typing import Final

from msgspec import Struct

from closeby.errors import QuantityError
from closeby.objects.reasons import Problem
from closeby.reading.decoding.bandwidth import bits_per_second

_MEGABIT: Final = 10**6
#: 100 Tbit/s: the kernel's "unknown" is 2**32 - 1 in some of its versions.
_MOST: Final = 10**14
#: Interfaces on interfaces: the kernel allows no more than 8.
_DEEPEST: Final = 8
_OTHERWISE: Final = "say it with --bandwidth 10G, or name another one with --interface"


class Speed(Struct, frozen=True):
    """An interface, and the bits/s it carries."""

    interface: str
    bits: int


def parse_bandwidth(text: str) -> int | Problem:
    """Bits/s of a quantity such as ``10G``: at least one."""
    try:
        bits = bits_per_second(text, "down")
    except QuantityError as error:
        return Problem(error.message, f"{error.remedy}, such as 10G or 400M", reason="InvalidBandwidth")
    if not 0 < bits <= _MOST:
        remedy = "give bits per second, such as 10G or 400M"
        return Problem(f"{text} is not a bandwidth", remedy, reason="InvalidBandwidth")
    return bits


def speed_of(interface: str | None, root: Path = Path("/")) -> Speed | Problem:
    """What ``interface`` carries, or the one of the default route; ``root`` holds proc and sys."""
    name = interface or default_interface(root)
    if name is None:
        return _unknown("this node has no default route")
    folder = root / "sys" / "class" / "net" / name
    if "/" in name or not folder.exists():
        return _unknown(f"there is no interface {name}")
    megabits = _megabits(folder)
    if megabits is None:
        return _unknown(f"{name} is virtual, and what it says of its speed is made up")
    if not 0 < megabits * _MEGABIT <= _MOST:
        return _unknown(f"the kernel does not know the speed of {name}")
    return Speed(name, megabits * _MEGABIT)


def _unknown(message: str) -> Problem:
    return Problem(message, _OTHERWISE, reason="UnknownBandwidth")


def _megabits(folder: Path, depth: int = 0) -> int | None:
    """What an interface says, -1 where that is nothing; None if no cable is anywhere below it."""
    if (folder / "device").exists():
        return _told(folder)
    if depth == _DEEPEST:
        return None
    lower = [folder.parent / one.name.removeprefix("lower_") for one in folder.glob("lower_*")]
    found = [megabits for one in lower if (megabits := _megabits(one, depth + 1)) is not None]
    if not found:
        return None
    # For the kernel a bridge is as fast as its fastest port, and a pod's end claims 10 Gbit/s; what is on
    # the bridge claims so too. A bond carries what its cables do together, or less.
    if (folder / "bridge").exists():
        return max(found)
    return min(_told(folder), sum(one for one in found if one > 0))


def _told(folder: Path) -> int:
    try:
        return int((folder / "speed").read_text())
    except (OSError, ValueError):
        return -1


def default_interface(root: Path = Path("/")) -> str | None:
    """The interface of the default route with the lowest metric, IPv4's before IPv6's."""
    return _of_v4(root / "proc" / "net" / "route") or _of_v6(root / "proc" / "net" / "ipv6_route")


def _of_v4(path: Path) -> str | None:
    """Interface, destination, gateway, flags, two counts, metric, mask: hexadecimal but for the metric."""
    rows = [line.split() for line in _lines(path)[1:]]
    found = [(int(row[6]), row[0]) for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"]
    return min(found)[1] if found else None


def _of_v6(path: Path) -> str | None:
    """Destination, its length, source, its length, next hop, metric, two counts, flags, interface."""
    rows = [line.split() for line in _lines(path)]
    # Every host has a route of this kind that rejects what no other takes.
    found = [
        (int(row[5], 16), row[9])
        for row in rows
        if len(row) > 9 and row[0] == "0" * 32 and row[1] == "00" and row[9] != "lo"
    ]
    return min(found)[1] if found else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
