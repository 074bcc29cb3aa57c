"""Places of nodes in what Slurm's files declare: a tree of switches, or blocks in a row."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.discovery.assembling import assemble, several, warning
from closeby.discovery.findings import BlockRow, Link, ScanFindings
from closeby.discovery.labelling import Place
from closeby.errors import UnreadableError
from closeby.objects.reasons import Condition
from closeby.objects.words import natural_key

#: Slurm gives up on more.
MOST_LEVELS: Final = 20
_MOST_BLOCK_LEVELS: Final = 15


class Switch(Struct, frozen=True, kw_only=True):
    """One declared switch."""

    name: str
    #: Where it stands in its file; None where that is not known.
    line: int | None = None
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    #: Slurm's LinkSpeed, a word without a unit; None when it is not given.
    speed: str | None = None


class Block(Struct, frozen=True, kw_only=True):
    """One declared base block; without nodes it only keeps a place in the row."""

    name: str
    line: int
    nodes: tuple[str, ...] = ()


class Declared(Struct, frozen=True, kw_only=True):
    """One topology of a file: either switches or blocks."""

    file: str
    switches: tuple[Switch, ...] = ()
    blocks: tuple[Block, ...] = ()
    #: Nodes of a base block, then of each level of blocks taken together.
    block_sizes: tuple[int, ...] = ()
    warnings: tuple[Condition, ...] = ()


def find(declared: Declared, keys: Sequence[str] | None = None) -> ScanFindings:
    """What a topology of Slurm says about its nodes.

    Raises:
        UnreadableError: a name is declared twice, a child is not declared, switches are in a circle, or there
            is not a switch or block, or no node.
    """
    if declared.switches:
        return _find_tree(declared, keys)
    if declared.blocks:
        return _find_blocks(declared, keys)
    raise UnreadableError(
        declared.file, "has neither a switch nor a block", "check that it is the right file"
    )


def some_node(file: str, nodes: Collection[str]) -> None:
    """Raises UnreadableError when there is not one node."""
    if not nodes:
        raise UnreadableError(file, "has not one node", "give the switches or blocks their nodes")


def _find_tree(declared: Declared, keys: Sequence[str] | None) -> ScanFindings:
    places, warnings = tree_places(declared.file, declared.switches)
    links = [
        Link(a=child, b=switch.name, speed=switch.speed)
        for switch in declared.switches
        for child in dict.fromkeys(switch.switches)
    ]
    some_node(declared.file, places)
    more = (*_odd_switches(declared.switches), *_apart(places))
    return assemble(places, keys, links=links, warnings=(*declared.warnings, *warnings, *more))


def tree_places(file: str, declared: Sequence[Switch]) -> tuple[dict[str, Place], list[Condition]]:
    """Where the nodes of all switches are, and what had to be chosen.

    Trees of unequal depth meet at their roots: what is missing is the level closest to the nodes, so that the
    nodes of a shorter branch are still together at the levels that it has.

    Raises:
        UnreadableError: a name is declared twice, a child is not declared, or switches are in a circle.
    """
    switches = _by_name(file, declared)
    heights = _heights(file, switches)
    same = _same_children(switches, heights)
    parents, warnings = _parents(switches, heights, same)
    leaves: dict[str, list[str]] = {}
    for switch in declared:
        for node in switch.nodes:
            leaves.setdefault(node, []).append(switch.name)
    chains: dict[str, Place] = {}
    places: dict[str, Place] = {}
    for node, names in leaves.items():
        leaf = min(names, key=natural_key)
        if len(set(names)) > 1:
            warnings.append(_on_several(node, "leaf", names, leaf))
        if leaf not in chains:
            chains[leaf] = _chain(leaf, parents, same)
        places[node] = chains[leaf]
    depth = max(map(len, chains.values()), default=0)
    return {node: (*(None,) * (depth - len(place)), *place) for node, place in places.items()}, warnings


def _by_name(file: str, entries: Sequence[Switch]) -> dict[str, Switch]:
    found: dict[str, Switch] = {}
    for entry in entries:
        if entry.name in found:
            first = found[entry.name].line
            message = f"switch {entry.name} is declared twice" + (f", first on line {first}" if first else "")
            raise UnreadableError(file, message, "keep one of the two", line=entry.line)
        found[entry.name] = entry
    for entry in entries:
        for child in entry.switches:
            if child not in found:
                message = f"switch {entry.name} has a child {child} that is not declared"
                raise UnreadableError(file, message, f"declare {child} too, or take it out", line=entry.line)
    return found


def _heights(file: str, switches: Mapping[str, Switch]) -> dict[str, int]:
    """How far each switch is above its farthest leaf; a leaf is 1."""
    waiting = {name: len(set(switch.switches)) for name, switch in switches.items()}
    above: dict[str, list[str]] = {}
    for name, switch in switches.items():
        for child in set(switch.switches):
            above.setdefault(child, []).append(name)
    heights: dict[str, int] = {}
    ready = [name for name, count in waiting.items() if not count]
    while ready:
        name = ready.pop()
        heights[name] = 1 + max((heights[child] for child in switches[name].switches), default=0)
        if heights[name] > MOST_LEVELS:
            message = f"switch {name} is more than {MOST_LEVELS} levels above its leaves"
            raise UnreadableError(file, message, "Slurm takes no more either", line=switches[name].line)
        for parent in above.get(name, ()):
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
    if len(heights) < len(switches):
        members = _circle({name: one.switches for name, one in switches.items() if name not in heights})
        message = f"switches form a cycle: {' has '.join(members)}"
        raise UnreadableError(file, message, "take one of them out", line=switches[members[0]].line)
    return heights


def _circle(children: Mapping[str, Sequence[str]]) -> list[str]:
    """One circle among switches that all have a child among them, its first member repeated at the end."""
    seen: dict[str, int] = {}
    name = min(children, key=natural_key)
    while name not in seen:
        seen[name] = len(seen)
        name = next(child for child in children[name] if child in children)
    return [*list(seen)[seen[name] :], name]


def _same_children(switches: Mapping[str, Switch], heights: Mapping[str, int]) -> dict[str, str]:
    """The switch that stands for each; those over the same switches are one, called by the first name."""
    same: dict[str, str] = {}
    by_children: dict[tuple[frozenset[str], frozenset[str]], str] = {}
    for name in sorted(switches, key=lambda one: (heights[one], natural_key(one))):
        switch = switches[name]
        if switch.switches:
            children = frozenset(same[child] for child in switch.switches)
            same[name] = by_children.setdefault((children, frozenset(switch.nodes)), name)
        else:
            same[name] = name
    return same


def _parents(
    switches: Mapping[str, Switch], heights: Mapping[str, int], same: Mapping[str, str]
) -> tuple[dict[str, str], list[Condition]]:
    """One parent per switch, the lowest and then first of several, and what had to be chosen."""
    above: dict[str, set[str]] = {}
    for name, switch in switches.items():
        for child in switch.switches:
            above.setdefault(same[child], set()).add(same[name])
    parents: dict[str, str] = {}
    torn: dict[tuple[str, ...], list[str]] = {}
    for child, names in above.items():
        order = sorted(names, key=lambda one: (heights[one], natural_key(one)))
        parents[child] = order[0]
        if len(order) > 1:
            torn.setdefault(tuple(order), []).append(child)
    warnings = [
        warning(
            f"Switch/{min(children, key=natural_key)}",
            f"{several(children)} {'is' if len(children) == 1 else 'are'} under {several(order)}, "
            f"and {'counts' if len(children) == 1 else 'count'} as under {order[0]}",
            "a tree has one parent per switch; declare only one",
        )
        for order, children in sorted(torn.items())
    ]
    return {name: parents[one] for name, one in same.items() if one in parents}, warnings


def _chain(leaf: str, parents: Mapping[str, str], same: Mapping[str, str]) -> Place:
    """The switches from a leaf to its root."""
    chain = [same[leaf]]
    while chain[-1] in parents:
        chain.append(parents[chain[-1]])
    return tuple(chain)


def _on_several(node: str, what: str, names: Sequence[str], chosen: str) -> Condition:
    return warning(
        f"Node/{node}",
        f"it is in more than one {what}: {several(set(names))}; it counts as in {chosen}",
        "declare it once",
    )


def _odd_switches(switches: Sequence[Switch]) -> Iterator[Condition]:
    for switch in switches:
        if switch.nodes and switch.switches:
            message = "it has both nodes and switches, which Slurm refuses; its nodes miss the level between"
            yield warning(f"Switch/{switch.name}", message, "give its nodes a leaf of their own")
        elif not switch.nodes and not switch.switches:
            yield warning(f"Switch/{switch.name}", "it has neither nodes nor switches", "give it some")


def _apart(places: Mapping[str, Place]) -> Iterator[Condition]:
    roots = {root for place in places.values() if (root := place[-1]) is not None}
    if len(roots) > 1:
        message = f"no switch joins {several(roots)}: they are networks apart"
        yield warning("Network", message, "declare a switch above them if there is one")


def _find_blocks(declared: Declared, keys: Sequence[str] | None) -> ScanFindings:
    warnings: list[Condition] = []
    seen: dict[str, Block] = {}
    where: dict[str, list[int]] = {}
    for index, block in enumerate(declared.blocks):
        if block.name in seen:
            message = f"block {block.name} is declared twice, first on line {seen[block.name].line}"
            raise UnreadableError(declared.file, message, "keep one of the two", line=block.line)
        seen[block.name] = block
        for node in block.nodes:
            where.setdefault(node, []).append(index)
    names = [block.name for block in declared.blocks]
    widths, size_warnings = _widths(declared.block_sizes)
    places: dict[str, Place] = {}
    for node, indices in where.items():
        chosen = min(indices, key=lambda index: natural_key(names[index]))
        if len(set(indices)) > 1:
            warnings.append(_on_several(node, "block", [names[index] for index in indices], names[chosen]))
        places[node] = tuple(_row(names, chosen, width) for width in (1, *widths))
    some_node(declared.file, places)
    found = (*declared.warnings, *warnings, *size_warnings)
    findings = assemble(places, keys, warnings=found)
    if not declared.block_sizes:
        return findings
    return msgspec.structs.replace(findings, blocks=BlockRow(tuple(names), declared.block_sizes))


def _widths(sizes: Sequence[int]) -> tuple[list[int], list[Condition]]:
    """How many base blocks each level above them takes together; it must be a power of two."""
    widths = []
    for size in sizes[1:]:
        width, rest = divmod(size, sizes[0])
        if rest or width < 2 or width & (width - 1) or width.bit_length() - 1 > _MOST_BLOCK_LEVELS:
            message = (
                f"block size {size} is not {sizes[0]} times a power of two, so that level does not count"
            )
            return [], [warning("Network", message, "Slurm refuses it too; correct BlockSizes")]
        widths.append(width)
    return sorted(set(widths)), []


def _row(names: Sequence[str], index: int, width: int) -> str:
    """Name of the run of ``width`` blocks that a block is in; the last run may be shorter."""
    first = index - index % width
    last = min(first + width, len(names)) - 1
    return names[first] if first == last else f"{names[first]}..{names[last]}"
