"""Collects what is wrong with one object, as conditions that name its fields."""

import msgspec

from closeby.objects.bounds import MESSAGE, clipped
from closeby.objects.reasons import Condition, few, invalid


class Findings:
    """The conditions of one object under construction, in the order in which they were found."""

    def __init__(self, owner: str) -> None:
        """``owner`` is ``Kind/namespace/name``, as conditions name it."""
        self._owner = owner
        self._found: dict[tuple[str, str], tuple[Condition, int]] = {}

    def add(
        self, field: str, message: str, remedy: str, *, blocking: bool = False, kind: str | None = None
    ) -> None:
        """Notes one thing. Of one ``kind`` the first is reported, with the number of the others: a list
        of a million entries may hold a million times the same slip.
        """
        key = (kind or field, "" if kind else message)
        found = self._found.get(key)
        if found is not None:
            self._found[key] = found[0], found[1] + 1
            return
        condition = invalid(self._owner, field, message, remedy, blocking=blocking)
        self._found[key] = condition, 1

    def conditions(self) -> tuple[Condition, ...]:
        """All that was found."""
        return few(_counted(one, count) for one, count in self._found.values())


def _counted(one: Condition, count: int) -> Condition:
    if count == 1:
        return one
    more = f" (and {count - 1} more like it)"
    return msgspec.structs.replace(one, message=f"{clipped(one.message, MESSAGE - len(more))}{more}")
