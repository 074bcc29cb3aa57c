"""Places that are asked for before the pods are there: those of a Workload that Kueue gave its quota.

Such a gang is placed with pods that stand in for those to come. Each real pod takes the place of one of them.
"""

from typing import Final

from msgspec import Struct

from closeby.objects.pods import Pod

#: Annotation of the pods of a Workload: its uid. The admission check has Kueue write it into their template.
WORKLOAD: Final = "closeby.dev/workload"
#: Label of the pods of a Workload: which of its pod sets they belong to. Kueue writes it.
POD_SET: Final = "kueue.x-k8s.io/podset"
#: No object is called so: no pod can make itself a member of such a gang.
_PREFIX: Final = "workload:"
#: Of a uid: so many tell a Workload from an earlier one of its name.
_DIGITS: Final = 8
#: Digits of an index that a controller writes.
_LONGEST_NUMBER: Final = 9


class PlaceSet(Struct, frozen=True, kw_only=True):
    """``count`` places for equal pods; ``template`` is such a pod, but for its name."""

    name: str
    count: int
    template: Pod
    #: Label with the index of a pod; empty: that which its controller is known to write.
    index_label: str = ""
    #: Where the pods are those of several jobs of equal size: the label with the number of the job.
    group_label: str = ""
    group_size: int = 0
    #: Pods of the set in all, those that are done among them; 0: as many as places.
    size: int = 0

    def index_of(self, pod: Pod) -> int | None:
        """The index of a pod among those of the set; None where it has none."""
        index = pod.index
        if self.index_label in pod.labels:
            index = _number(pod.labels[self.index_label])
        if index is None or not self.group_label:
            return index
        group = _number(pod.labels.get(self.group_label, ""))
        return None if group is None else group * self.group_size + index


class AskedPlaces(Struct, frozen=True, kw_only=True):
    """What is asked for, and the Workload (by name and uid, in the namespace of its pods) it is for."""

    namespace: str
    workload: str
    uid: str
    sets: tuple[PlaceSet, ...]
    #: ``namespace/name`` of the PodGroup that asks.
    asker: str = ""

    @property
    def group(self) -> str:
        """What the gang of those that stand in is called, in the namespace of the pods."""
        return f"{_PREFIX}{self.workload}:{self.uid[:_DIGITS]}"

    def means(self, name: str) -> bool:
        """Whether a user may mean the Workload by a name, which may be that of its job.

        Kueue calls it after the kind and the name of the job, with some digits at the end. A namespace or a
        kind may stand before the name.
        """
        *before, last = name.split("/")
        if len(before) > 1 and before[-1] != self.namespace:
            return False
        of_job = self.workload.partition("-")[2].rpartition("-")[0]
        return bool(last) and last in (self.workload, of_job)

    @property
    def key(self) -> str:
        """``namespace/name`` of that gang."""
        return f"{self.namespace}/{self.group}"


def is_for_places(group: str) -> bool:
    """Whether a gang of this name is one of pods that stand in for others."""
    return group.startswith(_PREFIX)


def workload_of(group: str) -> str:
    """The name of the Workload for whose pods the members of such a gang stand in."""
    return group.removeprefix(_PREFIX).rpartition(":")[0]


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_NUMBER else None
