"""What switches and hosts of a fabric are called, by their descriptions, a map file, or their GUID.

A description is free text, or the vendor's default: only what looks like a name counts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from closeby.discovery.fabric import Device, DeviceKind, Fabric
from closeby.discovery.labelling import label_value
from closeby.discovery.source_files import shown
from closeby.errors import UnreadableError
from closeby.objects.labels import is_label_name
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import natural_key

#: A switch's part in in-network reduction (SHARP), which looks like an adapter.
_AGGREGATION: Final = "aggregation node"
#: First words that are the vendor's or the driver's, not a host's.
_NOBODY: Final = re.compile(
    r"mt[0-9]{4,}\S*|connectx\S*|bluefield\S*|infinihost\S*|mellanox|qlogic|mlx[0-9]+_[0-9]+|hca-?[0-9]*"
    r"|ib[pos][0-9]\S*|hfi[0-9]*_[0-9]+|\(none\)",
    re.IGNORECASE | re.ASCII,
)
#: Default names of hosts; several hosts may share one.
_DEFAULT: Final = re.compile(r"localhost(?:\..*)?|ubuntu|debian|fedora|rocky", re.IGNORECASE)
#: ``MF0;ib-core:CS7500/L01/U1``: the name between the signs, and behind the model which board it is.
_SWITCH: Final = re.compile(r"[^;]*;([^:;]*)(?::[^/;]*/([^;]*))?")
#: ``0x2c5eab0300b87b40 "leaf-1"``, as infiniband-diags read it; the quotes may be left out.
_MAP_LINE: Final = re.compile(r'(?:0x)?([0-9a-fA-F]{1,16})\s+("?)(\S(?:.*\S)?)\2\s*(?:#.*)?', re.ASCII)

#: Names by GUID.
NameMap = Mapping[str, str]
NO_NAMES: Final[NameMap] = MappingProxyType({})


class DeviceNames(Struct, frozen=True, kw_only=True):
    """Who is who."""

    #: By GUID, all different.
    switches: Mapping[str, str]
    #: Node by GUID of each of its adapters.
    hosts: Mapping[str, str]
    #: Adapters of hosts whose name is unknown.
    unnamed: frozenset[str]
    #: Adapters of hosts that the user excluded.
    others: frozenset[str] = frozenset()
    warnings: tuple[Condition, ...] = ()


def read_names(file: str, text: str) -> NameMap:
    """A map file: a line ``GUID "name"`` per adapter, system or switch; # starts a comment.

    Raises:
        UnreadableError: a line is something else, or a GUID is given two names.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        parts = _MAP_LINE.fullmatch(line.strip())
        if parts is None:
            remedy = 'write lines such as: 0x2c5eab0300b87b40 "node-1"'
            raise UnreadableError(
                file, f"{shown(line.strip())} is not a GUID with a name", remedy, line=number
            )
        guid, name = parts[1].lower().rjust(16, "0"), parts[3].strip('"')
        if found.setdefault(guid, name) != name:
            message = f"{guid} is named {found[guid]} and {name}"
            raise UnreadableError(file, message, "leave one of them out", line=number)
    return found


def name_devices(fabric: Fabric, names: NameMap = NO_NAMES, pattern: str | None = None) -> DeviceNames:
    """Names for all devices of a fabric but aggregation nodes and routers.

    A switch is called as the map says, or by its description: by what stands between ``;`` and ``:``, by a
    description of one word, else by its GUID. Boards of one chassis that share a name are distinguished by
    what stands behind the model, as ``ib-core-L01-U1``; others that share one are called by their GUID. An
    adapter belongs to the host that the map says (for it or for its system), to the first word of its
    description if that has one or two, else to the host of a named adapter of the same system.

    ``pattern`` (with ``*``, ``?`` and ``[0-7]``) is of a word of the description, such as ``mlx5_*``, or of a
    GUID: adapters that it does not match say who a host is, but not where.
    """
    switches, equal = _switches(fabric.of_kind(DeviceKind.SWITCH), names)
    cards = [one for one in fabric.of_kind(DeviceKind.ADAPTER) if not is_aggregation(one)]
    hosts = {one.guid: name for one in cards if (name := _host(one, names)) is not None}
    systems: dict[str, set[str]] = {}
    for one in cards:
        if one.system is not None and one.guid in hosts:
            systems.setdefault(one.system, set()).add(hosts[one.guid])
    for one in cards:
        known = systems.get(one.system or "", set())
        if one.guid not in hosts and len(known) == 1:
            hosts[one.guid] = next(iter(known))
    chosen = frozenset(one.guid for one in cards if pattern is None or _matches(one, pattern))
    return DeviceNames(
        switches=switches,
        hosts={guid: name for guid, name in hosts.items() if guid in chosen},
        unnamed=frozenset(chosen - hosts.keys()),
        others=frozenset(one.guid for one in cards) - chosen,
        warnings=(*equal, *_defaults({name for guid, name in hosts.items() if guid in chosen})),
    )


