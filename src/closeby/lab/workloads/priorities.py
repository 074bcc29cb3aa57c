"""Classes of priority for the jobs of a workload, in shares of its GPU-time as they were published.

Sources:

- Borg: Verma et al., "Large-scale cluster management at Google with Borg", EuroSys 2015, section 2.1: jobs of
  production hold about 70 % of the CPU that is allocated.
- Spot GPUs: Duan et al., "GFS: A Preemptive Scheduling Framework for GPU Clusters with Predictive Spot
  Management", ASPLOS 2026, and its trace (Alibaba clusterdata, cluster-trace-v2026-spot-gpu): jobs of high
  priority have 97.6 % of the GPU-time, spot jobs 2.4 %.
- Acme: Hu et al., "Characterization of Large Language Model Development in the Datacenter", NSDI 2024:
  pretraining has its resources reserved, evaluations get what is left over. Their shares are those of the
  workloads ``seren`` and ``kalos``.
"""

import re
from collections.abc import Mapping
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from closeby.errors import UnrunnableError
from closeby.lab.workloads.jobs import JobClass, Jobs
from closeby.objects.arrays import Counts, Ints


class PriorityMix(Struct, frozen=True, kw_only=True):
    """Classes, the highest first, and who is in them: a share of the GPU-time each, or jobs by kind."""

    classes: tuple[JobClass, ...]
    #: Shares of GPU-time, as long as ``classes``; sum 1. Empty where the kind decides.
    shares: tuple[float, ...] = ()
    #: The class of the jobs of a kind, by its place in ``classes``; and that of all others.
    kinds: Mapping[str, int] = {}
    others: int = 0


HIGH: Final = JobClass("high", 1000)
NORMAL: Final = JobClass("normal", 500)
LOW: Final = JobClass("low", 0)

#: By name.
MIXES: Final[Mapping[str, PriorityMix]] = {
    "borg": PriorityMix(classes=(JobClass("production", 1000), JobClass("batch", 0)), shares=(0.7, 0.3)),
    "spot-gpu": PriorityMix(classes=(HIGH, JobClass("spot", 0)), shares=(0.976, 0.024)),
    "acme": PriorityMix(classes=(HIGH, NORMAL, LOW), kinds={"pretrain": 0, "eval": 2}, others=1),
}

_CLASS: Final = re.compile(r"([a-z0-9][-a-z0-9]*)=(-?\d{1,10})(?::(\d+(?:\.\d+)?)%?)?")
_GREATEST: Final = 1_000_000_000


def mix_named(text: str) -> PriorityMix:
    """One of ``MIXES``, or one that is written out like ``high=1000:10%,low=0``.

    Raises:
        UnrunnableError: it is neither.
    """
    known = MIXES.get(text)
    if known is not None:
        return known
    form = "write like high=1000:10%,low=0 (name, priority, share of the GPU-time)"
    if "=" not in text:
        raise UnrunnableError(f"--priorities: {text!r} is not known; take {', '.join(MIXES)}, or {form}")
    classes, shares = [], []
    for part in text.split(","):
        found = _CLASS.fullmatch(part.strip())
        if found is None or abs(int(found[2])) > _GREATEST:
            raise UnrunnableError(f"--priorities: {part.strip()!r} is not a class of priority; {form}")
        classes.append(JobClass(found[1], int(found[2])))
        shares.append(None if found[3] is None else float(found[3]) / 100)
    if len({one.priority for one in classes}) < len(classes) or len({one.name for one in classes}) < len(
        classes
    ):
        raise UnrunnableError("--priorities: two classes have one name or one priority; give each its own")
    given = sum(share for share in shares if share is not None)
    if shares.count(None) > 1 or given > 1 + 1e-9 or (None not in shares and abs(given - 1) > 1e-9):
        raise UnrunnableError(
            "--priorities: the shares must be 100 % in all; one class without a share gets the rest"
        )
    whole = [max(1 - given, 0.0) if share is None else share for share in shares]
    order = sorted(range(len(classes)), key=lambda at: -classes[at].priority)
    return PriorityMix(classes=tuple(classes[at] for at in order), shares=tuple(whole[at] for at in order))


def with_priorities(jobs: Jobs, mix: PriorityMix, seed: int) -> Jobs:
    """The same jobs with the mix's priorities. Equal seeds give equal classes.

    Each job is in a class with about the probability of the class's share. Jobs that are alike in size and
    run time are dealt out in turn, and of many ways to do so that one is taken which meets the shares of
    GPU-time best: what is off is due to the few largest jobs. Jobs that run from the beginning are dealt out
    apart from those that come later.
    """
    priorities = np.array([one.priority for one in mix.classes], dtype=np.int64)
    if mix.shares:
        random = Generator(PCG64((seed, len(mix.classes))))
        chosen = np.zeros(len(jobs), dtype=np.intp)
        runs_already = jobs.submitted == 0
        for these in (np.flatnonzero(runs_already), np.flatnonzero(~runs_already)):
            chosen[these] = _dealt(jobs, these.astype(np.intp), mix.shares, random)
    else:
        chosen = np.array([mix.kinds.get(kind, mix.others) for kind in jobs.kinds], dtype=np.intp)
    given: Counts = priorities[chosen]
    return replace(jobs, priorities=given, classes=mix.classes)


#: Ways to deal out jobs that are compared.
_TRIES: Final = 64
#: Its multiples fill [0, 1) evenly, however many they are.
_GOLDEN: Final = (5**0.5 - 1) / 2


def _dealt(jobs: Jobs, these: Ints, shares: tuple[float, ...], random: Generator) -> NDArray[np.intp]:
    """The class of each of these jobs."""
    work = jobs.sizes[these] * jobs.durations[these]
    order = np.argsort(-work, kind="stable")
    # Neighbours in the order are far apart.
    turns = np.empty(len(these))
    turns[order] = np.arange(len(these)) * _GOLDEN
    edges = np.cumsum(shares)[:-1]
    best, least = np.zeros(len(these), dtype=np.intp), np.inf
    for begin in random.random(_TRIES).tolist():
        found = np.searchsorted(edges, (begin + turns) % 1.0, side="right").astype(np.intp)
        held = np.bincount(found, weights=work, minlength=len(shares))
        off = float(np.abs(held - np.asarray(shares) * work.sum()).max(initial=0.0))
        if off < least:
            best, least = found, off
    return best
