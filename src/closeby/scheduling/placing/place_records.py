"""Which places are asked for, by Workload, and which pods of these Workloads have a node.

A pod belongs to a Workload by its annotation and its namespace, and to a pod set by its label. Stand-ins are
the members of the gang by which the places are asked for.
"""

from collections.abc import Iterator

from closeby.objects.groups import PodGroup
from closeby.objects.places import POD_SET, WORKLOAD, AskedPlaces, PlaceSet, is_for_places
from closeby.objects.pods import Pod
from closeby.scheduling.intake.scheduling_state import SchedulingState


class PlaceRecords:
    """What is asked for, and which pods came."""

    def __init__(self, state: SchedulingState) -> None:
        self._state = state
        #: What is asked for, by the key of the gang.
        self._asked: dict[str, PodGroup] = {}
        #: uid of a Workload -> that key.
        self._key_of: dict[str, str] = {}
        #: uid of a Workload -> its pods that have a node, by uid; also where no places are asked for.
        self._there: dict[str, dict[str, Pod]] = {}

    def __bool__(self) -> bool:
        """Whether any places are asked for."""
        return bool(self._asked)

    def __iter__(self) -> Iterator[str]:
        """The gangs by which they are."""
        return iter(self._asked)

    def __contains__(self, key: str) -> bool:
        """Whether places are asked for by this gang."""
        return key in self._asked

    def group(self, key: str) -> PodGroup | None:
        """What is asked for by a gang; None where nothing is."""
        return self._asked.get(key)

    def ask(self, group: PodGroup, asked: AskedPlaces) -> PodGroup | None:
        """Places are asked for; returns what was by this gang before."""
        before = self._asked.get(group.key)
        self._asked[group.key] = group
        self._key_of[asked.uid] = group.key
        return before

    def withdraw(self, key: str) -> PodGroup | None:
        """Nothing is asked for any more; returns what was."""
        group = self._asked.pop(key, None)
        if group is not None and group.places is not None:
            self._key_of.pop(group.places.uid, None)
        return group

    def place_of(self, pod: Pod) -> tuple[str | None, str]:
        """The gang that stands in for a pod, and its pod set."""
        uid = pod.annotations.get(WORKLOAD)
        key = None if uid is None else self._key_of.get(uid)
        asked: AskedPlaces | None = None if key is None else self._asked[key].places
        if asked is None or asked.namespace != pod.namespace:
            return None, ""
        if pod.group is not None and is_for_places(pod.group):
            return None, ""
        name = pod.labels.get(POD_SET, "")
        if not name and len(asked.sets) == 1:
            name = asked.sets[0].name
        return key, name

    def index_of(self, key: str, name: str, pod: Pod) -> int | None:
        """The index of a pod among those of its pod set."""
        asked = self._asked[key].places
        one = next((each for each in asked.sets if each.name == name), None) if asked is not None else None
        return pod.index if one is None else one.index_of(pod)

    def standing(self, key: str, name: str | None = None) -> list[Pod]:
        """The stand-ins of a gang, or of one of its pod sets."""
        members = self._state.members.get(key)
        if members is None:
            return []
        own = (*members.placed.values(), *members.waiting.values())
        return [one for one in own if name is None or one.labels.get(POD_SET) == name]

    def wanted(self, key: str, one: PlaceSet) -> int:
        """How many pods of a set are still to come."""
        asked = self._asked[key].places
        came = () if asked is None else self.came(asked)
        return max(one.count - sum(self.place_of(pod)[1] == one.name for pod in came), 0)

    def runs(self, key: str) -> bool:
        """Whether a pod of the Workload has a node, and is not ending."""
        asked = self._asked[key].places
        return asked is not None and bool(self.came(asked))

    def came(self, asked: AskedPlaces) -> list[Pod]:
        """The pods that have a node, and are not ending."""
        return [pod for pod in self.with_nodes(asked) if not pod.terminating]

    def with_nodes(self, asked: AskedPlaces) -> list[Pod]:
        """The pods that have a node."""
        there = self._there.get(asked.uid)
        return [] if there is None else [pod for pod in there.values() if pod.namespace == asked.namespace]

    def note(self, pod: Pod) -> bool:
        """A pod has a node; whether it is one of a Workload."""
        uid = pod.annotations.get(WORKLOAD)
        if uid is None or (pod.group is not None and is_for_places(pod.group)):
            return False
        self._there.setdefault(uid, {})[pod.uid] = pod
        return True

    def leave(self, pod: Pod) -> bool:
        """A pod has its node no more; whether it was one of a Workload."""
        uid = pod.annotations.get(WORKLOAD, "")
        there = self._there.get(uid)
        if there is None or there.pop(pod.uid, None) is None:
            return False
        if not there:
            del self._there[uid]
        return True

    def knows(self, pod: Pod) -> bool:
        """Whether it is known that this pod of a Workload has a node."""
        return pod.uid in self._there.get(pod.annotations.get(WORKLOAD, ""), ())
