"""The check of prose finds what it is there for, and nothing else."""

from pathlib import Path

from tests.prose.checks import WIDTH, counts, wide_lines, words_of_names, words_of_page, words_of_source
from tests.prose.given_up import REMAINING

LONG = "w" * (WIDTH + 1)


def test_a_wide_line_of_prose_is_found() -> None:
    assert list(wide_lines(f"narrow\n{LONG}\n")) == [(2, WIDTH + 1)]


def test_tables_images_and_fences_may_be_wide() -> None:
    page = f"| {LONG} |\n![{LONG}](x.svg)\n```text\n{LONG}\n```\n"
    assert list(wide_lines(page)) == []


def test_prose_after_a_fence_is_checked_again() -> None:
    assert [number for number, _ in wide_lines(f"```\n{LONG}\n```\n{LONG}")] == [4]


def test_words_that_were_given_up_are_found_in_prose_and_not_in_code() -> None:
    assert list(words_of_page("nothing\nit is told `told`\n```\nNobody\n```\nNobody")) == [
        (2, "told"),
        (6, "Nobody"),
    ]


def test_words_are_found_in_comments_and_strings_and_not_in_identifiers() -> None:
    assert list(words_of_source('told = 1  # anew\nx = f"{told} ``told`` whoever"\n')) == [
        (1, "anew"),
        (2, "whoever"),
    ]


def test_words_are_found_in_the_names_of_tests() -> None:
    assert list(words_of_names("def test_nobody_waits() -> None: ...")) == [("test_nobody_waits", "nobody")]


def test_no_more_is_excused_than_remains() -> None:
    found = counts(Path(__file__).parents[2])
    assert {place: most for place, most in REMAINING.items() if found[place] * 2 < most} == {}
