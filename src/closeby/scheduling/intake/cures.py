"""What may help a work item that was refused: only that wakes it (upstream's queueing hints)."""

from collections.abc import Iterable, Mapping
from enum import Flag, auto
from typing import Final

from closeby.objects.reasons import Reason, ReasonToken


class Stir(Flag):
    """What happened to the world at large. News of an item's own pods or gang wakes it in any case."""

    #: A node came, changed or went, or a pod left its node.
    ROOM = auto()
    #: A topology came, changed or went.
    TOPOLOGY = auto()
    #: An application's graph or a network's costs came, changed or went.
    NETWORK = auto()
    #: What a plugin decides by was measured anew.
    MEASURED = auto()


NOTHING: Final = Stir(0)
ANYTHING: Final = Stir.ROOM | Stir.TOPOLOGY | Stir.NETWORK | Stir.MEASURED

#: Reasons that not everything can cure; what is not named here is tried again after anything.
_CURES: Final[Mapping[ReasonToken, Stir]] = {
    Reason.SCHEDULING_GATED: NOTHING,
    Reason.NAMESPACE_EXCLUDED: NOTHING,
    Reason.APP_GROUP_NOT_FOUND: NOTHING,
    Reason.UNSUPPORTED: NOTHING,
    # Its members are news of its own; without its topology it waits for that first.
    Reason.GANG_INCOMPLETE: Stir.TOPOLOGY,
    Reason.TOPOLOGY_NOT_FOUND: Stir.TOPOLOGY,
    Reason.TOPOLOGY_LEVEL_NOT_FOUND: Stir.TOPOLOGY,
    Reason.INVALID_SPEC: Stir.TOPOLOGY | Stir.NETWORK,
}


def cures(reasons: Iterable[ReasonToken]) -> Stir:
    """What may help an item that waits for these reasons."""
    found = NOTHING
    for reason in reasons:
        found |= _CURES.get(reason, ANYTHING)
    return found
