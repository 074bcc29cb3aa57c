"""What happened in the cluster that the engine did not decide itself: decisions made before may hold no more.

Each surprise has a version. What was decided at one version holds for certain as long as nothing that it
depends on has a later one.
"""

from collections.abc import Container


class Surprises:
    """By node and by gang, when something last happened to it that was not the engine's own doing."""

    def __init__(self) -> None:
        #: Of the newest surprise.
        self.version = 0
        self._nodes: dict[int, int] = {}
        self._gangs: dict[str, int] = {}
        self._everything = 0

    def node(self, slot: int) -> None:
        """The node in this slot is another than before, or something else was put on it."""
        self.version += 1
        self._nodes[slot] = self.version

    def gang(self, key: str, known: Container[str]) -> None:
        """The gang's object says something else, or its members or their nodes are others.

        ``known``: gangs that have members; of others, and of other work items, nothing is kept.
        """
        self.version += 1
        if key in known:
            self._gangs[key] = self.version
        else:
            self._gangs.pop(key, None)

    def everything(self) -> None:
        """Something changed that any decision may depend on, such as a topology."""
        self.version += 1
        self._everything = self.version

    def at_node(self, slot: int, since: int) -> bool:
        """Whether something happened to the node since that version."""
        return self._nodes.get(slot, 0) > since or self._everything > since

    def at_gang(self, key: str, since: int) -> bool:
        """Whether something happened to the gang itself since that version."""
        return self._gangs.get(key, 0) > since or self._everything > since
