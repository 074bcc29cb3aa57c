"""From a fabric's graph to one tree: the domain of each host at each level, and what is torn on the way.

A level is the switches of one rank. A domain is the switches of a level that stand over the same things: the
rails of a rack, the spines over the same leaves.
"""

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from closeby.discovery.device_names import DeviceNames
from closeby.discovery.equal_switches import alike
from closeby.discovery.fabric import Cable, bandwidth_of
from closeby.discovery.labelling import Place
from closeby.discovery.ranks import Neighbours
from closeby.objects.reasons import Condition, invalid
from closeby.topology.families import listed


class Level(Struct, frozen=True):
    """The domains of one level. All are named by the lowest GUID among their switches."""

    #: Domain per switch.
    domain: Mapping[str, str]
    #: The domain of the next coarser level per domain, of the level after that where it has no cable to that
    #: one, and so on; absent where there is none.
    parent: Mapping[str, str]


class DiscoveredTree(Struct, frozen=True, kw_only=True):
    """Where the hosts on some switches are; or several trees, where these join nothing."""

    #: Closest to the hosts first.
    levels: tuple[Level, ...]
    #: By name of each host with a cable to them, with the names of switches.
    places: Mapping[str, Place]
    #: Domains that are over several others which have nothing in common.
    wide: Set[str] = frozenset()
    warnings: tuple[Condition, ...] = ()


def grow_tree(ranks: Mapping[str, int], links: Neighbours, names: DeviceNames) -> DiscoveredTree:
    """The tree of the switches that ``ranks`` holds, by the rules of ``equal_switches`` and ``ranks``.

    A switch or host that is in several domains of the next level counts for the one that most of its cables
    lead to, and that is reported. Levels above the second that join nothing are left out.
    """
    return _Grower(ranks, links, names).tree()


