"""A statement: placements that are charged to the cluster at once and can be undone exactly.

After KAI's and Volcano's statement: checkpoint, rollback, commit, discard. What plugins note about a
placement lies in the same log and is undone in reverse order with it, and so is what the cycle's state tells
them of the members placed so far: nobody else writes that.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Batch, Cluster
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Reserve, Undo
from closeby.scheduling.state import CycleState

Ints = NDArray[np.intp]
#: A point in the log to which ``rollback`` can return.
Checkpoint = int


class Statement:
    """One attempt's placements, in order."""

    def __init__(self, cluster: Cluster, listeners: Sequence[Reserve], state: CycleState) -> None:
        self._cluster = cluster
        self._listeners = listeners
        #: The cycle that is placing; its ``placed`` follows this statement.
        self.state = state
        self._log: list[tuple[Batch, list[Undo]]] = []

    def checkpoint(self) -> Checkpoint:
        """The present point."""
        return len(self._log)

    def assume(self, pods: Sequence[Pod], slots: Ints) -> None:
        """Place pods of one spec; ``slots`` has shape (len(pods),). Nothing is placed if a plugin raises."""
        batch = Batch(pods[0].spec, tuple(pods), slots)
        self._cluster.assume(batch)
        undos: list[Undo] = []
        try:
            self._announce(batch, undos)
        except Exception:
            _undo(undos)
            self._cluster.forget(batch)
            raise
        self.state.placed.extend(zip(batch.pods, slots.tolist(), strict=True))
        self._log.append((batch, undos))

    def assume_one(self, pod: Pod, slot: int) -> None:
        """Place a single pod."""
        self.assume((pod,), np.asarray([slot], dtype=np.intp))

    def assume_again(self, batches: Iterable[Batch]) -> None:
        """Place what was placed so before and has been undone."""
        for batch in batches:
            self.assume(batch.pods, batch.slots)

    def rollback(self, checkpoint: Checkpoint) -> None:
        """Undo everything after a checkpoint, newest first."""
        while len(self._log) > checkpoint:
            batch, undos = self._log.pop()
            _undo(undos)
            self._cluster.forget(batch)
            del self.state.placed[len(self.state.placed) - len(batch.pods) :]

    def discard(self) -> None:
        """Undo everything."""
        self.rollback(0)

    def commit(self) -> None:
        """Make the placements final: they can't be undone any more."""
        self._log.clear()

    def since(self, checkpoint: Checkpoint) -> Iterator[Batch]:
        """The batches placed after a checkpoint, in order."""
        return (batch for batch, _ in self._log[checkpoint:])

    def _announce(self, batch: Batch, undos: list[Undo]) -> None:
        """Tells the plugins; what they note is added to ``undos`` at once."""
        for listener in self._listeners:
            if listener.idle:
                continue
            for pod, slot in zip(batch.pods, batch.slots.tolist(), strict=True):
                undo = listener.pod_assumed(pod, slot)
                if undo is not None:
                    undos.append(undo)


def _undo(undos: Sequence[Undo]) -> None:
    for undo in reversed(undos):
        undo()
