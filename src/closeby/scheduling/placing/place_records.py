"""Which places are asked for, by Workload, which are held, and which pods of these Workloads have a node.

``places_for_pods.py`` says which pod takes which of them. A pod belongs to a Workload by its annotation and
its namespace, and to a pod set by its label. Placeholder pods are the members of the gang by which the places
are asked for; those of one pod set have a number each. A Workload has up to 100,000 pods, and each that comes
or goes asks how many are there: so they are counted as they come.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from closeby.objects.bounds import whole_number
from closeby.objects.groups import (
    POD_SET,
    WORKLOAD,
    AskedPlaces,
    Layer,
    PlaceSet,
    PodGroup,
    Remainder,
    is_for_places,
)
from closeby.objects.pods import Pod, gang_key
from closeby.scheduling.intake.scheduling_state import SchedulingState


class PlaceRecords:
    """What is asked for, and which pods came."""

    def __init__(self, state: SchedulingState) -> None:
        self._state = state
        #: What is asked for, by the key of the gang.
        self._asked: dict[str, PodGroup] = {}
        #: uid of a Workload -> that key.
        self._key_of: dict[str, str] = {}
        #: uid of a Workload -> its pods that have a node; also where no places are asked for.
        self._there: dict[str, _Arrivals] = {}
        #: By gang and pod set the numbers of the placeholders, ascending.
        self._numbers: dict[tuple[str, str], list[int]] = {}
        #: By gang: uid of a pod that is not bound yet -> whose place it took, and the node.
        self._on_the_way: dict[str, dict[str, tuple[Pod, str]]] = {}

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
        self._on_the_way.pop(key, None)
        if group is not None and group.places is not None:
            self._key_of.pop(group.places.uid, None)
        return group

    def place_of(self, pod: Pod) -> tuple[str | None, str]:
        """The gang of placeholders for a pod, and its pod set."""
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

    # Placeholders

    def placeholders(self, key: str) -> list[Pod]:
        """The placeholder pods of a gang."""
        members = self._state.members.get(key)
        return [] if members is None else [*members.placed.values(), *members.waiting.values()]

    def numbers(self, key: str, name: str) -> Sequence[int]:
        """The numbers of those for a pod set, ascending; not to be changed."""
        return self._numbers.get((key, name), ())

    def has(self, key: str, name: str, number: int) -> bool:
        """Whether there is one of this number for a pod set."""
        own = self.numbers(key, name)
        at = bisect_left(own, number)
        return at < len(own) and own[at] == number

    def free_number(self, key: str, name: str) -> int:
        """The lowest number that none for a pod set has."""
        own = self.numbers(key, name)
        return bisect_left(range(len(own)), True, key=lambda at: own[at] != at)

    def uid_of(self, key: str, name: str, number: int) -> str:
        """The uid of the one of this number for a pod set."""
        asked = self._asked[key].places
        assert asked is not None, f"{key} asks for no places"
        return f"{asked.uid}/{name}/{number}"

    def numbers_in(self, plan: Mapping[str, str], key: str, one: PlaceSet) -> list[int]:
        """The numbers of those for a pod set that a plan has, ascending."""
        before = self.uid_of(key, one.name, 0).removesuffix("0")
        found = (uid.removeprefix(before) for uid in plan if uid.startswith(before))
        return sorted(number for text in found if (number := whole_number(text)) is not None)

    def uids(self, key: str, name: str) -> Iterator[str]:
        """The uids of those for a pod set, by ascending number."""
        return (self.uid_of(key, name, number) for number in self.numbers(key, name))

    def add(self, pod: Pod) -> None:
        """A placeholder comes, or changes."""
        of = set_of(pod)
        if of is not None and pod.index is not None and not self.has(*of, pod.index):
            insort(self._numbers.setdefault(of, []), pod.index)

    def remove(self, pod: Pod) -> None:
        """A placeholder goes."""
        of = set_of(pod)
        if of is None or pod.index is None or not self.has(*of, pod.index):
            return
        own = self._numbers[of]
        del own[bisect_left(own, pod.index)]
        if not own:
            del self._numbers[of]

    # Pods that came

    def wanted(self, key: str, one: PlaceSet) -> int:
        """How many pods of a set are still to come."""
        asked, there = self._arrivals(key)
        if asked is None or there is None:
            return one.count
        came = there.staying[asked.namespace, one.name]
        if one.name and len(asked.sets) == 1:
            came += there.staying[asked.namespace, ""]  # ``place_of``
        return max(one.count - came, 0)

    def runs(self, key: str) -> bool:
        """Whether a pod of the Workload has a node, and is not ending."""
        asked, there = self._arrivals(key)
        return asked is not None and there is not None and there.staying_in[asked.namespace] > 0

    def started(self, key: str) -> bool:
        """Whether a pod of the Workload has a node, be it one that is ending."""
        asked, there = self._arrivals(key)
        if asked is None or there is None:
            return False
        return any(pod.namespace == asked.namespace for pod in there.pods.values())

    def came(self, asked: AskedPlaces, of: PlaceSet | None = None) -> list[Pod]:
        """The pods that have a node, and are not ending; of all sets, or of one."""
        there = self._there.get(asked.uid)
        pods = () if there is None else there.pods.values()
        found = [pod for pod in pods if pod.namespace == asked.namespace and not pod.terminating]
        return found if of is None else [pod for pod in found if self.place_of(pod)[1] == of.name]

    def occupants(self, asked: AskedPlaces, of: PlaceSet) -> list[Pod]:
        """The pods of a set that have a node, those that are ending among them."""
        there = self._there.get(asked.uid)
        pods = () if there is None else there.pods.values()
        return [pod for pod in pods if pod.namespace == asked.namespace and self.place_of(pod)[1] == of.name]

    def numbers_that_came(self, asked: AskedPlaces, one: PlaceSet) -> set[int]:
        """The numbers of a set's pods that have a node, and are not ending."""
        return {number for pod in self.came(asked, one) if (number := one.index_of(pod)) is not None}

    def set_out(self, pod: str, place: Pod, node: str) -> None:
        """A pod (by uid) took a place; it is to be bound to its node."""
        key, _ = set_of(place) or ("", "")
        if key in self._asked:
            self._on_the_way.setdefault(key, {})[pod] = (place, node)

    def arrived(self, pod: Pod) -> bool:
        """A pod is bound, or gone; whether it took a place and was on its way there."""
        key, _ = self.place_of(pod)
        pods = None if key is None else self._on_the_way.get(key)
        if key is None or pods is None or pods.pop(pod.uid, None) is None:
            return False
        if not pods:
            del self._on_the_way[key]
        return True

    def on_the_way(self, key: str) -> list[tuple[str, Pod, str]]:
        """The uid of each pod of a gang that took a place and is not bound yet, that place, and the node."""
        return [(uid, *one) for uid, one in self._on_the_way.get(key, {}).items()]

    def note(self, pod: Pod) -> bool:
        """A pod has a node; whether it is one of a Workload."""
        uid = pod.annotations.get(WORKLOAD)
        if uid is None or (pod.group is not None and is_for_places(pod.group)):
            return False
        there = self._there.get(uid)
        if there is None:
            there = self._there[uid] = _Arrivals()
        there.put(pod)
        return True

    def leave(self, pod: Pod) -> bool:
        """A pod has its node no more; whether it was one of a Workload."""
        uid = pod.annotations.get(WORKLOAD, "")
        there = self._there.get(uid)
        if there is None or not there.remove(pod.uid):
            return False
        self.arrived(pod)
        if not there.pods:
            del self._there[uid]
        return True

    def knows(self, pod: Pod) -> bool:
        """Whether it is known that this pod of a Workload has a node."""
        there = self._there.get(pod.annotations.get(WORKLOAD, ""))
        return there is not None and pod.uid in there.pods

    def _arrivals(self, key: str) -> "tuple[AskedPlaces | None, _Arrivals | None]":
        """What a gang asks for, and the pods of the Workload that have a node; None where none is there."""
        group = self._asked.get(key)
        asked = None if group is None else group.places
        return asked, None if asked is None else self._there.get(asked.uid)


