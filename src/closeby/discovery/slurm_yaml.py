"""Slurm's ``topology.yaml``: a list of named topologies, each a tree, blocks, or flat."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from closeby.discovery.assembling import several, warning
from closeby.discovery.hostlists import ExpansionLimit, expand
from closeby.discovery.slurm_trees import Block, Declared, Switch
from closeby.discovery.source_files import MOST_YAML_BYTES, decode, read_yaml, shown
from closeby.errors import HostlistError, UnreadableError
from closeby.objects.reasons import Condition, Reason
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.yaml_values import YamlDocument

#: A host list, a number, or a list of them.
_Hosts = list[str | int] | str | int | None

_PLUGINS: Final = ("tree", "block", "flat", "ring", "torus3d")
_READ: Final = ("tree", "block")
_LARGEST_SIZE: Final = 10**9
_MOST_SIZES: Final = 16


class _SwitchEntry(Struct, forbid_unknown_fields=True):
    switch: str | int
    children: _Hosts = None
    nodes: _Hosts = None
    link_speed: object = None


class _TreeEntry(Struct, forbid_unknown_fields=True):
    switches: list[_SwitchEntry]


class _BlockEntry(Struct, forbid_unknown_fields=True):
    block: str | int
    nodes: _Hosts = None


class _BlocksEntry(Struct, forbid_unknown_fields=True):
    blocks: list[_BlockEntry]
    block_sizes: list[int] | int | None = None


class _Unit(Struct, forbid_unknown_fields=True):
    """One topology of the list; what it declares is read only of the one that is used."""

    topology: str | int
    cluster_default: object = None
    tree: object = None
    block: object = None
    flat: object = None
    ring: object = None
    torus3d: object = None

    @property
    def plugins(self) -> list[str]:
        """What it is, once."""
        return [one for one in _PLUGINS if getattr(self, one) not in (None, False)]


def read_topology_yaml(file: str, text: str, topology: str | None = None) -> Declared:
    """The declarations of one topology of a ``topology.yaml``: the one that is asked for, else the cluster's
    default, else the first, among those that are a tree or blocks.

    Raises:
        UnreadableError: it can't be read, there is no such topology, or none is a tree or blocks.
    """
    if len(text) > MOST_YAML_BYTES:
        message = f"is longer than {MOST_YAML_BYTES >> 20} MiB"
        raise UnreadableError(file, message, "check that it is the right file")
    reader = _Reader(file, read_yaml(file, text))
    units = reader.units()
    if not units:
        raise UnreadableError(file, "declares no topology", "check that it is the right file")
    names = [str(unit.topology) for unit in units]
    if topology is not None and topology not in names:
        raise UnreadableError(file, f"has no topology {shown(topology)}", f"it has {several(names)}")
    wanted = [index for index, name in enumerate(names) if topology in (None, name)]
    usable = [index for index in wanted if units[index].plugins[0] in _READ]
    if not usable:
        kinds = ", ".join(f"{names[index]} is {units[index].plugins[0]}" for index in wanted[:4])
        raise UnreadableError(file, f"has no tree and no blocks: {kinds}", "name one with a tree or blocks")
    chosen = next((index for index in usable if units[index].cluster_default is True), usable[0])
    others = [name for name in names if name != names[chosen]] if topology is None else []
    return reader.declared(chosen, units[chosen], others)


class _Reader:
    """Values of one file; problems come with their line."""

    def __init__(self, file: str, content: YamlDocument) -> None:
        self._file = file
        self._content = content
        self._room = ExpansionLimit()

    def units(self) -> list[_Unit]:
        """All topologies, each of one kind."""
        units = decode(self._file, self._content.value, list[_Unit], line=self._content.line)
        for index, unit in enumerate(units):
            name = self._name((index, "topology"), unit.topology)
            if len(unit.plugins) != 1:
                kinds = f"one of {', '.join(_PLUGINS)}, but is {len(unit.plugins)} of them"
                raise self._fail((index,), f"topology {name} must be {kinds}")
        return units

    def declared(self, index: int, unit: _Unit, others: Sequence[str]) -> Declared:
        """Its declarations; the ``others`` that the file has as well are reported."""
        plugin, name = unit.plugins[0], str(unit.topology)
        path, value, line = (index, plugin), getattr(unit, plugin), self._content.line
        warnings: tuple[Condition, ...] = ()
        if others:
            message = f"{self._file} declares {several(others)} as well; only {name} was read"
            found = warning(
                f"Topology/{name}", message, "name another with --topology", reason=Reason.UNSUPPORTED
            )
            warnings = (found,)
        if plugin == "tree":
            tree = decode(self._file, value, _TreeEntry, path, line=line)
            switches = [self._switch((*path, "switches", i), one) for i, one in enumerate(tree.switches)]
            return Declared(file=self._file, switches=tuple(switches), warnings=warnings)
        blocks = decode(self._file, value, _BlocksEntry, path, line=line)
        return Declared(
            file=self._file,
            blocks=tuple(self._block((*path, "blocks", i), one) for i, one in enumerate(blocks.blocks)),
            block_sizes=self._sizes((*path, "block_sizes"), blocks.block_sizes),
            warnings=warnings,
        )

    def _switch(self, path: Path, entry: _SwitchEntry) -> Switch:
        return Switch(
            name=self._name((*path, "switch"), entry.switch),
            line=self._content.line(path),
            switches=self._names((*path, "children"), entry.children),
            nodes=self._names((*path, "nodes"), entry.nodes),
            speed=None if entry.link_speed is None else str(entry.link_speed)[:40],
        )

    def _block(self, path: Path, entry: _BlockEntry) -> Block:
        return Block(
            name=self._name((*path, "block"), entry.block),
            line=self._content.line(path),
            nodes=self._names((*path, "nodes"), entry.nodes),
        )

    def _name(self, path: Path, value: str | int) -> str:
        if value == "":
            raise self._fail(path, "must be a name, but is empty", "put one there")
        return str(value)

    def _names(self, path: Path, value: _Hosts) -> tuple[str, ...]:
        found: list[str] = []
        for text in () if value is None else value if isinstance(value, list) else (value,):
            try:
                found += expand(self._name(path, text), self._room)
            except HostlistError as error:
                raise self._fail(path, f"{shown(str(text))} {error}", "write it like n[1-8,12]") from error
        return tuple(found)

    def _sizes(self, path: Path, value: list[int] | int | None) -> tuple[int, ...]:
        sizes = () if value is None else tuple(value) if isinstance(value, list) else (value,)
        if not all(0 < size <= _LARGEST_SIZE for size in sizes):
            raise self._fail(path, "must be whole numbers above zero", "write it like [18, 36, 72]")
        if len(sizes) > _MOST_SIZES:
            raise self._fail(path, f"has more than {_MOST_SIZES} sizes")
        return sizes

    def _fail(self, path: Path, message: str, remedy: str = "") -> UnreadableError:
        line = self._content.line(path)
        return UnreadableError(self._file, message, remedy, line=line, field=field_path(path))
