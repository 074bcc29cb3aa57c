"""What a check can keep of the rules for prose: narrow lines in pages, and no words that were given up."""

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.prose.given_up import INSTEAD, REMAINING

WIDTH = 110
_GIVEN_UP = re.compile(rf"\b({'|'.join(INSTEAD)})\b", re.IGNORECASE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def findings(root: Path) -> list[str]:
    """All findings in the repository at ``root``."""
    wide = [
        f"{path.relative_to(root)}:{number}: {length} columns; the documentation ends at {WIDTH}"
        for path in pages(root)
        for number, length in wide_lines(path.read_text(encoding="utf-8"))
    ]
    return [*wide, *_given_up(root)]


def _given_up(root: Path) -> Iterator[str]:
    for path in pages(root):
        if path.name == "CHANGELOG.md":
            continue  # It keeps what earlier versions said.
        for number, word in words_of_page(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(root)}:{number}: {_advice(word)}"
    by_place: dict[str, list[str]] = {}
    for path in sorted((root / "src" / "closeby").rglob("*.py")):
        place = "/".join(path.relative_to(root).parts[:3])
        for number, word in words_of_source(path.read_text(encoding="utf-8")):
            by_place.setdefault(place, []).append(f"{path.relative_to(root)}:{number}: {_advice(word)}")
    for path in sorted((root / "tests").rglob("*.py")):
        for name, word in words_of_names(path.read_text(encoding="utf-8")):
            by_place.setdefault("tests", []).append(f"{path.relative_to(root)}: {name}: {_advice(word)}")
    for place, found in by_place.items():
        most = REMAINING.get(place, 0)
        if len(found) > most:
            count = f"{place}: {len(found)} words that were given up, where {most} were left"
            yield from [count] if most else found


def _advice(word: str) -> str:
    return f"'{word}' was given up; say {INSTEAD[word.lower()]}"


def counts(root: Path) -> Counter[str]:
    """How many words that were given up remain, by place."""
    found: Counter[str] = Counter()
    for path in (root / "src" / "closeby").rglob("*.py"):
        place = "/".join(path.relative_to(root).parts[:3])
        found[place] += sum(1 for _ in words_of_source(path.read_text(encoding="utf-8")))
    for path in (root / "tests").rglob("*.py"):
        found["tests"] += sum(1 for _ in words_of_names(path.read_text(encoding="utf-8")))
    return found


def words_of_page(page: str) -> Iterator[tuple[int, str]]:
    """The line and the word, outside of code and output."""
    prose = _CODE.sub(lambda code: "\n" * code[0].count("\n"), page)
    for number, line in enumerate(prose.splitlines(), start=1):
        for word in _GIVEN_UP.findall(line):
            yield number, word


def words_of_source(source: str) -> Iterator[tuple[int, str]]:
    """The line and the word, in comments and strings."""
    if not _GIVEN_UP.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == _FSTRING:
            prose = _CODE.sub("", token.string.replace("``", "`"))
            # What an f-string puts in is code; braces may nest once.
            prose = re.sub(r"\{(?:[^{}]|\{[^{}]*\})*\}", "", prose)
            for word in _GIVEN_UP.findall(prose):
                yield token.start[0], word


#: The text inside an f-string, from Python 3.12 on a token of its own.
_FSTRING = getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)


def words_of_names(source: str) -> Iterator[tuple[str, str]]:
    """The name of a test, and the word in it."""
    for name in _TEST.findall(source):
        for word in name.split("_"):
            if word in INSTEAD:
                yield name, word


def pages(root: Path) -> list[Path]:
    """The pages of the documentation."""
    return [*sorted(root.glob("*.md")), *sorted(root.glob("docs/**/*.md"))]


def wide_lines(page: str) -> Iterator[tuple[int, int]]:
    """The number and the length of each line that is too wide.

    Excepted is what can't be broken: rows of tables, images, and what stands between fences, which shows
    commands and output as they are.
    """
    fenced = False
    for number, line in enumerate(page.splitlines(), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif len(line) > WIDTH and not fenced and not line.startswith(("|", "![")):
            yield number, len(line)
