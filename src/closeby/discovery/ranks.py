"""How far switches are from hosts: 1 for a leaf, 2 for a spine, and so on.

Ranks come from all hosts, also from those whose name is unknown, so that a leaf does not pass for a spine.
They are no mere distances: a manager of the fabric may be plugged into a spine, and a leaf into a core.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Final

from closeby.discovery.fabric import Cable, DeviceKind, Fabric

Neighbours = Mapping[str, Mapping[str, list[Cable]]]

#: A switch with hosts that is above others has at most so many of theirs.
_FEW_HOSTS: Final = 0.75
#: A switch above others of its distance has at most so much of their part of cables downwards.
_FEW_DOWN: Final = 0.5


def rank_switches(
    fabric: Fabric, links: Neighbours, hosts: Set[str]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The rank of each switch that a host reaches, by GUID; and those among them that have hosts and are no
    leaves.

    ``hosts`` are the adapters of hosts. Leaves are the switches with hosts, but for those with few that stand
    over others: over leaves, or, where those have no cables to hosts, over spines that are apart. Then each
    rank is the switches with cables to lower ones, but for those that are rather above others of these.
    """
    return _Ranks(fabric, links, hosts).found()


class _Ranks:
    def __init__(self, fabric: Fabric, links: Neighbours, hosts: Set[str]) -> None:
        switches = {one.guid for one in fabric.of_kind(DeviceKind.SWITCH)}
        self._near = {
            guid: sum(len(links[guid][one]) for one in hosts & links[guid].keys()) for guid in switches
        }
        #: Cables per switch around each switch.
        self._around = {
            guid: {peer: len(cables) for peer, cables in links[guid].items() if peer in switches}
            for guid in sorted(switches)
        }
        self._degree = {guid: sum(around.values()) for guid, around in self._around.items()}
        self._with_hosts = {guid for guid in switches if self._near[guid]}

    def found(self) -> tuple[dict[str, int], tuple[str, ...]]:
        spines = self._spines()
        leaves = self._with_hosts - spines
        above = spines | self._cores(leaves)
        return self._upwards(self._with_hosts - above), tuple(sorted(above))

    def _spines(self) -> set[str]:
        """Switches with hosts over several leaves, which have most of their cables to such ones, or to those
        without hosts.
        """
        spines = {guid for guid in self._with_hosts if self._is_over(guid, self._with_hosts)}
        while True:
            upper = self._around.keys() - (self._with_hosts - spines)
            kept = {guid for guid in spines if self._is_over(guid, self._with_hosts - spines, upper)}
            if kept == spines:
                return spines
            spines = kept

    def _is_over(self, guid: str, leaves: Set[str], upper: Set[str] | None = None) -> bool:
        """Whether a switch stands over some of the leaves, and these have most of their cables to ``upper``.

        It has more cables to them than to any spines over leaves: else it is a leaf with stray cables.
        """
        below = self._around[guid].keys() & leaves
        if len(below) < 2 or not self._few([guid], below):
            return False
        if upper is None:
            return True
        upwards = sum(self._count(one, upper) for one in below)
        spines = {
            peer: found
            for peer in self._around[guid].keys() & upper - self._with_hosts
            if (found := {one: self._near[one] for one in self._around[peer].keys() & leaves})
        }
        return 2 * upwards > sum(self._degree[one] for one in below) and self._count(guid, below) > max(
            self._groups(guid, spines), default=0
        )

    def _cores(self, leaves: Set[str]) -> set[str]:
        """Of the leaves those with few hosts that join switches over different leaves, as cores join pods."""
        return {
            guid
            for guid in self._few(leaves, leaves)
            if 2 * self._count(guid, leaves) < self._degree[guid] and self._joins(guid, leaves)
        }

    def _joins(self, guid: str, leaves: Set[str]) -> bool:
        """Whether a third of the cables or more lead to switches over other hosts than the rest."""
        around = sorted(self._around[guid].keys() - leaves)
        counts = self._groups(guid, {peer: self._hosts_below(peer, guid, leaves) for peer in around})
        return 3 * (sum(counts) - max(counts, default=0)) >= max(1, sum(counts))

    def _groups(self, guid: str, peers: Mapping[str, Mapping[str, int]]) -> list[int]:
        """The cables of a switch to others that stand over the same hosts, which are given for each."""
        groups: list[Mapping[str, int]] = []
        counts: list[int] = []
        for peer, below in sorted(peers.items()):
            alike = next((at for at, group in enumerate(groups) if _overlap(below, group)), len(groups))
            if alike == len(groups) and below:
                groups.append(below)
                counts.append(0)
            if below:
                counts[alike] += self._around[guid][peer]
        return counts

    def _hosts_below(self, guid: str, above: str, leaves: Set[str]) -> dict[str, int]:
        """The nearest leaves around a switch, but not through the one above, with their numbers of hosts."""
        seen = {guid, above}
        edge = [guid]
        while edge:
            edge = sorted({peer for one in edge for peer in self._around[one]} - seen)
            if found := {peer: self._near[peer] for peer in edge if peer in leaves}:
                return found
            seen.update(edge)
        return {}

    def _upwards(self, leaves: Iterable[str]) -> dict[str, int]:
        ranks = dict.fromkeys(sorted(leaves), 1)
        rank = 1
        edge = list(ranks)
        while edge:
            rank += 1
            next_ones = {peer: 0.0 for guid in edge for peer in self._around[guid] if peer not in ranks}
            for guid in next_ones:
                next_ones[guid] = self._count(guid, ranks.keys()) / self._degree[guid]
            edge = sorted(guid for guid in next_ones if not self._is_above(guid, next_ones))
            ranks.update(dict.fromkeys(edge, rank))
        return ranks

    def _is_above(self, guid: str, parts: Mapping[str, float]) -> bool:
        """Whether most cables of a switch go to several others of which a larger part goes down."""
        below = {
            peer for peer in self._around[guid] if peer in parts and _FEW_DOWN * parts[peer] >= parts[guid]
        }
        return len(below) > 1 and 2 * self._count(guid, below) > self._degree[guid]

    def _count(self, guid: str, peers: Set[str]) -> int:
        """Cables to some switches."""
        return sum(count for peer, count in self._around[guid].items() if peer in peers)

    def _few(self, guids: Iterable[str], others: Set[str]) -> set[str]:
        """Those with few hosts, compared with the mean of others and with their other cables."""
        near = sum(self._near[one] for one in others)
        around = sum(self._degree[one] for one in others)
        return {
            guid
            for guid in guids
            if self._near[guid] * len(others) <= _FEW_HOSTS * near
            and self._near[guid] * around < near * self._degree[guid]
        }


def _overlap(one: Mapping[str, int], other: Mapping[str, int]) -> bool:
    """Whether more than half of the hosts on the smaller of two sets of leaves are on the other, too."""
    common = sum(one[guid] for guid in one.keys() & other.keys())
    return 2 * common > min(sum(one.values()), sum(other.values()))
