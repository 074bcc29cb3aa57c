"""Host ports and disks that pods have on their nodes for themselves alone."""

from collections.abc import Iterable, Sequence

from closeby.objects.pods import HostPort, PortOrDisk, conflict


class PortsAndDisks:
    """What pods have of these, by slot."""

    def __init__(self) -> None:
        #: What those in each other's way have in common -> slot -> those there, with their number.
        self._there: dict[tuple[str, str | int], dict[int, dict[PortOrDisk, int]]] = {}

    def charge(self, held: Iterable[PortOrDisk], slot: int, sign: int) -> None:
        """A pod on a slot holds these from now on, or (``sign`` -1) does no more."""
        for one in held:
            key = _key(one)
            slots = self._there.setdefault(key, {})
            counts = slots.setdefault(slot, {})
            count = counts.get(one, 0) + sign
            if count:
                counts[one] = count
                continue
            del counts[one]
            if not counts:
                del slots[slot]
            if not slots:
                del self._there[key]

    def taken(self, slot: int, wanted: Sequence[PortOrDisk]) -> bool:
        """Whether any that a pod wants is taken on a slot."""
        return any(
            conflict(one, other) for one in wanted for other in self._there.get(_key(one), {}).get(slot, ())
        )

    def slots(self, wanted: Sequence[PortOrDisk]) -> list[int]:
        """All slots on which any that a pod wants is taken, ascending."""
        found = {
            slot
            for one in wanted
            for slot, others in self._there.get(_key(one), {}).items()
            if any(conflict(one, other) for other in others)
        }
        return sorted(found)


def _key(one: PortOrDisk) -> tuple[str, str | int]:
    """Those with different keys are never in each other's way."""
    return (one.protocol, one.port) if isinstance(one, HostPort) else (one.kind, one.name)
