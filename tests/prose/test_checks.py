"""The check of prose finds what it is there for, and nothing else."""

from tests.prose.checks import WIDTH, wide_lines

LONG = "w" * (WIDTH + 1)


def test_a_wide_line_of_prose_is_found() -> None:
    assert list(wide_lines(f"narrow\n{LONG}\n")) == [(2, WIDTH + 1)]


def test_tables_images_and_fences_may_be_wide() -> None:
    page = f"| {LONG} |\n![{LONG}](x.svg)\n```text\n{LONG}\n```\n"
    assert list(wide_lines(page)) == []


def test_prose_after_a_fence_is_checked_again() -> None:
    assert [number for number, _ in wide_lines(f"```\n{LONG}\n```\n{LONG}")] == [4]
