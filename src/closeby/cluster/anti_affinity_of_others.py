"""Whose required anti-affinity keeps pods of a class off, where many different terms do: counted together.

A term that comes or goes is written down once, and each class that is asked about reads what is new to it. So
a pod with many terms costs nothing for all the classes that wait.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from closeby.cluster.tallies import CarriedTerm, LabelClass, Tally, TermCounts
from closeby.objects.arrays import Bools, Ints
from closeby.objects.selectors import PodAffinityTerm
from closeby.topology.labels import LabelTable

#: Changes that are remembered; who has read less counts again.
MOST: Final = 1 << 14
#: To count again costs as much as reading a change for each so many terms.
_TERMS_PER_CHANGE: Final = 4

_Kind = TypeVar("_Kind")


class PlacedChanges(Generic[_Kind]):
    """What pods of some kinds did lately: they came (1) to a slot or some slots, or left (-1)."""

    def __init__(self) -> None:
        self._kept: list[tuple[_Kind, int | Ints, int]] = []
        self._dropped = 0

    @property
    def end(self) -> int:
        """How many there were so far."""
        return self._dropped + len(self._kept)

    def add(self, change: tuple[_Kind, int | Ints, int]) -> None:
        """One more."""
        if len(self._kept) >= MOST:
            self._dropped += len(self._kept)
            self._kept.clear()
        self._kept.append(change)

    def since(self, place: int) -> Sequence[tuple[_Kind, int | Ints, int]] | None:
        """Those after the first ``place``; None if they are not remembered any more."""
        return None if place < self._dropped else self._kept[place - self._dropped :]


class AntiAffinityOfOthers(Tally):
    """Where the placed pods are that have a required anti-affinity, of one topology key, to pods of a class.

    A pod counts once for each such term that it has.
    """

    __slots__ = ("_changes", "_class", "_key", "_place", "_seen", "_selects")

    def __init__(
        self,
        labels: LabelTable,
        found: LabelClass,
        key: str,
        changes: PlacedChanges[CarriedTerm],
        selects: Callable[[PodAffinityTerm, LabelClass], bool],
    ) -> None:
        super().__init__(labels)
        self._class = found
        self._key = key
        self._changes = changes
        self._selects = selects
        #: How many terms of the class, and how many changes, are known.
        self._seen = 0
        self._place = changes.end

    def domains(
        self, structure: object, key: str | None, which: object = None, eligible: Bools | None = None
    ) -> TermCounts:
        self._catch_up(structure)
        return super().domains(structure, key, which, eligible)

    def _catch_up(self, structure: object) -> None:
        carried = self._class.carried
        for one in carried[self._seen :]:
            if one.term.topology_key == self._key:
                self.where += one.where
                self.sources.append(one.term)
        self._seen = len(carried)
        if self._place == self._changes.end:
            return
        changes = self._changes.since(self._place)
        self._place = self._changes.end
        if changes is None or len(changes) * _TERMS_PER_CHANGE > len(self.where):
            self.stale()
            return
        for one, at, sign in changes:
            if one.term.topology_key != self._key or not self._selects(one.term, self._class):
                continue
            if isinstance(at, int):
                self.note(at, sign, structure)
            else:
                self.note_all(at, sign, structure)
