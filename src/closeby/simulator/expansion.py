"""Makes the pods that controllers would make of workload objects, and the implied gangs.

What exists already is counted: pods in the manifests that belong to a workload keep their names, and only
what is missing is made. The outcome does not depend on the order of the manifests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, Sized
from itertools import count
from types import MappingProxyType
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.labels import STEP_GATE, TASK_SPEC
from closeby.objects.nodes import admission_tolerations, tolerated, tolerates
from closeby.objects.pods import Pod, PodSpec, gang_key
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import natural_key, plural
from closeby.objects.workloads import Family, PodSet, Workload, families_of, names_of, set_of, top_of
from closeby.reading.decoding.keys import PLACEMENT_GATE, QUEUE_KEYS, QUEUE_NAME
from closeby.reading.dialects.gangs import BY_NATURE, gangs_of, read_ask
from closeby.reading.dialects.kueue import GATES, queues_of, unknown_references
from closeby.reading.dialects.loose import loose_gangs
from closeby.reading.dialects.upstream import referred_gangs
from closeby.reading.dialects.volcano import GROUP_SOURCE
from closeby.reading.manifests import Manifests
from closeby.reading.resolving import Resolving
from closeby.simulator.flavors import Flavors, InFlavors


class Expansion(Struct, frozen=True, kw_only=True):
    """All pods and gangs, those of the manifests and those made of their workloads, sorted by name."""

    pods: tuple[Pod, ...]
    groups: tuple[PodGroup, ...]
    conditions: tuple[Condition, ...] = ()
    #: Where a queue of Kueue has several flavors for a work item: the item with each, by its key. The first
    #: one is in ``pods`` and ``groups``.
    choices: Mapping[str, tuple[InFlavors, ...]] = {}
    #: Pods (by uid) with a gate, and those that must be ready before they are made.
    steps: tuple[tuple[Set[str], Set[str]], ...] = ()


def expand(manifests: Manifests, *, tolerate: bool = True) -> Expansion:
    """Every workload's pods, and a gang wherever a workload or a pod asks for one without a PodGroup.

    ``tolerate``: pods that no API server has seen get the tolerations of ExtendedResourceToleration.

    Of a whole cluster what is there, and nothing else: making the rest is its controllers' business.
    """
    if manifests.whole:
        return _sorted(manifests.pods, manifests.groups)
    return _Expander(manifests).run(tolerate=tolerate)


#: No gang by nature, but its annotations may ask for one.
_JOB: Final = "Job"
_RAY_CLUSTER: Final = "RayCluster"


class _Membership(Struct, frozen=True):
    """Names of the gang and of the subgroup; both None for a pod that belongs to none."""

    group: str | None = None
    subgroup: str | None = None


class _Job(Struct, frozen=True):
    """What the controller of one job does about its pods; most pod sets are one job."""

    names: tuple[str, ...]
    #: The number of its first pod in the set, and numbers that no new pod gets.
    first: int
    taken: frozenset[int]
    #: How many pods it still makes, and how many have finished that are not in the input.
    missing: int
    unseen: int
    #: All that count in its gang.
    members: int
    #: Whether anything says that it was begun, and whether pods are there or to come.
    begun: bool
    pending: bool


class _Expander:
    """One expansion: what is there, and what was made so far."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests
        self._queues = queues_of(
            manifests.local_queues, manifests.cluster_queues, manifests.flavors, manifests.topologies
        )
        self._pods: dict[str, Pod] = {pod.key: pod for pod in manifests.pods}
        #: Those that are there, but for the ones that others of their name replace.
        self._there = dict(self._pods)
        #: Keys of pods that others of their name may replace.
        self._ended: set[str] = set()
        self._groups: dict[str, PodGroup] = {group.key: group for group in manifests.groups}
        self._conditions: list[Condition] = []
        #: Workloads and pods that wait for Kueue to admit them.
        self._admitted: list[str] = []
        #: Workloads of which the status counts more pods than the input has.
        self._not_seen: list[str] = []
        self._flavors = Flavors()
        self._steps: list[tuple[Set[str], Set[str]]] = []

    def run(self, *, tolerate: bool) -> Expansion:
        self._conditions += unknown_references(self._queue_users(), self._queues)
        families = families_of(self._manifests.workloads, self._manifests.pods)
        for family in families.families:
            self._expand(family)
        self._group_loose(families.loose)
        self._group_referring()
        self._assign_tasks()
        self._claim()
        self._open_gates()
        if tolerate:
            self._tolerate()
        choices = self._flavors.give(self._pods, self._groups)
        if self._admitted:
            message = "Kueue has not admitted it{}; placed as if it had"
            self._conditions.append(_of_all(self._admitted, Reason.SCHEDULING_GATED, message))
        if self._not_seen:
            message = "pods of it{} that run, says the status, are not in the input: placed as if they waited"
            remedy = "add what kubectl get pods -A -o yaml prints"
            self._conditions.append(_of_all(self._not_seen, Reason.GANG_INCOMPLETE, message, remedy))
        self._conditions += self._quotas(families.loose)
        found = _sorted(self._pods.values(), self._groups.values(), self._conditions)
        return replace(found, steps=tuple(self._steps), choices=choices)

    def _queue_users(self) -> Iterator[tuple[str, str, str]]:
        """Workloads and pods of their own that wait and name a queue of Kueue."""
        for one in self._manifests.workloads:
            if QUEUE_NAME in one.labels:
                yield one.id, one.namespace, one.labels[QUEUE_NAME]
        for pod in self._manifests.pods:
            if QUEUE_NAME in pod.labels and not pod.owner and pod.node_name is None:
                yield f"Pod/{pod.key}", pod.namespace, pod.labels[QUEUE_NAME]

    def _quotas(self, loose: Sequence[Pod]) -> Iterator[Condition]:
        """One condition for each queue that limits what is placed here; ``loose`` pods have no workload."""
        users: dict[str, dict[str, None]] = {}
        named = [
            *(
                (one.id, one.namespace, {**one.annotations, **one.labels})
                for one in self._manifests.workloads
            ),
            *((f"PodGroup/{one.key}", one.namespace, one.annotations) for one in self._manifests.groups),
            *((f"Pod/{one.key}", one.namespace, {**one.annotations, **one.labels}) for one in loose),
        ]
        for user, namespace, keys in named:
            for key in QUEUE_KEYS:
                name = keys.get(key)
                if not name:
                    continue
                queue = f"Queue/{name}"
                if key == QUEUE_NAME:
                    local = self._queues.local.get((namespace, name))
                    queue = (
                        f"ClusterQueue/{local.cluster_queue}" if local else f"LocalQueue/{namespace}/{name}"
                    )
                users.setdefault(queue, {})[user] = None
        for queue, its in sorted(users.items()):
            whose = next(iter(its)) + _and_more(its)
            message = f"its quota is not checked: {whose} is placed as if there were enough"
            yield Condition(reason=Reason.UNSUPPORTED, object=queue, message=message)

    def _expand(self, family: Family) -> None:
        workload = family.owner
        if workload.suspended and not workload.labels.get(QUEUE_NAME):
            self._conditions.append(_suspended(workload))
            return
        if workload.suspended:
            self._admitted.append(workload.id)
        cluster = next((one for one in family.between if one.kind == _RAY_CLUSTER), None)
        if cluster is not None:
            # An autoscaler may have changed the sizes since.
            workload = replace(workload, pod_sets=cluster.pod_sets, over=cluster.over)
        existing = _by_set(workload, family.pods)
        jobs = [one for one in family.between if one.kind == _JOB and one.pod_sets]
        # The Job that submits a RayJob is called like it.
        between = {one.name: one.pod_sets[0] for one in jobs if one.name != workload.name}
        found = [
            _jobs_of(pods, existing[i], between, over=workload.over)
            for i, pods in enumerate(workload.pod_sets)
        ]
        sets = tuple(
            replace(pods, replicas=sum(job.members for job in found[i]))
            for i, pods in enumerate(workload.pod_sets)
        )
        asked = gangs_of(replace(workload, pod_sets=sets), self._queues)
        self._conditions += asked.conditions
        if sum(one.active for one in sets) > sum(
            _counts(pods, pod) for i, pods in enumerate(sets) for pod in existing[i]
        ):
            self._not_seen.append(workload.id)
        members: dict[int, _Membership] = {}
        groups = []
        for gang in asked.gangs:
            name = self._free_group_name(gang.group, workload.kind)
            groups.append(replace(gang.group, name=name))
            self._flavors.members[groups[-1].key] = gang.members
            members.update({i: _Membership(name, subgroup) for i, subgroup in gang.members.items()})
        joined: set[str | None] = set()
        there: dict[str, set[str]] = {}
        # A role may come before the one that it waits for.
        for i, pods in sorted(enumerate(workload.pod_sets), key=lambda one: bool(one[1].after)):
            own = _Membership(pods.template.group, pods.template.subgroup)
            membership = members.get(i, own)
            joined |= self._adopt(pods, existing[i], membership)
            made = _Membership(*_shared(existing[i])) if _shared(existing[i])[0] else membership
            template = pods.template
            begun = pods.active or any(job.begun for job in found[i])
            lacks = {} if begun else dict(_lacking(pods, sets, found, there))
            if lacks:
                gates = (*template.spec.scheduling_gates, STEP_GATE + " and ".join(lacks))
                spec = replace(template.spec, scheduling_gates=gates)
                template = replace(template, spec=spec)
            new = self._make(workload, pods, found[i], made, template)
            if i in asked.choices:
                waiting = (*(pod.key for pod in existing[i]), *new)
                self._flavors.choose((workload.id, i), asked.choices[i], waiting, existing[i])
            there[pods.name] = new | {pod.uid for pod in existing[i] if _counts(pods, pod)}
            if new and lacks:
                self._steps.append((new, set().union(*lacks.values())))
            joined |= {made.group} if new else set()
        self._groups.update({group.key: group for group in groups if group.name in joined})

    def _adopt(self, pods: PodSet, existing: Sequence[Pod], membership: _Membership) -> set[str | None]:
        """Pods that exist join the gang of their workload, unless they name another themselves."""
        joined = set()
        for pod in existing:
            if pod.finished and pods.indexed and pod.phase not in pods.kept:
                # Its controller deletes it before it makes another one of this name.
                self._ended.add(pod.key)
            if pod.finished and not pods.once:
                continue
            changed = pod
            if pod.group is None and membership.group is not None:
                subgroup = pod.subgroup or membership.subgroup
                changed = replace(pod, group=membership.group, subgroup=subgroup)
            self._pods[pod.key] = changed
            if not pod.finished:
                joined.add(changed.group)
        return joined

    def _make(
        self, workload: Workload, pods: PodSet, jobs: Sequence[_Job], membership: _Membership, template: Pod
    ) -> set[str]:
        """The pods of a set that are missing, whose uids are returned, and members that have finished."""
        new = set()
        for job in jobs:
            unseen = job.unseen if pods.once and membership.group is not None else 0
            names = zip(self._names(workload, pods, job), range(job.missing + unseen), strict=False)
            for (name, index), i in names:
                key = f"{workload.namespace}/{name}"
                self._there.pop(key, None)
                self._pods[key] = replace(
                    template,
                    name=name,
                    uid=key,
                    created=workload.created,
                    part=pods.part,
                    index=index,
                    group=membership.group,
                    subgroup=template.subgroup or membership.subgroup,
                    phase="Pending" if i < job.missing else "Succeeded",
                )
                new |= {key} if i < job.missing else set()
        return new

    def _names(self, workload: Workload, pods: PodSet, job: _Job) -> Iterator[tuple[str, int | None]]:
        """Names that are free, with indices where the pods are numbered."""
        stem = job.names[0].rpartition("-")[0] if job.names else workload.name
        for i in count():
            name = job.names[i] if i < len(job.names) else f"{stem}-{i}"
            number = job.first + i + pods.first_index
            if not pods.indexed:
                if f"{workload.namespace}/{name}" not in self._pods:
                    yield name, None
                continue
            if number in job.taken:
                continue
            for attempt in count():
                free = name if not attempt else f"{name}-{workload.kind.lower()}{attempt}"
                key = f"{workload.namespace}/{free}"
                if key not in self._pods or key in self._ended:
                    yield free, number
                    break

    def _group_loose(self, loose: Sequence[Pod]) -> None:
        """Gangs of pods whose owner is not in the manifests."""
        grouped = (pod for pod in loose if pod.group is None and pod.workload_ref is None)
        single = [pod for pod in grouped if pod.phase != "Failed"]
        for group, members in loose_gangs(single, self._queues):
            if all(pod.finished for pod in members):
                continue
            name = self._free_group_name(group, "pods")
            self._groups[f"{group.namespace}/{name}"] = replace(group, name=name)
            for pod in members:
                self._pods[pod.key] = replace(pod, group=name)
        items: dict[str, list[Pod]] = {}
        for pod in loose if self._queues.local else ():
            if pod.labels.get(QUEUE_NAME):
                joined = self._pods[pod.key]
                items.setdefault(gang_key(joined) if joined.group else pod.key, []).append(pod)
        for item, own in items.items():
            # Of a group of pods, those that ask for the same are a pod set.
            shapes: dict[PodSpec, list[Pod]] = {}
            for pod in own:
                shapes.setdefault(pod.spec, []).append(pod)
            for i, (spec, alike) in enumerate(shapes.items()):
                first = alike[0]
                placed = read_ask(first.annotations, first.key).given
                choices = self._queues.choices(first.namespace, first.labels[QUEUE_NAME], spec, placed=placed)
                if choices:
                    self._flavors.choose((item, i), choices, (pod.key for pod in alike), own)
        self._conditions += _without_owner(self._pods[pod.key] for pod in loose)

    def _group_referring(self) -> None:
        """Gangs of pods that refer to a Workload of Kubernetes."""
        workloads = {one.key: one for one in self._manifests.gang_templates}
        for group, members in referred_gangs(list(self._pods.values()), workloads):
            if all(pod.finished for pod in members):
                continue
            name = self._free_group_name(group, "workload")
            self._groups[f"{group.namespace}/{name}"] = replace(group, name=name)
            for pod in members:
                self._pods[pod.key] = replace(pod, group=name)

    def _claim(self) -> None:
        """Pods that were made have their claims for devices as far as these serve that many pods."""
        claims = self._manifests.resource_claims
        made = [pod for key, pod in self._pods.items() if pod.resource_claims and key not in self._there]
        if claims and made:
            made.sort(key=lambda pod: (pod.namespace, natural_key(pod.name)))
            resolving = Resolving((), claims, (*self._there.values(), *made))
            self._pods.update({pod.key: resolving.pod(pod) for pod in made})

    def _open_gates(self) -> None:
        """Pods that Kueue holds count as admitted, as the suspended workloads of its queues do.

        Our own gate is one that we remove ourselves.
        """
        opened = GATES | {PLACEMENT_GATE}
        opened_specs: dict[PodSpec, PodSpec] = {}
        for key, pod in self._pods.items():
            if pod.node_name is not None or opened.isdisjoint(pod.spec.scheduling_gates):
                continue
            gates = tuple(gate for gate in pod.spec.scheduling_gates if gate not in opened)
            spec = opened_specs.setdefault(pod.spec, replace(pod.spec, scheduling_gates=gates))
            self._pods[key] = replace(pod, spec=spec)
            if not GATES.isdisjoint(pod.spec.scheduling_gates):
                self._admitted.append(f"Pod/{pod.key}")

    def _tolerate(self) -> None:
        """Admit pods as an API server with the plugin ExtendedResourceToleration does."""
        taints = {taint for node in self._manifests.nodes for taint in node.taints if "/" in taint.key}
        there = {key for key, pod in self._there.items() if pod.created is not None} if taints else set()
        specs: dict[PodSpec, PodSpec] = {}
        changed: dict[str, list[str]] = {}
        for key, pod in self._pods.items() if taints else ():
            if pod.node_name is not None or key in there:
                continue
            before = pod.spec
            if before not in specs:
                more = tuple(
                    one
                    for one in admission_tolerations(name for name, _ in before.requests)
                    if any(tolerates(one, t) and not tolerated(before.tolerations, t) for t in taints)
                )
                tolerations = (*before.tolerations, *more)
                specs[before] = replace(before, tolerations=tolerations) if more else before
            if specs[before] is not before:
                self._pods[key] = replace(pod, spec=specs[before])
                for one in specs[before].tolerations[len(before.tolerations) :]:
                    changed.setdefault(one.key, []).append(key)
        self._conditions += (
            Condition(
                reason=Reason.TAINT_NOT_TOLERATED,
                object=f"Pod/{min(pods)}",
                field="spec.tolerations",
                message=f"taint {key} counts as tolerated by {plural(len(pods), 'pod')}, "
                "as the admission plugin ExtendedResourceToleration has it",
                remedy="configure extendedResourceToleration: false where the cluster lacks it",
            )
            for key, pods in sorted(changed.items())
        )

    def _assign_tasks(self) -> None:
        """Members of a Volcano PodGroup with minima per task are in the subgroup of their task."""
        tasked = {
            key: {one.name for one in group.subgroups}
            for key, group in self._groups.items()
            if group.source == GROUP_SOURCE and group.subgroups
        }
        if not tasked:
            return
        for key, pod in self._pods.items():
            group_key = gang_key(pod)
            task = pod.annotations.get(TASK_SPEC) or pod.labels.get(TASK_SPEC)
            if pod.group is None or group_key not in tasked or pod.subgroup is not None or not task:
                continue
            self._pods[key] = replace(pod, subgroup=task)
            if task not in tasked[group_key]:
                # A task without a minimum: its pods may be there or not.
                tasked[group_key].add(task)
                group = self._groups[group_key]
                subgroups = (*group.subgroups, SubGroup(name=task, min_member=0))
                self._groups[group_key] = replace(group, subgroups=subgroups)

    def _free_group_name(self, group: PodGroup, kind: str) -> str:
        """The group's name, or one like it where a PodGroup of that name exists already."""
        for attempt in count():
            suffix = (
                "" if not attempt else f"-{kind.lower()}" if attempt == 1 else f"-{kind.lower()}{attempt}"
            )
            if f"{group.namespace}/{group.name}{suffix}" not in self._groups:
                return group.name + suffix
        raise AssertionError("counting never ends")


