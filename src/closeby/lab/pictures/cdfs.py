"""Queueing delay and excess span as cumulative distributions: one run by groups, or policies side by side."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from closeby.lab.pictures.moments import cdf
from closeby.lab.pictures.paper import (
    PALE_INK,
    Spec,
    constant,
    data,
    label,
    marks,
    quantity,
    words,
)
from closeby.lab.replay.history import History, columns_of
from closeby.objects.arrays import Floats
from closeby.objects.words import plural, plural_noun
from closeby.quality.delays import SIZE_BUCKETS, SizeUnit, size_bucket, size_unit, sizes
from closeby.quality.placements import excess_spans, fewest, level_names, placements, spans
from closeby.quality.summary import waits_of

#: What is shown of the traffic of an application: the first is a cost, the others are shares of its pairs.
TALK = ("cost of a pair", "pairs on one node", "pairs in one zone", "pairs in one region")


class Distribution(Struct, frozen=True, kw_only=True, eq=False):
    """A share of all weight at or below each of some ascending values; the last share is 1."""

    #: Bucket of sizes or level.
    group: str
    #: What the group counts, in words, such as ``1,203 jobs``.
    jobs: int
    values: Floats
    shares: Floats


def delay_distributions(histories: Sequence[History]) -> tuple[Distribution, ...]:
    """By bucket of sizes: the share of jobs that waited at most so many seconds.

    A job that never started counts with what it had waited when the run stopped. Empty buckets are left out.
    """
    runs = [columns_of(history) for history in histories]
    waited = np.concatenate([run.by_job(waits_of(run)) for run in runs])
    size = np.concatenate([sizes(run.pods, run.gpus)[: run.jobs] for run in runs])
    buckets = np.asarray([size_bucket(one) for one in size.tolist()], dtype=np.str_)
    chosen = [(name, waited[buckets == name]) for name, _ in SIZE_BUCKETS]
    return tuple(_distribution(name, values, np.ones(len(values))) for name, values in chosen if len(values))


def span_distributions(histories: Sequence[History]) -> tuple[Distribution, ...]:
    """By level above nodes: the share of GPU-time of jobs larger than a node that ran so spread at most.

    Values are excess spans: domains used over the fewest that could hold the job on an empty cluster.
    """
    parts = [_excess(history) for history in histories]
    names = level_names(histories[0].tree)[:-1]
    found = []
    for level, name in enumerate(names):
        values = np.concatenate([excess[:, level] for excess, _ in parts])
        weights = np.concatenate([weight for _, weight in parts])
        if (~np.isnan(values) & (weights > 0)).any():
            found.append(_distribution(name, values, weights))
    return tuple(found)


def talk_distributions(histories: Sequence[History]) -> tuple[Distribution, ...]:
    """The network costs of applications, and where their pairs of dependent pods are, each named in ``TALK``.

    An application counts by the time that it ran with all its pods.
    """
    costs: list[tuple[float | None, ...]] = []
    ran: list[float] = []
    for history in histories:
        ended = np.where(np.isnan(history.ended), history.until, history.ended)
        for job, one in history.talk.items():
            cost = None if one.cost is None or not one.pairs else one.cost / one.pairs
            costs.append((cost, one.same_node, one.same_zone, one.same_region))
            ran.append(float(ended[job] - history.started[job]))
    values = np.asarray(costs, dtype=np.float64).reshape(-1, len(TALK))
    weights = np.asarray(ran)
    counted = ~np.isnan(values) & (weights > 0)[:, None]
    return tuple(
        _distribution(name, values[:, column], weights)
        for column, name in enumerate(TALK)
        if counted[:, column].any()
    )


def _distribution(group: str, values: Floats, weights: Floats) -> Distribution:
    ascending, shares = cdf(values, weights)
    counted = int(np.count_nonzero(~np.isnan(values) & (weights > 0)))
    return Distribution(group=group, jobs=counted, values=ascending, shares=shares)


def _excess(history: History) -> tuple[Floats, Floats]:
    """Excess spans, shape (J, K), and the GPU-time by which each job counts; 0 for jobs that a node holds."""
    run = columns_of(history)
    found = placements(run.tree, run.offsets, run.slots)
    least = fewest(run.tree, run.node_gpus, run.pods, run.gpus)
    ended = np.where(np.isnan(run.ended), run.until, run.ended)
    ran = np.where(np.isnan(run.started), 0.0, ended - run.started)
    weights = np.where(least[:, -1] > 1, ran * sizes(run.pods, run.gpus), 0.0)
    return excess_spans(spans(found), least), weights


WIDTH = 400.0
HEIGHT = 240.0
SMALL_WIDTH = 205.0
SMALL_HEIGHT = 170.0
POLICY = "policy"
HEADROOM = 0.03
#: A logarithmic axis has no zero: shorter waits are drawn here.
LEAST = 1.0
#: Where the axis of delays has its marks, in seconds.
MARKS = {
    1: "1 s",
    10: "10 s",
    60: "1 min",
    600: "10 min",
    3600: "1 h",
    36000: "10 h",
    259200: "3 d",
    2592000: "30 d",
}
#: Okabe and Ito's colours, made for colour-blind readers, without yellow and black; and dashes, so that lines
#: differ in print too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [12, 3], [4, 1])
#: A line is drawn over those before it, narrower than they are: where lines coincide all of them are seen.
WIDTHS = (5.5, 3.6, 2.4, 1.6, 1.1, 0.8)
#: Where the axis of shares may begin: at the greatest of these below which no line has a step.
BEGINNINGS = (0.0, 0.5, 0.8, 0.9, 0.98)
#: Greater spans have a logarithmic axis.
LINEAR_SPAN = 4.0
#: So many times the cost that a tenth of the time exceeds is an outlier, for which the axis is logarithmic.
OUTLIER = 5.0

#: Lines by policy, each with the group of jobs that it tells of.
PolicyLines = Mapping[str, Sequence[tuple[str, Distribution]]]


class Axis(Struct, frozen=True, kw_only=True):
    """What is drawn to the right, and what upward."""

    title: str
    begin: float
    end: float
    scale: Spec
    axis: Spec
    share: str
    #: What each group of jobs is, and what is said where there are none.
    groups: str
    otherwise: str


def delay_cdfs(histories: Mapping[str, Sequence[History]]) -> Spec:
    """Queueing delay by size of jobs. With several policies one panel a size, and a line for each of them."""
    found = {policy: delay_distributions(runs) for policy, runs in histories.items()}
    every = [one.values for lines in found.values() for one in lines]
    waited = np.concatenate([np.zeros(0), *every])
    waited = waited[waited > LEAST]
    # No space is given to waits that nothing had.
    begin = max((mark for mark in MARKS if mark <= waited.min(initial=np.inf)), default=LEAST)
    begin = begin if len(waited) else LEAST
    # A step at the longest wait is not at the very edge.
    end = max(1.1 * float(waited.max(initial=LEAST)), 10 * begin)
    values = [mark for mark in MARKS if begin <= mark <= end]
    texts = " : ".join(
        f"datum.value === {mark} ? '{'≤' if mark == begin else ''}{MARKS[mark]}'" for mark in values
    )
    axis = Axis(
        title="queueing delay",
        begin=begin,
        end=end,
        scale={"type": "log", "domain": [begin, end], "nice": False, "clamp": True},
        axis={
            "values": values,
            "labelExpr": f"{texts} : ''",
            "grid": True,
            "labelFlush": False,
            "labelSeparation": 8,
        },
        share="share of jobs",
        groups="size of job",
        otherwise="there are no jobs",
    )
    unit = size_unit(
        np.concatenate([run.jobs.gpus[run.counted] for runs in histories.values() for run in runs])
    )
    by_policy = {policy: [(_size(one.group, unit), one) for one in lines] for policy, lines in found.items()}
    return _panels(by_policy, axis, "delay")


def span_cdfs(histories: Mapping[str, Sequence[History]]) -> Spec:
    """Excess span by level. With several policies one panel a level, and a line for each of them."""
    found = {policy: span_distributions(runs) for policy, runs in histories.items()}
    greatest = max((float(one.values.max()) for lines in found.values() for one in lines), default=1.0)
    end = max(greatest * 1.02, 2.0)
    axis = Axis(
        title="excess span (1 is ideal)",
        begin=1.0,
        end=end,
        scale=_span_scale(end),
        axis={
            "grid": True,
            "labelFlush": False,
            **(
                {"tickCount": 6}
                if end <= LINEAR_SPAN
                else {"values": [2**power for power in range(11) if 2**power <= end]}
            ),
        },
        share="share of GPU-time",
        groups="level",
        otherwise="no job larger than a node ran",
    )
    by_policy = {policy: [(one.group, one) for one in lines] for policy, lines in found.items()}
    return _panels(by_policy, axis, "span")


def _span_scale(end: float) -> Spec:
    if end <= LINEAR_SPAN:
        return {"domain": [1, end], "nice": False}
    return {"type": "log", "base": 2, "domain": [1, end], "nice": False}


def talk_cdfs(histories: Mapping[str, Sequence[History]]) -> Spec:
    """What talk costs applications and how much of it stays near: a panel each, a line for each policy."""
    by_policy = {
        policy: [(one.group, one) for one in talk_distributions(runs)] for policy, runs in histories.items()
    }
    dearest = [
        float(one.values.max()) for lines in by_policy.values() for name, one in lines if name == TALK[0]
    ]
    usual = [
        float(one.values[np.searchsorted(one.shares, 0.9)])
        for lines in by_policy.values()
        for name, one in lines
        if name == TALK[0]
    ]
    cost = _talk_axis(
        TALK[0],
        max(1.02 * max(dearest, default=0.0), 1.0),
        {"tickCount": 5, "grid": True, "labelFlush": False},
        is_log=max(dearest, default=0.0) > OUTLIER * max(max(usual, default=0.0), 1.0),
    )
    share = _talk_axis(
        "share of its pairs",
        1.0,
        {"format": ".0%", "tickCount": 5, "grid": True, "labelFlush": False},
    )
    panels = [
        name for name in TALK if any(name == label for lines in by_policy.values() for label, _ in lines)
    ]
    if not panels:
        return _beside(_large(_nothing(cost), "talk"))
    charts = [
        _panel(by_policy, panel, cost if panel == TALK[0] else share, f"talk_{number}")
        for number, panel in enumerate(panels)
    ]
    return _beside(*charts)


def _beside(*charts: Spec) -> Spec:
    return {"hconcat": list(charts), "spacing": 18}


def _large(chart: Spec, name: str) -> Spec:
    """A chart that stands alone."""
    return {**chart, "width": WIDTH, "height": HEIGHT, "name": name}


def _talk_axis(title: str, end: float, axis: Spec, *, is_log: bool = False) -> Axis:
    scale: Spec = {"domain": [0, end], "nice": False}
    return Axis(
        title=f"{title}, logarithmic" if is_log else title,
        begin=0.0,
        end=end,
        scale={"type": "symlog", "constant": 1, **scale} if is_log else scale,
        axis=axis,
        share="share of applications",
        groups=POLICY,
        otherwise="no application with dependent pods had all of them placed",
    )


def _panel(by_policy: PolicyLines, panel: str, axis: Axis, name: str) -> Spec:
    """One panel of several, with a line for each policy."""
    lines = [(policy, one) for policy, all_ in by_policy.items() for label, one in all_ if label == panel]
    return {
        **_chart(lines, axis, POLICY, list(by_policy)),
        "width": SMALL_WIDTH,
        "height": SMALL_HEIGHT,
        "title": {"text": panel, "fontSize": 12, "anchor": "start"},
        "name": name,
    }


def _size(bucket: str, unit: SizeUnit) -> str:
    return f"1 {unit}" if bucket == "1" else f"{bucket} {plural_noun(unit)}"


def _panels(by_policy: PolicyLines, axis: Axis, name: str) -> Spec:
    if not any(by_policy.values()):
        return _beside(_large(_nothing(axis), name))
    if len(by_policy) == 1:
        (lines,) = by_policy.values()
        named = [(f"{label} ({plural(one.jobs, 'job')})", one) for label, one in lines]
        return _beside(_large(_chart(named, axis, axis.groups, [one for one, _ in named]), name))
    panels = dict.fromkeys(label for lines in by_policy.values() for label, _ in lines)
    charts = [_panel(by_policy, panel, axis, f"{name}_{number}") for number, panel in enumerate(panels)]
    return _beside(*charts)


def _chart(lines: Sequence[tuple[str, Distribution]], axis: Axis, title: str, names: Sequence[str]) -> Spec:
    low = _beginning([one for _, one in lines], axis)
    points = [point for name, one in lines for point in _points(name, one, axis, low)]
    rows = data(
        line=[name for name, _, _ in points],
        number=np.arange(len(points)),
        value=np.asarray([value for _, value, _ in points]),
        share=np.asarray([part for _, _, part in points]),
    )
    inks = [COLOURS[number % len(COLOURS)] for number in range(len(names))]
    dashes = [DASHES[number % len(DASHES)] for number in range(len(names))]
    widths = [WIDTHS[min(number, len(WIDTHS) - 1)] for number in range(len(names))]
    # A single policy stands in the heading.
    legend = (
        None
        if title == POLICY and len(names) == 1
        else {
            "title": title,
            "orient": "bottom",
            "columns": 2 if title != POLICY else 4,
            "symbolSize": 220,
            "labelLimit": 230,
        }
    )

    def told_apart(by: Sequence[object]) -> Spec:
        return {
            "field": "line",
            "type": "ordinal",
            "scale": {"domain": list(names), "range": list(by)},
            "legend": legend,
        }

    encoding = {
        "x": quantity("value", title=axis.title, scale=axis.scale, axis=axis.axis),
        "y": quantity(
            "share",
            title=f"{axis.share}, from {low:.0%}" if low else axis.share,
            # Some room above, so that the widest line is not cut at 100 %.
            scale={"domain": [low, 1 + HEADROOM * (1 - low)], "nice": False},
            axis={"format": ".1~%", "values": [low + (1 - low) * part / 5 for part in range(6)]},
        ),
        "color": told_apart(inks),
        "strokeDash": told_apart(dashes),
        "strokeWidth": told_apart(widths),
        "order": quantity("number"),
        "tooltip": [
            label("line", title=title),
            quantity("value", title=axis.title, format=",.4~g"),
            quantity("share", title=axis.share, format=".1%"),
        ],
    }
    return marks(rows, "line", encoding, interpolate="step-after")


def _beginning(lines: Sequence[Distribution], axis: Axis) -> float:
    """Where the axis of shares begins: all of the space below the lowest line would be empty."""
    at = [int(np.searchsorted(one.values, axis.begin, side="right")) for one in lines]
    lowest = min(
        (float(one.shares[end - 1]) if end else 0.0 for one, end in zip(lines, at, strict=True)), default=0.0
    )
    return max(part for part in BEGINNINGS if part == 0.0 or part < lowest)


def _nothing(axis: Axis) -> Spec:
    """Says that there is nothing to draw, so that no older file of that name is taken for this run's."""
    place = {"x": constant(WIDTH / 2), "y": constant(HEIGHT / 2), "text": label("text")}
    return words(data(text=[axis.otherwise]), place, align="center", fontSize=12, color=PALE_INK)


def _points(name: str, one: Distribution, axis: Axis, low: float) -> Iterator[tuple[str, float, float]]:
    """A step line that begins at the lowest share of the axis and goes on to the right end."""
    yield name, max(float(one.values[0]), axis.begin), low
    for value, part in zip(one.values.tolist(), one.shares.tolist(), strict=True):
        yield name, max(value, axis.begin), max(part, low)
    yield name, axis.end, 1.0
