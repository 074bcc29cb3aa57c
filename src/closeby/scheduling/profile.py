"""From a configuration to the plugins that take part in decisions, grouped by extension point."""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from closeby.errors import ConfigurationError, PluginLookupError
from closeby.objects.reasons import Problem, check_token
from closeby.reading.configuration import Configuration, PluginEntry, did_you_mean
from closeby.reading.decoding.errors import explain
from closeby.scheduling.commit_points import Bind, Permit, PostBind, PreBind
from closeby.scheduling.extension import (
    Filter,
    Handle,
    MemberSort,
    PlacementGenerate,
    PlacementScore,
    Plugin,
    PostFilter,
    PreEnqueue,
    PreFilter,
    PreScore,
    QueueSort,
    Reserve,
    Score,
)
from closeby.scheduling.plugin_lookup import PluginLookup
from closeby.scheduling.services import DependencyCost, Measured, TrafficCost

_LAST_PART = re.compile(r"(\.[^.\[]+|\[[^\]]*\])$")


def decode_arguments(schema: type[Struct], entry: PluginEntry, source: str) -> Struct:
    """The arguments of an entry as ``schema``; numbers and switches may be written in quotes.

    Raises:
        ConfigurationError: an unknown or missing argument, or a value of the wrong type.
    """
    known = [field.encode_name for field in msgspec.structs.fields(schema)]
    unknown = [name for name in entry.arguments if name not in known]
    if unknown:
        raise ConfigurationError(
            Problem(
                file=source,
                line=entry.argument_lines.get(name, entry.line),
                message=f"{name} is not a known argument of {entry.name}",
                remedy=did_you_mean(name, known, "arguments")
                if known
                else f"{entry.name} takes no arguments",
            )
            for name in unknown
        )
    try:
        return msgspec.convert(dict(entry.arguments), schema, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError([_problem(error, entry, source)]) from error


def line_about(message: str, entry: PluginEntry) -> int | None:
    """The line of the argument that a plugin's own complaint names, else the entry's."""
    named = [path for path in entry.argument_lines if path in message]
    return entry.argument_lines[max(named, key=len)] if named else entry.line


def _problem(error: msgspec.ValidationError, entry: PluginEntry, source: str) -> Problem:
    found = explain(error, dict(entry.arguments), {})
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found.path).lstrip(".")
    what = found.message
    if what.startswith(("Expected", "Invalid")):
        what = what[0].lower() + what[1:].replace("`", "")
    if not what.startswith(("is ", "must ")):
        what = f": {what}"
    where = f"argument {path} of {entry.name}" if path else f"arguments of {entry.name}"
    line = _line(path, entry) if path else line_about(what, entry)
    message = f"{where}{what}" if what.startswith(":") else f"{where} {what}"
    return Problem(message, found.remedy, file=source, line=line)


def _line(path: str, entry: PluginEntry) -> int | None:
    """The line of a path, or of the nearest thing above it that the file has."""
    while path not in entry.argument_lines:
        shorter = _LAST_PART.sub("", path)
        if shorter == path:
            return entry.line
        path = shorter
    return entry.argument_lines[path]


#: All that a plugin can take part in.
POINTS = (
    PreEnqueue,
    QueueSort,
    MemberSort,
    PreFilter,
    Filter,
    PostFilter,
    PlacementGenerate,
    PlacementScore,
    TrafficCost,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
)

Point = TypeVar("Point", bound=Plugin)


