"""What happened to each pod and gang, newest items kept, so that a decision can be explained later."""

from collections import OrderedDict, deque

from msgspec import Struct

from closeby.scheduling.outcomes import Outcome

#: Items whose story is kept, and entries kept of each; older ones are forgotten.
ITEMS = 20_000
ENTRIES = 32


class StoryEntry(Struct, frozen=True):
    """One thing that happened; ``stimulus`` counts the events that the engine had handled by then."""

    stimulus: int
    what: str
    outcome: Outcome | None = None


class Stories:
    """Stories by work item."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, deque[StoryEntry]] = OrderedDict()

    def tell(self, key: str, entry: StoryEntry) -> None:
        """Add to an item's story."""
        entries = self._entries.get(key)
        if entries is None:
            entries = self._entries[key] = deque(maxlen=ENTRIES)
            if len(self._entries) > ITEMS:
                self._entries.popitem(last=False)
        else:
            self._entries.move_to_end(key)
        entries.append(entry)

    def of(self, key: str) -> tuple[StoryEntry, ...]:
        """An item's story, oldest entry first."""
        return tuple(self._entries.get(key, ()))
