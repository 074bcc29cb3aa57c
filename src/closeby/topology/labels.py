"""Node labels as columns of small codes, so that a question about a label is one array operation."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.objects.labels import HOSTNAME
from closeby.objects.words import NaturalRanks
from closeby.topology.families import QOS_ANNOTATION

Codes = NDArray[np.int32]

#: Code of a node that does not carry the label.
MISSING = 0

#: A vocabulary with more values than this for each slot, and this many in all, is mostly of former nodes.
STALE_FACTOR = 4
STALE_FLOOR = 4096

#: Keys that no node carries and that were asked for, of which it is remembered.
MOST_MISSED = 1 << 16

#: Changes of labels that are remembered, so that trees can be followed.
REMEMBERED_CHANGES = 1 << 15


class LabelColumn:
    """The values of one label over all slots.

    ``codes[slot]`` is an index into ``values``; code 0 means that the node does not carry the label.
    """

    def __init__(self, key: str, capacity: int) -> None:
        self.key = key
        self.codes: Codes = np.zeros(capacity, dtype=np.int32)
        #: Value per code; the entry of code 0 is a placeholder and never a label's value.
        self.values: list[str | None] = [None]
        #: Nodes that carry the label.
        self.carried = 0
        self._code_of: dict[str, int] = {}
        self._texts: list[str] = []
        self._order = NaturalRanks()
        self._ranks: NDArray[np.int64] | None = None

    def code_for(self, value: str) -> int:
        """Code of a value, a new one if it was never seen."""
        code = self._code_of.get(value)
        if code is None:
            code = len(self.values)
            self._code_of[value] = code
            self.values.append(value)
            self._texts.append(value)
        return code

    def code(self, value: str) -> int | None:
        """Code of a value, None if no node ever had it."""
        return self._code_of.get(value)

    def set(self, slot: int, value: str | None) -> bool:
        """Write one slot; True when that changed it."""
        code = MISSING if value is None else self.code_for(value)
        before = self.codes.item(slot)
        if code == before:
            return False
        self.carried += (code != MISSING) - (before != MISSING)
        self.codes[slot] = code
        return True

    def grow(self, capacity: int) -> None:
        self.codes = np.concatenate([self.codes, np.zeros(capacity - len(self.codes), dtype=np.int32)])

    def ranks(self) -> NDArray[np.int64]:
        """Place of each code's value in natural order, by code; shape (len(values),)."""
        if self._ranks is None or len(self._ranks) != len(self.values):
            ranks = self._order.of(self._texts)
            self._ranks = np.concatenate(([0], ranks))
        return self._ranks

    def matching(self, predicate: Callable[[str | None], bool]) -> NDArray[np.bool_]:
        """Which codes satisfy ``predicate`` (it gets None for a missing label); shape (len(values),)."""
        return np.fromiter(
            (predicate(value) for value in self.values), dtype=np.bool_, count=len(self.values)
        )


