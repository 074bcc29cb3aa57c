"""The cluster as it would be if what runs there came to its end: what a gang could ever get.

What is meant to run for ever stays: pods of the controllers that start every pod anew, and static ones.
Nothing is changed by a question; the columns are put back bit for bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import Handle, NoArguments, Permit
from closeby.scheduling.intake.books import Books
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.pace import Outdated, Pace
from closeby.scheduling.placing.gang_cycle import place_gang
from closeby.scheduling.placing.tools import Placed, Tools
from closeby.scheduling.placing.waiting_gangs import WaitingGang

Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]
Ints = NDArray[np.intp]

#: Steps of all rehearsals for one question (see ``closeby.scheduling.pace``): they run within one turn.
STEPS: Final = 40_000
_REHEARSED: Final = Condition(
    reason=Reason.NODE_RESERVED, object="", message="this was a rehearsal", blocking=True
)


class Imagination:
    """Questions about an emptier cluster."""

    def __init__(self, tools: Tools, books: Books, handle: Handle) -> None:
        self._tools = tools
        self._books = books
        self._handle = handle
        #: Steps that rehearsals may still take.
        self.left = 0

    def begin(self) -> None:
        """A question begins. All its rehearsals together may take ``STEPS``."""
        self.left = STEPS

    def room(self, pods: Sequence[Pod], own: Iterable[Placed]) -> list[Counts]:
        """Of pods like each of these, how many each slot could take; shape (capacity,) each.

        ``own`` are pods that stay besides those that run for ever.
        """
        tools = self._tools
        with self._emptied(own, None):
            table = ClassTable(tools.cluster, tools.profile.filters, ())
            return [table.of(pod).fits.copy() for pod in pods]

    def rehearse(self, gang: WaitingGang, inside: Bools) -> Ints | None:
        """The slots on which a gang would find its place on nodes of ``inside``.

        None if it would not, or if that is not known after the steps that were left.
        """
        tools, probe = self._tools, _Probe(self._handle)
        profile = replace(tools.profile, permits=(probe,), post_filters=(), placement_scores=())
        with self._emptied(gang.running, inside):
            imagined = Tools(
                tools.cluster, tools.topologies, profile, explain=False, explain_everything=False
            )
            with suppress(Outdated):
                _in_steps(imagined.pace, self.left)
                place_gang(imagined, gang)
            self.left = max(0, self.left - imagined.pace.steps)
        return probe.slots

    @contextmanager
    def _emptied(self, own: Iterable[Placed], inside: Bools | None) -> Iterator[None]:
        cluster, books = self._tools.cluster, self._books
        stay = {pod.uid: (pod, slot) for pod, slot in own}
        for uid in books.staying:
            slot = cluster.placement(uid)
            if slot is not None:
                stay[uid] = (books.pods[uid], slot)
        with cluster.imagined(stay.values(), inside):
            yield


def _in_steps(pace: Pace, limit: int) -> None:
    """End what runs at this pace after so many steps, with everything given back."""

    def end() -> None:
        for held in reversed(pace.holds):
            held.suspend()
        raise Outdated

    pace.allow(limit, end)


class _Probe(Permit):
    """Notes where a gang would go, and takes the placement back."""

    name = "Rehearsal"

    def __init__(self, handle: Handle) -> None:
        super().__init__(NoArguments(), handle)
        self.slots: Ints | None = None

    def permit(self, state: object, placements: tuple[Placed, ...]) -> Condition | None:
        self.slots = np.asarray(sorted({slot for _, slot in placements}), dtype=np.intp)
        return _REHEARSED
