"""Draws the size, run time and kind of jobs from what was published about a cluster."""

from functools import cache
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.random import Generator
from numpy.typing import NDArray

from closeby.lab.workloads.coupling import UNSEEN, Target, coupled, coupled_by_tilts
from closeby.lab.workloads.published import HELIOS, SIZES, Mix

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

GPUS_PER_HOST: Final = 8
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
        # Jobs of neighbouring run times get sizes that lie far apart, and all sizes alike.
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
