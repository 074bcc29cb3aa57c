"""Which nodes an item could ask for instead, so that it fits now."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from closeby.objects.nodes import PREFER_NO_SCHEDULE, Node, tolerated
from closeby.objects.pods import Pod, Toleration
from closeby.plugins.node_unschedulable import CORDON
from closeby.scheduling.fork import Change
from closeby.whatif.fewest import fewest
from closeby.whatif.questions import Question, where_entry, where_text
from closeby.whatif.records import Counterfactual, Kind
from closeby.whatif.trials import TrialResult


def other_nodes(question: Question) -> Iterator[Counterfactual]:
    """Without its choice of nodes, and if it tolerated all taints."""
    specs = {pod.spec for pod in question.waiting}
    if any(spec.node_selector or spec.required_affinity is not None for spec in specs):
        anywhere = tuple(_anywhere(pod) for pod in question.waiting)
        result = question.tried(Change(waiting=anywhere))
        if result is not None:
            change = {"nodeSelector": None, "affinity.nodeAffinity": None}
            yield _of_any(question, "without its node selector and affinity", change, result)
    yield from _tolerating(question)


def _tolerating(question: Question) -> Iterator[Counterfactual]:
    """The fewest taints, of the nodes that it would use if it tolerated all, and whether cordoned nodes."""
    cluster = question.trials.engine.cluster
    if not any(node is not None and (node.taints or node.unschedulable) for node in cluster.nodes):
        return
    result = question.tried(Change(waiting=tuple(_tolerant(pod, ("",)) for pod in question.waiting)))
    if result is None:
        return
    keys = _against(question, [cluster.node_at(cluster.slot_of(one.node)) for one in result.bindings])
    # A gang that fits has what it needs, an application has more or less of it.
    number = 0 if question.application is None else len(question.got(result))

    def enough(some: Sequence[str]) -> TrialResult | None:
        fewer = question.tried(Change(waiting=tuple(_tolerant(pod, some) for pod in question.waiting)))
        return fewer if fewer is not None and len(question.got(fewer)) >= number else None

    keys, least = fewest(keys, result, enough)
    taints = [key for key in keys if key != CORDON.key]
    named = [f"taints ({', '.join(taints)})"] if taints else []
    named += ["cordoned nodes"] if CORDON.key in keys else []
    condition = f"if it tolerates {' and '.join(named) or 'all taints'}"
    yield _of_any(question, condition, {"tolerations": ", ".join(keys) or "all"}, least)


def _against(question: Question, nodes: Iterable[Node]) -> list[str]:
    """Keys of taints that keep a pod of the item from one of these nodes; that of cordoned ones last."""
    pods = list({pod.spec: pod for pod in question.waiting}.values())
    found = {
        taint.key
        for node in nodes
        for taint in (*node.taints, *((CORDON,) if node.unschedulable else ()))
        if taint.effect != PREFER_NO_SCHEDULE
        and not all(tolerated(pod.spec.tolerations, taint) for pod in pods)
    }
    return sorted(found, key=lambda key: (key == CORDON.key, key))


def _anywhere(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_selector=(), required_affinity=None))


def _tolerant(pod: Pod, keys: Iterable[str]) -> Pod:
    """A pod that tolerates taints with these keys besides; the empty key stands for all."""
    more = tuple(Toleration(key=key, operator="Exists") for key in keys)
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, *more)))


def _of_any(
    question: Question, condition: str, change: Mapping[str, str | int | None], result: TrialResult
) -> Counterfactual:
    """Also of an application, which may get nodes for some of its pods only."""
    told = Counterfactual(
        kind=Kind.RELAXED,
        fits=True,
        sentence=f"{question.fits(result)} now {condition}: {where_text(result)}.",
        change=change,
        where=where_entry(result),
    )
    if question.application is None:
        return told
    pods = tuple(pod.key for pod in question.got(result))
    return replace(told, fits=question.whole(result), pods=pods)
