"""The scheduler's configuration file: which plugins take part, and with what arguments.

Two shapes are read: a mapping with ``schedulerName`` and ``plugins``, and Volcano's tiers, either under
``tiers`` or as the bare list that begins with ``- plugins:`` (Volcano network-topology proposal). Everything
remembers its line, so that an error found later can point at it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from closeby.errors import ConfigurationError, YamlError
from closeby.objects.quantities import parse_duration
from closeby.objects.reasons import Problem
from closeby.objects.words import similar
from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.yaml_values import YamlDocument, yaml_document

#: Seconds after which the first gang that does not fit keeps nodes free, unless the configuration says it.
#: What is kept free is lost to all others meanwhile, so by default it is the last resort: late enough to cost
#: next to nothing where gangs get their turn anyway, early enough that none waits indefinitely.
RESERVE_AFTER: Final = 4 * 3600.0
#: How much may idle there, as a part of what the gang itself will use.
RESERVE_BUDGET: Final = 0.25
#: Seconds after which a pod whose AppGroup is not known is scheduled without it, unless the configuration
#: says it: discovery lists a new kind about a second after the API server serves it.
UNKNOWN_APP_GROUP_DELAY: Final = 3.0
#: What the mapping may hold.
_KEYS: Final = (
    "schedulerName",
    "reserveAfter",
    "reserveBudget",
    "trustGroupPriority",
    "trustExclusive",
    "networkTopologyNamespaces",
    "tenantNetworkTopologies",
    "unknownAppGroupDelay",
    "extendedResourceToleration",
    "plugins",
    "tiers",
    "actions",
)
#: Of a plugin, and of what may idle: beyond all sense, and totals stay finite below it.
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
    #: How much of what the gang itself uses may idle on these nodes (``reserveBudget``).
    reserve_budget: float = RESERVE_BUDGET
    #: Namespaces in which the priority class that only a PodGroup names counts (``trustGroupPriority``); None
    #: where nothing is said: then it counts nowhere in a cluster, and everywhere in files.
    trust_group_priority: tuple[str, ...] | None = None
    #: The same of namespaces whose gangs may keep everybody else out of their domains (``exclusive: all``).
    trust_exclusive: tuple[str, ...] | None = None
    #: Namespaces whose NetworkTopologies count on a live cluster, besides kube-system and closeby's own.
    network_topology_namespaces: tuple[str, ...] = ()
    #: Whether NetworkTopologies of all other namespaces count for the AppGroups beside them.
    tenant_network_topologies: bool = False
    #: Seconds that a pod whose AppGroup is not known waits for it on a live cluster, at least.
    unknown_app_group_delay: float = UNKNOWN_APP_GROUP_DELAY
    #: Whether pods that no API server has admitted yet tolerate taints called like an extended resource that
    #: they request (``extendedResourceToleration``), as upstream's admission plugin of that name has it.
    extended_resource_toleration: bool = True
    plugins: tuple[PluginEntry, ...] = ()
    source: str = "configuration"
    #: Sentences about what was understood and left aside.
    notices: tuple[str, ...] = ()


def read_configuration(text: str, source: str = "configuration") -> Configuration:
    """Read a configuration file; an empty one is the default configuration.

    Raises:
        ConfigurationError: with every mistake found.
    """
    try:
        document = yaml_document(text, text_keys=True)
    except YamlError as error:
        mistake = Problem(error.message, error.remedy, file=source, line=1 + error.line)
        raise ConfigurationError([mistake]) from error
    return Configuration(source=source) if document is None else _Reader(document, source).read()


def did_you_mean(word: str, known: Iterable[str], what: str) -> str:
    """A remedy that names the word that was probably meant, else all the known ones; ``what`` calls those."""
    names = sorted(known)
    close = similar(word, names)
    return f"did you mean {close}?" if close else f"known {what}: {', '.join(names)}"


class _Value(Struct, frozen=True):
    """A value of the file and the way to it."""

    value: object
    path: Path = ()

    def below(self, step: str | int, value: object) -> "_Value":
        return _Value(value, (*self.path, step))


class _Reader:
    """Walks over the values of a document and gathers what is wrong."""

    def __init__(self, document: YamlDocument, source: str) -> None:
        self._document = document
        self._source = source
        self._mistakes: list[Problem] = []
        self._notices: list[str] = []

    def read(self) -> Configuration:
        root = _Value(self._document.value)
        fields: dict[str, _Value] = {}
        plugins: list[PluginEntry] = []
        if isinstance(root.value, dict):
            fields = self._fields(root, _KEYS, "the configuration")
            plugins = self._plugins(fields)
        elif isinstance(root.value, list):
            plugins = self._tiers(root)
        elif root.value is not None:
            self._wrong(root, "this is not a configuration", "write `plugins:` and a list of plugins")
        budget = self._number(fields.get("reserveBudget"), "reserveBudget")
        found = Configuration(
            scheduler_name=self._text_of(fields.get("schedulerName"), "schedulerName"),
            reserve_after=self._duration(
                fields, "reserveAfter", RESERVE_AFTER, "write `10m` or `1h30m`, or 0 to reserve nothing"
            ),
            reserve_budget=RESERVE_BUDGET if budget is None else budget,
            trust_group_priority=self._namespaces(fields, "trustGroupPriority"),
            trust_exclusive=self._namespaces(fields, "trustExclusive"),
            network_topology_namespaces=self._namespaces(fields, "networkTopologyNamespaces") or (),
            tenant_network_topologies=self._switch(fields, "tenantNetworkTopologies") or False,
            unknown_app_group_delay=self._duration(
                fields, "unknownAppGroupDelay", UNKNOWN_APP_GROUP_DELAY, "write `3s` or `500ms`"
            ),
            extended_resource_toleration=self._switch(fields, "extendedResourceToleration") is not False,
            plugins=tuple(plugins),
            source=self._source,
            notices=tuple(self._notices),
        )
        if self._mistakes:
            raise ConfigurationError(self._mistakes)
        return found

    # Parts of the file

    def _plugins(self, fields: Mapping[str, _Value]) -> list[PluginEntry]:
        if "actions" in fields:
            place = f"{self._source}:{self._line(fields['actions'])}"
            self._notices.append(f"{place}: actions are ignored; the order of work is not configurable")
        tiers, plugins = fields.get("tiers"), fields.get("plugins")
        if tiers is not None and plugins is not None:
            self._wrong(tiers, "tiers and plugins are both given", "move all plugins under plugins")
            return []
        return self._entries(plugins) if tiers is None else self._tiers(tiers)

    def _tiers(self, tiers: _Value) -> list[PluginEntry]:
        entries = []
        for tier in self._items(tiers, "tiers"):
            entries += self._entries(self._fields(tier, ("plugins",), "a tier").get("plugins"))
        return entries

    def _entries(self, plugins: _Value | None) -> list[PluginEntry]:
        found = [self._entry(item) for item in self._items(plugins, "plugins")]
        return [entry for entry in found if entry is not None]

    def _entry(self, item: _Value) -> PluginEntry | None:
        fields = self._fields(item, ("name", "weight", "enabled", "arguments"), "a plugin")
        name = self._text_of(fields.get("name"), "name")
        if name is None:
            if isinstance(item.value, dict) and "name" not in item.value:
                self._wrong(item, "a plugin without a name", "add `name:`")
            return None
        weight = self._number(fields.get("weight"), "weight")
        enabled = self._switch(fields, "enabled")
        arguments: dict[str, object] = {}
        lines: dict[str, int] = {}
        given = fields.get("arguments")
        if given is not None and isinstance(given.value, dict):
            arguments = given.value
            self._note_lines(given, "", lines)
        elif given is not None:
            self._wrong(given, f"arguments of {name} must be a mapping, not {_kind(given.value)}", "")
        return PluginEntry(
            name=name,
            weight=weight,
            enabled=enabled,
            arguments=arguments,
            line=self._line(item),
            argument_lines=lines,
        )

    def _note_lines(self, above: _Value, path: str, lines: dict[str, int]) -> None:
        """Note the line of everything below a value."""
        below: list[tuple[str, _Value]] = []
        if isinstance(above.value, dict):
            prefix = f"{path}." if path else ""
            below = [(f"{prefix}{key}", above.below(key, value)) for key, value in above.value.items()]
        elif isinstance(above.value, list):
            below = [(f"{path}[{index}]", above.below(index, one)) for index, one in enumerate(above.value)]
        for name, one in below:
            lines[name] = self._line(one)
            self._note_lines(one, name, lines)

    # Values

    def _fields(self, given: _Value, known: tuple[str, ...], owner: str) -> dict[str, _Value]:
        """The known fields that are there and not null."""
        if not isinstance(given.value, dict):
            message = f"{owner} must be a mapping, not {_kind(given.value)}"
            self._wrong(given, message, f"it has {', '.join(known)}")
            return {}
        fields: dict[str, _Value] = {}
        for key, value in given.value.items():
            field = given.below(key, value)
            if key not in known:
                self._wrong(field, f"{key} is not a known key of {owner}", did_you_mean(key, known, "keys"))
            elif value is not None:
                fields[key] = field
        return fields

    def _items(self, given: _Value | None, field: str) -> list[_Value]:
        if given is None:
            return []
        if not isinstance(given.value, list):
            message = f"{field} must be a list, not {_kind(given.value)}"
            self._wrong(given, message, "begin each entry with `- `")
            return []
        return [given.below(index, item) for index, item in enumerate(given.value)]

    def _text_of(self, given: _Value | None, field: str) -> str | None:
        if given is None:
            return None
        if not isinstance(given.value, str) or not given.value:
            self._wrong(given, f"{field} must be text, not {_kind(given.value)}", "put it in quotes")
            return None
        return given.value

    def _duration(self, fields: Mapping[str, _Value], field: str, default: float, remedy: str) -> float:
        given = fields.get(field)
        if given is None:
            return default
        seconds = parse_duration(str(given.value))
        if seconds is None:
            self._wrong(given, f"{field} must be a span of time, not {_kind(given.value)}", remedy)
            return default
        return seconds

    def _namespaces(self, fields: Mapping[str, _Value], field: str) -> tuple[str, ...] | None:
        """A list of namespaces; None where nothing is said."""
        if field not in fields:
            return None
        found = []
        for item in self._items(fields[field], field):
            name = self._text_of(item, f"an entry of {field}")
            if name is not None and not _NAMESPACE.fullmatch(name):
                self._wrong(item, f"`{name}` in {field} is not a namespace's name", "name them one by one")
            elif name is not None:
                found.append(name)
        return tuple(dict.fromkeys(found))

    def _number(self, given: _Value | None, field: str) -> float | None:
        if given is None:
            return None
        number = _converted(given.value, float)
        if number is None or not 0 <= number <= GREATEST_WEIGHT:
            allowed = f"a number from 0 to {GREATEST_WEIGHT:,}"
            self._wrong(given, f"{field} must be {allowed}, not {_kind(given.value)}", "")
            return None
        return number

    def _switch(self, fields: Mapping[str, _Value], field: str) -> bool | None:
        given = fields.get(field)
        if given is None:
            return None
        switch = _converted(given.value, bool)
        if switch is None:
            self._wrong(given, f"{field} must be true or false, not {_kind(given.value)}", "")
        return switch

    def _line(self, given: _Value) -> int:
        return self._document.line(given.path)

    def _wrong(self, given: _Value, message: str, remedy: str) -> None:
        self._mistakes.append(
            Problem(file=self._source, line=self._line(given), message=message, remedy=remedy)
        )


def _kind(value: object) -> str:
    """What a value is: shown itself where it is one word."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or value == "":
        return "nothing"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


Number = TypeVar("Number", float, bool)


def _converted(value: object, kind: type[Number]) -> Number | None:
    """A number or switch, also when it was written in quotes; None for anything else."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return None
