"""The report of a scheduling run as data, field by field as tools may rely on it (kind SchedulingReport)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET, Struct, UnsetType, field

from closeby.objects.groups import PodGroup, SubGroup
from closeby.objects.labels import API_VERSION
from closeby.objects.pods import DEFAULT_SCHEDULER, Pod, gang_key
from closeby.objects.reasons import Condition, Reason, ReasonToken
from closeby.objects.recorded import ReservationStatus
from closeby.objects.words import natural_key
from closeby.plugins.configurations import DEFAULT
from closeby.quality.model import DEFAULT_MODEL, Model
from closeby.report.documents.common import FoundTopologyEntry, found_topology, level_of, span_of
from closeby.report.documents.preemptions import (
    NoPreemptionEntry,
    PreemptionEntry,
    no_preemption_entry,
    preemption_entries,
    victim_message,
)
from closeby.report.documents.quality import (
    AppGroupEntry,
    Cost,
    QualityEntry,
    app_group_entries,
    cost_of,
    gang_qualities,
)
from closeby.scheduling.gangs.places import SegmentPlace, segment_places
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.gangs.segments import first_index
from closeby.scheduling.intake.members import member_order
from closeby.scheduling.outcomes import Binding, Outcome, PodExplanation
from closeby.simulator.runs import Run
from closeby.whatif.records import Counterfactual, DomainPath


class VolumeEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one claim of a pod has or gets."""

    #: Name of the claim.
    claim: str
    #: Name of the volume; null where one is made for the pod's node.
    volume: str | None
    #: Name of its StorageClass; empty where it has none.
    storage_class: str
    #: Whether it was bound to its volume before.
    bound: bool


class PodEntry(Struct, frozen=True, kw_only=True):
    """One pod that is not finished."""

    namespace: str
    name: str
    #: Name of its gang; null when it belongs to none.
    group: str | None
    #: The node that it holds; null while it waits.
    node: str | None
    #: `Running` (it came with a node), `Scheduled` (it got one in this run), `Pending` or `Preempted` (it had
    #: a node, and ended to make room for others).
    phase: str
    #: Place in the order of scheduling, from 0; null unless it was scheduled in this run.
    order: int | None
    #: Place in topology order inside the gang: consecutive ranks are neighbours.
    rank: int | None
    reason: str | None
    message: str | None
    #: Name of its subgroup in the gang; only there when it names one.
    sub_group: str | UnsetType = field(default=UNSET, name="subGroup")
    #: Name of the AppGroup it belongs to; only there when it belongs to one.
    app_group: str | UnsetType = field(default=UNSET, name="appGroup")
    #: What its claims have or get; only there when it was scheduled in this run and names some.
    volumes: tuple[VolumeEntry, ...] | UnsetType = UNSET

    @property
    def application(self) -> str | None:
        """Name of the AppGroup it belongs to."""
        return self.app_group if isinstance(self.app_group, str) else None


class TrafficEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the traffic of the pods of a gang that were placed in this run costs."""

    #: What it would have cost, had they been placed pod by pod.
    one_by_one: Cost
    #: What it costs where they were placed together.
    together: Cost


class PartLine(Struct, frozen=True, kw_only=True):
    """One subgroup that holds pods."""

    name: str
    #: Its members.
    pods: int
    #: Its members that hold a node.
    placed: int
    #: The topology in which its place is given.
    topology: str | None
    #: The tightest domain that holds its placed members.
    domain: DomainPath


class SubGroupEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One subgroup of a gang. A subgroup has either members of its own or subgroups."""

    name: str
    #: How many members it needs; null where it has subgroups of its own.
    min_member: int | None
    #: How many of its subgroups it needs; null where it has none, or needs all of them.
    min_subgroup: int | None
    #: Its members, and those of its subgroups.
    pods: int
    #: Those of them that hold a node, running ones too.
    scheduled: int
    #: The topology in which its place is given; null where there is none.
    topology: str | None
    #: Short name of the level of `domain`; null when only the whole cluster holds its members.
    level: str | None
    #: The tightest domain that holds its placed members, as a path of label values.
    domain: DomainPath
    #: Distinct domains used, by short level name, coarse to fine; `hostname` counts nodes.
    span: Mapping[str, int]
    #: Of a subgroup with layers: its segments of which members hold a node, layer by layer.
    segments: tuple[SegmentPlace, ...] | UnsetType = UNSET
    #: Its own subgroups, in declared order; only there when it has some.
    sub_groups: "tuple[SubGroupEntry, ...] | UnsetType" = UNSET

    def leaves(self) -> "Iterator[SubGroupEntry]":
        """The subgroups below it that hold pods; itself where it has none."""
        if isinstance(self.sub_groups, tuple):
            for one in self.sub_groups:
                yield from one.leaves()
        else:
            yield self


class GroupEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One gang."""

    namespace: str
    name: str
    #: How many members it needs; null for a gang that pods name and no PodGroup describes.
    min_member: int | None
    #: Members that hold a node, running ones too.
    scheduled: int
    #: The topology in which its place is given; null where there is none, or several.
    topology: str | None
    #: Short name of the level of `domain`; null when only the whole cluster holds its members.
    level: str | None
    #: The tightest domain that holds all placed members, as a path of label values.
    domain: DomainPath
    #: Distinct domains used, by short level name, coarse to fine; `hostname` counts nodes.
    span: Mapping[str, int]
    reason: str | None
    message: str | None
    #: What is wrong or noteworthy about it.
    conditions: tuple[Condition, ...]
    #: Members that have done their work and count towards the minimum; only there when some have.
    finished: int | UnsetType = UNSET
    #: Nodes of `span` without a label of any level, which are outside of the topology; only there with some.
    outside: int | UnsetType = UNSET
    #: Its subgroups without a parent, in declared order; only there when it has some.
    sub_groups: tuple[SubGroupEntry, ...] | UnsetType = UNSET
    #: Of a gang with layers: its segments of which members hold a node, layer by layer.
    segments: tuple[SegmentPlace, ...] | UnsetType = UNSET
    #: The nodes that were reserved for it when it had to wait; only there when some were.
    reservation: ReservationStatus | UnsetType = UNSET
    #: The kind of its workload (a JobSet, say); only there when nothing but that makes it a gang.
    by_nature: str | UnsetType = UNSET
    #: Only there for gangs whose roles have traffic.
    traffic: TrafficEntry | UnsetType = UNSET
    #: How close its placed members are; only there when it has some.
    quality: QualityEntry | UnsetType = UNSET


def segments_in(group: GroupEntry) -> tuple[SegmentPlace, ...]:
    """All segments of a gang, and of its subgroups."""
    tops = group.sub_groups if isinstance(group.sub_groups, tuple) else ()
    found = [group.segments, *(leaf.segments for top in tops for leaf in top.leaves())]
    return tuple(one for segments in found for one in segments or ())


class CandidateEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How one domain looked before the gang was placed."""

    #: Its path of label values.
    domain: DomainPath
    #: Pods of the gang that fit there.
    fits: int
    #: Pods of the gang that look for a place.
    wanted: int
    #: Nodes of the domain that take none of these pods, by reason.
    blocked_by: Mapping[str, int]


class RejectionEntry(Struct, frozen=True, kw_only=True):
    """Why one node was refused."""

    #: Name of the plugin that refused it.
    plugin: str
    reason: str
    message: str


class ExplainEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How the cluster looked to one pod when it was decided."""

    #: `namespace/name` of the pod.
    pod: str
    #: The domains that were looked at for its gang, the best first.
    candidates: tuple[CandidateEntry, ...]
    #: By node that passed the filters, and by plugin: its score after normalising and before its weight, and
    #: `total`, the weighted sum.
    scores: Mapping[str, Mapping[str, float]]
    #: Why nodes were refused, by node.
    rejected: Mapping[str, RejectionEntry]
    #: Of a gang with task-topology: pods that belong on one node, in the order the buckets were made.
    buckets: tuple[tuple[str, ...], ...] | None
    #: Refused nodes counted by reason; only there when `rejected` leaves some of them out.
    rejected_by: Mapping[str, int] | UnsetType = UNSET
    #: What would have to be different for the pod's gang, or for it; only there where that was worked out.
    counterfactuals: tuple[Counterfactual, ...] | UnsetType = UNSET
    #: Why no pod makes room for the pod's gang, or for it; only there where that was asked.
    no_preemption: NoPreemptionEntry | UnsetType = UNSET


class SchedulingReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything a run decided."""

    api_version: str = API_VERSION
    kind: str = "SchedulingReport"
    #: Every pod that is not finished, by namespace and name.
    pods: tuple[PodEntry, ...]
    #: Every gang, by namespace and name.
    groups: tuple[GroupEntry, ...]
    #: Every AppGroup, by namespace and name.
    app_groups: tuple[AppGroupEntry, ...] = ()
    #: How every pod that was to be scheduled was decided; only there with `--explain`.
    explain: tuple[ExplainEntry, ...] | UnsetType = UNSET
    #: Who ended to make room for whom, in the order in which that was decided.
    preemptions: tuple[PreemptionEntry, ...] = ()
    #: What is wrong or noteworthy about objects other than gangs and AppGroups.
    conditions: tuple[Condition, ...] = ()
    #: Documents that could not be read and were skipped.
    errors: tuple[str, ...] = ()
    #: Objects of known kinds that were left aside, as scheduling does not need or not use them yet: their
    #: number, by kind.
    unused: Mapping[str, int] = {}
    #: What it was decided by: the name of a configuration that comes with closeby, or the path of a file.
    configuration: str = DEFAULT
    #: The topology that counts because of the nodes' labels; only there where no Topology object is.
    found_topology: FoundTopologyEntry | UnsetType = UNSET
    #: The constants behind what `quality` models; only there when some gang has one.
    model: Model | UnsetType = UNSET

    @property
    def waiting(self) -> bool:
        """Whether something stayed pending that was to be scheduled."""
        return any(pod.reason for pod in self.pods) or any(group.reason for group in self.groups)


def scheduling_report(
    run: Run,
    *,
    explain: bool = False,
    errors: Iterable[str] = (),
    counterfactuals: Mapping[str, tuple[Counterfactual, ...]] = {},
) -> SchedulingReport:
    """The report of a run. Pods and gangs are sorted by namespace and name, numbers read as numbers.

    ``counterfactuals`` are by the key of the work item, for those that are explained.
    """
    groups = group_entries(run)
    measured = any(isinstance(group.quality, QualityEntry) for group in groups)
    return SchedulingReport(
        pods=tuple(pod_entry(run, pod) for pod in run.pods),
        groups=groups,
        app_groups=app_group_entries(run),
        configuration=run.configuration,
        explain=_explain(run, counterfactuals) if explain else UNSET,
        preemptions=preemption_entries(run.preemptions),
        conditions=tuple(dict.fromkeys(run.conditions)),
        errors=tuple(errors),
        unused=run.unused,
        found_topology=found_topology(run.engine.topologies) or UNSET,
        model=DEFAULT_MODEL if measured else UNSET,
    )


def pod_entry(run: Run, pod: Pod) -> PodEntry:
    """What became of one pod."""
    binding = run.bindings.get(pod.uid)
    leftover = run.leftovers.get(pod.uid)
    node, phase, reason, message = run.node_of(pod), "Pending", None, None
    evicted = run.victims.get(pod.uid)
    if evicted is not None:
        phase, message = "Preempted", victim_message(evicted, pod)
    elif pod.node_name is not None:
        phase = "Running"
    elif binding is not None:
        phase = "Scheduled"
    elif leftover is not None:
        reason, message = str(leftover.reason), leftover.message
    elif pod.terminating:
        message = "it is being deleted and not scheduled any more"
    else:
        message = f"left to the scheduler {pod.spec.scheduler_name or DEFAULT_SCHEDULER}"
    application = run.engine.applications.of(pod)
    return PodEntry(
        namespace=pod.namespace,
        name=pod.name,
        group=pod.group,
        node=node,
        phase=phase,
        order=None if binding is None else binding.order,
        rank=run.engine.state.rank(pod) if binding is None else binding.rank,
        reason=reason,
        message=message,
        sub_group=pod.subgroup or UNSET,
        app_group=UNSET if application is None else application.group.name,
        volumes=_volumes(binding),
    )


def _volumes(binding: Binding | None) -> tuple[VolumeEntry, ...] | UnsetType:
    if binding is None or not binding.volumes:
        return UNSET
    return tuple(
        VolumeEntry(
            claim=one.claim.partition("/")[2],
            volume=one.volume,
            storage_class=one.storage_class,
            bound=one.bound,
        )
        for one in binding.volumes
    )


