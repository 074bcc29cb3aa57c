"""What was measured for NetworkTopologies, in bounded memory for all of them together.

Users who may write NetworkTopologies decide how many there are. Where their latencies are too many,
namespaces that are not the operator's lose some before the operator's do. Among them the namespace that has
most does, the largest first; the others keep theirs.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from closeby.controllers.networks.settings import NetworkSettings
from closeby.controllers.networks.status import Failure, Measurement
from closeby.controllers.statuses import Key, namespace_of

#: Bytes of all latencies: 2 million, as between 1,400 nodes in all directions.
MOST: Final = 32 * 1024 * 1024
#: Reason in ``LatenciesMeasured`` of those that are let go.
TOO_MANY: Final = "TooManyLatencies"


class MeasuredCosts(Struct, frozen=True):
    """What was measured for one object."""

    uid: str
    settings: NetworkSettings
    measurement: Measurement
    #: When it is to be measured again, by the clock that never goes back.
    due: float

    @property
    def size(self) -> int:
        """Bytes of latencies."""
        latencies = self.measurement.latencies
        return 0 if latencies is None else latencies.links.size


class Memory:
    """By object."""

    def __init__(
        self, most: int = MOST, is_operators: Callable[[str], bool] = lambda namespace: True
    ) -> None:
        """``most`` is in bytes; ``is_operators`` tells which namespaces lose theirs last."""
        self._most = most
        self._is_operators = is_operators
        self._kept: dict[Key, MeasuredCosts] = {}
        self._sizes: Counter[str] = Counter()

    def get(self, key: Key) -> MeasuredCosts | None:
        """What is known of one."""
        return self._kept.get(key)

    def keep(self, key: Key, measured: MeasuredCosts) -> list[Key]:
        """Remembers it; returns those whose latencies were let go, which may be this one."""
        self.forget(key)
        self._kept[key] = measured
        self._sizes[namespace_of(key)] += measured.size
        gone = []
        while self._sizes.total() > self._most:
            loser = max(
                (namespace for namespace, size in self._sizes.items() if size),
                key=lambda namespace: (not self._is_operators(namespace), self._sizes[namespace]),
            )
            theirs = [one for one in self._kept if namespace_of(one) == loser]
            largest = max(theirs, key=lambda one: self._kept[one].size)
            self._let_go(largest)
            gone.append(largest)
        return gone

    def forget(self, key: Key) -> None:
        """The object is gone, or is measured again."""
        found = self._kept.pop(key, None)
        if found is not None:
            namespace = namespace_of(key)
            self._sizes[namespace] -= found.size
            if not self._sizes[namespace]:
                del self._sizes[namespace]

    def _let_go(self, key: Key) -> None:
        before = self._kept[key]
        why = (
            f"the latencies of all NetworkTopologies take more than {self._most // (1024 * 1024)} MiB, "
            "and those of the operator's namespaces, then of namespaces with fewer, are kept; ask for fewer"
        )
        nothing = Measurement(failure=Failure(TOO_MANY, why))
        self.forget(key)
        self._kept[key] = MeasuredCosts(before.uid, before.settings, nothing, before.due)