def _sorted(
    pods: Iterable[Pod],
    groups: Iterable[PodGroup],
    conditions: Iterable[Condition] = (),
    choices: Mapping[str, tuple[InFlavors, ...]] = MappingProxyType({}),
) -> Expansion:
    return Expansion(
        pods=tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name))),
        groups=tuple(sorted(groups, key=lambda group: (group.namespace, group.name))),
        conditions=tuple(conditions),
        choices=choices,
    )


def _by_set(workload: Workload, pods: Sequence[Pod]) -> list[list[Pod]]:
    """The pods that exist, by the position of their pod set."""
    sets = workload.pod_sets
    result: list[list[Pod]] = [[] for _ in sets]
    by_name = names_of(sets) if pods and len(sets) > 1 else {}
    numbers = {
        name: i + one.first_index
        for one in sets
        if pods and one.indexed
        for i, name in enumerate(one.pod_names)
    }
    for pod in pods:
        position = set_of(pod, workload, by_name)
        if position is None:
            continue
        of = sets[position]
        numbered = replace(pod, part=of.part)
        if of.each or (of.indexed and pod.index is None):
            # A JobSet numbers the pods of each of its jobs from 0; here a set is numbered through.
            index = numbers.get(pod.name, numbers.get(pod.name.rpartition("-")[0]))
            if index is None and of.each:
                index = pod.job * of.each + (pod.index or 0)
            numbered = replace(numbered, job=0 if of.each else pod.job, index=index)
        result[position].append(numbered)
    return result


