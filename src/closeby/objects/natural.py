"""Natural order: texts with numbers read as numbers, and its ranks kept up as new texts arrive."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

NaturalKey = tuple[tuple[int, str], ...]

# Longer runs of digits are compared piece by piece; Python refuses to read endless ones as a number.
_READ_AT_ONCE = 100
_DIGITS = re.compile(rf"([0-9]{{1,{_READ_AT_ONCE}}})")
#: A word of hexadecimal digits, as the ids of clouds are: of eight at least, or of six that are not a number
#: behind or before letters, such as cafe12 and 12ab.
_HEXADECIMAL = re.compile(
    r"(?<![0-9A-Za-z])(?=[0-9]*[a-f])(?=[a-f]*[0-9])"
    r"(?:(?=[0-9a-f]{8})|(?=[0-9a-f]{6})(?=[0-9]+[a-f]+[0-9]|[a-f]+[0-9]+[a-f]))[0-9a-f]+(?![0-9A-Za-z])"
)
_LETTERS = tuple("abcdef")
#: More new texts than this at once are sorted afresh rather than inserted one by one.
INSERTED_AT_ONCE = 64


def natural_key(text: str) -> NaturalKey:
    """Sort key that reads digits as numbers, so that rack-2 comes before rack-10.

    Texts that differ have keys that differ, so that an order by it is total (rack-01 comes before rack-1).
    Hexadecimal ids are no numbers: nn-10e30ab9 comes before nn-9f02cd11, as all of them are of one length.
    """
    stem = text.rstrip("0123456789")
    digits = text[len(stem) :]
    if not 0 < len(digits) <= _READ_AT_ONCE or stem.endswith(_LETTERS):
        return (*_parts(text), (-1, text))
    # Most names end in a number and share what comes before it.
    return (*_stem_parts(stem), (int(digits), ""), (-1, ""), (-1, text))


@lru_cache(maxsize=4096)
def _stem_parts(stem: str) -> NaturalKey:
    return _parts(stem)


def _parts(text: str) -> NaturalKey:
    if (found := _HEXADECIMAL.search(text)) is not None:
        return (*_parts(text[: found.start()]), (-1, found[0]), *_parts(text[found.end() :]))
    parts = _DIGITS.split(text)
    return tuple((int(part), "") if index % 2 else (-1, part) for index, part in enumerate(parts))


class NaturalRanks:
    """Ranks of a list of distinct texts that only ever grows."""

    def __init__(self) -> None:
        self._sorted: list[NaturalKey] = []
        self._ranks: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def of(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Place of each text in natural order; shape (len(texts),). ``texts`` may only have grown since."""
        new = texts[len(self._ranks) :]
        if len(new) > INSERTED_AT_ONCE:
            keys = [natural_key(text) for text in texts]
            order = sorted(range(len(keys)), key=keys.__getitem__)
            self._sorted = [keys[index] for index in order]
            self._ranks = np.empty(len(keys), dtype=np.int64)
            self._ranks[np.asarray(order, dtype=np.intp)] = np.arange(len(keys))
            return self._ranks
        for text in new:
            key = natural_key(text)
            place = bisect_left(self._sorted, key)
            self._sorted.insert(place, key)
            self._ranks = np.append(self._ranks + (self._ranks >= place), place)
        return self._ranks
