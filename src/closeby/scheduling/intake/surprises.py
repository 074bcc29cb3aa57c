"""What happened in the cluster that the engine did not decide itself: decisions made before may hold no more.

Each surprise has a version. What was decided at one version holds for certain as long as nothing that it
depends on has a later one.
"""

from collections.abc import Iterator
from typing import Final

from closeby.scheduling.intake.keys import kind_of, namespace_of
from closeby.scheduling.outcomes import ItemKind

#: Gangs, and namespaces, of which it is kept when something last happened to them.
_KEPT: Final = 10_000


class Surprises:
    """By node, gang and namespace, when something last happened to it that was not the engine's own doing."""

    def __init__(self) -> None:
        #: Of the newest surprise.
        self.version = 0
        #: slot -> version, the newest last.
        self._nodes: dict[int, int] = {}
        self._gangs = _Newest()
        self._namespaces = _Newest()
        self._everything = 0

    def node(self, slot: int) -> None:
        """The node in this slot is another than before, or something else was put on it."""
        self.version += 1
        self._nodes.pop(slot, None)
        self._nodes[slot] = self.version

    def gang(self, key: str) -> None:
        """The gang's object says something else, or its members or their nodes are others.

        Of other work items nothing is kept.
        """
        self.version += 1
        if kind_of(key) is ItemKind.GANG:
            self._gangs.note(key, self.version)

    def namespace(self, name: str) -> None:
        """Something changed that any decision about pods of this namespace may depend on."""
        self.version += 1
        self._namespaces.note(name, self.version)

    def everything(self) -> None:
        """Something changed that any decision may depend on, such as a topology."""
        self.version += 1
        self._everything = self.version

    def at_node(self, slot: int, since: int) -> bool:
        """Whether something happened to the node since that version."""
        return self._nodes.get(slot, 0) > since or self._everything > since

    def at_namespace(self, name: str, since: int) -> bool:
        """Whether something happened to all of the namespace since that version."""
        return self._namespaces.of(name) > since or self._everything > since

    def at_gang(self, key: str, since: int) -> bool:
        """Whether something happened to the gang itself, or to all of its namespace, since that version."""
        return self._gangs.of(key) > since or self.at_namespace(namespace_of(key), since)

    def slots(self, since: int) -> Iterator[int]:
        """Those of the nodes to which something happened since that version, the newest first."""
        for slot, version in reversed(self._nodes.items()):
            if version <= since:
                return
            yield slot


class _Newest:
    """name -> version, of the names that were noted last; of others, the newest that they may have."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._dropped = 0

    def note(self, name: str, version: int) -> None:
        self._versions.pop(name, None)
        self._versions[name] = version
        if len(self._versions) > _KEPT:
            self._dropped = self._versions.pop(next(iter(self._versions)))

    def of(self, name: str) -> int:
        return self._versions.get(name, self._dropped)
