"""Pods and their nodes in few lines."""

import pytest

from closeby.report.views.pod_lines import joined, line_text


def test_rows_share_a_line_where_pods_and_nodes_are_numbered_on() -> None:
    """Not where the number of pods changes, a node is left out, or something else that is said differs."""
    rows = [
        (["w-0", "w-1"], "n-1"),
        (["w-2", "w-3"], "n-2"),
        (["w-4"], "n-3"),
        (["w-5"], "n-5"),
        (["w-6"], "n-6"),
    ]
    assert [line_text(line) for line in joined(rows)] == [
        ("w-0..3", "n-1..2", " ×2 each"),
        ("w-4", "n-3", ""),
        ("w-5..6", "n-5..6", " ×1 each"),
    ]
    assert [len(line) for line in joined(rows, ["a", "a", "a", "a", "b"])] == [2, 1, 1, 1]


@pytest.mark.parametrize("names", [["w-0", "x-1"], ["w-0", "w-2"], ["w-1", "w-0"]])
def test_pods_that_are_not_numbered_on_have_lines_of_their_own(names: list[str]) -> None:
    assert len(joined([([names[0]], "n-1"), ([names[1]], "n-2")])) == 2
