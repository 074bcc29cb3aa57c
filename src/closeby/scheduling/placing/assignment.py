"""Can groups of equal pods share out some domains? Exact for few, a cheap bound for many."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from enum import Enum

from closeby.scheduling.placing.budget import Budget

#: More groups than this are not judged exactly: the check goes one call deeper per group.
MANY_GROUPS = 128


class Feasibility(Enum):
    """What is known about a set of groups and the room of the domains."""

    #: The largest group first, each into the tightest domain that holds it, does it.
    EASY = "easy"
    FITS = "fits"
    HOPELESS = "hopeless"
    #: Too many combinations to tell.
    OPEN = "open"


def outlook(sizes: Sequence[int], rooms: Sequence[int], budget: Budget) -> Feasibility:
    """Whether every group (``sizes``) can go whole into one domain (``rooms``); domains may be shared."""
    wanted = sorted(sizes, reverse=True)
    room = sorted(value for value in rooms if value >= wanted[-1])
    if sum(wanted) > sum(room):
        return Feasibility.HOPELESS
    for count, size in enumerate(wanted, start=1):
        if wanted[count : count + 1] != [size] and sum(value // size for value in room) < count:
            return Feasibility.HOPELESS  # Even if the larger groups were only this large.
    if _each_into_the_tightest(wanted, room):
        return Feasibility.EASY
    if len(wanted) > MANY_GROUPS:
        return Feasibility.OPEN
    return _Exact(wanted, budget).solve(room)


def _each_into_the_tightest(wanted: Sequence[int], room: Sequence[int]) -> bool:
    left = list(room)
    for size in wanted:
        at = bisect_left(left, size)
        if at == len(left):
            return False
        insort(left, left.pop(at) - size)
    return True


class _Exact:
    """Depth-first search over the domains of one group after another; equal states are judged once."""

    def __init__(self, wanted: Sequence[int], budget: Budget) -> None:
        self._wanted = wanted
        self._hopeless: set[tuple[int, tuple[int, ...]]] = set()
        self._budget = budget
        self._gave_up = False

    def solve(self, room: Sequence[int]) -> Feasibility:
        if self._place(0, tuple(room)):
            return Feasibility.FITS
        return Feasibility.OPEN if self._gave_up else Feasibility.HOPELESS

    def _place(self, index: int, room: tuple[int, ...]) -> bool:
        if index == len(self._wanted):
            return True
        if (index, room) in self._hopeless or self._gave_up:
            return False
        if not self._budget.take_step():
            self._gave_up = True
            return False
        size = self._wanted[index]
        if size in room:
            # Filling a domain exactly is never worse than any other place.
            return self._remember(index, room, (size,))
        return self._remember(index, room, sorted({value for value in room if value > size}))

    def _remember(self, index: int, room: tuple[int, ...], choices: Sequence[int]) -> bool:
        smallest = self._wanted[-1]
        for choice in choices:
            at = room.index(choice)
            left = choice - self._wanted[index]
            rest = room[:at] + room[at + 1 :]
            after = tuple(sorted((*rest, left))) if left >= smallest else rest
            if self._place(index + 1, after):
                return True
        self._hopeless.add((index, room))
        return False
