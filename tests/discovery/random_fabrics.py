"""Fabrics as people build them, with what goes wrong in them, and the racks and pods that were meant."""

import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from closeby.discovery.findings import ScanFindings
from tests.discovery.drawing_fabrics import Drawing


class Meant(NamedTuple):
    """A fabric, and where its hosts were meant to be."""

    drawing: Drawing
    #: What was done to it.
    oddities: tuple[str, ...]
    #: Rack and pod per host; all pods are one where there are no cores.
    racks: Mapping[str, str]
    pods: Mapping[str, str]
    levels: int


class _Builder:
    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.cores = dice.choice([0, 0, 2, 4])
        self.pods = dice.randint(2, 4) if self.cores else 1
        self.rails = dice.choice([1, 1, 2, 4, 8])
        self.spines = dice.randint(2, 4)
        self.width = dice.randint(1, 4)
        self.hosts: dict[str, list[str]] = {}
        self.cables: list[tuple[str, str]] = []
        self.racks: dict[str, str] = {}
        self.pod_of: dict[str, str] = {}
        self.leaves: list[str] = []
        for pod in range(self.pods):
            for rack in range(dice.randint(2, 5)):
                self._rack(f"P{pod}", f"P{pod}K{rack}", dice.randint(4, 16))
            for spine in range(self.spines):
                self.cables += [(f"P{pod}S{spine}", f"C{core}") for core in range(self.cores)]

    def _rack(self, pod: str, rack: str, size: int) -> None:
        for rail in range(self.rails):
            leaf = f"{rack}R{rail}"
            self.leaves.append(leaf)
            self.hosts[leaf] = [f"{rack}h{number} m{rail}" for number in range(size)]
            for spine in range(self.spines):
                self.cables += [(leaf, f"{pod}S{spine}")] * self.width
        for number in range(size):
            self.racks[f"{rack}h{number}"] = rack
            self.pod_of[f"{rack}h{number}"] = pod

    @property
    def tops(self) -> list[str]:
        return [f"C{core}" for core in range(self.cores)] or [f"P0S{spine}" for spine in range(self.spines)]

    def adapters_out(self) -> None:
        """Of one host in fifty an adapter does not work."""
        for leaf, several in self.hosts.items():
            self.hosts[leaf] = [one for one in several if self.dice.random() >= 0.02]

    def cables_out(self) -> None:
        """One cable in fifty between switches is out."""
        self.cables = [one for one in self.cables if self.dice.random() >= 0.02]

    def managers(self) -> None:
        """Managers of the fabric on one or two of the topmost switches."""
        for top in self.dice.sample(self.tops, self.dice.randint(1, 2)):
            self.hosts.setdefault(top, []).append(f"ufm{top} m0")

    def storage_on_top(self) -> None:
        """Storage hosts on all topmost switches, half as many as on a leaf."""
        smallest = min(len(self.hosts[leaf]) for leaf in self.leaves)
        for host in range(max(1, smallest // 2)):
            for top in self.tops:
                self.hosts.setdefault(top, []).append(f"store{host} {top}")

    def storage_leaf(self) -> None:
        """A leaf of storage hosts with cables straight to the topmost switches."""
        for top in self.tops:
            self.cables.append(("STORE", top))
        size = self.dice.randint(2, 6)
        self.hosts["STORE"] = [f"store{number} m0" for number in range(size)]
        for number in range(size):
            self.racks[f"store{number}"] = "STORE"
            self.pod_of[f"store{number}"] = "none" if self.cores else "P0"

    def stray_cables(self) -> None:
        """A cable or two between leaves."""
        for _ in range(self.dice.randint(1, 2)):
            one, other = self.dice.sample(self.leaves, 2)
            self.cables.append((one, other))

    def stray_to_core(self) -> None:
        """A leaf has one cable past its spines."""
        if self.cores and self.spines * self.width > 2:
            self.cables.append((self.dice.choice(self.leaves), "C0"))

    def miscabled(self) -> None:
        """An adapter of a host is plugged into another rack."""
        one, other = self.dice.sample(self.leaves, 2)
        if self.rails > 2 and self.hosts[one]:
            self.hosts[other].append(self.hosts[one].pop())

    def dark_leaf(self) -> None:
        """A leaf of which all hosts are off."""
        self.cables += [("DARK", f"P0S{spine}") for spine in range(self.spines)] * self.width

    def storage_network(self) -> None:
        """A switch of its own, to which all hosts have another adapter."""
        self.hosts["NET"] = [f"{host} m9" for host in self.racks if self.dice.random() >= 0.02]

    def plane(self) -> None:
        """A second plane with other racks, but fewer."""
        hosts = sorted(self.racks)
        self.dice.shuffle(hosts)
        racks = len(set(self.racks.values())) - 1
        size = 1 + len(hosts) // self.dice.randint(min(2, racks), racks)
        for number, start in enumerate(range(0, len(hosts), size)):
            self.hosts[f"ZL{number}"] = [f"{host} z0" for host in hosts[start : start + size]]
            self.cables.append((f"ZL{number}", "ZS"))

    def rail_plane(self) -> None:
        """A second plane with the same racks."""
        for rack in sorted(set(self.racks.values())):
            self.hosts[f"Y{rack}"] = [f"{host} y0" for host, its in self.racks.items() if its == rack]
            self.cables.append((f"Y{rack}", "YS"))


ODDITIES: Mapping[str, Callable[[_Builder], None]] = {
    name: getattr(_Builder, name)
    for name in (
        "adapters_out",
        "cables_out",
        "managers",
        "storage_on_top",
        "storage_leaf",
        "stray_cables",
        "stray_to_core",
        "miscabled",
        "dark_leaf",
        "storage_network",
        "rail_plane",
        "plane",
    )
}
#: Two at once may be undecidable: which of two networks is meant, or what stands on top.
APART = ({"managers", "storage_on_top"}, {"storage_network", "plane"}, {"rail_plane", "plane"})


def random_fabric(seed: int) -> Meant:
    """A fabric with up to three oddities; GUIDs are in any order, but those of a second plane are higher."""
    dice = random.Random(seed)
    chosen = dice.sample(sorted(ODDITIES), dice.randint(0, 3))
    if any(both <= set(chosen) for both in APART):
        chosen = chosen[:1]
    builder = _Builder(dice)
    for name in ODDITIES:
        if name in chosen:
            ODDITIES[name](builder)
    switches = sorted({*builder.hosts, *(end for one in builder.cables for end in one)})
    dice.shuffle(switches)
    switches.sort(key=lambda name: name[0] == "Z")
    drawing = Drawing(
        {switch: ", ".join(several) for switch, several in builder.hosts.items()},
        ", ".join(f"{one}-{other}" for one, other in builder.cables),
        order=" ".join(switches),
    )
    reached = {one.split()[0] for leaf in (*builder.leaves, "STORE") for one in builder.hosts.get(leaf, ())}
    return Meant(
        drawing,
        tuple(chosen),
        {host: rack for host, rack in builder.racks.items() if host in reached},
        builder.pod_of,
        3 if builder.cores else 2,
    )


def wrong(meant: Meant, found: ScanFindings) -> str | None:
    """What is not as it was meant; None where all is."""
    if len(found.levels) != meant.levels:
        return f"{len(found.levels)} levels instead of {meant.levels}"
    known = {host: node.path for host, node in found.nodes.items() if host in meant.racks}
    if len(known) < len(meant.racks):
        return "hosts are lost"
    for level, groups in enumerate((meant.racks, meant.pods)):
        got = {host: path[level] if level < len(path) else None for host, path in known.items()}
        if _parts(got.items()) != _parts((host, groups[host]) for host in known):
            return f"level {level} is grouped otherwise"
    return None


def _parts(groups: Iterable[tuple[str, str | None]]) -> set[frozenset[str]]:
    members: dict[str | None, set[str]] = {}
    for host, group in groups:
        members.setdefault(group, set()).add(host)
    return {frozenset(one) for one in members.values()}
