"""The network that collectives are modelled on: every constant, in one record that reports print.

It is a model. Its figures compare placements on one kind of hardware; they predict no job's speed.
"""

from typing import Final

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Floats


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
        """One tier."""
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
