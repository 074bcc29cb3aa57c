"""What happened to the jobs of one run, in columns: all that the summary of a run is worked out from."""

from typing import Any

from msgspec import Struct
from numpy.typing import NDArray

from closeby.quality.placements import Counts, Floats, Ints
from closeby.topology.tree import Tree


class RunColumns(Struct, frozen=True, kw_only=True, eq=False):
    """J jobs on a cluster, simulated or real. A job is a gang of equal pods that start and end together."""

    #: The topology in which places are judged, and the GPUs of each of its slots; shape (slots,).
    tree: Tree
    node_gpus: Counts
    #: Pods of each job, and GPUs of each of its pods; shape (J,).
    pods: NDArray[Any]
    gpus: NDArray[Any]
    #: Higher goes first; shape (J,).
    priorities: NDArray[Any]
    #: Seconds at which each job was submitted, started and ended; nan where it did not; shape (J,).
    submitted: Floats
    started: Floats
    ended: Floats
    #: Slots of the pods in the order of their ranks; job ``i`` has ``slots[offsets[i]:offsets[i + 1]]``,
    #: which is empty if it never started. Shapes (J + 1,) and (P,).
    offsets: Ints
    slots: Ints
    #: When the run stopped, in seconds.
    until: float
