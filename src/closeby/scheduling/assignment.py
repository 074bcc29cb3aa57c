"""Can groups of equal pods share out some domains? Exact for few, a cheap bound for many."""

from collections.abc import Sequence
from enum import Enum

#: Steps of the exact check; enough for 8 groups in 16 domains.
STEPS = 20_000


class Outlook(Enum):
    """What is known about a set of groups and the room of the domains."""

    FITS = "fits"
    HOPELESS = "hopeless"
    #: Too many combinations to tell.
    OPEN = "open"


def outlook(sizes: Sequence[int], rooms: Sequence[int]) -> Outlook:
    """Whether every group (``sizes``) can go whole into one domain (``rooms``); domains may be shared."""
    wanted = sorted(sizes, reverse=True)
    room = sorted((value for value in rooms if value >= wanted[-1]), reverse=True)
    if not room or wanted[0] > room[0] or sum(wanted) > sum(room):
        return Outlook.HOPELESS
    if wanted[0] == wanted[-1]:
        return Outlook.FITS if sum(value // wanted[0] for value in room) >= len(wanted) else Outlook.HOPELESS
    if _first_fit(wanted, room):
        return Outlook.FITS
    return _Exact(wanted).solve(room)


def _first_fit(wanted: Sequence[int], room: Sequence[int]) -> bool:
    left = list(room)
    for size in wanted:
        fitting = [index for index, value in enumerate(left) if value >= size]
        if not fitting:
            return False
        left[min(fitting, key=left.__getitem__)] -= size
    return True


class _Exact:
    """Depth-first search over the domains of one group after another; equal states are judged once."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self._wanted = wanted
        self._hopeless: set[tuple[int, tuple[int, ...]]] = set()
        self._steps = STEPS

    def solve(self, room: Sequence[int]) -> Outlook:
        if self._place(0, tuple(sorted(room))):
            return Outlook.FITS
        return Outlook.HOPELESS if self._steps > 0 else Outlook.OPEN

    def _place(self, index: int, room: tuple[int, ...]) -> bool:
        if index == len(self._wanted):
            return True
        if (index, room) in self._hopeless or self._steps <= 0:
            return False
        self._steps -= 1
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
