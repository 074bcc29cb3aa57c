"""How much of what pods request is in a measured average already.

An average over fifteen minutes holds all of a pod that was there all the time, a third of one that came five
minutes before its end, and nothing of one whose binding is on the way. Were that not told apart, every new
measurement would make room for pods that has been given away.
"""

import math
from collections.abc import Mapping

from closeby.cluster.columns import Cluster
from closeby.measurements.bandwidth import BandwidthReadings, NodeBandwidth
from closeby.objects.pods import Pod


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
        self._since: dict[str, float | None] | None = None

    def take(self, readings: BandwidthReadings, at: float | None) -> None:
        """A new measurement, of all that is there now; ``at`` is seconds since the epoch.

        Pods that are there at the first one came when they were made, at the earliest. Of those that came
        since it is only known that they were not there at the measurement before: they count as just come.
        """
        before, since = self._since, dict[str, float | None]()
        self._window, self._at = readings.window, at
        if self._requested():
            for pod, _ in self._cluster.placed_pods():
                if pod.node_name is not None and self.request(pod):
                    newly = pod.created if before is None or at is None else at
                    since[pod.uid] = newly if before is None else before.get(pod.uid, newly)
        self._since = since

    def of(self, links: Mapping[int, NodeBandwidth]) -> dict[int, int]:
        """What the measurements cover of the requests on these slots."""
        covered = dict.fromkeys(links, 0)
        if links and self._requested():
            for pod, slot in self._cluster.placed_pods():
                if slot in covered:
                    covered[slot] += self._share(pod, links[slot].measured)
        return covered

    def request(self, pod: Pod) -> int:
        """What a pod requests."""
        return next((amount for resource, amount in pod.spec.requests if resource == self._resource), 0)

    def _requested(self) -> bool:
        """Whether any pod requests anything."""
        row = self._cluster.row_of.get(self._resource)
        return row is not None and bool(self._cluster.requested[row].any())

    def _share(self, pod: Pod, end: float | None) -> int:
        """The part of a pod's request that an average with this end covers."""
        request = self.request(pod)
        if not request or pod.node_name is None:
            return 0
        if self._since is None or pod.uid not in self._since:
            # It came after the measurement was taken in.
            return 0
        since = self._since[pod.uid]
        end = self._at if end is None else end
        if since is None or end is None:
            return request
        there = end - since
        if there < 0:
            return 0
        return request if there >= self._window else math.floor(request * there / self._window)
