"""How the live parts tell an operator what they do: one line a fact, with fields that tools can match on."""

from collections.abc import Hashable, Iterator
from typing import Final, Generic, Protocol, TypeVar

#: Things of which is remembered what was reported last; things that are gone are among them.
_REMEMBERED: Final = 10_000

Key = TypeVar("Key", bound=Hashable)


class Say(Protocol):
    """Writes one line."""

    def __call__(self, message: str, /, *, warning: bool = False, **fields: object) -> None:
        """``message`` is a stable phrase; what varies is in the fields; those that are None are left out."""


class Reported(Generic[Key]):
    """What was last reported of each thing, so that the same is reported once for as long as it lasts."""

    def __init__(self) -> None:
        self._last: dict[Key, Hashable] = {}

    def __iter__(self) -> Iterator[Key]:
        """All of which something that lasts was reported."""
        return iter(tuple(self._last))

    def __contains__(self, key: Key) -> bool:
        """Whether something that lasts was reported of it."""
        return key in self._last

    def changes(self, key: Key, what: Hashable) -> bool:
        """Notes what is so now; returns whether that is to be reported."""
        changed = key not in self._last or self._last[key] != what
        if key not in self._last and len(self._last) >= _REMEMBERED:
            self._last.clear()
        self._last[key] = what
        return changed

    def over(self, key: Key) -> bool:
        """Nothing is left to report; returns whether something was."""
        return self._last.pop(key, self) is not self
