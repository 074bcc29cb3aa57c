"""Fabrics drawn in a few words, and what ibnetdiscover would print of them."""

import io
from collections.abc import Mapping, Sequence

from closeby.discovery.device_names import NO_NAMES, NameMap
from closeby.discovery.fabric_findings import fabric_findings, read_scans
from closeby.discovery.findings import ScanFindings

Ports = dict[str, list[str]]


class Drawing:
    """Switches with their hosts, and cables between switches.

    ``hosts`` are descriptions of adapters per switch, in one text each, separated by commas: ``{"L1": "n1
    mlx5_0, n2 mlx5_0"}``, with a rate of its own as ``n1 mlx5_0 @4xNDR``. ``cables`` are such as ``L1-S1`` or
    ``L1-S1 4xSDR``, one each. GUIDs grow in the order of ``order``, then in that of their mention: switches
    have 20…, adapters 10….
    """

    def __init__(
        self,
        hosts: Mapping[str, str],
        cables: str = "",
        *,
        order: str = "",
        described: Mapping[str, str] | None = None,
        systems: Mapping[str, str] | None = None,
        rate: str = "4xHDR",
    ) -> None:
        self._rate = rate
        self._described = described or {}
        self._systems = systems or {}
        pairs = [(one.split()[0].split("-"), one.split()[1:]) for one in cables.split(",") if one.strip()]
        names = [*order.split(), *hosts, *(name for pair, _ in pairs for name in pair)]
        self.guids = {name: f"{0x200000 + place:016x}" for place, name in enumerate(dict.fromkeys(names))}
        self._adapters: list[tuple[str, str, str, str]] = []
        for leaf, listed in hosts.items():
            for description in (one.strip() for one in listed.split(",") if one.strip()):
                guid = f"{0x100000 + 2 * len(self._adapters):016x}"
                says, _, own_rate = description.partition(" @")
                self._adapters.append((guid, says, leaf, own_rate or rate))
        self._pairs = [((pair[0], pair[1]), rate[0] if rate else self._rate) for pair, rate in pairs]

    def guid(self, description: str) -> str:
        """Of the only adapter with this description."""
        (found,) = (guid for guid, its, *_ in self._adapters if its == description)
        return found

    def text(self) -> str:
        """As ibnetdiscover prints it, without a blank line at the end."""
        ports: Ports = {name: [] for name in self.guids}
        records = []
        for guid, description, leaf, rate in self._adapters:
            number = len(ports[leaf]) + 1
            port = f"{int(guid, 16) + 1:x}"
            ports[leaf].append(
                f'[{number}]\t"H-{guid}"[1]({port}) \t\t# "{description}" lid 4 {rate}'.rstrip()
            )
            system = self._systems.get(description, guid)
            records.append(
                f"vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{system}\ncaguid=0x{guid}\n"
                f'Ca\t1 "H-{guid}"\t\t# "{description}"\n'
                f'[1]({port}) \t"S-{self.guids[leaf]}"[{number}]\t\t# lid 4 lmc 0 "{self._says(leaf)}" lid 1 '
                f"{rate}".rstrip()
            )
        for (one, other), rate in self._pairs:
            a, b = len(ports[one]) + 1, len(ports[other]) + 1
            ports[one].append(self._line(a, other, b, rate))
            ports[other].append(self._line(b, one, a, rate))
        switches = [
            f"vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{guid}\nswitchguid=0x{guid}({guid})\n"
            f'Switch\t{max(65, len(ports[name]))} "S-{guid}"\t\t# "{self._says(name)}" enhanced port 0 '
            "lid 1 lmc 0\n" + "\n".join(ports[name])
            for name, guid in self.guids.items()
        ]
        return "#\n# Topology file: generated on Wed Aug  6 16:11:23 2025\n#\n\n" + "\n\n".join(
            (*switches, *records)
        )

    def _line(self, number: int, peer: str, port: int, rate: str) -> str:
        return f'[{number}]\t"S-{self.guids[peer]}"[{port}]\t\t# "{self._says(peer)}" lid 1 {rate}'.rstrip()

    def _says(self, switch: str) -> str:
        return self._described.get(switch, f"MF0;{switch}:MQM9701/U1")


def findings(
    *texts: "str | Drawing",
    keys: Sequence[str] | None = None,
    names: NameMap = NO_NAMES,
    adapters: str | None = None,
    plane: str | None = None,
) -> ScanFindings:
    """What is found in scans."""
    scans = [one if isinstance(one, str) else one.text() for one in texts]
    streams = ((f"scan {place}", io.BytesIO(text.encode())) for place, text in enumerate(scans))
    return fabric_findings(
        "scans", read_scans(streams), keys=keys, names=names, adapters=adapters, plane=plane
    )


def paths(found: ScanFindings) -> dict[str, str]:
    """Where nodes are, closest first, as ``L1/S1``; a dash for a level that is not known."""
    return {name: "/".join(one or "-" for one in node.path) for name, node in found.nodes.items()}


def warned(found: ScanFindings) -> dict[str, str]:
    """The last warning about each object."""
    return {one.object: one.sentence() for one in found.warnings}


FAT_TREE = {"L1": "n1 mlx5_0, n2 mlx5_0", "L2": "n3 mlx5_0, n4 mlx5_0", "L3": "n5 mlx5_0, n6 mlx5_0"}
#: S1 and S2 over L1, L2 and L3, one cable each.
UPLINKS = "L1-S1, L2-S1, L3-S1, L1-S2, L2-S2, L3-S2"
