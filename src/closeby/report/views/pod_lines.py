"""Pods with their nodes, and segments with their domains, in few lines."""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeAlias

from rich.table import Table
from rich.text import Text

from closeby.objects.words import names_text, path_text, plural, range_starts
from closeby.report.views.layout import and_more, plain_table
from closeby.scheduling.gangs.places import SegmentPlace

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


#: Domains that one line names, and lines of a table.
DOMAINS, LINES = 4, 12


def segment_lines(segments: Sequence[SegmentPlace]) -> Iterator[tuple[str, str]]:
    """Of each layer how many segments there are, and in which domains."""
    segments = _of_several(segments)
    for level in dict.fromkeys(one.level for one in segments):
        own = [one for one in segments if one.level == level]
        places = Counter(path_text(one.domain) for one in own)
        named = [path + (f" ×{count}" if count > 1 else "") for path, count in places.items()]
        more = [plural(len(named) - DOMAINS, "more domain")] if len(named) > DOMAINS else []
        split = [one.domains for one in own if not one.together]
        where = ", ".join([*named[:DOMAINS], *more])
        over = f" ({len(split)} split over up to {plural(max(split), level)})" if split else ""
        yield f"{plural(len(own), 'segment')} by {level}", where + over


def segments_table(segments: Sequence[SegmentPlace]) -> Table:
    """One line for each segment; empty where each has one pod, as the table of pods tells as much."""
    segments = _of_several(segments)
    table = plain_table("segment", "members", "where")
    for one in segments[:LINES]:
        where = Text(path_text(one.domain), style="" if one.together else "yellow")
        table.add_row(f"{one.level} {one.segment}", names_text(one.pods), where)
    and_more(table, len(segments) - LINES, "segment")
    return table


def _of_several(segments: Sequence[SegmentPlace]) -> Sequence[SegmentPlace]:
    """The segments of layers of which one has several pods."""
    levels = {one.level for one in segments if len(one.pods) > 1}
    return [one for one in segments if one.level in levels]
