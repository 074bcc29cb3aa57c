"""What happened to each pod and gang, so that a decision can be explained later."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from closeby.scheduling.outcomes import Outcome

#: Entries kept of each item.
ENTRIES: Final = 32


class StoryEntry(Struct, frozen=True):
    """One thing that happened; ``stimulus`` counts the events that the engine had handled by then."""

    stimulus: int
    what: str
    outcome: Outcome | None = None


class Stories:
    """Stories by work item: of each item that waits, of each gang with members, and of the last others."""

    def __init__(self, needed: Callable[[str], bool]) -> None:
        """Stories that are ``needed`` (by key) are kept beyond the limit."""
        self._needed = needed
        #: Stories beyond which the oldest are forgotten.
        self.limit = 20_000
        self._entries: OrderedDict[str, deque[StoryEntry]] = OrderedDict()

    def tell(self, key: str, entry: StoryEntry) -> None:
        """Add to an item's story."""
        entries = self._entries.get(key)
        if entries is None:
            entries = self._entries[key] = deque(maxlen=ENTRIES)
            self._forget()
        else:
            self._entries.move_to_end(key)
        entries.append(entry)

    def of(self, key: str) -> tuple[StoryEntry, ...]:
        """An item's story, oldest entry first."""
        return tuple(self._entries.get(key, ()))

    def __len__(self) -> int:
        return len(self._entries)

    def _forget(self) -> None:
        # Two are looked at for each that comes, so at most as many are kept in excess as are needed.
        for _ in range(2):
            if len(self._entries) <= self.limit:
                return
            oldest = next(iter(self._entries))
            if self._needed(oldest):
                self._entries.move_to_end(oldest)
            else:
                del self._entries[oldest]
