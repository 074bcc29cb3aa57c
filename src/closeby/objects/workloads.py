"""A workload object (Job, Deployment, JobSet, ...): the pods its controller would make, and its gang."""

from collections.abc import Mapping

from msgspec import Struct

from closeby.objects.pods import Pod


class PodSet(Struct, frozen=True, kw_only=True):
    """``replicas`` equal pods of one template; ``template`` carries a placeholder name."""

    name: str
    replicas: int
    template: Pod
    #: Names the pods get, in order, as the controller would name them (deterministic where it is random).
    pod_names: tuple[str, ...] = ()
    #: True when the pods carry an index (Indexed Job, StatefulSet, JobSet).
    indexed: bool = False
    template_annotations: Mapping[str, str] = {}
    template_labels: Mapping[str, str] = {}


class Workload(Struct, frozen=True, kw_only=True):
    """The top owner of some pods."""

    kind: str
    namespace: str
    name: str
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    created: float | None = None
    pod_sets: tuple[PodSet, ...] = ()
    suspended: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"
