"""PodGroups that ask for places before the pods are there, and in which namespace they count.

What they ask for is held against all other pods, in every namespace. So they are believed only in the
namespace in which closeby itself runs: no tenant may write there.
"""

from msgspec.structs import replace

from closeby.kube.state.decoding import held_for_its_gang
from closeby.kube.state.ownership import OurPods
from closeby.objects.groups import WORKLOAD, PodGroup, is_for_places
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.events import PlacesAsked, PlacesWithdrawn


class PlacesOfWorkloads:
    """What is asked for now, and what of that the engine has not heard."""

    def __init__(self, ours: OurPods, own_namespace: str | None) -> None:
        """Only places for pods of this scheduler are its business."""
        self._ours = ours
        self._own_namespace = own_namespace
        #: Key of an object -> what it asks for.
        self._asked: dict[str, PodGroup] = {}
        self._news: list[PlacesAsked | PlacesWithdrawn] = []
        #: uid of a template as what it depends on is awaited -> key of the gang of its places.
        self._templates: dict[str, str] = {}
        #: uid of a Workload -> its pods that wait, by uid, as they are in the cluster; and uid of each pod ->
        #: the Workload.
        self._waiting: dict[str, dict[str, Pod]] = {}
        self._workload_of: dict[str, str] = {}

    def held(self, pod: Pod) -> Pod:
        """A pod that waits; without a gang it may go where its Workload asked for places, if it did."""
        uid = pod.annotations.get(WORKLOAD)
        if self._workload_of.get(pod.uid) != uid:
            self.forget(pod.uid)
        if uid is None:
            return held_for_its_gang(pod)
        self._waiting.setdefault(uid, {})[pod.uid] = pod
        self._workload_of[pod.uid] = uid
        places = (one.places for one in self._asked.values())
        known = any(one is not None and (one.uid, one.namespace) == (uid, pod.namespace) for one in places)
        return pod if known else held_for_its_gang(pod)

    def forget(self, uid: str) -> None:
        """A pod waits no more; unknown ones are fine."""
        workload = self._workload_of.pop(uid, None)
        if workload is not None:
            pods = self._waiting[workload]
            del pods[uid]
            if not pods:
                del self._waiting[workload]

    def waiting_for(self, group: PodGroup) -> tuple[Pod, ...]:
        """The pods that wait and may take these places."""
        return () if group.places is None else tuple(self._waiting.get(group.places.uid, {}).values())

    def templates(self, group: PodGroup) -> tuple[Pod, ...]:
        """The pods to come, one of each pod set, each with a uid of its own."""
        sets = () if group.places is None else group.places.sets
        found = tuple(replace(one.template, uid=f"{group.key}/{one.name}") for one in sets)
        self._templates.update({one.uid: group.key for one in found})
        return found

    def forget_templates(self, key: str) -> tuple[str, ...]:
        """The uids of the templates of a gang, about which nothing is asked any more."""
        gone = tuple(uid for uid, of in self._templates.items() if of == key)
        for uid in gone:
            del self._templates[uid]
        return gone

    def ask_again(self, template: Pod) -> bool:
        """Asks again for the places of a template's gang; False where this pod is no template."""
        key = self._templates.get(template.uid)
        group = next((one for one in self._asked.values() if one.key == key), None)
        if key is None or group is None:
            return key is not None
        if PlacesAsked(group) not in self._news:
            self._news += [PlacesWithdrawn(key), PlacesAsked(group)]
        return True

    def put(self, key: str, group: PodGroup) -> tuple[Condition, ...]:
        """The PodGroup of this key asks for places; returns what is wrong with it."""
        asked = group.places
        if asked is None or not all(self._ours.wait(one.template) for one in asked.sets):
            self.drop(key)
            return ()
        if key.partition("/")[0] != self._own_namespace:
            self.drop(key)
            where = "that in which closeby runs" if self._own_namespace is None else self._own_namespace
            return (
                Condition(
                    reason=Reason.INVALID_SPEC,
                    object=f"PodGroup/{key}",
                    field="spec.placesFor",
                    message=f"places for pods to come are held for PodGroups of the namespace {where} alone",
                    remedy="delete it",
                ),
            )
        if self._asked.get(key) != group:
            before = self._asked.get(key)
            if before is not None and before.key != group.key:
                self._news.append(PlacesWithdrawn(before.key))
            self._asked[key] = group
            self._news.append(PlacesAsked(group))
        return group.conditions

    def drop(self, key: str) -> None:
        """It asks for nothing any more; unknown keys are fine."""
        before = self._asked.pop(key, None)
        if before is not None:
            self._news.append(PlacesWithdrawn(before.key))

    def news(self) -> list[PlacesAsked | PlacesWithdrawn]:
        """What happened since the last call."""
        taken, self._news = self._news, []
        return taken


def not_standing_in(pod: Pod) -> Pod:
    """A pod of a cluster, which is never a member of a gang of placeholders."""
    return pod if pod.group is None or not is_for_places(pod.group) else replace(pod, group=None)
