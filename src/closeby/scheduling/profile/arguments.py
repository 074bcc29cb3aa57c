"""Turns the arguments that a configuration gives a plugin into the plugin's own record."""

import re

import msgspec
from msgspec import Struct

from closeby.errors import ConfigurationError
from closeby.objects.problems import Problem
from closeby.reading.configuration import PluginEntry, did_you_mean
from closeby.reading.decoding.errors import explain

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
