"""``placesFor`` of our own PodGroup: places that are asked for before the pods are there.

The pod templates are those of a Workload of Kueue, and what these ask for is read as from any workload.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from closeby.objects.bounds import quoted
from closeby.objects.groups import (
    MOST_PODS,
    POD_SET,
    WORKLOAD,
    AskedPlaces,
    Layer,
    PlaceSet,
    PodGroup,
    Remainder,
)
from closeby.objects.pods import ClaimName, Pod, PodClaim
from closeby.objects.reasons import Condition, Reason, invalid
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.common.podgroups import PlacementAsk
from closeby.reading.decoding.pods import Identity, TemplateWire, read_template
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Wire
from closeby.reading.dialects.gangs import gangs_of, read_ask
from closeby.reading.dialects.kueue import ask_of, numbering_of, queues_of

#: More than a Workload of Kueue may have.
_MOST_SETS: Final = 64
#: Places that are held for one Workload.
MOST_PLACES: Final = 100_000


class PlaceSetWire(Wire, forbid_unknown_fields=True):
    """``placesFor.podSets[]``."""

    name: str = ""
    count: int = 0
    #: Pods of the set in all, those that are done among them.
    size: int | None = None
    #: As Kueue writes it.
    topology_request: dict[str, Any] | None = None
    template: TemplateWire | None = None


class WorkloadWire(Wire, forbid_unknown_fields=True):
    """``placesFor.workload``."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class PlacesWire(Wire, forbid_unknown_fields=True):
    """``placesFor``."""

    workload: WorkloadWire | None = None
    pod_sets: list[PlaceSetWire] | None = None


def with_places(group: PodGroup, wire: PlacesWire, reading: DocumentReading) -> PodGroup:
    """The group as one that asks for places, with the constraints that the pod sets or their templates name.

    Raises:
        FieldError: a value that can't be read.
    """
    about = wire.workload or WorkloadWire()
    wires = (wire.pod_sets or ())[:_MOST_SETS]
    read = [_template(one, about, reading, i) for i, one in enumerate(wires)]
    number = sum(max(one.count, 0) for one in wires)
    # One place of each set says then why there are no others.
    most = number if number <= MOST_PLACES else 1
    counts = [min(max(one.count, 0), most) for one in wires]
    sets = [
        PodSet(
            name=one.name,
            replicas=max(min(one.size or 0, MOST_PODS), counts[i]),
            template=_standing(read[i], one, about, reading, i),
            part=i,
            template_annotations=one.template.meta.annotation_map if one.template else {},
            template_labels=one.template.meta.label_map if one.template else {},
            path=f"spec.podSets[{i}].template",
        )
        for i, one in enumerate(wires)
    ]
    asked = AskedPlaces(
        namespace=about.namespace,
        workload=about.name,
        uid=about.uid,
        sets=tuple(_place_set(*one) for one in zip(wires, sets, counts, strict=True)),
        asker=group.key,
    )
    workload = Workload(kind="Workload", namespace=about.namespace, name=about.name, pod_sets=tuple(sets))
    instead, conditions = _requested(workload, wires)
    if number > MOST_PLACES:
        message = f"{number:,} pods are more than places are held for"
        remedy = f"ask for at most {MOST_PLACES:,}"
        conditions += (invalid(workload.id, "spec.podSets", message, remedy, blocking=True),)
    conditions += tuple(
        _without_group(workload.id, i, named) for i, pod in enumerate(read) if (named := _group_of(pod))
    )
    base = msgspec.structs.replace(
        group,
        namespace=about.namespace,
        name=asked.group,
        min_member=sum(one.replicas for one in sets),
        conditions=group.conditions + conditions,
    )
    workload = msgspec.structs.replace(workload, gang=base)
    gangs = gangs_of(workload, queues_of((), (), ()), instead).gangs
    if not gangs:
        return _to_come(msgspec.structs.replace(base, places=asked), sets)
    gang = gangs[0]
    members = tuple(
        msgspec.structs.replace(
            one,
            template=msgspec.structs.replace(one.template, group=asked.group, subgroup=gang.members.get(i)),
        )
        for i, one in enumerate(asked.sets)
    )
    group = msgspec.structs.replace(gang.group, places=msgspec.structs.replace(asked, sets=members))
    return _to_come(group, sets)


