"""How paths, counts and lists of names are written and sorted, so that every view says them alike."""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from closeby.objects.bounds import clipped

_DIGITS = re.compile(r"(\d+)")
#: What levels are whose labels clouds named, by their short names.
_LEVEL_NOUNS: Final = {
    **{f"gce-topology-{one}": one for one in ("block", "subblock", "host")},
    **{f"network-node-layer-{i}": one for i, one in enumerate(("core", "spine", "block"), 1)},
    "ultraserver-id": "UltraServer",
    "capacity-block-id": "capacity block",
    "gpu.clique": "GPU clique",
    "host.rack_id": "rack",
    "rdma.local_block_id": "local block",
    "rdma.network_block_id": "network block",
    "rdma.hpc_island_id": "HPC island",
    "nvlink.domain": "NVLink domain",
    "leafgroup": "leaf group",
}
#: Ranges of names that are written out.
_MOST_RANGES: Final = 4
#: Control characters but tab and newline, and those that turn the direction of writing.
_STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Names:
    """Names with their namespace, unless all of them are in one."""

    def __init__(self, namespaces: Collection[str]) -> None:
        self._told = len(namespaces) > 1

    def of(self, namespace: str, name: str) -> str:
        """``namespace/name`` or ``name``; of one that no object can have the beginning."""
        return clipped(f"{namespace}/{name}" if self._told else name)


def harmless(text: str) -> str:
    """Text of the input with characters that would steer a terminal written as ``\\x1b``."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def steers(text: str) -> bool:
    """Whether text of the input has characters that would steer a terminal."""
    return _STEERING.search(text) is not None


def harmless_json(text: str) -> str:
    """JSON with such characters in its strings written as ``\\u202e``."""
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def similar(word: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """The known name that was probably meant; None where none is as much ``alike`` (0 to 1)."""
    return next(iter(get_close_matches(word, list(known), n=1, cutoff=alike)), None)


def guess(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """The begin of a remedy, with the known name that was probably meant; empty where there is none."""
    close = similar(word, known, alike)
    return "" if close is None else f"did you mean {close}? If not, "


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of a remedy, with the known name that was probably meant; empty where there is none."""
    close = similar(word, known)
    return "" if close is None else f"; did you mean {close}?"


def not_known(word: str, known: Iterable[str], noun: str, listed: str | None = None) -> str:
    """``'sern' is not a known workload; known workloads: seren, kalos; did you mean seren?``.

    ``listed`` describes the known names.
    """
    names = list(known)
    called = f"{plural_noun(noun)}: {', '.join(names) if listed is None else listed}"
    return f"{word!r} is not a known {noun}; known {called}{suggestion(word, names)}"