class Profile(Struct, frozen=True, kw_only=True, eq=False):
    """The active plugins, in the order in which they are asked."""

    plugins: tuple[Plugin, ...]
    queue_sort: QueueSort
    #: Score plugins with their weight in totals.
    scores: tuple[tuple[Score, float], ...]
    pre_enqueue: tuple[PreEnqueue, ...] = ()
    member_sorts: tuple[MemberSort, ...] = ()
    pre_filters: tuple[PreFilter, ...] = ()
    filters: tuple[Filter, ...] = ()
    post_filters: tuple[PostFilter, ...] = ()
    generators: tuple[PlacementGenerate, ...] = ()
    #: Those of the generators that want gangs tried on some nodes before all others.
    first_nodes: tuple[PlacementGenerate, ...] = ()
    placement_scores: tuple[PlacementScore, ...] = ()
    traffic_costs: tuple[TrafficCost, ...] = ()
    dependency_costs: tuple[DependencyCost, ...] = ()
    reserves: tuple[Reserve, ...] = ()
    permits: tuple[Permit, ...] = ()
    pre_binds: tuple[PreBind, ...] = ()
    binds: tuple[Bind, ...] = ()
    post_binds: tuple[PostBind, ...] = ()
    measured: tuple[Measured, ...] = ()
    #: Namespaces in which the priority that only a PodGroup names counts; None means all.
    trust_group_priority: tuple[str, ...] | None = None
    #: Namespaces whose gangs may have domains for themselves from all others; None means all.
    trust_exclusive: tuple[str, ...] | None = None
    #: How much may idle on nodes that are kept free for a gang, as a part of what the gang itself will use.
    reserve_budget: float = inf

    @property
    def close_by_default(self) -> bool:
        """Whether gangs that ask for no level are kept close all the same."""
        return any(plugin.close_by_default for plugin in self.generators)

    @property
    def pod_by_pod(self) -> bool:
        """Whether gangs are filled pod by pod, each to the node that scores best."""
        return any(plugin.pod_by_pod for plugin in self.generators)


class _Chosen(NamedTuple):
    """A plugin that takes part, and what the configuration says about it (if it does)."""

    kind: type[Plugin]
    entry: PluginEntry | None


def build_profile(
    configuration: Configuration,
    available: Mapping[str, type[Plugin]],
    handle: Handle,
    defaults: Sequence[str] | None = None,
) -> Profile:
    """The plugins of a configuration, made and grouped.

    ``available`` holds plugins by name; other names are looked for among the entry points of installed
    packages, and ``module:Class`` is imported. ``defaults`` names those that take part unless disabled, in
    the order in which they are asked (without it, all the available ones). Plugins that the configuration
    lists are asked in the order of the list; a default one that is not listed keeps its place. A listed
    QueueSort takes the place of the default one.

    Raises:
        ConfigurationError: with every mistake found.
    """
    source = configuration.source
    mistakes: list[Problem] = []
    listed = _listed(configuration, available, mistakes)
    disabled = {one.kind for one, enabled in listed if not enabled}
    standing = [available[name] for name in (available if defaults is None else defaults)]
    standing = [kind for kind in standing if kind not in disabled]
    chosen = _in_order([one for one, enabled in listed if enabled], standing)
    chosen = _with_one_queue_sort(chosen, source, mistakes)
    mistakes += _clashes(chosen, source)
    made = [(_made(one, source, handle, mistakes), one) for one in chosen]
    if mistakes:
        raise ConfigurationError(mistakes)
    profile = _grouped([(plugin, one.entry) for plugin, one in made if plugin is not None])
    return replace(
        profile,
        trust_group_priority=configuration.trust_group_priority,
        trust_exclusive=configuration.trust_exclusive,
        reserve_budget=configuration.reserve_budget,
    )


def _listed(
    configuration: Configuration, available: Mapping[str, type[Plugin]], mistakes: list[Problem]
) -> list[tuple[_Chosen, bool]]:
    """The plugins that the configuration names, and whether each is to take part."""
    found: list[tuple[_Chosen, bool]] = []
    lookup = PluginLookup(available)
    for entry in configuration.plugins:
        try:
            kind = lookup.find(entry.name)
        except PluginLookupError as error:
            mistakes.append(_mistake(configuration.source, entry, error.message, error.remedy))
            continue
        if any(kind is one.kind for one, _ in found):
            mistakes.append(
                _mistake(configuration.source, entry, f"{entry.name} is listed twice", "keep one")
            )
            continue
        found.append((_Chosen(kind, entry), entry.enabled is not False))
    return found


def _in_order(listed: Sequence[_Chosen], standing: Sequence[type[Plugin]]) -> list[_Chosen]:
    """The defaults in their places, the listed ones among them in the order of the list.

    A listed plugin that is no default comes right before the next listed default, or at the end.
    """
    waiting = deque(listed)
    named = {one.kind for one in listed}
    result: list[_Chosen] = []
    for kind in standing:
        if kind not in named:
            result.append(_Chosen(kind, None))
            continue
        while waiting:
            result.append(waiting.popleft())
            if result[-1].kind in standing:
                break
    return [*result, *waiting]


