"""Makes the pods that controllers would make of workload objects, and the implied gangs.

What exists already is counted: pods in the manifests that belong to a workload keep their names, and only
what is missing is made. The outcome does not depend on the order of the manifests.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice, product
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct

from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.labels import TASK_SPEC
from closeby.objects.natural import natural_key
from closeby.objects.nodes import admission_tolerations, tolerated, tolerates
from closeby.objects.ownership import Family, families_of, names_of, set_of, top_of
from closeby.objects.pods import Pod, PodSpec, gang_key
from closeby.objects.reasons import Condition, Reason
from closeby.objects.topologies import ResourceFlavor
from closeby.objects.words import plural
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.decoding.keys import PLACEMENT_GATE, QUEUE_KEYS, QUEUE_NAME
from closeby.reading.dialects.gangs import BY_NATURE, gangs_of, in_flavors, read_ask
from closeby.reading.dialects.kueue import (
    GATES,
    MOST_CHOICES,
    Choices,
    queues_of,
    unknown_references,
)
from closeby.reading.dialects.loose import loose_gangs
from closeby.reading.dialects.upstream import referred_gangs
from closeby.reading.dialects.volcano import GROUP_SOURCE
from closeby.reading.manifests import Manifests
from closeby.reading.resolving import Resolving
from closeby.scheduling.outcomes import PLAIN


class InFlavors(Struct, frozen=True, kw_only=True):
    """The pods of a work item, and its gang, with the node labels, tolerations and topology of flavors."""

    flavors: tuple[str, ...]
    group: PodGroup | None
    pods: tuple[Pod, ...]


class Expansion(Struct, frozen=True, kw_only=True):
    """All pods and gangs, those of the manifests and those made of their workloads, sorted by name."""

    pods: tuple[Pod, ...]
    groups: tuple[PodGroup, ...]
    conditions: tuple[Condition, ...] = ()
    #: Where a queue of Kueue has several flavors for a work item: the item with each, by its key. The first
    #: one is in ``pods`` and ``groups``.
    choices: Mapping[str, tuple[InFlavors, ...]] = {}


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


class _Membership(Struct, frozen=True):
    """Names of the gang and of the subgroup; both None for a pod that belongs to none."""

    group: str | None = None
    subgroup: str | None = None


class _Expander:
    """One expansion: what is there, and what was made so far."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests
        self._queues = queues_of(
            manifests.local_queues, manifests.cluster_queues, manifests.flavors, manifests.topologies
        )
        self._pods: dict[str, Pod] = {pod.key: pod for pod in manifests.pods}
        self._groups: dict[str, PodGroup] = {group.key: group for group in manifests.groups}
        self._conditions: list[Condition] = []
        #: Workloads and pods that wait for Kueue to admit them.
        self._admitted: list[str] = []
        self._specs: dict[tuple[PodSpec, tuple[ResourceFlavor, ...] | None], PodSpec] = {}
        #: Of pods that go through a queue: their pod set, as its workload and its position there.
        self._sources: dict[str, tuple[str, int]] = {}
        self._choices: dict[tuple[str, int], Choices] = {}
        #: The subgroup of each pod set, by gang.
        self._members: dict[str, Mapping[int, str | None]] = {}

    def run(self, *, tolerate: bool) -> Expansion:
        """The whole expansion."""
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
        choices = self._give_flavors()
        if self._admitted:
            self._conditions.append(_not_admitted(self._admitted))
        self._conditions += self._quotas(families.loose)
        return _sorted(self._pods.values(), self._groups.values(), self._conditions, choices)

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
            whose = next(iter(its)) + (f" and {len(its) - 1:,} more" if len(its) > 1 else "")
            yield Condition(
                reason=Reason.UNSUPPORTED,
                object=queue,
                message=f"its quota is not checked: {whose} is placed as if there were enough",
            )

    def _expand(self, family: Family) -> None:
        workload = family.owner
        if workload.suspended and not workload.labels.get(QUEUE_NAME):
            self._conditions.append(_suspended(workload))
            return
        if workload.suspended:
            self._admitted.append(workload.id)
        existing = _by_set(family)
        sets = tuple(
            msgspec.structs.replace(pods, replicas=_wanted(pods, existing[i]))
            for i, pods in enumerate(workload.pod_sets)
        )
        asked = gangs_of(msgspec.structs.replace(workload, pod_sets=sets), self._queues)
        self._conditions += asked.conditions
        members: dict[int, _Membership] = {}
        groups = []
        for gang in asked.gangs:
            name = self._free_group_name(gang.group, workload.kind)
            groups.append(msgspec.structs.replace(gang.group, name=name))
            self._members[groups[-1].key] = gang.members
            members.update({i: _Membership(name, subgroup) for i, subgroup in gang.members.items()})
        joined: set[str | None] = set()
        for i, pods in enumerate(sets):
            own = _Membership(pods.template.group, pods.template.subgroup)
            membership = members.get(i, own)
            joined |= self._adopt(existing[i], membership)
            made = _Membership(*_shared(existing[i])) if _shared(existing[i])[0] else membership
            before = len(self._pods)
            joined |= self._make(workload, pods, existing[i], made)
            if i in asked.choices:
                new = islice(reversed(self._pods), len(self._pods) - before)
                self._choose((workload.id, i), asked.choices[i], existing[i], new)
        self._groups.update({group.key: group for group in groups if group.name in joined})

    def _adopt(self, pods: Sequence[Pod], membership: _Membership) -> set[str | None]:
        """Pods that exist join the gang of their workload, unless they name another themselves."""
        joined = set()
        for pod in pods:
            if pod.finished:
                continue
            changed = pod
            if pod.group is None and membership.group is not None:
                subgroup = pod.subgroup or membership.subgroup
                changed = msgspec.structs.replace(pod, group=membership.group, subgroup=subgroup)
            self._pods[pod.key] = changed
            joined.add(changed.group)
        return joined

    def _make(
        self,
        workload: Workload,
        pods: PodSet,
        existing: Sequence[Pod],
        membership: _Membership,
    ) -> set[str | None]:
        """The pods of a set that are missing."""
        missing = pods.replicas - sum(not pod.finished for pod in existing)
        if missing <= 0:
            return set()
        template = pods.template
        for (name, index), _ in zip(self._names(workload, pods, existing), range(missing), strict=False):
            key = f"{workload.namespace}/{name}"
            self._pods[key] = msgspec.structs.replace(
                template,
                name=name,
                uid=key,
                created=workload.created,
                part=pods.part,
                index=index,
                group=membership.group,
                subgroup=template.subgroup or membership.subgroup,
            )
        return {membership.group}

    def _names(
        self, workload: Workload, pods: PodSet, existing: Sequence[Pod]
    ) -> Iterator[tuple[str, int | None]]:
        """Names that are free, with indices where the pods are numbered."""
        used = {pod.index for pod in existing if pod.phase != "Failed"} if pods.indexed else set()
        stem = pods.pod_names[0].rpartition("-")[0] if pods.pod_names else workload.name
        for i in count():
            name = pods.pod_names[i] if i < len(pods.pod_names) else f"{stem}-{i}"
            if i + pods.first_index in used:
                continue
            if not pods.indexed:
                if f"{workload.namespace}/{name}" not in self._pods:
                    yield name, None
                continue
            for attempt in count():
                free = name if not attempt else f"{name}-{workload.kind.lower()}{attempt}"
                if f"{workload.namespace}/{free}" not in self._pods:
                    yield free, i + pods.first_index
                    break

    def _group_loose(self, loose: Sequence[Pod]) -> None:
        """Gangs of pods whose owner is not in the manifests."""
        grouped = (pod for pod in loose if pod.group is None and pod.workload_ref is None)
        single = [pod for pod in grouped if not pod.finished]
        for group, members in loose_gangs(single, self._queues):
            name = self._free_group_name(group, "pods")
            self._groups[f"{group.namespace}/{name}"] = msgspec.structs.replace(group, name=name)
            for pod in members:
                self._pods[pod.key] = msgspec.structs.replace(pod, group=name)
        for pod in loose if self._queues.local else ():
            queue = pod.labels.get(QUEUE_NAME)
            if not queue:
                continue
            placed = read_ask(pod.annotations, pod.key).given
            if choices := self._queues.choices(pod.namespace, queue, pod.spec, placed=placed):
                joined = self._pods[pod.key]
                self._choose((gang_key(joined) if joined.group else pod.key, 0), choices, (pod,))
        self._conditions += _without_owner(self._pods[pod.key] for pod in loose)

    def _group_referring(self) -> None:
        """Gangs of pods that refer to a Workload of Kubernetes."""
        workloads = {one.key: one for one in self._manifests.gang_templates}
        for group, members in referred_gangs(list(self._pods.values()), workloads):
            if all(pod.finished for pod in members):
                continue
            name = self._free_group_name(group, "workload")
            self._groups[f"{group.namespace}/{name}"] = msgspec.structs.replace(group, name=name)
            for pod in members:
                self._pods[pod.key] = msgspec.structs.replace(pod, group=name)

    def _claim(self) -> None:
        """Pods that were made have their claims for devices as far as these serve that many pods."""
        claims, existing = self._manifests.resource_claims, self._manifests.pods
        there = {pod.key for pod in existing} if claims else set()
        made = [pod for key, pod in self._pods.items() if pod.resource_claims and key not in there]
        if claims and made:
            made.sort(key=lambda pod: (pod.namespace, natural_key(pod.name)))
            resolving = Resolving((), claims, (*existing, *made))
            self._pods.update({pod.key: resolving.pod(pod) for pod in made})

    def _open_gates(self) -> None:
        """Pods that Kueue holds count as admitted, as the suspended workloads of its queues do.

        Our own gate is one that we remove ourselves.
        """
        opened = GATES | {PLACEMENT_GATE}
        for key, pod in self._pods.items():
            if pod.node_name is not None or opened.isdisjoint(pod.spec.scheduling_gates):
                continue
            gates = tuple(gate for gate in pod.spec.scheduling_gates if gate not in opened)
            spec = self._specs.get((pod.spec, None))
            if spec is None:
                spec = msgspec.structs.replace(pod.spec, scheduling_gates=gates)
                self._specs[pod.spec, None] = spec
            self._pods[key] = msgspec.structs.replace(pod, spec=spec)
            if not GATES.isdisjoint(pod.spec.scheduling_gates):
                self._admitted.append(f"Pod/{pod.key}")

    def _tolerate(self) -> None:
        """Admit pods as an API server with the plugin ExtendedResourceToleration does."""
        taints = {taint for node in self._manifests.nodes for taint in node.taints if "/" in taint.key}
        there = {pod.key for pod in self._manifests.pods if pod.created is not None} if taints else set()
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
                specs[before] = msgspec.structs.replace(before, tolerations=tolerations) if more else before
            if specs[before] is not before:
                self._pods[key] = msgspec.structs.replace(pod, spec=specs[before])
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
            self._pods[key] = msgspec.structs.replace(pod, subgroup=task)
            if task not in tasked[group_key]:
                # A task without a minimum: its pods may be there or not.
                tasked[group_key].add(task)
                group = self._groups[group_key]
                subgroups = (*group.subgroups, SubGroup(name=task, min_member=0))
                self._groups[group_key] = msgspec.structs.replace(group, subgroups=subgroups)

    def _free_group_name(self, group: PodGroup, kind: str) -> str:
        """The group's name, or one like it where a PodGroup of that name exists already."""
        for attempt in count():
            suffix = (
                "" if not attempt else f"-{kind.lower()}" if attempt == 1 else f"-{kind.lower()}{attempt}"
            )
            if f"{group.namespace}/{group.name}{suffix}" not in self._groups:
                return group.name + suffix
        raise AssertionError("counting never ends")

    def _choose(
        self, source: tuple[str, int], choices: Choices, existing: Sequence[Pod], new: Iterable[str] = ()
    ) -> None:
        """Note the flavors that the pods of a set may get: those that one of them was given, else any."""
        given = [
            one
            for one in choices
            for pod in existing
            if (labels := {pair for flavor in one for pair in flavor.node_labels})
            and not pod.finished
            and labels.issubset(pod.spec.node_selector)
        ]
        self._choices[source] = tuple(given[:1]) or choices
        self._sources.update(dict.fromkeys((*(pod.key for pod in existing), *new), source))

    def _give_flavors(self) -> dict[str, tuple[InFlavors, ...]]:
        """Give the waiting pods of queues their first flavors; returned are all choices of those work items
        that have several, by the items' keys.
        """
        items: dict[str, dict[str, tuple[str, int]]] = {}
        for key, source in self._sources.items():
            pod = self._pods[key]
            if pod.node_name is None and not pod.finished:
                items.setdefault(gang_key(pod) if pod.group else PLAIN + key, {})[key] = source
        found = {}
        for item, members in items.items():
            sources = tuple(dict.fromkeys(members.values()))
            choices = islice(product(*(self._choices[source] for source in sources)), MOST_CHOICES)
            ways = tuple(
                self._in_flavors(item, members, dict(zip(sources, chosen, strict=True))) for chosen in choices
            )
            self._pods.update({pod.key: pod for pod in ways[0].pods})
            if ways[0].group is not None:
                self._groups[item] = ways[0].group
            if len(ways) > 1:
                found[item] = ways
        return found

    def _in_flavors(
        self,
        item: str,
        members: Mapping[str, tuple[str, int]],
        chosen: Mapping[tuple[str, int], tuple[ResourceFlavor, ...]],
    ) -> InFlavors:
        group = self._groups.get(item)
        if group is not None:
            subgroups = self._members.get(item, {0: None})
            group = in_flavors(group, subgroups, {i: flavors for (_, i), flavors in chosen.items()})
        pods = tuple(self._flavored(self._pods[key], chosen[source]) for key, source in members.items())
        names = dict.fromkeys(flavor.name for flavors in chosen.values() for flavor in flavors)
        return InFlavors(flavors=tuple(names), group=group, pods=pods)

    def _flavored(self, pod: Pod, flavors: tuple[ResourceFlavor, ...]) -> Pod:
        """A waiting pod with the node labels and tolerations that Kueue would give it."""
        spec = self._specs.get((pod.spec, flavors))
        if spec is None:
            spec = pod.spec
            for flavor in flavors:
                spec = _with_flavor(spec, flavor)
            self._specs[pod.spec, flavors] = spec
        return pod if spec == pod.spec else msgspec.structs.replace(pod, spec=spec)


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


