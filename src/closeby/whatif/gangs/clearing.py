"""Which pods would have to go so that equal pods find the room they lack: the least of them, by arithmetic.

Resources and host ports count. What else filters know is left to the trial that follows.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import conflict
from closeby.objects.natural import natural_key
from closeby.objects.ownership import is_pinned
from closeby.objects.pods import Pod
from closeby.whatif.jobs import job_of
from closeby.whatif.questions import Question
from closeby.whatif.rooms import Rooms
from closeby.whatif.weights import Weights

Counts = NDArray[np.int64]

#: Nodes of a domain that are looked at one by one: those where most is won for what goes.
NODES = 256
#: Choices of pods of a node that are looked at one by one, and steps of the search over nodes.
CHOICES = 1024
STEPS = 200_000


class Clearing(NamedTuple):
    """Pods that go, and how much they hold."""

    weight: int
    pods: tuple[Pod, ...]

    @property
    def size(self) -> tuple[int, int]:
        """By which the least is chosen."""
        return self.weight, len(self.pods)

    def and_also(self, other: "Clearing") -> "Clearing":
        """Both."""
        return Clearing(self.weight + other.weight, (*self.pods, *other.pods))


NOTHING = Clearing(0, ())


class Clearings:
    """What could be cleared for one item: all but what would stay."""

    def __init__(self, question: Question, rooms: Rooms, fits: Counts, empty: Counts) -> None:
        """``fits`` pods of the item find room by slot now, ``empty`` if all went that may."""
        cluster = question.trials.engine.cluster
        self._cluster, self._rooms, self._fits = cluster, rooms, fits
        self._gains = np.maximum(empty - fits, 0)
        #: What pods weigh.
        self.weights = Weights(cluster, rooms.least)
        self._ports = question.waiting[0].spec.host_ports
        self._per_pod = rooms.least
        own = {pod.uid for pod in (*question.waiting, *question.trials.engine.state.placed(question.key))}
        self.on: dict[int, list[Pod]] = {}
        for pod in question.trials.pods:
            slot = cluster.placement(pod.uid)
            if slot is not None and pod.uid not in own and not is_pinned(pod):
                self.on.setdefault(slot, []).append(pod)
        #: By slot: what all pods hold that may go.
        self._held = self.weights.by_slot(cluster.requested - rooms.stays)

    def nodes(self, domain: int, missing: int) -> list[int]:
        """Nodes of a domain on which something is won, those where least goes for it first."""
        slots = self._rooms.domains.slots(domain)
        slots = slots[self._gains[slots] > 0]
        gains = np.minimum(self._gains[slots], missing)
        names = [natural_key(self._cluster.names[slot] or "") for slot in slots.tolist()]
        ratios = (self._held[slots] / gains).tolist()
        order = sorted(range(len(names)), key=lambda index: (ratios[index], -int(gains[index]), names[index]))
        return [int(slots[index]) for index in order]

    def about(self, missing: Counts) -> NDArray[np.float64]:
        """By domain: what would go about, if nodes were cleared as a whole."""
        domains = self._rooms.domains
        slots = domains.tree.slot_at
        slots = slots[(self._gains[slots] > 0) & (domains.owners(slots) >= 0)]
        owners = domains.owners(slots)
        gains = np.minimum(self._gains[slots], np.maximum(missing[owners], 1))
        order = np.lexsort((self._held[slots] / gains, owners))
        slots, owners, gains = slots[order], owners[order], gains[order]
        before = np.cumsum(gains) - gains
        first = np.searchsorted(owners, owners)
        needed = before - before[first] < missing[owners] if len(slots) else np.zeros(0, dtype=np.bool_)
        found = np.zeros(len(missing))
        np.add.at(found, owners[needed], self._held[slots[needed]])
        return found

    def least(self, domain: int, missing: int) -> Clearing | None:
        """The least found without which as many more pods fit in a domain; None if none are found."""
        options = [self._options(slot, missing) for slot in self.nodes(domain, missing)[:NODES]]
        if len(options) * missing * max(map(len, options), default=0) > STEPS:
            return _greedy(options, missing)
        best: list[Clearing | None] = [NOTHING, *[None] * missing]
        for of_node in options:
            for number in range(missing, 0, -1):
                for gain, one in enumerate(of_node, start=1):
                    before = best[max(number - gain, 0)]
                    both = None if before is None else before.and_also(one)
                    now = best[number]
                    if both is not None and (now is None or both.size < now.size):
                        best[number] = both
        return best[missing]

    def _options(self, slot: int, missing: int) -> list[Clearing]:
        """The least that goes of a node to win one pod, two pods and so on."""
        most = min(int(self._gains[slot]), missing)
        base = int(self._fits[slot])
        found: list[Clearing | None] = [None] * most
        for gone in self._choices(slot):
            won = min(self._room(slot, gone) - base, most)
            one = Clearing(sum(map(self.weights.of, gone)), tuple(gone))
            for gain in range(won):
                other = found[gain]
                if other is None or one.size < other.size:
                    found[gain] = one
        return [one for one in found if one is not None]

    def _choices(self, slot: int) -> Iterator[list[Pod]]:
        """Pods of a node that may go together: all choices of how many of equal ones, if these are few."""
        equal: dict[tuple[object, ...], list[Pod]] = {}
        for pod in sorted(self.on.get(slot, ()), key=lambda one: (job_of(one), natural_key(one.name))):
            demand = self._cluster.demand(pod.spec)
            equal.setdefault((demand.rows, demand.amounts, demand.host_ports), []).append(pod)
        kinds = list(equal.values())
        if prod(len(one) + 1 for one in kinds) <= CHOICES:
            for counts in product(*(range(len(one) + 1) for one in kinds)):
                yield [pod for kind, count in zip(kinds, counts, strict=True) for pod in kind[:count]]
            return
        left = sorted((pod for kind in kinds for pod in kind), key=self.weights.of)
        while left:
            yield list(left)
            left.pop()
        # And one alone.
        yield from ([kind[0]] for kind in kinds)

    def _room(self, slot: int, gone: Sequence[Pod]) -> int:
        """How many pods a node would hold without these."""
        uids = {pod.uid for pod in gone}
        if any(
            conflict(one, other)
            for pod in self.on.get(slot, ())
            if pod.uid not in uids
            for one in pod.spec.host_ports
            for other in self._ports
        ):
            return 0
        freed: dict[int, int] = {}
        for pod in gone:
            demand = self._cluster.demand(pod.spec)
            for row, amount in zip(demand.rows, demand.amounts, strict=True):
                freed[row] = freed.get(row, 0) + amount
        cluster = self._cluster
        room = int(self._fits[slot] + self._gains[slot])
        for row, amount in self._per_pod.items():
            left = int(cluster.allocatable[row, slot] - cluster.requested[row, slot]) + freed.get(row, 0)
            room = min(room, max(left, 0) // amount)
        return room


def _greedy(options: Sequence[Sequence[Clearing]], missing: int) -> Clearing | None:
    """Node by node, all that is won there, the least for each pod first."""
    whole = [(one[-1].weight / len(one), -len(one), number) for number, one in enumerate(options) if one]
    found = NOTHING
    for _, _, number in sorted(whole):
        of_node = options[number]
        found = found.and_also(of_node[min(len(of_node), missing) - 1])
        missing -= len(of_node)
        if missing <= 0:
            return found
    return None
