"""Reads YAML as Kubernetes' tools print it, line by line: several times as fast as a parser of all YAML.

Block style with plain or quoted values and literal blocks is all that is understood here. What holds anything
else (anchors, flow style, folded text, letters beyond ASCII, a key given twice) is declined, and
``yaml_values`` reads it instead. What is read comes out as it would there; tests hold the two against each
other.
"""

import re
from functools import cache
from typing import Any, Final, NamedTuple

from closeby.errors import ClosebyError, YamlError
from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.yaml_values import resolved, yaml_documents

_KEY: Final = r"[A-Za-z0-9_./$][A-Za-z0-9_./$-]{0,200}(?::[A-Za-z0-9_./$-]{1,200})?"
_PLAIN: Final = (
    r"(?:[A-Za-z0-9/._+$(<=~^;]|-(?=[A-Za-z0-9/._]))(?:[!\"$-9;-~]|:(?! |$)|(?<! )#| +(?![# ]|$))*"
)
_LINE: Final = re.compile(
    rf"( *)(- +)?(?:({_KEY}):(?: +|$))?"
    rf"(?:({_PLAIN})|\"([ !#-\[\]-~]*)\"|'((?:[ -&(-~]|'')*)'|(\{{\}})|(\[\])|(\|-?))? *"
)
#: What most lines that are met once are like.
_SIMPLE: Final = re.compile(r" *([A-Za-z][A-Za-z0-9]{0,200}): (?:([A-Za-z0-9][A-Za-z0-9./-]*)|'([ -&(-~]*)')")
_BLANK: Final = re.compile(r" *(?:#[ -~]*)?")
_ODD: Final = re.compile(r"[^\t -~]")
#: What may refer to another item of a List.
_ALIAS: Final = re.compile(r"[\s,\[{:]\*[^\s*]")
_ITEMS: Final = re.compile(r"^items: *\n( *)- ", re.MULTILINE)
#: A line that does not belong to the last item of a List.
_AFTER_ITEMS: Final = re.compile(r"^[^ #\n-]", re.MULTILINE)
_DEEPEST: Final = 100
#: Different lines that are remembered, different fields twice, and the length of the longest ones.
_MOST_LINES: Final = 1 << 16
_MOST_FIELDS: Final = 1 << 14
_LONGEST_FIELD: Final = 2048
#: How deep a mapping is taken apart into fields, and the letters that it has at least.
_SPLIT_DEPTH: Final = 3
_SPLIT: Final = 300
_ITEM: Final = re.compile(r" *- (?=[^ \n#-])")

Value = dict[str, object] | list[object]


class DeclinedError(ClosebyError):
    """The text holds more than is understood here."""


class _Line(NamedTuple):
    """One line: a key, an entry of a list, or both."""

    #: Where it begins; below 0: it says nothing.
    column: int
    #: Whether it begins an entry of a list, and where the key in it begins then.
    dash: bool
    inner: int
    key: str | None
    value: object
    #: What is to be made of the value.
    form: int


_SCALAR, _LATER, _MAP, _LIST, _TEXT, _STRIPPED_TEXT = range(6)
_NOTHING: Final = _Line(-1, False, 0, None, None, _SCALAR)


class _Literal:
    """A block of text under construction; the lines that belong to it are deeper than ``column``."""

    def __init__(self, key: str | None, column: int, stripped: bool) -> None:
        self.key = key
        self._column = column
        self._stripped = stripped
        self._indent = 0
        self._lines: list[str] = []

    def takes(self, line: str) -> bool:
        """Whether the line belongs to it."""
        indent = len(line) - len(line.lstrip(" "))
        if indent == len(line):
            if not self._lines:
                raise DeclinedError
            self._lines.append(line[self._indent :])
            return True
        if not self._lines:
            if indent <= self._column or line[indent] == "\t":
                raise DeclinedError
            self._indent = indent
        if indent < self._indent:
            if indent > self._column:
                raise DeclinedError
            return False
        if _ODD.search(line):
            raise DeclinedError
        self._lines.append(line[self._indent :])
        return True

    def value(self) -> str:
        """The whole text."""
        if not self._lines:
            raise DeclinedError
        text = "\n".join(self._lines).rstrip("\n")
        return text if self._stripped else f"{text}\n"


