"""Latency, bandwidth and distance of a switch: reading, holding and writing them without rounding."""

import math
import re
from fractions import Fraction

from msgspec import Struct

from closeby.objects.bounds import quoted

#: Nanoseconds per unit of latency (Topograph label standard).
LATENCY_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
#: Bits per second per unit of bandwidth (Topograph label standard); decimal, as network speeds are.
BANDWIDTH_UNITS = {"Kbps": 10**3, "Mbps": 10**6, "Gbps": 10**9, "Tbps": 10**12}

# The limit keeps a hostile text from becoming an expensive number.
_MOST_CABLES = 10**6
_AMOUNT = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)([A-Za-z]+)")


class Quality(Struct, frozen=True, kw_only=True):
    """What is known about the links of one switch; None means unknown."""

    #: Nanoseconds.
    latency: int | None = None
    #: Bits per second.
    bandwidth: int | None = None
    #: Greater is farther; says how layers are ordered, not how many edges are between two nodes.
    distance: int | float | None = None
    #: Cables to the next coarser switches that are up.
    uplinks: int | None = None


#: A switch about which nothing was said.
UNKNOWN = Quality()


def parse_latency(value: object) -> int:
    """Nanoseconds of a text such as ``2us`` or ``1.5ms``.

    Raises ValueError when it is not a positive whole number of nanoseconds with a unit of ``LATENCY_UNITS``.
    """
    return _parse(value, LATENCY_UNITS, "latency", "2us", "nanoseconds")


def parse_bandwidth(value: object) -> int:
    """Bits per second of a text such as ``100Gbps`` or ``2.5Gbps``.

    Raises ValueError when it is not a positive whole number of bits per second with a unit of
    ``BANDWIDTH_UNITS``.
    """
    return _parse(value, BANDWIDTH_UNITS, "bandwidth", "100Gbps", "bits per second")


def parse_distance(value: object) -> int | float:
    """A distance as JSON gives it: a finite number above zero. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"distance {quoted(value)} is not a number")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"distance {quoted(value)} is not a finite number above zero")
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parse_count(value: object) -> int:
    """A whole number above zero. Raises ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST_CABLES:
        raise ValueError(f"{quoted(value)} is not a whole number of cables above zero")
    return value


def format_latency(nanoseconds: int) -> str:
    """The latency in the largest unit that it fills, exact: 1500 is ``1.5us``."""
    return _format(nanoseconds, LATENCY_UNITS)


def format_bandwidth(bits_per_second: int) -> str:
    """The bandwidth in the largest unit that it fills, exact: 2500000000 is ``2.5Gbps``."""
    return _format(bits_per_second, BANDWIDTH_UNITS)


def _parse(value: object, units: dict[str, int], what: str, example: str, whole: str) -> int:
    if not isinstance(value, str):
        raise ValueError(f'{what} {quoted(value)} is not text with a unit such as "{example}"')
    match = _AMOUNT.fullmatch(value)
    unit = match.group(2) if match else None
    if match is None or unit not in units:
        known = ", ".join(units)
        raise ValueError(f'{what} "{value}" is not a number followed by one of {known}, such as "{example}"')
    amount = Fraction(match.group(1)) * units[unit]
    if amount <= 0:
        raise ValueError(f'{what} "{value}" is not above zero')
    if amount.denominator != 1:
        raise ValueError(f'{what} "{value}" is not a whole number of {whole}')
    return int(amount)


def _format(amount: int, units: dict[str, int]) -> str:
    unit, scale = next(iter(units.items()))
    for name, size in units.items():
        if amount >= size:
            unit, scale = name, size
    whole, rest = divmod(amount, scale)
    # Each scale is a power of ten, so its zeros are the digits behind the point.
    digits = f"{rest:0{len(str(scale)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}{unit}" if digits else f"{whole}{unit}"