def begun(text: str) -> str:
    """A sentence with its first letter in upper case; all others stay, as names of domains may have both."""
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``, ``3 switches``; of levels that a cloud names ``2 blocks``."""
    noun = _LEVEL_NOUNS.get(noun, noun)
    return f"{count:,} {noun if count == 1 else plural_noun(noun)}"


def plural_noun(noun: str) -> str:
    """``nodes``, ``switches``, ``leaves``, ``dependencies``; ``domains of tier-1``."""
    noun = _LEVEL_NOUNS.get(noun, noun)
    if noun[-1:].isdigit():
        return f"domains of {noun}"
    if noun.endswith("leaf"):
        return f"{noun[:-1]}ves"
    if noun.endswith("ncy"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def joined(parts: Sequence[str], most: int | None = None, noun: str = "") -> str:
    """``a``, ``a and b``, ``a, b and c``; of more parts than ``most`` ``a, b and 5 more`` or ``5 others``."""
    left = 0 if most is None else len(parts) - most
    if left > 0:
        parts = [*parts[:most], plural(left, noun) if noun else f"{left:,} more"]
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""


def all_pods(count: int) -> str:
    """``all 3 pods``, ``its pod``."""
    return f"all {count:,} pods" if count > 1 else "its pod"


def time_text(seconds: float) -> str:
    """A span of time in its two largest units, rounded: ``3 d 4 h``, ``2 min 5 s``, ``12 s``, ``0 s``."""
    if 0 < seconds < 1:
        return "< 1 s"
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    for index, (name, size) in enumerate(units):
        if seconds >= size and index + 1 < len(units):
            finer, step = units[index + 1]
            whole = round(seconds / step) * step
            rest = whole % size // step
            return f"{whole // size:,} {name}" + (f" {rest} {finer}" if rest else "")
    return f"{round(seconds)} s"


def path_text(path: Iterable[str | None]) -> str:
    """``zone-a/rack-1``; a missing label is a dash, and the path of the whole cluster is ``the cluster``."""
    return "/".join(value or "–" for value in path) or "the cluster"


def span_text(span: Mapping[str, int], below: str | None, outside: int = 0) -> str:
    """How many domains are used at the levels below one, or at all: ``2 racks, 10 nodes``.

    ``outside`` of the nodes are in no domain of any level.
    """
    names = list(span)
    parts = list(span.items())[names.index(below) + 1 if below in names else 0 :]
    nodes = parts[-1][1] if parts else 0
    parts = [one for one in parts if one[1] and not (one[1] == nodes and _LEVEL_NOUNS.get(one[0]) == "host")]
    said = [plural(count, "node" if name == "hostname" else name) for name, count in parts]
    if outside and said:
        where = "outside of the topology"
        said[-1] += f" {where}" if outside == nodes else f" ({outside:,} {where})"
    return ", ".join(said)


def counts_text(counts: Mapping[str, int]) -> str:
    """``3 InsufficientResources, 1 TaintNotTolerated``."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def names_text(names: Sequence[str]) -> str:
    """Names as ranges where only one number differs: ``worker-0..7``, ``job-0-0..3, job-1-0``."""
    ranges = _ranges(sorted(names, key=natural_key))
    if len(ranges) <= _MOST_RANGES:
        return ", ".join(ranges)
    left = len(names) - _MOST_RANGES + 1
    return (
        f"{', '.join(ranges[: _MOST_RANGES - 1])} and {left} more"
        if len(ranges) == len(names)
        else (f"{ranges[0]} … {ranges[-1]}")
    )


def range_starts(names: Iterable[str]) -> frozenset[int]:
    """Positions at which a range begins, of names in the order in which they are shown."""
    lengths = [len(run) for run in _runs(names)]
    return frozenset(accumulate(lengths[:-1], initial=0))


def _ranges(names: Sequence[str]) -> list[str]:
    return [_range(run) for run in _runs(names)]


def _runs(names: Iterable[str]) -> list[list[list[str]]]:
    runs: list[list[list[str]]] = []
    for tokens in (_DIGITS.split(name) for name in names):
        if runs and _continues(runs[-1], tokens):
            runs[-1].append(tokens)
        else:
            runs.append([tokens])
    return runs


def _continues(run: Sequence[Sequence[str]], tokens: Sequence[str]) -> bool:
    last = run[-1]
    differing = _differing(last, tokens)
    if len(differing) != 1 or differing[0] % 2 == 0:
        return False
    index = differing[0]
    if len(run) > 1 and _differing(run[0], last) != [index]:
        return False
    return int(tokens[index]) == int(last[index]) + 1


def _differing(one: Sequence[str], other: Sequence[str]) -> list[int]:
    if len(one) != len(other):
        return [-2, -2]
    return [index for index, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]


def _range(run: Sequence[Sequence[str]]) -> str:
    first, last = run[0], run[-1]
    if len(run) == 1:
        return "".join(first)
    index = _differing(first, last)[0]
    return "".join((*first[:index], f"{first[index]}..{last[index]}", *first[index + 1 :]))


def runs_of(values: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Neighbours with equal first parts as one entry with all second parts."""
    return [(key, [value for _, value in group]) for key, group in groupby(values, key=lambda pair: pair[0])]


NaturalKey = tuple[tuple[int, str], ...]

# Longer runs of digits are compared piece by piece; Python refuses to read endless ones as a number.
_READ_AT_ONCE = 100
_NUMBER = re.compile(rf"([0-9]{{1,{_READ_AT_ONCE}}})")
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
    parts = _NUMBER.split(text)
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
