"""A comparison on a terminal: a table for each kind of figures, policies below each other."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec import UNSET, UnsetType
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from closeby.lab.documents.comparison import ComparisonReport, FigureEntry, PolicyFigure
from closeby.objects.words import plural
from closeby.quality.model import Model
from closeby.report.views.layout import plain_table, section
from closeby.report.views.quality import constants


class _Scale(NamedTuple):
    """How the values of a column are written."""

    heading: str
    divisor: float
    decimals: int


#: What the headings mean, for who sees them the first time.
_WORDS: Final = (
    "Delay: from submission to start. For topology: more than if nothing were required of it, where jobs "
    "or the policy require something. Excess span: domains that jobs larger than a node are in, over the "
    "fewest that could hold them, 1 is ideal; group spread: domains that one of their data- or "
    "pipeline-parallel groups touches. Cross pairs: pairs of pods of a job in different domains; "
    "ring crossings: edges of its ring of ranks that leave a domain; ring hops: tree edges that the ring "
    "runs over, over the fewest in another order of ranks; distance: tree edges between pods of a job. Above "
    "the best: of a sample of jobs, over the least possible on what was free when they started. Largest "
    "gang: what one domain could still hold, of all that is free; stranded: what of it is in domains "
    "that cannot hold a gang that is next. Goodput: utilisation less what bad places and evictions lose; "
    "lost: since the last checkpoint, and to get back to it. Modelled are "
    "an all-reduce, if all nodes sent and among the flows that were there, and slowdown: of it and of "
    "whole jobs over ideal places, weighted by GPU-time, 1 is ideal. The model's constants are in JSON "
    "and in the HTML report."
)

#: The same for applications.
_WORDS_OF_APPLICATIONS: Final = (
    "Delay: from submission until the last pod has a node; started: applications that got so far. Cost: of "
    "the traffic between pods, 0 if all share a node, by the costs of the first configuration that uses any. "
    "Pairs: two pods of workloads that call each other; limit: their maxNetworkCost. Costs and pairs are "
    "means over the applications that started, by how long they ran."
)

_TIMES: Final = (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0))
#: Shorter times, in seconds, are shown in milliseconds.
_SHORT: Final = 0.1


def comparison_views(report: ComparisonReport, *, quality: bool = False) -> Iterator[RenderableType]:
    """What was run, the tables, and what the marks mean; with ``quality`` also the model's constants."""
    yield _what_ran(report)
    for title, figures in groupby(report.figures, key=lambda figure: figure.section):
        shown = [figure for figure in figures if any(one.mean is not None for one in figure.policies)]
        if shown:
            yield section(title, _table(shown))
    words = _WORDS if report.cluster.cores is UNSET else _WORDS_OF_APPLICATIONS
    yield Text(f"\n{_legend(report)}\n{words}", style="dim")
    if quality and isinstance(report.model, Model):
        yield section("Constants of what is modelled", constants(report.model))
    what = "job" if report.cluster.cores is UNSET else "application"
    for entry in report.unstarted:
        yield Text(f"\n{entry.policy}: {plural(entry.jobs, what)} never started", style="yellow")
    for notice in report.notices:
        yield Text(f"\nnote: {notice}", style="dim")
    if report.verdict:
        yield section("Verdict", Text("\n".join(one.sentence for one in report.verdict)))


def _what_ran(report: ComparisonReport) -> Text:
    workload, cluster = report.workload, report.cluster
    seeds = f"{plural(len(workload.seeds), 'seed')} of " if workload.seeds else ""
    what, room = "job", plural(cluster.gpus, "GPU")
    if not isinstance(cluster.cores, UnsetType):
        what, room = "application", f"{cluster.cores:,.0f} cores"
    text = Text.assemble(
        f"{seeds}{plural(workload.jobs, what)} of ",
        (workload.name, "bold"),
        f" on {cluster.name}: {plural(cluster.nodes, 'node')} with {room}",
    )
    details = [f"load {workload.load:g}"] if workload.load is not None else []
    if workload.standing:
        details.append(f"and the {what}s that already run when the clock begins")
    return text.append(f"\n{', '.join(details)}", style="dim") if details else text


def _table(figures: Sequence[FigureEntry]) -> Table:
    scales = [_scale(figure) for figure in figures]
    runs = len(figures[0].policies[0].values)
    headings = [scale.heading for scale in scales]
    table = plain_table("", *headings, right=tuple(headings))
    for index, name in enumerate(one.policy for one in figures[0].policies):
        cells = [
            _cell(figure.policies[index], scale, index == 0, runs)
            for figure, scale in zip(figures, scales, strict=True)
        ]
        table.add_row(Text(name, style="bold" if index == 0 else ""), *cells)
    return table


def _scale(figure: FigureEntry) -> _Scale:
    """Shares in percent, times in the unit in which the greatest of them is not small."""
    title = figure.title.replace(", ", "\n")
    if figure.unit == "share":
        return _Scale(f"{title}\n%", 0.01, 2)
    if figure.unit == "ratio":
        return _Scale(title, 1.0, 3)
    if figure.unit == "number":
        return _Scale(title, 1.0, 1)
    most = max((abs(one.mean) for one in figure.policies if one.mean is not None), default=0.0)
    if 0 < most < _SHORT:
        return _Scale(f"{title}\nms", 1e-3, 2)
    unit, size = next(((unit, size) for unit, size in _TIMES if most >= 2 * size), ("s", 1.0))
    return _Scale(f"{title}\n{unit}", size, 1)


def _cell(figure: PolicyFigure, scale: _Scale, is_reference: bool, runs: int) -> Text:
    """The mean; below it the difference from the reference; each with its seeds where not all tell."""
    if figure.mean is None:
        return Text("–")
    text = Text(f"{figure.mean / scale.divisor:,.{scale.decimals}f}{_seeds(figure.seeds, runs)}")
    if is_reference or figure.difference is None:
        return text
    said = f"{figure.difference / scale.divisor:+,.{scale.decimals}f}"
    if figure.low is not None and figure.high is not None:
        half = (figure.high - figure.low) / 2 / scale.divisor
        said += f" ±{half:,.{scale.decimals}f}"
    style = "dim" if figure.better is None else "green" if figure.better else "red"
    said += ("*" if figure.differs else "") + _seeds(figure.paired_seeds, min(figure.seeds, runs))
    return text.append("\n").append(said, style=style)


def _seeds(known: int, of: int) -> str:
    return "" if known == of else f" (n={known})"


def _legend(report: ComparisonReport) -> str:
    below = f"below each figure its difference from {report.reference}"
    if len(report.workload.seeds) < 2:
        return f"{below}; one run of each says nothing about random variation"
    percent = f"{100 * report.confidence:g} %"
    legend = (
        f"{below}: mean over the seeds, and its {percent} confidence interval ({report.method}); "
        "* where that excludes 0"
    )
    runs = len(report.workload.seeds)
    few = any(
        one.mean is not None and one.seeds < runs for figure in report.figures for one in figure.policies
    )
    return f"{legend}; n: seeds with a value, where not all have one" if few else legend