def _place_set(wire: PlaceSetWire, pods: PodSet, count: int) -> PlaceSet:
    """The places of a pod set, and how its pods are numbered."""
    index, group, groups = numbering_of(wire.topology_request or {})
    return PlaceSet(
        name=pods.name,
        count=count,
        template=pods.template,
        index_label=index,
        group_label=group if groups > 1 else "",
        group_size=pods.replicas // groups if groups > 1 else 0,
        size=pods.replicas,
    )


def _to_come(group: PodGroup, sets: Sequence[PodSet]) -> PodGroup:
    """What was divided as all pods of the sets ask for it, for those of them that get places.

    Of these the last segment may be smaller.
    """
    places = () if group.places is None else group.places.sets
    counts: dict[str | None, int] = {}
    fewer: set[str | None] = set()
    for one, pods in zip(places, sets, strict=True):
        name = one.template.subgroup
        counts[name] = counts.get(name, 0) + one.count
        if one.count < pods.replicas:
            fewer.add(name)
    return msgspec.structs.replace(
        group,
        min_member=sum(counts.values()),
        layers=_with_remainder(group.layers) if None in fewer else group.layers,
        subgroups=tuple(
            msgspec.structs.replace(
                one,
                min_member=counts.get(one.name, 0),
                layers=_with_remainder(one.layers) if one.name in fewer else one.layers,
            )
            for one in group.subgroups
        ),
    )


def _with_remainder(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    return tuple(msgspec.structs.replace(one, remainder=Remainder.ALLOW, min_segments=None) for one in layers)


def _requested(
    workload: Workload, wires: Sequence[PlaceSetWire]
) -> tuple[dict[int, PlacementAsk], tuple[Condition, ...]]:
    """What each ``topologyRequest`` asks for, which overrules annotations; and what is to be said of it."""
    found: dict[int, PlacementAsk] = {}
    conditions: tuple[Condition, ...] = ()
    for i, (wire, pods) in enumerate(zip(wires, workload.pod_sets, strict=True)):
        field = f"spec.podSets[{i}].topologyRequest"
        ask = ask_of(wire.topology_request or {}, workload.id, field)
        if ask.wanted == PlacementAsk().wanted and not any(one.blocking for one in ask.conditions):
            # It says how the pods are numbered, if anything.
            conditions += ask.conditions
            continue
        found[i] = ask
        written = read_ask(pods.template_annotations, workload.id)
        if written.given and written.wanted != ask.wanted:
            message = "asks for something else than the annotations of the template, and counts"
            conditions += (invalid(workload.id, field, message, "let both ask for the same"),)
    return found, conditions


def _group_of(pod: Pod) -> str | None:
    """The PodGroup that a template names itself."""
    return pod.group or (None if pod.workload_ref is None else pod.workload_ref.gang)


def _without_group(owner: str, number: int, named: str) -> Condition:
    return Condition(
        reason=Reason.UNSUPPORTED,
        object=owner,
        field=f"spec.podSets[{number}].template",
        message=f"places are held without a look at what PodGroup {quoted(named)} asks for",
        remedy="write the constraint in the annotations of the template",
    )


def _template(wire: PlaceSetWire, about: WorkloadWire, reading: DocumentReading, number: int) -> Pod:
    called = Identity(about.namespace, f"Workload/{about.name}", f"Workload/{about.namespace}/{about.name}")
    return read_template(wire.template, reading, called, ("spec", "podSets", number, "template"))


def _standing(
    pod: Pod, wire: PlaceSetWire, about: WorkloadWire, reading: DocumentReading, number: int
) -> Pod:
    """A pod as those to come: Kueue holds these no more, and none of them preempts.

    The claims of its ephemeral volumes will be made for each pod.
    """
    claims = tuple(
        PodClaim(f"{one.name}:{about.uid}", ClaimName.TO_COME, one.request)
        if one.naming is ClaimName.AFTER_POD
        else one
        for one in pod.spec.claims
    )
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=(), preemption_policy="Never", claims=claims)
    return msgspec.structs.replace(
        pod,
        spec=reading.pool.intern(spec),
        labels={**pod.labels, POD_SET: wire.name},
        annotations={**pod.annotations, WORKLOAD: about.uid},
        group=None,
        workload_ref=None,
        node_name=None,
        part=number,
    )