class BlockReader:
    """Reads texts whose lines, and whose fields with all below them, are much alike.

    Values of equal fields are one object: who reads them must not change them.
    """

    def __init__(self, *, split: int = _SPLIT, remembered: int = _MOST_FIELDS) -> None:
        """``split``: mappings of so many letters are taken apart; ``remembered``: how many fields are."""
        self._split = split
        self._remembered = remembered
        self._lines: dict[str, _Line] = {}
        #: By its text: a field and its value; those that were met of late, and those of a while ago.
        self._fields: dict[str, tuple[str, object]] = {}
        self._older: dict[str, tuple[str, object]] = {}

    def item(self, text: str) -> Value:
        """A list of one mapping, whose text begins with its dash: as ``value`` gives it, but faster.

        Raises:
            DeclinedError: it is something else, or is written in another way.
        """
        found = _ITEM.match(text)
        if found is None or not text.endswith("\n"):
            return self.value(text)
        column = found.end()
        try:
            return [self._mapping(" " * column + text[column:-1], column, 0)]
        except DeclinedError:
            return self.value(text)

    def _mapping(self, text: str, column: int, depth: int) -> dict[str, object]:
        """A mapping whose keys stand in a column: text between two of them belongs to the first.

        That holds unless the first one is no key or begins text that is not indented, which is declined
        wherever it is met.
        """
        texts = _keys_in(column).split(text)
        fields, known = self._fields, self._fields.get
        whole: dict[str, object] = {}
        for one in texts:
            field = known(one)
            if field is None:
                simple = _SIMPLE.fullmatch(one)
                if simple is None:
                    field = self._field(one, column, depth)
                else:
                    field = fields[one] = _key_and_value(simple)
            whole[field[0]] = field[1]
        if len(fields) > self._remembered and fields is self._fields:
            self._older, self._fields = fields, {}
        if len(whole) < len(texts):
            raise DeclinedError
        return whole

    def _field(self, text: str, column: int, depth: int) -> tuple[str, object]:
        """A key with its value; what is met again is remembered."""
        field = self._older.get(text)
        if field is None:
            first, _, below = text.partition("\n")
            inner = len(below) - len(below.lstrip(" "))
            if (
                len(text) > self._split
                and depth < _SPLIT_DEPTH
                and inner > column
                and below[inner : inner + 1] not in "-#\n"
            ):
                line = self._lines.get(first) or self._learnt(first)
                if line.key is not None and line.form == _LATER:
                    return line.key, self._mapping(below, inner, depth + 1)
            found = self.value(f"{text}\n")
            if not isinstance(found, dict) or len(found) != 1:
                raise DeclinedError
            ((key, value),) = found.items()
            field = key, value
            if len(text) > _LONGEST_FIELD:
                return field
        self._fields[text] = field
        return field

    def value(self, text: str) -> Value:
        """The mapping or list in a text.

        Raises:
            DeclinedError: it is something else, or is written in another way.
        """
        lines = _text_lines(text)
        whole: dict[str, Any] = {}
        stack: list[tuple[int, Any]] = []
        # The innermost mapping or list, the column of its entries, and its key without a value as yet.
        at = -1
        top: Any = whole
        waiting: str | None = ""
        literal: _Literal | None = None
        for text_line, line in zip(lines, map(self._lines.get, lines), strict=True):
            if literal is not None:
                if literal.takes(text_line):
                    continue
                _closed(literal, top)
                literal = None
            column, dash, inner, key, value, form = line or self._learnt(text_line)
            if column < 0:
                continue
            if waiting is not None:
                # A list may begin in the column of its key.
                if column > at or (dash and column == at):
                    fresh: Any = [] if dash else {}
                    top[waiting] = fresh
                    stack.append((at, top))
                    at, top = column, fresh
                waiting = None
            while at > column or (at == column and (top.__class__ is list) is not dash):
                at, top = stack.pop()
            if at != column or len(stack) > _DEEPEST:
                raise DeclinedError
            if dash and key is not None:
                fresh = {}
                top.append(fresh)
                stack.append((at, top))
                at, top = inner, fresh
            if form == _SCALAR:
                _put(top, key, value)
            elif form < _TEXT:
                waiting = _opened(top, key, form)
            else:
                literal = _Literal(key, at, form == _STRIPPED_TEXT)
        _closed(literal, top)
        return _only(whole)

    def _learnt(self, text: str) -> _Line:
        line = _line(text)
        if len(self._lines) >= _MOST_LINES:
            self._lines.clear()
        self._lines[text] = line
        return line


