"""How well switches are connected upwards, and which of them, or of their hosts, worse than their siblings.

A cable that is down is not in a scan at all: only the comparison with siblings shows it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec import Struct

from closeby.discovery.device_names import DeviceNames
from closeby.discovery.fabric import Cable, bandwidth_of
from closeby.discovery.findings import LinkQuality
from closeby.discovery.planes import Trees
from closeby.discovery.ranks import Neighbours
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import plural
from closeby.topology.qos import format_bandwidth
from closeby.topology.uplinks import usual_amount

#: Switches with as good as the same way up, to compare with each other.
_Siblings = dict[str, tuple[Cable, ...]]


class UplinkQuality(Struct, frozen=True):
    """What leads from the switches of a fabric towards its top."""

    #: Per switch that has any, by GUID, the cables to the next coarser level.
    cables: Mapping[str, tuple[Cable, ...]]
    #: Per domain (by its name) with such cables: those of all its switches together.
    quality: Mapping[str, LinkQuality]


def uplinks(trees: Trees, links: Neighbours, names: DeviceNames) -> UplinkQuality:
    """The way up of every switch and domain."""
    cables: dict[str, tuple[Cable, ...]] = {}
    quality: dict[str, LinkQuality] = {}
    for level in trees.levels:
        together: dict[str, list[Cable]] = {}
        for guid, domain in level.domain.items():
            if domain not in level.parent:
                continue
            coarser = trees.levels[trees.ranks[level.parent[domain]] - 1].domain
            up = tuple(one for peer in sorted(links[guid]) if peer in coarser for one in links[guid][peer])
            if up:
                cables[guid] = up
                together.setdefault(domain, []).extend(up)
        for domain, several in together.items():
            quality[names.switches[domain]] = LinkQuality(
                bandwidth=bandwidth_of(several), uplinks=len(several)
            )
    return UplinkQuality(cables, quality)


def degraded(trees: Trees, links: Neighbours, names: DeviceNames, up: UplinkQuality) -> Iterator[Condition]:
    """Switches with fewer or slower uplinks than most of their siblings, and adapters slower than the others
    on their switch.

    Siblings are the switches of one level under one domain. Where as many have one thing as the other, more
    is what should be.
    """
    for level in trees.levels:
        families: dict[str, _Siblings] = {}
        for guid in sorted(level.domain):
            if guid in up.cables:
                families.setdefault(level.parent[level.domain[guid]], {})[guid] = up.cables[guid]
        for siblings in families.values():
            yield from _worse(siblings, names)
    for guid in sorted(trees.ranks):
        yield from _slow_adapters(guid, links, names)


def _worse(siblings: _Siblings, names: DeviceNames) -> Iterator[Condition]:
    usual = usual_amount([len(cables) for cables in siblings.values()])
    rates = {guid: bandwidth_of(cables) for guid, cables in siblings.items()}
    known = [rate for rate in rates.values() if rate is not None]
    usual_rate = usual_amount(known) if len(known) == len(rates) else None
    for guid, cables in siblings.items():
        rate = rates[guid]
        slower = rate is not None and usual_rate is not None and rate < usual_rate
        # An uplink fewer is not a loss where those that are there are faster.
        fewer = len(cables) < usual and (slower or usual_rate is None)
        if slower or fewer:
            name = names.switches[guid]
            yield Condition(
                reason=Reason.BANDWIDTH_RISK,
                object=f"Switch/{name}",
                message=f"the uplinks of {name} are degraded: {_amount(len(cables), rate)}, where its "
                f"siblings have {_amount(usual, usual_rate)}",
                remedy="check its cables and ports",
            )


def _slow_adapters(guid: str, links: Neighbours, names: DeviceNames) -> Iterator[Condition]:
    rates: dict[str, int] = {}
    for peer, cables in links[guid].items():
        rate = bandwidth_of(cables[:1])
        if peer in names.hosts and rate is not None:
            rates[peer] = rate
    if not rates:
        return
    usual, count = Counter(rates.values()).most_common(1)[0]
    if 2 * count <= len(rates):
        return
    for peer in sorted(rates):
        if rates[peer] < usual:
            host, switch = names.hosts[peer], names.switches[guid]
            yield Condition(
                reason=Reason.BANDWIDTH_RISK,
                object=f"Node/{host}",
                message=f"the cable from {host} to {switch} is degraded: {format_bandwidth(rates[peer])}, "
                f"where most on that switch have {format_bandwidth(usual)}",
                remedy="check the cable and both ports",
            )


def _amount(cables: int, rate: int | None) -> str:
    count = plural(cables, "cable")
    return count if rate is None else f"{count} of {format_bandwidth(rate)} together"
