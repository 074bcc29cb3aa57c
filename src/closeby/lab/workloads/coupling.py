"""How long jobs of each size run, so that both the run times and the GPU time over sizes are as published.

Published are the sizes of jobs, their run times, and how GPU time is shared out between sizes, but not run
times by size. Drawn independently, small jobs would take far too much GPU time. Here the joint distribution
of size class r and run-time class c is

    p(r, c) = a(r) * b(c) * exp(theta(r) * log2 of the run time)

the distribution closest to independence (in relative entropy) of those whose sums over r are the published
run times, whose sums over c are the published sizes, and in which each size class has the mean of log run
time that gives it its published share of GPU time. It is found by iterative proportional fitting (Deming and
Stephan 1940; Csiszar 1975): the rows are tilted until each has the mean run time that its GPU time asks for,
the columns are scaled to the published run times, and so on until neither changes. Margins and shares of GPU
time that don't go together, or hardly, leave the columns off; the published ones do go together.
"""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDS = 400
_NEWTON_STEPS = 4
_CLOSE = 1e-9
#: Shares are printed to a tenth of a point; one that is printed as none is taken as half of what would round.
UNSEEN = 0.025


class Target(Struct, frozen=True, kw_only=True, eq=False):
    """What is known: R size classes and C run-time classes."""

    #: Share of jobs in each size class, all above 0; sum 1; shape (R,).
    rows: Floats
    #: Mean number of GPUs of a job of each class; shape (R,).
    gpus: Floats
    #: Share of GPU time of each class, all above 0; any sum; shape (R,).
    gpu_time: Floats
    #: Share of jobs in each run-time class; sum 1; shape (C,).
    columns: Floats


def run_time_means(columns: int) -> Floats:
    """Mean run time of the classes: up to 1 s, then between ``2**(i - 1)`` and ``2**i``, log-linear there."""
    return np.array([1.0, *(2.0 ** (index - 1) / np.log(2.0) for index in range(1, columns))])


def coupled(target: Target) -> tuple[Floats, Floats]:
    """Joint shares of size classes and run-time classes, shape (R, C), sum 1; and the tilts, shape (R,).

    The rows' mean run times come out in the ratio that the GPU times ask for. Their level follows from the
    columns, whose mean they must have together.
    """
    means = run_time_means(len(target.columns))
    per_job = target.gpu_time / (target.rows * target.gpus)
    wanted = per_job * (target.columns @ means) / (target.rows @ per_job)
    return _fitted(target.rows, target.columns, wanted, np.zeros(len(target.rows)))


def coupled_by_tilts(rows: Floats, columns: Floats, tilts: Floats) -> Floats:
    """As ``coupled``, with the tilts of another cluster where the GPU time is not known."""
    return _fitted(rows, columns, None, tilts)[0]


def _fitted(rows: Floats, columns: Floats, wanted: Floats | None, theta: Floats) -> tuple[Floats, Floats]:
    """Joint shares and tilts; ``wanted`` mean run times by row, None keeps ``theta`` as it is."""
    means = run_time_means(len(columns))
    logs = np.log2(means)
    scale = columns.copy()
    joint = np.outer(rows, columns)
    for _ in range(_ROUNDS):
        if wanted is not None:
            theta = _tilted(scale, logs, means, wanted, theta)
        shares = _rows(scale, logs, theta)
        joint = rows[:, None] * shares
        sums = joint.sum(axis=0)
        if float(np.abs(sums - columns).max()) < _CLOSE:
            break
        scale = np.where(columns > 0, scale * columns / np.where(sums > 0, sums, 1.0), 0.0)
    return joint, theta


def _rows(scale: Floats, logs: Floats, theta: Floats) -> Floats:
    """Distribution over run-time classes in each size class; rows sum to 1."""
    powers = np.outer(theta, logs)
    weights = scale * np.exp(powers - powers.max(axis=1, keepdims=True))
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    return shares


def _tilted(scale: Floats, logs: Floats, means: Floats, wanted: Floats, theta: Floats) -> Floats:
    """Tilts under which the rows have the wanted means: Newton's steps on the logarithm of the mean."""
    for _ in range(_NEWTON_STEPS):
        shares = _rows(scale, logs, theta)
        mean = shares @ means
        slope = (shares @ (means * logs) - mean * (shares @ logs)) / mean
        step = np.log(wanted / mean) / np.maximum(slope, 1e-3)
        theta = theta + np.clip(step, -1.0, 1.0)
    return theta
