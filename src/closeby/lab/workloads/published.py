"""What was published about real GPU clusters: how large jobs are, how long they run, and when they come.

Read from the vector curves of the authors' own figures, to a tenth of a point; the traces themselves are not
part of closeby. Sources, all data under CC-BY-4.0:

- Seren, Kalos: Hu et al., "Characterization of Large Language Model Development in the Datacenter", NSDI 2024
  (AcmeTrace: ``cluster_summary.csv``, ``cdf_job_gpunum.pdf``, ``cdf_job_duration_util.pdf``).
- Philly: Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC
  2019 (as AcmeTrace draws it beside its own).
- Helios: Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU
  Datacenters", SC 2021 (``job_cdf_gpunum.pdf``, ``job_cdf_jobtime.pdf``, ``cluster_diurnal.pdf``).
"""

from typing import Final

from msgspec import Struct

#: Job sizes at which the tables below are given, in GPUs.
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Mix(Struct, frozen=True, kw_only=True):
    """The jobs of one cluster. Percentages; shorter tables end at 100."""

    #: Jobs with at most ``SIZES[i]`` GPUs, and their share of all GPU time; None where it was not published.
    jobs: tuple[float, ...]
    gpu_time: tuple[float, ...] | None
    #: Jobs that run for at most ``2**i`` seconds.
    durations: tuple[float, ...]
    #: Share of jobs between two sizes that have the larger one exactly; the rest is log-linearly between.
    at_size: float = 0.5
    #: What jobs above a size are called, and the shares of the kinds of all others.
    large_kind: tuple[int, str] | None = None
    kinds: tuple[tuple[str, float], ...] = ()
    #: Mean number of GPUs and mean run time in seconds, as published beside the curves; None: not given.
    mean_gpus: float | None = None
    mean_duration: float | None = None


#: Pretraining is 0.9 % of Seren's jobs and 69.5 % of its GPU time; jobs above 64 GPUs are 0.7 % and 72.4 %.
SEREN: Final = Mix(
    jobs=(54.0, 65.4, 68.0, 96.8, 97.9, 98.8, 99.3, 99.6, 99.7, 99.8, 100),
    gpu_time=(1.4, 1.8, 2.4, 11.9, 13.2, 19.1, 27.6, 41.7, 56.3, 66.9, 100),
    durations=(
        *(2.2, 2.8, 5.6, 11.8, 23.4, 31.7, 37.1, 48.9, 65.6, 79.2, 88.0, 92.9, 96.0, 97.5, 98.4, 99.2),
        *(99.6, 99.8, 99.9, 100),
    ),
    large_kind=(64, "pretrain"),
    kinds=(("eval", 64.9), ("sft", 14.9), ("other", 14.6), ("mllm", 2.9), ("debug", 1.9)),
    mean_gpus=5.68,
    mean_duration=1414.0,
)

KALOS: Final = Mix(
    jobs=(86.3, 88.4, 88.4, 93.9, 94.3, 94.7, 95.3, 95.7, 96.9, 98.1, 100),
    gpu_time=(0.2, 0.2, 0.2, 0.6, 0.6, 2.0, 3.3, 3.8, 24.9, 50.5, 100),
    durations=(
        *(0, 0, 0, 0, 1.5, 18.7, 38.2, 50.5, 69.1, 79.4, 85.9, 92.8, 97.1, 98.7, 99.1, 99.5),
        *(99.7, 99.8, 99.9, 100),
    ),
    large_kind=(64, "pretrain"),
    kinds=(("eval", 92.8), ("other", 2.9)),
    mean_gpus=26.77,
    mean_duration=1260.0,
)

#: Sizes are powers of two: then, and only then, is the mean of 1.93 GPUs met.
PHILLY: Final = Mix(
    jobs=(82.4, 84.5, 92.1, 98.9, 99.8, 99.98, 99.98, 100),
    gpu_time=(16.4, 19.4, 38.2, 88.0, 97.2, 100, 100, 100),
    durations=(
        *(0, 0.1, 0.2, 0.8, 3.6, 8.4, 18.9, 27.0, 31.5, 36.3, 54.9, 67.5, 79.3, 84.6, 90.3, 92.7),
        *(94.9, 96.9, 98.4, 99.3, 99.8, 100),
    ),
    at_size=1.0,
    mean_gpus=1.93,
    mean_duration=18_006.0,
)

HELIOS: Final = Mix(
    jobs=(72.2, 74.8, 80.5, 94.7, 97.7, 99.4, 99.7, 99.9, 99.96, 99.98, 100),
    gpu_time=(5.4, 7.2, 12.1, 41.3, 61.5, 86.6, 94.4, 97.5, 99.9, 99.9, 100),
    durations=(
        *(4.0, 4.9, 6.4, 7.7, 10.7, 16.2, 24.9, 37.8, 56.6, 67.6, 75.2, 84.1, 87.5, 90.8, 94.4, 96.3),
        *(97.8, 98.9, 99.5, 99.9, 100),
    ),
    mean_gpus=3.72,
    mean_duration=6_652.0,
)

_VENUS_DURATIONS: Final = (
    *(1.9, 2.8, 4.1, 6.4, 9.6, 14.8, 23.2, 37.6, 55.1, 65.1, 72.9, 78.5, 83.7, 86.9, 89.6, 92.3),
    *(95.4, 97.5, 98.9, 99.6, 99.9, 100),
)


def _helios_cluster(shares: tuple[float, ...], durations: tuple[float, ...] = HELIOS.durations) -> Mix:
    """One of Helios' clusters: sizes up to 64 were published; above, they are as in all of Helios."""
    rest = 100.0 - shares[-1]
    beyond = tuple(shares[-1] + rest * (share - 99.7) / 0.3 for share in HELIOS.jobs[7:])
    return Mix(jobs=(*shares, *beyond), gpu_time=None, durations=durations)


#: The clusters of Helios. Run times were published for Venus only; the others take those of the whole fleet.
HELIOS_CLUSTERS: Final = {
    "venus": _helios_cluster((51.8, 57.4, 64.8, 90.0, 94.1, 97.8, 98.7), _VENUS_DURATIONS),
    "earth": _helios_cluster((89.2, 90.0, 92.1, 97.5, 99.1, 99.7, 99.9)),
    "saturn": _helios_cluster((68.3, 71.0, 79.4, 94.9, 97.5, 99.3, 99.7)),
    "uranus": _helios_cluster((66.3, 69.4, 73.7, 92.3, 97.9, 99.6, 100)),
}

#: GPU jobs that came in each hour of the day over all of Helios, mean; the only such curve published, so all
#: workloads follow it.
HOURLY: Final = (
    *(330, 307, 247, 217, 206, 202, 199, 185, 204, 296, 408, 450),
    *(436, 444, 482, 520, 543, 483, 399, 436, 477, 446, 414, 398),
)
#: Standard deviation over mean of the times between two arrivals: the last 20 days of Alibaba's openb trace
#: (clusterdata, cluster-trace-gpu-v2023). A Poisson process has 1.
BURSTINESS: Final = 1.75
