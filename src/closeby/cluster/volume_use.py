"""Which claims the placed pods use, and what was chosen for claims that had no volume; undone exactly."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from closeby.cluster.claims import ChosenVolume

Outer = TypeVar("Outer", str, int)
Inner = TypeVar("Inner", str, int)


class VolumeUse:
    """What placed pods use."""

    def __init__(self) -> None:
        #: Key of a claim -> slots of the pods that use it, with their number.
        self._users: dict[str, dict[int, int]] = {}
        #: Slot -> keys of the claims that are used there, with the number of pods.
        self._at: dict[int, dict[str, int]] = {}
        #: Key of a claim without a volume -> what was chosen for it.
        self._chosen: dict[str, ChosenVolume] = {}
        #: Name of a volume -> key of the claim for which it was chosen.
        self._taken: dict[str, str] = {}

    def __contains__(self, key: str) -> bool:
        """Whether any placed pod uses a claim."""
        return key in self._users

    @property
    def any(self) -> bool:
        """Whether anything is in use."""
        return bool(self._at)

    def slots(self, key: str) -> tuple[int, ...]:
        """Where pods use a claim."""
        return tuple(self._users.get(key, ()))

    def at(self, slot: int) -> tuple[str, ...]:
        """Keys of the claims that pods use on a slot."""
        return tuple(self._at.get(slot, ()))

    @property
    def used_slots(self) -> tuple[int, ...]:
        """The slots of all pods with claims."""
        return tuple(self._at)

    @property
    def chosen(self) -> Mapping[str, ChosenVolume]:
        """What was chosen, by the claim's key."""
        return self._chosen

    @property
    def taken(self) -> Mapping[str, str]:
        """The claim for which a volume was chosen, by the volume's name."""
        return self._taken

    def is_taken(self, volume: str) -> bool:
        """Whether a volume was chosen for some claim."""
        return volume in self._taken

    def validate(self, used: Iterable[tuple[str, int]]) -> None:
        """Assert that it is the sum of these claims at slots."""
        users: dict[str, dict[int, int]] = {}
        at: dict[int, dict[str, int]] = {}
        for key, slot in used:
            _more(users, key, slot)
            _more(at, slot, key)
        assert users == self._users and at == self._at, "claims in use are not those of the pods"
        taken = {one.volume: key for key, one in self._chosen.items() if one.volume is not None}
        assert taken == self._taken, "a volume is chosen for two claims"
        assert self._chosen.keys() <= users.keys(), "something is chosen for a claim without a pod"

    def add(self, key: str, slot: int) -> None:
        """A pod on a slot uses a claim."""
        _more(self._users, key, slot)
        _more(self._at, slot, key)

    def remove(self, key: str, slot: int) -> None:
        """It does not any more."""
        _less(self._users, key, slot)
        _less(self._at, slot, key)

    def choose(self, one: ChosenVolume) -> None:
        """This is what the claim gets."""
        self._chosen[one.claim] = one
        if one.volume is not None:
            self._taken[one.volume] = one.claim

    def give_back(self, key: str) -> ChosenVolume | None:
        """The claim gets nothing any more; returns what had been chosen for it."""
        one = self._chosen.pop(key, None)
        if one is not None and one.volume is not None:
            self._taken.pop(one.volume, None)
        return one


def _more(index: dict[Outer, dict[Inner, int]], outer: Outer, inner: Inner) -> None:
    counts = index.setdefault(outer, {})
    counts[inner] = counts.get(inner, 0) + 1


def _less(index: dict[Outer, dict[Inner, int]], outer: Outer, inner: Inner) -> None:
    counts = index[outer]
    counts[inner] -= 1
    if not counts[inner]:
        del counts[inner]
        if not counts:
            del index[outer]
