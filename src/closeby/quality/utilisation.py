"""Utilisation and goodput: how much of the GPUs was held while there was work, and how much of that worked.

Both are shares of what the cluster could have given in the window, which reaches from the first submission to
the last. So it is the same for whatever schedules these jobs: who lets the last one wait longer is not
measured over a longer time, in which the cluster empties. What is late after it shows in delays and makespan.
Where all jobs are submitted at once that window is empty: it reaches to the last end then.
"""

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Floats


class Window(Struct, frozen=True):
    """From when to when, in virtual seconds."""

    begin: float
    end: float

    @property
    def length(self) -> float:
        """Seconds."""
        return self.end - self.begin


def submission_window(submitted: Floats, ended: Floats, until: float) -> Window:
    """The time in which jobs arrive; arrays of shape (J,), nan where a job did not end."""
    if not len(submitted):
        return Window(0.0, 0.0)
    begin, end = float(submitted.min()), float(submitted.max())
    if end <= begin:
        end = float(np.where(np.isnan(ended), until, ended).max())
    return Window(begin, max(begin, end))


def held(started: Floats, ended: Floats, until: float, window: Window) -> Floats:
    """Seconds of the window for which each job ran; shape (J,)."""
    last = np.where(np.isnan(ended), until, ended)
    ran = np.minimum(last, window.end) - np.maximum(started, window.begin)
    found: Floats = np.maximum(np.nan_to_num(ran, nan=0.0), 0.0)
    return found


def utilisation(gpus: NDArray[Any], seconds: Floats, capacity: float, window: Window) -> float | None:
    """Allocated GPU-time over capacity; ``gpus`` of each whole job and ``seconds`` it ``held`` them, (J,).

    None where the cluster has no GPUs or the window no length.
    """
    given = capacity * window.length
    return float(gpus @ seconds) / given if given > 0 else None


def goodput(
    gpus: NDArray[Any], seconds: Floats, slowdown: Floats, capacity: float, window: Window
) -> float | None:
    """Utilisation in which each job counts 1/slowdown: what is held to wait for the network does no work.

    ``slowdown`` is that of whole jobs, shape (J,); nan (unknown) counts as 1. Never more than utilisation.
    """
    return utilisation(gpus / np.nan_to_num(slowdown, nan=1.0), seconds, capacity, window)
