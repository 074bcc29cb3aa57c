"""Looking ahead: no pod of an application goes where another that waits would be left without a node.

Pods are placed one after another and never moved again. Where both regions have room for its callers, but a
store may be near to one region only (``maxNetworkCost``), callers in both would keep it waiting for ever.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from closeby.applications.registry import workload_name
from closeby.cluster.columns import EVERYTHING, Cluster
from closeby.objects.arrays import Bools, Costs, Ints
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Filter, Scope
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.services import Traffic

Singles = NDArray[np.float32]

#: With more locations than this only the workloads next to a pod are looked at, not those beyond.
FARTHER_UP_TO: Final = 256


class Lookahead:
    """Where the workloads of one application that wait may go yet, were there room, in one cycle.

    By kind as in ``Traffic``: K kinds, L locations.
    """

    def __init__(self, cluster: Cluster, table: ClassTable, traffic: Traffic, pods: Sequence[Pod]) -> None:
        self._traffic = traffic
        self._kind_of = dict(zip((pod.uid for pod in pods), traffic.kinds.tolist(), strict=True))
        self._one_of = {kind: pod for pod, kind in zip(pods, traffic.kinds.tolist(), strict=True)}
        self._bounded: Bools = np.isfinite(traffic.limits)
        #: All distances between locations, ascending, and the pairs within so many of the first.
        self._distances: Costs = np.unique(traffic.between)
        self._within: dict[int, Singles] = {}
        self._first = np.stack(
            [_empty(cluster, table, self._one_of[kind]) for kind in range(len(traffic.limits))]
        ) & np.isfinite(traffic.standing)
        self._counts: Ints = np.bincount(traffic.kinds, minlength=len(traffic.limits))
        self._seen: list[tuple[Pod, int]] = []
        self._could: Bools = self._first.copy()
        self._left: Ints = self._counts.copy()
        self._known: dict[int, Bools] = {}

    def open_for(self, state: CycleState, pod: Pod) -> Bools:
        """Where a pod leaves a node for every workload that waits, by slot; shape (capacity,)."""
        self._follow(state.placed)
        kind = self._kind_of[pod.uid]
        found = self._known.get(kind)
        if found is None:
            state.steps.take(50 + self._could.size // 20)
            found = np.ones(self._could.shape[1], dtype=np.bool_)
            for _, masks in self._masks(kind):
                found &= masks.all(axis=0)
            self._known[kind] = found
        return found

    def left_out(self, state: CycleState, pod: Pod, slot: int) -> Pod | None:
        """A pod of the first workload that would be left without a node."""
        self._follow(state.placed)
        for kinds, masks in self._masks(self._kind_of[pod.uid]):
            without = kinds[~masks[:, slot]].tolist()
            if without:
                return self._one_of[without[0]]
        return None

    def strands(self, state: CycleState) -> bool:
        """Whether what was placed leaves a workload that waits without a node, which had one before."""
        self._follow(state.placed)
        without = self._without(self._could, self._left > 0)
        return bool((without & ~self._without(self._first, self._counts > 0)).any())

    def _without(self, could: Bools, waiting: Bools) -> Bools:
        """The kinds that wait and have no node, or only where another would have none; shape (K,)."""
        some = could.any(axis=1)
        ahead = np.flatnonzero(waiting & some)
        if len(self._traffic.between) <= FARTHER_UP_TO:
            some &= self._settled(self._by_location(could)[None], ahead)[0].any(axis=1)
        return waiting & ~some

    def _follow(self, placed: list[tuple[Pod, int]]) -> None:
        """Take in what was placed since it was asked last."""
        count = len(self._seen)
        if placed[:count] != self._seen:
            self._seen, count = [], 0
            self._could, self._left = self._first.copy(), self._counts.copy()
            self._known.clear()
        for pod, slot in placed[count:]:
            kind = self._kind_of[pod.uid]
            self._left[kind] -= 1
            peers = np.flatnonzero(self._bounded[kind])
            here = self._could[peers, slot]
            near = self._near(kind, peers, self._traffic.locations[[slot]])[:, 0]
            self._could[peers] &= near[:, self._traffic.locations]
            self._could[peers, slot] = here
            self._known.clear()
        self._seen = list(placed)

    def _masks(self, kind: int) -> Iterator[tuple[Ints, Bools]]:
        """Workloads that wait, and where one more pod of this kind leaves a node for each.

        Shapes (kinds,) and (kinds, capacity).
        """
        left = self._left.copy()
        left[kind] -= 1
        # For those without any node now it makes no difference.
        ahead = (left > 0) & self._could.any(axis=1)
        peers = np.flatnonzero(ahead & self._bounded[kind])
        if not len(peers):
            return
        locations, size = self._traffic.locations, len(self._traffic.between)
        has = self._by_location(self._could)
        near = np.zeros((len(peers), size), dtype=np.bool_)
        for equal, within in self._by_limit(self._traffic.limits[kind, peers]):
            near[equal] = has[peers[equal]].astype(np.float32) @ within.T > 0
        yield peers, near[:, locations] | self._could[peers]
        if size <= FARTHER_UP_TO:
            yield from self._beyond(kind, peers, np.flatnonzero(ahead), has)

    def _beyond(self, kind: int, peers: Ints, ahead: Ints, has: Bools) -> Iterator[tuple[Ints, Bools]]:
        """The same for workloads that have no limit to this one, but to others that wait (arc consistency).

        By location, and two pods at one location are taken to be near: what is ruled out is ruled out.
        """
        bounded = self._bounded[np.ix_(ahead, ahead)]
        if not (bounded.sum(axis=1) > np.diag(bounded)).any():
            return
        now = self._settled(has[None], ahead)
        if not now[0, ahead].any(axis=1).all():
            return
        size = len(has[0])
        start = np.repeat(now, size, axis=0)
        near = self._near(kind, peers, np.arange(size))
        near[:, np.arange(size), np.arange(size)] = True
        start[:, peers] &= near.transpose(1, 0, 2)
        _, first, which = np.unique(
            start[:, peers].reshape(size, -1), axis=0, return_index=True, return_inverse=True
        )
        then = self._settled(start[first], ahead)
        holds = np.asarray(then[:, ahead].any(axis=2)).T
        yield ahead, holds[:, which.reshape(-1)[self._traffic.locations]]

    def _settled(self, could: Bools, ahead: Ints) -> Bools:
        """Without the locations at which some limit could not be kept any more; shape (cases, K, L).

        All limits are looked at in each round, those of equal reach at once: a location stays where every
        other workload that waits has one near enough.
        """
        found = could[:, ahead]
        bounded = self._bounded[np.ix_(ahead, ahead)] & ~np.eye(len(ahead), dtype=np.bool_)
        limits = np.where(bounded, self._traffic.limits[np.ix_(ahead, ahead)], np.inf)
        here = np.eye(len(self._traffic.between), dtype=np.float32)
        rules = [
            (pairs.astype(np.float32), np.maximum(within, here)) for pairs, within in self._by_limit(limits)
        ]
        before = -1
        while (count := int(found.sum())) != before:
            before = count
            broken = np.zeros(found.shape, dtype=np.bool_)
            for pairs, within in rules:
                out_of_reach = found.astype(np.float32) @ within == 0
                broken |= pairs @ out_of_reach.astype(np.float32) > 0
            found &= ~broken
        settled = could.copy()
        settled[:, ahead] = found
        return settled

    def _by_location(self, could: Bools) -> Bools:
        """Whether any node of a location is left to each kind; shape (K, L)."""
        locations, size = self._traffic.locations, len(self._traffic.between)
        return np.stack([np.bincount(locations, weights=one, minlength=size) > 0 for one in could])

    def _near(self, kind: int, peers: Ints, locations: Ints) -> Bools:
        """Whether a pod of each peer would be near enough to one of a kind at each of some locations.

        Shape (peers, locations, L).
        """
        traffic = self._traffic
        limits = traffic.limits[kind, peers][:, None, None]
        near: Bools = (traffic.between[locations] <= limits) & ~traffic.unknown[locations]
        return near

    def _by_limit(self, limits: Costs) -> Iterator[tuple[Bools, Singles]]:
        """Masks of the limits that reach equally far, with the pairs within them (1), of shape (L, L)."""
        reaches = np.searchsorted(self._distances, limits, side="right")
        finite = np.isfinite(limits)
        for reach in np.unique(reaches[finite]).tolist():
            within = self._within.get(reach)
            if within is None:
                near = (
                    self._traffic.between <= limits[finite & (reaches == reach)][0]
                ) & ~self._traffic.unknown
                within = self._within[reach] = near.astype(np.float32)
            yield finite & (reaches == reach), within


class LooksAhead(Filter):
    """Keeps pods off nodes that would leave others of their application without one, for one cycle."""

    name: ClassVar[str] = "LooksAhead"
    filter_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    reason: ClassVar[Reason | None] = Reason.NETWORK_COST_TOO_HIGH

    def __init__(self, lookahead: Lookahead, cluster: Cluster) -> None:
        self._lookahead = lookahead
        self._cluster = cluster

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        found: Bools = self._lookahead.open_for(state, pod)[nodes.index]
        return found

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        other = self._lookahead.left_out(state, pod, slot)
        workload = "another workload" if other is None else workload_name(other)
        here = self._cluster.node_at(slot).name
        text = f"with it on {here} no node is near enough for {workload}, which waits too"
        return Rejection(Reason.NETWORK_COST_TOO_HIGH, text)


def look_ahead(
    state: CycleState, cluster: Cluster, table: ClassTable, traffic: Traffic, pods: Sequence[Pod]
) -> bool:
    """Whether what was placed leaves others of these pods no node at all; ``LooksAhead`` minds that then."""
    if not np.isfinite(traffic.limits).any():
        return False
    lookahead = Lookahead(cluster, table, traffic, pods)
    if not lookahead.strands(state):
        return False
    state.more_filters = (LooksAhead(lookahead, cluster),)
    return True


def _empty(cluster: Cluster, table: ClassTable, pod: Pod) -> Bools:
    """Where a pod may go, were all nodes empty; shape (capacity,)."""
    return table.of(pod).static & (cluster.room(cluster.demand(pod.spec), without=EVERYTHING) > 0)
