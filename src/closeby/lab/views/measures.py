"""All measures of a run as tables: each with its value and, in one line, what it is."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rich.table import Table
from rich.text import Text

from closeby.objects.words import time_text
from closeby.quality.segments import SegmentMeasures
from closeby.quality.summary import LevelMeasures, Measures
from closeby.report.views.layout import plain_table
from closeby.report.views.quality import seconds_text

#: Heading of the definitions.
DEFINITION: Final = "what it is"


class ShownMeasure(NamedTuple):
    """One measure: its field, its name and how it is written, and its definition."""

    field: str
    title: str
    written: Callable[[float], str]
    definition: str


def _number(value: float) -> str:
    return f"{value:,.2f}"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _gap(value: float) -> str:
    return f"+{100 * value:.1f} %"


def _times(value: float) -> str:
    return f"×{value:.3f}"


BY_LEVEL: Final = (
    ShownMeasure("span", "span", _number, "mean number of domains that a job touches"),
    ShownMeasure(
        "excess_span",
        "excess span",
        _number,
        "span over the fewest that could hold it when empty; 1 is ideal",
    ),
    ShownMeasure("greatest_excess_span", "greatest", _number, "the greatest excess span of a job"),
    ShownMeasure(
        "weighted_excess_span",
        "of large jobs",
        _number,
        "excess span of jobs larger than a node, weighted by GPU-time",
    ),
    ShownMeasure("cross_pairs", "cross pairs", _share, "pairs of pods of a job in different domains"),
    ShownMeasure(
        "ring_crossings",
        "ring crossings",
        _number,
        "edges of a job's ring of ranks that leave a domain, mean",
    ),
    ShownMeasure(
        "group_spread",
        "group spread",
        _number,
        "domains that the widest data- or pipeline-parallel group of a large job touches",
    ),
    ShownMeasure("mean_group_spread", "mean spread", _number, "the same, mean over its groups"),
    ShownMeasure(
        "largest_gang", "largest gang", _share, "the most that one domain could still hold, of all free GPUs"
    ),
    ShownMeasure(
        "stranded",
        "stranded",
        _share,
        "free GPUs in domains that cannot hold a gang that is next, of all free ones",
    ),
    ShownMeasure("span_gap", "span gap", _gap, "span over the least possible on what was free at the start"),
)
PLACES: Final = (
    ShownMeasure("mean_distance", "distance", _number, "tree edges between two pods of a job, mean"),
    ShownMeasure("diameter", "diameter", _number, "the same of the two farthest, mean over jobs"),
    ShownMeasure(
        "ring_hops",
        "ring hops",
        _times,
        "tree edges that the ring of ranks runs over, over the fewest in another order of ranks",
    ),
    ShownMeasure(
        "distance_gap", "distance gap", _gap, "distance over the least possible on what was free at the start"
    ),
    ShownMeasure(
        "compared", "compared", "{:,}".format, "jobs of up to 64 pods on several nodes whose gaps are known"
    ),
)
USE: Final = (
    ShownMeasure(
        "utilisation", "utilisation", _share, "GPU-time that jobs held while jobs came, of what there was"
    ),
    ShownMeasure(
        "goodput", "goodput", _share, "the same with each job counted by 1 / its slowdown, which is modelled"
    ),
    ShownMeasure("makespan", "makespan", time_text, "from the first submission to the last end"),
)
MODELLED: Final = (
    ShownMeasure(
        "all_reduce", "all-reduce", seconds_text, "of a job of several GPUs if all nodes send, mean"
    ),
    ShownMeasure(
        "contended_all_reduce", "… as they sent", seconds_text, "the same among the flows that were there"
    ),
    ShownMeasure(
        "slowdown",
        "slowdown",
        _times,
        "time of an all-reduce over that on an ideal placement, weighted by GPU-time",
    ),
    ShownMeasure("contended_slowdown", "… as they sent", _times, "the same among the flows that were there"),
    ShownMeasure(
        "job_slowdown", "… of whole jobs", _times, "what the first of the two makes of a job's run time"
    ),
)


SEGMENTS: Final = (
    ShownMeasure("size", "size", "{:,}".format, "pods of each segment; the last of a job may have fewer"),
    ShownMeasure("segments", "segments", "{:,}".format, "of all jobs that started, each time they did"),
    ShownMeasure(
        "span", "span", _number, "mean number of domains that a segment touches; 1 is what is asked"
    ),
    ShownMeasure("greatest_span", "greatest", "{:,}".format, "the most that one touches"),
    ShownMeasure("split", "split", _share, "segments in several domains"),
    ShownMeasure(
        "domains_per_segment", "domains", _number, "domains that a job touches for each of its segments"
    ),
    ShownMeasure(
        "outer_span", "apart", _number, "domains of the level above that a job of several segments touches"
    ),
)


def by_layer(layers: Iterable[SegmentMeasures], shown: Iterable[ShownMeasure]) -> Table:
    """A row for each measure, a column for each layer."""
    every = list(layers)
    names = [layer.level for layer in every]
    table = plain_table("", *names, DEFINITION, right=tuple(names))
    for one in shown:
        values = [getattr(layer, one.field) for layer in every]
        cells = ("–" if value is None else one.written(value) for value in values)
        table.add_row(one.title, *cells, Text(one.definition, style="dim"))
    return table


def by_level(levels: Iterable[LevelMeasures]) -> Table:
    """A row for each measure, a column for each level."""
    every = list(levels)
    names = [level.level for level in every]
    table = plain_table("", *names, DEFINITION, right=tuple(names))
    for one in BY_LEVEL:
        values = [getattr(level, one.field) for level in every]
        if any(value is not None for value in values):
            cells = ("–" if value is None else one.written(value) for value in values)
            table.add_row(one.title, *cells, Text(one.definition, style="dim"))
    return table


def of_run(measures: Measures, shown: Iterable[ShownMeasure]) -> Table:
    """A row for each measure that is known."""
    table = plain_table("", "all jobs", DEFINITION, right=("all jobs",))
    for one in shown:
        value = getattr(measures, one.field)
        if value is not None:
            table.add_row(one.title, one.written(value), Text(one.definition, style="dim"))
    return table
