"""The resources that describe a cluster: what nodes offer, what of it matters most, and who takes pods."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.nodes import is_accelerator, is_gpu, is_share

#: Resources of which every cluster has some, in the order in which they are shown.
COMMON: Final = ("cpu", "memory")


def offered(cluster: Cluster) -> tuple[str, ...]:
    """Resources that some node offers, the common ones first; the number of pods is none."""
    found = [
        name for name, row in cluster.row_of.items() if name != "pods" and cluster.allocatable[row].any()
    ]
    return tuple(sorted(found, key=lambda name: (name not in COMMON, name)))


def offered_accelerators(cluster: Cluster) -> tuple[str, ...]:
    """The accelerators that nodes offer, shares left out; where there is none, the only extended resource."""
    extended = tuple(name for name in offered(cluster) if "/" in name and not is_share(name))
    found = tuple(name for name in extended if is_accelerator(name))
    return found or (extended if len(extended) == 1 else ())


def main_resources(cluster: Cluster) -> tuple[str, ...]:
    """The GPUs if any node has some, else cpu and memory."""
    found = offered(cluster)
    gpus = tuple(name for name in found if is_gpu(name))
    return gpus or tuple(name for name in COMMON if name in found)


def taking_pods(cluster: Cluster) -> NDArray[np.bool_]:
    """Which slots hold a node that takes pods; shape (slots,)."""
    found = np.zeros(len(cluster.alive), dtype=np.bool_)
    usable = (node is not None and node.ready and not node.unschedulable for node in cluster.nodes)
    found[: cluster.capacity] = np.fromiter(usable, dtype=np.bool_, count=cluster.capacity)
    return found
