"""Bounds on text: an object's author decides how long its values are, closeby how much of them it repeats.

A message is cut in bytes, at a whole character, and says how much is missing. A list names its first entries
and the number of the others. What can't be printed is escaped, so that no object writes lines of its own into
a log, or commands to the reader's terminal.
"""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

#: Bytes of one message about an object.
MESSAGE: Final = 1024
#: Characters of a value that a message quotes.
VALUE: Final = 100
#: Entries that a list in a message names.
ENTRIES: Final = 10
#: Digits of a whole number; Python reads no text of thousands of them, and nothing is counted by so many.
DIGITS: Final = 18
#: The longest name that Kubernetes knows: a label key with its prefix.
_NAME: Final = 317


def clipped(text: str, most: int = MESSAGE) -> str:
    """``text`` in at most ``most`` bytes of UTF-8; what was cut ends in ``… (and N more bytes)``."""
    if len(text) * 4 <= most:
        return text
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= most else _cut(encoded, len(encoded), most)


def line(text: str, most: int = MESSAGE) -> str:
    """``text`` as one printable line of at most ``most`` bytes; a line break is a space, the rest escaped."""
    if text.isprintable():
        return clipped(text, most)
    # No more is escaped than may be shown.
    plain = "".join(one if one.isprintable() else _escaped(one) for one in text[:most])
    if len(text) <= most:
        return clipped(plain, most)
    encoded = plain.encode()
    return _cut(encoded, len(encoded) + len(text[most:].encode(errors="replace")), most)


def whole_number(text: str) -> int | None:
    """The number that decimal digits write; None of any other text, and of more digits than a count has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= DIGITS else None


def is_header_token(text: str) -> bool:
    """Whether ``text`` can be a bearer token: printable ASCII without spaces.

    What breaks a header would be quoted in an error of the HTTP library, so it must not get that far.
    """
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def quoted(value: object) -> str:
    """As ``repr``, of a long text only the beginning."""
    if isinstance(value, str) and len(value) > VALUE:
        return f"{value[:VALUE]!r}… (and {len(value) - VALUE} more characters)"
    return clipped(repr(value), 4 * VALUE)


def shown(text: str) -> str:
    """A text that is not a name, without quotes; of a long one only the beginning."""
    if len(text) <= VALUE:
        return text
    return f"{text[:VALUE]}… (and {len(text) - VALUE} more characters)"


def some(names: Collection[str], most: int = ENTRIES, joint: str = ", ") -> str:
    """The first few names, and how many there are besides: ``a, b and 3 more``."""
    told = joint.join(clipped(one, _NAME) for one in islice(names, most))
    return told if len(names) <= most else f"{told} and {len(names) - most} more"


def sentences(found: Sequence[str], most_entries: int = ENTRIES, most: int = MESSAGE) -> str:
    """Several sentences as one message of at most ``most`` bytes, with the number of those left out."""
    told: list[str] = []
    size = 0
    # The number of those left out has its place in any case.
    room = most - len(f"; and {len(found)} more")
    for one in found[:most_entries]:
        size += len(one.encode(errors="replace")) + 2
        if told and size > room + 2:
            break
        told.append(clipped(one, room))
    left = len(found) - len(told)
    return "; ".join(told) + (f"; and {left} more" if left else "")


def _cut(encoded: bytes, size: int, most: int) -> str:
    """The beginning of ``encoded``, and how much of ``size`` bytes is missing, in ``most`` bytes."""
    # The number of missing bytes is never longer than that of all bytes; the ellipsis takes three.
    room = most - len(f" (and {size} more bytes)") - 3
    if room <= 0:
        return encoded[:most].decode(errors="ignore")
    kept = encoded[:room].decode(errors="ignore")
    return f"{kept}… (and {size - len(kept.encode())} more bytes)"


def _escaped(character: str) -> str:
    return " " if character in "\t\n\r" else character.encode("unicode_escape").decode()
