"""Numbers that are drawn for a pod and each node: the same whoever asks, and whenever."""

from zlib import crc32

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from closeby.objects.pods import Pod
from closeby.scheduling.nodes_view import Nodes


def lots(seed: int, pod: Pod, nodes: Nodes) -> NDArray[np.float64]:
    """Numbers in [0, 1); shape (len(nodes),). What is asked first or twice changes nothing.

    They belong to the pod's uid: in a simulation the seed of the run is part of that.
    """
    slots = nodes.slots
    room = int(slots.max()) + 1 if len(slots) else 0
    return Generator(PCG64([seed, crc32(pod.uid.encode())])).random(room)[slots]
