"""Segments of gangs as lines and a table."""

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from closeby.objects.words import names_text, path_text, plural
from closeby.report.documents.segments import SegmentEntry
from closeby.report.views.layout import plain_table

#: Domains that one line names, and lines of a table.
DOMAINS, LINES = 4, 12


def segment_lines(segments: Sequence[SegmentEntry]) -> Iterator[tuple[str, str]]:
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


def segments_table(segments: Sequence[SegmentEntry]) -> Table:
    """One line for each segment; empty where each has one pod, as the table of pods tells as much."""
    segments = _of_several(segments)
    table = plain_table("segment", "members", "where")
    for one in segments[:LINES]:
        where = Text(path_text(one.domain), style="" if one.together else "yellow")
        table.add_row(f"{one.level} {one.segment}", names_text(one.pods), where)
    if len(segments) > LINES:
        more = plural(len(segments) - LINES, "more segment")
        table.add_row(Text(f"{more} (-o json lists all)", style="dim"), "", "")
    return table


def _of_several(segments: Sequence[SegmentEntry]) -> Sequence[SegmentEntry]:
    """The segments of layers of which one has several pods."""
    levels = {one.level for one in segments if len(one.pods) > 1}
    return [one for one in segments if one.level in levels]
