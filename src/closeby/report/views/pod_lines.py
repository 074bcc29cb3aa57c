"""Pods and their nodes in few lines: pods on one node share a line, and so do nodes that are numbered on."""

from collections.abc import Hashable, Sequence
from typing import TypeAlias

from closeby.objects.words import names_text, range_starts

#: Pods, and the node that they share.
Row: TypeAlias = tuple[list[str], str]


def joined(rows: Sequence[Row], besides: Sequence[Hashable] = ()) -> list[list[Row]]:
    """Rows as lines: neighbours with as many pods each, where pods and nodes are numbered on, share one.

    ``besides``: what else is said of each row, which has to be equal then.
    """
    node_starts = range_starts(node for _, node in rows)
    pod_starts = range_starts(name for names, _ in rows for name in names)
    lines: list[list[Row]] = []
    first = 0
    for number, row in enumerate(rows):
        before, end = first - len(rows[number - 1][0]), first + len(row[0])
        if (
            number
            and number not in node_starts
            and len(rows[number - 1][0]) == len(row[0])
            and pod_starts.isdisjoint(range(before + 1, end))
            and (not besides or besides[number - 1] == besides[number])
        ):
            lines[-1].append(row)
        else:
            lines.append([row])
        first = end
    return lines


def line_text(line: Sequence[Row]) -> tuple[str, str, str]:
    """Pods, nodes, and how many pods each node has, where that is not one: `` ×2``, `` ×1 each``."""
    pods = names_text([name for names, _ in line for name in names])
    each = len(line[0][0])
    times = f" ×{each} each" if len(line) > 1 else f" ×{each}" if each > 1 else ""
    return pods, names_text([node for _, node in line]), times
