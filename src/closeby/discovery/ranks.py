"""How far switches are from hosts: 1 for a leaf, 2 for a spine, and so on.

Ranks come from all hosts, also from those whose name nobody knows, so that a leaf does not pass for a spine.
"""

from collections.abc import Iterable, Mapping, Set

from closeby.discovery.fabric import Cable, DeviceKind, Fabric

Neighbours = Mapping[str, Mapping[str, list[Cable]]]


def rank_switches(
    fabric: Fabric, links: Neighbours, hosts: Set[str]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The rank of each switch that a host reaches, by GUID; and the spines among them that have hosts.

    ``hosts`` are the adapters of hosts. A switch with a few hosts between switches with many is a spine,
    where somebody plugged in a manager of the fabric or a gateway.
    """
    switches = {one.guid for one in fabric.of_kind(DeviceKind.SWITCH)}
    near = {guid: len(hosts & links[guid].keys()) for guid in switches}
    leaves = {guid for guid in switches if near[guid]}
    around = {guid: {peer for peer in links[guid] if peer in switches} for guid in switches}
    spines = {guid for guid in leaves if _is_spine(guid, around, near, leaves)}
    return _distances(leaves - spines, around), tuple(sorted(spines))


def _is_spine(guid: str, around: Mapping[str, Set[str]], near: Mapping[str, int], leaves: Set[str]) -> bool:
    """At least two leaves around it that are not linked with each other, with twice as many hosts or more."""
    peers = around[guid] & leaves
    if len(peers) < 2 or any(around[peer] & peers for peer in peers):
        return False
    return 2 * near[guid] * len(peers) <= sum(near[peer] for peer in peers)


def _distances(leaves: Iterable[str], around: Mapping[str, Set[str]]) -> dict[str, int]:
    ranks = dict.fromkeys(sorted(leaves), 1)
    edge = list(ranks)
    while edge:
        nearer, edge = edge, []
        for guid in nearer:
            for peer in sorted(around[guid]):
                if peer not in ranks:
                    ranks[peer] = ranks[guid] + 1
                    edge.append(peer)
    return ranks
