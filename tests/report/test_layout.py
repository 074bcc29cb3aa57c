"""Tables on terminals of any width: nothing is cut off, and no number is broken."""

import io
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from closeby.report.views.layout import LONGEST_WORD, plain_table, section


def drawn(view: RenderableType, width: int) -> list[str]:
    """The lines as a terminal of that width shows them."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(view)
    return [line.rstrip() for line in capture.get().splitlines()]


def gangs() -> Table:
    table = plain_table("gang", "placed", "where it is", right=("placed",))
    table.add_row("default/train", "10/10", "zone-a/rack-2 and the rest of it elsewhere")
    table.add_row("", "1,234", Text("zone-b\n+0.25 ±0.10"))
    return table


def test_of_a_cell_that_is_longer_than_any_list_the_beginning_is_shown() -> None:
    table = plain_table("gang", "message")
    table.add_row("x" * 262_144, Text("y" * 262_144))
    shown = "".join(drawn(table, 80))
    assert 1_000 < shown.count("x") < 5_000 and 1_000 < shown.count("y") < 5_000
    assert shown.count("more bytes)") == 2


def test_side_by_side_where_there_is_room() -> None:
    assert drawn(gangs(), 80) == [
        "gang            placed   where it is",
        "─" * 67,
        "default/train    10/10   zone-a/rack-2 and the rest of it elsewhere",
        "                 1,234   zone-b",
        "                         +0.25 ±0.10",
    ]


def test_wide_columns_are_wrapped_first() -> None:
    assert drawn(gangs(), 45) == [
        "gang            placed   where it is",
        "─" * 45,
        "default/train    10/10   zone-a/rack-2 and",
        "                         the rest of it",
        "                         elsewhere",
        "                 1,234   zone-b",
        "                         +0.25 ±0.10",
    ]


def test_rows_become_lines_where_columns_do_not_fit() -> None:
    """A row whose first cell is empty goes on with the one before."""
    assert drawn(gangs(), 30) == [
        "gang default/train",
        "  placed 10/10",
        "  where it is zone-a/rack-2",
        "  and the rest of it elsewhere",
        "  placed 1,234",
        "  where it is zone-b  +0.25",
        "  ±0.10",
    ]


def test_what_lies_inside_stays_inside() -> None:
    table = plain_table("domain", "nodes", "free", right=("nodes", "free"))
    table.add_row("the cluster", "12", "1,000")
    table.add_row("  zone-a", "6", "")
    assert drawn(section("Topology", table), 24) == [
        "",
        "Topology",
        "  domain the cluster",
        "    nodes 12, free 1,000",
        "    domain zone-a",
        "      nodes 6",
    ]


def test_on_a_line_of_a_few_letters_the_indentation_gives_way_and_nothing_is_lost() -> None:
    table = plain_table("domain", "free", right=("free",))
    table.add_row("  zone-a", "1,000")
    assert drawn(section("Topology", section("Trees", table)), 12) == [
        "",
        "Topology",
        "",
        "  Trees",
        "    domain",
        "    zone-a",
        "    free",
        "    1,000",
    ]
    assert drawn(section("Topology", table), 5)[-5:] == ["domai", "n", "zone-", "a", "free", "1,000"][-5:]


@given(
    depth=st.integers(0, 5),
    width=st.integers(2, 30),
    words=st.lists(st.text("ab-字", min_size=1), max_size=3),
)
def test_no_letter_is_lost_at_any_width(depth: int, width: int, words: list[str]) -> None:
    table = plain_table("name", "count", "where it is", right=("count",))
    table.add_row(f"{'  ' * depth}leaf-1", "12,345", " ".join(words))
    lines = drawn(section("Topology", section("Inside", table)), width)
    shown = Counter("".join(lines))
    told = Counter("".join(("Topology", "Inside", "leaf-1", "12,345", *words)))
    assert told <= shown
    assert max(cell_len(line) for line in lines) <= width


WORD = st.text("abcdefgh/-", min_size=1, max_size=LONGEST_WORD)
NUMBER = st.integers(0, 10**7).map("{:,}".format)


@given(
    rows=st.lists(st.tuples(st.lists(WORD, min_size=1, max_size=4), NUMBER, NUMBER), min_size=1, max_size=4),
    width=st.integers(LONGEST_WORD + 4, 100),
)
def test_every_word_and_number_stays_whole(rows: list[tuple[list[str], str, str]], width: int) -> None:
    table = plain_table("name", "first", "second one", right=("first", "second one"))
    for words, first, second in rows:
        table.add_row(" ".join(words), first, second)
    lines = drawn(table, width)
    assert max(len(line) for line in lines) <= width
    pieces = [piece.rstrip(",") for line in lines for piece in line.split()]
    for words, first, second in rows:
        for word in (*words, first, second):
            assert word in pieces


@pytest.mark.parametrize("width", [45, 80])
def test_a_table_may_be_drawn_again_at_another_width(width: int) -> None:
    table = gangs()
    first = drawn(table, width)
    drawn(table, 46)
    drawn(table, 30)
    assert drawn(table, width) == first


def test_a_long_name_is_broken_between_its_parts_and_stays_indented() -> None:
    table = plain_table("domain", "who")
    table.add_row(Text("  gke-pool-1-0a7b.us-central1.my-project.internal", style="red"), "somebody else")
    table.add_row("  n-1", "")
    assert drawn(table, 46) == [
        "domain                           who",
        "─" * 46,
        "  gke-pool-1-0a7b.us-central1.   somebody else",
        "  my-project.internal",
        "  n-1",
    ]
