"""Slurm's ``topology.yaml``: a list of named topologies, each a tree, blocks, or flat."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from closeby.discovery.assembling import several, warning
from closeby.discovery.hostlists import Room, expand
from closeby.discovery.slurm_trees import Block, Declared, Switch
from closeby.discovery.unreadable import MOST_YAML_BYTES, kind, read_yaml, shown
from closeby.errors import HostlistError, UnreadableError
from closeby.objects.reasons import Condition, Reason
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.yaml_values import YamlDocument

T = TypeVar("T")

_PLUGINS: Final = ("tree", "block", "flat", "ring", "torus3d")
_READ: Final = ("tree", "block")
_UNIT_KEYS: Final = ("topology", "cluster_default", *_PLUGINS)
_LARGEST_SIZE: Final = 10**9
_MOST_SIZES: Final = 16


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
    units = reader.entries((), reader.content.value, _UNIT_KEYS, lambda path, unit: _Unit(reader, path, unit))
    if not units:
        raise UnreadableError(file, "declares no topology", "check that it is the right file")
    names = [unit.name for unit in units]
    if topology is not None and topology not in names:
        raise UnreadableError(file, f"has no topology {shown(topology)}", f"it has {several(names)}")
    wanted = [unit for unit in units if topology in (None, unit.name)]
    usable = [unit for unit in wanted if unit.plugin in _READ]
    if not usable:
        kinds = ", ".join(f"{unit.name} is {unit.plugin}" for unit in wanted[:4])
        raise UnreadableError(file, f"has no tree and no blocks: {kinds}", "name one with a tree or blocks")
    chosen = next((unit for unit in usable if unit.default), usable[0])
    return chosen.declared([name for name in names if name != chosen.name] if topology is None else [])


class _Reader:
    """Values of one file; what is wrong is said with the line."""

    def __init__(self, file: str, content: YamlDocument) -> None:
        self.file = file
        self.content = content
        self.room = Room()

    def fail(self, path: Path, message: str, remedy: str = "") -> UnreadableError:
        return UnreadableError(
            self.file, message, remedy, line=self.content.line(path), field=field_path(path)
        )

    def entries(
        self,
        path: Path,
        value: object,
        known: Sequence[str],
        read: Callable[[Path, Mapping[str, object]], T],
    ) -> list[T]:
        if not isinstance(value, list):
            raise self.fail(path, f"must be a list, but is {kind(value)}", "begin each entry with a dash")
        found = []
        for index, entry in enumerate(value):
            place = (*path, index)
            if not isinstance(entry, dict):
                raise self.fail(place, f"must be a mapping, but is {kind(entry)}")
            self.only(place, entry, known)
            found.append(read(place, entry))
        return found

    def only(self, path: Path, entry: Mapping[str, object], known: Sequence[str]) -> None:
        for key in entry:
            if key not in known:
                raise self.fail((*path, key), "is not a known field", f"known are {', '.join(known)}")

    def mapping(self, path: Path, value: object, known: Sequence[str]) -> Mapping[str, object]:
        if not isinstance(value, dict):
            raise self.fail(path, f"must be a mapping, but is {kind(value)}")
        self.only(path, value, known)
        return value

    def name(self, path: Path, value: object) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value:
            raise self.fail(path, f"must be a name, but is {kind(value)}", "put it in quotes")
        return value

    def names(self, path: Path, value: object) -> tuple[str, ...]:
        if value is None:
            return ()
        texts = value if isinstance(value, list) else [value]
        found: list[str] = []
        for text in texts:
            try:
                found += expand(self.name(path, text), self.room)
            except HostlistError as error:
                raise self.fail(path, f"{shown(str(text))} {error}", "write it like n[1-8,12]") from error
        return tuple(found)


class _Unit:
    """One topology of the list."""

    def __init__(self, reader: _Reader, path: Path, unit: Mapping[str, object]) -> None:
        self._reader = reader
        self._path = path
        self._unit = unit
        self.name = reader.name((*path, "topology"), unit.get("topology"))
        self.default = unit.get("cluster_default") is True
        plugins = [one for one in _PLUGINS if unit.get(one) not in (None, False)]
        if len(plugins) != 1:
            message = (
                f"topology {self.name} must be one of {', '.join(_PLUGINS)}, but is {len(plugins)} of them"
            )
            raise reader.fail(path, message)
        self.plugin = plugins[0]

    def declared(self, others: Sequence[str]) -> Declared:
        """Its declarations; the ``others`` that the file has as well are reported."""
        reader, path = self._reader, (*self._path, self.plugin)
        content = self._unit[self.plugin]
        warnings: tuple[Condition, ...] = ()
        if others:
            message = f"{reader.file} declares {several(others)} as well; only {self.name} was read"
            found = warning(f"Topology/{self.name}", message, "name another", reason=Reason.UNSUPPORTED)
            warnings = (found,)
        if self.plugin == "tree":
            tree = reader.mapping(path, content, ("switches",))
            at = (*path, "switches")
            known = ("switch", "children", "nodes", "link_speed")
            switches = reader.entries(at, tree.get("switches"), known, self._switch)
            return Declared(file=reader.file, switches=tuple(switches), warnings=warnings)
        blocks = reader.mapping(path, content, ("block_sizes", "blocks"))
        at = (*path, "blocks")
        return Declared(
            file=reader.file,
            blocks=tuple(reader.entries(at, blocks.get("blocks"), ("block", "nodes"), self._block)),
            block_sizes=self._sizes((*path, "block_sizes"), blocks.get("block_sizes")),
            warnings=warnings,
        )

    def _switch(self, path: Path, entry: Mapping[str, object]) -> Switch:
        reader = self._reader
        speed = entry.get("link_speed")
        return Switch(
            name=reader.name((*path, "switch"), entry.get("switch")),
            line=reader.content.line(path),
            switches=reader.names((*path, "children"), entry.get("children")),
            nodes=reader.names((*path, "nodes"), entry.get("nodes")),
            speed=None if speed is None else str(speed)[:40],
        )

    def _block(self, path: Path, entry: Mapping[str, object]) -> Block:
        reader = self._reader
        return Block(
            name=reader.name((*path, "block"), entry.get("block")),
            line=reader.content.line(path),
            nodes=reader.names((*path, "nodes"), entry.get("nodes")),
        )

    def _sizes(self, path: Path, value: object) -> tuple[int, ...]:
        sizes = [] if value is None else value if isinstance(value, list) else [value]
        found = []
        for size in sizes:
            if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= _LARGEST_SIZE:
                raise self._reader.fail(
                    path, "must be whole numbers above zero", "write it like [18, 36, 72]"
                )
            found.append(size)
        if len(found) > _MOST_SIZES:
            raise self._reader.fail(path, f"has more than {_MOST_SIZES} sizes")
        return tuple(found)
