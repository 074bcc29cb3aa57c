"""The scheduling state: which pods and gangs exist, and which pods belong to which gang. Its only owner."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import inf

import numpy as np
from msgspec.structs import replace

from closeby.applications.registry import Applications, app_group_key
from closeby.cluster.columns import Cluster
from closeby.objects.groups import Exclusive, Layer, PodGroup
from closeby.objects.pods import Pod, gang_key
from closeby.objects.quantities import utc
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import plural
from closeby.objects.workloads import exclusive_kind, is_long_running, top_of
from closeby.scheduling.events import BudgetChanged, BudgetDeleted, PriorityClassChanged, PriorityClassDeleted
from closeby.scheduling.extension import QueuedItem
from closeby.scheduling.intake.budgets import Budgets
from closeby.scheduling.intake.members import Members, Priorities, PriorityInput, Turn, member_order
from closeby.scheduling.outcomes import APPLICATION, PLAIN, ItemKind, Relaxation, item_key, name_of


class Relaxing:
    """Layers that are required for a time: which of them still are, and when the next one is no more.

    A gang has waited since the oldest of its members was created, so that a scheduler that restarts agrees.
    """

    def __init__(self) -> None:
        #: The gangs that have such layers, as they were written.
        self.written: dict[str, PodGroup] = {}
        #: Gang -> seconds that it had waited when it was tried last, and when it is to be tried again.
        self._waited: dict[str, float] = {}
        self._deadlines: dict[str, float] = {}
        #: When gangs of unknown age were tried first.
        self._since: dict[str, float] = {}

    def enter(self, group: PodGroup) -> PodGroup:
        """A gang as it was written; returned as it counts now."""
        if not group.relaxing:
            self.leave(group.key)
            return group
        self.written[group.key] = group
        return group.after(self._waited.get(group.key, 0.0))

    def leave(self, key: str) -> None:
        """A gang is gone, or has no such layers any more."""
        for known in (self.written, self._waited, self._deadlines, self._since):
            known.pop(key, None)

    def at(self, key: str, created: Iterable[float | None], clock: float) -> PodGroup:
        """One of these gangs as it counts at a time; ``created``: when its members were."""
        group = self.written[key]
        since = min((one for one in created if one is not None), default=group.created)
        if since is None:
            since = self._since.setdefault(key, clock)
        # A deadline that has come has come for its layer too: a difference of floats may fall short of it.
        over = [one.relax_after or 0.0 for one in group.relaxing if since + (one.relax_after or 0.0) <= clock]
        self._waited[key] = waited = max(clock - since, *over, 0.0)
        falls = [one for one in group.relaxing if (one.relax_after or 0.0) > waited]
        if falls:
            self._deadlines[key] = since + (falls[0].relax_after or 0.0)
        else:
            self._deadlines.pop(key, None)
        return group.after(waited)

    def coming(self, key: str, clock: float, *, wall: bool) -> Relaxation | None:
        """Which requirement of a gang falls next; ``wall``: the clock counts from the epoch."""
        deadline = self._deadlines.get(key)
        if deadline is None:
            return None
        waited = self._waited[key]
        layer = next(one for one in self.written[key].relaxing if (one.relax_after or 0.0) > waited)
        level = layer.level.rpartition("/")[2]
        what = (
            f"the requirement of one {level} for each segment"
            if layer.max_domains is None
            else f"the limit of {plural(layer.max_domains, level)}"
        )
        at = utc(deadline) if wall else f"second {deadline:g}"
        return Relaxation(what=what, at=at, left=deadline - clock)

    @property
    def next(self) -> float | None:
        """The first of these deadlines."""
        return min(self._deadlines.values(), default=None)

    def due(self, clock: float) -> list[str]:
        """The gangs to try now, since a requirement of theirs has fallen."""
        found = [key for key, deadline in self._deadlines.items() if deadline <= clock]
        for key in found:
            del self._deadlines[key]
        return found


class SchedulingState:
    """Pods, gangs and priorities by the newest events."""

    def __init__(self, applications: Applications) -> None:
        self.applications = applications
        self.priorities = Priorities()
        self.budgets = Budgets()
        #: uid -> pod, for all pods that are not finished.
        self.pods: dict[str, Pod] = {}
        self.groups: dict[str, PodGroup] = {}
        #: Gangs of which requirements fall after a time.
        self.relaxing = Relaxing()
        #: Namespaces whose gangs may keep everybody else out of their domains; None: all.
        self.trust_exclusive: Collection[str] | None = None
        #: Keys of the gangs with a layer whose domains they want for themselves, in order.
        self.exclusive: dict[str, None] = {}
        self.members: dict[str, Members] = {}
        #: Plain pods that wait, by item key.
        self.waiting_pods: dict[str, Pod] = {}
        #: Pods of applications that wait, by item key and uid.
        self.waiting_apps: dict[str, dict[str, Pod]] = {}
        #: uid -> why a pod is kept out of the queue.
        self.gated: dict[str, Condition] = {}
        #: name of an unknown node (not there yet, or gone) -> the pods on it, by uid.
        self.on_unknown_nodes: dict[str, dict[str, Pod]] = {}
        #: uid of each pod on an unknown node -> that node's name.
        self._lost: dict[str, str] = {}
        #: uids of pods whose binding was refused: the plan is void for them.
        self.binding_refused: set[str] = set()
        #: Key of a claim -> uids of the pods that name it, whether they wait or hold a node.
        self.users: dict[str, dict[str, None]] = {}
        #: uids of long-running pods.
        self.long_running: set[str] = set()
        #: uids of pods of a JobSet or LeaderWorkerSet that are of no gang.
        self.plain_of_kinds: dict[str, None] = {}
        #: uid of each member that has done its work -> key of its gang.
        self._done: dict[str, str] = {}

    def take(
        self, event: PriorityClassChanged | PriorityClassDeleted | BudgetChanged | BudgetDeleted
    ) -> bool:
        """What pods are judged by has changed; True if more of them may be evicted than before."""
        if isinstance(event, BudgetChanged | BudgetDeleted):
            return self.budgets.take(event)
        self.priorities.take(event)
        return True

    def put_group(self, group: PodGroup) -> PodGroup:
        """A gang's object appeared or changed; returns it with the layers that count now."""
        if self.relaxing.written or group.relaxing:
            group = self.relaxing.enter(group)
        group = self._as_trusted(group)
        layers = (*group.layers, *(layer for one in group.subgroups for layer in one.layers))
        if any(layer.exclusive is not Exclusive.NONE for layer in layers):
            self.exclusive[group.key] = None
        else:
            self.exclusive.pop(group.key, None)
        self.groups[group.key] = group
        return group

    def drop_group(self, key: str) -> None:
        """A gang's object is gone."""
        self.groups.pop(key, None)
        self.exclusive.pop(key, None)
        self.relaxing.leave(key)

    def relax(self, key: str, clock: float) -> bool:
        """From now on a gang counts as at that time; whether it has changed."""
        members = self.members.get(key)
        pods = () if members is None else (members.waiting, members.placed, members.done)
        created = (pod.created for some in pods for pod in some.values())
        now = self._as_trusted(self.relaxing.at(key, created, clock))
        before, self.groups[key] = self.groups[key], now
        return before != now

    def _as_trusted(self, group: PodGroup) -> PodGroup:
        """The gang with the exclusive domains that its namespace may have."""
        trusted = self.trust_exclusive is None or group.namespace in self.trust_exclusive
        return group if trusted else _without_exclusive(group)

    def planned(self, key: str) -> Mapping[str, str]:
        """uid -> node: what a start that was begun promised to members that still look for a node."""
        group, members = self.groups.get(key), self.members.get(key)
        if group is None or members is None or not group.plan:
            return {}
        return {
            uid: group.plan[uid]
            for uid in members.waiting
            if uid in group.plan and uid not in self.binding_refused
        }

    def group_of(self, pod: Pod) -> PodGroup | None:
        """The gang a pod names, None if it names none or that is not there."""
        return None if pod.group is None else self.groups.get(gang_key(pod))

    def add(self, pod: Pod, placed: bool, rank: int | None = None) -> None:
        """Note a pod that waits or holds a node; ``rank`` is what it was given, if that is known."""
        self.pods[pod.uid] = pod
        for one in pod.spec.claims:
            self.users.setdefault(f"{pod.namespace}/{one.of(pod.name)}", {})[pod.uid] = None
        if is_long_running(pod):
            self.long_running.add(pod.uid)
        if pod.group is None:
            if exclusive_kind(pod):
                self.plain_of_kinds[pod.uid] = None
            key = self.item_key(pod)
            if placed:
                self._waits_no_more(pod)
            elif key.startswith(APPLICATION):
                self.waiting_apps.setdefault(key, {})[pod.uid] = pod
            else:
                self.waiting_pods[key] = pod
            return
        key = gang_key(pod)
        members = self.members.get(key)
        if members is None:
            members = self.members[key] = Members()
        members.add(pod, placed, rank if pod.rank is None else pod.rank)

    def settle(self, key: str, pods: Sequence[Pod], ranks: Iterable[int]) -> None:
        """Pods of a work item got their nodes, those of a gang also their ranks."""
        if key in self.waiting_pods:
            del self.waiting_pods[key]
        elif key in self.waiting_apps:
            for pod in pods:
                self._waits_no_more(pod)
        else:
            self.members[key].settle(pods, ranks)

    def remove(self, uid: str) -> Pod | None:
        """Forget a pod; returns it if it was known."""
        pod = self.pods.pop(uid, None)
        self.gated.pop(uid, None)
        self.binding_refused.discard(uid)
        self.long_running.discard(uid)
        self.plain_of_kinds.pop(uid, None)
        self.leave_unknown_node(uid)
        if pod is None:
            return None
        for one in pod.spec.claims:
            users = self.users.get(claim := f"{pod.namespace}/{one.of(pod.name)}", {})
            users.pop(uid, None)
            if not users:
                self.users.pop(claim, None)
        if pod.group is None:
            self._waits_no_more(pod)
            return pod
        key = gang_key(pod)
        if key in self.members:
            members = self.members[key]
            members.remove(uid)
            self._let_go(key, members)
        return pod

    def finish(self, pod: Pod) -> None:
        """A member of a gang has done its work: it holds nothing, and the gang need not wait for it."""
        if pod.group is None or self._done.get(pod.uid) != gang_key(pod):
            self.forget_finished(pod.uid)  # It may have been a member of another gang.
        if pod.group is None or pod.phase != "Succeeded":
            return
        key = gang_key(pod)
        self.members.setdefault(key, Members()).done[pod.uid] = pod
        self._done[pod.uid] = key

    def forget_finished(self, uid: str) -> None:
        """The object of a member that had done its work is gone; unknown ones are fine."""
        key = self._done.pop(uid, None)
        if key is not None:
            members = self.members[key]
            del members.done[uid]
            self._let_go(key, members)

    def done(self, key: str) -> tuple[str | None, ...]:
        """The subgroups of a gang's members that have done their work, one for each.

        Those of another top owner than the members that are there did it in an earlier run of the gang.
        """
        members, group = self.members.get(key), self.groups.get(key)
        if members is None or not members.done or (group is not None and not group.counts_finished):
            return ()
        owners = {top_of(pod) for pods in (members.waiting, members.placed) for pod in pods.values()}
        return tuple(pod.subgroup for pod in members.done.values() if not owners or top_of(pod) in owners)

    def regroup(self, app_key: str, change: Callable[[], None]) -> tuple[str, ...]:
        """Carry out a change of an AppGroup; pods that name it and wait go to the work item they then have.

        Returns the keys of the items that lost pods or got some.
        """
        waiting = [
            *self.waiting_pods.values(),
            *self.waiting_apps.get(item_key(ItemKind.APPLICATION, app_key), {}).values(),
        ]
        pods = [pod for pod in waiting if app_group_key(pod) == app_key]
        touched = [self.item_key(pod) for pod in pods]
        for pod in pods:
            self._waits_no_more(pod)
        change()
        for pod in pods:
            self.add(pod, placed=False)
        return tuple(dict.fromkeys([*touched, *(self.item_key(pod) for pod in pods)]))

    def add_on_unknown_node(self, pod: Pod, node_name: str) -> None:
        """A pod is on an unknown node."""
        self.on_unknown_nodes.setdefault(node_name, {})[pod.uid] = pod
        self._lost[pod.uid] = node_name

    def leave_unknown_node(self, uid: str) -> str | None:
        """A pod left its unknown node, or the node is known now. Returns its name, None if there was none."""
        node_name = self._lost.pop(uid, None)
        if node_name is not None:
            pods = self.on_unknown_nodes[node_name]
            del pods[uid]
            if not pods:
                del self.on_unknown_nodes[node_name]
        return node_name

    def is_on_unknown_node(self, uid: str) -> bool:
        """Whether a pod is on an unknown node."""
        return uid in self._lost

    def waiting(self, key: str) -> tuple[Pod, ...]:
        """The pods of a work item that look for a node: those of a gang in the order of their index, else of
        their names, those of an application by priority, then its order, then age.

        Another tuple each time, since caches know the pods that they judged by the tuple itself.
        """
        return (*self._waiting(key),)

    def _waiting(self, key: str) -> tuple[Pod, ...]:
        """The same; of a gang the very tuple as long as no member comes or goes."""
        pod = self.waiting_pods.get(key)
        if pod is not None:
            return (pod,)
        pods = self.waiting_apps.get(key)
        if pods is not None:
            return self._application_order(key, pods.values())
        members = self.members.get(key)
        return () if members is None else members.in_order()

    def placed(self, key: str) -> tuple[Pod, ...]:
        """The members of a gang that hold a node (or are bound to an unknown one) and stay there.

        Those that are being deleted hold it too, but the gang can't count on them, nor need it be near them.
        """
        members = self.members.get(key)
        if members is None or not members.placed:
            return ()
        return tuple([pod for pod in members.placed.values() if not pod.terminating])

    def holding(self, key: str) -> tuple[Pod, ...]:
        """The same with those that are being deleted."""
        members = self.members.get(key)
        return () if members is None else tuple(members.placed.values())

    def waits(self, key: str) -> bool:
        """Whether anything of a work item looks for a node."""
        members = self.members.get(key)
        waiting = members is not None and bool(members.waiting)
        return waiting or key in self.waiting_pods or key in self.waiting_apps

    def remembers(self, key: str) -> bool:
        """Whether a work item waits, or is a gang with members."""
        return key in self.members or key in self.waiting_pods or key in self.waiting_apps

    def rank(self, pod: Pod) -> int | None:
        """The rank that a pod was given."""
        if pod.group is None:
            return pod.rank
        key = gang_key(pod)
        members = self.members.get(key)
        given = pod.rank if members is None else members.ranks.get(pod.uid, pod.rank)
        return self._written_ranks(key).get(pod.uid) if given is None else given

    def ranks(self, key: str) -> Mapping[str, int]:
        """Ranks of the placed members of a gang, by uid, as far as they have one."""
        members = self.members.get(key)
        if members is None:
            return {}
        known = self._known_ranks(key, [*members.placed.values()], members.ranks)
        return {uid: rank for uid, rank in known.items() if not members.placed[uid].terminating}

    def written_ranks(self, key: str, pods: Sequence[Pod]) -> Mapping[str, int]:
        """By uid, the ranks that an earlier process gave to those of these members that it knew."""
        return self._known_ranks(key, pods, {})

    def _known_ranks(self, key: str, pods: Sequence[Pod], given: Mapping[str, int]) -> dict[str, int]:
        """The ranks that were ``given``, else written down, else those that the pods' labels say."""
        members, written = self.members.get(key), self._written_ranks(key)
        ranks = {pod.uid: given.get(pod.uid, written.get(pod.uid)) for pod in pods}
        known = {uid: rank for uid, rank in ranks.items() if rank is not None}
        if members is None or len(known) == len(pods):
            return known
        unknown = [pod for pod in pods if pod.uid not in known]
        return known | members.labelled_ranks(unknown, {*known.values(), *written.values()})

    def _written_ranks(self, key: str) -> Mapping[str, int]:
        """The ranks that were written down before this engine knew the gang."""
        group = self.groups.get(key)
        return {} if group is None else group.ranks

    def item(self, key: str) -> QueuedItem | None:
        """The work item as the queue orders it; None when nothing of it waits."""
        if not self.waits(key):
            return None
        turn = self._turn(key)
        return QueuedItem(
            key=key,
            priority=turn.priority,
            anchor=min((pod.created for pod in turn.pods if pod.created is not None), default=None),
            pods=turn.pods,
            group=self.groups.get(key),
            begun=turn.begun,
        )

    def turn(self, key: str) -> Turn:
        """Which pods of a work item are decided next."""
        turn = self._turn(key)
        return replace(turn, pods=(*turn.pods,))  # As ``waiting`` does.

    def _turn(self, key: str) -> Turn:
        alone = self.waiting_pods.get(key)
        if alone is not None:
            return Turn(self.priorities.of(alone), (alone,), begun=alone.begun)
        return self.priorities.turn(self._gang(key, self._waiting(key)))

    def limits(self, key: str) -> tuple[Condition, ...]:
        """A condition where the priority that a gang names does not count."""
        group = self.groups.get(key)
        if group is None or (group.priority is None and not group.priority_class_name):
            return ()
        return self.priorities.limits(self._gang(key, self.waiting(key)))

    def all_waiting(self) -> Iterator[Pod]:
        """All pods that look for a node."""
        yield from self.waiting_pods.values()
        for pods in self.waiting_apps.values():
            yield from pods.values()
        for members in self.members.values():
            yield from members.waiting.values()

    def item_keys(self) -> Iterator[str]:
        """Keys of all work items with pods that wait."""
        yield from self.waiting_pods
        yield from self.waiting_apps
        yield from (key for key, members in self.members.items() if members.waiting)

    def _let_go(self, key: str, members: Members) -> None:
        if not members.waiting and not members.placed and not members.done:
            del self.members[key]

    def waiting_users_of(self, claims: Iterable[str]) -> list[Pod]:
        """The pods without a node of their own that name one of these claims."""
        users = (self.pods[uid] for claim in claims for uid in self.users.get(claim, ()))
        return [pod for pod in users if pod.node_name is None]

    def _waits_no_more(self, pod: Pod) -> None:
        """Forget a pod without a gang that waited; a newer pod of the same name goes on waiting."""
        key = self.item_key(pod)
        app = self.waiting_apps.get(key)
        if app is not None:
            app.pop(pod.uid, None)
            if not app:
                del self.waiting_apps[key]
            return
        waiting = self.waiting_pods.get(key)
        if waiting is not None and waiting.uid == pod.uid:
            del self.waiting_pods[key]

    def item_key(self, pod: Pod) -> str:
        """The work item a pod belongs to: its gang, else its application, else itself."""
        if pod.group is not None:
            return gang_key(pod)
        application = self.applications.of(pod)
        if application is None:
            return f"{PLAIN}{pod.namespace}/{pod.name}"
        return f"{APPLICATION}{application.key}"

    def _application_order(self, key: str, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        application = self.applications.get(name_of(key))
        index = {} if application is None else application.index

        def place(pod: Pod) -> tuple[object, ...]:
            workload = None if application is None else application.workload_of(pod)
            age = inf if pod.created is None else pod.created
            rank = inf if workload is None else index[workload]
            return -self.priorities.of(pod), rank, age, *member_order(pod)

        return tuple(sorted(pods, key=place))

    def _gang(self, key: str, waiting: tuple[Pod, ...]) -> PriorityInput:
        gated = self.gated.keys() & {pod.uid for pod in waiting} if self.gated else ()
        members = self.members.get(key)
        if members is None:
            return PriorityInput(None, waiting, gated=gated)
        group = self.groups.get(key)
        others = (*self.placed(key), *members.done.values())
        return PriorityInput(group, waiting, others, self.planned(key).keys(), gated)

    def validate(self, cluster: Cluster) -> None:
        """Assert every invariant of the state and the cluster together."""
        usage = np.zeros_like(cluster.requested)
        for pod, slot in cluster.placed_pods():
            demand = cluster.demand(pod.spec)
            for row, amount in zip(demand.rows, demand.amounts, strict=True):
                usage[row, slot] += amount
            assert cluster.nodes[slot] is not None, f"{pod.key} holds a slot without a node"
            assert pod.uid in self.pods, f"{pod.key} is placed but unknown"
            assert not self.is_on_unknown_node(pod.uid), f"{pod.key} is placed, but on an unknown node"
        assert (usage == cluster.requested).all(), "columns do not equal the sum of the pods on them"
        cluster.volumes.validate(cluster.placed_pods())
        for node_name, lost in self.on_unknown_nodes.items():
            assert cluster.slot(node_name) is None, f"pods wait for {node_name}, which is known"
            assert lost.keys() <= self.pods.keys(), f"unknown pods are on the unknown node {node_name}"
        assert self.long_running <= self.pods.keys(), "unknown pods are long-running"
        for members in self.members.values():
            for pod in members.placed.values():
                held = cluster.placement(pod.uid) is not None or self.is_on_unknown_node(pod.uid)
                assert held, f"{pod.key} is placed and holds nothing"
        for pod in self.all_waiting():
            assert cluster.placement(pod.uid) is None, f"{pod.key} waits and holds a node"
            assert not self.is_on_unknown_node(pod.uid), f"{pod.key} waits and is on an unknown node"
        for key, pods in self.waiting_apps.items():
            assert pods, f"{key} is kept without a pod"
            assert all(self.item_key(pod) == key for pod in pods.values()), (
                f"{key} is not the item of its pods"
            )


def _without_exclusive(group: PodGroup) -> PodGroup:
    """A gang of a namespace that may not keep everybody else out of its domains.

    It waits if it asks for that, and others may enter those in which it runs already.
    """
    layers = (*group.layers, *(one for part in group.subgroups for one in part.layers))
    asking = [one for one in layers if one.exclusive is Exclusive.ALL]
    if not asking:
        return group

    def shared(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
        return tuple(replace(one, exclusive=Exclusive.NONE) if one in asking else one for one in layers)

    condition = Condition(
        reason=Reason.UNSUPPORTED,
        object=asking[0].written.owner or f"PodGroup/{group.key}",
        field=asking[0].written.required or "spec.layers[*].exclusive",
        message=f"gangs of namespace {group.namespace} may not keep all others out of a {asking[0].level}",
        remedy="ask the operator to name it in trustExclusive, or ask for no exclusive domains",
        blocking=True,
    )
    return replace(
        group,
        layers=shared(group.layers),
        subgroups=tuple(replace(one, layers=shared(one.layers)) for one in group.subgroups),
        conditions=(*group.conditions, condition),
    )