def group_entries(run: Run) -> tuple[GroupEntry, ...]:
    """What became of the gangs, also of those that only pods name."""
    members: dict[str, list[Pod]] = {}
    for pod in run.pods:
        if pod.group is not None:
            members.setdefault(gang_key(pod), []).append(pod)
    minimum: dict[str, int | None] = dict.fromkeys(members)
    minimum.update({group.key: group.min_member for group in run.groups})
    qualities = gang_qualities(run)
    entries = {
        key: _group(run, key, least, members.get(key, []), qualities.get(key, UNSET))
        for key, least in minimum.items()
    }
    described = [entries.pop(group.key) for group in run.groups]
    found = [*described, *entries.values()]
    return tuple(sorted(found, key=lambda one: (natural_key(one.namespace), natural_key(one.name))))


def _group(
    run: Run, key: str, min_member: int | None, members: list[Pod], quality: QualityEntry | UnsetType
) -> GroupEntry:
    namespace, name = key.split("/", 1)
    outcome = run.gang_outcomes.get(key)
    place = run.places.get(key)
    group = run.engine.state.groups.get(key)
    tree = None if group is None else run.tree_of(group)
    topology = place.topology if place is not None else "" if tree is None else tree.name
    reason, message = _why(run, key, outcome, members)
    gain = None if outcome is None else outcome.improvement
    traffic: TrafficEntry | UnsetType = UNSET
    if gain is not None:
        traffic = TrafficEntry(one_by_one=cost_of(gain.greedy), together=cost_of(gain.final))
    conditions = outcome.conditions if outcome is not None else () if group is None else group.conditions
    return GroupEntry(
        namespace=namespace,
        name=name,
        min_member=min_member,
        scheduled=sum(run.node_of(pod) is not None for pod in members),
        topology=topology or None,
        level=None if place is None else level_of(place),
        domain=() if place is None else place.path,
        span={} if place is None else span_of(place),
        outside=UNSET if place is None or not place.outside else place.outside,
        reason=reason,
        message=message,
        conditions=tuple(dict.fromkeys(conditions)),
        finished=len(run.engine.state.done(key)) or UNSET,
        sub_groups=UNSET if group is None else sub_group_entries(run, group, members) or UNSET,
        segments=UNSET if group is None else segments_of(run, group, "") or UNSET,
        reservation=UNSET if outcome is None or outcome.reservation is None else outcome.reservation.status,
        by_nature=UNSET if group is None or not group.by_nature else group.by_nature,
        traffic=traffic,
        quality=quality,
    )


def sub_group_entries(run: Run, group: PodGroup, pods: Sequence[Pod]) -> tuple[SubGroupEntry, ...]:
    """The subgroups of a gang with these members, those without a parent first; in declared order."""
    names = {one.name for one in group.subgroups}
    children: dict[str | None, list[SubGroup]] = {}
    for one in group.subgroups:
        children.setdefault(one.parent if one.parent in names else None, []).append(one)

    def entry(subgroup: SubGroup) -> tuple[SubGroupEntry, list[Pod]]:
        below = [entry(child) for child in children.get(subgroup.name, ())]
        members = [pod for _, inner in below for pod in inner]
        if not below:
            members = [pod for pod in pods if pod.subgroup == subgroup.name]
        place = run.place_of(group, members, subgroup.name)
        found = SubGroupEntry(
            name=subgroup.name,
            min_member=None if below else subgroup.min_member,
            min_subgroup=subgroup.min_subgroups if below else None,
            pods=len(members),
            scheduled=sum(run.node_of(pod) is not None for pod in members),
            topology=None if place is None else place.topology or None,
            level=None if place is None else level_of(place),
            domain=() if place is None else place.path,
            span={} if place is None else span_of(place),
            segments=segments_of(run, group, subgroup.name) or UNSET,
            sub_groups=tuple(one for one, _ in below) if below else UNSET,
        )
        return found, members

    return tuple(entry(one)[0] for one in children.get(None, ()))


