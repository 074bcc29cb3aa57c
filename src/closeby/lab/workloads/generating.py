"""Named workloads, made from what was published: ``generate("seren", jobs=10_000, load=0.85, ...)``."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from closeby.errors import UnknownWorkloadError
from closeby.lab.workloads.applications import draw_applications
from closeby.lab.workloads.jobs import CallGraph, Jobs
from closeby.lab.workloads.priorities import PriorityMix, with_priorities
from closeby.lab.workloads.published import (
    BURSTINESS,
    HELIOS,
    HELIOS_CLUSTERS,
    KALOS,
    PHILLY,
    SEREN,
    SIZES,
    Mix,
)
from closeby.lab.workloads.sampling import arrivals, draw
from closeby.objects.arrays import Counts, Floats
from closeby.objects.words import not_known
from closeby.simulator.synthetic import GPUS_PER_HOST

Indices = NDArray[np.intp]

#: Sums of cores are no whole numbers.
_ROUNDING: Final = 1e-9


def standing(amounts: Floats, durations: Floats, held: float, random: Generator) -> tuple[Indices, Floats]:
    """Which jobs of a pool stand (some more than once), in random order, and how long each still runs.

    Args:
        amounts: GPUs or cores of each job of the pool, above 0; shape (P,).
        durations: seconds that each runs; shape (P,).
        held: what they are to hold together. The sum falls short of it by less than the smallest job of the
            pool, and is never above it.
        random: draws them.
    """
    classes = np.ceil(np.log2(amounts)).astype(np.intp)
    work = amounts * durations
    left = held * (1 + _ROUNDING)
    chosen: list[int] = []
    for size in np.unique(classes)[::-1].tolist():
        here = np.flatnonzero(classes == size)
        # What is left is for this class and all smaller ones; a job counts by its run time.
        wanted = left * float(durations[here].sum() / work[classes <= size].sum())
        count = int(wanted + random.random())
        for job in _by_run_time(here, amounts, durations, count, random):
            if amounts[job] <= left:
                chosen.append(job)
                left -= amounts[job]
    while amounts.min() <= left:
        # Whole jobs leave a rest, which the largest that fit take.
        largest = np.flatnonzero(amounts == amounts[amounts <= left].max())
        (job,) = _by_run_time(largest, amounts, durations, 1, random)
        chosen.append(job)
        left -= amounts[job]
    order = np.array(chosen, dtype=np.intp)[random.permutation(len(chosen))]
    return order, np.maximum(durations[order] * random.random(len(order)), 1.0)


def _by_run_time(
    jobs: Indices, amounts: Floats, durations: Floats, count: int, random: Generator
) -> list[int]:
    """``count`` of the jobs, each as likely as it is long, evenly over sizes and run times; random order."""
    order = jobs[np.lexsort((durations[jobs], amounts[jobs]))]
    mass = np.cumsum(durations[order])
    at = (np.arange(count) + random.random()) / max(count, 1) * mass[-1]
    drawn = order[np.minimum(np.searchsorted(mass, at, side="right"), len(order) - 1)]
    found: list[int] = drawn[random.permutation(count)].tolist()
    return found


GPU: Final = "nvidia.com/gpu"
CPU: Final = "cpu"
#: Jobs of which those that already run are chosen.
_POOL: Final = 20_000


class Drawn(Struct, frozen=True, kw_only=True, eq=False):
    """Jobs before they have a time to come; J of them."""

    #: GPUs of each whole job, and seconds that it runs; shape (J,).
    sizes: Counts
    durations: Floats
    kinds: tuple[str, ...]
    graphs: tuple[CallGraph, ...] = ()

    @property
    def amounts(self) -> Floats:
        """What the load counts: GPUs, or cores where there are graphs; shape (J,)."""
        if self.graphs:
            return np.array([graph.cores for graph in self.graphs], dtype=np.float64)
        return self.sizes.astype(np.float64)


class GeneratedWorkload(Struct, frozen=True, kw_only=True):
    """A kind of load by name."""

    name: str
    #: One line for people.
    about: str
    #: Draws a number of jobs, none larger than the options allow.
    draw: Callable[[int, "WorkloadOptions", Generator], Drawn]
    #: What its load is a load of: GPUs, or cores where jobs take none.
    resource: str = GPU
    diurnal: bool = True
    burstiness: float = BURSTINESS


class WorkloadOptions(Struct, frozen=True, kw_only=True):
    """What to change of a workload. Each is 1 or more; None takes what was published."""

    #: Leave larger jobs out: what they would have been is drawn of the others.
    max_gpus: int | None = None
    #: The same of applications: cores of a whole one, cores of one of its pods, and pods.
    max_cores: float = math.inf
    max_pod_cores: float = math.inf
    max_pods: float = math.inf
    #: Of each pod of a job of several: what a host has.
    gpus_of_a_pod: int = GPUS_PER_HOST
    #: Seconds after which longer jobs end.
    max_duration: float = math.inf
    #: Whether jobs come by the hour of the day.
    diurnal: bool | None = None
    #: Standard deviation over mean of the times between arrivals, 1 for a Poisson process.
    burstiness: float | None = None
    #: Begin with the jobs that such a cluster would be running: on top of ``jobs``, submitted at 0, each with
    #: what is left of its run time. They hold ``load`` x ``capacity``, and never more than the capacity.
    #: Otherwise a cluster that begins empty takes days to reach its load, for a few jobs of days hold most of
    #: the GPU time.
    standing: bool = False

    def __post_init__(self) -> None:
        for name in ("max_gpus", "max_duration", "burstiness"):
            value = getattr(self, name)
            if value is not None and not value >= 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")

    def allows(self, graph: CallGraph) -> bool:
        """Whether an application is not too large."""
        return (
            graph.cores <= self.max_cores
            and max(graph.cpu) / 1000 <= self.max_pod_cores
            and graph.pods <= self.max_pods
        )


AS_PUBLISHED: Final = WorkloadOptions()


def generate(
    name: str,
    *,
    jobs: int,
    load: float,
    capacity: float,
    seed: int,
    options: WorkloadOptions = AS_PUBLISHED,
) -> Jobs:
    """A workload that offers ``load`` times what the cluster has, over the time in which its jobs come.

    Offered is the sum of GPUs x run time over all jobs. The jobs come within a span such that offered =
    ``load`` x ``capacity`` x span, exactly. Jobs that come late run beyond it.

    Args:
        name: a key of ``WORKLOADS``.
        jobs: how many.
        load: of the capacity; 1.0 keeps a cluster busy that places without waste.
        capacity: GPUs of the cluster; cores for workloads whose ``resource`` is ``cpu``.
        seed: equal seeds give equal workloads, on every machine.
        options: what to change of it.

    Raises:
        UnknownWorkloadError: there is no such workload.
        ValueError: a number makes no sense.
    """
    workload = workload_named(name)
    for what, value in (("jobs", jobs), ("load", load), ("capacity", capacity)):
        if not value > 0 or not np.isfinite(value):
            raise ValueError(f"{what} must be a number above 0, not {value}")
    random = Generator(PCG64(seed))
    drawn = _drawn(workload, jobs, options, random)
    span = float(drawn.amounts @ drawn.durations) / (load * capacity)
    submitted = arrivals(
        jobs,
        span,
        random,
        diurnal=workload.diurnal if options.diurnal is None else options.diurnal,
        burstiness=options.burstiness or workload.burstiness,
    )
    if options.standing:
        pool = _drawn(workload, _POOL, options, random)
        first = _standing(pool, min(load, 1.0) * capacity, random)
        submitted = np.concatenate((np.zeros(len(first.durations)), submitted))
        drawn = _joined(first, drawn)
    return _jobs(name, drawn, submitted, options.gpus_of_a_pod)


def workload_named(name: str) -> GeneratedWorkload:
    """One of ``WORKLOADS``.

    Raises:
        UnknownWorkloadError: there is no such workload.
    """
    if name not in WORKLOADS:
        raise UnknownWorkloadError(not_known(name, WORKLOADS, "workload"))
    return WORKLOADS[name]


def _drawn(workload: GeneratedWorkload, count: int, options: WorkloadOptions, random: Generator) -> Drawn:
    drawn = workload.draw(count, options, random)
    pods, gpus = _split(drawn.sizes, options.gpus_of_a_pod)
    return replace(drawn, sizes=pods * gpus, durations=np.minimum(drawn.durations, options.max_duration))


def _standing(pool: Drawn, held: float, random: Generator) -> Drawn:
    """The jobs of the pool that run at any one time, which hold so many GPUs or cores."""
    jobs, left = standing(pool.amounts, pool.durations, held, random)
    chosen = jobs.tolist()
    return Drawn(
        sizes=pool.sizes[jobs],
        durations=left,
        kinds=tuple(pool.kinds[job] for job in chosen),
        graphs=tuple(pool.graphs[job] for job in chosen) if pool.graphs else (),
    )


def _joined(first: Drawn, then: Drawn) -> Drawn:
    return Drawn(
        sizes=np.concatenate((first.sizes, then.sizes)),
        durations=np.concatenate((first.durations, then.durations)),
        kinds=first.kinds + then.kinds,
        graphs=first.graphs + then.graphs,
    )


def _split(sizes: Counts, most: int) -> tuple[Counts, Counts]:
    """Pods of jobs of so many GPUs, and GPUs of each: as few pods of at most so many as there can be."""
    pods = np.maximum(-(-sizes // most), 1)
    return pods, -(-sizes // pods)


def _jobs(name: str, drawn: Drawn, submitted: Floats, gpus_of_a_pod: int) -> Jobs:
    """Jobs of whole hosts as one pod a host, smaller ones as one pod."""
    count = len(submitted)
    width = max(5, len(str(count)))
    if drawn.graphs:
        pods = np.array([graph.pods for graph in drawn.graphs], dtype=np.int64)
        gpus = np.zeros(count, dtype=np.int64)
    else:
        pods, gpus = _split(drawn.sizes, gpus_of_a_pod)
    return Jobs(
        names=tuple(f"{name}-{number:0{width}}" for number in range(1, count + 1)),
        submitted=submitted,
        durations=drawn.durations,
        pods=pods,
        gpus=gpus,
        priorities=np.zeros(count, dtype=np.int64),
        kinds=drawn.kinds,
        graphs=drawn.graphs,
    )


def _of_mix(mix: Mix) -> Callable[[int, WorkloadOptions, Generator], Drawn]:
    largest = SIZES[len(mix.jobs) - 1]

    def drawn(count: int, options: WorkloadOptions, random: Generator) -> Drawn:
        sizes, durations, kinds = draw(mix, count, options.max_gpus or largest, random)
        return Drawn(sizes=sizes, durations=durations, kinds=kinds)

    return drawn


def _gavel(count: int, options: WorkloadOptions, random: Generator) -> Drawn:
    """Closed form of Gavel (Narayanan et al., OSDI 2020; MIT licence, ``scheduler/utils.py``).

    1, 2, 4 or 8 GPUs with 70, 10, 15 and 5 %; run time 60 x 10^U s with U even in 1.5..3 in 80 % of jobs,
    else in 3..4; arrivals a Poisson process.
    """
    sizes = np.array([1, 2, 4, 8], dtype=np.int64)
    shares = np.array([0.70, 0.10, 0.15, 0.05]) * (sizes <= (options.max_gpus or sizes[-1]))
    powers = np.where(
        random.random(count) < 0.8, random.uniform(1.5, 3.0, count), random.uniform(3.0, 4.0, count)
    )
    drawn = random.choice(sizes, size=count, p=shares / shares.sum())
    return Drawn(sizes=drawn, durations=60.0 * 10.0**powers, kinds=("",) * count)


def _applications(count: int, options: WorkloadOptions, random: Generator) -> Drawn:
    graphs, durations, kinds = draw_applications(count, random, options.allows)
    return Drawn(sizes=np.zeros(count, dtype=np.int64), durations=durations, kinds=kinds, graphs=graphs)


def _published(name: str, about: str, mix: Mix) -> GeneratedWorkload:
    return GeneratedWorkload(name=name, about=about, draw=_of_mix(mix))


#: All named workloads.
WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        _published("seren", "LLM development, Shanghai AI Lab 2023: many evaluations, few large", SEREN),
        _published(
            "kalos", "LLM pretraining, Shanghai AI Lab 2023: nearly all GPU time above 128 GPUs", KALOS
        ),
        _published(
            "philly", "deep learning, Microsoft 2017: small jobs, half the GPU time at 8 GPUs", PHILLY
        ),
        _published("helios", "deep learning, SenseTime 2020: four clusters together", HELIOS),
        *(
            _published(f"helios-{name}", f"deep learning, SenseTime 2020: cluster {name.title()}", mix)
            for name, mix in HELIOS_CLUSTERS.items()
        ),
        GeneratedWorkload(
            name="gavel",
            about="closed form of Gavel 2020: 1 to 8 GPUs, Poisson arrivals",
            draw=_gavel,
            diurnal=False,
            burstiness=1.0,
        ),
        GeneratedWorkload(
            name="microservices",
            about="applications whose workloads call each other, and the Online Boutique; no GPUs",
            draw=_applications,
            resource=CPU,
        ),
    )
}


#: Seeds, and jobs of each, of which the shares are taken.
_SEEDS: Final = 10
_JOBS: Final = 4_000


class Load(Struct, frozen=True, kw_only=True):
    """A named workload, generated for each seed."""

    workload: str
    jobs: int
    load: float
    #: GPUs that the jobs may use; cores where they ask for none.
    capacity: float
    options: WorkloadOptions
    #: Their classes of priority; None: all jobs have the same.
    priorities: PriorityMix | None = None

    def jobs_of(self, seed: int) -> Jobs:
        """The jobs of a seed."""
        jobs = generate(
            self.workload,
            jobs=self.jobs,
            load=self.load,
            capacity=self.capacity,
            seed=seed,
            options=self.options,
        )
        return jobs if self.priorities is None else with_priorities(jobs, self.priorities, seed)


class LeftOut(Struct, frozen=True, kw_only=True):
    """Shares of a workload as it was published, between 0 and 1."""

    jobs: float
    #: Of its GPU time, or core time.
    time: float


def left_out(name: str, options: WorkloadOptions) -> LeftOut:
    """What options leave out of a workload for its size, averaged over seeds.

    Raises:
        KeyError: there is no such workload.
    """
    workload = WORKLOADS[name]
    jobs, time, all_time = 0, 0.0, 0.0
    for seed in range(_SEEDS):
        drawn = workload.draw(_JOBS, AS_PUBLISHED, Generator(PCG64(seed)))
        if drawn.graphs:
            allowed = {graph: options.allows(graph) for graph in set(drawn.graphs)}
            beyond = np.array([not allowed[graph] for graph in drawn.graphs])
        else:
            beyond = drawn.sizes > (options.max_gpus or np.inf)
        work = drawn.amounts * drawn.durations
        jobs += int(beyond.sum())
        time += float(work[beyond].sum())
        all_time += float(work.sum())
    return LeftOut(jobs=jobs / (_SEEDS * _JOBS), time=time / all_time)
