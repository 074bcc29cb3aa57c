"""Pods whose node closeby chooses while another scheduler binds them (``--mode gate``): which they are, and
which of them have their node and are not bound yet.

Such a pod is created with our scheduling gate. Once its node is chosen, one write adds the node to its
required node affinity, names it in an annotation, and removes the gate. From then on the pod can go nowhere
else, and the scheduler that it names binds it. The annotation is no proof, as the pod's author may write it
too: a pod that has it, and that this process did not place, waits and can go where its affinity lets it. What
an earlier process may have placed comes before all others, as it may be bound at any moment. Its rank, which
stands in its label and can't be taken back, keeps its gang from giving that rank twice, and decides no more.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from closeby.kube.client.errors import decoded
from closeby.kube.state.ownership import OurPods, not_yet_members, scheduler_of
from closeby.kube.watch.changes import Change, Deleted, Upserted
from closeby.kube.watch.resources import PODS, Resource
from closeby.objects.bounds import line, whole_number
from closeby.objects.labels import RANK
from closeby.objects.pods import Pod, PodSpec, Requirement, gang_key
from closeby.reading.decoding.keys import PLACED_ON, PLACEMENT_GATE
from closeby.reading.dialects.grouping import is_gated

#: Seconds after which a scheduler that says nothing about a pod is said to be silent.
SILENT_AFTER: Final = 60.0
#: Specs without the gate that are kept, so that equal pods share one.
_SPECS: Final = 4096


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""


class _Status(Struct, frozen=True):
    conditions: tuple[_Condition, ...] | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Seen(Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


_read: Final = msgspec.json.Decoder(_Seen).decode


class UnboundPod(Struct, frozen=True):
    """A pod that has its node and is not bound."""

    pod: Pod
    node: str
    #: Since when (seconds of the caller's clock).
    since: float
    #: Why its scheduler can't bind it, in that scheduler's words; empty as long as it did not say so.
    why: str = ""

    @property
    def sentence(self) -> str:
        """What is wrong; empty when nothing is."""
        if not self.why:
            return ""
        return f"{scheduler_of(self.pod)} can't bind {self.pod.key} to {self.node}: {self.why}"


class GatedPods(OurPods):
    """The pods of one scheduler in gate mode; of those that were placed it is the only memory."""

    def __init__(self) -> None:
        super().__init__("")
        #: uid -> node: written by this process, or being written.
        self._sent: dict[str, str] = {}
        #: By uid, and their uids by gang.
        self._unbound: dict[str, UnboundPod] = {}
        self._gangs: dict[str, set[str]] = {}
        #: By uid, why pods can't be bound of which it is not known yet that they have their node.
        self._early: dict[str, str] = {}
        self._specs: dict[PodSpec, PodSpec] = {}
        #: Whether an earlier process, or another replica, may have placed the pods that come to be known.
        self._taking_over = True

    # Whose a pod is, and how the engine knows it

    def wait(self, pod: Pod) -> bool:
        return is_gated(pod)

    def own(self, pod: Pod) -> bool:
        # Of the pods that wait the engine knows ours alone, and without their gate.
        return pod.node_name is None or is_gated(pod)

    def for_engine(self, pod: Pod) -> Pod:
        """Without our gate; without what we added to its affinity, if it has that node or was sent there.

        So the engine sees no difference between the pod that it decided about and the one that was placed.
        """
        spec = pod.spec
        if PLACEMENT_GATE in spec.scheduling_gates:
            left = tuple(gate for gate in spec.scheduling_gates if gate != PLACEMENT_GATE)
            return replace(pod, spec=self._shared(replace(spec, scheduling_gates=left)))
        node = pod.annotations.get(PLACED_ON)
        if node is None:
            return pod
        without = _without(spec, node)
        if without is spec:
            return pod
        rank = whole_number(pod.labels.get(RANK, "")) if pod.node_name in (None, node) else None
        if node == (pod.node_name or self._sent.get(pod.uid)):
            return replace(pod, spec=self._shared(without), labelled_rank=rank)
        return replace(pod, begun=self._taking_over and pod.node_name is None, labelled_rank=rank)

    def no_members(self, count: int) -> str:
        return not_yet_members(
            count,
            f"without the gate {PLACEMENT_GATE}",
            "add the gate to spec.schedulingGates in their template",
        )

    def took_over(self) -> None:
        """This process places pods from now on, and no other one."""
        self._taking_over = False

    def _shared(self, spec: PodSpec) -> PodSpec:
        if len(self._specs) > _SPECS:
            self._specs.clear()
        return self._specs.setdefault(spec, spec)

    # What is written

    def sending(self, uid: str, node: str) -> None:
        """The pod's node is about to be written."""
        self._sent[uid] = node

    def not_sent(self, uid: str) -> None:
        """That certainly had no effect."""
        if uid not in self._unbound:
            self._sent.pop(uid, None)
            self._early.pop(uid, None)

    def placed(self, pod: Pod, node: str, now: float) -> UnboundPod:
        """The pod has its node and no gate of ours any more; its scheduler may have been heard before."""
        self._sent[pod.uid] = node
        if pod.group is not None:
            self._gangs.setdefault(gang_key(pod), set()).add(pod.uid)
        return self._put(UnboundPod(pod, node, now, self._early.pop(pod.uid, "")))

    # What happens

    def take(self, changes: Iterable[tuple[Resource, Change]]) -> list[UnboundPod]:
        """What the watches brought; returns the pods that are bound or gone now, or can't be bound."""
        if not self._sent:
            return []
        found: list[UnboundPod] = []
        for resource, change in changes:
            if resource != PODS or not isinstance(change, Upserted | Deleted):
                continue
            uid = change.uid
            before = self._unbound.get(uid)
            if isinstance(change, Deleted):
                self._sent.pop(uid, None)
                self._early.pop(uid, None)
            if before is not None:
                found += self._news_of(before, change)
            elif isinstance(change, Upserted) and uid in self._sent and (why := _why(change)):
                self._early[uid] = why
        return found

    def silent(self, now: float) -> list[UnboundPod]:
        """The pods about which their scheduler has said nothing for long; each is returned once."""
        due = [one for one in self._unbound.values() if not one.why and now > one.since + SILENT_AFTER]
        why = f"it has said nothing about the pod for {SILENT_AFTER:g} s; is it running?"
        return [self._put(replace(one, why=why)) for one in due]

    def _news_of(self, before: UnboundPod, change: Upserted | Deleted) -> list[UnboundPod]:
        why = None if isinstance(change, Deleted) else _why(change)
        if why is None:
            return [self._over(before)]
        return [self._put(replace(before, why=why))] if why and why != before.why else []

    def _put(self, one: UnboundPod) -> UnboundPod:
        self._unbound[one.pod.uid] = one
        return one

    def _over(self, one: UnboundPod) -> UnboundPod:
        pod = one.pod
        del self._unbound[pod.uid]
        self._sent.pop(pod.uid, None)
        if pod.group is not None:
            members = self._gangs[gang_key(pod)]
            members.discard(pod.uid)
            if not members:
                del self._gangs[gang_key(pod)]
        return replace(one, why="")

    # Questions

    def of_gang(self, key: str) -> frozenset[str]:
        """uids of the members that have their node and are not bound."""
        return frozenset(self._gangs.get(key, ()))

    def not_bound(self, key: str) -> tuple[str, ...]:
        """Why members of a gang can't be bound, in the order of their names."""
        members = sorted(
            (self._unbound[uid] for uid in self._gangs.get(key, ())), key=lambda one: one.pod.key
        )
        return tuple(one.sentence for one in members if one.why)


def _without(spec: PodSpec, node: str) -> PodSpec:
    """The spec without what was added to its affinity as it got its node."""
    terms = spec.required_affinity
    if terms is None:
        return spec
    pin = Requirement("metadata.name", "In", (node,))
    left = tuple(replace(term, fields=tuple(one for one in term.fields if one != pin)) for term in terms)
    if left == terms:
        return spec
    alone = len(left) == 1 and not left[0].expressions and not left[0].fields
    return replace(spec, required_affinity=None if alone else left)


def _why(change: Upserted) -> str | None:
    """Why another scheduler can't bind the pod; empty when it did not say so, None when it is bound."""
    try:
        seen = decoded(_read, change.raw)
    except msgspec.DecodeError:
        return ""
    return None if seen.spec.node_name else _refusal(seen.status.conditions or ())


def _refusal(conditions: Iterable[_Condition]) -> str:
    """Why another scheduler can't bind the pod; empty when it did not say so.

    What stood there before may be ours: it begins with a token, in which there is no blank.
    """
    for one in conditions:
        if one.type == "PodScheduled" and one.status == "False":
            ours = " " not in one.message.partition(": ")[0]
            gated = one.message.startswith("Scheduling is blocked")
            return "" if ours or gated else line(one.message)
    return ""
