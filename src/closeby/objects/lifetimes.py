"""Which pods end, as far as the kinds of their owners tell."""

from typing import Final

from closeby.objects.pods import Pod

#: Owners that replace a pod on the same node at once; ``Node`` owns static pods.
_PINNED: Final = frozenset({"DaemonSet", "Node"})
#: Owners whose pods run until they are removed.
_LONG_RUNNING: Final = _PINNED | {"ReplicaSet", "ReplicationController", "StatefulSet", "Deployment"}


def is_pinned(pod: Pod) -> bool:
    """Whether another such pod takes its place on its node at once."""
    return _kind(pod) in _PINNED


def is_long_running(pod: Pod) -> bool:
    """Whether it runs for ever, so that nothing waits for its end; a gang's pods are no exception.

    What is being deleted goes, unless it comes back.
    """
    return _kind(pod) in (_PINNED if pod.terminating else _LONG_RUNNING)


def _kind(pod: Pod) -> str:
    return pod.owner.partition("/")[0]
