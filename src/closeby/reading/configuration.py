"""The scheduler's configuration file: which plugins take part, and with what arguments.

Two shapes are read: a mapping with ``schedulerName`` and ``plugins``, and Volcano's tiers, either under
``tiers`` or as the bare list that begins with ``- plugins:`` (Volcano network-topology proposal). Everything
remembers its line, so that an error found later can point at it.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, TypeVar

import msgspec
import yaml
from msgspec import Struct

from closeby.errors import ConfigurationError
from closeby.objects.durations import parse_duration
from closeby.objects.problems import Problem

#: Seconds after which the first gang that does not fit keeps nodes free, unless the configuration says it.
#: What is kept free is lost to all others meanwhile, so by default it is the last resort: late enough to cost
#: next to nothing where gangs get their turn anyhow, early enough that none waits indefinitely.
RESERVE_AFTER: Final = 4 * 3600.0
#: Seconds after which a pod whose AppGroup is not known is scheduled without it, unless the configuration
#: says it: an API server tells of a new kind about a second after it serves it.
UNKNOWN_APP_GROUP_DELAY: Final = 3.0
#: What the mapping may hold.
_KEYS: Final = (
    "schedulerName",
    "reserveAfter",
    "trustGroupPriority",
    "networkTopologyNamespaces",
    "tenantNetworkTopologies",
    "unknownAppGroupDelay",
    "plugins",
    "tiers",
    "actions",
)
#: Of a plugin: beyond all sense, and totals stay finite below it.
GREATEST_WEIGHT: Final = 1_000_000_000
#: What Kubernetes takes as the name of a namespace (RFC 1123 label).
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)


class PluginEntry(Struct, frozen=True, kw_only=True):
    """What the configuration says about one plugin; None where it says nothing."""

    #: A plugin's name, or ``module:Class``.
    name: str
    weight: float | None = None
    enabled: bool | None = None
    arguments: Mapping[str, object] = {}
    line: int | None = None
    #: Line of each argument, by its path, such as ``scoringStrategy.resources[0].weight``.
    argument_lines: Mapping[str, int] = {}


class Configuration(Struct, frozen=True, kw_only=True):
    """A configuration file as it was written, not yet compared with the plugins there are."""

    scheduler_name: str | None = None
    #: Seconds that a gang waits before it keeps nodes free (``reserveAfter``); 0: it never does.
    reserve_after: float = RESERVE_AFTER
    #: Namespaces in which the priority class that only a PodGroup names counts (``trustGroupPriority``); None
    #: where nothing is said: then it counts nowhere in a cluster, and everywhere in files.
    trust_group_priority: tuple[str, ...] | None = None
    #: Namespaces whose NetworkTopologies count on a live cluster, besides kube-system and closeby's own.
    network_topology_namespaces: tuple[str, ...] = ()
    #: Whether NetworkTopologies of all other namespaces count for the AppGroups beside them.
    tenant_network_topologies: bool = False
    #: Seconds that a pod whose AppGroup is not known waits for it on a live cluster, at least.
    unknown_app_group_delay: float = UNKNOWN_APP_GROUP_DELAY
    plugins: tuple[PluginEntry, ...] = ()
    source: str = "configuration"
    #: Sentences about what was understood and left aside.
    notices: tuple[str, ...] = ()


def read_configuration(text: str, source: str = "configuration") -> Configuration:
    """Read a configuration file; an empty one is the default configuration.

    Raises:
        ConfigurationError: with every mistake found.
    """
    return _Reader(text, source).read()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy that names the word that was probably meant, else all the known ones."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known are {', '.join(names)}"


class _Reader:
    """Walks over the composed YAML nodes, which know their lines, and gathers what is wrong."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self._mistakes: list[Problem] = []
        self._notices: list[str] = []

    def read(self) -> Configuration:
        try:
            self._loader = yaml.SafeLoader(self._text)
            root = self._loader.get_single_node()
        except yaml.YAMLError as error:
            raise ConfigurationError([self._unreadable(error)]) from error
        except RecursionError as error:
            message, remedy = "this is nested too deeply", "flatten it"
            mistake = Problem(file=self._source, line=None, message=message, remedy=remedy)
            raise ConfigurationError([mistake]) from error
        fields: dict[str, yaml.Node] = {}
        plugins: list[PluginEntry] = []
        if isinstance(root, yaml.MappingNode):
            fields = self._fields(root, _KEYS, "the configuration")
            plugins = self._plugins(fields)
        elif isinstance(root, yaml.SequenceNode):
            plugins = self._tiers(root)
        elif root is not None and not _is_null(root):
            self._wrong(root, "this is not a configuration", "write `plugins:` and a list of plugins")
        found = Configuration(
            scheduler_name=self._text_of(fields.get("schedulerName"), "schedulerName"),
            reserve_after=self._duration(
                fields, "reserveAfter", RESERVE_AFTER, "write `10m` or `1h30m`, or 0 to reserve nothing"
            ),
            trust_group_priority=self._namespaces(fields, "trustGroupPriority"),
            network_topology_namespaces=self._namespaces(fields, "networkTopologyNamespaces") or (),
            tenant_network_topologies=self._switch(fields, "tenantNetworkTopologies") or False,
            unknown_app_group_delay=self._duration(
                fields, "unknownAppGroupDelay", UNKNOWN_APP_GROUP_DELAY, "write `3s` or `500ms`"
            ),
            plugins=tuple(plugins),
            source=self._source,
            notices=tuple(self._notices),
        )
        if self._mistakes:
            raise ConfigurationError(self._mistakes)
        return found

    # Parts of the file

    def _plugins(self, fields: Mapping[str, yaml.Node]) -> list[PluginEntry]:
        if "actions" in fields:
            place = f"{self._source}:{_line(fields['actions'])}"
            self._notices.append(f"{place}: actions are ignored; the order of work is not configurable")
        tiers, plugins = fields.get("tiers"), fields.get("plugins")
        if tiers is not None and plugins is not None:
            self._wrong(tiers, "tiers and plugins are both given", "move all plugins under plugins")
            return []
        return self._entries(plugins) if tiers is None else self._tiers(tiers)

    def _tiers(self, node: yaml.Node) -> list[PluginEntry]:
        entries = []
        for tier in self._items(node, "tiers"):
            entries += self._entries(self._fields(tier, ("plugins",), "a tier").get("plugins"))
        return entries

    def _entries(self, node: yaml.Node | None) -> list[PluginEntry]:
        found = [self._entry(item) for item in self._items(node, "plugins")]
        return [entry for entry in found if entry is not None]

    def _entry(self, node: yaml.Node) -> PluginEntry | None:
        fields = self._fields(node, ("name", "weight", "enabled", "arguments"), "a plugin")
        name = self._text_of(fields.get("name"), "name")
        if name is None:
            if isinstance(node, yaml.MappingNode) and "name" not in fields:
                self._wrong(node, "a plugin without a name", "add `name:`")
            return None
        weight = self._weight(fields.get("weight"))
        enabled = self._switch(fields, "enabled")
        lines: dict[str, int] = {}
        arguments = self._arguments(fields.get("arguments"), name, lines)
        return PluginEntry(
            name=name,
            weight=weight,
            enabled=enabled,
            arguments=arguments,
            line=_line(node),
            argument_lines=lines,
        )

    def _arguments(self, node: yaml.Node | None, name: str, lines: dict[str, int]) -> dict[str, object]:
        if node is None:
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"arguments of {name} must be a mapping, not {_kind(node)}", "")
            return {}
        before = len(self._mistakes)
        self._walk(node, "", lines, [])
        if len(self._mistakes) > before:
            return {}
        value = self._value(node)
        return value if isinstance(value, dict) else {}

    def _walk(self, node: yaml.Node, path: str, lines: dict[str, int], above: list[yaml.Node]) -> None:
        """Note the line of everything below a node, and refuse what YAML allows and no author means."""
        if node in above:
            self._wrong(node, f"{path or 'arguments'} contains itself", "write it out")
            return
        above.append(node)
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    continue
                if key.tag != "tag:yaml.org,2002:str":
                    self._wrong(key, "a key that is not text", "put it in quotes")
                    continue
                inner = f"{path}.{key.value}" if path else str(key.value)
                if key.value in seen:
                    self._wrong(key, f"{inner} is given twice", "keep one")
                seen.add(key.value)
                if inner not in lines:
                    lines[inner] = _line(key)
                    self._walk(value, inner, lines, above)
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                inner = f"{path}[{index}]"
                lines[inner] = _line(item)
                self._walk(item, inner, lines, above)
        above.pop()

    # Values

    def _fields(self, node: yaml.Node, known: tuple[str, ...], owner: str) -> dict[str, yaml.Node]:
        """The known fields that are there and not null."""
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, f"{owner} must be a mapping, not {_kind(node)}", f"it has {', '.join(known)}")
            return {}
        fields: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if key.value not in known or not isinstance(key, yaml.ScalarNode):
                shown = key.value if isinstance(key, yaml.ScalarNode) else _kind(key)
                self._wrong(key, f"unknown key {shown} in {owner}", did_you_mean(str(shown), known))
            elif key.value in fields:
                self._wrong(key, f"{key.value} is given twice in {owner}", "keep one")
            elif not _is_null(value):
                fields[key.value] = value
        return fields

    def _items(self, node: yaml.Node | None, field: str) -> list[yaml.Node]:
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self._wrong(node, f"{field} must be a list, not {_kind(node)}", "begin each entry with `- `")
            return []
        return list(node.value)

    def _text_of(self, node: yaml.Node | None, field: str) -> str | None:
        if node is None:
            return None
        if node.tag != "tag:yaml.org,2002:str" or not node.value:
            self._wrong(node, f"{field} must be text, not {_kind(node)}", "put it in quotes")
            return None
        return str(node.value)

    def _duration(self, fields: Mapping[str, yaml.Node], field: str, default: float, remedy: str) -> float:
        node = fields.get(field)
        if node is None:
            return default
        seconds = parse_duration(node.value) if isinstance(node, yaml.ScalarNode) else None
        if seconds is None:
            self._wrong(node, f"{field} must be a span of time, not {_shown(node)}", remedy)
            return default
        return seconds

    def _namespaces(self, fields: Mapping[str, yaml.Node], field: str) -> tuple[str, ...] | None:
        """A list of namespaces; None where nothing is said."""
        if field not in fields:
            return None
        found = []
        for item in self._items(fields[field], field):
            name = self._text_of(item, f"an entry of {field}")
            if name is not None and not _NAMESPACE.fullmatch(name):
                self._wrong(
                    item, f"{_shown(item)} in {field} is not a namespace's name", "name them one by one"
                )
            elif name is not None:
                found.append(name)
        return tuple(dict.fromkeys(found))

    def _weight(self, node: yaml.Node | None) -> float | None:
        if node is None:
            return None
        number = _converted(self._value(node), float)
        if number is None or not 0 <= number <= GREATEST_WEIGHT:
            allowed = f"a number from 0 to {GREATEST_WEIGHT:,}"
            self._wrong(node, f"weight must be {allowed}, not {_shown(node)}", "")
            return None
        return number

    def _switch(self, fields: Mapping[str, yaml.Node], field: str) -> bool | None:
        node = fields.get(field)
        if node is None:
            return None
        switch = _converted(self._value(node), bool)
        if switch is None:
            self._wrong(node, f"{field} must be true or false, not {_shown(node)}", "")
        return switch

    def _value(self, node: yaml.Node) -> object:
        try:
            value: object = self._loader.construct_object(node, deep=True)
        except (yaml.YAMLError, ValueError) as error:
            self._wrong(node, f"{_shown(node)} can't be read: {_problem(error)}", "put it in quotes")
            return None
        return value

    # Mistakes

    def _wrong(self, node: yaml.Node, message: str, remedy: str) -> None:
        self._mistakes.append(Problem(file=self._source, line=_line(node), message=message, remedy=remedy))

    def _unreadable(self, error: yaml.YAMLError) -> Problem:
        mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
        return Problem(
            file=self._source,
            line=None if mark is None else mark.line + 1,
            message=f"this is not one YAML document: {_problem(error)}",
            remedy="mind the indentation, and quote what holds special characters",
        )


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _is_null(node: yaml.Node | None) -> bool:
    return node is None or node.tag == "tag:yaml.org,2002:null"


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    return _shown(node)


def _shown(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        return _kind(node)
    return f"`{node.value}`" if node.value else "nothing"


def _problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        return str(error.problem or error.context)
    return " ".join(str(error).split())


Number = TypeVar("Number", float, bool)


def _converted(value: object, kind: type[Number]) -> Number | None:
    """A number or switch, also when it was written in quotes; None for anything else."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return None
