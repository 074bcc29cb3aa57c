"""Latencies between many pairs of nodes in little memory."""

from array import array
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

#: Bytes that a name takes besides its letters, about.
_NAME: Final = 100


class Latency(NamedTuple):
    """From one node to another; names as the probes give them."""

    origin: str
    destination: str
    microseconds: float


class Packer:
    """Gathers latencies, before they are ``Links``."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.pairs = array("I")
        self.values = array("d")

    def add(self, origin: str, destination: str, microseconds: float) -> None:
        """One more."""
        names = self.names
        one = names.setdefault(origin, len(names))
        other = names.setdefault(destination, len(names))
        self.pairs.extend((one, other))
        self.values.append(microseconds)


class Links:
    """One latency for each pair of names, the greatest of those that were given; it does not change."""

    def __init__(self, packed: Packer) -> None:
        self._names = tuple(packed.names)
        pairs = np.array(packed.pairs, dtype=np.uint32).reshape(-1, 2)
        keys = pairs[:, 0].astype(np.uint64) * np.uint64(len(self._names)) + pairs[:, 1]
        _, first, place = np.unique(keys, return_index=True, return_inverse=True)
        self._pairs = pairs[first]
        self._values = np.zeros(len(first))
        np.maximum.at(self._values, place, np.array(packed.values))

    @classmethod
    def of(cls, latencies: Iterable[Latency]) -> "Links":
        """Those of ``latencies``."""
        packer = Packer()
        for one in latencies:
            packer.add(*one)
        return cls(packer)

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        return self._pairs.nbytes + self._values.nbytes + sum(_NAME + len(one) for one in self._names)

    def __len__(self) -> int:
        """How many pairs."""
        return len(self._values)

    def __iter__(self) -> Iterator[Latency]:
        """In the order in which the names came."""
        names = self._names
        for (one, other), value in zip(self._pairs.tolist(), self._values.tolist(), strict=True):
            yield Latency(names[one], names[other], value)
