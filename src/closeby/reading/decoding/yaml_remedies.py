"""What to do about text that is not YAML, where its parser only says what it met."""

import re
from typing import Final

_GENERAL: Final = "check the indentation and the quotes there"
_UNEXPECTED_FIELD: Final = "mapping values are not allowed in this context"
_FIELD: Final = re.compile(r"\s*(?:- +)*([\w./-]+:[ \t]+[^\s#].*?)\s*")


def yaml_remedy(problem: str | None, text: str, line: int, column: int, first_line: int) -> str:
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
