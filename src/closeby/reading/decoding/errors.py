"""What is wrong with a document that can't be read, in terms with which its author can fix it."""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from closeby.errors import FieldError
from closeby.objects.words import similar

#: Keys and list positions from the document's top to a value.
Path = tuple[str | int, ...]


def field_path(path: Iterable[str | int], above: str = "") -> str:
    """``("spec", "containers", 0)`` as ``spec.containers[0]``; keys with dots or slashes are quoted.

    ``above`` is the path of what the parts are in.
    """
    text = above
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[\w-]+", part):
            text += f".{part}" if text else part
        else:
            text += f'["{part}"]'
    return text


def explain(error: msgspec.ValidationError, value: object, known: Mapping[str, Sequence[str]]) -> FieldError:
    """msgspec's complaint about ``value`` (the document in plain Python) as a field, a message and a remedy.

    ``known`` gives, per field path (without positions in lists), the field names of a schema of our own.
    """
    text = str(error)
    found = re.fullmatch(r"(?s)(.*?)(?: - at (`key` in )?`\$(.*?)`)?", text)
    complaint, at_key, steps = found.groups() if found else (text, None, None)
    wrong_type = re.fullmatch(r"Expected `(.*)`, got `(.*)`", complaint)
    got = wrong_type.group(2) if wrong_type else None
    path = _resolve(steps or "", value, None if at_key else got)
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", complaint)
    if unknown:
        above = ".".join(part for part in path if isinstance(part, str))
        return _unknown_field(path, unknown.group(1), known.get(above, ()))
    missing = re.fullmatch(r"Object missing required field `(.*)`", complaint)
    if missing:
        return FieldError((*path, missing.group(1)), "is missing", "add it")
    if wrong_type and not at_key:
        return _wrong_type(path, wrong_type.group(1), wrong_type.group(2), value)
    if "RFC3339" in complaint:
        return FieldError(path, "is not a time", "write it like 2026-01-31T12:00:00Z")
    return FieldError(path, complaint)


_NAMES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}


def _wrong_type(path: Path, expected: str, got: str, value: object) -> FieldError:
    wanted = [_NAMES.get(name, name) for name in expected.split(" | ") if name != "null"]
    actual = _at(value, path)
    shown = f" ({actual!r})" if isinstance(actual, str | int | float) and len(repr(actual)) <= 40 else ""
    message = f"must be {' or '.join(wanted)}, but is {_NAMES.get(got, got)}{shown}"
    quoting = expected.split(" | ", maxsplit=1)[0] == "str" and got in ("int", "float", "bool")
    return FieldError(path, message, "put it in quotes" if quoting else "")


def _unknown_field(path: Path, name: str, fields: Sequence[str]) -> FieldError:
    close = similar(name, fields)
    if close:
        remedy = f"did you mean {close}?"
    else:
        remedy = f"known fields: {', '.join(sorted(fields))}" if fields else "remove it"
    return FieldError((*path, name), "is not a known field", remedy)


def _resolve(steps: str, value: object, got: str | None) -> Path:
    """msgspec's path with each ``[...]`` (some key of a mapping) replaced by the key that is to blame."""
    parts: list[str | int | None] = []
    for name, index in re.findall(r"\.([^.\[]+)|\[(\.\.\.|\d+)\]", steps):
        if name:
            parts.append(name)
        else:
            parts.append(None if index == "..." else int(index))
    found = None if got is None else _search(parts, value, got)
    if found is None:
        known = parts.index(None) if None in parts else len(parts)
        found = [part for part in parts[:known] if part is not None]
    return tuple(found)


def _search(parts: Sequence[str | int | None], value: object, got: str) -> list[str | int] | None:
    """The concrete path to the first value of type ``got`` that is at ``parts``."""
    if not parts:
        return [] if _type_name(value) == got else None
    step, rest = parts[0], parts[1:]
    if step is None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                below = _search(rest, inner, got)
                if below is not None:
                    return [str(key), *below]
        return None
    below = _search(rest, _at(value, (step,)), got)
    return None if below is None else [step, *below]


def _at(value: object, path: Path) -> object:
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _type_name(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list):
        return "array"
    return type(value).__name__
