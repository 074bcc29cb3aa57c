"""Pods with claims that wait: nothing is decided about them before all is known about volumes.

Only such pods need that, so the kinds about volumes are followed once the first one is seen. A kind that
closeby may not see keeps them waiting, until the right is granted. No input or output here.
"""

from collections.abc import Callable, Iterator

from closeby.kube.watch.changes import Change, Troubled
from closeby.kube.watch.resources import Resource
from closeby.objects.bounds import some
from closeby.objects.pods import Pod


class VolumesOfPods:
    """The waiting pods with claims, and why they may not be decided about yet."""

    def __init__(
        self, follow: Callable[[], None] = lambda: None, listed: Callable[[], bool] = lambda: True
    ) -> None:
        """``follow`` begins to follow the kinds about volumes; ``listed``: all of them are listed."""
        self._follow = follow
        self._listed = listed
        #: uid -> pod.
        self._pods: dict[str, Pod] = {}
        #: Kinds that closeby may not see.
        self._hidden: dict[Resource, None] = {}
        #: What they wait for; empty when they may be decided about.
        self._lack = "closeby has not listed the claims and volumes of the cluster yet"
        self._known = False

    def lack(self, pod: Pod) -> str:
        """What a pod waits for, in words; empty when it may be decided about."""
        return self._lack if pod.spec.claims else ""

    @property
    def hidden(self) -> tuple[str, ...]:
        """The kinds that closeby may not see, as a role names them."""
        return tuple(f"{one.plural}.{one.group}" if one.group else one.plural for one in self._hidden)

    def pod_seen(self, pod: Pod) -> None:
        """A pod that looks for a node was seen, first or again."""
        if not pod.spec.claims:
            return
        self._pods[pod.uid] = pod
        if not self._known:
            self._follow()

    def forget(self, uid: str) -> None:
        """A pod is gone, or looks for a node no more."""
        self._pods.pop(uid, None)

    def rights(self, resource: Resource, change: Change) -> None:
        """What came of a list or a watch of a kind about volumes."""
        if isinstance(change, Troubled):
            self._hidden[resource] = None
        else:
            self._hidden.pop(resource, None)

    def released(self) -> Iterator[Pod]:
        """The pods that wait for something else than at the last call, or for nothing any more."""
        self._known = self._known or (bool(self._pods) and self._listed())
        if not self._known:
            return
        lack = f"closeby may not list and watch {some(self.hidden)}" if self._hidden else ""
        if lack != self._lack:
            self._lack = lack
            yield from list(self._pods.values())