class _Grower:
    def __init__(self, ranks: Mapping[str, int], links: Neighbours, names: DeviceNames) -> None:
        self._ranks = ranks
        self._links = links
        self._names = names
        self._hosts = self._cables_of_hosts()
        self._warnings: list[Condition] = []
        #: Hosts by how many cables they have to each of several domains, and the one that they count for; the
        #: level of these.
        self._torn: dict[tuple[tuple[tuple[str, int], ...], str, int], list[str]] = {}

    def tree(self) -> DiscoveredTree:
        levels = self._levels()
        places = {host: self._place(host, cables, levels) for host, cables in sorted(self._hosts.items())}
        for (counts, chosen, number), hosts in self._torn.items():
            names = listed(hosts)
            remedy = "" if number else "choose the adapters that count with --adapters, if others do"
            self._several(f"Node/{hosts[0]}", names, dict(counts), chosen, remedy, many=len(hosts) > 1)
        return DiscoveredTree(levels=levels, places=places, wide=self._wide, warnings=tuple(self._warnings))

    def _cables_of_hosts(self) -> dict[str, dict[str, list[Cable]]]:
        """Per host the switches that it has cables to, with these."""
        found: dict[str, dict[str, list[Cable]]] = {}
        for switch in self._ranks:
            for peer, cables in self._links[switch].items():
                host = self._names.hosts.get(peer)
                if host is not None:
                    found.setdefault(host, {}).setdefault(switch, []).extend(cables)
        return found

    def _levels(self) -> tuple[Level, ...]:
        leaves: dict[str, set[str]] = {guid: set() for guid, rank in self._ranks.items() if rank == 1}
        for host, on in self._hosts.items():
            for switch in on.keys() & leaves.keys():
                leaves[switch].add(host)
        grouped = alike(leaves, racks=True)
        self._wide = set(grouped.wide)
        domains = [grouped.domain]
        while True:
            rank = len(domains) + 1
            below = {
                guid: {domains[-1][peer] for peer in self._links[guid] if peer in domains[-1]}
                for guid, its in self._ranks.items()
                if its == rank
            }
            if rank > 2:
                # Such as a leaf whose hosts are all off: it stands over spines as a core switch would.
                below = {guid: others for guid, others in below.items() if len(others) > 1}
            if not below:
                return tuple(
                    Level(level, self._parents(level, domains[number + 1 :]))
                    for number, level in enumerate(domains)
                )
            domains.append(alike(below, racks=False).domain)

    def _parents(self, domain: Mapping[str, str], coarser: Sequence[Mapping[str, str]]) -> dict[str, str]:
        members: dict[str, list[str]] = {}
        for guid, one in domain.items():
            members.setdefault(one, []).append(guid)
        found = {}
        for one in sorted(members):
            above = next(
                (above for upper in coarser if (above := self._cables_to(members[one], upper))),
                None,
            )
            if above is None:
                continue
            found[one] = self._chosen(above)
            if len(above) > 1:
                name = self._names.switches[one]
                self._several(f"Switch/{name}", name, _counts(above), found[one])
        return found

    def _cables_to(self, switches: Sequence[str], domain: Mapping[str, str]) -> dict[str, list[Cable]]:
        """The cables of some switches per domain of a level."""
        found: dict[str, list[Cable]] = {}
        for guid in switches:
            for peer, cables in self._links[guid].items():
                if peer in domain:
                    found.setdefault(domain[peer], []).extend(cables)
        return found

    def _chosen(self, cables: Mapping[str, list[Cable]]) -> str:
        """The domain with the most bandwidth, or with the most cables where a rate is not known; the lowest
        GUID of equal ones. A wider network than the others counts only if there is nothing else.
        """
        rates = {one: bandwidth_of(several) for one, several in cables.items()}
        known = {one: rate for one, rate in rates.items() if rate is not None}
        most = known if len(known) == len(rates) else _counts(cables)
        return min(cables, key=lambda one: (one in self._wide, -most[one], one))

    def _place(self, host: str, on: Mapping[str, list[Cable]], levels: tuple[Level, ...]) -> Place:
        """The host's domains; it hangs on the lowest level that it has a cable to."""
        number, cables = next(
            ((number, found) for number, level in enumerate(levels) if (found := _by_domain(on, level))),
            (0, {}),
        )
        if not cables:
            return ()
        domain = self._chosen(cables)
        if len(cables) > 1:
            counts = tuple(sorted(_counts(cables).items()))
            self._torn.setdefault((counts, domain, number), []).append(host)
        place: list[str | None] = []
        above: str | None = domain
        while above is not None:
            level = self._ranks[above] - 1
            place += [None] * (level - len(place))
            place.append(self._names.switches[above])
            above = levels[level].parent.get(above)
        return tuple(place)

    def _several(
        self,
        subject: str,
        name: str,
        counts: Mapping[str, int],
        chosen: str,
        remedy: str = "",
        *,
        many: bool = False,
    ) -> None:
        """Tells that something has cables to several domains: so many to each."""
        named = self._names.switches
        others = [one for one in sorted(counts) if one != chosen]
        rest = sum(counts[one] for one in others)
        if counts[chosen] > max(counts[one] for one in others) and not self._wide & counts.keys():
            have, count = ("have", "count") if many else ("has", "counts")
            message = (
                f"{name} {have} {counts[chosen]} of {counts[chosen] + rest} cables to {named[chosen]} and "
                f"{count} for it; {'the other one' if rest == 1 else f'the other {rest}'}, to "
                f"{' and '.join(named[one] for one in others)}, may be miscabled"
            )
        else:
            verb, count = ("are", "they count") if many else ("is", "it counts")
            all_of_them = " and ".join(named[one] for one in sorted(counts))
            message = (
                f"{name} {verb} on {all_of_them}, which have little else in common; "
                f"{count} for {named[chosen]}"
            )
        self._warnings.append(invalid(subject, "", message, remedy))


def _by_domain(on: Mapping[str, list[Cable]], level: Level) -> dict[str, list[Cable]]:
    """Cables to switches as cables to the domains of a level."""
    found: dict[str, list[Cable]] = {}
    for switch, cables in on.items():
        if switch in level.domain:
            found.setdefault(level.domain[switch], []).extend(cables)
    return found


def _counts(cables: Mapping[str, list[Cable]]) -> dict[str, int]:
    return {one: len(several) for one, several in cables.items()}
