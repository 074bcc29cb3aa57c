"""Reads YAML into plain values the way Kubernetes does: manifests, configurations and network descriptions.

Unlike a general YAML loader it refuses a key that is given twice, aliases that blow up, and deep nesting; it
makes no times of text and no numbers of ``1:30``; and it remembers the line of every field.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from closeby.errors import YamlError
from closeby.reading.decoding.documents import LONGEST_NUMBER
from closeby.reading.decoding.errors import Path

if TYPE_CHECKING:
    import yaml

#: Deeper than any Kubernetes object, and safe for all that walks through the values.
_DEEPEST: Final = 200
#: Values that aliases may stand for, in total.
_MOST_ALIASED: Final = 100_000

_GENERAL: Final = "check the indentation and the quotes there"
_UNEXPECTED_FIELD: Final = "mapping values are not allowed in this context"
_FIELD: Final = re.compile(r"\s*(?:- +)*([\w./-]+:[ \t]+[^\s#].*?)\s*")

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"
#: Keys with which an object begins.
_FIRST_KEYS: Final = frozenset(("apiVersion", "kind"))
_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_DECIMAL: Final = re.compile(r"[-+]?(0|[1-9][0-9_]*)", re.ASCII)
_BASED: Final = re.compile(r"([-+]?)0(b_*[01][01_]*|o?_*[0-7][0-7_]*|x_*[0-9a-fA-F][0-9a-fA-F_]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)", re.ASCII)
_BASES: Final = {"b": 2, "x": 16, "o": 8}


class YamlDocument:
    """The ``value`` of one document, and where its fields stand."""

    def __init__(self, first: int) -> None:
        self.value: object = None
        self._first = first
        #: Where the content begins, after comments and ``---``.
        self._start = 0
        # By identity: while ``value`` is alive, so are its parts.
        self._by_container: dict[int, list[int]] = {}

    def note(self, container: object, line: int) -> None:
        """The next key or entry of ``container`` stands on ``line``."""
        self._by_container.setdefault(id(container), []).append(line)

    def begin(self, value: object, line: int) -> None:
        """The content begins; ``value`` may still be empty."""
        self.value, self._start = value, line

    def line(self, path: Path) -> int:
        """The line, counted from 1 in the file, of the field at ``path`` or of the nearest one above it."""
        value, line = self.value, self._start
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


def yaml_documents(text: str, first_line: int = 1, *, text_keys: bool = False) -> Iterator[YamlDocument]:
    """The documents of a text that begins on ``first_line`` of its file; empty ones have no value.

    With ``text_keys`` a plain key such as ``1`` or ``yes`` is refused; without, it is text, as in Kubernetes.

    Raises:
        YamlError: what follows is not YAML, or is what YAML allows and we do not.
    """
    import yaml

    builder = _Builder(first_line, text_keys)
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _Builder(first_line, text_keys)
            elif isinstance(event, yaml.DocumentEndEvent):
                yield builder.document
            else:
                builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        if mark is None:
            raise YamlError(0, f"is not YAML: {error.problem}", _GENERAL) from error
        # Where the text ends too early, the mark is behind its last line.
        line = min(mark.line, text.count("\n"))
        if _at_tab(text, mark):
            raise YamlError(line, "is not YAML: a tab indents this line", "indent with spaces") from error
        remedy = _remedy(error.problem, text, mark.line, mark.column, first_line)
        raise YamlError(line, f"is not YAML: {error.problem}", remedy) from error
    except yaml.YAMLError as error:
        raise YamlError(0, f"is not YAML: {' '.join(str(error).split())}", "") from error


def yaml_document(text: str, *, text_keys: bool = False) -> YamlDocument | None:
    """The only document of a text; None where it holds none.

    Raises:
        YamlError: as ``yaml_documents``; or there are several.
    """
    found = [one for one in yaml_documents(text, text_keys=text_keys) if one.value is not None]
    if len(found) > 1:
        line = found[1].line(()) - 1
        raise YamlError(line, f"holds {len(found)} YAML documents", "give one that holds a single one")
    return found[0] if found else None


def _at_tab(text: str, mark: "yaml.Mark") -> bool:
    """Whether the parser stopped at a tab before any text of its line."""
    lines = text.splitlines()
    before = lines[mark.line][: mark.column] if mark.line < len(lines) else ""
    return mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1] and not before.strip()


def _remedy(problem: str | None, text: str, line: int, column: int, first_line: int) -> str:
    """What to do about a parser's ``problem`` at ``line`` and ``column`` (both from 0) of ``text``, which
    begins on ``first_line`` of its file.
    """
    lines = text.split("\n")
    if problem != _UNEXPECTED_FIELD or line >= len(lines):
        return _GENERAL
    if ":" in lines[line][:column]:
        return "put the value in quotes, for it holds a colon"
    above = max((i for i in range(line) if lines[i].strip()), default=None)
    field = None if above is None else _FIELD.fullmatch(lines[above])
    if above is None or field is None:
        return _GENERAL
    return (
        f"line {first_line + above} gives a value, `{field.group(1)}`, and has fields indented below it: "
        "drop the value, or indent the fields like it"
    )


class _Frame:
    """A mapping or list under construction."""

    __slots__ = ("anchor", "container", "key", "merged", "size_before")

    def __init__(self, container: dict[str, object] | list[object], anchor: str | None, size: int) -> None:
        self.container = container
        self.anchor = anchor
        self.size_before = size
        self.key: str | None = None
        self.merged: list[object] = []


class _Builder:
    """Takes the events of one document in order; at their end ``document`` is complete."""

    def __init__(self, first_line: int, text_keys: bool) -> None:
        self.document = YamlDocument(first_line)
        self._text_keys = text_keys
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._size = 0
        self._aliased = 0

    def take(self, event: "yaml.Event") -> None:
        """The next event of the parser; raises ``YamlError``."""
        import yaml

        line = event.start_mark.line if event.start_mark else 0
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event.value, event.tag, event.implicit[0], event.anchor, line)
        elif isinstance(event, yaml.MappingStartEvent):
            self._open({}, event.anchor, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._open([], event.anchor, line)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._close(line)
        elif isinstance(event, yaml.AliasEvent) and event.anchor is not None:
            self._alias(event.anchor, line)

    def _scalar(self, text: str, tag: str | None, plain: bool, anchor: str | None, line: int) -> None:
        """A key or a single value."""
        if self._at_key():
            self._key(text, plain, line)
            return
        value = _typed(text, tag, plain, line)
        self._size += 1
        if anchor is not None:
            self._anchors[anchor] = value, 1
        self._put(value, line)

    def _open(self, container: dict[str, object] | list[object], anchor: str | None, line: int) -> None:
        """A mapping or list begins."""
        if self._at_key():
            raise YamlError(line, "a key must be text", "write plain text before the colon")
        if len(self._stack) >= _DEEPEST:
            raise YamlError(line, f"is nested more than {_DEEPEST} levels deep", "flatten it")
        self._size += 1
        self._place(container, line)
        self._stack.append(_Frame(container, anchor, self._size))

    def _close(self, line: int) -> None:
        """The innermost mapping or list ends."""
        frame = self._stack.pop()
        if isinstance(frame.container, dict):
            _merge(frame.container, frame.merged, line)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = frame.container, self._size - frame.size_before + 1
        self._finish()

    def _alias(self, anchor: str, line: int) -> None:
        """A value that was given before."""
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
        if self._text_keys and plain and not isinstance(resolved(text), str):
            raise YamlError(line, f"key {text} is not text", "put it in quotes")
        if text in container:
            between = ", or write --- between the two objects" if text in _FIRST_KEYS else ""
            raise YamlError(line, f"key {text!r} is given twice", f"keep one of the two{between}")
        frame.key = text
        self.document.note(container, line)

    def _put(self, value: object, line: int) -> None:
        self._place(value, line)
        self._finish()

    def _place(self, value: object, line: int) -> None:
        """Puts a value, maybe still empty, where it belongs."""
        if not self._stack:
            self.document.begin(value, line)
            return
        frame = self._stack[-1]
        container = frame.container
        if isinstance(container, list):
            self.document.note(container, line)
            container.append(value)
        elif frame.key == _MERGE:
            frame.merged.append(value)
        elif frame.key is not None:
            container[frame.key] = value

    def _finish(self) -> None:
        if self._stack:
            self._stack[-1].key = None


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
        return resolved(text) if plain and tag is None else text
    value = text if tag == f"{_TAG}str" else resolved(text)
    wanted = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}
    name = tag.removeprefix(_TAG)
    if type(value) is not wanted.get(name) and not (name == "float" and type(value) is int):
        raise YamlError(line, f"tag {tag.replace(_TAG, '!!')} can't be used here", "take the tag out")
    return value


def resolved(text: str) -> object:
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
        number = int(digits[digits[0] in _BASES :] or "0", base)
        return -number if sign == "-" else number
    # Exponents stay text: a quantity such as 1e3 is exact that way.
    return float(text) if _FLOAT.fullmatch(text) else text
