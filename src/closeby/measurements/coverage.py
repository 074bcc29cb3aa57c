"""How much of what pods request is in a measured average already.

An average over fifteen minutes holds all of a pod that was there all the time, a third of one that came five
minutes before its end, and nothing of one whose binding is on the way. If that were not distinguished, every
new measurement would make room for pods that has been given away.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from closeby.cluster.columns import Cluster
from closeby.measurements.bandwidth import BandwidthReadings, NodeBandwidth
from closeby.objects.pods import Pod


class _Stay(NamedTuple):
    """What a pod requests, and since when it is on its node; None: as long as one can think."""

    request: int
    since: float | None


class Coverage:
    """Remembers since when pods are on their nodes, from one measurement to the next."""

    def __init__(self, cluster: Cluster, resource: str) -> None:
        """``resource`` is what pods request of what is measured."""
        self._cluster = cluster
        self._resource = resource
        self._window = 0.0
        #: When the newest measurement was taken, for those that do not say it themselves.
        self._at: float | None = None
        #: By uid, of pods that request something; None before the first measurement.
        self._stays: dict[str, _Stay] | None = None

    def take(self, readings: BandwidthReadings, at: float | None) -> None:
        """A new measurement, of all that is there now; ``at`` is seconds since the epoch.

        Pods that are there at the first one came when they were made, at the earliest. Of those that came
        since it is only known that they were not there at the measurement before: they count as just come.
        """
        before, stays = self._stays, dict[str, _Stay]()
        self._window, self._at = readings.window, at
        row = self._cluster.row_of.get(self._resource)
        if row is not None and self._cluster.requested[row].any():
            for pod, _ in self._cluster.placed_pods():
                stay = None if before is None else before.get(pod.uid)
                if stay is None and pod.node_name is not None and (request := self._request(pod)):
                    stay = _Stay(request, pod.created if before is None or at is None else at)
                if stay is not None:
                    stays[pod.uid] = stay
        self._stays = stays

    def of(self, links: Mapping[int, NodeBandwidth]) -> dict[int, int]:
        """What the measurements cover of the requests on these slots; nothing of pods that came later."""
        covered = dict.fromkeys(links, 0)
        stays = self._stays
        if not links or not stays:
            return covered
        for pod, slot in self._cluster.placed_pods():
            if slot in covered and (stay := stays.get(pod.uid)) is not None:
                covered[slot] += self._share(stay, links[slot].measured)
        return covered

    def _request(self, pod: Pod) -> int:
        return next((amount for resource, amount in pod.spec.requests if resource == self._resource), 0)

    def _share(self, stay: _Stay, end: float | None) -> int:
        """The part of a request that an average with this end covers."""
        end = self._at if end is None else end
        if stay.since is None or end is None:
            return stay.request
        there = end - stay.since
        if there < 0:
            return 0
        return stay.request if there >= self._window else math.floor(stay.request * there / self._window)
