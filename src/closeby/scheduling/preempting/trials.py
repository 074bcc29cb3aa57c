"""Whether an item fits without some pods: its own cycle, on the engine's state, which is then as before."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Final

from msgspec.structs import replace

from closeby.objects.arrays import Counts
from closeby.objects.pods import Pod
from closeby.scheduling.commit_points import TryOnly
from closeby.scheduling.extension import Handle, Undo
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.holds import HoldKind
from closeby.scheduling.placing.deciding import place_pod
from closeby.scheduling.placing.exclusive import OwnedDomain
from closeby.scheduling.placing.gang_cycle import place_gang
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang
from closeby.scheduling.steps import Steps

#: What the search for one item's victims may cost in trials, and as much again to spare some of them. In
#: steps of a decision; each pod that is lifted counts as one.
TRIAL_STEPS: Final = 50_000
#: Steps of a decision that are about as much work as one of an integer program.
_OF_PROGRAM: Final = 100


class PreemptionTrials:
    """Runs cycles without some pods. Every filter and all resources count, those of plugins too."""

    def __init__(self, tools: Tools, state: SchedulingState, holdings: Holdings, handle: Handle) -> None:
        self._holdings = holdings
        self._state = state
        self._trial = TryOnly(handle)
        self._tools = tools.for_fork()
        self._tools.profile = replace(self._tools.profile, permits=(*tools.profile.permits, self._trial))
        #: The pods that are lifted now, and how each is put back.
        self._lifted: list[tuple[Pod, Undo]] = []
        self._keeping = False
        #: What trials have cost since ``begin``; and before, with what programs have cost.
        self.steps = 0
        self._earlier = 0

    def begin(self) -> None:
        """The search for the victims of one item begins."""
        self._earlier += self.steps
        self.steps = 0

    def note_solving(self, steps: int) -> None:
        """An integer program took so many steps of its own."""
        self._earlier += _OF_PROGRAM * steps

    @property
    def all_steps(self) -> int:
        """What all trials and programs have cost so far."""
        return self._earlier + self.steps

    @property
    def costly(self) -> bool:
        """Whether nothing more should be tried than to spare victims that were found."""
        return self.steps >= TRIAL_STEPS

    @property
    def over(self) -> bool:
        """Whether nothing more should be tried for this item."""
        return self.steps >= 2 * TRIAL_STEPS

    def place(self, item: WaitingGang | Pod, gone: Sequence[Pod]) -> tuple[Placed, ...] | None:
        """Where the item's pods would go without the pods that are gone; None if it does not fit."""
        self._trial.placed = None
        steps = self._tools.steps = Steps()
        with self._without(gone, item):
            if isinstance(item, Pod):
                place_pod(self._tools, item)
            else:
                place_gang(self._tools, item)
        self.steps += steps.taken
        return self._trial.placed

    def most(
        self, item: WaitingGang | Pod, kinds: Sequence[Pod], gone: Sequence[Pod]
    ) -> tuple[Counts, ...] | None:
        """By slot: how many pods of each kind may fit without the pods that are gone, and at most.

        ``kinds`` has one pod of each. Filters that look at what was placed elsewhere are not asked: they may
        refuse more. None where fewer pods may also close a node, as with a required affinity or a spread
        constraint: then nothing follows for other sets of pods.
        """
        table = self._tools.table
        if table.helped_by_pods(kinds):
            return None
        with self._without(gone, item):
            return tuple(table.of(pod).fits.copy() for pod in kinds)

    def owners(self, item: WaitingGang | Pod) -> list[OwnedDomain]:
        """The domains that other gangs have for themselves and that keep an item off."""
        exclusives = self._tools.exclusives
        return [] if exclusives is None else exclusives.owners(*_key_and_plain(item))

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Pods that one trial lifted stay so until the next, which then need not lift the same ones again.

        Nothing but trials may look at the cluster meanwhile.
        """
        self._keeping = True
        try:
            yield
        finally:
            self._keeping = False
            self._put_back_to(0)

    @contextmanager
    def _without(self, gone: Sequence[Pod], item: WaitingGang | Pod) -> Iterator[None]:
        lifted = self._lifted
        same = sum(1 for _ in takewhile(lambda two: two[0][0] is two[1], zip(lifted, gone, strict=False)))
        self._put_back_to(same)
        lifted.extend((pod, self._holdings.lift(pod)) for pod in gone[same:])
        self.steps += len(gone) - same
        holds, exclusives = self._tools.holds, self._tools.exclusives
        before = holds.off
        if exclusives is not None and self._state.exclusive:
            holds.put(HoldKind.DOMAIN, exclusives.hold(*_key_and_plain(item), gone))
        try:
            yield
        finally:
            holds.off = before
            if not self._keeping:
                self._put_back_to(0)

    def _put_back_to(self, first: int) -> None:
        """Put back the pods that were lifted after the first ones, the last one first."""
        while len(self._lifted) > first:
            _, put_back = self._lifted.pop()
            put_back()


def _key_and_plain(item: WaitingGang | Pod) -> tuple[str, Pod | None]:
    """The key of a gang, or the plain pod."""
    return ("", item) if isinstance(item, Pod) else (item.group.key, None)