def _with_one_queue_sort(chosen: list[_Chosen], source: str, mistakes: list[Problem]) -> list[_Chosen]:
    sorts = [one for one in chosen if issubclass(one.kind, QueueSort)]
    named = [one.entry for one in sorts if one.entry is not None]
    for entry in named[1:]:
        message = f"{entry.name} and {named[0].name} both sort the queue"
        mistakes.append(_mistake(source, entry, message, "keep one"))
    if not sorts:
        mistakes.append(
            _mistake(source, None, "no plugin sorts the queue", "enable one, such as PrioritySort")
        )
    if not named:
        return chosen
    return [one for one in chosen if one.entry is not None or not issubclass(one.kind, QueueSort)]


def _clashes(chosen: Sequence[_Chosen], source: str) -> Iterator[Problem]:
    """Different plugins that answer to one name."""
    by_name: dict[str, _Chosen] = {}
    for one in chosen:
        other = by_name.setdefault(one.kind.name, one)
        if other is not one:
            message = f"two plugins are called {one.kind.name}"
            yield _mistake(
                source, one.entry or other.entry, message, "disable one of them with enabled: false"
            )


def _made(one: _Chosen, source: str, handle: Handle, mistakes: list[Problem]) -> Plugin | None:
    entry = one.entry or PluginEntry(name=one.kind.name)
    if entry.weight is not None and not issubclass(one.kind, Score):
        mistakes.append(_mistake(source, entry, f"{entry.name} has no score to weigh", "remove its weight"))
    if not issubclass(one.kind, POINTS):
        mistakes.append(_mistake(source, entry, f"{entry.name} takes part in no extension point", ""))
    if issubclass(one.kind, Filter) and one.kind.reason is not None:
        try:
            check_token(one.kind.reason)
        except ValueError as error:
            mistakes.append(_mistake(source, entry, f"plugin {entry.name}: {error}", ""))
    try:
        return one.kind(decode_arguments(one.kind.Arguments, entry, source), handle)
    except ConfigurationError as error:
        mistakes += error.problems
    except ValueError as error:
        line = line_about(str(error), entry)
        message = f"arguments of {entry.name}: {error}"
        mistakes.append(Problem(file=source, line=line, message=message))
    return None


def _grouped(made: Sequence[tuple[Plugin, PluginEntry | None]]) -> Profile:
    plugins = tuple(plugin for plugin, _ in made)
    return Profile(
        plugins=plugins,
        queue_sort=_at(QueueSort, plugins)[0],
        scores=tuple((plugin, _weight(plugin, entry)) for plugin, entry in made if isinstance(plugin, Score)),
        pre_enqueue=_at(PreEnqueue, plugins),
        member_sorts=_at(MemberSort, plugins),
        pre_filters=_at(PreFilter, plugins),
        filters=_at(Filter, plugins),
        post_filters=_at(PostFilter, plugins),
        generators=_at(PlacementGenerate, plugins),
        first_nodes=tuple(
            plugin
            for plugin in _at(PlacementGenerate, plugins)
            if type(plugin).tried_first is not PlacementGenerate.tried_first
        ),
        placement_scores=_at(PlacementScore, plugins),
        traffic_costs=_at(TrafficCost, plugins),
        dependency_costs=_at(DependencyCost, plugins),
        reserves=_at(Reserve, plugins),
        permits=_at(Permit, plugins),
        pre_binds=_at(PreBind, plugins),
        binds=_at(Bind, plugins),
        post_binds=_at(PostBind, plugins),
        measured=_at(Measured, plugins),
    )


def _at(point: type[Point], plugins: Sequence[Plugin]) -> tuple[Point, ...]:
    return tuple(plugin for plugin in plugins if isinstance(plugin, point))


def _weight(plugin: Score, entry: PluginEntry | None) -> float:
    return plugin.default_weight if entry is None or entry.weight is None else entry.weight


def _mistake(source: str, entry: PluginEntry | None, message: str, remedy: str) -> Problem:
    return Problem(file=source, line=None if entry is None else entry.line, message=message, remedy=remedy)
