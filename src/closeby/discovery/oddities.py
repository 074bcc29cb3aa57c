"""What is odd about a fabric as a whole: cables that no tree holds, leaves without spines, nameless hosts."""

from collections.abc import Iterator, Mapping, Sequence, Set

from closeby.discovery.device_names import Names
from closeby.discovery.fabric import DeviceKind, Fabric
from closeby.discovery.ranks import Neighbours
from closeby.discovery.trees import Level
from closeby.objects.reasons import Condition, Reason
from closeby.topology.natural import natural_key
from closeby.topology.node_groups import listed


def uneven(
    ranks: Mapping[str, int],
    spines: Sequence[str],
    levels: Sequence[Level],
    wide: Set[str],
    links: Neighbours,
    names: Names,
) -> Iterator[Condition]:
    """What does not fit in a tree; ``spines`` are those with hosts, ``wide`` the wider networks."""
    named = names.switches
    for rank in sorted({ranks[guid] for guid in spines}):
        equal = [named[guid] for guid in spines if ranks[guid] == rank]
        what = "leaves" if rank == 2 else "switches that stand over leaves"
        taken = "is taken for a spine" if len(equal) == 1 else "are taken for spines"
        have, stand = ("has", "stands") if len(equal) == 1 else ("have", "stand")
        yield _odd(equal[0], f"{listed(equal)} {have} hosts but {stand} over {what}, and {taken}")
    yield from _skipped(ranks, levels, named)
    for one, other in _side_by_side(ranks, links):
        yield _odd(
            named[one],
            f"{named[one]} and {named[other]} are of one level and have a cable between them, which no "
            "tree holds",
        )
    for domain in sorted(set(levels[0].domain.values())):
        if len(levels) > 1 and domain not in levels[0].parent and domain not in wide:
            yield _odd(named[domain], f"{named[domain]} has no cable to a spine, as other leaves have")


def unknown(fabric: Fabric, ranks: Mapping[str, int], links: Neighbours, names: Names) -> Iterator[Condition]:
    """Switches that no host reaches, and adapters whose host nobody tells."""
    named = names.switches
    silent = [one.guid for one in fabric.of_kind(DeviceKind.SWITCH) if one.guid not in ranks]
    if silent:
        shown = listed(named[guid] for guid in silent)
        yield _odd(named[silent[0]], f"no host is reached from {shown}, which count for nothing")
    unnamed: dict[str, list[str]] = {}
    for adapter in sorted(names.unnamed):
        for switch in links[adapter]:
            unnamed.setdefault(switch, []).append(adapter)
    for switch in sorted(unnamed, key=lambda guid: natural_key(named.get(guid, guid))):
        name = named.get(switch, switch)
        cards = ", ".join(unnamed[switch])
        yield _odd(
            name,
            f"no host is known for {len(unnamed[switch])} of the adapters on {name}: {cards}",
            'name them in a file of lines such as 0xGUID "node-1", and give it with --map',
        )


def _skipped(
    ranks: Mapping[str, int], levels: Sequence[Level], named: Mapping[str, str]
) -> Iterator[Condition]:
    for level in levels:
        for domain, parent in sorted(level.parent.items()):
            between = ranks[parent] - ranks[domain] - 1
            if between:
                past = "the level" if between == 1 else f"the {between} levels"
                yield _odd(
                    named[domain],
                    f"{named[domain]} is cabled straight to {named[parent]}, past {past} between them, and "
                    "gets no label there",
                )


def _side_by_side(ranks: Mapping[str, int], links: Neighbours) -> Iterator[tuple[str, str]]:
    for guid in sorted(ranks):
        for peer in sorted(links[guid]):
            if guid < peer and ranks.get(peer) == ranks[guid]:
                yield guid, peer


def _odd(name: str, message: str, remedy: str = "") -> Condition:
    return Condition(reason=Reason.INVALID_SPEC, object=f"Switch/{name}", message=message, remedy=remedy)