def part_lines(entries: Sequence[SubGroupEntry]) -> tuple[PartLine, ...]:
    """The subgroups among them, and below them, that hold pods."""
    return tuple(
        PartLine(name=one.name, pods=one.pods, placed=one.scheduled, topology=one.topology, domain=one.domain)
        for top in entries
        for one in top.leaves()
    )


def segments_of(run: Run, group: PodGroup, leaf: str) -> tuple[SegmentPlace, ...]:
    """The segments of a gang (``leaf`` empty) or of one of its subgroups, layer by layer."""
    if not group.layers and not any(one.layers for one in group.subgroups):
        return ()
    engine = run.engine
    layerings = constraints_of(group, engine.topologies, engine.profile.close_by_default).layerings
    if leaf not in layerings:
        return ()
    own = [pod for pod in run.pods if gang_key(pod) == group.key]
    placed = [
        (pod, engine.cluster.placement(pod.uid)) for pod in own if not leaf or (pod.subgroup or "") == leaf
    ]
    members = [(pod, slot) for pod, slot in placed if slot is not None]
    ranks = {} if leaf else engine.state.ranks(group.key)
    others = [pod for pod in own if (pod.subgroup or "") != leaf] if leaf else []
    first = first_index([pod for pod, _ in members], others)
    return segment_places(layerings[leaf], members, member_order, ranks, first)


def _why(run: Run, key: str, outcome: Outcome | None, members: list[Pod]) -> tuple[str | None, str | None]:
    """Why a gang waits."""
    if outcome is not None:
        return (None if outcome.reason is None else str(outcome.reason)), outcome.full_message
    gone = [pod for pod in members if pod.uid in run.victims]
    if gone:
        whom = run.victims[gone[0].uid].preemptor
        return None, f"{len(gone)} of {len(members)} members made room for {whom}"
    if members or key in run.finished_groups:
        return None, None
    return str(Reason.GANG_INCOMPLETE), "none of its members has appeared"


def _explain(run: Run, counterfactuals: Mapping[str, tuple[Counterfactual, ...]]) -> tuple[ExplainEntry, ...]:
    """One entry per pod that was to be scheduled."""
    explained: dict[str, PodExplanation] = {}
    candidates: dict[str, tuple[CandidateEntry, ...]] = {}
    refusals: dict[str, NoPreemptionEntry] = {}
    for outcome in run.outcomes():
        shared = tuple(
            CandidateEntry(
                domain=fit.path, fits=fit.fits, wanted=fit.wanted, blocked_by=by_frequency(fit.blocked_by)
            )
            for fit in outcome.domains
        )
        members = [*(one.pod for one in outcome.bindings), *(one.pod for one in outcome.leftover)]
        candidates.update({pod.key: shared for pod in members})
        explained.update({one.pod: one for one in outcome.explanations})
        why = no_preemption_entry(outcome.no_preemption)
        if why is not None:
            refusals.update({entry.pod.key: why for entry in outcome.leftover})
    entries = []
    for pod in run.pods:
        if pod.node_name is not None:
            continue
        gang = None if pod.group is None else run.gang_outcomes.get(gang_key(pod))
        shown = explained.get(pod.key) or PodExplanation(pod=pod.key)
        left_out = sum(shown.rejected_by.values()) > len(shown.rejected)
        entry = ExplainEntry(
            pod=pod.key,
            candidates=candidates.get(pod.key, ()),
            scores=shown.scores,
            rejected=rejections(shown),
            buckets=None if gang is None else gang.buckets,
            rejected_by=by_frequency(shown.rejected_by) if left_out else UNSET,
            counterfactuals=counterfactuals.get(run.engine.state.item_key(pod), UNSET),
            no_preemption=refusals.get(pod.key, UNSET),
        )
        entries.append(entry)
    return tuple(entries)


def by_frequency(by_reason: Mapping[ReasonToken, int]) -> dict[str, int]:
    """Counts by reason, the most frequent first."""
    return {
        str(reason): by_reason[reason] for reason in sorted(by_reason, key=lambda one: (-by_reason[one], one))
    }


def rejections(explained: PodExplanation) -> dict[str, RejectionEntry]:
    """Why nodes were refused, by node."""
    return {
        node: RejectionEntry(plugin=one.plugin, reason=str(one.reason), message=one.message)
        for node, one in explained.rejected.items()
    }
