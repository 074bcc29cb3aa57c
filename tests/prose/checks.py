"""What a check can keep of the rules for prose: the width of lines in the documentation."""

from collections.abc import Iterator
from pathlib import Path

WIDTH = 110


def findings(root: Path) -> list[str]:
    """All findings in the repository at ``root``, sorted by path and line."""
    return [
        f"{path.relative_to(root)}:{number}: {length} columns; the documentation ends at {WIDTH}"
        for path in pages(root)
        for number, length in wide_lines(path.read_text(encoding="utf-8"))
    ]


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
