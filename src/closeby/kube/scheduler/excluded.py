"""Namespaces that the operator excludes: their pods wait, whatever scheduler they name.

The chart's admission policy refuses every write to a pod there. So nothing is tried, and users see an
Event and by the condition of the PodGroup, not by a condition of the pod.
"""

from collections.abc import Collection

import msgspec

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import Handle, NoArguments, PreEnqueue
from closeby.scheduling.profile import Profile


class ExcludedNamespaces(PreEnqueue):
    """Keeps the pods of some namespaces out of the queue."""

    name = "ExcludedNamespaces"

    def __init__(self, namespaces: Collection[str], handle: Handle) -> None:
        super().__init__(NoArguments(), handle)
        self._namespaces = frozenset(namespaces)

    def pre_enqueue(self, pod: Pod) -> Condition | None:
        if pod.namespace not in self._namespaces:
            return None
        return Condition(
            reason=Reason.NAMESPACE_EXCLUDED,
            object=f"Pod/{pod.key}",
            field="metadata.namespace",
            message=f"the operator excludes the namespace {pod.namespace}",
            remedy="name another scheduler in spec.schedulerName, or create the pod in another namespace",
            blocking=True,
        )


def excluding(profile: Profile, namespaces: Collection[str], handle: Handle) -> Profile:
    """The profile with these namespaces excluded; asked before all other plugins."""
    if not namespaces:
        return profile
    plugin = ExcludedNamespaces(namespaces, handle)
    return msgspec.structs.replace(
        profile, plugins=(plugin, *profile.plugins), pre_enqueue=(plugin, *profile.pre_enqueue)
    )
