"""What the views share: sections, tables without lines, and conditions as one sentence."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from closeby.objects.bounds import MESSAGE, clipped, some
from closeby.objects.reasons import Condition
from closeby.objects.words import plural
from closeby.report.documents.common import FoundTopologyEntry

#: Columns between two columns of a table.
GAP = 3
#: Longer words are broken before a table becomes lines.
LONGEST_WORD = 20
#: After each of these a name may go on in the next line.
_PART: Final = re.compile(r"[^\s./_-]*[./_-]*")
#: In front of the lines below a row's name, and between two cells in one of them.
INDENT = 2
BETWEEN = ", "
#: What text keeps of a line before it is indented.
LEAST_ROOM = 8
#: Bytes of one cell that are shown.
CELL = 4 * MESSAGE
#: Wider than whatever a cell holds.
UNBOUNDED = 100_000


class Indented(Padding):
    """Something further to the right, with empty lines around it; where there is no room for both, the
    indentation gives way before the text."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left = min(self.left, max(options.max_width - LEAST_ROOM, 0))
        if left == self.left:
            yield from super().__rich_console__(console, options)
        else:
            yield Padding(self.renderable, (self.top, self.right, self.bottom, left), style=self.style)


class Section(Group):
    """A title, and below it the body, indented; other forms than a terminal's ask for the two apart."""

    def __init__(self, title: str, body: RenderableType) -> None:
        super().__init__(Text(""), Text(title, style="bold cyan"), Indented(body, (0, 0, 0, 2)))
        self.title = title
        self.body = body


def section(title: str, body: RenderableType) -> Section:
    """A title, and below it the body, indented."""
    return Section(title, body)


