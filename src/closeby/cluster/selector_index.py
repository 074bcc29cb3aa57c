"""Finds which selectors may select an object by the labels that they require, without asking all of them."""

from collections.abc import Iterable, Mapping
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
    """Items that have some selectors each."""

    def __init__(self) -> None:
        self._added = 0
        #: By the place of each item in the order in which they were added.
        self._by_label: dict[Label, dict[int, _Item]] = {}
        self._any: dict[int, _Item] = {}

    def add(self, selectors: Iterable[LabelSelector | None], item: _Item) -> None:
        """One more item, after all others: what any of its selectors selects concerns it."""
        self._added += 1
        for one in selectors:
            labels = required_labels(one)
            if labels is None:
                self._any[self._added] = item
            for label in labels or ():
                self._by_label.setdefault(label, {})[self._added] = item

    def candidates(self, labels: Mapping[str, str]) -> list[_Item]:
        """Those of which a selector may select an object with these labels, in the order of adding."""
        found = dict(self._any)
        for label in labels.items():
            found.update(self._by_label.get(label, {}))
        return [found[place] for place in sorted(found)]

    def clear(self) -> None:
        """Forget all items."""
        self._by_label.clear()
        self._any.clear()
