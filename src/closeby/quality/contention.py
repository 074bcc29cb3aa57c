"""The contended form of the all-reduce model: uplinks are shared by the flows that are on them.

Each edge of a job's ring that leaves a domain sends one flow per link of a pod up from it (and as many come
down, for a ring enters as often as it leaves). A domain's uplink has the links of its nodes, divided by the
oversubscription above it; where more flows are on it, each gets an equal share of what one link gives.
"""

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats, Ints
from closeby.quality.model import Model, Rings, Tier, ring_seconds
from closeby.quality.placements import Placements
from closeby.topology.tree import Tree


class JobRanks(Struct, frozen=True, kw_only=True, eq=False):
    """The ranks of each job; all of shape (J,)."""

    ranks: Counts
    #: Links of each of its pods.
    links: Counts
    #: Tiers that its ring climbs.
    climbed: Counts


class Uses(Struct, frozen=True, kw_only=True, eq=False):
    """Which jobs use which uplinks; one entry a job and uplink, by job and then by uplink.

    Uplinks are numbered through all levels, coarse to fine, single nodes last.
    """

    job: Ints
    uplink: Ints
    #: The uplink's domain: its level, and its index there.
    level: Ints
    domain: Ints
    #: Flows of the job up from the domain.
    flows: Floats


def contended_seconds(
    model: Model,
    found: Placements,
    ring: Rings,
    ranks_of_jobs: JobRanks,
    node_gpus: NDArray[Any],
    during: Floats,
) -> Floats:
    """Seconds of an all-reduce of each job among the others that ran meanwhile; shape (J,).

    ``during`` holds when each job started and ended, shape (J, 2): on an uplink counts the mean number of
    flows over that time. Jobs placed together and for good all have the same two times. ``node_gpus`` has
    shape (slots,).
    """
    uses = uplink_uses(found, ring, ranks_of_jobs.links)
    load = _mean_flows(uses, during)
    room = np.concatenate(uplinks(model, found.tree, node_gpus))[uses.uplink]
    speed = _speeds(model, found.levels + 1)
    rate = (
        speed[found.tree.node_level - uses.level + 1]
        * np.minimum(1.0, room / load)
        * ranks_of_jobs.links[uses.job]
    )
    slowest = np.full(found.jobs, speed[0])
    np.minimum.at(slowest, uses.job, rate)
    latency = model.latencies(found.levels + 1)[ranks_of_jobs.climbed]
    return ring_seconds(ranks_of_jobs.ranks, model.message_bytes, latency, slowest)


def alone_seconds(model: Model, ranks_of_jobs: JobRanks, levels: int) -> Floats:
    """Seconds of an all-reduce of each job with full links all the way; shape (J,).

    No job that must climb as far takes less among others. ``levels`` is K.
    """
    rate = np.outer(ranks_of_jobs.links, _speeds(model, levels + 1))
    rate[:, :1] = model.tier(0).bytes_per_second
    slowest = np.minimum.accumulate(rate, axis=1)[np.arange(len(rate)), ranks_of_jobs.climbed]
    latency = model.latencies(levels + 1)[ranks_of_jobs.climbed]
    return ring_seconds(ranks_of_jobs.ranks, model.message_bytes, latency, slowest)


def _speeds(model: Model, tiers: int) -> Floats:
    """Bytes per second of one link on each tier."""
    return np.asarray([model.tier(number).bytes_per_second for number in range(tiers)], dtype=np.float64)


def uplink_uses(found: Placements, ring: Rings, links: NDArray[Any]) -> Uses:
    """Flows of each job on each uplink, by the edges of its ring that leave the domain.

    ``links`` of each pod of the jobs have shape (J,).
    """
    counts = [found.tree.count(level) for level in range(found.levels)]
    firsts = np.cumsum([0, *counts])
    every = int(firsts[-1])
    keys = []
    for level in range(found.levels):
        leaving = ring.crosses[:, level]
        domains = found.owners(level, ring.here[leaving])
        keys.append(ring.job[leaving] * every + firsts[level] + domains)
    known, edges = np.unique(np.concatenate(keys), return_counts=True)
    job, uplink = np.divmod(known, max(every, 1))
    level_of = np.repeat(np.arange(found.levels), counts)[uplink]
    return Uses(
        job=job,
        uplink=uplink,
        level=level_of,
        domain=uplink - firsts[level_of],
        flows=edges.astype(np.float64) * links[job],
    )


def uplinks(model: Model, tree: Tree, node_gpus: NDArray[Any]) -> tuple[Floats, ...]:
    """How many full links the uplink of each domain is worth, by level, single nodes last.

    ``node_gpus`` has shape (slots,).
    """
    links = np.maximum(node_gpus[tree.slot_at], 1).astype(np.float64)
    return tuple(
        tree.sums(level, links) / tier_above(model, tree, level).oversubscription
        for level in range(tree.node_level + 1)
    )


def tier_above(model: Model, tree: Tree, level: int) -> Tier:
    """The tier to which data climbs that leaves a domain of a level."""
    return model.tier(tree.node_level - level + 1)


def _mean_flows(uses: Uses, during: Floats) -> Floats:
    """Mean number of flows on an uplink while the job of each entry ran, its own included.

    The integral of the flows up to a time is that time x all changes before it, less the sum of each change x
    its own time; both are running sums over the changes of an uplink in the order of time.
    """
    count = len(uses.job)
    if not count:
        return uses.flows
    begin, end = (during[uses.job] - during[uses.job].min()).T
    times = np.concatenate([begin, end])
    changes = np.concatenate([uses.flows, -uses.flows])
    order = np.lexsort((times, np.concatenate([uses.uplink, uses.uplink])))
    height = np.empty(2 * count)
    moment = np.empty(2 * count)
    height[order] = np.cumsum(changes[order])
    moment[order] = np.cumsum((changes * times)[order])
    # All that was on the uplinks before this one has ended again, which leaves its share of ``moment`` the
    # same at both times, so that the difference is this uplink's own.
    filled = (end * height[count:] - moment[count:]) - (begin * height[:count] - moment[:count])
    length = end - begin
    lasting = length > 0
    mean = np.where(lasting, filled / np.where(lasting, length, 1.0), uses.flows)
    return np.maximum(mean, uses.flows)
