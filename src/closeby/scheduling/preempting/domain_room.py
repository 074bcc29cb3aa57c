"""The room of one domain while victims go and come back: what fits of what is wanted."""

from collections.abc import Callable, Mapping, Sequence

from closeby.scheduling.preempting.units import Amounts, VictimUnit


class DomainRoom:
    """The room of one domain: for each kind of pods, what fits, and what is wanted."""

    def __init__(
        self,
        wanted: Sequence[int],
        have: Sequence[int],
        asks: Sequence[Amounts],
        free: Mapping[int, Amounts],
        usable: Callable[[int, int], bool],
    ) -> None:
        """``have`` fits without victims. ``free`` (by slot) is needed of shared nodes.

        ``usable`` says of a kind and a slot whether such pods may go there.
        """
        self.wanted = tuple(wanted)
        self._have = list(have)
        self._asks = asks
        self._free = {slot: list(amounts) for slot, amounts in free.items()}
        self._usable = {
            (kind, slot): usable(kind, slot) for slot in self._free for kind in range(len(self.wanted))
        }

    def lacks(self, more: Sequence[int] = ()) -> list[int]:
        """What is missing of each kind, with so many more."""
        extra = more or [0] * len(self.wanted)
        return [want - have - one for want, have, one in zip(self.wanted, self._have, extra, strict=True)]

    @property
    def enough(self) -> bool:
        """Whether all that is wanted fits."""
        return all(want <= have for want, have in zip(self.wanted, self._have, strict=True))

    def free(self, unit: VictimUnit, sign: int = 1) -> None:
        """A unit goes; with -1 it is back."""
        have = self._have
        for kind, gain in enumerate(unit.gains):
            have[kind] += sign * gain
        for slot, amounts in unit.shared:
            left = self._free[slot]
            before = [self._room(kind, slot, left) for kind in range(len(have))]
            for row, amount in enumerate(amounts):
                left[row] += sign * amount
            for kind, room in enumerate(before):
                have[kind] += self._room(kind, slot, left) - room

    def _room(self, kind: int, slot: int, left: Sequence[int]) -> int:
        if not self._usable[kind, slot]:
            return 0
        return max(min([free // ask for free, ask in zip(left, self._asks[kind], strict=True) if ask]), 0)
