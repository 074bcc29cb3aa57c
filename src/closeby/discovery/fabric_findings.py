"""Scans of an InfiniBand fabric, from their text to the common record."""

from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import msgspec
from msgspec import Struct

from closeby.discovery.device_names import NO_NAMES, DeviceNames, NameMap, is_aggregation, name_devices
from closeby.discovery.fabric import Cable, DeviceKind, Fabric, FabricBuilder, bandwidth_of, neighbours
from closeby.discovery.findings import Link, ScanFindings
from closeby.discovery.ibnetdiscover import read_scan
from closeby.discovery.labelling import find
from closeby.discovery.link_quality import degraded, uplinks
from closeby.discovery.planes import Trees, grow_trees
from closeby.errors import UnreadableError
from closeby.objects.reasons import Condition
from closeby.objects.words import natural_key


class Scans(Struct, frozen=True):
    """One or several scans, joined: what one does not see another may."""

    fabric: Fabric
    warnings: tuple[Condition, ...] = ()


def read_scans(scans: Iterable[tuple[str, BinaryIO]]) -> Scans:
    """Joins scans, given by name and open stream.

    Raises:
        UnreadableError: one of them can't be used.
    """
    builder = FabricBuilder()
    warnings = [warning for name, stream in scans for warning in read_scan(name, stream, builder)]
    return Scans(builder.build(), tuple(warnings))


def fabric_findings(
    source: str,
    scans: Scans,
    *,
    keys: Sequence[str] | None = None,
    names: NameMap = NO_NAMES,
    adapters: str | None = None,
    plane: str | None = None,
) -> ScanFindings:
    """Where hosts are in a fabric.

    ``names`` are of a map file; ``adapters`` is a pattern of those that count (see ``name_devices``);
    ``plane`` is a switch, by name or GUID, of the plane that counts where several contradict each other.
    ``source`` says where the scans come from, for messages.

    Raises:
        UnreadableError: no host is known by name, or there is no such switch.
    """
    fabric = scans.fabric
    links = neighbours(fabric)
    named = name_devices(fabric, names, adapters)
    trees = grow_trees(fabric, links, named, None if plane is None else _switch(source, plane, named))
    if not any(trees.places.values()):
        if adapters is not None and named.others:
            raise UnreadableError(source, f"no adapter matches {adapters}", "choose others with --adapters")
        remedy = 'name them in a file of lines such as 0xGUID "node-1", and give it with --map'
        raise UnreadableError(source, "no host is known by its adapters' descriptions", remedy)
    up = uplinks(trees, links, named)
    warnings = (*scans.warnings, *named.warnings, *trees.warnings, *degraded(trees, links, named, up))
    found = find(
        {host: place for host, place in trees.places.items() if place},
        keys,
        links=_links(fabric, trees, named),
        warnings=warnings,
        quality=up.quality,
    )
    return msgspec.structs.replace(found, planes=trees.planes)


def _switch(source: str, name: str, names: DeviceNames) -> str:
    """The GUID of a switch."""
    plain = name.lower().removeprefix("0x").rjust(16, "0")
    for guid, its in names.switches.items():
        if name == its or plain == guid:
            return guid
    raise UnreadableError(source, f"has no switch {name}", "give --plane a switch of the plane that counts")


def _links(fabric: Fabric, trees: Trees, names: DeviceNames) -> Iterator[Link]:
    """All cables but those of aggregation nodes; equal ones between the same two things taken together."""
    together: dict[tuple[str, str, str, str], list[Cable]] = {}
    for one in fabric.cables:
        ends = sorted((one.a.guid, one.b.guid), key=lambda guid: (trees.ranks.get(guid, 0), guid))
        if any(_not_shown(fabric, guid) for guid in ends):
            continue
        a, b = (names.switches.get(guid) or names.hosts.get(guid) or guid for guid in ends)
        together.setdefault((a, b, one.width or "", one.speed or ""), []).append(one)
    for a, b, width, speed in sorted(together, key=lambda link: tuple(map(natural_key, link))):
        cables = together[a, b, width, speed]
        yield Link(
            a=a,
            b=b,
            cables=len(cables),
            width=width or None,
            speed=speed or None,
            bandwidth=bandwidth_of(cables),
        )


def _not_shown(fabric: Fabric, guid: str) -> bool:
    device = fabric.devices[guid]
    return device.kind is DeviceKind.ADAPTER and is_aggregation(device)
