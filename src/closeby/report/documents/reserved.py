"""Which nodes are kept free for a gang: what the running scheduler says goes before what a run works out.

A command that looks at a cluster decides anew, and may keep other nodes free than the scheduler that has kept
them since earlier. The scheduler says which in the condition of the gang.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from closeby.objects.recorded import Recorded
from closeby.scheduling.outcomes import Reservation

#: ``Reservation.sentence`` as it ends a gang's message.
_RESERVED: Final = re.compile(r"; ((\d+ nodes? of [^;]+) are reserved for it since ([^;]*?))(?=\.?$)")
_POD_GROUP: Final = "PodGroup/"


def with_reservation(
    sentences: Iterable[str], own: Reservation | None, recorded: Sequence[Recorded]
) -> tuple[str, ...]:
    """The sentences about a gang, and which nodes are kept free for it.

    ``own`` is what was worked out now, ``recorded`` what stands in the cluster about the gang. Where the two
    differ both are told.
    """
    told = tuple(_RESERVED.sub("", one) for one in sentences)
    conditions = [one for one in recorded if one.object.startswith(_POD_GROUP) and one.status != "True"]
    published = next((found for one in conditions if (found := _RESERVED.search(one.message))), None)
    if published is None:
        return told if own is None else (*told, f"Decided anew, {own.where} would be reserved for it now.")
    other = "" if own is None or own.where == published[2] else f"; chosen anew they would be {own.where}"
    return (*told, f"The scheduler says that {published[1]}{other}.")
