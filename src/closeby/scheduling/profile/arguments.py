"""Turns the arguments that a configuration gives a plugin into the plugin's own record."""

import re

import msgspec
from msgspec import Struct

from closeby.errors import ConfigurationError
from closeby.objects.problems import Problem
from closeby.reading.configuration import PluginEntry, did_you_mean

#: How msgspec ends a message: the path of the value it is about.
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
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
                message=f"unknown argument {name} of {entry.name}",
                remedy=did_you_mean(name, known) if known else f"{entry.name} takes no arguments",
            )
            for name in unknown
        )
    try:
        return msgspec.convert(dict(entry.arguments), schema, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError([_mistake(str(error), entry, source)]) from error


def line_about(message: str, entry: PluginEntry) -> int | None:
    """The line of the argument that a plugin's own complaint names, else the entry's."""
    named = [path for path in entry.argument_lines if path in message]
    return entry.argument_lines[max(named, key=len)] if named else entry.line


def _mistake(text: str, entry: PluginEntry, source: str) -> Problem:
    place = _PLACE.search(text)
    path, what = (place["path"], text[: place.start()]) if place else ("", text)
    unknown, missing = _UNKNOWN.fullmatch(what), _MISSING.fullmatch(what)
    if unknown:
        path, what = f"{path}.{unknown['field']}", "there is no such field"
    elif missing:
        what = f"{missing['field']} is missing"
    elif what.startswith(("Expected", "Invalid")):
        what = what[0].lower() + what[1:].replace("`", "")
    where = f"argument {path} of {entry.name}" if path else f"arguments of {entry.name}"
    line = _line(path, entry) if path else line_about(what, entry)
    return Problem(file=source, line=line, message=f"{where}: {what}")


def _line(path: str, entry: PluginEntry) -> int | None:
    """The line of a path, or of the nearest thing above it that the file has."""
    while path not in entry.argument_lines:
        shorter = _LAST_PART.sub("", path)
        if shorter == path:
            return entry.line
        path = shorter
    return entry.argument_lines[path]
