"""What the scheduler decided about one pod, gang or application and when, as JSON for those who ask it.

A story is bounded: the engine keeps the last entries of an item, and each text is one line of bounded length.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.objects.bounds import line
from closeby.scheduling.outcomes import StoryEntry

#: Entries that are shown: of a gang, an application and a pod of one name together.
_ENTRIES: Final = 64
_encode: Final = msgspec.json.Encoder().encode


class Told(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One entry; ``event`` counts the events that the engine had handled by then."""

    event: int
    what: str
    #: Of a decision: why something waits, and how many pods got a node and how many wait.
    reason: str | None = None
    message: str | None = None
    placed: int = 0
    waiting: int = 0


class Story(Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is known about one name, the oldest first."""

    api_version: str = "closeby.dev/v1alpha1"
    kind: str = "Story"
    namespace: str
    name: str
    entries: tuple[Told, ...]


def story_json(namespace: str, name: str, entries: Sequence[StoryEntry]) -> bytes | None:
    """The document; None where nothing is known of that name."""
    told = tuple(map(_told, entries[-_ENTRIES:]))
    return _encode(Story(namespace=namespace, name=name, entries=told)) if told else None


def _told(entry: StoryEntry) -> Told:
    outcome = entry.outcome
    if outcome is None:
        return Told(event=entry.stimulus, what=line(entry.what))
    reason, message = outcome.reason, outcome.full_message
    if reason is None and outcome.left:
        reason, message = outcome.left[0].reason, outcome.left[0].message
    return Told(
        event=entry.stimulus,
        what=line(entry.what),
        reason=None if reason is None else str(reason),
        message=message,
        placed=len(outcome.bindings),
        waiting=len(outcome.refused) + len(outcome.left),
    )
