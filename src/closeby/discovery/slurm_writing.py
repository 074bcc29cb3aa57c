"""Findings as Slurm's files: ``topology.conf`` of the tree or the block plugin, and ``topology.yaml``."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from closeby.discovery.assembling import has_domains
from closeby.discovery.findings import ScanFindings
from closeby.discovery.hostlists import compact, writable
from closeby.objects.words import natural_key

#: Slurm takes no longer names.
_LONGEST: Final = 64
#: Places that are kept free in a row of blocks, so that groups begin where they should, at most.
_MOST_PLACEHOLDERS: Final = 4096

#: A switch by its level and name; equal names at two levels are two switches.
_Id = tuple[int, str]


class SwitchLine(NamedTuple):
    """A switch as Slurm is to know it; ``named`` is what the findings call it, if that is something else."""

    name: str
    named: str | None
    switches: tuple[str, ...]
    nodes: tuple[str, ...]


class BlockLine(NamedTuple):
    """A base block; without nodes it only keeps a place."""

    name: str
    named: str | None
    nodes: tuple[str, ...]


class Blocks(NamedTuple):
    """A row of blocks, and the nodes of a base block and of larger ones."""

    lines: tuple[BlockLine, ...]
    sizes: tuple[int, ...]


def slurm_tree_text(findings: ScanFindings) -> str:
    """A ``topology.conf`` for the tree plugin, coarsest switches first."""
    lines = []
    for switch in switch_lines(findings):
        lines += [f"# {switch.name}={_comment(switch.named)}"] if switch.named is not None else []
        below = (
            f"Switches={compact(switch.switches)}" if switch.switches else f"Nodes={compact(switch.nodes)}"
        )
        lines.append(f"SwitchName={switch.name} {below}")
    return _text(lines, _left_out(findings, block=False))


def slurm_block_text(findings: ScanFindings) -> str:
    """A ``topology.conf`` for the block plugin: a block per accelerator domain, else per closest switch."""
    blocks = block_lines(findings)
    lines = []
    for block in blocks.lines:
        lines += [f"# {block.name}={_comment(block.named)}"] if block.named is not None else []
        lines.append(f"BlockName={block.name}" + (f" Nodes={compact(block.nodes)}" if block.nodes else ""))
    if blocks.sizes:
        lines.append(f"BlockSizes={','.join(map(str, blocks.sizes))}")
    return _text(lines, _left_out(findings, block=True))


def slurm_yaml_text(findings: ScanFindings) -> str:
    """A ``topology.yaml`` with the tree, if there are switches, and the blocks, if there are any."""
    units: list[dict[str, object]] = []
    switches = [
        {"switch": one.name, "children": compact(one.switches)}
        if one.switches
        else {"switch": one.name, "nodes": compact(one.nodes)}
        for one in switch_lines(findings)
    ]
    if switches:
        units.append({"topology": "tree", "cluster_default": True, "tree": {"switches": switches}})
    blocks = block_lines(findings)
    if blocks.lines:
        rows = [
            {"block": one.name, "nodes": compact(one.nodes)} if one.nodes else {"block": one.name}
            for one in blocks.lines
        ]
        content = {"block_sizes": list(blocks.sizes), "blocks": rows}
        units.append({"topology": "block", "cluster_default": not switches, "block": content})
    if not units:
        units.append({"topology": "flat", "cluster_default": True, "flat": True})
    return msgspec.yaml.encode(units).decode()


def switch_lines(findings: ScanFindings) -> list[SwitchLine]:
    """The tree of switches, coarsest first. A switch has either switches or nodes, as Slurm wants it: nodes
    that hang on a switch with switches get a leaf of their own.
    """
    first = int(has_domains(findings))
    nodes: dict[_Id, list[str]] = {}
    parents: dict[_Id, set[_Id]] = {}
    for name, node in findings.nodes.items():
        if not writable(name):
            continue
        chain = [(level, switch) for level, switch in enumerate(node.path[first:]) if switch is not None]
        for index, one in enumerate(chain):
            parents.setdefault(one, set()).update(chain[index + 1 : index + 2])
        if chain:
            nodes.setdefault(chain[0], []).append(name)
    children: dict[_Id, list[_Id]] = {}
    switches = []
    for child in sorted(parents, key=_order):
        # Nothing is left of one all of whose switches are under another one too.
        if child in nodes or child in children:
            switches.append(child)
            if parents[child]:
                children.setdefault(min(parents[child], key=_order), []).append(child)
    names = _names(switches)
    taken = set(names.values())
    lines = []
    for one in sorted(switches, key=lambda one: (-one[0], natural_key(one[1]))):
        named = None if names[one] == one[1] else one[1]
        below = [names[child] for child in children.get(one, ())]
        own = tuple(nodes.get(one, ()))
        leaves = []
        if below and own:
            leaf = _free(f"{names[one]}.leaf", taken)
            below.append(leaf)
            leaves.append(SwitchLine(leaf, None, (), own))
            own = ()
        lines += [SwitchLine(names[one], named, tuple(below), own), *leaves]
    return lines


def block_lines(findings: ScanFindings) -> Blocks:
    """Blocks in an order in which neighbours are near, or as Slurm had them.

    Where blocks are in groups of several under the next level, each group gets a power of two of places, so
    that Slurm's larger blocks are these groups.
    """
    groups: dict[str | None, dict[str, list[str]]] = {}
    seen: dict[str, str | None] = {}
    for name, node in findings.nodes.items():
        if not node.path or node.path[0] is None or not writable(name):
            continue
        block = node.path[0]
        above = next((one for one in node.path[1:] if one is not None), None)
        group = seen.setdefault(block, above)
        groups.setdefault(group, {}).setdefault(block, []).append(name)
    if not groups:
        return Blocks((), ())
    declared = findings.blocks
    if declared is not UNSET and set(seen) <= set(declared.names):
        held = {block: tuple(nodes) for group in groups.values() for block, nodes in group.items()}
        row = [BlockLine(name, None, held.get(name, ())) for name in declared.names]
        return Blocks(tuple(row), declared.sizes)
    order = sorted(groups, key=lambda one: (one is None, natural_key(one or "")))
    size = min(len(members) for group in groups.values() for members in group.values())
    widest = max(map(len, groups.values()))
    width = 1 << (widest - 1).bit_length()
    grouped = len(groups) > 1 and widest > 1 and len(groups) * width <= _MOST_PLACEHOLDERS
    names = _names(
        [(0, block) for group in order for block in sorted(groups[group], key=natural_key)], "block"
    )
    taken = set(names.values())
    lines: list[BlockLine] = []
    for group in order:
        for block in sorted(groups[group], key=natural_key):
            name = names[0, block]
            lines.append(BlockLine(name, None if name == block else block, tuple(groups[group][block])))
        missing = width - len(groups[group]) if grouped and group is not order[-1] else 0
        lines += [
            BlockLine(_free(f"empty{len(lines) + one + 1:04d}", taken), None, ()) for one in range(missing)
        ]
    return Blocks(tuple(lines), (size, size * width) if grouped else (size,))


def _order(one: _Id) -> tuple[int, object]:
    return one[0], natural_key(one[1])


def _names(switches: Sequence[_Id], stem: str = "switch") -> dict[_Id, str]:
    """A name of its own for each: the one it has if Slurm takes it and no other has it, else a number."""
    names: dict[_Id, str] = {}
    taken = {name for _, name in switches if _usable(name)}
    used: set[str] = set()
    for one in switches:
        if _usable(one[1]) and one[1] not in used:
            names[one] = one[1]
        else:
            count = 1 + sum(1 for level, _ in names if level == one[0])
            names[one] = _free(f"{stem}.{one[0] + 1}.{count}", taken)
        used.add(names[one])
        taken.add(names[one])
    return names


def _usable(name: str) -> bool:
    return len(name) <= _LONGEST and writable(name) and "\\" not in name


def _free(name: str, taken: set[str]) -> str:
    """The name, made longer until nothing else has it."""
    while name in taken:
        name += ".1"
    taken.add(name)
    return name


def _left_out(findings: ScanFindings, *, block: bool) -> Iterator[str]:
    """Nodes that no line holds, as comments."""
    first = int(has_domains(findings))
    placed: Mapping[str, bool] = {
        name: bool(node.path and node.path[0] is not None)
        if block
        else any(one is not None for one in node.path[first:])
        for name, node in findings.nodes.items()
    }
    odd = [name for name in placed if not writable(name)]
    lost = [name for name, known in placed.items() if not known and writable(name)]
    if lost:
        yield f"# not known where: {compact(lost)}"
    if odd:
        yield f"# left out, since their names can't stand here: {len(odd)} nodes"


def _comment(text: str | None) -> str:
    """Text that can't leave its comment."""
    return "".join(one if one.isprintable() and one != "\\" else "?" for one in text or "")


def _text(lines: Sequence[str], comments: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in (*lines, *comments))
