"""A workload: jobs in columns, in the order in which they are submitted."""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats, Ints


class CallGraph(Struct, frozen=True, kw_only=True):
    """An application whose workloads call each other. W workloads; equal applications share one graph."""

    #: Unique names, fit for labels; length W.
    workloads: tuple[str, ...]
    #: Pods of each workload; length W. A job's pods are those of the first workload, then of the second, ...
    replicas: tuple[int, ...]
    #: Who calls whom, by index: caller, callee.
    calls: tuple[tuple[int, int], ...]
    #: What each pod asks for, in thousandths of a core; length W.
    cpu: tuple[int, ...]
    #: ``maxNetworkCost`` of each call, None for no limit; as long as ``calls``, or empty when none has one.
    limits: tuple[int | None, ...] = ()

    @property
    def pods(self) -> int:
        """Pods of the whole application."""
        return sum(self.replicas)

    @property
    def cores(self) -> float:
        """Cores of the whole application."""
        return sum(count * cpu for count, cpu in zip(self.replicas, self.cpu, strict=True)) / 1000


class JobClass(Struct, frozen=True):
    """A class of jobs with one priority; its name is for people."""

    name: str
    priority: int


class Jobs(Struct, frozen=True, kw_only=True, eq=False):
    """J jobs. A job is a gang of equal pods that start together, run for a while and end together."""

    #: Unique names, fit for Kubernetes objects; length J.
    names: tuple[str, ...]
    #: Seconds since the workload's beginning, ascending; shape (J,).
    submitted: Floats
    #: Seconds that a job runs once it has started; shape (J,).
    durations: Floats
    #: Pods of each job, and GPUs of each of its pods; shape (J,).
    pods: Counts
    gpus: Counts
    #: Higher goes first; shape (J,).
    priorities: Counts
    #: What a job is, such as ``pretrain``; empty where unknown; length J.
    kinds: tuple[str, ...]
    #: The application that a job is, None for a gang of equal pods; length J, or empty when none is one.
    graphs: tuple[CallGraph | None, ...] = ()
    #: The classes of priority that jobs were given, the highest first; empty where they have no names.
    classes: tuple[JobClass, ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> Counts:
        """GPUs of each whole job; shape (J,)."""
        return self.pods * self.gpus

    @property
    def all_classes(self) -> tuple[JobClass, ...]:
        """The classes of priority, the highest first; without names each priority is one."""
        if self.classes:
            return self.classes
        found = np.unique(self.priorities)[::-1].tolist()
        return tuple(JobClass(f"priority {one}", one) for one in found)

    def only(self, chosen: NDArray[np.bool_]) -> "Jobs":
        """Some of the jobs; ``chosen`` has shape (J,)."""
        return self.take(np.flatnonzero(chosen).astype(np.intp))

    def take(self, chosen: Ints) -> "Jobs":
        """The jobs of these numbers, in this order; one may come several times."""
        at = chosen.tolist()
        return replace(
            self,
            names=tuple(self.names[job] for job in at),
            submitted=self.submitted[chosen],
            durations=self.durations[chosen],
            pods=self.pods[chosen],
            gpus=self.gpus[chosen],
            priorities=self.priorities[chosen],
            kinds=tuple(self.kinds[job] for job in at),
            graphs=tuple(self.graphs[job] for job in at) if self.graphs else (),
        )
