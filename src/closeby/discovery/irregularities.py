"""What is odd about a fabric as a whole: cables that no tree holds, leaves without spines, nameless hosts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

from closeby.discovery.device_names import DeviceNames
from closeby.discovery.fabric import DeviceKind, Fabric
from closeby.discovery.ranks import Neighbours
from closeby.discovery.trees import Level
from closeby.objects.reasons import Condition, invalid
from closeby.objects.words import natural_key
from closeby.topology.families import listed

_SWITCHES: Final = {1: "leaves", 2: "spines"}
#: What labels mean where the switches of the topmost level are cabled among each other.
_GROUPS: Final = "this looks like a dragonfly+: labels name the groups, but not how near two groups are"
_MESH: Final = (
    "this is a dragonfly, torus or mesh and not a tree: labels name the switch of a node, but not how near "
    "two switches are"
)


def uneven(
    ranks: Mapping[str, int],
    spines: Sequence[str],
    levels: Sequence[Level],
    wide: Set[str],
    links: Neighbours,
    names: DeviceNames,
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
    yield from _side_by_side(ranks, links, named)
    above = levels[0].parent.keys() | wide
    apart = [one for one in sorted(set(levels[0].domain.values()) - above) if len(levels) > 1]
    if apart:
        have = "has" if len(apart) == 1 else "have"
        yield _odd(
            named[apart[0]],
            f"{listed(named[one] for one in apart)} {have} no cable to a spine, as other leaves have",
        )


def unknown(
    fabric: Fabric, ranks: Mapping[str, int], links: Neighbours, names: DeviceNames
) -> Iterator[Condition]:
    """Switches that no host reaches, and adapters whose host is unknown."""
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
    straight: dict[tuple[int, str], list[str]] = {}
    for level in levels:
        for domain, parent in sorted(level.parent.items()):
            if ranks[parent] > ranks[domain] + 1:
                straight.setdefault((ranks[domain], parent), []).append(named[domain])
    for (rank, parent), below in straight.items():
        one = len(below) == 1
        between = ranks[parent] - rank - 1
        past = "the level" if between == 1 else f"the {between} levels"
        yield _odd(
            below[0],
            f"{listed(below)} {'is' if one else 'are'} cabled straight to {named[parent]}, past {past} "
            f"between them, and {'gets' if one else 'get'} no label there",
        )


def _side_by_side(
    ranks: Mapping[str, int], links: Neighbours, named: Mapping[str, str]
) -> Iterator[Condition]:
    """Cables between switches of one level: one warning a level."""
    pairs: dict[int, list[tuple[str, str]]] = {}
    for guid in sorted(ranks):
        for peer in sorted(links[guid]):
            if guid < peer and ranks.get(peer) == ranks[guid]:
                pairs.setdefault(ranks[guid], []).append((guid, peer))
    sizes = Counter(ranks.values())
    for rank, several in sorted(pairs.items()):
        one, other = several[0]
        if len(several) == 1:
            yield _odd(
                named[one],
                f"{named[one]} and {named[other]} are of one level and have a cable between them, which no "
                "tree holds",
            )
            continue
        switches = {guid for pair in several for guid in pair}
        cables = sum(len(links[one][other]) for one, other in several)
        kind = _SWITCHES.get(rank, f"switches of level {rank}")
        message = (
            f"{len(switches)} of {sizes[rank]} {kind} are cabled among each other, with {cables} cables, "
            f"which no tree holds: such as {named[one]} and {named[other]}"
        )
        if rank == max(sizes) and 2 * len(switches) > sizes[rank]:
            message += f"; {_MESH if rank == 1 else _GROUPS}"
        yield _odd(named[one], message)


def _odd(name: str, message: str, remedy: str = "") -> Condition:
    return invalid(f"Switch/{name}", "", message, remedy)
