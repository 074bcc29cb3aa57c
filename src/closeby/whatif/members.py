"""How many members of a gang would fit at once, and what would have to be written for that."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from closeby.objects.groups import PodGroup, SizeField
from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.reading.dialects.kai import BATCH_MIN_MEMBER
from closeby.scheduling.fork import Change
from closeby.whatif.questions import Question, farthest, where_text
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.segments import whole_segments
from closeby.whatif.trials import TrialResult

#: Where gangs are made from says which field holds their minimum: the kind of a workload, or an API version.
_MINIMUM_FIELDS = {
    "Deployment": "replicas",
    "Job": "parallelism",
    "LeaderWorkerSet": "leaderWorkerTemplate.size",
    "ReplicaSet": "replicas",
    "ReplicationController": "replicas",
    "StatefulSet": "replicas",
    "batch.volcano.sh/v1alpha1": "minAvailable",
    "scheduling.k8s.io/v1alpha1": "minCount",
    "scheduling.k8s.io/v1alpha2": "schedulingPolicy.gang.minCount",
    "scheduling.k8s.io/v1alpha3": "schedulingPolicy.gang.minCount",
    "scheduling.k8s.io/v1beta1": "schedulingPolicy.gang.minCount",
}

#: Fields of a workload that say how many members there are of which is tried what fewer would do.
SIZES = 6


def fewer_members(question: Question, group: PodGroup) -> Iterator[Counterfactual]:
    """The most members at once that are found to fit as it is, by the fields that say how many there are."""
    if group.subgroups or question.needed < 2:
        return
    if group.sizes and BATCH_MIN_MEMBER not in group.annotations:
        fields = sorted(group.sizes, key=lambda one: -one.value * one.each)[:SIZES]
        alone = (_fewer(question, group, [one], one.value) for one in fields)
        found = max(filter(None, alone), key=lambda one: one.number, default=None)
        if found is None and len(fields) > 1:
            found = _fewer(question, group, _one_for_each_role(fields), max(one.value for one in fields))
    else:

        def tried(number: int) -> TrialResult | None:
            return question.tried(Change(groups=(replace(group, min_member=number),)))

        numbers = range(question.there + 1, group.min_member)
        best = farthest([one for one in numbers if whole_segments(group, one)], tried)
        found = None if best is None else _Fewer(best[0], {_minimum_field(group): best[0]}, best[1])
    if found is None:
        return
    written = ", ".join(f"{field} {number}" for field, number in found.fields.items())
    fit = f"{found.number} of its {group.min_member} members fit now ({written})"
    answer = question.answer(Kind.RELAXED, Change(), found.result, "", fields=found.fields)
    yield replace(answer, sentence=f"{fit}: {where_text(found.result)}.")


class _Fewer(NamedTuple):
    """Fewer members that fit, and what would have to be written for that."""

    number: int
    fields: dict[str, int]
    result: TrialResult


def _fewer(question: Question, group: PodGroup, sizes: Sequence[SizeField], steps: int) -> _Fewer | None:
    """The most members that fit if these fields are lower by about the same share, none of them below 1."""

    def values(step: int) -> list[int]:
        return [max(1, one.value * step // steps) for one in sizes]

    def number(step: int) -> int:
        less = ((one.value - value) * one.each for one, value in zip(sizes, values(step), strict=True))
        return group.min_member - sum(less)

    def tried(step: int) -> TrialResult | None:
        gone: list[Pod] = []
        for one, value in zip(sizes, values(step), strict=True):
            less = (one.value - value) * one.each if one.role else 0
            pods = [pod for pod in question.waiting if pod.role == one.role]
            if less > len(pods):  # Those that run would have to go.
                return None
            gone += sorted(pods, key=lambda pod: natural_key(pod.name))[len(pods) - less :]
        change = Change(groups=(replace(group, min_member=number(step)),), gone=tuple(gone))
        return question.tried(change)

    possible = [
        step
        for step in range(1, steps)
        if question.there < number(step) < group.min_member and whole_segments(group, number(step))
    ]
    best = farthest(possible, tried)
    if best is None:
        return None
    step, result = best
    lower = zip(sizes, values(step), strict=True)
    return _Fewer(number(step), {one.path: value for one, value in lower if value < one.value}, result)


def _one_for_each_role(sizes: Sequence[SizeField]) -> list[SizeField]:
    """Of fields that say how many pods of one role there are, the one of which a unit is the fewest pods."""
    found: dict[str, SizeField] = {}
    for one in sorted(sizes, key=lambda one: one.each):
        found.setdefault(one.role or one.path, one)
    return list(found.values())


def _minimum_field(group: PodGroup) -> str:
    """The field that says how many members start at once: of its workload, if that is no PodGroup."""
    if BATCH_MIN_MEMBER in group.annotations:
        return BATCH_MIN_MEMBER
    kind, _, made = group.source.partition(" ")
    return _MINIMUM_FIELDS.get(kind, "pods") if made else _MINIMUM_FIELDS.get(group.source, "minMember")