@cache
def _keys_in(column: int) -> re.Pattern[str]:
    """Where a line begins whose first letter, which may begin a key, stands in a column."""
    return re.compile(rf"\n(?= {{{column}}}[^ \n#-])")


def _text_lines(text: str) -> list[str]:
    if not text.endswith("\n"):
        raise DeclinedError
    return text.removeprefix("---\n").split("\n")


def _opened(container: Any, key: str | None, form: int) -> str | None:
    """Puts a value that has no text in its place; returns the key where the value begins on a later line."""
    _put(container, key, {} if form == _MAP else [] if form == _LIST else None)
    return key if form == _LATER else None


def _closed(literal: _Literal | None, container: Any) -> None:
    if literal is not None:
        _put(container, literal.key, literal.value())


def _only(whole: dict[str, Any]) -> Value:
    found: Value | None = whole.get("")
    if found is None:
        raise DeclinedError
    return found


def _put(container: Any, key: str | None, value: object) -> None:
    if key is None:
        container.append(value)
    elif key in container:
        raise DeclinedError
    else:
        container[key] = value


def _key_and_value(simple: re.Match[str]) -> tuple[str, object]:
    key, plain, quoted = simple.groups()
    return key, quoted if plain is None else resolved(plain)


def _line(text: str) -> _Line:
    simple = _SIMPLE.fullmatch(text)
    if simple is not None:
        column = simple.start(1)
        return _Line(column, False, column, *_key_and_value(simple), _SCALAR)
    begin = text.lstrip(" ")[:1]
    if not begin or begin == "#":
        if _BLANK.fullmatch(text):
            return _NOTHING
        raise DeclinedError
    found = _LINE.fullmatch(text)
    if found is None:
        raise DeclinedError
    spaces, dash, key, plain, double, single, mapping, sequence, block = found.groups()
    column = len(spaces)
    inner = column + len(dash or "")
    value: object = None
    form = _SCALAR
    if plain is not None:
        value = resolved(plain)
    elif double is not None:
        value = double
    elif single is not None:
        value = single.replace("''", "'")
    elif mapping or sequence:
        form = _MAP if mapping else _LIST
    elif block is not None:
        form = _TEXT if block == "|" else _STRIPPED_TEXT
    elif key is None:
        raise DeclinedError
    else:
        form = _LATER
    if not dash and key is None:
        raise DeclinedError
    return _Line(column, dash is not None, inner, key, value, form)


class ListText(NamedTuple):
    """The text of a List, cut where its items begin; ``head`` is what it says besides."""

    text: str
    head: Value
    #: Where each item begins and ends.
    items: tuple[tuple[int, int], ...]


def list_text(text: str, reader: BlockReader) -> ListText | None:
    """A List in block style none of whose items refers to another; None where the text is anything else."""
    found = _ITEMS.search(text)
    if found is None or ("*" in text and _ALIAS.search(text)):
        return None
    mark = f"\n{found[1]}- "
    starts = []
    start = found.end(1) - len(found[1]) - 1
    while start >= 0:
        starts.append(start + 1)
        start = text.find(mark, start + 1)
    after = _AFTER_ITEMS.search(text, starts[-1])
    end = len(text) if after is None else after.start()
    try:
        head = reader.value(text[: found.start()] + text[end:])
    except DeclinedError:
        return None
    if "items" in head:
        return None
    return ListText(text, head, tuple(zip(starts, [*starts[1:], end], strict=True)))


class Lines:
    """Finds the line of a field in text that begins on ``first`` of its file, by reading it once more.

    ``cut`` is where the text is in ``whole``; of an item of a List, whose paths begin with ``items`` and
    its number, it is the item alone.
    """

    def __init__(self, whole: str, first: int, cut: tuple[int, int] | None = None) -> None:
        self._whole = whole
        self._first = first
        self._cut = cut

    def __call__(self, path: Path) -> int:
        if self._cut is None:
            return next(yaml_documents(self._whole, self._first)).line(path)
        start, end = self._cut
        first = self._first + self._whole.count("\n", 0, start)
        return next(yaml_documents(self._whole[start:end], first)).line((0, *path[2:]))


def item_value(text: str, reader: BlockReader) -> object:
    """The value of an item, whose text begins with its dash.

    Raises:
        YamlError: it is not YAML on its own, or more than one item.
    """
    try:
        value: object = reader.item(text)
    except DeclinedError:
        value = next(yaml_documents(text)).value
    if not isinstance(value, list) or len(value) != 1:
        raise YamlError(0, "is not one item", "")
    return value[0]
