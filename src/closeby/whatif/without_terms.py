"""Without what an item requires of other pods: affinity, anti-affinity and spread."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from closeby.objects.pods import PodSpec
from closeby.objects.selectors import matches
from closeby.scheduling.fork import Change
from closeby.whatif.questions import Fields, Question
from closeby.whatif.records import Counterfactual, Kind


def without_terms(question: Question) -> Iterator[Counterfactual]:
    """Without one of its constraints about other pods: affinity, anti-affinity, and spread."""
    specs = {pod.spec for pod in question.waiting}
    ask = [spec.pod_affinity for spec in specs if spec.pod_affinity is not None]
    wishes: list[tuple[str, str, Callable[[PodSpec], PodSpec]]] = []
    if any(one.required for one in ask):
        wishes.append(("required pod affinity", "podAffinity", _near_no_pods))
    if any(one.forbidden for one in ask):
        wishes.append(("required pod anti-affinity", "podAntiAffinity", _apart_from_no_pods))
    spread = [one for spec in specs for one in spec.topology_spread if one.hard]
    if any(one.min_domains > 1 for one in spread):
        change = Change(waiting=tuple(replace(pod, spec=_in_any(pod.spec)) for pod in question.waiting))
        fields = {"topologySpreadConstraints[*].minDomains": None}
        found = tuple(question.relaxed(change, "now without minDomains of its topology spread", fields))
        yield from found
        spread = [] if found else spread  # That is less than not to spread.
    if spread:
        wishes.append(("topology spread constraints that say DoNotSchedule", "topologySpread", _unspread))
    for name, field, loose in wishes:
        change = Change(waiting=tuple(replace(pod, spec=loose(pod.spec)) for pod in question.waiting))
        written: Fields = {f"affinity.{field}.requiredDuringSchedulingIgnoredDuringExecution": None}
        if field == "topologySpread":
            written = {"topologySpreadConstraints[*].whenUnsatisfiable": "ScheduleAnyway"}
        found = tuple(question.relaxed(change, f"now without its {name}", written))
        yield from found or (_one_each(question) if field == "podAntiAffinity" else ())


def _one_each(question: Question) -> Iterator[Counterfactual]:
    """Why dropping its anti-affinity does not help one pod: others like it have it too."""
    pod = question.waiting[0]
    forbidden = () if pod.spec.pod_affinity is None else pod.spec.pod_affinity.forbidden
    for one in forbidden:
        if matches(one.of_pod(pod.namespace, pod.labels).selector, pod.labels):
            key = one.topology_key
            nodes = (node for node in question.trials.engine.cluster.nodes if node is not None)
            values = len({node.labels[key] for node in nodes if key in node.labels})
            sentence = (
                f"Its required pod anti-affinity allows one such pod per {key}, and there "
                f"{'is' if values == 1 else 'are'} {values:,} of them: add nodes, or drop the anti-affinity "
                "of all these pods."
            )
            yield Counterfactual(kind=Kind.RELAXED, fits=False, sentence=sentence)
            return


def _near_no_pods(spec: PodSpec) -> PodSpec:
    found = spec.pod_affinity
    return spec if found is None else replace(spec, pod_affinity=replace(found, required=()))


def _apart_from_no_pods(spec: PodSpec) -> PodSpec:
    found = spec.pod_affinity
    return spec if found is None else replace(spec, pod_affinity=replace(found, forbidden=()))


def _in_any(spec: PodSpec) -> PodSpec:
    return replace(spec, topology_spread=tuple(replace(one, min_domains=1) for one in spec.topology_spread))


def _unspread(spec: PodSpec) -> PodSpec:
    return replace(spec, topology_spread=tuple(replace(one, hard=False) for one in spec.topology_spread))
