"""Slurm's host lists such as ``tux[0-3,07-12],login``: from text to names, within bounds, and back."""

import re
from collections.abc import Iterable
from itertools import product
from typing import Final

from closeby.errors import HostlistError
from closeby.objects.words import natural_key

#: Names that one list, or all lists of one file, may stand for.
MOST_NAMES: Final = 500_000
_LONGEST_NAME: Final = 253
_MOST_DIGITS: Final = 18
#: Lists with more brackets in one name are no names of hosts.
_MOST_BRACKETS: Final = 8

_ENTRY: Final = re.compile(r"((?:[^\[\],\s]|\[[^\[\]]*\])+)")
_RANGE: Final = re.compile(r"([0-9]+)-([0-9]+)")
_WORD: Final = re.compile(r"[^\[\],\s\"'#=]+")
_NUMBERED: Final = re.compile(r"(.*?)([0-9]+)", re.DOTALL)


class ExpansionLimit:
    """How many more names a file may stand for."""

    def __init__(self, names: int = MOST_NAMES) -> None:
        self.most = names
        self.left = names

    def take(self, names: int) -> None:
        """Raises HostlistError when there is no room for so many."""
        self.left -= names
        if self.left < 0:
            raise HostlistError(f"stands for more than {self.most:,} names")


def expand(text: str, room: ExpansionLimit | None = None) -> list[str]:
    """All names of a list, in its order; a number keeps the zeros of its range's first one (``[07-12]``).

    Nothing is made before it is known to be within bounds.

    Raises:
        HostlistError: the text is not a host list, or its names do not fit into ``room``.
    """
    room = room or ExpansionLimit()
    names: list[str] = []
    for entry in _entries(text):
        parts = re.split(r"\[([^\[\]]*)\]", entry)
        if len(parts) > 2 * _MOST_BRACKETS:
            raise HostlistError(f"has more than {_MOST_BRACKETS} brackets in one name")
        choices = [_choices(part, room.left) if index % 2 else [part] for index, part in enumerate(parts)]
        count = 1
        for one in choices:
            count *= len(one)
        if sum(max(map(len, one)) for one in choices) > _LONGEST_NAME:
            raise HostlistError(f"holds a name longer than {_LONGEST_NAME} characters")
        room.take(count)
        names.extend("".join(combination) for combination in product(*choices))
    return names


def compact(names: Iterable[str]) -> str:
    """A list that stands for exactly these names, in natural order: ``tux[0-3,07-12],login``.

    Raises:
        HostlistError: a name can't stand in a list.
    """
    numbered: dict[str, list[str]] = {}
    plain: list[str] = []
    for name in sorted(set(names), key=natural_key):
        if not writable(name):
            raise HostlistError(f"{name!r} can't stand in a host list")
        found = _NUMBERED.fullmatch(name)
        if found and len(found[2]) <= _MOST_DIGITS:
            numbered.setdefault(found[1], []).append(found[2])
        else:
            plain.append(name)
    entries = [
        f"{prefix}{digits[0]}" if len(digits) == 1 else f"{prefix}[{','.join(_ranges(digits))}]"
        for prefix, digits in numbered.items()
    ]
    return ",".join(sorted([*entries, *plain], key=natural_key))


def writable(name: str) -> bool:
    """Whether a name can stand in a host list as it is."""
    return len(name) <= _LONGEST_NAME and _WORD.fullmatch(name) is not None


def _entries(text: str) -> list[str]:
    """The entries between commas (or blanks) outside of brackets."""
    if "[" not in text and "]" not in text:
        return text.replace(",", " ").split()
    entries, end = [], 0
    for found in _ENTRY.finditer(text):
        _only_separators(text[end : found.start()])
        entries.append(found[0])
        end = found.end()
    _only_separators(text[end:])
    return entries


def _only_separators(between: str) -> None:
    if between.strip(", \t\r\n"):
        raise HostlistError("has a bracket without its partner")


def _choices(inside: str, most: int) -> list[str]:
    """What stands in one pair of brackets, ranges written out."""
    choices: list[str] = []
    for part in inside.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            if not _WORD.fullmatch(part) or (part[0] in "-0123456789" and "-" in part):
                raise HostlistError(f"has {part[:40]!r} in brackets, which is not a number, range or name")
            choices.append(part)
        else:
            low, high = found.groups()
            if len(low) > _MOST_DIGITS or len(high) > _MOST_DIGITS:
                raise HostlistError(f"has a number of more than {_MOST_DIGITS} digits")
            first, last = int(low), int(high)
            if last < first:
                raise HostlistError(f"has the range {part}, which ends before it begins")
            if last - first + 1 + len(choices) > most:
                raise HostlistError(f"stands for more than {MOST_NAMES:,} names")
            choices.extend(f"{number:0{len(low)}d}" for number in range(first, last + 1))
    return choices


def _ranges(digits: list[str]) -> list[str]:
    """Runs of numbers as ranges, such that a range gives back the very same digits."""
    ranges: list[str] = []
    start = end = digits[0]
    for number in digits[1:]:
        if f"{int(end) + 1:0{len(start)}d}" != number:
            ranges.append(start if start == end else f"{start}-{end}")
            start = number
        end = number
    ranges.append(start if start == end else f"{start}-{end}")
    return ranges
