"""How many GPUs are busy, and who waits, over time; the time after the jobs is drawn short."""

from collections.abc import Iterator
from math import floor, log10

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.pictures.moments import Moments, thinned
from closeby.lab.pictures.paper import (
    INK,
    MOMENT,
    PALE_INK,
    RULE,
    STOP,
    Spec,
    calculated,
    constant,
    data,
    label,
    layered,
    marks,
    quantity,
    where,
    words,
)
from closeby.lab.replay.history import History
from closeby.objects.arrays import Counts, Floats
from closeby.objects.words import plural, time_text

#: Length of an axis in pixels, and how much of it the time has in which jobs come or wait, if it is cut short
#: to less than that otherwise.
WIDTH = 960.0
FOCUS = 0.85
#: Marks on that part and on the rest.
MARKS = 12
MARKS_AFTER = 2


class TimeAxis(Struct, frozen=True, kw_only=True):
    """From 0 to ``last``, in the unit of the moments; bent at ``focus`` where that is earlier."""

    focus: float
    last: float
    marks: tuple[float, ...]
    #: What is to be said of it.
    notes: tuple[str, ...]

    @property
    def bent(self) -> bool:
        """Whether the time after ``focus`` is drawn shorter than the time before."""
        return self.focus < self.last

    def scale(self) -> Spec:
        """Where times are."""
        if not self.bent:
            return {"domain": [0, self.last], "nice": False}
        bends = {"domain": [0, self.focus, self.last], "range": [0, FOCUS * WIDTH, WIDTH]}
        return {**bends, "nice": False}

    def places(self, times: Floats) -> Floats:
        """Pixels from the left."""
        if not self.last:
            return np.zeros_like(times)
        ends = ([0, self.focus, self.last], [0, FOCUS * WIDTH, WIDTH])
        return np.interp(times, *(ends if self.bent else ([0, self.last], [0, WIDTH])))


def axis_of(history: History, moments: Moments) -> TimeAxis:
    """The axis of a run."""
    last = moments.last
    seconds = history.quiet_from
    focus = float(moments.in_units(np.asarray(seconds)))
    if not 0 < focus < FOCUS * last:
        return TimeAxis(focus=last, last=last, marks=_marks(0.0, last, MARKS), notes=())
    note = (
        f"Jobs came or waited for {time_text(seconds)}; the {time_text(history.until - seconds)} after that, "
        "in which the last of them ended, are drawn shorter, behind the dashed line."
    )
    marks = (*_marks(0.0, focus, MARKS), *_marks(focus, last, MARKS_AFTER)[-MARKS_AFTER:])
    return TimeAxis(focus=focus, last=last, marks=tuple(dict.fromkeys(marks)), notes=(note,))


def _marks(begin: float, end: float, most: int) -> tuple[float, ...]:
    """Round times, not more than so many."""
    if end <= begin:
        return (begin,)
    step = 10.0 ** floor(log10((end - begin) / most))
    step *= next(factor for factor in (1, 2, 5, 10) if (end - begin) / (factor * step) <= most)
    numbers = np.arange(np.ceil(begin / step - 1e-9), np.floor(end / step + 1e-9) + 1)
    return tuple(np.round(numbers * step, 9).tolist())


HEIGHT = 110.0
LOW = 52.0
#: Room for labels beside each axis, so that the titles stand below each other.
LABELS = 44
#: How much higher than its capacity a panel is.
HEADROOM = 1.12
#: Up to this count an axis names every number.
FEW = 4
BUSY = "#2166AC"
QUEUED = "#B2570C"
JOBS = "#6B3FA0"
EVICTED = "#8C2D04"


def timeline(history: History, moments: Moments, height: float = HEIGHT) -> Spec:
    """GPUs or cores busy and how many there are, GPUs that waiting jobs ask for, waiting jobs, and GPUs of
    jobs that were evicted, one above the other."""
    return {"vconcat": list(_panels(history, moments, height, None)), "spacing": 12}


def scrubbed_timeline(history: History, moments: Moments) -> Spec:
    """The same, low, with a line at the chosen moment and what holds then in words above."""
    panels = _panels(history, moments, LOW, _rule())
    return {"vconcat": [_in_words(history, moments), *panels], "spacing": 8}