def _with_flavor(spec: PodSpec, flavor: ResourceFlavor) -> PodSpec:
    selector = dict(spec.node_selector)
    # A pod that insists on other nodes than the flavor's would never be admitted to it.
    clashes = tuple(
        f'spec.nodeSelector["{key}"] against ResourceFlavor {flavor.name}'
        for key, value in flavor.node_labels
        if selector.get(key, value) != value
    )
    tolerations = tuple(one for one in flavor.tolerations if one not in spec.tolerations)
    return msgspec.structs.replace(
        spec,
        node_selector=tuple(sorted({**dict(flavor.node_labels), **selector}.items())),
        tolerations=(*spec.tolerations, *tolerations),
        unsupported=(*spec.unsupported, *clashes),
    )


def _by_set(family: Family) -> list[list[Pod]]:
    """The pods that exist, by the position of their pod set."""
    sets = family.owner.pod_sets
    result: list[list[Pod]] = [[] for _ in sets]
    if not family.pods or not sets:
        return result
    by_name = names_of(sets) if len(sets) > 1 else {}
    numbers = _numbers(sets) if family.owner.kind == "JobSet" else {}
    for pod in family.pods:
        position = set_of(pod, family.owner, by_name)
        # A JobSet numbers the pods of each of its jobs from 0; here a set is numbered through.
        index = numbers.get(pod.name, numbers.get(pod.name.rpartition("-")[0]))
        if position is not None:
            part = sets[position].part
            numbered = msgspec.structs.replace(pod, part=part)
            if index is not None:
                numbered = msgspec.structs.replace(pod, part=part, job=0, index=index)
            result[position].append(numbered)
    return result


def _numbers(sets: Sequence[PodSet]) -> dict[str, int]:
    """The number of each pod in its set, by name."""
    return {name: i for pods in sets for i, name in enumerate(pods.pod_names)}


def _wanted(pods: PodSet, existing: Sequence[Pod]) -> int:
    """How many pods should be there now: no more than are still to complete."""
    if pods.completions is None:
        return pods.replicas
    succeeded = sum(pod.phase == "Succeeded" for pod in existing)
    return max(0, min(pods.replicas, pods.completions - max(pods.completed, succeeded)))


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


def _not_admitted(waiting: Sequence[str]) -> Condition:
    others = f" and {len(waiting) - 1:,} more" if len(waiting) > 1 else ""
    return Condition(
        reason=Reason.SCHEDULING_GATED,
        object=waiting[0],
        message=f"Kueue has not admitted it{others}; placed as if it had",
    )
