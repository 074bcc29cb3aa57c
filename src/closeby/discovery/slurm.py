"""Slurm's ``topology.conf``: switches of the tree plugin, or blocks of the block plugin, one a line."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from closeby.discovery.findings import ScanFindings
from closeby.discovery.hostlists import ExpansionLimit, expand
from closeby.discovery.slurm_trees import Block, Declared, Switch, find
from closeby.discovery.slurm_yaml import read_topology_yaml
from closeby.discovery.source_files import lines_of, shown
from closeby.errors import HostlistError, UnreadableError

_COMMENT: Final = re.compile(r"(?<!\\)#.*")
_PAIR: Final = re.compile(r'\s*([A-Za-z][A-Za-z0-9_]*)\s*=\s*(?:"([^"]*)"|([^\s"]*))(?=\s|$)')
_YAML: Final = re.compile(r"\A(?:\s|#[^\n]*\n|---)*-\s+topology\s*:")
_SWITCH_KEYS: Final = ("switchname", "switches", "nodes", "linkspeed")
_BLOCK_KEYS: Final = ("blockname", "nodes")
_SIZES_KEYS: Final = ("blocksizes", "blocklevels")
_SPELLED: Final = {
    "switchname": "SwitchName",
    "switches": "Switches",
    "nodes": "Nodes",
    "linkspeed": "LinkSpeed",
    "blockname": "BlockName",
    "blocksizes": "BlockSizes",
    "blocklevels": "BlockLevels",
}
_FORM: Final = "write it like SwitchName=leaf1 Nodes=n[1-8] or BlockName=b1 Nodes=n[1-8]"
_MOST_SIZES: Final = 16
#: Lines that backslashes may join to one.
_MOST_JOINED: Final = 10_000


def read_slurm(
    file: str, text: str, keys: Sequence[str] | None = None, topology: str | None = None
) -> ScanFindings:
    """What a ``topology.conf`` says, or a ``topology.yaml`` if the file's name ends so or it begins like one.

    ``topology`` names the one of several that a ``topology.yaml`` may hold.

    Raises:
        UnreadableError: it can't be read, or makes no sense (see ``slurm_trees.find``).
    """
    if file.endswith((".yaml", ".yml")) or _YAML.search(text):
        return find(read_topology_yaml(file, text, topology), keys)
    return find(read_topology_conf(file, text), keys)


def read_topology_conf(file: str, text: str) -> Declared:
    """The declarations of a ``topology.conf``, in their order.

    Keywords are read in any case; ``#`` begins a comment, and a backslash at its end continues a line.

    Raises:
        UnreadableError: a line can't be read, with its number.
    """
    room = ExpansionLimit()
    switches: list[Switch] = []
    blocks: list[Block] = []
    sizes: tuple[int, ...] = ()
    for line, content in _lines(file, text):
        pairs = _pairs(file, line, content)
        if "switchname" in pairs:
            _only(file, line, pairs, _SWITCH_KEYS)
            switches.append(
                Switch(
                    name=_name(file, line, pairs, "switchname"),
                    line=line,
                    switches=_names(file, line, pairs, "switches", room),
                    nodes=_names(file, line, pairs, "nodes", room),
                    speed=pairs.get("linkspeed") or None,
                )
            )
        elif "blockname" in pairs:
            _only(file, line, pairs, _BLOCK_KEYS)
            name = _name(file, line, pairs, "blockname")
            blocks.append(Block(name=name, line=line, nodes=_names(file, line, pairs, "nodes", room)))
        else:
            _only(file, line, pairs, _SIZES_KEYS)
            sizes = _sizes(file, line, next(iter(pairs.values())))
    if switches and blocks:
        message = "declares both switches and blocks, and Slurm reads only one kind"
        raise UnreadableError(file, message, "put them in two files", line=blocks[0].line)
    return Declared(file=file, switches=tuple(switches), blocks=tuple(blocks), block_sizes=sizes)


def _lines(file: str, text: str) -> Iterator[tuple[int, str]]:
    """Lines with content, each with the number of its first one; continued ones are joined."""
    begun, first = "", 0
    for number, raw in lines_of(text):
        content = _COMMENT.sub("", raw).rstrip()
        if not begun:
            first = number
        if number - first > _MOST_JOINED:
            message = f"goes on over more than {_MOST_JOINED:,} lines"
            raise UnreadableError(file, message, "check that it is the right file", line=first)
        if content.endswith("\\"):
            # As Slurm does: a list may go on in the middle, and there is no space unless it is written.
            begun += content[:-1]
            continue
        content = begun + content
        begun = ""
        if content.strip():
            yield first, content
    if begun.strip():
        yield first, begun


def _pairs(file: str, line: int, content: str) -> dict[str, str]:
    """``keyword=value`` pairs by keyword in lower case."""
    pairs: dict[str, str] = {}
    end = 0
    content = content.rstrip()
    while end < len(content):
        found = _PAIR.match(content, end)
        if found is None:
            if content[end:].lstrip().lower().startswith("include"):
                raise UnreadableError(file, "includes another file", "put its lines here", line=line)
            message = f"{shown(content[end:].strip())} is not keyword=value"
            raise UnreadableError(file, message, _FORM, line=line)
        key = found[1].lower()
        if key in pairs:
            raise UnreadableError(file, f"{found[1]} is given twice", "keep one of the two", line=line)
        pairs[key] = found[2] if found[2] is not None else found[3]
        end = found.end()
    return pairs


def _only(file: str, line: int, pairs: Mapping[str, str], known: tuple[str, ...]) -> None:
    for key in pairs:
        if key not in known:
            message = f"{shown(_SPELLED.get(key, key))} is not known here"
            remedy = f"known keywords: {', '.join(_SPELLED[one] for one in known)}; {_FORM}"
            raise UnreadableError(file, message, remedy, line=line)


def _name(file: str, line: int, pairs: Mapping[str, str], key: str) -> str:
    name = pairs[key]
    if not name or re.search(r"[\[\],\s]", name):
        message = f"{_SPELLED[key]} {shown(name)} is not a single name"
        raise UnreadableError(file, message, "declare one a line", line=line)
    return name


def _names(file: str, line: int, pairs: Mapping[str, str], key: str, room: ExpansionLimit) -> tuple[str, ...]:
    try:
        return tuple(expand(pairs.get(key, ""), room))
    except HostlistError as error:
        message = f"{_SPELLED[key]}={shown(pairs[key])} {error}"
        raise UnreadableError(file, message, "write it like n[1-8,12]", line=line) from error


def _sizes(file: str, line: int, text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if len(parts) > _MOST_SIZES or not all(re.fullmatch(r"[1-9][0-9]{0,8}", part) for part in parts):
        message = f"BlockSizes={shown(text)} is not a list of whole numbers above zero"
        raise UnreadableError(file, message, "write it like 18,36,72", line=line)
    return tuple(int(part) for part in parts)
