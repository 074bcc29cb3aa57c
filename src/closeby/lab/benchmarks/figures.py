"""What a benchmark measures, and how: CPU and wall time of one call, repeated."""

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np
from msgspec import Struct

from closeby import __version__


class Figure(Struct, frozen=True, kw_only=True):
    """One line of the table. Times are medians over ``runs``, in milliseconds."""

    benchmark: str
    case: str
    nodes: int
    pods: int
    runs: int
    cpu_ms: float
    cpu_ms_min: float
    wall_ms: float
    #: Pods placed in one run; 0 where the measured answer is "no".
    placed: int
    #: Upper bound in CPU milliseconds that we aim at; None where we set none.
    target_ms: float | None = None
    #: Resident memory in MiB, where that is what was measured.
    memory_mib: float | None = None
    target_mib: float | None = None

    @property
    def placed_per_second(self) -> float | None:
        """Pods placed per second of CPU."""
        return self.placed / self.cpu_ms * 1000 if self.cpu_ms else None

    @property
    def meets_target(self) -> bool | None:
        """Whether the median is within the target; None without one."""
        if self.target_mib is not None and self.memory_mib is not None:
            return self.memory_mib <= self.target_mib
        return None if self.target_ms is None else self.cpu_ms <= self.target_ms


class Machine(Struct, frozen=True):
    """Where figures were measured."""

    processor: str
    cores: int
    python: str
    numpy: str
    closeby: str


class BenchmarkResult(Struct, frozen=True):
    """All figures of one run."""

    machine: Machine
    figures: tuple[Figure, ...]


def this_machine() -> Machine:
    """What is known of this machine without any program."""
    model = platform.processor() or platform.machine()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as described:
        lines = [line for line in described if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    return Machine(model, os.cpu_count() or 1, platform.python_version(), np.__version__, __version__)


class TimedSample(Struct, frozen=True):
    """One timed call; seconds."""

    cpu: float
    wall: float
    placed: int


def timed(call: Callable[[], int]) -> TimedSample:
    """Time one call that returns how many pods it placed."""
    wall, cpu = time.perf_counter(), time.process_time()
    placed = call()
    return TimedSample(time.process_time() - cpu, time.perf_counter() - wall, placed)


def summary(
    benchmark: str,
    case: str,
    nodes: int,
    pods: int,
    samples: list[TimedSample],
    target_ms: float | None = None,
) -> Figure:
    """Medians of some samples."""
    return Figure(
        benchmark=benchmark,
        case=case,
        nodes=nodes,
        pods=pods,
        runs=len(samples),
        cpu_ms=round(statistics.median(sample.cpu for sample in samples) * 1000, 4),
        cpu_ms_min=round(min(sample.cpu for sample in samples) * 1000, 4),
        wall_ms=round(statistics.median(sample.wall for sample in samples) * 1000, 4),
        placed=samples[-1].placed,
        target_ms=target_ms,
    )


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Set what exists aside, so that the collector does not scan a whole cluster in the middle of a run."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