def _jobs_of(
    pods: PodSet, existing: Sequence[Pod], between: Mapping[str, PodSet], *, over: bool
) -> list[_Job]:
    """The jobs of a set: what the Job that is there says of each, else what the status of the set does.

    New pods get the lowest numbers that are free. Source: the Job controller's ``manageJob``.
    """
    each = pods.each or max(1, len(pods.pod_names))
    by_job: dict[int, list[Pod]] = {}
    for pod in existing:
        by_job.setdefault((pod.index or 0) // each if pods.each else 0, []).append(pod)
    names = [pods.pod_names[at : at + each] for at in range(0, len(pods.pod_names), each)] or [()]
    own = [between.get(one[0].rpartition("-")[0]) if one else None for one in names]
    # The status of a set of several does not say which of them are done.
    done = pods.completed // each - sum(one is not None and not one.replicas for one in own)
    found = []
    for j, (one, first) in enumerate(zip(own, count(0, each), strict=False)):
        there = by_job.get(j, [])
        limits = one or pods
        alive = [pod for pod in there if _counts(limits, pod)]
        if one is None and pods.each:
            ended = done > 0 and not alive
            done -= ended
            size = 0 if ended else pods.replicas // len(names)
            limits = replace(pods, replicas=size, completions=each, completed=each * ended)
        kept = [pod for pod in there if pod.phase in limits.kept]
        seen = {pod.name if pod.index is None else pod.index: pod.phase for pod in kept}
        gone = seen.keys() | {first + i for i in limits.done}
        failed = sum(phase == "Failed" for phase in seen.values())
        wanted = limits.replicas
        total = wanted if limits.completions is None else limits.completions
        finished = max(min(limits.completed + failed, total), len(gone))
        if over or (finished and limits.until_first):
            wanted = min(wanted, len(alive))
        elif limits.kept:
            wanted = max(0, min(wanted, total - finished))
        taken = (*gone, *(pod.index for pod in alive))
        job = _Job(
            names=names[j],
            first=first,
            taken=frozenset(number for number in taken if isinstance(number, int)),
            missing=max(0, wanted - len(alive)),
            unseen=finished - len(seen),
            members=wanted + (finished - failed if pods.once else 0),
            begun=bool(there or finished or one),
            pending=bool(wanted or alive),
        )
        found.append(job)
    return found


def _counts(pods: PodSet, pod: Pod) -> bool:
    """Whether a pod counts as there, so that no other is made in its place."""
    return not pod.finished and not (pods.replaced and pod.terminating)


def _lacking(
    pods: PodSet, sets: Sequence[PodSet], found: Sequence[Sequence[_Job]], there: Mapping[str, Set[str]]
) -> Iterator[tuple[str, Set[str]]]:
    """What must happen before the pods of a set are made, and which of those that are ``there``, by set, must
    have their nodes for that; what runs to its end does not end in this run.
    """
    for name, complete in pods.after:
        jobs = (job for i, one in enumerate(sets) if one.name == name for job in found[i])
        if not complete:
            yield f"{name} is ready", there.get(name, set())
        elif any(job.pending for job in jobs):
            yield f"{name} is complete", {""}


def _shared(pods: Sequence[Pod]) -> tuple[str | None, str | None]:
    """The group and subgroup that all living pods of a set name themselves, which new ones join."""
    memberships = {(pod.group, pod.subgroup) for pod in pods if not pod.finished}
    return memberships.pop() if len(memberships) == 1 else (None, None)


def _suspended(workload: Workload) -> Condition:
    return Condition(
        reason=Reason.SCHEDULING_GATED,
        object=workload.id,
        field="spec.suspend",
        message=f"{workload.kind} is suspended, so no pods are made of it",
        remedy="set suspend to false",
    )


def _without_owner(loose: Iterable[Pod]) -> Iterator[Condition]:
    """Of each kind that is a gang by nature, and of Jobs of several pods, whose annotations may ask for one:
    the pods whose workload is not in the input.
    """
    found: dict[str, dict[str, int]] = {}
    for pod in loose:
        if pod.node_name or pod.group or pod.workload_ref or pod.finished:
            continue
        kind, _, name = top_of(pod).partition("/")
        if kind not in BY_NATURE and kind != _JOB:
            continue
        owners = found.setdefault(kind, {})
        key = f"{kind}/{pod.namespace}/{name}"
        owners[key] = owners.get(key, 0) + 1
    for kind, counts in sorted(found.items()):
        owners = {owner: pods for owner, pods in counts.items() if kind != _JOB or pods > 1}
        if not owners:
            continue
        first, *more = sorted(owners)
        others = f" (nor {'are' if len(more) > 1 else 'is'} {len(more):,} more)" if more else ""
        pods = plural(sum(owners.values()), "pod")
        unknown = f"whether {pods} are gangs is" if kind == _JOB else f"the gang of {pods} is"
        yield Condition(
            reason=Reason.GANG_INCOMPLETE,
            object=first,
            message=f"is not in the input{others}, so {unknown} not known: each is placed by itself",
            remedy=f"add what kubectl get {kind.lower()} -A -o yaml prints",
        )


def _of_all(ids: Sequence[str], reason: Reason, message: str, remedy: str = "") -> Condition:
    """One condition for several objects, the first of which is named."""
    return Condition(reason=reason, object=ids[0], message=message.format(_and_more(ids)), remedy=remedy)


def _and_more(named: Sized) -> str:
    """How many there are besides the one that is named."""
    return f" and {len(named) - 1:,} more" if len(named) > 1 else ""
