"""Services and workloads, whose selectors say which pods belong together: default spread goes by them.

The rules are upstream's (``pkg/scheduler/framework/plugins/helper/spread.go``, ``DefaultSelector``).
"""

from collections.abc import Mapping
from typing import Final

from closeby.objects.pods import Pod
from closeby.objects.selectors import LabelRequirement, LabelSelector, PodOwner

#: Workloads whose own selector counts for the pods that they own.
_SELECTING: Final = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet", "Deployment"})


def selecting_owner(pod: Pod) -> str:
    """``Kind/name`` of the workload that owns a pod, if its selector counts; empty for none."""
    return pod.owner if pod.owner.partition("/")[0] in _SELECTING else ""


class PodOwners:
    """All Services and workloads that select pods, by namespace."""

    def __init__(self) -> None:
        #: Namespace -> ``Kind/name`` -> what it selects. A namespace stays, though nothing of it is left.
        self.by_namespace: dict[str, dict[str, PodOwner]] = {}

    def put(self, key: str, owner: PodOwner | None) -> bool:
        """Note one as it is now (None: gone), by ``Kind/namespace/name``; whether it selects other pods."""
        kind, namespace, name = key.split("/", 2)
        owners = self.by_namespace.setdefault(namespace, {})
        short = f"{kind}/{name}"
        before = owners.get(short)
        if owner is None:
            owners.pop(short, None)
        else:
            owners[short] = owner
        return (before and before.selector) != (owner and owner.selector)

    def default_selector(self, pod: Pod, labels: Mapping[str, str]) -> LabelSelector:
        """By which default spread goes: the pod's Services and the workload that owns it; empty for none.

        ``labels`` are those of the pod that any selector names.
        """
        owners = self.by_namespace.get(pod.namespace)
        if not owners:
            return LabelSelector()
        merged: dict[str, str] = {}
        for owner in owners.values():
            if owner.kind == "Service" and owner.selector is not None and owner.selector.matches(labels):
                merged.update((one.key, one.values[0]) for one in owner.selector.requirements)
        own = owners.get(selecting_owner(pod))
        more = () if own is None or own.selector is None else own.selector.requirements
        if own is not None and own.kind == "ReplicationController":
            # Upstream merges its labels with those of the Services, of which it takes the place.
            merged.update((one.key, one.values[0]) for one in more)
            more = ()
        selector = LabelSelector(tuple(LabelRequirement(key, "In", (merged[key],)) for key in sorted(merged)))
        return selector.also(more)
