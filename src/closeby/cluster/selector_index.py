"""Finds which selectors may select an object by the labels that they require, without asking all of them."""

from collections.abc import Mapping
from operator import itemgetter
from typing import Generic, TypeVar

from closeby.objects.selectors import LabelSelector

_Item = TypeVar("_Item")

Label = tuple[str, str]


def required_labels(selector: LabelSelector | None) -> tuple[Label, ...] | None:
    """Labels of which every selected object has one; None: it may have any. Nil selects nothing."""
    if selector is None:
        return ()
    ways = [one for one in selector.requirements if one.operator == "In"]
    if not ways:
        return None
    fewest = min(ways, key=lambda one: len(one.values))
    return tuple((fewest.key, value) for value in dict.fromkeys(fewest.values))


class SelectorIndex(Generic[_Item]):
    """Items that have a selector each."""

    def __init__(self) -> None:
        self._added = 0
        #: With the place of each item in the order in which they were added.
        self._by_label: dict[Label, list[tuple[int, _Item]]] = {}
        self._any: list[tuple[int, _Item]] = []

    def add(self, selector: LabelSelector | None, item: _Item) -> None:
        """One more item, after all others."""
        self._added += 1
        labels = required_labels(selector)
        if labels is None:
            self._any.append((self._added, item))
        for label in labels or ():
            self._by_label.setdefault(label, []).append((self._added, item))

    def candidates(self, labels: Mapping[str, str]) -> list[_Item]:
        """Those whose selector may select an object with these labels, in the order of adding."""
        found = list(self._any)
        for label in labels.items():
            found += self._by_label.get(label, ())
        return [item for _, item in sorted(found, key=itemgetter(0))]

    def clear(self) -> None:
        """Forget all items."""
        self._by_label.clear()
        self._any.clear()
