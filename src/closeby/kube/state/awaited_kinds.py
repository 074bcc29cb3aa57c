"""Pods that wait: nothing is decided about them before all is known of the kinds that they depend on.

Only pods with claims depend on the kinds about volumes, and only pods with default spread on the workloads
that select pods. So such kinds are followed once the first pod of ours needs them. Where pods need a kind
that closeby may not see, they wait until the right is granted. No input or output here.
"""

from collections.abc import Callable, Collection, Iterator

from closeby.kube.watch.changes import Change, Troubled
from closeby.kube.watch.resources import Resource
from closeby.objects.bounds import some
from closeby.objects.pods import Pod


def no_pod(pod: Pod) -> bool:
    """For what no pod depends on."""
    return False


def uses_volumes(pod: Pod) -> bool:
    """Whether a pod depends on volumes."""
    return bool(pod.spec.claims or pod.spec.attached_disks)


class AwaitedKinds:
    """The waiting pods that depend on some kinds, and why they may not be decided about yet."""

    def __init__(
        self,
        kinds: Collection[str],
        what: str,
        concerns: Callable[[Pod], bool],
        follow: Callable[[], None],
        listed: Callable[[], bool],
    ) -> None:
        """``what``: these kinds in words; ``concerns``: whether a pod depends on them.

        ``follow`` begins to follow the kinds; ``listed``: all of them are listed.
        """
        self.kinds = kinds
        self.concerns = concerns
        #: Whether pods wait where closeby may not see one of the kinds.
        self.needed = True
        self._follow = follow
        self._listed = listed
        #: uid -> pod.
        self._pods: dict[str, Pod] = {}
        #: Kinds that closeby may not see.
        self._hidden: dict[Resource, None] = {}
        #: What they wait for; empty when they may be decided about.
        self._lack = f"closeby has not listed {what} of the cluster yet"
        self._known = False

    def lack(self, pod: Pod) -> str:
        """What a pod waits for, in words; empty when it may be decided about."""
        return self._lack if self._lack and self.concerns(pod) else ""

    @property
    def hidden(self) -> tuple[str, ...]:
        """The kinds that closeby may not see, as a role names them."""
        return tuple(f"{one.plural}.{one.group}" if one.group else one.plural for one in self._hidden)

    def pod_seen(self, pod: Pod) -> None:
        """A pod that looks for a node was seen, first or again."""
        if not self.concerns(pod):
            self.forget(pod.uid)
            return
        self._pods[pod.uid] = pod
        if not self._known:
            self._follow()

    def forget(self, uid: str) -> None:
        """A pod is gone, or looks for a node no more."""
        self._pods.pop(uid, None)

    def rights(self, resource: Resource, change: Change) -> None:
        """What came of a list or a watch of a kind."""
        if resource.kind not in self.kinds:
            return
        if isinstance(change, Troubled):
            self._hidden[resource] = None
        else:
            self._hidden.pop(resource, None)

    def released(self) -> Iterator[Pod]:
        """The pods that wait for something else than at the last call, or for nothing any more."""
        self._known = self._known or (bool(self._pods) and self._listed())
        if not self._known:
            return
        hidden = self._hidden and self.needed
        lack = f"closeby may not list and watch {some(self.hidden)}" if hidden else ""
        if lack != self._lack:
            self._lack = lack
            yield from list(self._pods.values())
