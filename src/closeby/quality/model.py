"""The network that collectives are modelled on: every constant, in one record that reports print.

It is a model. Its figures compare placements on one kind of hardware; they predict no job's speed. A ring
all-reduce runs over the ring in the order of ranks, and shows how well ranks follow the topology, which no
measure of pairs can. Its time is by the alpha-beta model (Thakur, Rabenseifner and Gropp, 2005) of the ring
algorithm (Patarasuk and Yuan, JPDC 2009; NCCL's tuning counts so too): n ranks take 2(n - 1) steps of S/n
bytes each, so that t = 2(n - 1) alpha + 2(n - 1)/n S/B with the slowest alpha and B on the ring. A rank is a
GPU; a pod without GPUs is one rank.
"""

from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Bools, Counts, Floats, Ints
from closeby.quality.placements import Placements, by_level


class Tier(Struct, frozen=True, kw_only=True, rename="camel"):
    """What data meets that climbs so many tiers up the tree: 0 inside a node, 1 inside a finest domain."""

    #: Seconds that one step takes whatever its size: alpha.
    latency_seconds: float
    #: Bytes per second that one link gives one way, before oversubscription: beta is its inverse. A node has
    #: one link to the network for each of its GPUs (one if it has none), and a pod uses as many as it has
    #: GPUs. Inside a node it is what one step gets whatever the pod.
    bytes_per_second: float
    #: Bandwidth of the links below the switches of this tier over that above them, all tiers below counted.
    oversubscription: float
    #: Where the numbers come from.
    source: str


class Model(Struct, frozen=True, kw_only=True, rename="camel"):
    """Constants of the alpha-beta model of a ring all-reduce, and of what it means to a job."""

    #: Nearest first; the last stands for all farther ones.
    tiers: tuple[Tier, ...]
    #: Bytes that each rank brings to an all-reduce.
    message_bytes: int
    #: Share of a step that a job spends on communication on an ideal placement.
    communication_share: float
    #: Where the share comes from.
    communication_source: str

    def latencies(self, count: int) -> Floats:
        """Seconds of a step on each of the nearest ``count`` tiers, never less than on a nearer one."""
        latencies = np.asarray(
            [self.tier(number).latency_seconds for number in range(count)], dtype=np.float64
        )
        return np.maximum.accumulate(latencies)

    def rates(self, count: int, links: Floats) -> Floats:
        """Bytes per second of a ring of so many links on each tier, all nodes sending; shape (links, count).

        A ring that climbs to a tier uses the nearer ones too, so that a farther tier is never faster.
        """
        tiers = [self.tier(number) for number in range(count)]
        fair = [tier.bytes_per_second / tier.oversubscription for tier in tiers]
        found = np.outer(links, fair)
        found[:, :1] = fair[0]
        return np.minimum.accumulate(found, axis=1)

    def tier(self, number: int) -> Tier:
        return self.tiers[min(number, len(self.tiers) - 1)]


#: 2.18 and later have 14 us for the network, and the same inside a node.
_LATENCY: Final = "latency: NCCL 2.17 src/graph/tuning.cc, hwLat, ring, Simple"
_LINK: Final = "bandwidth: one 400 Gb/s link per GPU"

#: Servers of eight H100 on a fabric of 400 Gb/s.
DEFAULT_MODEL: Final = Model(
    tiers=(
        Tier(
            latency_seconds=3.4e-6,
            bytes_per_second=450e9,
            oversubscription=1.0,
            source=f"{_LATENCY}, NVLink; bandwidth: NVLink 4, 900 GB/s both ways together",
        ),
        Tier(
            latency_seconds=9.6e-6,
            bytes_per_second=50e9,
            oversubscription=1.0,
            source=f"{_LATENCY}, network; {_LINK}",
        ),
        Tier(
            latency_seconds=10.6e-6,
            bytes_per_second=50e9,
            oversubscription=1.2,
            source="latency: two more switches of 0.5 us (assumed); "
            "oversubscription: collectives lose up to 17 % across domains (Arnold, arXiv 2509.15940)",
        ),
        Tier(
            latency_seconds=11.6e-6,
            bytes_per_second=50e9,
            oversubscription=7.0,
            source="latency: two more switches of 0.5 us (assumed); "
            "oversubscription: 1:7 between pods (The Llama 3 Herd of Models, arXiv 2407.21783)",
        ),
    ),
    message_bytes=1 << 30,
    communication_share=0.3,
    communication_source="30-50 % of a step (Arnold, arXiv 2509.15940), of which the least",
)


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


class Rings(Struct, frozen=True, kw_only=True, eq=False):
    """The edges of all jobs' rings: each pod to the next by rank, the last to the first.

    A job of one pod has no ring. Two pods have two edges, there and back. With E edges.
    """

    #: Job and ends of each edge, as positions in the tree; shape (E,).
    job: Ints
    here: Ints
    there: Ints
    #: Whether an edge leaves a domain, by level; shape (E, K).
    crosses: Bools


def rings(found: Placements) -> Rings:
    count = len(found.positions)
    following = np.arange(1, count + 1)
    last = found.offsets[1:][np.diff(found.offsets) > 0] - 1
    following[last] = found.offsets[:-1][np.diff(found.offsets) > 0]
    edges = np.flatnonzero(following != np.arange(count))
    here, there = found.positions[edges], found.positions[following[edges]]
    return Rings(
        job=found.job[edges],
        here=here,
        there=there,
        crosses=by_level(
            [found.owners(level, here) != found.owners(level, there) for level in range(found.levels)]
        ),
    )


def ring_crossings(found: Placements, ring: Rings) -> Counts:
    """Edges of each job's ring that leave a domain of a level; shape (J, K).

    At least the span, where that is more than one: a ring leaves each domain that it enters.
    """
    return by_level(
        [
            np.bincount(ring.job[ring.crosses[:, level]], minlength=found.jobs).astype(np.int64)
            for level in range(found.levels)
        ]
    )


def ring_hops(crossings: Counts) -> Counts:
    """Tree edges that each job's ring runs over, in all; shape (J,): two for each domain it leaves."""
    hops: Counts = 2 * crossings.sum(axis=1)
    return hops


def least_ring_hops(span: Counts) -> Counts:
    """The fewest that a ring over the same pods could run over, in another order of ranks; shape (J,)."""
    hops: Counts = 2 * np.where(span > 1, span, 0).sum(axis=1)
    return hops
