"""What the views share: sections, tables without lines, and conditions as one sentence."""

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from closeby.report.documents.conditions import ConditionEntry


class Section(Group):
    """A title, and below it the body, indented; other forms than a terminal's ask for the two apart."""

    def __init__(self, title: str, body: RenderableType) -> None:
        super().__init__(Text(""), Text(title, style="bold cyan"), Padding(body, (0, 0, 0, 2)))
        self.title = title
        self.body = body


def section(title: str, body: RenderableType) -> Section:
    """A title, and below it the body, indented."""
    return Section(title, body)


def plain_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table for terminals and pipes alike; nothing is ever cut off."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table


def condition_line(entry: ConditionEntry) -> Text:
    """``! Node/n-1 status.allocatable: what is wrong; what to do (InvalidSpec)``."""
    field = f" {entry.field}" if entry.field else ""
    remedy = f"; {entry.remedy}" if entry.remedy else ""
    return Text.assemble(
        ("! ", "red" if entry.blocking else "yellow"),
        (entry.object, "bold"),
        f"{field}: {entry.message}{remedy} ",
        (f"({entry.reason})", "dim"),
    )


def worth_knowing(conditions: Iterable[ConditionEntry]) -> Iterator[RenderableType]:
    """A section with the conditions, each once; nothing when there are none."""
    lines = [condition_line(entry) for entry in dict.fromkeys(conditions)]
    if lines:
        yield section("Worth knowing", Group(*lines))
