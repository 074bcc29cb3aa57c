"""What a pod takes from a node, as rows of the resource columns."""

from msgspec import Struct

from closeby.objects.pods import HostPort, PodSpec

#: No node offers more of anything, and a pod that asks for more fits nowhere: sums of what a thousand pods
#: take on one node stay within 64 bits.
MOST = (1 << 53) - 1


class Demand(Struct, frozen=True):
    """``amounts[i]`` units of the resource in row ``rows[i]``; always includes one of ``pods``."""

    rows: tuple[int, ...]
    amounts: tuple[int, ...]
    host_ports: tuple[HostPort, ...]


def conflict(one: HostPort, other: HostPort) -> bool:
    """Two pods cannot both have these ports on one node (0.0.0.0 stands for every address)."""
    anywhere = "0.0.0.0" in (one.host_ip, other.host_ip)
    return (
        one.port == other.port
        and one.protocol == other.protocol
        and (anywhere or one.host_ip == other.host_ip)
    )


def demand_of(spec: PodSpec, row_of: dict[str, int]) -> Demand:
    """The demand of a spec; every resource it names must have a row."""
    pairs = [(row_of["pods"], 1)]
    pairs += [(row_of[resource], min(amount, MOST + 1)) for resource, amount in spec.requests if amount]
    return Demand(tuple(row for row, _ in pairs), tuple(amount for _, amount in pairs), spec.host_ports)