class LabelTable:
    """All labels of all slots; a column is built on the first request for its key."""

    def __init__(self) -> None:
        #: Per slot; None where no node is.
        self._labels: list[Mapping[str, str] | None] = []
        self._columns: dict[str, LabelColumn] = {}
        #: How many nodes carry each label, and the column of all that none carries, of which pods may ask for
        #: many. Some of those that were asked for; whether there were more.
        self._carriers: Counter[str] = Counter()
        self._nowhere = LabelColumn("", 0)
        self._missed: set[str] = set()
        self._missed_more = False
        #: Codes of node names; ``codes`` by slot is not kept.
        self.names = LabelColumn("metadata.name", 0)
        #: What each node says of its switches: the texts of its QoS annotation.
        self.quality = LabelColumn(QOS_ANNOTATION, 0)
        #: Grows whenever a label of a known column changes, a slot is filled, or one gets a label that was
        #: asked for when no node had it: trees built before are stale.
        self.version = 0
        #: Slots whose labels changed; ``~slot`` where a node came or left.
        self._changes: list[int] = []
        self._first_change = 0

    @property
    def size(self) -> int:
        return len(self._labels)

    def set(self, slot: int, labels: Mapping[str, str], quality: str | None = None) -> None:
        """Write the labels, and the text of the QoS annotation, of a slot that holds a node."""
        if slot >= len(self._labels):
            self._grow(slot + 1)
        before = self._labels[slot]
        fresh = before is None
        self._labels[slot] = labels
        missed = self._count(before or {}, labels)
        changed = [column.set(slot, labels.get(key)) for key, column in self._columns.items()]
        changed.append(self.quality.set(slot, quality))
        if fresh or missed or any(changed):
            self.version += 1
            self._note(~slot if fresh else slot)

    def clear(self, slot: int) -> None:
        """Forget a slot's labels. Trees stay valid: a slot without a node has no capacity.

        A tree of a column that is dropped does not, since changes of that column would not be seen any more.
        """
        self._count(self._labels[slot] or {}, {})
        self._labels[slot] = None
        self._note(~slot)
        for column in (*self._columns.values(), self.quality):
            column.set(slot, None)
        # Values of former nodes stay in a vocabulary; one that holds little else is rebuilt when asked for.
        stale = STALE_FACTOR * len(self._labels) + STALE_FLOOR
        kept = {key: column for key, column in self._columns.items() if len(column.values) < stale}
        if len(kept) < len(self._columns):
            self._columns = kept
            self._note_all()
        if len(self.names.values) >= stale:
            self.names = LabelColumn("metadata.name", 0)
            self._note_all()
        if len(self.quality.values) >= stale:
            self._renew_quality()

    @property
    def cursor(self) -> int:
        """Position after the newest change, for ``changed_since``."""
        return self._first_change + len(self._changes)

    def column(self, key: str) -> LabelColumn:
        """The column of one label key; labels that no node carries share one."""
        column = self._columns.get(key)
        if column is None and key != HOSTNAME and not self._carriers[key]:
            size = max(len(self._labels), 1)
            if len(self._missed) < MOST_MISSED:
                self._missed.add(key)
            elif key not in self._missed:
                self._missed_more = True
            if len(self._nowhere.codes) < size:
                self._nowhere.grow(max(size, 2 * len(self._nowhere.codes)))
            return self._nowhere
        if column is None:
            column = LabelColumn(key, max(len(self._labels), 1))
            for slot, labels in enumerate(self._labels):
                if labels is not None and key in labels:
                    column.set(slot, labels[key])
            self._columns[key] = column
        return column

    def name_codes(self, names: Sequence[str]) -> Codes:
        """Codes of node names; the ranks by code are not dense, as names of former nodes count too."""
        return np.fromiter(map(self.names.code_for, names), dtype=np.int32, count=len(names))

    def changed_since(self, cursor: int) -> dict[int, bool] | None:
        """Slots whose labels changed; True where another node may be there now. None: too long ago."""
        if cursor < self._first_change:
            return None
        changed: dict[int, bool] = {}
        for entry in self._changes[cursor - self._first_change :]:
            slot = entry if entry >= 0 else ~entry
            changed[slot] = entry < 0 or changed.get(slot, False)
        return changed

    def labels(self, slot: int) -> Mapping[str, str]:
        return self._labels[slot] or {}

    def _count(self, before: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Count labels of a slot instead of those before; whether one was asked for that none carried."""
        missed = False
        for key in labels:
            if key not in before:
                missed |= key in self._missed or (self._missed_more and not self._carriers[key])
                self._missed.discard(key)
                self._carriers[key] += 1
        for key in before:
            if key not in labels:
                self._carriers[key] -= 1
                if not self._carriers[key]:
                    del self._carriers[key]
        return missed

    def _note(self, entry: int) -> None:
        if len(self._changes) >= REMEMBERED_CHANGES:
            half = len(self._changes) // 2
            del self._changes[:half]
            self._first_change += half
        self._changes.append(entry)

    def _note_all(self) -> None:
        """Trees of before can't be followed any more."""
        self.version += 1
        self._first_change = self.cursor + 1
        self._changes.clear()

    def _grow(self, needed: int) -> None:
        self._labels.extend(None for _ in range(needed - len(self._labels)))
        for column in (*self._columns.values(), self.quality):
            if len(column.codes) < needed:
                column.grow(max(needed, 2 * len(column.codes)))

    def _renew_quality(self) -> None:
        before = self.quality
        self.quality = LabelColumn(before.key, len(before.codes))
        for slot, code in enumerate(before.codes.tolist()):
            self.quality.set(slot, before.values[code])
