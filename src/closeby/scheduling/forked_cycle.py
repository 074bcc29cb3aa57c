"""What an item would get if something were different: its own cycle, on the engine's state, undone exactly.

Every filter and all resources count, those of plugins too. Nothing is copied: pods are lifted off their nodes
and put back, or the columns are set aside and restored bit for bit.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import takewhile
from math import inf

from msgspec.structs import replace

from closeby.objects.arrays import Bools
from closeby.objects.pods import Pod
from closeby.objects.process import Contained
from closeby.objects.workloads import is_pinned
from closeby.scheduling.by_domain import DomainFilter
from closeby.scheduling.commit_points import TryOnly
from closeby.scheduling.extension import Handle, Scope, Undo
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.holds import HoldKind
from closeby.scheduling.placing.deciding import place_pod
from closeby.scheduling.placing.exclusive import OwnedDomain
from closeby.scheduling.placing.gang_cycle import place_gang
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import Placed, Tools, WaitingGang
from closeby.scheduling.reasons.nodes import Diagnosis
from closeby.scheduling.steps import Steps


class ForkedCycle:
    """Runs cycles without some pods, or on some nodes alone."""

    def __init__(self, tools: Tools, state: SchedulingState, holdings: Holdings, handle: Handle) -> None:
        self._state = state
        self._holdings = holdings
        self._only = TryOnly(handle)
        self._tools = tools.for_fork()
        self._tools.profile = replace(self._tools.profile, permits=(*tools.profile.permits, self._only))
        #: The pods that are lifted now, and how each is put back.
        self._lifted: list[tuple[Pod, Undo]] = []
        self._keeping = False
        #: What trials have cost, in steps of a decision; each pod that is lifted counts as one.
        self.steps = 0

    def place(self, item: WaitingGang | Pod, limit: float = inf) -> tuple[Placed, ...] | None:
        """Where the item's pods would go as things are; None if it does not fit, as far as ``limit`` steps
        tell. A fault is raised, and nothing is left of what was tried."""
        self._only.placed = None
        steps = self._tools.steps = Steps(limit)
        with Contained() as placing:
            if isinstance(item, Pod):
                place_pod(self._tools, item)
            else:
                place_gang(self._tools, item)
        self.steps += steps.taken
        if placing.error is not None:
            self._holdings.give_back((item,) if isinstance(item, Pod) else item.waiting)
            raise placing.error
        return self._only.placed

    @contextmanager
    def without(self, gone: Sequence[Pod], item: WaitingGang | Pod) -> Iterator[None]:
        """As if these pods were gone, for an item: domains that they have for themselves are free."""
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
    def inside(self, stay: Iterable[Placed], nodes: Bools | None = None) -> Iterator[Diagnosis]:
        """As if only these pods and ``nodes`` were there, and no node was kept for another item."""
        tools, cluster = self._tools, self._tools.cluster
        profile = replace(tools.profile, permits=(self._only,), placement_scores=())
        with cluster.hypothetical({pod.uid: (pod, slot) for pod, slot in stay}.values(), nodes):
            self._tools = Tools(cluster, tools.topologies, profile, explain=False, explain_everything=False)
            try:
                yield self._tools.diagnosis
            finally:
                self._tools = tools

    def emptied(
        self, own: Iterable[Placed] = (), *, pinned: bool = False, bare: bool = False
    ) -> AbstractContextManager[Diagnosis]:
        """As if all pods that can end had ended but ``own``: what an item could ever get.

        Pods with long-running owners, and static pods, stay; ``pinned``: of these only those that come back
        to their node at once; ``bare``: none.
        """
        return self.inside((*own, *(() if bare else self.staying(pinned=pinned))))

    def staying(self, *, pinned: bool = False) -> list[Placed]:
        """The pods that stay where all end that can, with their slots."""
        cluster, state = self._tools.cluster, self._state
        pods = ((state.pods[uid], cluster.placement(uid)) for uid in state.long_running)
        return [(pod, at) for pod, at in pods if at is not None and (not pinned or is_pinned(pod))]

    def knows_all(self, pod: Pod) -> bool:
        """Whether what such a pod may do depends on nodes alone, not on what was placed elsewhere."""
        filters = self._tools.profile.filters
        apart = (
            one for one in filters if one.filter_scope is Scope.PER_PLACEMENT or isinstance(one, DomainFilter)
        )
        return not any(one.concerns(pod) for one in apart) and not any(
            one.reaches_beyond(pod) for one in filters
        )

    def owners(self, item: WaitingGang | Pod) -> list[OwnedDomain]:
        """The domains that other gangs have for themselves and that keep an item off."""
        exclusives = self._tools.exclusives
        return [] if exclusives is None else exclusives.owners(*_key_and_plain(item))

    def _put_back_to(self, first: int) -> None:
        """Put back the pods that were lifted after the first ones, the last one first."""
        while len(self._lifted) > first:
            _, put_back = self._lifted.pop()
            put_back()


def _key_and_plain(item: WaitingGang | Pod) -> tuple[str, Pod | None]:
    """The key of a gang, or the plain pod."""
    return ("", item) if isinstance(item, Pod) else (item.group.key, None)
