"""Holds: nodes that are kept for an item or a gang, and who must keep off them.

Three keep nodes: an item whose victims leave (a plan), a gang that has waited long (a reservation), and a
gang that has a domain for itself. Each of them says which nodes an item that comes must keep off.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import ClassVar, Final, NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Bools
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter, Handle, NoArguments, Scope
from closeby.scheduling.plugin_view import CycleState, Nodes


class HoldKind(Enum):
    """Why nodes are held."""

    PLAN = "plan"
    RESERVATION = "reservation"
    DOMAIN = "domain"


#: The kinds of holds that end by themselves, once their holder has its place.
UNTIL_PLACED: Final = (HoldKind.PLAN, HoldKind.RESERVATION)


class Hold(Struct, frozen=True, eq=False):
    """Nodes that an item must keep off."""

    kind: HoldKind
    #: Holds of one kind with equal keys are of the same nodes.
    number: Hashable
    #: Shape (slots,); nodes that came later are not in it.
    mask: Bools
    #: Why it must keep off a slot, for the owners of pods in a namespace.
    says: Callable[[int, str], str]

    @property
    def key(self) -> Hashable:
        """Holds with equal keys are of the same nodes."""
        return self.kind, self.number


class Comer(NamedTuple):
    """An item that is to be decided."""

    key: str
    priority: int
    #: It looks for victims.
    preempts: bool = False


class KeepsNodes(Protocol):
    """Who keeps nodes, be it for several items."""

    def off(self, comer: Comer) -> Hold | None:
        """The nodes that an item must keep off; None where it may pass."""


class Holds:
    """What the item in hand must keep off. Results for its pods are cached apart from those of others."""

    __slots__ = ("off", "version")

    def __init__(self) -> None:
        self.off: tuple[Hold, ...] = ()
        #: Changes when results that were cached for holds are of no use any more.
        self.version = 0

    @property
    def key(self) -> Hashable:
        """Equal keys: the same nodes for the present item."""
        return tuple([one.key for one in self.off])

    def of(self, kind: HoldKind) -> Hold | None:
        """The one of a kind that keeps the present item off."""
        return next((one for one in self.off if one.kind is kind), None)

    def put(self, kind: HoldKind, hold: Hold | None) -> None:
        """Replace the one of a kind."""
        others = self.but(kind)
        self.off = others if hold is None else (*others, hold)

    def but(self, kind: HoldKind) -> tuple[Hold, ...]:
        """All of other kinds."""
        return tuple([one for one in self.off if one.kind is not kind])

    @contextmanager
    def instead(self, off: tuple[Hold, ...]) -> Iterator[None]:
        """Judge by other ones meanwhile."""
        before, self.off = self.off, off
        try:
            yield
        finally:
            self.off = before

    @property
    def until_placed(self) -> Bools | None:
        """The nodes of plans and reservations that the present item must keep off; None for none."""
        return _all_of([one.mask for one in self.off if one.kind in UNTIL_PLACED])


def _all_of(masks: list[Bools]) -> Bools | None:
    """The nodes of all masks, of which some may know fewer nodes."""
    if len(masks) < 2:
        return masks[0] if masks else None
    every = np.zeros(max(map(len, masks)), dtype=np.bool_)
    for mask in masks:
        every[: len(mask)] |= mask
    return every


class HeldNodes(Filter):
    """Refuses nodes that are held to items that must keep off; the last filter to be asked.

    So what it refuses are nodes that would take the pod if they were not held.
    """

    name = "Reservation"
    reason = Reason.NODE_RESERVED
    filter_scope = Scope.PER_NODE
    kinds: ClassVar[tuple[HoldKind, ...]] = UNTIL_PLACED

    def __init__(self, holds: Holds, handle: Handle) -> None:
        super().__init__(NoArguments(), handle)
        self._holds = holds

    def concerns(self, pod: Pod) -> bool:
        return any(one.kind in self.kinds for one in self._holds.off)

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        mask = _all_of([one.mask for one in self._holds.off if one.kind in self.kinds])
        if mask is None:
            return nodes.all(True)
        if len(mask) < self.handle.cluster.capacity:  # Nodes that came since are not held.
            mask = np.append(mask, np.zeros(self.handle.cluster.capacity - len(mask), dtype=np.bool_))
        free: Bools = ~mask[nodes.index]
        return free

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        own = (one for one in self._holds.off if one.kind in self.kinds)
        hold = next(one for one in own if slot < len(one.mask) and one.mask[slot])
        return Rejection(self.reason, hold.says(slot, pod.namespace))


class ExclusiveDomains(HeldNodes):
    """Refuses nodes in domains that other gangs have for themselves."""

    name = "ExclusiveDomains"
    reason = Reason.DOMAIN_EXCLUSIVE
    kinds: ClassVar[tuple[HoldKind, ...]] = (HoldKind.DOMAIN,)
