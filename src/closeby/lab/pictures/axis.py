"""The axis of time: the part in which jobs come or wait has most of it, and what only ends after is short."""

from math import floor, log10

import altair as alt
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.pictures.moments import Moments
from closeby.lab.replay.history import History
from closeby.objects.words import time_text

Floats = NDArray[np.float64]

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

    def scale(self) -> alt.Scale:
        """Where times lie."""
        if not self.bent:
            return alt.Scale(domain=[0, self.last], nice=False)
        return alt.Scale(
            domain=[0, self.focus, self.last],
            range=[0, FOCUS * WIDTH, WIDTH],
            nice=False,
        )

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
    focus = float(moments.told(np.asarray(seconds)))
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
