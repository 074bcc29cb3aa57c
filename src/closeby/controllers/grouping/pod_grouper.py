"""The pod-grouper: makes the PodGroups of workloads that are gangs, and lets their pods name them.

Every pod of our scheduler that has an owner is marked with whether it belongs to a gang: by the label
``closeby.dev/pod-group``, or by the annotation of that name with the value ``none``. Until then a scheduler
that was started with a pod-grouper beside it does not place the pod. The PodGroup comes first, the labels
second, so that a client that sees a member sees its gang.

A PodGroup belongs to its workload and is collected as garbage with it. It is kept true as the workload
changes; PodGroups of other authors are never touched.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from closeby.controllers.grouping.groups import Groups, Key
from closeby.controllers.grouping.objects import MANAGER, names_for, object_of
from closeby.controllers.grouping.owners import LOOKUP_WITHIN, Lineage, Owners, Ref
from closeby.controllers.grouping.plan import Plan, PlannedGang, plan_of
from closeby.controllers.grouping.pods import Pods, pod_ref
from closeby.controllers.grouping.writes import Writes
from closeby.controllers.running import News
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.state.decoding import Decoded
from closeby.kube.watch.changes import Deleted, Upserted
from closeby.kube.watch.resources import PODS, WATCHED, WORKLOADS, Watched
from closeby.kube.writing.events import Events
from closeby.kube.writing.work_queue import WorkQueue
from closeby.kube.writing.writer import Note, Reference, Writer
from closeby.objects.groups import GangTemplates, PodGroup, TopologyConstraint
from closeby.objects.pods import Pod
from closeby.objects.process import Reported, Say
from closeby.objects.topologies import ClusterQueue, LocalQueue, ResourceFlavor
from closeby.reading.dialects.grouping import undecided
from closeby.reading.dialects.kueue import Queues
from closeby.reading.dialects.upstream import WORKLOAD_VERSION

_QUEUES: Final = frozenset({"LocalQueue", "ClusterQueue", "ResourceFlavor"})
_KINDS: Final = _QUEUES | {"PodGroup"}
#: Seconds in which a workload's controller has counted a pod that ended.
_COUNTED: Final = 1.0
#: What the server says where there is no object of that uid, or another one of its name.
_NOT_THAT_ONE: Final = (404, 409)


class Grouping(Struct, frozen=True, kw_only=True):
    """How the pod-grouper works (times in seconds)."""

    #: Pods that name it in ``spec.schedulerName`` are grouped.
    scheduler_name: str = "closeby"
    #: Whether the pods with our gate are grouped instead, whatever scheduler they name.
    gates: bool = False
    #: Pods of these namespaces are left alone.
    excluded_namespaces: tuple[str, ...] = ()
    #: Unique to this replica.
    instance: str = MANAGER
    #: How soon a change of a workload is seen, whose pods run or wait to be placed.
    refresh: float = 30.0
    #: The same for a workload that asks for what makes no sense, and whose pods wait until it is fixed.
    refresh_blocked: float = 5.0
    #: How long the look-up of all owners above a pod may take.
    lookup_within: float = LOOKUP_WITHIN


class PodGrouper:
    """The reconciler (``controllers.running``)."""

    name: Final = "pod-grouper"
    followed: Final[tuple[Watched, ...]] = (
        *(one for one in WATCHED if one.kind in _KINDS),
        WORKLOADS,
    )

    def __init__(self, transport: Transport, grouping: Grouping, say: Say) -> None:
        self._grouping = grouping
        self._say = say
        self._owners = Owners(transport, grouping.lookup_within)
        self._writes = Writes(transport)
        self.events = Events(Writer(transport, MANAGER, grouping.instance), say)
        self.work: WorkQueue[Ref] = WorkQueue(time.monotonic, lambda key: key.namespace)
        self._pods = Pods(None if grouping.gates else grouping.scheduler_name, grouping.excluded_namespaces)
        self._local: dict[tuple[str, str], LocalQueue] = {}
        self._cluster: dict[str, ClusterQueue] = {}
        self._flavors: dict[str, ResourceFlavor] = {}
        #: By namespace and name.
        self._workloads: dict[str, GangTemplates] = {}
        self._queues = Queues(self._local, self._cluster, self._flavors)
        #: By the owner that counts: the owners that its pods name.
        self._families: dict[Ref, set[Ref]] = {}
        #: Those of them that were named since the last attempt at the owner began.
        self._named: dict[Ref, set[Ref]] = {}
        self._groups = Groups()
        #: Which text was reported of which owner (of the pod itself if it has none).
        self._reported: Reported[tuple[Ref, str]] = Reported()

    # What happens

    def observe(self, news: News) -> None:
        """Takes in one change."""
        if news.resource == PODS:
            self._observe_pod(news)
        elif news.resource.kind == "PodGroup":
            owner = self._groups.observe(news.resource, news.change)
            if owner is not None:
                self._look_at(owner)
        elif news.resource.kind in _QUEUES:
            self._observe_queue(news)
        elif news.resource.kind == WORKLOADS.kind:
            self._observe_workload(news)

    def _observe_pod(self, news: News) -> None:
        pod = news.read.record if isinstance(news.read, Decoded) else None
        if isinstance(pod, Pod) and isinstance(news.change, Upserted) and self._pods.concerns(pod):
            owner = self._pods.put(pod, news.change.raw)
        elif isinstance(pod, Pod) or isinstance(news.change, Deleted):
            owner = self._pods.drop(news.change.uid)
            # Without a gang there is nothing to keep up to date.
            if owner is not None and (self._owners.top(owner) or owner) in self._families:
                self.work.add(owner, after=_COUNTED)
            return
        else:
            # A pod that can't be read counts as it was.
            return
        if owner is not None:
            self.work.add(owner)

    def _observe_queue(self, news: News) -> None:
        record = news.read.record if isinstance(news.read, Decoded) else None
        namespace, _, name = news.change.key.rpartition("/")
        match record:
            case LocalQueue():
                self._local[namespace, name] = record
            case ClusterQueue():
                self._cluster[name] = record
            case ResourceFlavor():
                self._flavors[name] = record
            case _ if news.resource.kind == "LocalQueue":
                self._local.pop((namespace, name), None)
            case _ if news.resource.kind == "ClusterQueue":
                self._cluster.pop(name, None)
            case _:
                self._flavors.pop(name, None)
        for family in self._families:
            self.work.add(family)

    def _observe_workload(self, news: News) -> None:
        key = news.change.key
        record = news.read.record if isinstance(news.read, Decoded) else None
        if isinstance(record, GangTemplates):
            self._workloads[key] = record
        else:
            self._workloads.pop(key, None)
        namespace, _, name = key.partition("/")
        self.work.add(Ref(namespace, WORKLOAD_VERSION, WORKLOADS.kind, name, ""))

    def _look_at(self, owner: Ref) -> None:
        """An owner of a PodGroup: pods without an owner are looked at together with others of their group."""
        plain = self._pods.owner(owner.uid) if owner.kind == PODS.kind else None
        self.work.add(plain if plain is not None and not plain.uid else owner)

    # What is done about it

    async def reconcile(self, key: Ref) -> None:
        """Finds the owner that counts for pods that name ``key`` as theirs, and looks after it."""
        top = self._owners.top(key) or key
        lineage = await self._owners.lineage(key) if top == key else None
        if isinstance(lineage, ApiError):
            wait = self.work.failed(key, lineage.retry_after)
            self._say("owner unknown", warning=True, owner=key, error=lineage, retry_in=f"{wait:.1f}s")
            return
        owner = top if lineage is None else lineage.owner
        for kept in (self._families, self._named):
            kept.setdefault(owner, set()).add(key)
        if lineage is not None and owner == key:
            await self._family(lineage)
            return
        if lineage is not None:
            self._tell_unreadable(lineage, [pod for pod in self._pods.of(key) if undecided(pod)])
        # All that name it are looked at together then, and by one attempt at a time.
        self.work.done(key)
        self.work.add(owner)

    def regarding(self, key: Ref) -> Reference | None:
        """The owner; the pod itself if it has none."""
        if key.uid:
            return _reference(key)
        return next((_reference(pod_ref(pod)) for pod in self._pods.of(key)), None)

    async def _family(self, lineage: Lineage) -> None:
        owner = lineage.owner
        self._named.pop(owner, None)
        pods = self._pods_of(owner)
        plan = plan_of(lineage, list(pods.values()), self._queues, self._workloads)
        waiting = [pod for pod in pods.values() if undecided(pod)]
        self._tell_unreadable(lineage, waiting)
        for condition in plan.conditions:
            about = [owner] if owner.uid else [pod_ref(pod) for pod in waiting[:1]]
            self._tell(owner, about, condition.reason, f"{condition.field}: {condition.sentence()}")
        errors = [await self._gang(lineage, gang, pods) for gang in plan.gangs]
        if not lineage.gone:
            errors += await self._relax(owner, plan)
        alone = [pod for pod in waiting if pod.uid in plan.alone and pod.node_name is None]
        errors += await asyncio.gather(*(self._writes.leave_alone(pod) for pod in alone))
        wrong = plan.wrong
        errors += await asyncio.gather(
            *(self._writes.not_grouped(pod, wrong.get(pod.uid)) for pod in waiting)
        )
        if alone:
            self._say("not a gang", owner=owner, pods=len(alone))
        failed = [one for one in errors if one is not None]
        if failed and waiting and not failed[0].passing and failed[0].code != 409:
            # This does not cure itself: it must be visible on the pod.
            about = [one for one in (owner, pod_ref(waiting[0])) if one.uid]
            self._tell(owner, about, "NotGrouped", str(failed[0]))
        if failed:
            wait = self.work.failed(owner, failed[0].retry_after)
            self._say("not grouped", warning=True, owner=owner, error=failed[0], retry_in=f"{wait:.1f}s")
        else:
            self.work.done(owner)
            self._schedule(owner, plan, bool(waiting))

    def _schedule(self, owner: Ref, plan: Plan, waiting: bool) -> None:
        """When the owner is looked at again."""
        if waiting and (plan.waiting or any(gang.blocked for gang in plan.gangs)):
            self.work.add(owner, after=self._grouping.refresh_blocked)
        elif any(self._pods.naming(*key) for key in self._groups.of(owner)) or (plan.gangs and waiting):
            self.work.add(owner, after=self._grouping.refresh)
        elif not plan.gangs or not any(self._pods.owns(one) for one in self._families[owner]):
            # Owners that were named meanwhile have pods that were not looked at.
            left = self._named.pop(owner, None)
            if left:
                self._families[owner] = left
            else:
                del self._families[owner]
                self._groups.release(owner)

    def _pods_of(self, owner: Ref) -> dict[str, Pod]:
        """The owner's pods by uid, but for those that belong to a group of another author."""
        found = (pod for direct in self._families.get(owner, ()) for pod in self._pods.of(direct))
        return {
            pod.uid: pod for pod in found if pod.group is None or self._groups.ours(pod.namespace, pod.group)
        }

    async def _gang(self, lineage: Lineage, gang: PlannedGang, pods: Mapping[str, Pod]) -> ApiError | None:
        """Makes one gang's PodGroup true and lets its pods name it."""
        owner = lineage.owner
        members = [pods[uid] for uid in gang.members]
        joining = [pod for pod in members if pod.group is None]
        owners = [owner] if owner.uid else [pod_ref(pod) for pod in members]
        if not owners:
            return None
        key = self._groups.claim(gang.group, owner, owners)
        uid = self._groups.uid(key)
        if uid is None and not members:
            self._groups.disclaim(key)
            return None
        wanted = object_of(gang.group, key.name, owners)
        if uid is None or not self._groups.stands(key, wanted):
            answer = await self._writes.apply(wanted, *key, uid)
            if isinstance(answer, ApiError):
                self._not_written(key, uid, answer)
                return answer
            uid = answer
            self._groups.wrote(key, wanted, uid)
            self._say_written(owner, key, gang.group)
        error = await self._judge(lineage, gang, key, uid, joining)
        if error is not None or gang.blocked or not joining:
            return error
        joined = await asyncio.gather(
            *(self._writes.join(pod, key.name, gang.members[pod.uid]) for pod in joining)
        )
        errors = [one for one in joined if one is not None]
        self._say("grouped", owner=owner, group="/".join(key), pods=len(joined) - len(errors))
        return errors[0] if errors else None

    async def _relax(self, owner: Ref, plan: Plan) -> list[ApiError | None]:
        """Takes back what a workload does not ask for any more, from pods that were marked."""
        names = {name for gang in plan.gangs for name in names_for(gang.group, owner.kind, owner.uid)}
        errors: list[ApiError | None] = []
        for key in sorted(self._groups.of(owner)):
            uid = self._groups.uid(key)
            if uid is None or not owner.uid or key.name in names or not self._pods.naming(*key):
                continue
            wanted = object_of(PodGroup(namespace=key.namespace, name=key.name), key.name, [owner])
            if self._groups.stands(key, wanted):
                continue
            answer = await self._writes.apply(wanted, *key, uid)
            if isinstance(answer, ApiError):
                self._not_written(key, uid, answer)
                errors.append(answer)
            else:
                self._groups.wrote(key, wanted, answer)
                self._say("pod group relaxed", owner=owner, group="/".join(key))
        return errors

    def _not_written(self, key: Key, uid: str | None, error: ApiError) -> None:
        """A PodGroup that is not there, or another one in its place, may not have been reported yet."""
        if uid is not None and error.code in _NOT_THAT_ONE:
            self._groups.lost(key, uid)
        self._groups.disclaim(key)

    async def _judge(
        self, lineage: Lineage, gang: PlannedGang, key: Key, uid: str, waiting: Sequence[Pod]
    ) -> ApiError | None:
        """Says on the PodGroup whether what was asked for makes sense; tells if that keeps pods waiting."""
        verdict = self._groups.verdict(key, gang.group.conditions)
        if verdict is not None:
            error = await self._writes.condition(*key, uid, verdict)
            if error is not None:
                return error
            self._groups.judged(key, verdict)
        about = [one for one in (lineage.owner, *(pod_ref(pod) for pod in waiting[:1])) if one.uid]
        for one in gang.group.conditions:
            if one.blocking:
                text = f"{one.object} {one.field}: {one.sentence()}"
                self._tell(lineage.owner, about, one.reason, text)
        return None

    def _tell_unreadable(self, lineage: Lineage, waiting: Sequence[Pod]) -> None:
        if lineage.problem and waiting:
            about = [pod_ref(waiting[0])]
            self._tell(lineage.owner, about, "OwnerNotReadable", lineage.problem)

    def _tell(self, owner: Ref, about: Sequence[Ref], reason: str, text: str) -> None:
        """A warning in the log and as Events, once; a pod that is recreated under its name is another one."""
        if not self._reported.changes((owner if owner.uid or not about else about[0], text), True):
            return
        self._say("problem", warning=True, owner=owner, reason=reason, problem=text)
        note = Note(reason=reason, action="Grouping", text=text, warning=True)
        for one in about:
            self.events.post(_reference(one), note)

    def _say_written(self, owner: Ref, key: Key, group: PodGroup) -> None:
        constraint = group.constraint or TopologyConstraint()
        self._say(
            "pod group written",
            owner=owner,
            group="/".join(key),
            min_member=group.min_member,
            topology=constraint.topology,
            required=constraint.required,
            preferred=constraint.preferred,
            subgroups=len(group.subgroups) or None,
        )


def _reference(ref: Ref) -> Reference:
    return Reference(
        api_version=ref.api_version,
        kind=ref.kind,
        name=ref.name,
        namespace=ref.namespace,
        uid=ref.uid,
    )
