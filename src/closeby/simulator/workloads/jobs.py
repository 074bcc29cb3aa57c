"""A workload: jobs in columns, in the order in which they are submitted."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Jobs(Struct, frozen=True, kw_only=True, eq=False):
    """J jobs. A job is a gang of equal pods that start together, run for a while and end together."""

    #: Unique names, fit for Kubernetes objects; length J.
    names: tuple[str, ...]
    #: Seconds since the workload's beginning, ascending; shape (J,).
    submitted: Floats
    #: Seconds that a job runs once it has started; shape (J,).
    durations: Floats
    #: Pods of each job, and GPUs of each of its pods; shape (J,).
    pods: Ints
    gpus: Ints
    #: Higher goes first; shape (J,).
    priorities: Ints
    #: What a job is, such as ``pretrain``; empty where unknown; length J.
    kinds: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> Ints:
        """GPUs of each whole job; shape (J,)."""
        return self.pods * self.gpus