class PlainTable(Table):
    """A table that nothing is ever cut off from, however narrow the terminal is.

    Where its columns do not fit side by side, the wider ones are wrapped, but never a number nor, up to
    ``LONGEST_WORD``, a word; longer names are broken between their parts. Where that is not enough each row
    becomes lines: its first cell, and below it the others with the headings of their columns. Only a word
    that is longer than a line is broken then.

    Of a cell that is longer than any list of ours the beginning is shown: authors of objects choose names.
    """

    def add_row(
        self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        """A row, with its cells as far as they are shown."""
        super().add_row(*map(_bounded, cells), style=style, end_section=end_section)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        natural, least = self._widths(console, options)
        room = options.max_width - GAP * (len(self.columns) - 1)
        if sum(natural) <= room:
            yield from super().__rich_console__(console, options)
        elif sum(least) <= room:
            cells = [column._cells for column in self.columns]
            for column, width in zip(self.columns, _shared(natural, least, room), strict=True):
                column.width = width
                column._cells = [_folded(cell, width) for cell in column._cells]
            try:
                yield from super().__rich_console__(console, options)
            finally:
                for column, whole in zip(self.columns, cells, strict=True):
                    column.width, column._cells = None, whole
        else:
            yield from self._lines(options.max_width)

    def _widths(self, console: Console, options: ConsoleOptions) -> tuple[list[int], list[int]]:
        """What each column takes, and the least that it can do with; without the gaps between them."""
        natural, least = [], []
        unbounded = options.update(width=UNBOUNDED)
        for column in self.columns:
            heading = Measurement.get(console, unbounded, column.header)
            cells = [Measurement.get(console, unbounded, cell) for cell in column.cells]
            widest = max((one.maximum for one in cells), default=0)
            longest = min(max((one.minimum for one in (heading, *cells)), default=0), LONGEST_WORD)
            natural.append(max(widest, heading.maximum))
            # Numbers are never wrapped: they stand at the right.
            least.append(max(longest, widest) if column.justify == "right" else longest)
        return natural, least

    def _lines(self, width: int) -> Iterator[RenderableType]:
        first, *others = self.columns
        for row, cell in enumerate(first.cells):
            name = _joined(cell)
            depth = len(name.plain) - len(name.plain.lstrip())
            if name.plain:
                yield Indented(_named(first.header, name[depth:]), (0, 0, 0, depth))
            cells = ((column.header, _joined(list(column.cells)[row])) for column in others)
            texts = [_named(header, value) for header, value in cells if value.plain]
            for line in _packed(texts, width - depth - INDENT):
                yield Indented(line, (0, 0, 0, depth + INDENT))


def _folded(cell: RenderableType, width: int) -> RenderableType:
    """The cell with longer names broken between their parts; what follows is indented a little further."""
    text = cell.copy() if isinstance(cell, Text) else Text(f"{cell}")
    depth, cuts = len(text.plain) - len(text.plain.lstrip(" ")), []
    for word in re.finditer(r"\S+", text.plain):
        start, room = word.start(), width - depth
        for part in _PART.finditer(word[0]):
            end = word.start() + part.end()
            if end - start > room and word.start() + part.start() > start:
                start = word.start() + part.start()
                cuts.append(start)
    return Text("\n" + " " * depth).join(text.divide(cuts)) if cuts else cell


def _bounded(cell: RenderableType | None) -> RenderableType | None:
    if isinstance(cell, str):
        return clipped(cell, CELL)
    if isinstance(cell, Text) and len(cell.plain) > CELL:
        return Text(clipped(cell.plain, CELL), style=cell.style)
    return cell


def _named(header: RenderableType, value: Text) -> Text:
    """A cell behind the heading of its column."""
    heading = " ".join(f"{header}".split())
    return Text.assemble((heading, "dim"), " ", value) if heading else value


def _packed(parts: Iterable[Text], width: int) -> Iterator[Text]:
    """As many parts in a line as there is room for; one that is too long for a line will be wrapped."""
    line: Text | None = None
    for part in parts:
        if line is not None and line.cell_len + len(BETWEEN) + part.cell_len <= width:
            line.append(BETWEEN).append_text(part)
            continue
        if line is not None:
            yield line
        line = part
    if line is not None:
        yield line


def _joined(cell: RenderableType) -> Text:
    """A cell in one line."""
    text = cell if isinstance(cell, Text) else Text(f"{cell}")
    lines = [line for line in text.split("\n") if line.plain.strip()]
    for line in lines:
        line.rstrip()
    return Text("  ").join(lines)


def _shared(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths that fill the room: the widest columns give way first, and none below its least."""
    widths = list(natural)
    while sum(widths) > room:
        widest = max(
            (index for index in range(len(widths)) if widths[index] > least[index]),
            key=lambda index: widths[index],
        )
        widths[widest] -= 1
    return widths


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table for terminals and pipes alike; nothing is ever cut off. Columns of numbers stand ``right``."""
    table = PlainTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table


def and_more(table: Table, left: int, noun: str) -> None:
    """A last line that says how many lines are left out, if any are."""
    if left > 0:
        table.add_row(Text(f"{plural(left, f'more {noun}')} (-o json)", style="dim"))


def condition_line(entry: Condition) -> Text:
    """``! Node/n-1 status.allocatable: what is wrong; what to do (InvalidSpec)``."""
    field = f" {entry.field}" if entry.field else ""
    remedy = f"; {entry.remedy}" if entry.remedy else ""
    return Text.assemble(
        ("! ", "red" if entry.blocking else "yellow"),
        (entry.object, "bold"),
        f"{field}: {entry.message}{remedy} ",
        (f"({entry.reason})", "dim"),
    )


def worth_knowing(conditions: Iterable[Condition]) -> Iterator[RenderableType]:
    """A section with the conditions, each once; nothing when there are none."""
    lines = [condition_line(entry) for entry in dict.fromkeys(conditions)]
    if lines:
        yield section("Worth knowing", Group(*lines))


def found_text(found: FoundTopologyEntry) -> str:
    """By which labels a topology is known, and how it becomes an object."""
    return (
        f"Topology {found.name} is known from labels of {found.nodes:,} of {plural(found.of, 'node')} "
        f"({some(found.labels)}), since no Topology object is there. `{found.command}` prints it as an "
        "object (add -f PATH for nodes of files)."
    )
