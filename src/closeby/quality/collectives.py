"""Modelled time of a ring all-reduce where a job is, against where it would be ideally, and what it costs.

The alpha-beta model (Thakur, Rabenseifner and Gropp, 2005) of the ring algorithm (Patarasuk and Yuan, JPDC
2009; NCCL's tuning counts so too): n ranks take 2(n - 1) steps of S/n bytes each, so that
t = 2(n - 1) alpha + 2(n - 1)/n S/B with the slowest alpha and B on the ring. A rank is a GPU; a pod without
GPUs is one rank.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats
from closeby.quality.model import Model


def tiers_climbed(span: NDArray[Any]) -> Counts:
    """How far up the tree a job's ring must climb, from its spans; shape (J,).

    0 inside one node, 1 inside one finest domain, K where it is in several coarsest ones: a ring over all
    pods crosses each level on which they are in several domains, whatever the order of its ranks.
    """
    climbed: Counts = np.count_nonzero(span > 1, axis=1)
    return climbed


def all_reduce_seconds(
    model: Model, ranks: NDArray[Any], links: NDArray[Any], climbed: Counts, levels: int
) -> Floats:
    """Seconds of an all-reduce of each job while all nodes of the cluster send; shape (J,).

    ``ranks`` of the job, ``links`` of each of its pods and ``climbed`` have shape (J,), ``levels`` is K.
    """
    kinds, kind_of = np.unique(links, return_inverse=True)
    rates = model.rates(levels + 1, kinds.astype(np.float64))
    latency = model.latencies(levels + 1)[climbed]
    return ring_seconds(ranks, model.message_bytes, latency, rates[kind_of.reshape(-1), climbed])


def ring_seconds(ranks: NDArray[Any], message: float, latency: Floats, rate: Floats) -> Floats:
    """t = 2(n - 1) alpha + 2(n - 1)/n S/B; 0 for a single rank; all arrays of shape (J,)."""
    steps = 2.0 * np.maximum(ranks - 1, 0)
    found: Floats = steps * latency + steps / np.maximum(ranks, 1) * message / rate
    return found


def slowdowns(placed: Floats, ideal: Floats) -> Floats:
    """How many times longer communication takes than on an ideal placement on an empty cluster; shape (J,).

    1 where there is nothing to communicate, nan where the ideal is not known.
    """
    return np.where(ideal == 0, 1.0, placed / np.where(ideal == 0, 1.0, ideal))


def job_slowdowns(model: Model, communication: Floats) -> Floats:
    """How many times longer a step takes, of which communication is a share on an ideal placement."""
    share = model.communication_share
    found: Floats = (1.0 - share) + share * communication
    return found