class _Series(Struct, frozen=True, kw_only=True, eq=False):
    """One line over time; T moments, in seconds."""

    times: Floats
    values: NDArray[np.int64]
    title: str
    ink: str
    top: float
    #: How much there is of it; 0 where there is no such bound.
    capacity: float = 0.0
    #: Whether a value is of its moment alone, and does not hold until the next.
    moments_only: bool = False


def _panels(history: History, moments: Moments, height: float, above: Spec | None) -> Iterator[Spec]:
    samples = history.samples
    queued_gpus, queued = float(samples.queued_gpus.max(initial=1)), float(samples.queued.max(initial=1))
    at = samples.times
    series = [_Series(times=at, values=samples.queued, title="jobs queued", ink=JOBS, top=queued)]
    if history.told_in_gpus:
        gpus = float(history.node_gpus.sum())
        series = [
            _Series(times=at, values=samples.busy, title="GPUs busy", ink=BUSY, top=gpus, capacity=gpus),
            _Series(times=at, values=samples.queued_gpus, title="GPUs queued", ink=QUEUED, top=queued_gpus),
            *series,
        ]
    elif (cores := history.node_cpu.sum() / 1000) and history.jobs.graphs:
        times, held = _cores_held(history)
        series = [
            _Series(times=times, values=held, title="cores busy", ink=BUSY, top=cores, capacity=cores),
            *series,
        ]
    if len(history.cut):
        series.append(_evicted(history))
    axis = axis_of(history, moments)
    over = [*([] if above is None else [above]), *([_end(axis)] if axis.bent else [])]
    for number, one in enumerate(series):
        tall = LOW if one.moments_only else height
        layers = [*_line(one, moments, axis, with_times=one is series[-1], low=tall <= LOW)]
        if one.capacity:
            layers += _capacity(one, axis)
        yield layered(*layers, *over, width=WIDTH, height=tall, name=f"timeline_{number}")


def _evicted(history: History) -> _Series:
    """GPUs (pods where jobs ask for none) of the jobs that were evicted at each moment; nothing holds."""
    cut, jobs = history.cut, history.jobs
    sizes = jobs.sizes if history.told_in_gpus else jobs.pods
    times, row = np.unique(cut.ended, return_inverse=True)
    values = np.bincount(row.reshape(-1), weights=sizes[cut.job]).astype(np.int64)
    what = "GPUs evicted" if history.told_in_gpus else "pods evicted"
    most = float(values.max())
    return _Series(times=times, values=values, title=what, ink=EVICTED, top=most, moments_only=True)


def _cores_held(history: History) -> tuple[Floats, NDArray[np.int64]]:
    """Cores that applications hold after each moment at which some start or end."""
    ran = np.flatnonzero(~np.isnan(history.started))
    graphs = [history.jobs.graphs[job] for job in ran.tolist()]
    cores = np.asarray([0.0 if one is None else one.cores for one in graphs])
    ends = history.ended[ran]
    gone = ~np.isnan(ends)
    times = np.concatenate((np.zeros(1), history.started[ran], ends[gone]))
    change = np.concatenate((np.zeros(1), cores, -cores[gone]))
    moments, row = np.unique(times, return_inverse=True)
    held = np.cumsum(np.bincount(row.reshape(-1), weights=change))
    return moments, np.round(held).astype(np.int64)


def _capacity(series: _Series, axis: TimeAxis) -> Iterator[Spec]:
    """A line at all there is, with the number above its end."""
    name = series.title.split(" ")[0]
    rows = data(
        end=np.asarray([axis.last]),
        most=np.asarray([series.capacity]),
        text=[f"{series.capacity:,.0f} {name}"],
    )
    most = quantity("most")
    yield marks(rows, "rule", {"y": most}, color=RULE, strokeWidth=1, strokeDash=[5, 3])
    place = {"x": quantity("end"), "y": most, "text": label("text")}
    look = {"align": "right", "baseline": "bottom", "fontSize": 9, "dy": -1, "clip": False}
    yield words(rows, place, color=RULE, **look)


