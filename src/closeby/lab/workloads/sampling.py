"""Draws jobs from what was published about a cluster: when they come, their size, run time and kind."""

from functools import cache
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.random import Generator

from closeby.lab.workloads.published import BURSTINESS, HELIOS, HOURLY, SIZES, Mix
from closeby.objects.arrays import Counts, Floats
from closeby.simulator.synthetic import GPUS_PER_HOST

_HOUR: Final = 3600.0


def gaps(count: int, burstiness: float, random: Generator) -> Floats:
    """Times between arrivals, mean 1, standard deviation ``burstiness``; shape (count,).

    Hyper-exponential with balanced means (two exponentials that hold half the time each), which with
    openb's mean of 334 s and 1.75 has quantiles 160, 712 and 3,094 s at 50, 90 and 99 %; openb itself has
    137, 842 and 2,954.

    Raises:
        ValueError: below 1, where arrivals would be more even than a Poisson process.
    """
    if burstiness < 1:
        raise ValueError(f"burstiness must be 1 (Poisson) or more, not {burstiness}")
    square = burstiness**2
    often = (1.0 + np.sqrt((square - 1.0) / (square + 1.0))) / 2.0
    short = random.random(count) < often
    scale = np.where(short, 0.5 / often, 0.5 / max(1.0 - often, 1e-12))
    return np.asarray(random.standard_exponential(count) * scale, dtype=np.float64)


def arrivals(
    count: int, span: float, random: Generator, *, diurnal: bool = True, burstiness: float = BURSTINESS
) -> Floats:
    """Ascending times in [0, span] of ``count`` arrivals; the clock begins at midnight. Shape (count,).

    A renewal process in operational time, which passes as fast as jobs come at that hour, stretched so that
    exactly ``count`` come within the span.
    """
    passed = np.cumsum(gaps(count + 1, burstiness, random))
    share = passed[:-1] / passed[-1]
    if not diurnal:
        return np.asarray(share * span, dtype=np.float64)
    hours = int(np.ceil(span / _HOUR)) + 1
    knots = np.arange(hours + 1) * _HOUR
    rate = np.resize(np.asarray(HOURLY, dtype=np.float64), hours)
    come = np.concatenate(([0.0], np.cumsum(rate * _HOUR)))
    total = np.interp(span, knots, come)
    return np.asarray(np.interp(share * total, come, knots), dtype=np.float64)


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


#: At which the longest run times are averaged.
_POINTS: Final = 256
#: Multiples of it fill [0, 1) evenly, however many they are.
_GOLDEN: Final = (5**0.5 - 1) / 2


class SizeClass(Struct, frozen=True, kw_only=True, eq=False):
    """Jobs between two of the published sizes."""

    #: Share of all jobs.
    share: float
    #: Sizes in GPUs, ascending, and how the class is shared out between them (cumulated, ends with 1).
    sizes: Counts
    cumulated: Floats
    #: Cumulated shares of run times up to ``2**i`` seconds; begins with 0 for none, ends with 1.
    run_times: Floats

    @property
    def gpus(self) -> float:
        """Mean size."""
        return float(self.sizes @ np.diff(self.cumulated, prepend=0.0))


@cache
def size_classes(mix: Mix) -> tuple[SizeClass, ...]:
    """The classes of a cluster that have jobs, with their run times."""
    shares = np.diff(np.asarray(mix.jobs, dtype=np.float64), prepend=0.0) / 100
    columns = np.diff(np.asarray(mix.durations, dtype=np.float64), prepend=0.0) / 100
    used = [index for index, share in enumerate(shares.tolist()) if share > 1e-9]
    spreads = [_spread(SIZES[index - 1] if index else 0, SIZES[index], mix.at_size) for index in used]
    rows = shares[used]
    if mix.gpu_time is None:
        joint = coupled_by_tilts(rows, columns, _tilts_of_helios()[used])
    else:
        joint = coupled(_target(mix, used, rows, columns))[0]
    return tuple(
        SizeClass(share=float(share), sizes=sizes, cumulated=cumulated, run_times=_cumulated(row))
        for share, (sizes, cumulated), row in zip(rows, spreads, joint, strict=True)
    )


