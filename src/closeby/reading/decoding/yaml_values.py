"""Builds plain values from the events of a YAML parser, the way Kubernetes reads YAML.

Unlike a general YAML loader it refuses a key that is given twice, aliases that blow up, and deep nesting; it
makes no times of text and no numbers of ``1:30``; and it remembers the line of every field.
"""

import re
from typing import Final

from closeby.errors import YamlError
from closeby.reading.decoding.documents import LONGEST_NUMBER
from closeby.reading.decoding.errors import Path

#: Deeper than any Kubernetes object, and safe for all that walks through the values.
_DEEPEST: Final = 200
#: Values that aliases may stand for, in total.
_MOST_ALIASED: Final = 100_000

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_DECIMAL: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)", re.ASCII)
_BASED: Final = re.compile(r"([-+]?)0(b[01_]+|o?[0-7_]+|x[0-9a-fA-F_]+)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)", re.ASCII)
_BASES: Final = {"b": 2, "x": 16, "o": 8}


class YamlLines:
    """Where the fields of one document stand."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._by_container: dict[int, list[int]] = {}
        self._root: object = None
        #: Where the document's content begins, after comments and ``---``.
        self.start = 0

    def note(self, container: object, line: int) -> None:
        """The next key or entry of ``container`` stands on ``line``."""
        self._by_container.setdefault(id(container), []).append(line)

    def settle(self, root: object) -> None:
        """``root`` is complete; keeping it alive keeps the identities of its parts."""
        self._root = root

    def find(self, path: Path) -> int:
        """The line, counted from 1 in the file, of the field at ``path`` or of the nearest one above it."""
        value, line = self._root, self.start
        for step in path:
            lines = self._by_container.get(id(value), [])
            if isinstance(value, dict) and step in value:
                position = list(value).index(step)
                value = value[step]
            elif isinstance(value, list) and isinstance(step, int) and step < len(value):
                position = step
                value = value[step]
            else:
                break
            line = lines[position] if position < len(lines) else line
        return self._first + line


class _Frame:
    """A mapping or list under construction."""

    __slots__ = ("anchor", "container", "key", "merged", "size_before")

    def __init__(self, container: dict[str, object] | list[object], anchor: str | None, size: int) -> None:
        self.container = container
        self.anchor = anchor
        self.size_before = size
        self.key: str | None = None
        self.merged: list[object] = []


class ValueBuilder:
    """Takes the events of one document in order; at their end it holds the ``value``."""

    def __init__(self, first_line: int) -> None:
        self.value: object = None
        self.lines = YamlLines(first_line)
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._size = 0
        self._aliased = 0

    def scalar(self, text: str, tag: str | None, plain: bool, anchor: str | None, line: int) -> None:
        """A key or a single value; raises ``YamlError``."""
        if self._at_key():
            self._key(text, plain, line)
            return
        value = _typed(text, tag, plain, line)
        self._size += 1
        if anchor is not None:
            self._anchors[anchor] = value, 1
        self._put(value, line)

    def open(self, container: dict[str, object] | list[object], anchor: str | None, line: int) -> None:
        """A mapping or list begins; raises ``YamlError``."""
        if self._at_key():
            raise YamlError(line, "a key must be text", "write plain text before the colon")
        if len(self._stack) >= _DEEPEST:
            raise YamlError(line, f"is nested more than {_DEEPEST} levels deep", "flatten it")
        self._size += 1
        self._place(container, line)
        self._stack.append(_Frame(container, anchor, self._size))

    def close(self, line: int) -> None:
        """The innermost mapping or list ends; raises ``YamlError``."""
        frame = self._stack.pop()
        if isinstance(frame.container, dict):
            _merge(frame.container, frame.merged, line)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = frame.container, self._size - frame.size_before + 1
        self._finish(frame.container)

    def alias(self, anchor: str, line: int) -> None:
        """A value that was given before; raises ``YamlError``."""
        if self._at_key():
            raise YamlError(line, "a key must be text", "write plain text before the colon")
        if anchor not in self._anchors:
            raise YamlError(line, f"alias *{anchor} refers to nothing before it", f"define &{anchor} first")
        value, size = self._anchors[anchor]
        self._size += size
        self._aliased += size
        if self._aliased > _MOST_ALIASED:
            raise YamlError(line, f"aliases stand for more than {_MOST_ALIASED:,} values", "write them out")
        self._put(value, line)

    def _at_key(self) -> bool:
        if not self._stack:
            return False
        frame = self._stack[-1]
        return frame.key is None and isinstance(frame.container, dict)

    def _key(self, text: str, plain: bool, line: int) -> None:
        frame = self._stack[-1]
        container = frame.container
        if plain and text == _MERGE:
            frame.key = _MERGE
            return
        if text in container:
            raise YamlError(line, f"key {text!r} is given twice", "keep one of the two")
        frame.key = text
        self.lines.note(container, line)

    def _put(self, value: object, line: int) -> None:
        self._place(value, line)
        self._finish(value)

    def _place(self, value: object, line: int) -> None:
        """Puts a value, maybe still empty, where it belongs."""
        if not self._stack:
            self.value = value
            self.lines.start = line
            return
        frame = self._stack[-1]
        container = frame.container
        if isinstance(container, list):
            self.lines.note(container, line)
            container.append(value)
        elif frame.key == _MERGE:
            frame.merged.append(value)
        elif frame.key is not None:
            container[frame.key] = value

    def _finish(self, value: object) -> None:
        if self._stack:
            self._stack[-1].key = None
        else:
            self.lines.settle(value)


def _merge(container: dict[str, object], merged: list[object], line: int) -> None:
    """``<<``: what the mapping says itself wins, then what comes first."""
    for source in merged:
        for mapping in source if isinstance(source, list) else [source]:
            if not isinstance(mapping, dict):
                raise YamlError(line, "<< needs a mapping or a list of mappings", "name an anchor of one")
            for key, value in mapping.items():
                container.setdefault(key, value)


def _typed(text: str, tag: str | None, plain: bool, line: int) -> object:
    if tag is None or tag == "!":
        return _resolved(text) if plain and tag is None else text
    value = text if tag == f"{_TAG}str" else _resolved(text)
    wanted = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}
    name = tag.removeprefix(_TAG)
    if type(value) is not wanted.get(name) and not (name == "float" and type(value) is int):
        raise YamlError(line, f"tag {tag.replace(_TAG, '!!')} can't be used here", "take the tag out")
    return value


def _resolved(text: str) -> object:
    """The value of plain text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789" or len(text) > LONGEST_NUMBER:
        return text
    if _DECIMAL.fullmatch(text):
        return int(text.replace("_", ""))
    based = _BASED.fullmatch(text)
    if based:
        sign, digits = based.groups()
        digits = digits.replace("_", "")
        base = _BASES.get(digits[0], 8)
        number = int(digits.lstrip("box") or "0", base)
        return -number if sign == "-" else number
    # Exponents stay text: a quantity such as 1e3 is exact that way.
    return float(text) if _FLOAT.fullmatch(text) else text