def _line(
    series: _Series, moments: Moments, axis: TimeAxis, *, with_times: bool, low: bool
) -> Iterator[Spec]:
    values, times = series.values, series.times
    kept = thinned(axis.places(moments.in_units(times)), values)
    at, value = moments.in_units(times[kept]), values[kept]
    if not series.moments_only:
        # The last value holds until the end; without this point its step would have no length.
        at, value = np.append(at, moments.last), np.append(value, values[-1:] if len(values) else 0)
    rows = data(time=at, value=value, number=np.arange(len(at)))
    time = f"time [{moments.unit}]"
    x = quantity(
        "time",
        title=time if with_times else None,
        scale=axis.scale(),
        axis={
            "grid": False,
            "labels": with_times,
            "labelFlush": False,
            "values": list(axis.marks),
            # With digits of its own: by itself an axis takes as many as its steps need, and 100 is 1e+2 then.
            "format": ",.9~g",
        },
    )
    # Room for the line at the capacity, and for its name.
    top = max(series.top, 1.0) * (HEADROOM if series.capacity else 1.0)
    y = quantity(
        "value",
        title=series.title,
        scale={"domain": [0, top], "nice": False},
        axis=_counts(series.top, 2 if low else 4),
        # Values of the same moment would be stacked otherwise.
        stack=None,
    )
    tooltip = [
        quantity("time", title=time, format=",.2f"),
        quantity("value", title=series.title, format=",d"),
    ]
    if series.moments_only:
        floor = {"x": x, "y": y, "y2": {"datum": 0}, "tooltip": tooltip}
        yield marks(rows, "rule", floor, color=series.ink, strokeWidth=1.2)
        return
    place, look = {"x": x, "y": y}, {"interpolate": "step-after", "color": series.ink}
    line = {**place, "order": quantity("number"), "tooltip": tooltip}
    yield marks(rows, "area", place, opacity=0.18, **look)
    yield marks(rows, "line", line, strokeWidth=1.2, **look)


def _counts(top: float, ticks: int) -> Spec:
    """Whole numbers only, each once."""
    if top > FEW:
        return {"format": ",d", "tickCount": ticks, "minExtent": LABELS}
    return {"format": ",d", "values": list(range(int(top) + 1)), "minExtent": LABELS}


def _end(axis: TimeAxis) -> Spec:
    """Where jobs come and wait no more, and the axis bends."""
    rows = data(end=np.asarray([axis.focus]))
    return marks(rows, "rule", {"x": quantity("end")}, color=PALE_INK, strokeWidth=1, strokeDash=[3, 3])


def _rule() -> Spec:
    """The chosen moment."""
    rows = data(row=np.zeros(1))
    moment = calculated(moment=MOMENT)
    return marks(rows, "rule", {"x": quantity("moment")}, *moment, color=RULE, strokeWidth=1.5)


def _in_words(history: History, moments: Moments) -> Spec:
    """``At 26.5 h: 5,312 of 6,776 GPUs busy, 12 jobs wait for 400 GPUs`` for each stop of the slider."""
    stops, samples = moments.stops, history.samples
    index = np.searchsorted(moments.in_units(samples.times), stops, side="right") - 1
    columns = [
        np.where(index >= 0, one[index], 0) for one in (samples.busy, samples.queued, samples.queued_gpus)
    ]
    capacity = int(history.node_gpus.sum()) if history.told_in_gpus else 0
    failed = _failed(history, moments)
    texts = [
        f"At {moments.named(stop)}: "
        + (f"{busy:,} of {plural(capacity, 'GPU')} busy, " if capacity else "")
        + (f"{plural(queued, 'job')} waiting" if queued else "no job waits")
        + (f" for {plural(gpus, 'GPU')}" if gpus else "")
        + (f", {plural(out, 'node')} failed" if out else "")
        for stop, busy, queued, gpus, out in zip(
            range(moments.count), *(one.tolist() for one in (*columns, failed)), strict=True
        )
    ]
    rows = data(number=np.arange(moments.count), text=texts)
    place = {"x": constant(0), "y": constant(9), "text": label("text")}
    here = where(f"datum.number === {STOP}")
    chart = words(rows, place, here, fontSize=13, fontWeight="bold", color=INK)
    return {**chart, "width": WIDTH, "height": 18, "name": "moment_in_words"}


def _failed(history: History, moments: Moments) -> Counts:
    """How many nodes are out of order at each stop of the slider."""
    begun, over = (
        np.searchsorted(np.sort(moments.in_units(times)), moments.stops, side="right")
        for times in (history.outages.begin, history.outages.end)
    )
    # What is out when the run stops has not come back.
    over[-1] -= np.count_nonzero(history.outages.end >= history.until)
    failed: Counts = begun - over
    return failed