def draw(mix: Mix, count: int, most: int, random: Generator) -> tuple[Counts, Floats, tuple[str, ...]]:
    """Sizes in GPUs, run times in seconds and kinds of ``count`` jobs of at most ``most`` GPUs.

    Stratified: of ``count`` jobs each class has its share but for rounding, and so has each part of its run
    times; the longest job of a class runs as long as such jobs do on average. So two seeds differ in which
    job comes when, not in how lucky the mix was: one long job on a thousand GPUs is a tenth of all GPU time.
    """
    classes = [one for one in size_classes(mix) if one.sizes[0] <= most]
    cumulated = _cumulated(np.array([one.share * _part(one, most) for one in classes]))[1:]
    owner = np.searchsorted(cumulated, _strata(count, random), side="right")
    sizes = np.empty(count, dtype=np.int64)
    durations = np.empty(count, dtype=np.float64)
    for index, one in enumerate(classes):
        jobs = np.flatnonzero(owner == index)
        at = _strata(len(jobs), random)
        # Jobs of neighbouring run times get sizes that are far apart, and all sizes alike.
        within = (np.floor(at * len(jobs)) * _GOLDEN + random.random()) % 1.0 * _part(one, most)
        sizes[jobs] = one.sizes[np.searchsorted(one.cumulated, within, side="right")]
        durations[jobs] = _run_times(one, at)
        if len(jobs):
            durations[jobs[at.argmax()]] = _longest(one, len(jobs))
    return sizes, durations, _kinds(mix, sizes, random)


def _run_times(one: SizeClass, at: Floats) -> Floats:
    """Inverse of the cumulated run times, log-linear between the published points."""
    logs = np.array([0.0, *range(len(one.run_times) - 1)])
    # Where no job ends the curve is flat, and has no inverse but for its right end.
    rising = np.append(np.diff(one.run_times) > 0, True)
    return np.asarray(2.0 ** np.interp(at, one.run_times[rising], logs[rising]), dtype=np.float64)


def _longest(one: SizeClass, count: int) -> float:
    """Mean run time of the longest of ``count`` strata, over which the tail may well span two weeks."""
    return float(_run_times(one, 1.0 - (np.arange(_POINTS) + 0.5) / (_POINTS * count)).mean())


def _strata(count: int, random: Generator) -> Floats:
    """One number in each of ``count`` equal parts of [0, 1), in random order."""
    return (random.permutation(count) + random.random(count)) / max(count, 1)


def _part(one: SizeClass, most: int) -> float:
    """How much of a class has at most ``most`` GPUs."""
    return float(one.cumulated[np.searchsorted(one.sizes, most, side="right") - 1])


def _kinds(mix: Mix, sizes: Counts, random: Generator) -> tuple[str, ...]:
    if not mix.kinds:
        return ("",) * len(sizes)
    names = np.array([name for name, _ in mix.kinds], dtype=object)
    shares = _cumulated(np.array([share for _, share in mix.kinds]))[1:]
    kinds = names[np.searchsorted(shares, random.random(len(sizes)), side="right")]
    if mix.large_kind is not None:
        kinds[sizes > mix.large_kind[0]] = mix.large_kind[1]
    return tuple(kinds.tolist())


def _spread(above: int, upto: int, at_size: float) -> tuple[Counts, Floats]:
    """Sizes of a class and their cumulated shares; above a host's GPUs in whole hosts."""
    if upto <= 2 * GPUS_PER_HOST or at_size >= 1:
        return np.array([upto], dtype=np.int64), np.ones(1)
    sizes = np.arange(above + GPUS_PER_HOST, upto + 1, GPUS_PER_HOST, dtype=np.int64)
    shares = np.log(sizes / (sizes - GPUS_PER_HOST)) / np.log(upto / above) * (1 - at_size)
    shares[-1] += at_size
    return sizes, _cumulated(shares)[1:]


def _target(mix: Mix, used: list[int], rows: Floats, columns: Floats) -> Target:
    spreads = [_spread(SIZES[index - 1] if index else 0, SIZES[index], mix.at_size) for index in used]
    gpu_time = np.diff(np.asarray(mix.gpu_time, dtype=np.float64), prepend=0.0)
    return Target(
        rows=rows,
        gpus=np.array([float(sizes @ np.diff(shares, prepend=0.0)) for sizes, shares in spreads]),
        gpu_time=np.maximum(gpu_time[used], UNSEEN),
        columns=columns,
    )


@cache
def _tilts_of_helios() -> Floats:
    """Tilt of each size in all of Helios, whose GPU time is known; shape (len(SIZES),)."""
    shares = np.diff(np.asarray(HELIOS.jobs, dtype=np.float64), prepend=0.0) / 100
    columns = np.diff(np.asarray(HELIOS.durations, dtype=np.float64), prepend=0.0) / 100
    return coupled(_target(HELIOS, list(range(len(SIZES))), shares, columns))[1]


def _cumulated(shares: Floats) -> Floats:
    """0, then the cumulated shares, scaled to end with exactly 1."""
    sums = np.concatenate(([0.0], np.cumsum(shares)))
    sums /= sums[-1]
    sums[-1] = 1.0
    return np.asarray(sums, dtype=np.float64)
