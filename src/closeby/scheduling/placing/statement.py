"""A statement: placements that are charged to the cluster at once and can be undone exactly.

After KAI's and Volcano's statement: checkpoint, rollback, commit, discard. What plugins note about a
placement lies in the same log and is undone in reverse order with it.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Batch, Cluster
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Reserve, Undo

Ints = NDArray[np.intp]
#: A point in the log to which ``rollback`` can return.
Checkpoint = int


class Statement:
    """One attempt's placements, in order."""

    def __init__(self, cluster: Cluster, listeners: Sequence[Reserve]) -> None:
        self._cluster = cluster
        self._listeners = listeners
        self._log: list[tuple[Batch, list[Undo]]] = []

    def checkpoint(self) -> Checkpoint:
        """The present point."""
        return len(self._log)

    def assume(self, pods: Sequence[Pod], slots: Ints) -> None:
        """Place pods of one spec; ``slots`` has shape (len(pods),)."""
        batch = Batch(pods[0].spec, tuple(pods), slots)
        self._cluster.assume(batch)
        undos: list[Undo] = []
        for listener in self._listeners:
            if listener.idle:
                continue
            for pod, slot in zip(batch.pods, slots.tolist(), strict=True):
                undo = listener.pod_assumed(pod, slot)
                if undo is not None:
                    undos.append(undo)
        self._log.append((batch, undos))

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Undo everything after a checkpoint, newest first."""
        while len(self._log) > checkpoint:
            batch, undos = self._log.pop()
            for undo in reversed(undos):
                undo()
            self._cluster.forget(batch)

    def discard(self) -> None:
        """Undo everything."""
        self.rollback(0)

    def commit(self) -> tuple[Batch, ...]:
        """Make the placements final; returns them and leaves an empty statement."""
        batches = tuple(batch for batch, _ in self._log)
        self._log.clear()
        return batches

    def since(self, checkpoint: Checkpoint) -> Iterator[Batch]:
        """The batches placed after a checkpoint, in order."""
        return (batch for batch, _ in self._log[checkpoint:])

    def __len__(self) -> int:
        return len(self._log)