def set_of(pod: Pod) -> tuple[str, str] | None:
    """The gang and the pod set of a placeholder; None for any other pod."""
    if pod.group is None or not is_for_places(pod.group):
        return None
    return gang_key(pod), pod.labels.get(POD_SET, "")


def asks_for_others(before: PodGroup, group: PodGroup) -> bool:
    """Whether other pods are to come, or elsewhere, and not only more or fewer of them."""

    def kind(one: PodGroup) -> PodGroup:
        asked = one.places
        sets = () if asked is None else tuple(replace(each, count=0) for each in asked.sets)
        subgroups = tuple(replace(each, min_member=0, layers=_for_all(each.layers)) for each in one.subgroups)
        return replace(
            one,
            min_member=0,
            subgroups=subgroups,
            layers=_for_all(one.layers),
            plan={},
            ranks={},
            places=None if asked is None else replace(asked, sets=sets),
        )

    return kind(before) != kind(group)


def _for_all(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Layers however many pods are to come: of fewer the last segment may be smaller."""
    return tuple(replace(one, remainder=Remainder.ALLOW, min_segments=None) for one in layers)


class _Arrivals:
    """The pods of one Workload that have a node, and how many of them are not ending."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        #: By namespace and pod set, as the pods are labelled.
        self.staying: Counter[tuple[str, str]] = Counter()
        #: By namespace.
        self.staying_in: Counter[str] = Counter()

    def put(self, pod: Pod) -> None:
        """A pod has a node, or is another than before."""
        before = self.pods.get(pod.uid)
        if before is not None:
            self._count(before, -1)
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def remove(self, uid: str) -> bool:
        """A pod has none any more; whether it had one."""
        before = self.pods.pop(uid, None)
        if before is not None:
            self._count(before, -1)
        return before is not None

    def _count(self, pod: Pod, more: int) -> None:
        if not pod.terminating:
            self.staying[pod.namespace, pod.labels.get(POD_SET, "")] += more
            self.staying_in[pod.namespace] += more