def is_aggregation(device: Device) -> bool:
    """Whether an adapter is a switch's own, for in-network reduction, and no host's."""
    return _AGGREGATION in device.description.lower()


def _defaults(hosts: Iterable[str]) -> Iterator[Condition]:
    for name in sorted(hosts):
        if _DEFAULT.fullmatch(name):
            yield Condition(
                reason=Reason.INVALID_SPEC,
                object=f"Node/{name}",
                message=f"{name} is what a host is called before it has a name, so it may be several",
                remedy="name the host, or its adapters in a file with --map",
            )


def _matches(device: Device, pattern: str) -> bool:
    return any(fnmatchcase(word, pattern) for word in (*device.description.split(), device.guid))


def _switches(switches: Iterable[Device], names: NameMap) -> tuple[dict[str, str], tuple[Condition, ...]]:
    devices = {one.guid: one for one in switches}
    wanted = {guid: _switch(one, names) for guid, one in devices.items()}
    sharing = _sharing(wanted)
    taken = {name for name in wanted.values() if name is not None and name not in sharing}
    warnings = [_illegal(name) for name in sorted(taken, key=natural_key) if not is_label_name(name)]
    found = {guid: guid if name is None or name in sharing else name for guid, name in wanted.items()}
    for name in sorted(sharing, key=natural_key):
        twins = sharing[name]
        boards = {guid: board for guid in twins if (board := _board(name, devices[guid], names)) is not None}
        if len(set(boards.values()) - taken) == len(twins):
            found.update(boards)
            taken.update(boards.values())
            continue
        warnings.append(
            Condition(
                reason=Reason.INVALID_SPEC,
                object=f"Switch/{name}",
                message=f"{len(twins)} switches are called {name} ({', '.join(twins[:4])}"
                f"{', …' if len(twins) > 4 else ''}), so they are named by their GUIDs",
                remedy="give each switch a description of its own, or name them in a file with --map",
            )
        )
    return found, tuple(warnings)


def _sharing(wanted: Mapping[str, str | None]) -> dict[str, list[str]]:
    """The GUIDs per name that several have."""
    found: dict[str, list[str]] = {}
    for guid in sorted(wanted):
        name = wanted[guid]
        if name is not None:
            found.setdefault(name, []).append(guid)
    return {name: guids for name, guids in found.items() if len(guids) > 1}


def _switch(device: Device, names: NameMap) -> str | None:
    """The name in the map or the description; only that in the map may be one that no label takes."""
    mapped = names.get(device.guid)
    text = device.description if mapped is None else mapped
    between = _SWITCH.match(text)
    name = (between[1] if between is not None else text).strip()
    return name if is_label_name(name) or (name and mapped is not None) else None


def _board(name: str, device: Device, names: NameMap) -> str | None:
    """The name with the board that the map or the description tells."""
    between = _SWITCH.match(names.get(device.guid, device.description))
    if between is None or between[2] is None:
        return None
    longer = f"{name}-{between[2].strip().replace('/', '-')}"
    return longer if is_label_name(longer) else None


def _illegal(name: str) -> Condition:
    return Condition(
        reason=Reason.INVALID_SPEC,
        object=f"Switch/{name}",
        message=f"its name is not a legal label value, so its nodes get {label_value(name)}",
        remedy="give it a name of at most 63 letters, digits, '-', '_' and '.' in the file of --map",
    )


def _host(device: Device, names: NameMap) -> str | None:
    mapped = names.get(device.guid) or names.get(device.system or "")
    words = device.description.split() if mapped is None else mapped.split()
    if mapped is not None:
        return words[0] if words else None
    if len(words) not in (1, 2) or _NOBODY.fullmatch(words[0]):
        return None
    return words[0]
