"""Kubernetes quantities (``1500m``, ``2Gi``, ``1e3``) as exact whole numbers; no float is ever involved.

Amounts are counted in a resource's unit: thousandths for cpu, one for everything else (bytes, devices, pods,
bits per second). Source of the grammar: Kubernetes' ``resource.Quantity``. Spans of time are floats.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal

from closeby.errors import QuantityError
from closeby.objects.bounds import quoted

Rounding = Literal["up", "down"]

#: What a document may hold where a quantity is expected.
QuantityText = str | int | float

INT64_MAX: Final = 2**63 - 1

#: The most that one object may have or ask for: of so much a thousand can be added up in 64 bits.
LARGEST_AMOUNT: Final = 2**53 - 1

#: Parts of one in which sums are formed; Kubernetes rounds finer quantities up to this grain.
NANO: Final = 10**9

_MAX_LENGTH: Final = 100
_MAX_EXPONENT: Final = 400
_PATTERN: Final = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([A-Za-z]*)(?:(?<=[eE])([+-]?\d+))?", re.ASCII)
#: Suffix to (base, exponent).
_SUFFIXES: Final = {
    "": (10, 0),
    "n": (10, -9),
    "u": (10, -6),
    "m": (10, -3),
    "k": (10, 3),
    "M": (10, 6),
    "G": (10, 9),
    "T": (10, 12),
    "P": (10, 15),
    "E": (10, 18),
    "Ki": (2, 10),
    "Mi": (2, 20),
    "Gi": (2, 30),
    "Ti": (2, 40),
    "Pi": (2, 50),
    "Ei": (2, 60),
}
_BINARY_UNITS: Final = tuple((suffix, 2**power) for suffix, (base, power) in _SUFFIXES.items() if base == 2)
#: Resources that people read in bytes.
_BYTE_RESOURCES: Final = ("memory", "storage", "ephemeral-storage")


@lru_cache(maxsize=65536)
def amount(resource: str, value: QuantityText, rounding: Rounding) -> int:
    """The quantity in the resource's unit; what falls between is rounded up (requests) or down (allocatable).

    Raises:
        QuantityError: ``value`` is not a quantity, or its amount does not fit 64 bits.
    """
    return _in_parts(value, 1000 if resource == "cpu" else 1, rounding)


@lru_cache(maxsize=65536)
def nanos(value: QuantityText) -> int:
    """The quantity in billionths, rounded up, for sums that are rounded once at their end.

    Raises:
        QuantityError: as ``amount``.
    """
    return _in_parts(value, NANO, "up", limit=INT64_MAX * NANO)


def amount_of_nanos(resource: str, total: int) -> int:
    """A sum of ``nanos`` in the resource's unit, rounded up.

    Raises:
        QuantityError: the sum is beyond ``LARGEST_AMOUNT``.
    """
    result = -(-total * (1000 if resource == "cpu" else 1) // NANO)
    if abs(result) > LARGEST_AMOUNT:
        most = format_amount(resource, LARGEST_AMOUNT)
        raise QuantityError(f"the sum of {resource} is too large", f"ask for at most {most}")
    return result


def format_amount(resource: str, value: int) -> str:
    """An amount for people: ``1500m`` of cpu, ``2Gi`` of memory, plain numbers of anything else.

    Bytes that are no whole number of a binary unit are shown with at most two decimals, so this is for
    reading and not for parsing back.
    """
    if resource == "cpu":
        return f"{value // 1000}" if value % 1000 == 0 else f"{value}m"
    if resource not in _BYTE_RESOURCES and not resource.startswith("hugepages-"):
        return f"{value}"
    for suffix, size in reversed(_BINARY_UNITS):
        if abs(value) >= size:
            hundredths = (abs(value) * 200 + size) // (2 * size)
            text = f"{hundredths // 100}.{hundredths % 100:02d}".rstrip("0").rstrip(".")
            return f"{'-' if value < 0 else ''}{text}{suffix}"
    return f"{value}"


def _in_parts(value: QuantityText, parts: int, rounding: Rounding, limit: int = INT64_MAX) -> int:
    """``value x parts`` as a whole number."""
    numerator, denominator = _ratio(value)
    numerator *= parts
    result = -(-numerator // denominator) if rounding == "up" else numerator // denominator
    if abs(result) > limit:
        raise QuantityError(f"{quoted(value)} is too large a quantity", "give one that fits 64 bits")
    return result


def _ratio(value: QuantityText) -> tuple[int, int]:
    """The exact value as numerator and denominator (positive, not reduced)."""
    text = value if isinstance(value, str) else repr(value)
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise _not_a_quantity(value)
    sign, whole, fraction, suffix, exponent = match.groups()
    fraction = fraction or ""
    if not whole and not fraction:
        raise _not_a_quantity(value)
    if exponent is not None:
        if suffix not in ("e", "E"):
            raise _not_a_quantity(value)
        base, power = 10, int(exponent)
    elif suffix in _SUFFIXES:
        base, power = _SUFFIXES[suffix]
    else:
        raise _unknown_suffix(value, suffix)
    digits = int(whole + fraction)
    if abs(power) > _MAX_EXPONENT and digits:
        raise QuantityError(
            f"{quoted(value)} is out of range for a quantity", f"use an exponent of at most {_MAX_EXPONENT}"
        )
    if not digits:
        return 0, 1
    numerator, denominator = -digits if sign == "-" else digits, 10 ** len(fraction)
    if power >= 0:
        return numerator * base**power, denominator
    return numerator, denominator * base**-power


def _not_a_quantity(value: QuantityText) -> QuantityError:
    shown = repr(value) if len(repr(value)) <= 40 else repr(value)[:37] + "..."
    return QuantityError(f"{shown} is not a quantity", "write a number such as 2, 500m or 2Gi")


def _unknown_suffix(value: QuantityText, suffix: str) -> QuantityError:
    """Names the suffix that was probably meant."""
    letter = suffix[:1].upper()
    guesses = [known for known in _SUFFIXES if known and known[0].upper() == letter]
    if letter == "M":
        guesses.remove("m")
    remedy = f"did you mean {' or '.join(guesses)}?" if guesses else "use m, k, M, G, T or Ki, Mi, Gi, Ti"
    return QuantityError(f"{quoted(value)} has an unknown suffix {quoted(suffix)}", remedy)


_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|us|µs|ns|m|s)")

#: The first and the last second of dates. A time zone can take what is written beyond them.
_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()

#: Characters of a span of time; what a tenant wrote may be far longer.
_LONGEST: Final = 128


def utc(seconds: float, precision: Literal["seconds", "milliseconds", "microseconds"] = "seconds") -> str:
    """Such as ``2026-11-21T20:10:00Z``, of seconds since the epoch; MicroTime has ``microseconds``.

    Of a moment before the first date, or after the last, that date.
    """
    text = datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC).isoformat(timespec=precision)
    return text.replace("+00:00", "Z")


def time_of_day(seconds: float) -> str:
    """Such as ``20:10:00Z``."""
    return utc(seconds).partition("T")[2]


def parse_duration(text: str) -> float | None:
    """Seconds; None when this is not a span of time, or a negative one."""
    if text == "0":
        return 0.0
    if len(text) > _LONGEST:
        return None
    total, end = 0.0, 0
    while part := _PART.match(text, end):
        total += float(part[1]) * _UNITS[part[2]]
        end = part.end()
    return total if text and end == len(text) else None
